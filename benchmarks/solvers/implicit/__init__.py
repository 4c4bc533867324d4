"""Solvers of ``stradask bench implicit``."""
