"""Steps of networks."""
