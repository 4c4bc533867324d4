"""Studies of topic models."""
