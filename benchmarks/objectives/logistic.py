"""Logistic regression with a squared penalty, two classes or more: seconds to a relative excess."""

import math
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from ...errors import DataError
from ..linear_cases import CLASSIFICATIONS, load_classification
from . import Problem
from ._classes import Choice, checked_cs
from ._linear import SAMPLE_COLUMNS, TARGETS, LinearObjective, arrays_of

# name: (rows, columns, type, decades of scales), whole and for a quick look.
DESIGNS = {
    "dense": ((1_000_000, 100, np.float32, 0), (20_000, 50, np.float32, 0)),
    "dense64": ((1_000_000, 100, np.float64, 0), (20_000, 50, np.float64, 0)),
    "scaled": ((1_000_000, 100, np.float64, 2), (20_000, 50, np.float64, 2)),
    "wide": ((200_000, 1_000, np.float32, 0), (10_000, 500, np.float32, 0)),
}
# (rows, columns, draws a row) of "words", whose columns are as unequal in use as the words of a language.
WORDS = ((500_000, 50_000, 47), (10_000, 1_000, 47))
MOST_FOR_HESSIAN = 1000  # columns up to which the judge's minimum comes from whole Hessians
SAMPLE_C, SAMPLE_ROWS = (1.0, 10.0), 2_500  # penalties, and rows of a class


class Objective(LinearObjective):
    """Logistic regression: F(b, b0) = C sum_i log(1 + exp(-y_i (x_i.b + b0))) + |b|^2 / 2 for some C.

    With more than two classes the loss is -log softmax(B x_i)[y_i], and there is no intercept. The figure is
    (F - F*) / F*. F* is found once for each C by scikit-learn's Newton solvers at the tightest tolerance they
    take, and certified: without an intercept ``F(b) - |gradient|^2 / 2`` is a lower bound of F, whose penalty
    is strongly convex.

    ``unit_rows`` and ``one_class``: see `Choice`.

    Data sets: "dense" (float32), "dense64" and "scaled" (float64; columns of scales from 0.01 to 100),
    1,000,000 x 100, and "wide", 200,000 x 1,000, neighbours correlating; "words", 500,000 x 50,000, sparse;
    "c" of the sparse family, 20,000 x 200,000; svmlight files.
    """

    family = "logistic"
    default_datasets = (*DESIGNS, "words", "c")
    defaults = {"C": (0.1, 1, 100), "intercept": False, **Choice.defaults}  # noqa: RUF012
    quick_defaults = {"C": (1,)}  # noqa: RUF012

    def __init__(self, dataset, *, seed, parameters, quick=False):
        self.dataset, self.seed, self.quick = dataset, seed, quick
        self.Cs = checked_cs(parameters["C"])
        self.choice = Choice.of(parameters)
        self.intercept = parameters["intercept"]
        if not isinstance(self.intercept, bool):
            raise DataError(f"--param: intercept is {self.intercept!r}; give True or False")
        self.X, self.y = self.choice.made_of(*load(dataset, seed=seed, quick=quick))
        n_classes = len(np.unique(self.y))
        if n_classes > 2 and self.intercept:
            raise DataError(f"--param: intercept=True, but {dataset} has {n_classes} classes: two are needed")
        self.coef_shape = (n_classes,) * (n_classes > 2) + self.X.shape[1:]
        self.largest_alpha = self.alpha_max(self.X, self.y)
        self._least = {}

    def alpha_max(self, X, y):
        """Return the penalty of the mean loss that stands for C = 1: there is none that ends the model."""
        return 1 / len(y)

    def describe(self):
        """See `LinearObjective`."""
        described = super().describe()
        return described | {"name": self.choice.named(described["name"])}

    def problems(self):
        """Return the penalties to be solved for: of the mean loss, ``alpha = 1 / (C n)``."""
        n = len(self.y)
        return [Problem(f"C={C:g}", "solve", {"alpha": 1 / (C * n)}, self.targets) for C in self.Cs]

    def sample(self):
        """The first rows of each class and the first columns, to warm up on."""
        rows = np.sort(np.concatenate([np.flatnonzero(self.y == k)[:SAMPLE_ROWS] for k in np.unique(self.y)]))
        X, y = self.X[rows][:, :SAMPLE_COLUMNS], self.y[rows]
        return arrays_of(X, y) | {"alphas": np.array([1 / (C * len(y)) for C in SAMPLE_C])}

    def evaluate(self, problem, arrays):
        """See `LinearObjective`; `coef` may also have one row for two classes."""
        coef = np.asarray(arrays["coef"])
        if coef.ndim == 2 and len(coef) == 1:
            coef = coef[0]
        return super().evaluate(problem, {**arrays, "coef": coef})

    def gap(self, X, y, coef, alpha, intercept=None):
        """Return the relative excess over the minimum, and the objective of the mean loss."""
        value = mean_objective(X, y, coef, alpha, intercept or 0.0)
        if alpha not in self._least:
            self._least[alpha] = least_objective(X, y, alpha, intercept is not None)
        return max(0.0, value / self._least[alpha] - 1), value


