"""One topic for each document: collapsed Gibbs sampling of a Dirichlet multinomial mixture.

::

    p(z_d = k | rest)  ~  (m_k + alpha_k)  prod_w prod_(j < n_dw) (C_wk + beta_w + j)
                                           / prod_(i < L_d) (C_k + sum(beta) + i),     d itself left out

A product of a few factors at a time is divided by its greatest one, so that no logarithm is needed.
"""

from typing import Any

import numba as nb
import numpy as np

from ...options import INNER, KERNEL
from ...random import fill_uniform

DRAWS = 4096  # uniforms made at a time
_FACTORS = 8  # between two rescalings: ratios of at most 1e12 to the power of 16 fit float64
_SMALLEST = 1e-300  # divisor where all weights are zero

_SAMPLE: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}


@nb.njit(**_SAMPLE, **INNER)
def _weights(begin, end, words, counts, documents, word_topic, totals, alpha, beta, beta_sum, weight):
    """Write the weights of a document's topics, the greatest being near 1; return the log of their scale."""
    n_topics = len(weight)
    scale, length, factors = 0.0, 0, 0
    for k in range(n_topics):
        weight[k] = documents[k] + alpha[k]
    for e in range(begin, end):
        row, b = word_topic[words[e]], beta[words[e]]
        for j in range(counts[e]):
            added, under = b + j, beta_sum + length
            for k in range(n_topics):
                weight[k] *= (row[k] + added) / (totals[k] + under)
            length += 1
            factors += 1
            if factors == _FACTORS:
                scale += _rescale(weight)
                factors = 0
    return scale + _rescale(weight)


@nb.njit(**_SAMPLE, **INNER)
def _rescale(weight):
    top = _SMALLEST
    for k in range(len(weight)):
        top = max(top, weight[k])
    for k in range(len(weight)):
        weight[k] /= top
    return np.log(top)


@nb.njit(**_SAMPLE)
def _move(begin, end, words, counts, k, sign, documents, word_topic, totals):
    documents[k] += sign
    for e in range(begin, end):
        word_topic[words[e], k] += sign * counts[e]
        totals[k] += sign * counts[e]


@nb.njit(**_SAMPLE)
def sweep_documents(
    indptr, words, counts, topics, documents, word_topic, totals, alpha, beta, beta_sum, seed, purpose, round_
):  # fmt: skip
    """Draw a topic for each document, in place, and renew the counts.

    `topics` are those of documents (int64), `documents` how many each topic has, `word_topic` (int32, words x
    topics) and `totals` its tokens. `seed`, `purpose` and `round_` name the random stream.
    """
    n_topics = len(documents)
    weight, uniforms = np.empty(n_topics), np.empty(DRAWS, np.float32)
    used, drawn = DRAWS, 0
    for d in range(len(topics)):
        if used + 2 > DRAWS:
            fill_uniform(uniforms, drawn, seed, purpose, round_, 0)
            drawn += DRAWS // 4
            used = 0
        begin, end = indptr[d], indptr[d + 1]
        _move(begin, end, words, counts, topics[d], -1, documents, word_topic, totals)
        _weights(begin, end, words, counts, documents, word_topic, totals, alpha, beta, beta_sum, weight)
        total = 0.0
        for k in range(n_topics):
            total += weight[k]
        # Two draws of 24 bits: documents may prefer topics by more than one can tell.
        left = (np.float64(uniforms[used]) + np.float64(uniforms[used + 1]) * 2.0**-24) * total
        used += 2
        new = 0
        while new < n_topics - 1 and left >= weight[new]:
            left -= weight[new]
            new += 1
        topics[d] = new
        _move(begin, end, words, counts, new, 1, documents, word_topic, totals)


@nb.njit(**_SAMPLE)
def count_documents(indptr, words, counts, topics, documents, word_topic, totals):
    """Fill the counts from the topics of documents."""
    documents[:] = 0
    word_topic[:] = 0
    totals[:] = 0
    for d in range(len(topics)):
        _move(indptr[d], indptr[d + 1], words, counts, topics[d], 1, documents, word_topic, totals)


@nb.njit(**_SAMPLE)
def posterior(
    first, last, indptr, words, counts, own, documents, word_topic, totals, alpha, beta, beta_sum, out,
    log_sum,
):  # fmt: skip
    """Write ``p(z_d = k)`` of documents ``first:last`` given all others, and the log of the weights' sum.

    `own` are the topics of documents that the counts hold, which are left out of them and put back; it is
    empty for new documents.
    """
    for d in range(first, last):
        begin, end = indptr[d], indptr[d + 1]
        if len(own):
            _move(begin, end, words, counts, own[d], -1, documents, word_topic, totals)
        weight = out[d]
        scale = _weights(
            begin, end, words, counts, documents, word_topic, totals, alpha, beta, beta_sum, weight
        )
        if len(own):
            _move(begin, end, words, counts, own[d], 1, documents, word_topic, totals)
        total = 0.0
        for k in range(len(weight)):
            total += weight[k]
        for k in range(len(weight)):
            weight[k] /= total
        log_sum[d] = scale + np.log(total)
