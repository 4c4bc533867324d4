"""Solvers of ``stradask bench mf``."""
