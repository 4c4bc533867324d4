"""Minimisers of objectives that are sums over portions of the data."""
