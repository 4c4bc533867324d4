"""Sparse linear models: Lasso, elastic net and logistic regression on a working set of columns."""
