"""Helpers of the generators and splits.

Checks of arguments, random generators, ranks within rows, and patterns of sparse matrices.
"""

import json
import math
import numbers
import re

import numpy as np
from scipy import sparse

from ..errors import DataError, in_brief, shortened

_BATCH = 1 << 21  # numbers of a dense block


def type_of(dtype):
    """Return NumPy's type; raise DataError where NumPy knows none of the name."""
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError):
        raise DataError(f"dtype={shortened(dtype)}: give a type of NumPy's, such as numpy.float64") from None


def check_number(name, value, low=-math.inf, high=math.inf, *, integer=False, exclusive=False):
    """Return `value` if it is a finite number in [low, high], or raise a DataError that names it.

    With `exclusive` both ends are left out; with `integer` only whole numbers pass. True and
    False do not count as numbers.
    """
    kind = numbers.Integral if integer else numbers.Real
    if isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value):
        inside = low < value < high if exclusive else low <= value <= high
        if inside:
            return value
    above, below = ("above", "below") if exclusive else ("at least", "at most")
    bounds = [f"{above} {low}"] if low > -math.inf else []
    bounds += [f"{below} {high}"] if high < math.inf else []
    noun = "whole" if integer else "finite"
    raise DataError(
        f"{name} must be a {noun} number {' and '.join(bounds)}".rstrip() + f"; got {shortened(value)}"
    )


def check_generator(random_state):
    """Return a numpy Generator for None, a seed, a RandomState or a Generator.

    A RandomState gives the seed with its next draws, so that it moves on as in scikit-learn.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    if random_state is not None:
        check_number("random_state", random_state, 0, integer=True)
    return np.random.default_rng(random_state)


def rank_in_rows(values, rows, indptr):
    """Rank (from 0) of each value among those of its row; rows are sorted, as `indptr` says."""
    order = np.lexsort((values, rows))
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values)) - np.asarray(indptr, dtype=np.int64)[rows]
    return rank


def shares(weights, widths, total, most):
    """Whole numbers from 1 to `most`, as near to proportional to `weights` as that allows.

    Each counts `widths` times towards `total`, which is met exactly where all widths are 1, and to
    within the largest width otherwise.
    """
    low, high = 0.0, most / weights.min()
    while low < (middle := (low + high) / 2) < high:  # to the last bit
        if (np.clip(middle * weights, 1, most) * widths).sum() < total:
            low = middle
        else:
            high = middle
    ends = np.floor(np.cumsum(np.clip(high * weights, 1, most)) + 0.5)
    return np.clip(np.diff(ends, prepend=0), 1, most).astype(np.int64)


def distinct_draws(rng, counts, weights):
    """For each row `counts` different items, drawn one after another in proportion to `weights`.

    Rows draw in rounds, twice as many for each missing item as the round before, and keep the
    first new ones. When the rounds have drawn as many as there are items for the unfinished rows,
    these take the items with the smallest exponential variables of rates `weights` among those they
    lack, which has the same distribution (Efraimidis and Spirakis, 2006).

    Returns the row pointer and the items, sorted within rows.
    """
    n, cumulative = len(weights), np.cumsum(weights)
    missing, oversampling, spent = counts.copy(), 1, 0
    unfinished, finished = np.empty(0, dtype=np.int64), []  # row * n + item, sorted
    while missing.any() and spent <= n * np.count_nonzero(missing):
        draws = oversampling * missing
        items = np.searchsorted(cumulative, rng.random(draws.sum()) * cumulative[-1], side="right")
        keys, first = np.unique(np.repeat(np.arange(len(counts)), draws) * n + items, return_index=True)
        new = ~np.isin(keys, unfinished, assume_unique=True)
        keys, first = keys[new], first[new]
        rows = keys // n
        indptr = np.searchsorted(rows, np.arange(len(counts)))
        chosen = rank_in_rows(first, rows, indptr) < missing[rows]
        missing = missing - np.bincount(rows[chosen], minlength=len(counts))
        keys = np.sort(np.concatenate([unfinished, keys[chosen]]))
        complete = missing[keys // n] == 0
        finished.append(keys[complete])
        unfinished = keys[~complete]
        spent += len(items)
        oversampling *= 2
    late = np.flatnonzero(missing)
    some_rows = max(1, _BATCH // n)
    for start in range(0, len(late), some_rows):
        some = late[start : start + some_rows]
        begin, end = np.searchsorted(unfinished, [some * n, (some + 1) * n])
        waits = rng.standard_exponential((len(some), n)) / weights
        for wait, row, i, j in zip(waits, some, begin, end, strict=True):
            wait[unfinished[i:j] - row * n] = np.inf
        order = np.argsort(waits, axis=1)
        first = np.arange(n) < missing[some, None]
        finished.append((order + some[:, None] * n)[first])
    keys = np.sort(np.concatenate([*finished, unfinished]))
    return np.concatenate([[0], np.cumsum(counts)]), keys % n


def compressed(kind, data, indices, indptr, shape):
    """A CSR or CSC matrix from sorted parts, with the narrowest index type that holds them."""
    index = sparse.get_index_dtype(maxval=max(len(data), *shape))
    parts = (data, indices.astype(index, copy=False), indptr.astype(index, copy=False))
    matrix = kind(parts, shape=shape)
    matrix.has_canonical_format = True
    return matrix


def check_sizes(**sizes):
    """See that each is an integer of 1 or more."""
    for name, size in sizes.items():
        check_number(name, size, 1, integer=True)


def float_array(name, value):
    """Make a float64 array of what a caller gave; all of it must be finite."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)
    if not np.isfinite(array).all():
        raise DataError(f"{name} must hold finite numbers only; got {shortened(value)}")
    return array


def separator_of(line):
    """What stands between the cells of a line of CSV: comma, semicolon or tab."""
    return max(",;\t", key=re.sub('"[^"]*"', "", line).count)


def json_lines(lines, path):
    """Yield the number and the value of each line of JSON that is not blank."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise DataError(
                f"{path}, line {number}: not JSON ({in_brief(error)}); write one object a line"
            ) from None
        yield number, value
