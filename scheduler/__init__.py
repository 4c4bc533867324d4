"""Schedules, sessions and the loop that ties them; knows no algorithm."""
