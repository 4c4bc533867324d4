"""Selection of columns with error control: stability selection and knockoffs."""
