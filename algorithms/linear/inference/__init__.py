"""Maximum likelihood with standard errors: families, passes over the rows, covariances, summaries."""
