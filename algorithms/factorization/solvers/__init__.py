"""Solvers of matrix factorization, and the shards and penalties that they share."""
