"""The stale-synchronous parameter table, and replicas that share it."""
