"""Log densities that the samplers call, compiled."""
