"""Sweeps of models that are not plain LDA: keywords, labels, responses, mixtures, slices of time."""
