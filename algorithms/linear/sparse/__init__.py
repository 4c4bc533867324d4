"""Sparse linear models: a working set of columns, the losses on it, and where the columns are."""
