"""Solvers of ``stradask bench structured``."""
