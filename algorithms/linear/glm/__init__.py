"""Generalised linear models with a smooth objective: passes over rows, and the choice of a solver."""
