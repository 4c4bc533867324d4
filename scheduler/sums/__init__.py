"""Sums over portions of the data, as passes on threads or on Dask workers."""
