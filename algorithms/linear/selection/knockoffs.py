"""Knockoff copies of columns: made for a fixed matrix, or for normal rows.

A knockoff matrix has the same second moments as X, within itself and between different columns, but for s_j
between a column and its own copy: ``[X, Z]^T [X, Z] = [[S, S - D], [S - D, S]]``, D = diag(s). The smaller
the remaining correlation ``S_jj - s_j``, the more a test can tell a column from its copy.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, eigh

from ....errors import DataError

_SWEEPS, _SETTLED = 200, 1e-7  # over the columns, and the change of all s that ends them
_SLACK = 1e-8  # of a correlation matrix: how far from singular the copies stay


def gaps(correlation, method="sdp"):
    """How far each column is from its copy: s, with ``2 S - diag(s)`` positive definite and s at most 1.

    `correlation`: float64 (p, p), of ones on its diagonal. "equi" takes twice the least eigenvalue for all;
    "sdp" maximises their sum, by coordinate ascent with a falling barrier (Askari, Rebjock, d'Aspremont,
    El Ghaoui 2021).
    """
    least = float(eigh(correlation, eigvals_only=True, subset_by_index=[0, 0])[0])
    if least <= _SLACK:
        raise DataError(
            "columns depend on each other, so that they have no knockoffs: leave some out, or give covariance"
        )
    equal = np.full(len(correlation), min(1.0, 2 * least))
    if method == "equi":
        return equal * (1 - _SLACK)
    return _ascend(correlation, equal)


def _ascend(correlation, start):
    """Maximise ``sum s + mu log det(2 S - diag(s))`` over 0 <= s <= 1 for falling mu, one s at a time."""
    s, mu = start * 0.5, 0.1
    while True:
        inverse = np.linalg.inv(2 * correlation - np.diag(s))
        for _ in range(_SWEEPS):
            moved = 0.0
            for j in range(len(s)):
                # det is linear in s_j: it vanishes at s_j + 1 / inverse_jj.
                new = min(max(s[j] + 1 / inverse[j, j] - mu, 0.0), 1.0)
                step = new - s[j]
                if step:
                    column = inverse[:, j].copy()
                    inverse += np.outer(column, column * (step / (1 - step * column[j])))
                    s[j] = new
                    moved = max(moved, abs(step))
            if moved <= _SETTLED:
                break
        if mu * len(s) <= 1e-4 * max(s.sum(), 1e-300):
            return s * (1 - _SLACK)
        mu /= 5


def gaussian_knockoffs(X, mean, covariance, rng, method="sdp"):
    """Draw knockoffs of rows that are normal with that mean and covariance (Candès and others 2018)."""
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    s = gaps(correlation, method)
    try:
        solved = cho_solve(cho_factor(correlation, lower=True), np.diag(s))
    except LinAlgError as error:
        raise DataError("covariance must be positive definite") from error
    rest = 2 * np.diag(s) - s[:, None] * solved
    standard = (X - mean) / scale
    root = _root(rest)
    draws = standard - standard @ solved + rng.standard_normal(X.shape) @ root.T
    return mean + draws * scale


def fixed_knockoffs(X, rng, method="sdp"):
    """Knockoffs of a centred matrix of more than twice as many rows as columns (Barber, Candès 2015)."""
    n, p = X.shape
    scale = np.linalg.norm(X, axis=0)
    standard = X / scale
    S = standard.T @ standard
    s = gaps(S, method)
    solved = np.linalg.solve(S, np.diag(s))
    # A basis that is orthogonal to X and to the column of ones.
    basis = np.column_stack([np.ones(n), standard, rng.standard_normal((n, p))])
    Q = np.linalg.qr(basis)[0][:, p + 1 :]
    return (standard - standard @ solved + Q @ _root(2 * np.diag(s) - s[:, None] * solved).T) * scale


def _root(matrix):
    """A root of a symmetric matrix of no eigenvalue below zero but for rounding."""
    matrix = (matrix + matrix.T) / 2
    try:
        return cholesky(matrix, lower=True)
    except LinAlgError:
        values, vectors = eigh(matrix)
        return vectors * np.sqrt(np.maximum(values, 0))


def knockoff_threshold(W, fdr, offset=1):
    """The least t with ``(offset + #{W <= -t}) / #{W >= t} <= fdr``; infinite where there is none."""
    for t in np.sort(np.abs(W[W != 0])):
        if offset + np.count_nonzero(-t >= W) <= fdr * max(np.count_nonzero(t <= W), 1):
            return float(t)
    return np.inf
