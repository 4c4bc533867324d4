"""Seed words: what is added to beta for some words in some topics.

The samplers take `seeds`, which is None or a tuple (indptr, topics, weights, sums): CSR of words x topics in
float32, and the sum of each topic. It is told at compile time which of the two it is: without seed words the
compiled code is that of one beta a word.

The word at hand has its weights in a dense scratch row, `extra`, zero wherever it has none.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..random import fill_uniform

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": {"contract"}, "error_model": "numpy"}
_INLINE: dict[str, Any] = {**_OPTIONS, "forceinline": True}
_DRAWS = 4096  # uniforms made at a time


@nb.njit(**_INLINE)
def extra_rows(seeds, n_rows, n_topics):
    """Scratch rows for words at hand; None without seed words."""
    if seeds is None:
        return None
    return np.zeros((n_rows, n_topics), np.float32)


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


@nb.njit(**_OPTIONS)
def assign_seeded(word_start, topics, seeds, seed, purpose, round_):
    """Give the tokens of each word that has weights a topic in proportion to them."""
    indptr, their_topics, weights, _ = seeds
    uniforms = np.empty(_DRAWS, np.float32)
    filled = -1
    for w in range(len(word_start) - 1):
        total = 0.0
        for j in span(indptr, w):
            total += weights[j]
        if total <= 0:
            continue
        for i in range(word_start[w], word_start[w + 1]):
            if i // _DRAWS != filled:
                filled = i // _DRAWS
                fill_uniform(uniforms, filled * (_DRAWS // 4), seed, purpose, round_, i >> 34)
            left = uniforms[i % _DRAWS] * total
            for j in span(indptr, w):
                if weights[j] > 0:
                    topics[i] = their_topics[j]
                left -= weights[j]
                if left < 0:
                    break


@nb.njit(**_OPTIONS)
def seeded_words(first, last, word_start, topics, background, row_of_word, n_topics, beta, seeds):
    """Sum, over words ``first:last`` and topics, what seed words change of `topic_counts.words`.

    That is lnG(B + C + b + e) - lnG(B + b + e) - lnG(B + C + b) + lnG(B + b), with C the counts, B those of
    the background and e the weights; `seeds` is CSR (indptr, topics, weights) in float64.
    """
    indptr, their_topics, weights = seeds
    counts = np.zeros(n_topics, np.int64)
    total = 0.0
    for w in range(first, last):
        if indptr[w] == indptr[w + 1] or word_start[w] == word_start[w + 1]:
            continue
        for i in range(word_start[w], word_start[w + 1]):
            counts[topics[i]] += 1
        for j in range(indptr[w], indptr[w + 1]):
            k = their_topics[j]
            if counts[k]:
                base = beta[w] + (background[row_of_word[w], k] if row_of_word[w] >= 0 else 0)
                own = base + weights[j]
                total += math.lgamma(counts[k] + own) - math.lgamma(own)
                total -= math.lgamma(counts[k] + base) - math.lgamma(base)
        for i in range(word_start[w], word_start[w + 1]):
            counts[topics[i]] = 0
    return total
