"""Solvers of ``stradask bench logistic``."""
