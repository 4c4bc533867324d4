"""Subposteriors: rows cut into shards, and chains of each shard on threads or on Dask."""
