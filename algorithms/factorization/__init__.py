"""Matrix factorization: recommendations from ratings and from counts."""
