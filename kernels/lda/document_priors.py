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

from ..exponentials import fast_exp
from ..indexing import at
from ..options import BORROWS, INNER, KERNEL
from ..vector import _data as array_data
from ..vector import _i64 as i64
from ..vector import prefetch
from .models.responses import are_responses, ask_for_response

_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS}
_EXACT: dict[str, Any] = {**_OPTIONS, **INNER, "fastmath": {"contract"}}  # as `fast_exp` needs it
_INLINE: dict[str, Any] = {**_OPTIONS, **INNER, "forceinline": True}
MOST_LOG = 60.0  # of a prior
_LINE = 16  # float32 of a cache line
# Counts whose lnG is a product, and priors up to which it is: at most 1e135. Most counts are small.
_FEW, _LARGE = 16, 1e9
_SERIES = 8  # from where lnG is its asymptotic series
_DUE = 1e150  # products beyond are taken the logarithm of


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
    if not isinstance(alpha, nb.types.BaseTuple):
        return lambda alpha, d: None
    if are_responses(alpha):
        return lambda alpha, d: ask_for_response(alpha, d)

    def ask(alpha, d):
        table, row = alpha
        start = np.int64(row[d]) * table.shape[1]
        for line in range(0, table.shape[1], _LINE):
            prefetch(table, start + line)

    return ask


@nb.njit(**_EXACT)
def _prior_logs(row, coefficients, logs):
    """Write ``sum_f row[f] coefficients[f, k]``, bounded by `MOST_LOG` and its negative, to ``logs[k]``."""
    logs[:] = 0
    for f in range(len(coefficients)):
        x = row[f]
        if x != 0:
            for k in range(len(logs)):
                logs[k] += x * coefficients[f, k]
    for k in range(len(logs)):
        logs[k] = min(max(logs[k], -MOST_LOG), MOST_LOG)


@nb.njit(**_EXACT)
def _exponentials(logs, out):
    for k in range(len(logs)):
        out[k] = fast_exp(logs[k])


@nb.njit(**_OPTIONS)
def fill_priors(design, coefficients, logs, alpha, table):
    """Write ``table[r, k] = exp(sum_f design[r, f] coefficients[f, k])``; padding stays as it is.

    Logarithms end at `MOST_LOG` and its negative, so that float32 holds what they say. `logs` and `alpha`
    (n_topics) are scratch.
    """
    for r in range(len(design)):
        _prior_logs(design[r], coefficients, logs)
        _exponentials(logs, alpha)
        for k in range(len(alpha)):
            table[r, k] = alpha[k]


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
def _product(a, c):
    """``prod_(0 < i < c) (a + i)``, and ``sum_(0 < i < c) 1 / (a + i)``."""
    product, slope = 1.0, 0.0
    for i in range(1, c - 1, 2):  # two at a time: one division
        pair = (a + i) * (a + (i + 1))
        product *= pair
        slope += (2 * a + (2 * i + 1)) / pair
    if c % 2 == 0:
        product *= a + (c - 1)
        slope += 1 / (a + (c - 1))
    return product, slope


@nb.njit(**_INLINE)
def _tails(x):
    """What the asymptotic series of lnG and of its derivative add to their logarithms, for x of 8 or more.

    The errors are below 1e-12.
    """
    inverse = 1 / x
    y = inverse * inverse
    value = inverse * (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y * (1 / 1188)))))
    slope = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132)))))
    return value, -0.5 * inverse - slope


@nb.njit(**_INLINE)
def _rising(a, log_a, c):
    """LnG(c + a) - lnG(a) of a whole c above 0, and its derivative in the logarithm of a.

    By products up to a + i of 8 or more, then by the series, in a form in which large numbers do not cancel.
    """
    if c <= _FEW and a < _LARGE:
        product, slope = _product(a, c)
        return log_a + math.log(product), 1 + a * slope
    value, slope, low, more = 0.0, 0.0, a, np.float64(c)
    if a < _SERIES:
        product, slope = _product(a, _SERIES)
        value, slope = log_a + math.log(product), 1 + a * slope
        low, more = a + _SERIES, more - _SERIES
    ratio = math.log1p(more / low)
    ahead, behind = _tails(low + more), _tails(low)
    value += (low - 0.5) * ratio + more * (math.log(low) + ratio - 1) + ahead[0] - behind[0]
    return value, slope + a * (ratio + ahead[1] - behind[1])


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
    total, product = 0.0, 1.0  # of which the logarithm is due
    for r in range(len(design)):
        _prior_logs(design[r], coefficients, logs)
        _exponentials(logs, alpha)
        alpha_sum = 0.0
        for k in range(n_topics):
            alpha_sum += alpha[k]
        rate, log_sum = 0.0, math.log(alpha_sum)
        for i in range(start[r], start[r + 1]):
            if lengths[i]:
                value, slope = _rising(alpha_sum, log_sum, np.int64(lengths[i]))
                total -= documents[i] * value
                rate += documents[i] * slope
        rate /= alpha_sum
        rates[r] = rate
        for k in range(n_topics):
            weight[k] = -rate * alpha[k]
        for j in range(first[r], first[r + 1]):
            k, c, often = at(topics[j]), np.int64(counts[j]), np.float64(times[j])
            if c == 1:
                total += often * logs[k]
                weight[k] += often
            elif often == 1 and c <= _FEW and alpha[k] < _LARGE:  # most: their logarithms wait
                own, slope = _product(alpha[k], c)
                weight[k] += 1 + alpha[k] * slope
                total += logs[k]
                product *= own
                if product > _DUE:
                    total += math.log(product)
                    product = 1.0
            else:
                value, slope = _rising(alpha[k], logs[k], c)
                total += often * value
                weight[k] += often * slope
        for f in range(n_columns):
            x = design[r, f]
            if x != 0:
                for k in range(n_topics):
                    gradient[f, k] += x * weight[k]
    return total + math.log(product)
