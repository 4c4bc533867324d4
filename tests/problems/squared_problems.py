"""Problems of the squared loss, how they are solved, and a gap recomputed in plain numpy."""

import itertools

import numpy as np
from scipy import sparse

from stradask.algorithms.linear.sparse.columns import columns_of
from stradask.algorithms.linear.sparse.program import SparseLinearProgram, solve
from stradask.algorithms.linear.sparse.squared import SquaredSubproblem
from stradask.algorithms.linear.sparse.working_set import WorkingSet


def fit(
    X,
    y,
    penalties,
    *,
    weights=None,
    intercept=False,
    tol=1e-10,
    n_shards=1,
    start=None,
    remote=None,
    rounds=1000,
):
    working_set = WorkingSet(
        SquaredSubproblem(y, weights, intercept),
        penalties,
        n_features=X.shape[1],
        is_sparse=sparse.issparse(X),
        tol=tol,
        max_rounds=rounds,
        start=start,
    )
    if remote is None:
        solve(SparseLinearProgram(working_set, columns_of(X), n_shards=n_shards))
    else:
        bounds = np.cumsum([0, *remote])
        shards = [(a, X[:, a:b]) for a, b in itertools.pairwise(bounds)]
        solve(SparseLinearProgram(working_set, None, shards=shards))
    return working_set.solutions


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
    the residual, made orthogonal to unpenalised columns, as dual point."""
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
    return (primal - (s * (target @ theta) - s * s * (theta @ theta) / 2)) / (y @ y / 2)


def strength_max(X, y, weights=None, intercept=False, positive=False):
    w = np.ones(len(y)) if weights is None else weights
    v = w * (y - np.average(y, weights=w) if intercept else y)
    slopes = X.T @ v
    return (slopes if positive else abs(slopes)).max()
