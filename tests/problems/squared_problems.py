"""Problems of the squared loss, how they are solved, and a gap recomputed in plain numpy."""

import itertools
from dataclasses import replace

import numpy as np
from scipy import sparse

from stradask.algorithms.linear.sparse.distributed import CutMatrix
from stradask.algorithms.linear.sparse.fitting import Design
from stradask.algorithms.linear.sparse.least_squares import least_squares_of
from stradask.algorithms.linear.sparse.penalties import L1L2


def fit(
    X, y, penalties, *, weights=None, intercept=False, tol=1e-10, n_jobs=1, start=None, rounds=1000, shards=0
):
    share = 1.0 if weights is None else len(y) / weights.sum()  # rows of a design have weights of mean 1
    weights = None if weights is None else weights * share
    first = penalties[0]
    cut = rows_of(X, shards) if shards else None
    design = Design(X, weights, first.l1_factors, first.l2_factors, intercept, first.positive, cut)
    factors = {"l1_factors": first.l1_factors, "l2_factors": first.l2_factors, "positive": first.positive}
    of_mean = [L1L2(penalty.strength * share, penalty.ridge * share, **factors) for penalty in penalties]
    columns = least_squares_of(design, y, n_jobs)
    fits = columns.solve(of_mean, tol=tol, max_iter=rounds, start=start, label="test")[0]
    total = len(y) / share  # objectives of the problem are sums
    sums = [{"objective": total * fit.objective, "gap_absolute": total * fit.gap_absolute} for fit in fits]
    return [
        replace(fit, strength=penalty.strength, **of_sum)
        for fit, penalty, of_sum in zip(fits, penalties, sums, strict=False)
    ]


def rows_of(X, n_shards):
    """X as so many blocks of rows."""
    edges = np.linspace(0, X.shape[0], n_shards + 1).astype(int).tolist()
    pieces = [X[a:b] for a, b in itertools.pairwise(edges)]
    return CutMatrix(True, pieces, edges, X.shape, X.dtype, sparse.issparse(X))


def dense(solution, n_features):
    coef = np.zeros(n_features)
    coef[solution.features] = solution.coef
    return coef


def problem(n, p, *, seed=0, density=None, correlation=0.0, dtype=np.float64, shift=0.0, positive=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + correlation * rng.standard_normal((n, 1)) + shift
    if density is not None:
        X *= rng.random((n, p)) < density
    truth = rng.standard_normal(p) * (rng.random(p) < 0.3)
    y = X @ (abs(truth) if positive else truth) + rng.standard_normal(n) + shift
    X = np.asfortranarray(X, dtype=dtype)
    return (X if density is None else sparse.csc_array(X)), y


def reference_gap(X, y, coef, penalty, weights=None, intercept=False):
    """Relative gap by the definitions: weights and centring applied to dense copies, the best multiple of
    the residual, made orthogonal to unpenalised columns, as dual point; rows for the ridge or none."""
    X = X.toarray() if sparse.issparse(X) else X
    X, y = X.astype(float), y.astype(float)
    w = np.ones(len(y)) if weights is None else weights
    if intercept:
        X, y = X - np.average(X, axis=0, weights=w), y - np.average(y, weights=w)
    X, y = X * np.sqrt(w)[:, None], y * np.sqrt(w)
    features = np.arange(X.shape[1])
    l1, l2 = penalty.thresholds(features), penalty.ridges(features)
    r = y - X @ coef
    primal = r @ r / 2 + l1 @ abs(coef) + l2 @ coef**2 / 2
    # rows of the square penalty are appended; what has neither penalty is projected out
    A, target = np.vstack([X, np.diag(np.sqrt(l2))]), np.concatenate([y, np.zeros(X.shape[1])])
    theta = np.concatenate([r, -np.sqrt(l2) * coef])
    free = (l1 == 0) if not penalty.positive else np.zeros(X.shape[1], bool)
    if free.any():
        theta = theta - A[:, free] @ np.linalg.lstsq(A[:, free], theta, rcond=None)[0]
    slopes = A[:, ~free].T @ theta
    slopes = np.maximum(slopes, 0) if penalty.positive else abs(slopes)
    with np.errstate(divide="ignore"):
        limit = min((l1[~free][slopes > 0] / slopes[slopes > 0]).min(initial=np.inf), 1e300)
    s = np.clip(target @ theta / max(theta @ theta, 1e-300), 0, limit)
    dual = s * (target @ theta) - s * s * (theta @ theta) / 2
    if (l2 > 0).any():  # the residual itself, and the conjugate of the penalty
        costless, soft = (l1 == 0) & (l2 == 0), l2 > 0
        if costless.any() and not penalty.positive:
            r = r - X[:, costless] @ np.linalg.lstsq(X[:, costless], r, rcond=None)[0]
        slopes = X.T @ r
        slopes = np.maximum(slopes, 0) if penalty.positive else abs(slopes) * ~costless
        hard = (slopes > 0) & ~soft
        s = min((l1[hard] / slopes[hard]).min(initial=1.0), 1.0)
        excess = np.maximum(s * slopes[soft] - l1[soft], 0)
        dual = max(dual, s * (y @ r) - s * s * (r @ r) / 2 - (excess**2 / (2 * l2[soft])).sum())
    return (primal - dual) / (y @ y / 2)


def strength_max(X, y, weights=None, intercept=False, positive=False):
    w = np.ones(len(y)) if weights is None else weights
    v = w * (y - np.average(y, weights=w) if intercept else y)
    slopes = X.T @ v
    return (slopes if positive else abs(slopes)).max()
