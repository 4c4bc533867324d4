"""Seed words: what is added to beta for some words in some topics.

The samplers take `seeds`, which is None or a tuple (indptr, topics, weights, sums): CSR of words x topics in
float32, and the sum of each topic. It is known at compile time which of the two it is: without seed words the
compiled code is that of one beta a word.

The current word has its weights in a dense scratch row of `extra`, zero wherever it has none; `extra` is None
without seed words.
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import BORROWS, INNER, KERNEL

_INLINE: dict[str, Any] = {**KERNEL, **BORROWS, **INNER, "fastmath": {"contract"}, "forceinline": True}


@nb.njit(**_INLINE)
def load_extra(seeds, word, extra, r):
    """Write the weights of a word into row r, where there are none."""
    if seeds is not None:
        for j in span(seeds[0], word):
            extra[r, at(seeds[1][j])] = seeds[2][j]


@nb.njit(**_INLINE)
def clear_extra(seeds, word, extra, r):
    """Take the weights of a word out of row r."""
    if seeds is not None:
        for j in span(seeds[0], word):
            extra[r, at(seeds[1][j])] = 0


@nb.njit(**_INLINE)
def smoothed(count, beta, extra, r, topic):
    """Count and prior of the word in row r and a topic."""
    if extra is None:
        return np.float32(count) + beta
    return np.float32(count) + (beta + extra[r, topic])


@nb.njit(**_INLINE)
def smoothed_total(total, beta_sum, seeds, topic):
    """Tokens of a topic and the sum of its priors over the words."""
    if seeds is None:
        return np.float32(total) + beta_sum
    return np.float32(total) + (beta_sum + seeds[3][topic])
