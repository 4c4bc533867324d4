"""Shrinkage of rows of few ratings: penalties estimated from the ratings."""

from dataclasses import replace

import numpy as np
from scipy import sparse

from .sides import Sides, ranges_of

_SWEEPS = 2  # over the biases, of which a third changes little
_TINY = 1e-30  # below any weight: rows of none keep their bias
_UNKNOWN = 4.0  # ratings, where the table does not tell: users, or items, of one rating each
_LEAST, _MOST = 0.05, 100.0  # bounds of shares: an estimate from few ratings can be anything
_OFFSET, _SPARSE = 8.0, 20.0  # measured; see docs/matrix-factorization.md
_CLEAR, _TIMES = 0.05, 10.0  # signal from which on the offset is as it is, and what it is raised by at most
_PROBES = 200_000  # random signs for all items together; at least 8 and at most 300 for each


def estimated(entries, n_components):
    r"""Estimate the penalties of users' and items' biases by the method of moments, and the offset of `reg`.

    With biases of variance :math:`\tau^2` and errors of variance :math:`\sigma^2` the best prediction shrinks
    a bias as :math:`\sigma^2 / \tau^2` more ratings of the mean would. The variance of ratings within users
    lacks that of users' biases alone, the variance within items that of items' biases (Searle, Casella,
    McCulloch, "Variance components", Wiley 1992).

    The offset grows with sigma, as a part of the deviation of ratings, with the root of the number of
    factors, each of which then holds less, and with the number of rows for each rating: the fewer ratings a
    row has, the less its tastes are known. Where the ratings show hardly anything beyond biases
    (`beyond_biases`) it is raised until factors do not fit their errors.
    """
    mean, total = entries.average(lambda values: values), 0.0
    sums = [np.zeros(n) for n in entries.shape]
    counts = [np.zeros(n) for n in entries.shape]
    for a, b in _ranges(entries, 1 << 16):
        part = entries.part(a, b)
        rows, columns, missed = part.rows, part.indices, part.values.astype(np.float64) - mean
        for of, count, at in zip(sums, counts, (rows, columns), strict=True):
            own = slice(a, b) if at is rows else slice(None)
            of[own] += np.bincount(at, missed, len(of[own]))
            count[own] += np.bincount(at, minlength=len(of[own]))
        total += float((missed**2).sum())
    within, known, n_ratings = [], [], len(entries)
    for of, count in zip(sums, counts, strict=True):
        rated = count > 0
        left = n_ratings - int(rated.sum())
        known.append(left > 0)
        within.append((total - float((of[rated] ** 2 / count[rated]).sum())) / max(left, 1))
    everything = (total - sums[0].sum() ** 2 / n_ratings) / max(n_ratings - 1, 1)
    if all(known) and everything > 0:
        error = max(sum(within) - everything, _LEAST * everything)
        of_bias = np.maximum(everything - np.array(within), 1e-9 * everything)
        shares = np.clip(error / of_bias, _LEAST, _MOST).tolist()
    else:
        error, shares = everything, [_UNKNOWN] * 2
    n_rows = sum(int((count > 0).sum()) for count in counts)
    density = getattr(entries, "rows_a_rating", n_rows / n_ratings)  # a sample knows that of all ratings
    left_over = error / everything if everything > 0 else 0.0
    offset = _OFFSET * np.sqrt(n_components * left_over) * (1 + _SPARSE * density / 2)
    bias_reg = tuple(shares)
    sides = biases_alone(entries, bias_reg)
    signal = max(beyond_biases(entries, sides), 1e-9)
    offset *= min(max(_CLEAR / signal, 1.0) ** 2, _TIMES)
    return bias_reg, float(offset)


def biases_alone(entries, bias_reg):
    """Fit a model of the mean and biases."""
    none = [np.zeros((n, 0)) for n in entries.shape]
    mean = entries.average(lambda values: values)
    sides = Sides.of(none, [np.zeros(n) for n in entries.shape], mean)
    for _ in range(_SWEEPS):
        sides = with_best_biases(sides, entries, bias_reg)
    return sides


