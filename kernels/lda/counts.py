"""Counts and likelihoods read off a topic model's state.

The joint log-likelihood of collapsed LDA is a sum over documents and a sum over words::

    log p(w, z) = sum_d [lnG(A) - lnG(L_d + A) + sum_k lnG(C_dk + a_k) - lnG(a_k)]
                + sum_k [lnG(B) - lnG(C_k + B) + sum_w lnG(C_wk + b_w) - lnG(b_w)]

Here are the two double sums, over ranges, so that threads can share them; only non-zero counts cost.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..vector import prefetch

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
_INLINE: dict[str, Any] = {**_OPTIONS, "forceinline": True}
_SMALL = 64  # counts whose lnG is looked up, because most counts are small


@nb.njit(**_INLINE)
def _table(prior):
    """LnG(c + prior) of small counts c."""
    return np.array([math.lgamma(c + prior) for c in range(_SMALL)])


@nb.njit(**_OPTIONS)
def documents_dense(first, last, doc_counts, alpha):
    """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k), dense rows."""
    n_topics = len(alpha)
    base = np.array([math.lgamma(a) for a in alpha])
    total = 0.0
    for d in range(first, last):
        for k in range(n_topics):
            c = doc_counts[d, k]
            if c:
                total += math.lgamma(c + alpha[k]) - base[k]
    return total


@nb.njit(**_OPTIONS)
def documents_sparse(first, last, entries, line_start, n_lines, shift, alpha):
    """The same sum over packed lists of ``topic << shift | count``."""
    base = np.array([math.lgamma(a) for a in alpha])
    bits, mask = np.uint32(shift), np.uint32((np.int64(1) << shift) - 1)
    total = 0.0
    for d in range(first, last):
        start = line_start[d] * 16
        for j in range(start, start + n_lines[d] * 16):
            c = entries[j] & mask
            if c:
                k = entries[j] >> bits
                total += math.lgamma(np.float64(c) + alpha[k]) - base[k]
    return total


@nb.njit(**_OPTIONS)
def segments(first, last, start, position, pairs, alpha):
    """The same sum over documents; their tokens' topics are ``pairs[position[start[d]:start[d + 1]], 0]``."""
    base = np.array([math.lgamma(a) for a in alpha])
    common, table = alpha[0], _table(alpha[0])
    counts = np.zeros(len(alpha), np.int64)
    longest = 0
    for d in range(first, last):
        longest = max(longest, start[d + 1] - start[d])
    topics, flat = np.empty(longest, np.int64), pairs.reshape(-1)
    total = 0.0
    for d in range(first, last):
        if d + 1 < last:
            for i in span(start, d + 1):
                prefetch(flat, 2 * np.int64(position[i]))
        n = 0
        for i in span(start, d):
            k = at(pairs[at(position[i]), 0])
            topics[n] = k
            counts[k] += 1
            n += 1
        for i in range(n):
            k = at(topics[i])
            c = counts[k]
            if c:
                known = c < _SMALL and alpha[k] == common
                total += (table[c] if known else math.lgamma(c + alpha[k])) - base[k]
                counts[k] = 0
    return total


@nb.njit(**_OPTIONS)
def words(first, last, word_start, topics, background, row_of_word, n_topics, beta):
    """Sum over words ``first:last`` and topics of lnG(C_wk + beta_w) - lnG(B_wk + beta_w).

    B are the counts of tokens that are not at hand: row ``row_of_word[w]`` of `background`, or
    nothing where that is -1.
    """
    none = np.zeros(n_topics, background.dtype)
    counts = np.zeros(n_topics, np.int64)
    total = 0.0
    if first == last:
        return total
    common, table = beta[first], _table(beta[first])
    for w in range(first, last):
        start, end = word_start[w], word_start[w + 1]
        row = background[row_of_word[w]] if row_of_word[w] >= 0 else none
        base = table[0] if beta[w] == common else math.lgamma(beta[w])
        for i in range(start, end):
            counts[topics[i]] += 1
        for i in range(start, end):
            k = topics[i]
            if counts[k]:
                c = counts[k] + row[k]
                total += table[c] if c < _SMALL and beta[w] == common else math.lgamma(c + beta[w])
                total -= math.lgamma(row[k] + beta[w]) if row[k] else base
                counts[k] = 0
    return total


@nb.njit(**_OPTIONS)
def word_topic_csr(word_start, topics, n_topics):
    """Counts words x topics as CSR arrays (indptr, indices, data); topics in no order."""
    n_words = len(word_start) - 1
    indptr = np.zeros(n_words + 1, np.int64)
    counts = np.zeros(n_topics, np.int32)
    for w in range(n_words):
        distinct = 0
        for i in range(word_start[w], word_start[w + 1]):
            if counts[topics[i]] == 0:
                distinct += 1
            counts[topics[i]] = 1
        for i in range(word_start[w], word_start[w + 1]):
            counts[topics[i]] = 0
        indptr[w + 1] = indptr[w] + distinct
    indices, data = np.empty(indptr[n_words], np.int32), np.empty(indptr[n_words], np.int32)
    for w in range(n_words):
        to = indptr[w]
        for i in range(word_start[w], word_start[w + 1]):
            k = topics[i]
            if counts[k] == 0:
                indices[to] = k
                to += 1
            counts[k] += 1
        for j in range(indptr[w], to):
            data[j] = counts[indices[j]]
            counts[indices[j]] = 0
    return indptr, indices, data


@nb.njit(**_OPTIONS)
def doc_topic_csr_dense(doc_counts, n_topics):
    """Counts documents x topics as CSR arrays, from dense rows."""
    n_docs = len(doc_counts)
    indptr = np.zeros(n_docs + 1, np.int64)
    for d in range(n_docs):
        indptr[d + 1] = indptr[d]
        for k in range(n_topics):
            indptr[d + 1] += doc_counts[d, k] != 0
    indices, data = np.empty(indptr[n_docs], np.int32), np.empty(indptr[n_docs], np.int32)
    to = 0
    for d in range(n_docs):
        for k in range(n_topics):
            if doc_counts[d, k]:
                indices[to], data[to] = k, doc_counts[d, k]
                to += 1
    return indptr, indices, data


@nb.njit(**_OPTIONS)
def doc_topic_csr_sparse(entries, line_start, n_lines, shift):
    """Counts documents x topics as CSR arrays, from packed lists; topics in no order."""
    n_docs = len(n_lines)
    bits, mask = np.uint32(shift), np.uint32((np.int64(1) << shift) - 1)
    indptr = np.zeros(n_docs + 1, np.int64)
    for d in range(n_docs):
        start = line_start[d] * 16
        indptr[d + 1] = indptr[d]
        for j in range(start, start + n_lines[d] * 16):
            indptr[d + 1] += (entries[j] & mask) != 0
    indices, data = np.empty(indptr[n_docs], np.int32), np.empty(indptr[n_docs], np.int32)
    to = 0
    for d in range(n_docs):
        start = line_start[d] * 16
        for j in range(start, start + n_lines[d] * 16):
            if entries[j] & mask:
                indices[to], data[to] = entries[j] >> bits, entries[j] & mask
                to += 1
    return indptr, indices, data
