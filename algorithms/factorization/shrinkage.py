"""How strongly rows of few ratings are shrunk: penalties that are estimated from the ratings."""

import numpy as np

from .sides import ranges_of

_UNKNOWN = 4.0  # ratings, where the table does not tell: users, or items, of one rating each
_LEAST, _MOST = 0.05, 100.0
_OFFSET, _SPARSE = 7.0, 20.0  # measured; see docs/matrix-factorization.md


def estimated(entries, n_components):
    r"""Estimate the penalties of biases by the method of moments, and the offset of those of factors.

    With biases of variance :math:`\tau^2` and errors of variance :math:`\sigma^2` the best prediction shrinks
    a bias as :math:`\sigma^2 / \tau^2` more ratings of the mean would. The variance of ratings within users
    misses that of users' biases alone, the variance within items that of items' biases.

    The offset grows with sigma and with the root of the number of factors, each of which then holds less, and
    with the number of rows for each rating: the fewer ratings a row has, the less its tastes are known.

    Parameters
    ----------
    entries : Entries
    n_components : int

    Returns
    -------
    bias_reg : tuple of two float
        Of users and of items, times the mean weight of a rating.
    offset : float

    References
    ----------
    Searle, Casella, McCulloch, "Variance components", Wiley 1992.
    """
    mean, total = entries.average(lambda values: values), 0.0
    sums = [np.zeros(n) for n in entries.shape]
    counts = [np.zeros(n) for n in entries.shape]
    n_weighted, weight = 0, 0.0
    for a, b in ranges_of(entries.indptr):
        part = entries.part(a, b)
        given = np.broadcast_to(part.weights, len(part)) > 0
        rows, columns = part.rows[given] + a, part.indices[given]
        missed = part.values[given].astype(np.float64) - mean
        for of, count, at in zip(sums, counts, (rows, columns), strict=True):
            np.add.at(of, at, missed)
            np.add.at(count, at, 1)
        total += float(missed @ missed)
        n_weighted += len(rows)
        weight += float(np.broadcast_to(part.weights, len(part)).sum(dtype=np.float64))
    within, known = [], []
    for of, count in zip(sums, counts, strict=True):
        rated = count > 0
        left = n_weighted - int(rated.sum())
        known.append(left > 0)
        within.append((total - float((of[rated] ** 2 / count[rated]).sum())) / max(left, 1))
    everything = (total - sums[0].sum() ** 2 / n_weighted) / max(n_weighted - 1, 1)
    if all(known) and everything > 0:
        error = max(sum(within) - everything, _LEAST * everything)
        of_bias = np.maximum(everything - np.array(within), 1e-9 * everything)
        shares = np.clip(error / of_bias, _LEAST, _MOST).tolist()
    else:
        error, shares = everything, [_UNKNOWN] * 2
    n_rows = sum(int((count > 0).sum()) for count in counts)
    offset = _OFFSET * np.sqrt(n_components * error) * (1 + _SPARSE * n_rows / (2 * n_weighted))
    weight = weight / n_weighted
    return tuple(share * weight for share in shares), float(offset * weight)
