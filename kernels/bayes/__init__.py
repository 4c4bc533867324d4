"""Kernels of Markov chains and log densities."""
