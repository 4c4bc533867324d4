"""Counts and likelihoods read off a topic model's state.

The joint log-likelihood of collapsed LDA is a sum over documents and a sum over words::

    log p(w, z) = sum_d [lnG(A) - lnG(L_d + A) + sum_k lnG(C_dk + a_k) - lnG(a_k)]
                + sum_k [lnG(B) - lnG(C_k + B) + sum_w lnG(C_wk + b_w) - lnG(b_w)]

Here are the two double sums, over ranges, so that threads can share them; only non-zero counts cost. Each
compiled loop gets its scratch from the function behind it.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import BORROWS, INNER, KERNEL
from ..vector import prefetch

_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS}
_INLINE: dict[str, Any] = {**_OPTIONS, **INNER, "forceinline": True}
_SMALL = 64  # counts whose lnG is looked up, because most counts are small


@nb.njit(**_INLINE)
def _fill_table(prior, table):
    """LnG(c + prior) of small counts c."""
    for c in range(len(table)):
        table[c] = math.lgamma(c + prior)


@nb.njit(**_INLINE)
def _fill_base(alpha, base):
    for k in range(len(alpha)):
        base[k] = math.lgamma(alpha[k])


@nb.njit(**_OPTIONS)
def _documents_dense(first, last, doc_counts, alpha, base):
    n_topics = len(alpha)
    _fill_base(alpha, base)
    total = 0.0
    for d in range(first, last):
        for k in range(n_topics):
            c = doc_counts[d, k]
            if c:
                total += math.lgamma(c + alpha[k]) - base[k]
    return total


def documents_dense(first, last, doc_counts, alpha):
    """Sum over documents ``first:last`` of lnG(C_dk + alpha_k) - lnG(alpha_k), dense rows."""
    return _documents_dense(first, last, doc_counts, alpha, np.empty(len(alpha)))


@nb.njit(**_OPTIONS)
def _documents_sparse(first, last, entries, line_start, n_lines, shift, alpha, base):
    _fill_base(alpha, base)
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


def documents_sparse(first, last, entries, line_start, n_lines, shift, alpha):
    """The same sum over packed lists of ``topic << shift | count``."""
    return _documents_sparse(first, last, entries, line_start, n_lines, shift, alpha, np.empty(len(alpha)))


@nb.njit(**_OPTIONS)
def _segments(first, last, start, position, pairs, flat, alpha, base, table, counts, topics):
    _fill_base(alpha, base)
    common = alpha[0]
    _fill_table(common, table)
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
                known = c < len(table) and alpha[k] == common
                total += (table[c] if known else math.lgamma(c + alpha[k])) - base[k]
                counts[k] = 0
    return total


def segments(first, last, start, position, pairs, alpha):
    """The same sum over documents; their tokens' topics are ``pairs[position[start[d]:start[d + 1]], 0]``."""
    longest = int(np.diff(start[first : last + 1]).max(initial=0))
    scratch = (
        np.empty(len(alpha)),
        np.empty(_SMALL),
        np.zeros(len(alpha), np.int64),
        np.empty(longest, np.int64),
    )
    return _segments(first, last, start, position, pairs, pairs.reshape(-1), alpha, *scratch)


@nb.njit(**_OPTIONS)
def _add_segments(start, position, pairs, flat, weight, sums):
    for d in range(len(start) - 1):
        if d + 2 < len(start):
            for i in span(start, d + 1):
                prefetch(flat, 2 * np.int64(position[i]))
        for i in span(start, d):
            sums[d, at(pairs[at(position[i]), 0])] += weight


def add_segments(start, position, pairs, weight, sums):
    """Add `weight` (float32) for each token to its topic in its document's row; tokens as in `segments`."""
    _add_segments(start, position, pairs, pairs.reshape(-1), weight, sums)


@nb.njit(**_OPTIONS)
def _words(word_start, topics, beta, table, counts):
    total, common = 0.0, beta[0]
    _fill_table(common, table)
    for w in range(len(beta)):
        start, end = word_start[w], word_start[w + 1]
        base = table[0] if beta[w] == common else math.lgamma(beta[w])
        for i in range(start, end):
            counts[topics[i]] += 1
        for i in range(start, end):
            c = counts[topics[i]]
            if c:
                total += table[c] if c < len(table) and beta[w] == common else math.lgamma(c + beta[w])
                total -= base
                counts[topics[i]] = 0
    return total


def words(word_start, topics, beta, n_topics):
    """Sum over words and topics of lnG(C_wk + beta_w) - lnG(beta_w).

    The tokens of word w are ``word_start[w]:word_start[w + 1]`` of `topics`.
    """
    if not len(beta):
        return 0.0
    return float(_words(word_start, topics, beta, np.empty(_SMALL), np.zeros(n_topics, np.int64)))


@nb.njit(**_OPTIONS)
def _count_words(word_start, topics, counts, indptr, indices, data):
    to = 0
    indptr[0] = 0
    for w in range(len(word_start) - 1):
        begin = to
        for i in range(word_start[w], word_start[w + 1]):
            k = topics[i]
            if counts[k] == 0:
                indices[to] = k
                to += 1
            counts[k] += 1
        for j in range(begin, to):
            data[j] = counts[indices[j]]
            counts[indices[j]] = 0
        indptr[w + 1] = to
    return to


def word_topic_csr(word_start, topics, n_topics):
    """Counts words x topics as CSR arrays (indptr, indices, data); topics in no order."""
    indptr = np.empty(len(word_start), np.int64)
    indices, data = np.empty((2, len(topics)), np.int32)  # at most an entry a token
    n = _count_words(word_start, topics, np.zeros(n_topics, np.int32), indptr, indices, data)
    return indptr, indices[:n].copy(), data[:n].copy()
