"""The cases of the contracts: every public estimator, with small data and what it promises.

A file beside this one is one promise, with one test over `cases(promise)`. A public estimator without an
entry in `CASES` fails `test_every_class.py`.
"""

import functools
import importlib.util
import inspect
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.errors import PosteriorWarning

N, D, WORDS = 60, 4, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
SIGNAL = X @ np.array([1.0, -0.8, 0.5, 0.0]) + 0.3 * RNG.standard_normal(N)
SHARES = RNG.dirichlet(np.full(3, 0.3), N) @ RNG.dirichlet(np.full(WORDS, 0.3), 3)
COUNTS = np.stack([RNG.multinomial(25, row / row.sum()) for row in SHARES]).astype(float)
COUNTS[0] = 1  # each word occurs
RATED = RNG.random((30, 15)) < 0.5
SURVIVAL = np.zeros(N, [("event", bool), ("time", float)])
SURVIVAL["event"], SURVIVAL["time"] = RNG.random(N) < 0.8, np.exp(-SIGNAL) * RNG.exponential(1, N) + 0.01


class Given(NamedTuple):
    """Arguments of `fit`: X, y (or None), keywords with a value for each row, and other keywords."""

    X: Any
    y: Any = None
    by_row: dict = {}  # noqa: RUF012
    also: dict = {}  # noqa: RUF012

    def rows(self, index):
        """Select rows, in the order of the index."""
        X = self.X.iloc[index] if hasattr(self.X, "iloc") else self.X[index]
        y = None if self.y is None else np.asarray(self.y)[index]
        by_row = {name: np.asarray(value)[index] for name, value in self.by_row.items()}
        return Given(X, y, by_row, self.also)

    def arguments(self):
        """Return what `fit` takes by position."""
        return (self.X,) if self.y is None else (self.X, self.y)


