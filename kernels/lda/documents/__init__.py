"""Documents under fixed topics: topic shares, topics of tokens, likelihoods, windows of words."""
