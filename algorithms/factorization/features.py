"""Features of users and items: factors whose prior mean is linear in them.

With x_u the features of row u of a side and a last 1, the prior of its factors and bias y_u = (p_u, b_u) is
normal about A' x_u: the objective has

    lambda sum_u n_u |y_u - A' x_u|^2 + lambda rho |A|^2      in place of      lambda sum_u n_u |y_u|^2,

with n_u as there (a power of the number of ratings and an offset) and rho = `feature_reg`. For
ratings the column of the biases has beta, their own penalty, for lambda, and 1 for n_u. The sums are over
rows with ratings; one without has the mean A' x_u itself. Given the factors, A is the ridge regression

    (X' N X + rho I) A = X' N Y,

which is solved by conjugate gradients from the last A, so that X may be sparse and have many columns.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from ...errors import DataError, in_brief, shortened
from ..inputs.matrices import check_plain
from .entries import check_ids, find_ids

_TOLERANCE = 1e-10  # of residuals, relative to the right side
_MOST_STEPS = 300  # of conjugate gradients, which end by their tolerance long before
_LARGEST = 1e12  # of features: squares of larger ones leave nothing of the penalty


class LinearPrior:
    """The prior of one side (0: users, 1: items) during a fit.

    `features` are from `with_constant`, `counts` the numbers of ratings; `weights` is A, of shape (n_features
    + 1, n_components + 1), zeros at first.
    """

    def __init__(self, features, counts, settings, side):
        self._features, self._rated = features, counts > 0
        ridges = settings.ridges(counts, np.float64, side)
        regs = settings.reg, settings.reg if settings.bias_reg is None else settings.bias_reg[side]
        self._regs, self._rho = regs, settings.feature_reg
        self._shares = [
            (ridge / reg if reg > 0 else 1.0) * self._rated for ridge, reg in zip(ridges, regs, strict=True)
        ]
        self.weights = np.zeros((features.shape[1], settings.n_components + 1))

    def means(self, dtype):
        """Prior mean of each row's factors and bias."""
        return means_of(self._features, self.weights, dtype)

    def refit(self, factors, biases):
        """Solve for A given the factors; set rows without ratings to their means, in place."""
        K = self.weights.shape[1] - 1
        Y = np.column_stack([factors[:, :K], biases]).astype(np.float64)
        self.weights = np.hstack(
            [
                ridge_regression(self._features, shares, self._rho, Y[:, part], self.weights[:, part])
                for shares, part in zip(self._shares, (slice(K), slice(K, None)), strict=True)
            ]
        )
        self.set_unrated(factors, biases)

    def set_unrated(self, factors, biases):
        """Set rows without ratings to their means, in place."""
        means, shifts = self.means(factors.dtype)
        unrated = ~self._rated
        factors[unrated, : means.shape[1]], biases[unrated] = means[unrated], shifts[unrated]

    def constant(self):
        """The part of the penalty that does not depend on the factors."""
        means, shifts = self.means(np.float64)
        return self._sum(np.einsum("ij,ij->i", means, means), shifts**2)

    def penalty(self, factors, biases):
        """The part of the objective that depends on this side's factors and on A."""
        means, shifts = self.means(np.float64)
        moves = factors[:, : means.shape[1]] - means
        return self._sum(np.einsum("ij,ij->i", moves, moves), (biases - shifts) ** 2)

    def _sum(self, *squares):
        weights = (self.weights[:, :-1] ** 2).sum(), (self.weights[:, -1] ** 2).sum()
        terms = zip(self._regs, self._shares, squares, weights, strict=True)
        return sum(reg * float(shares @ of + self._rho * w) for reg, shares, of, w in terms)


def mapped(sides, features, entries, settings):
    """Regress the factors and biases of a fit on features; rows without ratings get what these predict.

    For solvers whose objective has no features. Rows with ratings stay as they are. Reference: Gantner,
    Drumond, Freudenthaler, Rendle, Schmidt-Thieme, "Learning attribute-to-feature mappings for cold-start
    recommendations", ICDM 2010.
    """
    counts = entries.counts, np.bincount(entries.indices, minlength=entries.shape[1])
    parts = (sides.user_factors, sides.user_bias), (sides.item_factors, sides.item_bias)
    weights: list[Any] = [None, None]
    for side, (table, of_side) in enumerate(zip(features, parts, strict=True)):
        if table is not None:
            prior = LinearPrior(table, counts[side], settings, side)
            prior.refit(*of_side)
            weights[side] = prior.weights
    return replace(sides, weights=tuple(weights))


