"""Samplers of topic models, on one machine, in files and on a cluster."""
