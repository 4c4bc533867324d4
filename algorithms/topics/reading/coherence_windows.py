"""Coherence over texts: words that occur in the same sliding windows."""

import warnings

import numpy as np

from ....errors import DataError, shortened
from .coherence import c_npmi, c_v

WINDOWS = {"c_v": 110, "c_npmi": 10}  # tokens, as in Röder et al.


def windowed_coherence(top, vocabulary, texts, measure, window):
    """Coherence of each topic's words, `top` (topics x columns), over windows of `window` tokens."""
    from ....datasets.texts import words_in_order
    from ....kernels.lda.documents.windows import count_windows

    words, place = np.unique(top, return_inverse=True)
    number = {vocabulary[w]: i for i, w in enumerate(words.tolist())}
    if len(number) < len(words):
        raise DataError("the vocabulary has a word twice: coherence over texts needs different words")
    tokens, starts = _numbers(words_in_order(texts, list(number)), number)
    place = place.ravel()
    order = np.argsort(place, kind="stable")
    word_start = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(words)))])
    together = np.zeros((len(top), top.shape[1], top.shape[1]), np.int64)
    which = order // top.shape[1], order % top.shape[1]
    n = count_windows(tokens, starts, np.int64(window), word_start, *which, together)
    absent = np.flatnonzero(np.bincount(tokens[tokens >= 0], minlength=len(words)) == 0)
    if len(absent):
        message = (
            f"{len(absent):,} of the topics' {len(words):,} most probable words, such as "
            f"{shortened(vocabulary[words[absent[0]]])}, are in no text: are the texts of the model's "
            "language, and cut into words as its documents were? Else give each as a list of words"
        )
        if 2 * len(absent) > len(words):
            raise DataError(message)
        warnings.warn(message, stacklevel=3)
    of_topic = {"c_v": c_v, "c_npmi": c_npmi}[measure]
    return np.array([of_topic(counts.astype(np.float64), n) for counts in together])


def _numbers(texts, number):
    """Numbers of words, -1 for others, of all texts one after the other, and where each begins."""
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)])
    tokens = np.fromiter((number.get(word, -1) for text in texts for word in text), np.int32, starts[-1])
    return tokens, starts
