"""Responses of documents: a draw of plain LDA becomes a proposal, which the response accepts or refuses.

The response of document d has the linear predictors ``m_dc = b_c + sum_k eta_kc C_dk / L_d``. Given all else,
a token's topic has the weights of plain LDA times ``p(y_d | m_d)``. The samplers draw from the former,
whatever the token's topic was, so that the move from topic j to k is one of Metropolis and Hastings that is
accepted with probability ``min(1, p(y_d | m_d with k) / p(y_d | m_d with j))``: the chain is exactly that of
the posterior.

Of classes a document keeps ``exp(m_dc)``, up to a factor, and their sum: a move multiplies them by
``exp((eta_kc - eta_jc) / L_d)``, which is computed for several classes at a time. Where coefficients are so
large that these may not be finite, predictors are kept as of other families.

The samplers take `alpha`, here a tuple of seven: the prior of all documents (float32), `coefficients` (topics
x predictors) and `held` (documents x 3 + predictors), both float64, `state` (uint64) from which and the
number of the token its random number follows, the `family`, the `variance` of a normal response, and whether
`held` has exponentials. A row of `held` is the response (of classes a number), 1 / L_d, the log-likelihood
or the sum of exponentials, and the predictors or exponentials: what a draw needs of a document lies together.
It is known at compile time that `alpha` is such a tuple.
"""

import math
from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

from ...indexing import at
from ...options import BORROWS, INNER, KERNEL
from ...vector import prefetch
from ..documents.rows import load_row

NORMAL, POISSON, CLASSES = range(3)  # families
TARGET, INVERSE_LENGTH, LIKELIHOOD, FIRST = range(4)  # columns of `held`
_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS, "fastmath": {"contract"}}
_INLINE: dict[str, Any] = {**_OPTIONS, **INNER, "forceinline": True}
_SUMS: dict[str, Any] = {**_INLINE, "fastmath": {"contract", "reassoc"}}
_PARTS = 7  # of the tuple
_MOST = 600.0  # of the logarithm of a mean, whose exponential is finite
_LINE = 8  # float64 of a cache line
# Scrambles a number (splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
_STEP, _M1, _M2 = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_S30, _S27, _S31, _DROPPED, _UNIT = *(np.uint64(n) for n in (30, 27, 31, 11)), 2.0**-53
_LOG2E, _LN2, _SHIFTER = 1.0 / math.log(2.0), math.log(2.0), 1.5 * 2.0**52
_BIAS, _MANTISSA = np.int64(1023), np.int64(52)


@nb.njit(**_INLINE)
def _exp(x):
    """exp(x) of |x| below 700, to 1e-11; without a call, so that loops over it are vectorised."""
    shifted = x * _LOG2E + _SHIFTER
    whole = shifted - _SHIFTER  # x / ln(2), rounded; its bits are the last ones of `shifted`
    r = x - whole * _LN2
    series = 1 / 40320.0 + r * (1 / 362880.0)
    series = 1 / 720.0 + r * (1 / 5040.0 + r * series)
    series = 1 / 24.0 + r * (1 / 120.0 + r * series)
    series = 1.0 + r * (1.0 + r * (0.5 + r * (1 / 6.0 + r * series)))
    power = (np.float64(shifted).view(np.int64) + _BIAS) << _MANTISSA
    return series * np.int64(power).view(np.float64)


@nb.njit(**_INLINE)
def _log_likelihood(held, d, family, variance):
    """Log of p(y | predictors), up to what does not depend on them."""
    y, n = held[d, TARGET], held.shape[1]
    if family == NORMAL:
        away = y - held[d, FIRST]
        return -0.5 * away * away / variance
    if family == POISSON:
        return y * held[d, FIRST] - math.exp(min(held[d, FIRST], _MOST))
    most = held[d, FIRST]
    for c in range(FIRST + 1, n):
        most = max(most, held[d, c])
    total = 0.0
    for c in range(FIRST, n):
        total += math.exp(held[d, c] - most)
    return held[d, FIRST + np.int64(y)] - most - math.log(total)


@nb.njit(**_INLINE)
def _uniform(state, i):
    x = state + (np.uint64(i) + np.uint64(1)) * _STEP
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return np.float64((x ^ (x >> _S31)) >> _DROPPED) * _UNIT


