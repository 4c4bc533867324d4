"""Bayesian models by embarrassingly parallel Markov chain Monte Carlo."""
