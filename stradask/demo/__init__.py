"""``stradask demo``: every family on real data, on one page with pictures."""
