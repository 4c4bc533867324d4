"""Generalised linear mixed models by formula: design, priors, start, density and new observations."""
