"""Solvers of ``stradask bench sparse-logistic``."""
