"""Schedules: which blocks are updated next. State and event in, plan out."""
