"""One small file a solver: ours and the peers'."""
