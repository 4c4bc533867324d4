"""Reports of fitted models on the command line, a file a family."""
