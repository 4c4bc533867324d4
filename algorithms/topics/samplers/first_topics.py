"""The topics that tokens begin with, and what names the random draws of them."""

import numpy as np

from ....kernels.lda import host

# Purposes of random streams: choices of documents, choices of tokens, seed words. Sweeps have 1, 7 to 9 and
# 11, inference has 2, 5 and 6.
CHOICES, ASSIGN, SEEDED = 3, 4, 10
FIRST_TOPICS = 3  # a document starts from this many: held-out perplexity falls faster than from all K...
LONG_DOCUMENT = 200  # ...except for documents of so many tokens, if their sweeps are annealed


def starts_from_all(lengths, annealed):
    """Which documents begin with any of all topics."""
    return (lengths >= LONG_DOCUMENT) & (annealed > 0)


def first_topics(token_doc, topics, n_topics, lengths, annealed, seed):
    """Give each token of a whole corpus at random one of the topics that its document starts from."""
    choices = host.uniforms(np.arange(len(lengths)), seed, CHOICES, 0, 0).reshape(-1, 4)[:, :FIRST_TOPICS]
    spread = starts_from_all(lengths, annealed)
    host.assign_first(token_doc, topics, n_topics, choices, spread, seed, ASSIGN)
    return topics
