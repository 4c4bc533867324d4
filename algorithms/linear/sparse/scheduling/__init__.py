"""Sparse models whose columns are scheduled: drawn at random, by correlation, or owned by workers."""