@nb.njit(**_SUMS)
def _moved(held, d, coefficients, j, k):
    """Multiply the exponentials of a document by what a token's move from topic j to k changes; their sum."""
    own, total = held[d, INVERSE_LENGTH], 0.0
    for c in range(coefficients.shape[1]):
        value = held[d, at(c + FIRST)] * _exp(own * (coefficients[k, at(c)] - coefficients[j, at(c)]))
        held[d, at(c + FIRST)] = value
        total += value
    return total


@nb.njit(**_INLINE)
def _accepted(alpha, doc, old, new, i):
    """Return the topic that the token has after the proposal `new`."""
    _, coefficients, held, state, family, variance, are_exponentials = alpha
    d, j, k = at(doc), at(old), at(new)
    if j == k:
        return np.int64(new)
    own = held[d, INVERSE_LENGTH]
    if are_exponentials:
        y = at(held[d, TARGET])
        reached = _moved(held, d, coefficients, j, k)
        ratio = math.exp(own * (coefficients[k, y] - coefficients[j, y])) * held[d, LIKELIHOOD]
        if ratio >= reached or _uniform(state, i) * reached < ratio:
            held[d, LIKELIHOOD] = reached
            return np.int64(new)
        held[d, LIKELIHOOD] = _moved(held, d, coefficients, k, j)
        return np.int64(old)
    for c in range(coefficients.shape[1]):
        held[d, at(c + FIRST)] += own * (coefficients[k, c] - coefficients[j, c])
    likelihood = _log_likelihood(held, d, family, variance)
    gain = likelihood - held[d, LIKELIHOOD]
    if gain >= 0 or _uniform(state, i) < math.exp(gain):
        held[d, LIKELIHOOD] = likelihood
        return np.int64(new)
    for c in range(coefficients.shape[1]):
        held[d, at(c + FIRST)] -= own * (coefficients[k, c] - coefficients[j, c])
    return np.int64(old)


def accepted(alpha, doc, old, new, i):
    """Return the topic of token i after the draw `new`; without responses that is `new`."""


@overload(accepted, jit_options=_INLINE)
def _accepted_where_responses_are(alpha, doc, old, new, i):
    if are_responses(alpha):
        return lambda alpha, doc, old, new, i: _accepted(alpha, doc, old, new, i)
    return lambda alpha, doc, old, new, i: new


def are_responses(alpha):
    """Whether numba's type of `alpha` is that of a prior with responses."""
    return isinstance(alpha, nb.types.BaseTuple) and len(alpha) == _PARTS


@nb.njit(**_INLINE)
def ask_for_response(alpha, d):
    """Ask the memory for what is held of a document that comes later."""
    held = alpha[2]
    start = np.int64(d) * held.shape[1]
    for line in range(0, held.shape[1] + _LINE - 1, _LINE):
        prefetch(held, start + line)


@nb.njit(**_OPTIONS)
def begin(stored, width, intercepts, alpha, counts, expanded):
    """Compute what is held of documents from their counts (`documents.rows`); the last two are scratch."""
    _, coefficients, held, _, family, variance, are_exponentials = alpha
    for d in range(len(held)):
        load_row(stored, d, width, expanded, counts)
        for c in range(len(intercepts)):
            held[d, FIRST + c] = 0.0
        for k in range(len(counts)):
            n = counts[k]
            if n:
                for c in range(len(intercepts)):
                    held[d, FIRST + c] += n * coefficients[k, c]
        for c in range(len(intercepts)):
            held[d, FIRST + c] = intercepts[c] + held[d, INVERSE_LENGTH] * held[d, FIRST + c]
        held[d, LIKELIHOOD] = _log_likelihood(held, d, family, variance)
        if are_exponentials:
            most, total = held[d, FIRST], 0.0
            for c in range(1, len(intercepts)):
                most = max(most, held[d, FIRST + c])
            for c in range(len(intercepts)):
                held[d, FIRST + c] = math.exp(held[d, FIRST + c] - most)
                total += held[d, FIRST + c]
            held[d, LIKELIHOOD] = total


@nb.njit(**_OPTIONS)
def log_likelihoods(held, family, variance, are_exponentials):
    """Sum of the documents' log p(y | predictors)."""
    total = 0.0
    for d in range(len(held)):
        if are_exponentials:
            total += math.log(held[d, FIRST + np.int64(held[d, TARGET])] / held[d, LIKELIHOOD])
        else:
            total += held[d, LIKELIHOOD]
    return total
