"""A corpus as shards of documents: where they lie, their first reading, and the memory that they take."""
