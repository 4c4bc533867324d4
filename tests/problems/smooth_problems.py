"""Problems of the smooth linear models, and their objectives in plain numpy."""

import numpy as np
from scipy import sparse
from scipy.special import logsumexp, xlogy
from sklearn import linear_model

from stradask.algorithms.linear.logistic_regression import LogisticRegression
from stradask.algorithms.linear.poisson import PoissonRegressor
from stradask.algorithms.linear.ridge import Ridge

FORMS = {
    "c": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
}
TIGHT = {"tol": 1e-13}
MODELS = (LogisticRegression, Ridge, PoissonRegressor)


def problem(n=120, p=6, n_classes=2, *, seed=0, scales=0.0, density=0.7):
    """Columns whose scales and means lie up to `scales` decades from 1; labels, counts and reals."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[rng.random((n, p)) > density] = 0
    z = X @ rng.uniform(-1, 1, p) + 0.3
    edges = np.linspace(-1, 1, n_classes + 1)[1:-1] if n_classes > 2 else [0.0]
    labels = np.digitize(z + rng.logistic(size=n), edges)
    labels[:n_classes] = np.arange(n_classes)
    X = X * 10.0 ** rng.uniform(-scales, scales, p)
    return X, labels, rng.poisson(np.exp(z)), z + rng.standard_normal(n)


def target(model, labels, counts, reals):
    return {LogisticRegression: labels, Ridge: reals, PoissonRegressor: counts}[type(model)]


def value(model, X, y, weights=None):
    """The documented objective, in plain numpy."""
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    s = np.ones(len(y)) if weights is None else np.broadcast_to(weights, len(y))
    coef = np.asarray(model.coef_, float)
    z = X.astype(float) @ coef.T + model.intercept_
    square = (coef**2).sum()
    if isinstance(model, (Ridge, linear_model.Ridge)):
        return s @ (y - z) ** 2 + model.alpha * square
    if isinstance(model, (PoissonRegressor, linear_model.PoissonRegressor)):
        return np.average(xlogy(y, y) - y * z - y + np.exp(z), weights=s) + model.alpha / 2 * square
    Z = np.column_stack([np.zeros(len(y)), z]) if z.shape[1] == 1 else z
    losses = logsumexp(Z, axis=1) - Z[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    rho = model.l1_ratio or 0.0  # None in scikit-learn before 1.8
    return model.C * (s @ losses) + (1 - rho) / 2 * square + rho * np.abs(coef).sum()


def make_quadratic(n, condition=100.0, seed=0):
    """The matrix of a convex quadratic of a given condition, and a vector."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    return Q @ np.diag(np.geomspace(1, condition, n)) @ Q.T, rng.standard_normal(n)
