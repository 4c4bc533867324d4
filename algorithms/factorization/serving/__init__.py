"""Recommendations from a fitted factorization: best items, explanations, exports, maps."""
