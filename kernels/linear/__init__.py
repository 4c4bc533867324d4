"""Kernels of linear models."""