def ridge_regression(X, shares, rho, Y, start):
    """Solve ``(X' N X + rho I) A = X' N Y`` with N = diag(shares), all columns at once, from a start."""
    diagonal = rho + _squared(X).T @ shares

    def applied(A):
        return X.T @ (shares[:, None] * (X @ A)) + rho * A

    right = X.T @ (shares[:, None] * Y)
    A = start.copy()
    residual = right - applied(A)
    scaled = residual / diagonal[:, None]
    direction, size = scaled.copy(), (residual * scaled).sum(axis=0)
    enough = _TOLERANCE**2 * (right * right / diagonal[:, None]).sum(axis=0)
    for _ in range(_MOST_STEPS):
        active = size > enough
        if not active.any():
            break
        image = applied(direction)
        lengths = np.divide(size, (direction * image).sum(axis=0), out=np.zeros_like(size), where=active)
        A += lengths * direction
        residual -= lengths * image
        scaled = residual / diagonal[:, None]
        after = (residual * scaled).sum(axis=0)
        direction = scaled + np.divide(after, size, out=np.zeros_like(size), where=active) * direction
        size = after
    return A


def _squared(X: Any):
    return X * X if isinstance(X, np.ndarray) else X.power(2)


def means_of(features, weights, dtype):
    """Prior means of factors and biases of rows of features (with their constant)."""
    means = np.asarray(features @ weights)
    return np.ascontiguousarray(means[:, :-1].astype(dtype)), means[:, -1].astype(dtype)


def with_constant(features, what, n_rows=None, n_columns=None):
    """Check a table of features of users or items (`what`); return it in float64 with a column of ones.

    Entries above 1e12 in magnitude are refused.
    """
    name = f"{what}_features"
    table: Any = features
    is_sparse = sparse.issparse(features)
    if not is_sparse:
        check_plain(name, features)
        try:
            given = np.asarray(features)
            table = given if given.dtype.kind == "c" else given.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{name} must hold numbers: {in_brief(error)}; encode text, for instance as 0 and 1"
            ) from error
        check_plain(name, given)  # times in a frame
    if table.ndim != 2:
        raise DataError(f"{name} must have two dimensions, {what}s x features, got the shape {table.shape}")
    for axis, wanted, kind in ((0, n_rows, "rows"), (1, n_columns, "columns")):
        if wanted is not None and table.shape[axis] != wanted:
            raise DataError(f"{name} has {table.shape[axis]} {kind}, but {wanted} are needed: one a "
                            f"{what if axis == 0 else 'feature of fit'}")  # fmt: skip
    if table.dtype.kind not in "buif":
        raise DataError(f"{name} must hold real numbers, got {table.dtype}")
    ones = np.ones((table.shape[0], 1))
    if is_sparse:
        layers: Any = [sparse.csr_array(table, dtype=np.float64), ones]
        table = sparse.hstack(layers, format="csr")
        values = table.data
    else:
        table = values = np.hstack([table, ones])
    if not np.isfinite(values).all():
        raise DataError(f"{name} holds NaN or infinity: fill in what is missing, for instance with 0")
    if (most := np.abs(values).max(initial=0)) > _LARGEST:
        raise DataError(
            f"{name} holds {most:g}: bring it to a scale of about 1, for instance by StandardScaler"
        )
    return table


def split_features(given, what):
    """Check a pair ``(ids, features)``; ids must be different."""
    if not (isinstance(given, tuple) and len(given) == 2):
        raise DataError(f"{what}_features must be a pair (ids, features), to say whose each row is")
    ids = check_ids(given[0], what)
    if len(np.unique(ids)) < len(ids):
        raise DataError(f"{what}_features has an id twice: give each {what} one row")
    return ids, given[1]


def in_order(given, ids, what):
    """Sort features ``(ids, table)`` by the model's ids, which must all be there; add a column of ones."""
    names, table = split_features(given, what)
    table = with_constant(table, what, n_rows=len(names))
    order = np.argsort(names, kind="stable")
    at = find_ids(ids, names[order]) if len(names) else np.full(len(ids), -1)
    if (at < 0).any():
        raise DataError(
            f"{what}_features has no row for the {what} {shortened(ids[np.argmax(at < 0)].item())}"
        )
    return table[order[at]]