# X is an array of float64; ratings are a CSR array, and a formula reads a table with its target.
DATA = {
    "regression": Given(X, SIGNAL),
    "two classes": Given(X, np.where(SIGNAL > 0, "yes", "no")),
    "classes": Given(X, np.array(["low", "mid", "top"])[np.digitize(SIGNAL, [-0.7, 0.7])]),
    "counts": Given(X, RNG.poisson(np.exp(0.5 * SIGNAL)).astype(float)),
    "positive numbers": Given(X, np.exp(0.3 * SIGNAL) * RNG.gamma(2, 0.5, N)),
    "zeros and ones": Given(X, (SIGNAL + RNG.standard_normal(N) > 0).astype(float)),
    "shares of classes": Given(X, np.eye(3)[np.digitize(SIGNAL, [-0.7, 0.7])]),
    "regression in groups": Given(X, SIGNAL, {"groups": np.repeat(["a", "b", "c", "d"], N // 4)}),
    "regression in clusters": Given(X, SIGNAL, {"clusters": np.arange(N)}),
    "documents and counts": Given(COUNTS, RNG.poisson(np.exp(0.5 * SIGNAL)).astype(float)),
    "tasks": Given(X, np.stack([SIGNAL, X[:, 1] - SIGNAL], axis=1)),
    "survival": Given(X, SURVIVAL),
    "documents": Given(COUNTS),
    "documents and numbers": Given(COUNTS, SIGNAL),
    "documents and classes": Given(COUNTS, np.array(["low", "high"])[(SIGNAL > 0).astype(int)]),
    "documents in slices": Given(COUNTS, None, {"slices": np.repeat([2001, 2002, 2003], N // 3)}),
    "documents with keywords": Given(COUNTS, also={"seed_words": {0: [0, 1], 1: [5]}}),
    "documents and covariates": Given(COUNTS, None, {"covariates": SIGNAL.round(1)}),
    "ratings": Given(sparse.csr_array(np.where(RATED, RNG.integers(1, 6, (30, 15)), 0).astype(float))),
    "table": Given(pd.DataFrame({f"c{j}": X[:, j] for j in range(D)} | {"y": SIGNAL})),
}
# Names of the columns of X where it has columns that may have any name.
COLUMNS = {
    kind: [f"{'word' if kind.startswith('documents') else 'c'}{j}" for j in range(given.X.shape[1])]
    for kind, given in DATA.items()
    if kind not in ("ratings", "table")
}
# Methods that take X and fit, or take the columns that a selection returned.
OTHERS = {"fit", "partial_fit", "fit_transform", "fit_predict", "path", "alpha_max", "stability"}
OTHERS |= {"inverse_transform"}


@contextmanager
def short_fits():
    """Let fits end early, with few draws, and be scored by their own data; let nothing else warn."""
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, PosteriorWarning):
            warnings.simplefilter("ignore", category)
        for words in ("the fit ended after", ".*relevant cells were in fit"):
            warnings.filterwarnings("ignore", words)
        yield


# Why predictions change with units: the kinds of change that `test_units.py` names, by `Case.scales`.
UNITS = {
    "penalty": {"columns": "the penalty weighs coefficients, which have the units of the columns"},
    "network": dict.fromkeys(
        ("columns", "shift", "target", "target shift"), "steps begin at weights made for numbers of about 1"
    ),
}
OF_TARGET = {"target": "alpha is in units of y, or of its square"}
OF_COUNTS = {"target": "counts have no units"}
OF_RATINGS = {"ratings": "reg, or the confidence in a choice, is in units of ratings"}


@dataclass(frozen=True)
class Case:
    """One estimator, the data that it is fitted to, and what it promises.

    Parameters
    ----------
    make : callable
        Returns a new, unfitted estimator.
    data : str
        A key of `DATA`.
    weights : str
        "frequencies": a row of weight w counts as w rows. "relative": a factor common to all weights changes
        nothing. "": `fit` takes no `sample_weight`.
    scales : str
        What the coefficients are measured by: "" (the likelihood alone), "penalty", "prior", "network",
        "counts" or "ratings".
    changes : dict
        More units with which predictions change, and why, as in `UNITS`; the class says so.
    broken : dict
        Promises that wait for a redesign: strict xfails, whose reason names its issue.
    checks : dict
        Parameters for the data of scikit-learn's own checks.
    slow : tuple of str
        Promises that are those of another class, of the same code, and tried by slow runs alone.
    variant : str
        Tells several cases of one class apart.
    """

    make: Callable[[], Any]
    data: str
    weights: str = ""
    scales: str = "penalty"
    changes: dict = field(default_factory=dict)
    broken: dict = field(default_factory=dict)
    checks: dict = field(default_factory=dict)
    slow: tuple = ()
    variant: str = ""

    @functools.cached_property
    def name(self):
        return type(self.make()).__name__ + (f", {self.variant}" if self.variant else "")

    @property
    def speaker(self):
        """The name of the class that errors name: a search's are its estimator's."""
        model = self.make()
        fitted = getattr(model, "estimator", None) if hasattr(model, "cv") else None
        return type(fitted or model).__name__.removesuffix("CV")

    @property
    def units(self):
        """Units with which predictions change, and why."""
        return UNITS.get(self.scales, {}) | self.changes

    @property
    def given(self):
        """The data, as arrays."""
        return DATA[self.data]

    @property
    def has_columns(self):
        """Whether X is a matrix of columns, which may have names."""
        return self.data in COLUMNS

    @property
    def frame(self):
        """The data, X as a frame."""
        columns = COLUMNS[self.data]
        return self.given._replace(X=pd.DataFrame(self.given.X, columns=columns))

    def takes(self, argument, method="fit"):
        """Whether a method, or the constructor by "__init__", has an argument of this name."""
        function = type(self.make()) if method == "__init__" else getattr(self.make(), method, None)
        return function is not None and argument in inspect.signature(function).parameters

    def fit(self, given=None, *, model=None, **options):
        """Fit a model (by default a new one) to the data, or to those given."""
        given = self.given if given is None else given
        with short_fits():
            return (model or self.make()).fit(*given.arguments(), **given.by_row, **given.also, **options)

    @functools.cached_property
    def fitted(self):
        """A model of arrays, which tests share and do not change."""
        return self.fit()

    @functools.cached_property
    def fitted_to_frame(self):
        """A model of a frame, which tests share and do not change."""
        return self.fit(self.frame)

    def tight(self, **parameters):
        """Return a new model that ends at its optimum, where it has one, so that two fits can be compared."""
        model = self.make()
        if self.scales in ("penalty", "") and self.takes("tol", "__init__"):
            exact = {"tol": 1e-12, "max_iter": 10_000}
            model.set_params(**{name: exact[name] for name in exact if self.takes(name, "__init__")})
        return model.set_params(**parameters)

    def answer(self, model, given=None):
        """Return what a model says of rows, as an array: probabilities, else predictions, else shares."""
        given = self.given if given is None else given
        methods = readers(model)
        name = next(name for name in ("predict_proba", "predict", "transform") if name in methods)
        value = methods[name](given)
        return value.toarray() if sparse.issparse(value) else np.asarray(value)


def readers(model):
    """Return the public methods that read rows, but do not fit, as functions of `Given`, by name."""
    methods = {}
    for name in dir(type(model)):
        static = inspect.getattr_static(type(model), name)
        if name.startswith(("_", "set_")) or name in OTHERS or isinstance(static, property):
            continue
        method = getattr(model, name, None)  # some are there for some parameters alone
        parameters = list(inspect.signature(method).parameters) if callable(method) else []
        if name == "representative_documents":
            methods[name] = lambda given, method=method: method(0, X=given.X)
        elif parameters and parameters[0] in ("X", "data"):
            methods[name] = functools.partial(_read, method)
    return methods


def _read(method, given):
    """Call a method with those of the arguments that it takes; `predict` of ratings takes pairs."""
    parameters = inspect.signature(method).parameters
    X = given.X
    if method.__name__ == "predict" and hasattr(method.__self__, "item_ids_") and sparse.issparse(X):
        X = np.argwhere(X.toarray())
    by_row = {name: value for name, value in given.by_row.items() if name in parameters}
    takes_y = "y" in parameters and given.y is not None
    return method(X, given.y, **by_row) if takes_y else method(X, **by_row)


def ratings(case):
    """Pairs of users and items, with their ratings."""
    cells = case.given.X.tocoo()
    return Given(np.stack(cells.coords, axis=1), cells.data)


def assert_close(values, expected, name="", tol=1e-10):
    """Compare numbers, to `tol` of the larger ones or of 1, or labels."""
    values, expected = np.asarray(values), np.asarray(expected)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(values, expected, rtol=tol, atol=tol, err_msg=name)
    else:
        np.testing.assert_array_equal(values, expected, err_msg=name)


# What a fit chose by time; and what has its worth in answers, or is in no file.
APART = {"seconds", "_plan", "_timeline", "_formula", "_template", "_filled", "_spec"}


def assert_same_bits(model, expected, name=""):
    """Compare all that a fit set, part by part."""
    if isinstance(expected, BaseEstimator):
        parameters = expected.get_params().keys()
        model, expected = (
            {k: v for k, v in vars(m).items() if k not in parameters} for m in (model, expected)
        )
    if sparse.issparse(expected):
        model, expected = ((m.shape, m.tocoo().data, *m.tocoo().coords) for m in (model, expected))
    if isinstance(expected, dict):
        assert model.keys() - APART == expected.keys() - APART, name
        for key in expected.keys() - APART:
            assert_same_bits(model[key], expected[key], f"{name} {key}")
    elif isinstance(expected, list | tuple):
        assert len(model) == len(expected), name
        for part, other in zip(model, expected, strict=True):
            assert_same_bits(part, other, name)
    else:
        np.testing.assert_array_equal(model, expected, name)


def torch_module(n_features, n_outputs):
    """Return a small network."""
    from torch import nn

    return nn.Sequential(nn.Linear(n_features, 4), nn.Tanh(), nn.Linear(4, n_outputs))


def topics(cls, **options):
    return functools.partial(cls, **{"n_components": 3, "max_iter": 5, "random_state": 0} | options)


DRAWS = {"n_samples": 50, "n_warmup": 50, "n_chains": 1, "random_state": 0}
LASSO = sd.Lasso(0.1)
CV = {"alphas": 4, "cv": 3}
MLP = {"hidden_layer_sizes": (4,), "max_iter": 3, "random_state": 0}
TORCH = {"module": torch_module, "max_iter": 2, "batch_size": 20, "random_state": 0}
# For scikit-learn's checks, of weights to 1e-7, of fits in numbers, and of what networks learn.
TIGHT = {"tol": 1e-12}
FEW_FOLDS = {"alphas": 2, "cv": 2, "eps": 0.3}
ADAM = {"hidden_layer_sizes": 8, "max_iter": 40, "batch_size": 30, "learning_rate_init": 0.01}
LONGER_MLP = {"hidden_layer_sizes": 8, "solver": "sandblaster", "max_iter": 20}
LONGER_TORCH = {"max_iter": 30, "batch_size": 50, "learning_rate": 0.01, "optimizer": "adam"}
CASES = [
    # Linear models
    Case(lambda: sd.Ridge(), "regression", "frequencies"),
    Case(lambda: sd.RidgeCV(), "regression", "frequencies"),
    Case(lambda: sd.LogisticRegression(), "two classes", "frequencies"),
    Case(
        lambda: sd.LogisticRegression(l1_ratio=1.0),
        "classes",
        "frequencies",
        variant="l1, three classes",
        checks=TIGHT,
    ),
    Case(
        lambda: sd.LogisticRegressionCV(Cs=3, cv=3), "two classes", "frequencies", checks={"Cs": 2, "cv": 2}
    ),
    Case(lambda: sd.PoissonRegressor(), "counts", "relative", changes=OF_TARGET),
    Case(lambda: sd.GLM(), "regression", "frequencies", scales=""),
    Case(lambda: sd.GLM("poisson"), "counts", "frequencies", scales="", variant="poisson"),
    Case(lambda: sd.Lasso(0.1), "regression", "relative", changes=OF_TARGET),
    Case(lambda: sd.ElasticNet(0.1), "regression", "relative", changes=OF_TARGET),
    Case(lambda: sd.SparseLogisticRegression(0.05), "two classes", "relative", checks=TIGHT),
    Case(lambda: sd.LassoCV(**CV), "regression", "relative", checks=FEW_FOLDS),
    Case(lambda: sd.ElasticNetCV(**CV), "regression", "relative", changes=OF_TARGET, checks=FEW_FOLDS),
    Case(lambda: sd.SparseLogisticRegressionCV(**CV), "two classes", "relative", checks=FEW_FOLDS),
    Case(lambda: sd.SparseGLM(alpha=0.1), "regression", "relative", changes=OF_TARGET),
    Case(
        lambda: sd.GroupLasso([0, 0, 1, 1], alpha=0.1),
        "regression",
        "relative",
        changes=OF_TARGET,
        checks={"groups": 1},
    ),
    Case(
        lambda: sd.GroupLogisticRegression([0, 0, 1, 1], alpha=0.05),
        "classes",
        "relative",
        checks={"groups": 1},
    ),
    Case(lambda: sd.HuberRegressor(alpha=0.1), "regression", "frequencies", changes=OF_TARGET, checks=TIGHT),
    Case(lambda: sd.QuantileRegressor(alpha=0.1), "regression", "relative"),
    Case(lambda: sd.SparsePoissonRegressor(alpha=0.1), "counts", "relative", changes=OF_TARGET),
    Case(lambda: sd.MultiTaskLasso(0.1), "tasks", "relative", changes=OF_TARGET),
    Case(lambda: sd.MultiTaskElasticNet(0.1), "tasks", "relative", changes=OF_TARGET),
    Case(lambda: sd.SparseGLMCV(sd.SparseGLM(tol=1e-12), **CV), "regression", "relative", checks=FEW_FOLDS),
    Case(
        lambda: sd.GroupLassoCV([0, 0, 1, 1], **CV),
        "regression",
        "relative",
        checks={"groups": 1, **FEW_FOLDS},
        slow=("check_estimator",),
    ),
    Case(lambda: sd.MultiTaskLassoCV(**CV), "tasks", "relative", checks=FEW_FOLDS, slow=("check_estimator",)),
    Case(
        lambda: sd.MultiTaskElasticNetCV(**CV),
        "tasks",
        "relative",
        changes=OF_TARGET,
        checks=FEW_FOLDS,
        slow=("check_estimator",),
    ),
    Case(lambda: sd.CoxRegression(0.05), "survival", "relative"),
    Case(lambda: sd.CoxRegression(0.0), "survival", "relative", scales="", variant="no penalty"),
    Case(
        lambda: sd.StabilitySelection(LASSO, threshold=0.6, n_pairs=3, random_state=0),
        "regression",
        changes=OF_TARGET,
    ),
    Case(lambda: sd.KnockoffSelection(fdr=0.5, random_state=0), "regression", scales=""),
    # Bayesian models
    Case(lambda: sd.BayesianLinearRegression(**DRAWS), "regression", "frequencies", scales="prior"),
    Case(lambda: sd.BayesianLogisticRegression(**DRAWS), "two classes", "frequencies", scales="prior"),
    Case(
        lambda: sd.BayesianPoissonRegression(**DRAWS),
        "counts",
        "frequencies",
        scales="prior",
        changes=OF_COUNTS,
    ),
    Case(lambda: sd.BayesianGLM("y ~ c0 + c1", **DRAWS), "table", "frequencies", scales="prior"),
    # Topic models
    Case(topics(sd.LatentDirichletAllocation), "documents", scales="counts"),
    Case(topics(sd.LatentDirichletAllocation, sampler="warp"), "documents", scales="counts", variant="warp"),
    Case(topics(sd.DMRTopicModel), "documents and covariates", scales="counts"),
    Case(topics(sd.DynamicTopicModel), "documents in slices", scales="counts"),
    Case(topics(sd.HDPTopicModel), "documents", scales="counts"),
    Case(topics(sd.KeyATM), "documents with keywords", scales="counts"),
    Case(topics(sd.SupervisedLDA), "documents and numbers", scales="counts"),
    Case(
        topics(sd.SupervisedLDA, response="class"),
        "documents and classes",
        scales="counts",
        variant="classes",
    ),
    Case(topics(sd.GSDMM), "documents", scales="counts"),
    Case(topics(sd.BitermTopicModel), "documents", scales="counts"),
    # Ratings and choices
    Case(
        lambda: sd.MatrixFactorization(2, max_iter=3, random_state=0),
        "ratings",
        "relative",
        scales="ratings",
        changes=OF_RATINGS,
    ),
    Case(
        lambda: sd.MatrixFactorization(2, implicit=True, max_iter=3, random_state=0),
        "ratings",
        "relative",
        scales="ratings",
        changes=OF_RATINGS,
        variant="implicit",
    ),
    Case(lambda: sd.EASE(5.0), "ratings", scales="ratings"),
    Case(lambda: sd.SLIM(0.5, 5.0), "ratings", scales="ratings"),
    Case(lambda: sd.ItemKNN(5), "ratings", scales="ratings"),
    Case(lambda: sd.Popularity(), "ratings", scales="ratings"),
    # Networks
    Case(lambda: sd.MLPClassifier(**MLP), "classes", "relative", scales="network", checks=ADAM),
    Case(lambda: sd.MLPRegressor(**MLP), "regression", "relative", scales="network", checks=LONGER_MLP),
    Case(
        lambda: sd.MLPRegressor(**MLP, solver="downpour"),
        "regression",
        "relative",
        scales="network",
        checks={"hidden_layer_sizes": 8, "max_iter": 8, "batch_size": 30, "learning_rate_init": 0.1},
        variant="downpour",
    ),
    Case(lambda: sd.TorchClassifier(**TORCH), "classes", "relative", scales="network", checks=LONGER_TORCH),
    Case(lambda: sd.TorchRegressor(**TORCH), "regression", "relative", scales="network", checks=LONGER_TORCH),
]


def variants(data, weights="", scales="penalty", changes=None, slow=(), **by_variant):
    """Cases of further options of classes that have a case, which share its code for data in Dask."""
    return [
        Case(make, data, weights, scales, changes or {}, slow=("dask", *slow), variant=name.replace("_", " "))
        for name, make in by_variant.items()
    ]


def sparse_glm(**options):
    return lambda: sd.SparseGLM(**{"alpha": 0.05} | options)


def factors(**options):
    return lambda: sd.MatrixFactorization(2, max_iter=3, random_state=0, **options)


CASES += [
    *variants(
        "counts",
        "relative",
        changes=OF_TARGET,
        poisson=sparse_glm(loss="poisson"),
        negative_binomial=sparse_glm(loss="negative-binomial"),
        tweedie=sparse_glm(loss="tweedie"),
    ),
    *variants("positive numbers", "relative", gamma=sparse_glm(loss="gamma")),
    *variants("shares of classes", "relative", multinomial=sparse_glm(loss="multinomial")),
    *variants(
        "zeros and ones",
        "relative",
        logistic=sparse_glm(loss="logistic"),
        hinge=sparse_glm(loss="hinge"),
    ),
    *variants(
        "regression",
        "relative",
        quantile=sparse_glm(loss="quantile"),
        square_root=sparse_glm(loss="square-root"),
    ),
    *variants(
        "regression",
        "relative",
        changes=OF_TARGET,
        huber=sparse_glm(loss="huber"),
        mcp=sparse_glm(penalty="mcp"),
        scad=sparse_glm(penalty="scad"),
        log=sparse_glm(penalty="log"),
        lq=sparse_glm(penalty="lq"),
        slope=sparse_glm(penalty="slope"),
        sparse_group=sparse_glm(penalty="sparse-group", groups=[0, 0, 1, 1]),
    ),
    *variants("regression", path=lambda: sd.StabilitySelection(n_selected=2, n_pairs=3, random_state=0)),
    *variants("survival", "relative", mcp=lambda: sd.CoxRegression(0.05, penalty="mcp")),
    *variants("survival", "relative", survival=lambda: sd.SparseGLMCV(sd.CoxRegression(), **CV)),
    *variants(
        "classes", "relative", classes=lambda: sd.SparseGLMCV(sd.GroupLogisticRegression(2), **FEW_FOLDS)
    ),
    *variants(
        "regression",
        "relative",
        scales="",
        changes=OF_TARGET,
        positive_standardized=lambda: sd.Lasso(0.1, positive=True, standardize=True),
    ),
    *variants("regression", "frequencies", folds=lambda: sd.RidgeCV(cv=3)),
    *variants("classes", "frequencies", balanced=lambda: sd.LogisticRegression(class_weight="balanced")),
    *variants(
        "regression",
        "frequencies",
        scales="",
        standardized=lambda: sd.Ridge(standardize=True),
        HC3=lambda: sd.GLM(covariance="HC3"),
    ),
    *variants("regression in clusters", "frequencies", "", clusters=lambda: sd.GLM(covariance="cluster")),
    *variants("zeros and ones", "frequencies", scales="", binomial=lambda: sd.GLM("binomial")),
    *variants("positive numbers", "frequencies", scales="", gamma=lambda: sd.GLM("gamma")),
    *variants(
        "counts",
        "frequencies",
        scales="",
        tweedie=lambda: sd.GLM("tweedie"),
        quasi_Poisson=lambda: sd.GLM("poisson", dispersion="estimate"),
    ),
    *variants(
        "counts",
        "frequencies",
        scales="",
        changes=OF_COUNTS,
        negative_binomial=lambda: sd.GLM("negative-binomial", overdispersion=0.5),
    ),
    *variants(
        "regression", fixed=lambda: sd.KnockoffSelection(kind="fixed", fdr=0.5, random_state=0), scales=""
    ),
    *variants("documents", scales="counts", light=topics(sd.LatentDirichletAllocation, sampler="light")),
    *variants("documents and counts", scales="counts", counts=topics(sd.SupervisedLDA, response="count")),
    *variants(
        "ratings",
        "relative",
        "ratings",
        OF_RATINGS,
        als=factors(solver="als"),
        ccd=factors(solver="ccd"),
        sgd=factors(solver="sgd"),
        gibbs=factors(solver="gibbs"),
    ),
    *variants("ratings", scales="ratings", choices=factors(implicit=True, loss="bpr")),
    *variants(
        "classes",
        "relative",
        "network",
        sgd=lambda: sd.MLPClassifier(**MLP, solver="sgd"),
        sandblaster=lambda: sd.MLPClassifier(**MLP, solver="sandblaster"),
    ),
    *variants(
        "regression in groups",
        "frequencies",
        "prior",
        groups=lambda: sd.BayesianLinearRegression(**DRAWS),
    ),
]
NO_FORMULAIC = pytest.mark.skipif(
    importlib.util.find_spec("formulaic") is None, reason="formulaic is not installed"
)
NO_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def cases(promise, keep=lambda case: True):
    """Return the parameters of a promise's test: the cases to keep, strict xfails where it is broken."""
    return [pytest.param(case, id=case.name, marks=_marks(case, promise)) for case in CASES if keep(case)]


def _marks(case, promise):
    marks = [NO_TORCH] if case.name.startswith("Torch") else []
    if case.name.startswith("BayesianGLM"):
        marks.append(NO_FORMULAIC)
    if promise in case.slow:
        marks.append(pytest.mark.slow)
    if promise in case.broken:
        marks.append(pytest.mark.xfail(reason=case.broken[promise], strict=True))
    return marks
