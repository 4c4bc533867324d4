"""Comparisons of plans that train networks: pipelines, placement, all-reduce."""
