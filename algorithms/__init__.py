"""Estimators, and the programs they run."""
