"""Reading a fitted topic model: top words, coherence, distances, comparison of groups, pictures."""
