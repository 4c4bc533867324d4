"""Responses of documents: a draw of plain LDA becomes a proposal, which the response accepts or refuses.

The response of document d has the linear predictors ``m_dc = b_c + sum_k eta_kc C_dk / L_d``. Given all else,
a token's topic has the weights of plain LDA times ``p(y_d | m_d)``. The samplers draw from the former,
whatever the token's topic was, so that the move from topic j to k is one of Metropolis and Hastings that is
accepted with probability ``min(1, p(y_d | m_d with k) / p(y_d | m_d with j))``: the chain is exactly that of
the posterior.

Of classes a proposal would take an exponential for each. Where there are few different lengths, `factors`,
exp(eta_kc / L) by length, topic and class, take their place: `predictors` then are in proportion to the
exponentials, which a move multiplies.

The samplers take `alpha`, here a tuple of eleven: the prior of all documents (float32), and `coefficients`
(topics x predictors), `predictors` (documents x predictors) and their `log_likelihoods`, `targets` and
`inverse_lengths` of documents, all float64, `streams` (uint64, a random number generator a document), the
`family`, the `variance` of a normal response, `factors` (of no length where they are not used) and the place
of each document's length in them. It is known at compile time that `alpha` is such a tuple.
"""

import math
from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

from ...indexing import at
from ...options import BORROWS, INNER, KERNEL

NORMAL, POISSON, CLASSES = range(3)  # families
_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS}
_INLINE: dict[str, Any] = {**_OPTIONS, **INNER, "forceinline": True}
_PARTS = 11  # of the tuple
_MOST = 600.0  # of the logarithm of a mean, whose exponential is finite
# xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).
_A, _B, _C = np.uint64(12), np.uint64(25), np.uint64(27)
_STAR, _DROPPED, _UNIT = np.uint64(0x2545F4914F6CDD1D), np.uint64(11), 2.0**-53


@nb.njit(**_INLINE)
def _log_likelihood(predictors, d, y, family, variance):
    """Log of p(y | predictors), up to what does not depend on them."""
    if family == NORMAL:
        away = y - predictors[d, 0]
        return -0.5 * away * away / variance
    if family == POISSON:
        return y * predictors[d, 0] - math.exp(min(predictors[d, 0], _MOST))
    most = predictors[d, 0]
    for c in range(1, predictors.shape[1]):
        most = max(most, predictors[d, c])
    total = 0.0
    for c in range(predictors.shape[1]):
        total += math.exp(predictors[d, c] - most)
    return predictors[d, np.int64(y)] - most - math.log(total)


@nb.njit(**_INLINE)
def _uniform(streams, d):
    x = streams[d]
    x ^= x >> _A
    x ^= x << _B
    x ^= x >> _C
    streams[d] = x
    return np.float64((x * _STAR) >> _DROPPED) * _UNIT


@nb.njit(**_INLINE)
def _accepted(alpha, doc, old, new):
    """Return the topic that the token has after the proposal `new`."""
    _, coefficients, predictors, log_likelihoods, targets, inverse_lengths = alpha[:6]
    streams, family, variance, factors, row = alpha[6:]
    d, j, k = at(doc), at(old), at(new)
    if j == k:
        return new
    if family == CLASSES and len(factors):
        return _accepted_class(predictors, d, np.int64(targets[d]), factors, row[d], streams, j, k)
    own = inverse_lengths[d]
    for c in range(predictors.shape[1]):
        predictors[d, c] += own * (coefficients[k, c] - coefficients[j, c])
    reached = _log_likelihood(predictors, d, targets[d], family, variance)
    gain = reached - log_likelihoods[d]
    if gain >= 0 or _uniform(streams, d) < math.exp(gain):
        log_likelihoods[d] = reached
        return new
    for c in range(predictors.shape[1]):
        predictors[d, c] -= own * (coefficients[k, c] - coefficients[j, c])
    return np.int64(old)


@nb.njit(**_INLINE)
def _accepted_class(weights, d, y, factors, row, streams, j, k):
    """Return the topic that the token has after the proposal k, where factors move the weights of classes."""
    total, reached, own = 0.0, 0.0, weights[d, y]
    for c in range(weights.shape[1]):
        total += weights[d, c]
        weights[d, c] *= factors[row, k, c] / factors[row, j, c]
        reached += weights[d, c]
    ratio = (weights[d, y] * total) / (own * reached)
    if ratio >= 1 or _uniform(streams, d) < ratio:
        return np.int64(k)
    for c in range(weights.shape[1]):
        weights[d, c] *= factors[row, j, c] / factors[row, k, c]
    return np.int64(j)


def accepted(alpha, doc, old, new):
    """Return the topic of a token of topic `old` after the draw `new`: that, where there are no responses."""


@overload(accepted, jit_options=_INLINE)
def _accepted_where_responses_are(alpha, doc, old, new):
    if are_responses(alpha):
        return lambda alpha, doc, old, new: _accepted(alpha, doc, old, new)
    return lambda alpha, doc, old, new: new


def are_responses(alpha):
    """Whether numba's type of `alpha` is that of a prior with responses."""
    return isinstance(alpha, nb.types.BaseTuple) and len(alpha) == _PARTS


@nb.njit(**_OPTIONS)
def begin(doc_counts, n_topics, intercepts, alpha):
    """Compute predictors and log-likelihoods of documents from their counts."""
    _, coefficients, predictors, log_likelihoods, targets, inverse_lengths = alpha[:6]
    _, family, variance, factors, _ = alpha[6:]
    for d in range(len(doc_counts)):
        for c in range(len(intercepts)):
            predictors[d, c] = 0.0
        for k in range(n_topics):
            n = doc_counts[d, k]
            if n:
                for c in range(len(intercepts)):
                    predictors[d, c] += n * coefficients[k, c]
        for c in range(len(intercepts)):
            predictors[d, c] = intercepts[c] + inverse_lengths[d] * predictors[d, c]
        log_likelihoods[d] = _log_likelihood(predictors, d, targets[d], family, variance)
        if family == CLASSES and len(factors):
            most = predictors[d, 0]
            for c in range(1, len(intercepts)):
                most = max(most, predictors[d, c])
            for c in range(len(intercepts)):
                predictors[d, c] = math.exp(predictors[d, c] - most)
