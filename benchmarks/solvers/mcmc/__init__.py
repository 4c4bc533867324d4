"""Solvers of ``stradask bench mcmc``."""
