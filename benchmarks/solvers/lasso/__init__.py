"""Solvers of ``stradask bench lasso``."""