def mean_objective(X, y, coef, alpha, intercept=0.0):
    """Return F / (C n) in float64: the mean loss plus ``alpha |b|^2 / 2``.

    Parameters
    ----------
    X : ndarray or sparse matrix of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Labels -1 and 1, or classes from 0 where `coef` has a row for each.
    coef : ndarray of shape (n_features,) or (n_classes, n_features)
    alpha : float
    intercept : float, default=0.0
        Of two classes.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.benchmarks.objectives.logistic import mean_objective
    >>> round(mean_objective(np.ones((2, 1)), np.array([1.0, -1.0]), np.zeros(1), 0.5), 6)
    0.693147
    >>> round(mean_objective(np.ones((2, 1)), np.array([0.0, 2.0]), np.zeros((3, 1)), 0.5), 6)
    1.098612
    """
    if coef.ndim == 1:
        losses = np.logaddexp(0, -y * (X @ coef + intercept))
    else:
        Z = X @ coef.T
        losses = logsumexp(Z, axis=1) - Z[np.arange(len(y)), y.astype(int)]
    return float(losses.mean() + alpha / 2 * np.vdot(coef, coef))


def least_objective(X, y, alpha, with_intercept):
    """Return the minimum, by Newton's method; DataError if it is not known to a tenth of the last target."""
    solver = "newton-cholesky" if X.shape[1] <= MOST_FOR_HESSIAN else "newton-cg"
    model = LogisticRegression(
        C=1 / (alpha * len(y)), solver=solver, tol=1e-12, max_iter=1000, fit_intercept=with_intercept
    ).fit(X.astype(np.float64), y)
    coef, intercept = model.coef_, float(np.ravel(model.intercept_)[0])
    coef = coef if len(coef) > 1 else coef.ravel()
    value = mean_objective(X, y, coef, alpha, intercept)
    if not with_intercept:
        gradient = (X.T.astype(np.float64) @ _slopes(X, y, coef)).T / len(y) + alpha * coef
        excess = np.vdot(gradient, gradient) / (2 * alpha)
        if excess > 0.1 * TARGETS[-1] * value:
            raise DataError(
                f"the minimum at C={1 / (alpha * len(y)):g} is known to {excess / value:.0e} only"
            )
    return value


def _slopes(X, y, coef):
    """Return the derivative of each row's loss by its linear predictor, or by those of all classes."""
    if coef.ndim == 1:
        return -y / (1 + np.exp(y * (X @ coef)))
    slopes = softmax(X @ coef.T, axis=1)
    slopes[np.arange(len(y)), y.astype(int)] -= 1
    return slopes


def load(name, *, seed, quick=False):
    """Return a design (dense, or CSC) and labels -1 and 1, or classes from 0 if there are more than two."""
    if name == "words":
        return words(np.random.default_rng(seed), *WORDS[quick])
    if name not in DESIGNS:
        if name not in CLASSIFICATIONS and not Path(name).exists():
            raise DataError(
                f"--dataset: {name!r} is neither one of {', '.join(Objective.default_datasets)} nor "
                "a file that exists"
            )
        return load_classification(name, seed=seed, quick=quick, several=True)
    n, p, dtype, decades = DESIGNS[name][quick]
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p), dtype=np.float32).astype(dtype)
    X[:, 1:] += X[:, :-1] / 2
    decision = X @ (rng.standard_normal(p) * 2 / math.sqrt(p)).astype(dtype)
    X *= (10.0 ** rng.uniform(-decades, decades, p)).astype(dtype)
    return X, np.where(decision + rng.logistic(size=n) > 0, 1.0, -1.0)


def words(rng, n, p, per_row):
    """Return a CSC design of positive entries, columns drawn with chances falling by rank, and labels."""
    chances = 1 / np.arange(1, p + 1) ** 0.8
    cumulated = np.cumsum(chances / chances.sum())
    indices = np.searchsorted(cumulated, rng.random(n * per_row)).clip(0, p - 1).astype(np.int32)
    indptr = np.arange(0, n * per_row + 1, per_row, dtype=np.int32)
    X = sparse.csr_matrix((rng.uniform(0.1, 1.1, n * per_row), indices, indptr), shape=(n, p))
    X.sum_duplicates()
    decision = X @ rng.standard_normal(p)
    decision -= decision.mean()
    return X.tocsc(), np.where(decision + rng.logistic(size=n) > 0, 1.0, -1.0)
