"""Bytes of what a sampler keeps of its shards, from their sizes alone."""

import numpy as np

from .document_rows import DENSE_TOPICS, are_short, row_width
from .list_layout import LANES


def bytes_of_state(name, n_topics, n_tokens, n_documents, longest, n_of_corpus, n_words, n_labels=None):
    """Bytes of the tokens of a shard with their topics, and of its documents with their counts.

    `name` is that of the sampler, of which "both" has the two in turn, and for a moment a shard of each.
    `longest` are the most tokens of a document, `n_of_corpus` the documents of all shards, and `n_labels` the
    labels of documents where they have them. Numbers may be arrays, of several shards.
    """
    if name == "both":
        sizes = n_tokens, n_documents, longest, n_of_corpus, n_words
        return bytes_of_state("gibbs", n_topics, *sizes) + bytes_of_state("warp", n_topics, *sizes)
    topic = bytes_of_topic(n_topics)
    rest = (
        16 * n_documents + 16 * n_words
    )  # order and lengths; where tokens of a word begin, and their offset
    if name == "warp":
        return n_tokens * (2 * topic + 4) + 16 * n_documents + rest
    rows = bytes_of_lists(n_topics, n_tokens, n_documents)
    if n_labels is not None:
        rows = 20 * n_labels
    elif name != "light" and are_short(n_of_corpus, longest, n_topics):
        rows = np.clip(2 * n_tokens, 8 * n_documents, 32 * n_documents)
    elif name != "light" and n_topics <= DENSE_TOPICS:
        rows = n_documents * row_width(n_topics) * np.min_scalar_type(longest).itemsize
    return n_tokens * (topic + 4) + rows + rest


def bytes_of_topic(n_topics):
    """Bytes of a token's topic."""
    return 2 if n_topics <= np.iinfo(np.uint16).max else 4


def bytes_of_lists(n_topics, n_tokens, n_documents, longest=None):
    """Bytes of the lists of documents, of one line or more, whose last lines are half full on average.

    With the `longest` document those in a snapshot, which has fewer bytes where topics and counts are small.
    """
    entries = np.minimum(n_tokens, n_documents * n_topics) + n_documents * LANES / 2
    entries = np.maximum(entries, n_documents * LANES)
    if longest is None:
        return 4 * entries + 12 * n_documents
    return np.min_scalar_type((n_topics << longest.bit_length()) - 1).itemsize * entries + 4 * n_documents
