"""Logistic problems, how they are solved, and an independent reference."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, sparse
from scipy.special import logsumexp, softmax

from stradask.algorithms.linear.sparse.classes import ClassColumns, solve
from stradask.algorithms.linear.sparse.fitting import Design
from stradask.algorithms.linear.sparse.penalties import L1L2

DENSE, CSC = np.asfortranarray, sparse.csc_array


@dataclass
class Fits:
    """Solutions, rounds and the unit of gaps, of a problem whose loss is a sum over rows."""

    solutions: list
    rounds: list
    unit: float


def fit(X, problem, penalties, *, tol=1e-6, **options):
    """Solve for penalties of the sum of the losses; `problem` is that of `class_problem`."""
    weights, positive = problem["weights"], penalties[0].positive
    mean = 1.0 if weights is None else weights.mean()
    columns = class_columns(X, **problem, positive=positive)
    scaled = [
        L1L2(
            penalty.strength / mean,
            penalty.ridge / mean,
            l1_factors=penalty.l1_factors,
            l2_factors=penalty.l2_factors,
            positive=positive,
        )
        for penalty in penalties
    ]
    size, rounds = len(problem["labels"]) * mean, []

    def watch(info):
        rounds.append((size * info.objective, info.gap))

    shown = {"label": "test", "callback": watch}
    fits, _ = solve(columns, scaled, tol=tol, max_iter=1000, **shown, **options)
    fits = [
        replace(fit, objective=size * fit.objective, gap_absolute=size * fit.gap_absolute) for fit in fits
    ]
    return Fits(fits, rounds, size * columns.general_solver()[1])


def class_columns(X, labels, K, weights, offset, fit_intercept, positive=False):
    """The columns and the loss of classes."""
    weights = None if weights is None else weights / weights.mean()
    options = {"standardize": False, "fit_intercept": fit_intercept, "positive": positive}
    design = Design.make(X, weights, None, **options)
    return ClassColumns(design, labels, max(K, 2), offset)


def full(solution, n_features):
    """Coefficients of all features, (n_features, n_outputs), and intercepts of a solution."""
    out = np.zeros((n_features, np.size(solution.intercept)))
    out[solution.features] = solution.coef.reshape(-1, out.shape[1])
    return out, np.atleast_1d(solution.intercept)


class Reference:
    """The same problem in plain numpy; classes of two have one output."""

    def __init__(self, X, labels, penalty, *, weights=None, offset=None, fit_intercept=True):
        self.X = X.toarray().astype(float) if sparse.issparse(X) else np.asarray(X, float)
        self.n, self.p = X.shape
        self.K = int(labels.max()) + 1 if labels.max() > 1 else 1
        self.labels, self.penalty, self.fit_intercept = labels, penalty, fit_intercept
        self.weights = np.ones(self.n) if weights is None else weights
        self.offset = np.zeros((self.n, self.K)) if offset is None else offset.reshape(self.n, self.K)
        features = np.arange(self.p)
        self.l1, self.l2 = penalty.thresholds(features), penalty.ridges(features)

    def loss(self, F):
        """Loss and its gradient in F."""
        if self.K == 1:
            F2 = np.column_stack([np.zeros(self.n), F[:, 0]])
        else:
            F2 = F
        rows = np.arange(self.n)
        value = self.weights @ (logsumexp(F2, axis=1) - F2[rows, self.labels])
        slope = softmax(F2, axis=1)
        slope[rows, self.labels] -= 1
        slope *= self.weights[:, None]
        return value, slope[:, -self.K :]

    def objective(self, coef, intercept):
        smooth = self.loss(self.offset + self.X @ coef + intercept)[0]
        return smooth + (self.l1 @ np.abs(coef) + 0.5 * self.l2 @ coef**2).sum()

    def minimum(self):
        """Least objective by L-BFGS-B over coefficients split into two parts that are not negative."""
        p, K = self.p, self.K
        sides = 1 if self.penalty.positive else 2

        def unpack(z):
            parts = z[: sides * p * K].reshape(sides, p, K)
            coef = parts[0] - (parts[1] if sides == 2 else 0)
            return parts, coef, z[sides * p * K :] if self.fit_intercept else np.zeros(K)

        def value_and_slope(z):
            parts, coef, intercept = unpack(z)
            value, slope = self.loss(self.offset + self.X @ coef + intercept)
            by_coef = self.X.T @ slope + self.l2[:, None] * coef
            value += (self.l1 @ parts.sum(axis=0)).sum() + (0.5 * self.l2 @ coef**2).sum()
            slopes = [self.l1[:, None] + by_coef, self.l1[:, None] - by_coef][:sides]
            ends = [slope.sum(axis=0)] if self.fit_intercept else []
            return value, np.concatenate([s.ravel() for s in slopes] + ends)

        n_intercepts = K if self.fit_intercept else 0
        bounds = [(0, None)] * (sides * p * K) + [(None, None)] * n_intercepts
        options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}
        start = np.zeros(len(bounds))
        return optimize.minimize(
            value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).fun

    def zero(self):
        """Objective of the model without columns."""
        if not self.fit_intercept:
            return self.loss(self.offset)[0]
        start = np.zeros(self.K)
        return optimize.minimize(lambda c: self.loss(self.offset + c)[0], start, method="BFGS").fun

    def gap(self, coef, intercept):
        """Duality gap with the residual as dual point: for no intercept and a pure l1 penalty."""
        assert not self.fit_intercept
        assert not self.l2.any()
        _, slope = self.loss(self.offset + self.X @ coef + intercept)
        slopes = -self.X.T @ slope
        if self.penalty.positive:
            slopes = np.maximum(slopes, 0)
        s = min(1.0, (self.l1[:, None] / np.maximum(np.abs(slopes), 1e-300)).min())
        indicator = np.eye(max(self.K, 2))[self.labels]
        P = indicator.copy()
        P[:, -self.K :] += s * slope / self.weights[:, None]
        if self.K == 1:
            P[:, 0] = 1 - P[:, 1]
        entropy = -np.where(P > 0, P * np.log(np.maximum(P, 1e-300)), 0).sum(axis=1)
        dual = self.weights @ entropy + s * (slope * self.offset).sum()
        return self.objective(coef, intercept) - dual


def make(n, p, K, seed, *, informative=3, density=None):
    """Columns, some correlated, and labels drawn from a sparse model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 1::2] += 0.7 * X[:, : p - p % 2 : 2][:, : X[:, 1::2].shape[1]]
    if density is not None:
        X[rng.random((n, p)) > density] = 0
    coef = np.zeros((p, K))
    informative = min(informative, p)
    coef[rng.choice(p, informative, replace=False)] = 2 * rng.standard_normal((informative, K))
    F = X @ coef + rng.gumbel(size=(n, K))
    labels = F.argmax(axis=1) if K > 1 else (F[:, 0] > 0).astype(np.int64)
    labels[:2] = 0
    labels[2 : 2 + max(K, 2)] = np.arange(max(K, 2))
    return X, labels.astype(np.int64)


def class_problem(labels, K, *, weights=None, offset=None, fit_intercept=True):
    """What `fit` solves; two classes have one output."""
    names = ("labels", "K", "weights", "offset", "fit_intercept")
    return dict(zip(names, (labels, K, weights, offset, fit_intercept), strict=True))
