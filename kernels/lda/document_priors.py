"""Document-topic priors of the samplers: one for all documents, or rows of a table, one a document.

The samplers take `alpha`, which is a vector (float32) or a tuple (table, row): the prior of document d is
then ``table[row[d]]``, so that documents with the same prior share a row. It is known at compile time
which of the two it is: with a vector the compiled code is that of one prior for all. With responses
(`responses`) the tuple begins with the vector.

For log-linear priors, ``alpha_dk = exp(x_d . lambda_k)``, here is also the likelihood of the coefficients
given the counts of topics, which is that of Dirichlet-multinomial regression::

    sum_d [ lnG(A_d) - lnG(L_d + A_d) + sum_k lnG(C_dk + alpha_dk) - lnG(alpha_dk) ],    A_d = sum_k alpha_dk
"""

import math
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from ..indexing import at
from ..options import BORROWS, INNER, KERNEL
from ..vector import _data as array_data
from ..vector import _i64 as i64
from ..vector import prefetch
from .models.responses import are_responses

_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS}
_INLINE: dict[str, Any] = {**_OPTIONS, **INNER, "forceinline": True}
MOST_LOG = 60.0  # of a prior
_LINE = 16  # float32 of a cache line
_FEW, _LARGE = 16, 1e12  # counts whose lnG is a product, and priors up to which it is


@intrinsic
def prior_of(typingctx, alpha, d):
    """Address of the prior of document d, as `draw_dense` takes it."""
    sig = types.int64(alpha, d)

    def codegen(context, b, sig, args):
        alpha, d = args
        if isinstance(sig.args[0], types.Array):
            return array_data(context, b, sig.args[0], alpha)[0]
        if are_responses(sig.args[0]):
            return array_data(context, b, sig.args[0].types[0], b.extract_value(alpha, 0))[0]
        table_kind, row_kind = sig.args[0].types
        table, row = (b.extract_value(alpha, i) for i in range(2))
        address, item = array_data(context, b, table_kind, table)
        width = b.extract_value(context.make_array(table_kind)(context, b, table).shape, 1)
        rows, row_item = array_data(context, b, row_kind, row)
        place = b.add(rows, b.mul(context.cast(b, d, sig.args[1], types.int64), i64(row_item)))
        number = b.sext(b.load(b.inttoptr(place, ir.IntType(32).as_pointer())), i64)
        return b.add(address, b.mul(b.mul(number, width), i64(item)))

    return sig, codegen


def ask_for_prior(alpha, d):
    """Ask the memory for the prior of a document that comes later."""


@overload(ask_for_prior, jit_options=_INLINE)
def _ask_for_prior(alpha, d):
    if isinstance(alpha, nb.types.Array) or are_responses(alpha):
        return lambda alpha, d: None

    def ask(alpha, d):
        table, row = alpha
        start = np.int64(row[d]) * table.shape[1]
        for line in range(0, table.shape[1], _LINE):
            prefetch(table, start + line)

    return ask


@nb.njit(**_OPTIONS)
def fill_priors(design, coefficients, table):
    """Write ``table[r, k] = exp(sum_f design[r, f] coefficients[k, f])``; padding stays as it is.

    Logarithms end at `MOST_LOG` and its negative, so that float32 holds what they say.
    """
    n_topics, n_columns = coefficients.shape
    for r in range(len(design)):
        for k in range(n_topics):
            total = 0.0
            for f in range(n_columns):
                total += design[r, f] * coefficients[k, f]
            table[r, k] = math.exp(min(max(total, -MOST_LOG), MOST_LOG))


@nb.njit(**_OPTIONS)
def documents_of_rows(first, last, doc_counts, table, row, n_topics):
    """Sum over documents ``first:last`` of lnG(C_dk + alpha_dk) - lnG(alpha_dk), dense counts."""
    total = 0.0
    for d in range(first, last):
        r = at(row[d])
        for k in range(n_topics):
            c = doc_counts[d, k]
            if c:
                own = np.float64(table[r, k])
                total += math.lgamma(np.float64(c) + own) - math.lgamma(own)
    return total


@nb.njit(**_OPTIONS)
def list_counts(doc_counts, order, start, n_topics, first, topics, counts):
    """List the counts above zero of documents by row of the table: those of row r from ``first[r]`` on.

    The documents of row r are ``order[start[r]:start[r + 1]]``.
    """
    to = 0
    for r in range(len(start) - 1):
        first[r] = to
        for i in range(start[r], start[r + 1]):
            d = order[i]
            for k in range(n_topics):
                c = doc_counts[d, k]
                if c:
                    topics[to], counts[to] = k, c
                    to += 1
    first[len(start) - 1] = to


@nb.njit(**_INLINE)
def _rising(a, c):
    """LnG(c + a) - lnG(a), and its derivative in a, of a whole c above 0."""
    return math.lgamma(c + a) - math.lgamma(a), _digamma(c + a) - _digamma(a)


@nb.njit(**_INLINE)
def _rising_of_log(a, log_a, c):
    """The same, and the derivative in the logarithm of a: most counts are small, many are 1."""
    if c == 1:
        return log_a, 1.0
    if c <= _FEW and a < _LARGE:
        product, slope = 1.0, 1.0
        for i in range(1, c):
            product *= a + i
            slope += a / (a + i)
        return log_a + math.log(product), slope
    value, slope = _rising(a, c)
    return value, slope * a


@nb.njit(**_INLINE)
def _digamma(x):
    """Derivative of lnG at x > 0: by recurrence to 8, then by its asymptotic series (error below 1e-12)."""
    total = 0.0
    while x < 8.0:
        total -= 1 / x
        x += 1
    y = 1 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132)))))
    return total + math.log(x) - 0.5 / x - series


@nb.njit(**_OPTIONS)
def regression(
    design, coefficients, first, topics, counts, times, start, lengths, documents, logs, alpha, weight,
    gradient, rates,
):  # fmt: skip
    """Log-likelihood of coefficients given counts.

    Row r of `design` has the counts ``first[r]:first[r + 1]`` of `topics` and `counts`, each so many `times`,
    and the `lengths` ``start[r]:start[r + 1]``, each of so many `documents`. `gradient`
    (columns x topics) is added to. ``rates[r]`` takes the sum of psi(L + A) - psi(A), by which alpha weighs
    in the curvature. `logs`, `alpha` and `weight` (n_topics) are scratch.
    """
    n_columns, n_topics = gradient.shape
    total = 0.0
    for r in range(len(design)):
        logs[:] = 0
        for f in range(n_columns):
            x = design[r, f]
            if x != 0:
                for k in range(n_topics):
                    logs[k] += x * coefficients[f, k]
        alpha_sum = 0.0
        for k in range(n_topics):
            logs[k] = min(max(logs[k], -MOST_LOG), MOST_LOG)
            alpha[k] = math.exp(logs[k])
            alpha_sum += alpha[k]
        rate = 0.0
        for i in range(start[r], start[r + 1]):
            if lengths[i]:
                value, slope = _rising(alpha_sum, np.int64(lengths[i]))
                total -= documents[i] * value
                rate += documents[i] * slope
        rates[r] = rate
        for k in range(n_topics):
            weight[k] = -rate * alpha[k]
        for j in range(first[r], first[r + 1]):
            k = at(topics[j])
            value, slope = _rising_of_log(alpha[k], logs[k], np.int64(counts[j]))
            total += times[j] * value
            weight[k] += times[j] * slope
        for f in range(n_columns):
            x = design[r, f]
            if x != 0:
                for k in range(n_topics):
                    gradient[f, k] += x * weight[k]
    return total
