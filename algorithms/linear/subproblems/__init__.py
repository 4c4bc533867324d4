"""Problems on the columns of a working set, and the methods that solve them."""
