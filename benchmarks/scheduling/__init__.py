"""Comparisons of schedules: dynamic and static blocks, rotation, stale-synchronous tables."""
