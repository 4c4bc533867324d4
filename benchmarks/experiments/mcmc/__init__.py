"""Studies of sampling, on threads and in shards."""
