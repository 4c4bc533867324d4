"""Kernels of matrix factorization."""
