"""Sessions: where the shards of a program are, on threads or on Dask workers, and calls to them."""
