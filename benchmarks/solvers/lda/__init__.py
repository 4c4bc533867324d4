"""Solvers of ``stradask bench lda``."""
