"""Studies of linear models."""
