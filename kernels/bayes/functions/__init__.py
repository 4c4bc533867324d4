"""Compiled functions for log likelihoods, with derivatives."""
