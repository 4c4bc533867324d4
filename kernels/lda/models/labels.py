"""Collapsed Gibbs sampling for LDA where each document has topics of its own, with a weight each.

``alpha_dk = m_dk alpha_k``, and a topic that the document does not list has no token there::

    p(z_di = k | rest)  ~  (C_dk + m_dk alpha_k) (C_wk + beta_w) / (C_k + sum(beta)),   k in the list of d

The lists are CSR of documents x topics, topics ascending; the counts C_dk are a second array, one an entry.
Every step costs by the topics of a document, whatever their number in all. Everything is live but the
other threads' changes of the topic totals.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ...indexing import at, span
from ...options import BORROWS, KERNEL
from ...random import fill_uniform
from ...vector import prefetch
from ..seeds import clear_extra, load_extra, smoothed, smoothed_total

AHEAD = 12  # tokens by which a document's list is asked for in advance
_DRAWS = 4096  # uniforms made at a time

_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS, "fastmath": {"contract"}}


@nb.njit(**_OPTIONS)
def admit(token_doc, topics, n_topics, indptr, allowed):
    """Turn topics that are any of all into topics of the documents, at the same part of their lists."""
    for i in range(len(topics)):
        d = token_doc[i]
        n_own = np.int64(indptr[d + 1] - indptr[d])
        topics[i] = allowed[indptr[d] + np.int64(topics[i]) * n_own // n_topics]


@nb.njit(**_OPTIONS)
def count_labelled(token_doc, topics, indptr, allowed, held):
    """Fill the documents' counts; returns how many tokens have a topic that their document does not list."""
    held[:] = 0
    forbidden = 0
    for i in range(len(topics)):
        d, k = token_doc[i], topics[i]
        low, high = indptr[d], indptr[d + 1]
        end = high
        while low < high:
            middle = (low + high) // 2
            if allowed[middle] < k:
                low = middle + 1
            else:
                high = middle
        if low < end and allowed[low] == k:
            held[low] += 1
        else:
            forbidden += 1
    return forbidden


@nb.njit(**_OPTIONS)
def documents_labelled(first, last, indptr, allowed, weights, held, alpha):
    """Sum over documents ``first:last`` of lnG(C_dk + alpha_dk) - lnG(alpha_dk)."""
    total = 0.0
    for j in range(indptr[first], indptr[last]):
        if held[j]:
            own = weights[j] * alpha[allowed[j]]
            total += math.lgamma(held[j] + own) - math.lgamma(own)
    return total


def labelled_work(n_topics, most, seeds=None):
    """Scratch of `sweep_labelled` for documents of at most so many labels, for later sweeps too."""
    counts, inverse = np.zeros(n_topics, np.int32), np.empty(n_topics, np.float32)
    running, uniforms = np.empty(most), np.empty(_DRAWS, np.float32)
    extra = None if seeds is None else np.zeros((1, n_topics), np.float32)
    return counts, inverse, extra, running, uniforms


@nb.njit(**_OPTIONS)
def sweep_labelled(
    words, begin, end, word_start, token_doc, topics, all_topics, indptr, allowed, weights, held, row_of_word,
    rows, totals, alpha, beta, beta_sum, exact, seed, purpose, round_, index, seeds, work,
):  # fmt: skip
    """Draw the tokens ``begin[w]:end[w]`` of each of `words`, each from the list of its document.

    `indptr`, `allowed` and `weights` (float32) are CSR of documents x topics, `held` (int32) the counts of
    its entries. The other parameters are those of `lda_gibbs.sweep_dense`; totals are live with `exact` and
    without.
    """
    n_topics = len(totals)
    counts, inverse, extra, running, uniforms = work
    used, drawn = _DRAWS, 0
    for k in range(n_topics):
        inverse[k] = np.float32(1) / smoothed_total(totals[k], beta_sum, seeds, k)
    for w in words:
        if begin[w] == end[w]:
            continue
        b, r = beta[w], row_of_word[w]
        load_extra(seeds, w, extra, 0)
        if r >= 0:
            for k in range(n_topics):
                counts[k] = rows[r, k]
        else:
            for i in range(word_start[w], word_start[w + 1]):
                counts[all_topics[i]] += 1
        for i in range(begin[w], end[w]):
            if used == _DRAWS:
                fill_uniform(uniforms, drawn, seed, purpose, round_, index)
                drawn += _DRAWS // 4
                used = 0
            coming = indptr[token_doc[i + AHEAD]]
            prefetch(allowed, coming)
            prefetch(held, coming)
            prefetch(weights, coming)
            d, old = at(token_doc[i]), np.int64(topics[i])
            counts[old] -= 1
            totals[old] -= 1
            inverse[old] = np.float32(1) / smoothed_total(totals[old], beta_sum, seeds, old)
            start, n_own = indptr[d], indptr[d + 1] - indptr[d]
            total = 0.0
            for j in span(indptr, d):
                k = at(allowed[j])
                held[j] -= np.int64(k) == old
                own = np.float32(held[j]) + weights[j] * alpha[k]
                total += own * (smoothed(counts[k], b, extra, 0, k) * inverse[k])
                running[j - at(start)] = total
            target = uniforms[used] * total
            used += 1
            place = 0
            while place < n_own - 1 and running[place] <= target:
                place += 1
            new = np.int64(allowed[start + place])
            held[start + place] += 1
            counts[new] += 1
            totals[new] += 1
            inverse[new] = np.float32(1) / smoothed_total(totals[new], beta_sum, seeds, new)
            topics[i] = new
        clear_extra(seeds, w, extra, 0)
        if r >= 0:
            for k in range(n_topics):
                rows[r, k] = counts[k]
                counts[k] = 0
        else:
            for i in range(word_start[w], word_start[w + 1]):
                counts[all_topics[i]] = 0
            for i in range(begin[w], end[w]):
                counts[topics[i]] = 0
