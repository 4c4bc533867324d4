"""One topic for each unit of a few tokens: collapsed Gibbs sampling of a Dirichlet multinomial mixture.

Units are documents, or pairs of words::

    p(z_d = k | rest)  ~  (m_k + alpha_k)  prod_w prod_(j < n_dw) (C_wk + beta_w + j)
                                           / prod_(i < L_d) (C_k + sum(beta) + i),     d itself left out

A product of a few factors at a time is divided by its greatest one, so that short units need no logarithm.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ...options import INNER, KERNEL
from ...random import fill_uniform

DRAWS = 4096  # uniforms made at a time
_FACTORS = 8  # between two rescalings: factors from 1e-12 to 1e12 to the power of 16 fit float64
_SMALLEST = 1e-300  # divisor where all weights are zero
_LOST, _LEAST_BETA = 1e-150, 1e-12  # weights and priors below might make a product of a few factors zero

_SAMPLE: dict[str, Any] = {**KERNEL, "fastmath": {"contract"}}


@nb.njit(**_SAMPLE, **INNER)
def _weights(begin, end, words, counts, documents, word_topic, smoothed, alpha, beta, weight, under, logs):
    """Write the weights of a unit's topics; return the log of their scale.

    `smoothed` are the tokens of the topics plus sum(beta), `under` is scratch for the denominators: they are
    multiplied and divided by once every few factors. A topic may be lost whose weight became so small that it
    is rounded to zero, although words that follow are of it: then all are made again by `logs`, unless None.
    """
    n_topics = len(weight)
    scale, length, factors, lost = 0.0, 0, 0, False
    for k in range(n_topics):
        weight[k] = documents[k] + alpha[k]
        under[k] = 1.0
    for e in range(begin, end):
        row, b = word_topic[words[e]], beta[words[e]]
        for j in range(counts[e]):
            if factors == _FACTORS:
                scale += _rescale(weight, under)
                if logs is not None:
                    lost = lost or b < _LEAST_BETA or _least(weight) < _LOST
                factors = 0
            added = b + j
            for k in range(n_topics):
                weight[k] *= row[k] + added
                under[k] *= smoothed[k] + length
            length += 1
            factors += 1
    for k in range(n_topics):
        weight[k] /= under[k]
    if logs is not None and lost:
        return _weights_by_logs(
            begin, end, words, counts, documents, word_topic, smoothed, alpha, beta, weight, under, logs
        )
    return scale


@nb.njit(**_SAMPLE, **INNER)
def _rescale(weight, under):
    top = _SMALLEST
    for k in range(len(weight)):
        weight[k] /= under[k]
        under[k] = 1.0
        top = max(top, weight[k])
    for k in range(len(weight)):
        weight[k] /= top
    return np.log(top)


@nb.njit(**_SAMPLE, **INNER)
def _least(weight):
    least = weight[0]
    for k in range(len(weight)):
        least = min(least, weight[k])
    return least


@nb.njit(**_SAMPLE, **INNER)
def _weights_by_logs(
    begin, end, words, counts, documents, word_topic, smoothed, alpha, beta, weight, under, logs
):
    """As `_weights`, by a logarithm of every few factors; returns the log of the scale."""
    n_topics = len(weight)
    length, factors = 0, 0
    for k in range(n_topics):
        weight[k] = documents[k] + alpha[k]
        under[k] = 1.0
        logs[k] = 0.0
    for e in range(begin, end):
        row, b = word_topic[words[e]], beta[words[e]]
        for j in range(counts[e]):
            if factors == _FACTORS:
                _add_logs(weight, under, logs)
                factors = 0
            added = b + j
            for k in range(n_topics):
                weight[k] *= row[k] + added
                under[k] *= smoothed[k] + length
            length += 1
            factors += 1
    _add_logs(weight, under, logs)
    scale = logs[0]
    for k in range(n_topics):
        scale = max(scale, logs[k])
    for k in range(n_topics):
        weight[k] = math.exp(logs[k] - scale)
    return scale


@nb.njit(**_SAMPLE, **INNER)
def _add_logs(weight, under, logs):
    for k in range(len(weight)):
        logs[k] += math.log(weight[k]) - math.log(under[k])
        weight[k] = 1.0
        under[k] = 1.0


@nb.njit(**_SAMPLE, **INNER)
def _move(begin, end, words, counts, k, sign, documents, word_topic, totals):
    documents[k] += sign
    for e in range(begin, end):
        moved = sign * np.int64(counts[e])
        word_topic[words[e], k] += moved
        totals[k] += moved


@nb.njit(**_SAMPLE)
def sweep_documents(
    indptr, words, counts, topics, documents, word_topic, totals, alpha, beta, beta_sum, seed, purpose,
    round_, index, logs,
):  # fmt: skip
    """Draw a topic for each unit, in place, and renew the counts.

    `topics` are those of units, `documents` how many each topic has, `word_topic` (int32, words x topics) and
    `totals` its tokens. `seed`, `purpose`, `round_` and `index` name the random stream.
    `logs` is scratch, a number a topic, or None where no unit has more than 8 tokens.
    """
    n_topics = len(documents)
    weight, under, uniforms = np.empty(n_topics), np.empty(n_topics), np.empty(DRAWS, np.float32)
    smoothed = np.empty(n_topics)
    for k in range(n_topics):
        smoothed[k] = totals[k] + beta_sum
    used, drawn = DRAWS, 0
    for d in range(len(topics)):
        if used + 2 > DRAWS:
            fill_uniform(uniforms, drawn, seed, purpose, round_, index)
            drawn += DRAWS // 4
            used = 0
        begin, end, old = indptr[d], indptr[d + 1], np.int64(topics[d])
        _move(begin, end, words, counts, old, -1, documents, word_topic, totals)
        smoothed[old] = totals[old] + beta_sum
        _weights(begin, end, words, counts, documents, word_topic, smoothed, alpha, beta, weight, under, logs)
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
        smoothed[new] = totals[new] + beta_sum


@nb.njit(**_SAMPLE)
def count_documents(indptr, words, counts, topics, documents, word_topic, totals):
    """Fill the counts from the topics of units."""
    documents[:] = 0
    word_topic[:] = 0
    totals[:] = 0
    for d in range(len(topics)):
        k = np.int64(topics[d])
        _move(indptr[d], indptr[d + 1], words, counts, k, 1, documents, word_topic, totals)


@nb.njit(**_SAMPLE)
def posterior(
    first, last, indptr, words, counts, own, documents, word_topic, totals, alpha, beta, beta_sum, out,
    log_sum,
):  # fmt: skip
    """Write ``p(z_d = k)`` of units ``first:last`` given all others, and the log of the weights' sum.

    `own` are the topics of units that the counts hold, which are left out of them and put back; it is empty
    for new units. Of both results the first is that of unit `first`.
    """
    n_topics = len(documents)
    smoothed, under, logs = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
    for k in range(n_topics):
        smoothed[k] = totals[k] + beta_sum
    for d in range(first, last):
        begin, end = indptr[d], indptr[d + 1]
        if len(own):
            k = np.int64(own[d])
            _move(begin, end, words, counts, k, -1, documents, word_topic, totals)
            smoothed[k] = totals[k] + beta_sum
        weight = out[d - first]
        scale = _weights(
            begin, end, words, counts, documents, word_topic, smoothed, alpha, beta, weight, under, logs
        )
        if len(own):
            k = np.int64(own[d])
            _move(begin, end, words, counts, k, 1, documents, word_topic, totals)
            smoothed[k] = totals[k] + beta_sum
        total = 0.0
        for k in range(n_topics):
            total += weight[k]
        for k in range(n_topics):
            weight[k] /= total
        log_sum[d - first] = scale + np.log(total)


@nb.njit(**_SAMPLE)
def fill_pairs(indptr, words, counts, whole, unit_indptr, unit_words, unit_counts):
    """Write the pairs of tokens of documents as CSR of pairs x words; the sizes are those of the arrays.

    A pair of one word has one entry, of 2. With `whole` a document of one token has one unit of it, and one
    of none has an empty unit.
    """
    unit, place = 0, 0
    unit_indptr[0] = 0
    for d in range(len(indptr) - 1):
        length = 0
        for e in range(indptr[d], indptr[d + 1]):
            n = np.int64(counts[e])
            length += n
            for _ in range(n * (n - 1) // 2):
                unit_words[place], unit_counts[place] = words[e], 2
                place += 1
                unit += 1
                unit_indptr[unit] = place
            for other in range(e + 1, indptr[d + 1]):
                for _ in range(n * counts[other]):
                    unit_words[place], unit_counts[place] = words[e], 1
                    unit_words[place + 1], unit_counts[place + 1] = words[other], 1
                    place += 2
                    unit += 1
                    unit_indptr[unit] = place
        if whole and length < 2:
            if length:
                unit_words[place], unit_counts[place] = words[indptr[d]], 1
                place += 1
            unit += 1
            unit_indptr[unit] = place