def bias_errors(train, bias_reg, held=None):
    """Weighted squared errors of biases alone on `held`; or on `train`, each rating left out in turn.

    What a rating adds to its own prediction is taken for what it adds to its user's and its item's mean.
    """
    sides, ratings = biases_alone(train, bias_reg), train if held is None else held
    misses = ratings.values - sides.predict(ratings.rows, ratings.indices)
    if held is None:
        for reg, rows, n in zip(bias_reg, (train.rows, train.indices), train.shape, strict=True):
            weights = np.broadcast_to(train.weights, len(train)).astype(np.float64)
            totals = np.bincount(rows, weights, n)[rows]
            misses /= np.maximum(1 - weights / (totals + reg), _LEAST)
    return ratings.weights * misses**2


def _ranges(entries, size):
    """Ranges of rows of so many ratings, or of as many as there are columns: each range sums by column."""
    return ranges_of(entries.indptr, max(size, entries.shape[1]))


def with_best_biases(sides, entries, bias_reg):
    """Put the biases of users, and then those of items, at the minimum of the objective given all else.

    Parameters
    ----------
    sides : Sides
    entries : Entries
    bias_reg : tuple of two float

    Returns
    -------
    Sides
    """
    user_bias, item_bias = sides.user_bias.copy(), sides.item_bias.copy()
    pulls, weights_of = np.zeros(len(item_bias)), np.zeros(len(item_bias))
    for a, b in _ranges(entries, 1 << 14):  # what is computed of a range takes a megabyte
        part = entries.part(a, b)
        weights = np.broadcast_to(part.weights, len(part)).astype(np.float64)
        missed = part.values - sides.predict(part.rows + a, part.indices)
        total = np.bincount(part.rows, weights, b - a)
        pull = np.bincount(part.rows, weights * missed, b - a) - bias_reg[0] * user_bias[a:b]
        step = pull / np.maximum(total + bias_reg[0], _TINY)
        user_bias[a:b] += step.astype(user_bias.dtype)
        pulls += np.bincount(part.indices, weights * (missed - step[part.rows]), len(pulls))
        weights_of += np.bincount(part.indices, weights, len(pulls))
    step = (pulls - bias_reg[1] * item_bias) / np.maximum(weights_of + bias_reg[1], _TINY)
    item_bias += step.astype(item_bias.dtype)
    return replace(sides, user_bias=user_bias, item_bias=item_bias)


def beyond_biases(entries, sides):
    r"""Measure whether what a model of biases misses is more than independent errors.

    With E the table of what is missed, :math:`|E^T E|^2` (the sum of the fourth powers of its singular
    values) has for independent errors of mean 0 the expectation

    .. math:: \sum_u (\sum_i e_{ui}^2)^2 + \sum_i (\sum_u e_{ui}^2)^2 - \sum_{ui} e_{ui}^4

    and tastes that users share raise it. Its trace is estimated by random signs (Hutchinson).

    Parameters
    ----------
    entries : Entries
    sides : Sides

    Returns
    -------
    float
        How much it lies above, as a part of the expectation, and two standard errors of the estimate more;
        near 0 for errors alone.
    """
    n_items = entries.shape[1]
    n_probes = min(max(8, _PROBES // n_items), 300)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (n_items, n_probes))
    found, squares, expected = np.zeros((n_items, n_probes)), np.zeros(n_items), 0.0
    for a, b in _ranges(entries, 1 << 16):  # each takes a table of items and probes
        part = entries.part(a, b)
        missed = part.values - sides.predict(part.rows + a, part.indices)
        table = sparse.csr_array((missed, part.indices, part.indptr), shape=(b - a, n_items))
        found += table.T @ (table @ signs)
        square = missed**2
        squares += np.bincount(part.indices, square, n_items)
        expected += float((np.bincount(part.rows, square, b - a) ** 2).sum() - (square**2).sum())
    expected += float((squares**2).sum())
    if expected <= 0:
        return np.inf
    shares = (found**2).sum(axis=0) / expected - 1
    return float(shares.mean() + 2 * shares.std(ddof=1) / np.sqrt(n_probes))
