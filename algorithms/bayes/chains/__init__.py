"""Markov chains of one density: warm-up, samplers, modes."""
