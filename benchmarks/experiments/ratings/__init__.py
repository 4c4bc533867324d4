"""Studies of matrix factorization."""
