"""Every door takes any values, or says why not: no value may crash."""

import contextlib
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import stradask as sd

N, D = 40, 5
_RNG = np.random.default_rng(0)
COUNTS = _RNG.integers(4, size=(N, D)).astype(np.float64)
COUNTS[:, 0] += 1  # no empty document
Y = COUNTS @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + _RNG.standard_normal(N)

ESTIMATORS = {
    "lda": (lambda: sd.LatentDirichletAllocation(3, max_iter=5, random_state=0), None, "components_"),
    "lasso": (lambda: sd.Lasso(0.1), Y, "coef_"),
    "elastic net": (lambda: sd.ElasticNet(0.1), Y, "coef_"),
    "sparse logistic": (lambda: sd.SparseLogisticRegression(0.05, tol=1e-12), Y > 0, "coef_"),
    "logistic": (lambda: sd.LogisticRegression(tol=1e-8), Y > 0, "coef_"),
    "three classes": (lambda: sd.LogisticRegression(tol=1e-12), np.digitize(Y, [-1, 1]), "coef_"),
    "ridge": (lambda: sd.Ridge(), Y, "coef_"),
    "poisson": (lambda: sd.PoissonRegressor(tol=1e-8), np.abs(Y).round(), "coef_"),
    "mlp": (lambda: sd.MLPRegressor((4,), max_iter=5, random_state=0), Y, "coefs_"),
    "bayesian": (
        lambda: sd.BayesianLogisticRegression(n_samples=50, n_chains=1, random_state=0),
        Y > 0,
        "coef_",
    ),
    "factors": (lambda: sd.MatrixFactorization(2, max_iter=3, random_state=0), None, "item_factors_"),
}


class Path:
    """A path as an estimator, which is all that the tests below know."""

    def __init__(self, path):
        self.path = path

    def fit(self, X, y):
        self.coefs_ = self.path(X, y, alphas=[1.0, 0.1], tol=1e-12)[1]
        return self


MCMC = {"n_samples": 20, "n_warmup": 20, "n_chains": 1, "sampler": "random_walk", "random_state": 0}
# They share code with one above: what takes long is tried on them with fewer forms and values.
COUSINS = {
    "lda, warp": (
        lambda: sd.LatentDirichletAllocation(3, sampler="warp", max_iter=2, random_state=0),
        None,
        "components_",
    ),
    "lasso cv": (lambda: sd.LassoCV(alphas=3, cv=2), Y, "coef_"),
    "elastic net cv": (lambda: sd.ElasticNetCV(alphas=3, cv=2), Y, "coef_"),
    "lasso path": (lambda: Path(sd.lasso_path), Y, "coefs_"),
    "elastic net path": (lambda: Path(sd.enet_path), Y, "coefs_"),
    "sparse logistic cv": (lambda: sd.SparseLogisticRegressionCV(alphas=3, cv=2), Y > 0, "coef_"),
    "mlp of classes": (lambda: sd.MLPClassifier((2,), max_iter=2, random_state=0), Y > 0, "coefs_"),
    "bayesian linear": (lambda: sd.BayesianLinearRegression(**MCMC), Y, "coef_"),
    "bayesian poisson": (lambda: sd.BayesianPoissonRegression(**MCMC), np.abs(Y).round(), "coef_"),
    "implicit factors": (
        lambda: sd.MatrixFactorization(2, implicit=True, max_iter=2, random_state=0),
        None,
        "item_factors_",
    ),
}
ESTIMATORS |= COUSINS


# Values that nobody means ----------------------------------------------------------------------------

ODD = [0.0, -0.0, 1.0, 2.0, 3.0, -1.0, 0.5, np.nan, np.inf, -np.inf]
ODD += [1e300, -1e300, 1e160, 5e-324, 1e-300, 1e-160, 2.0**31, 2.0**53 + 2, -(2.0**63), 1e19]
ORDINARY = [0.0, 1.0, 2.0, 3.0]


@st.composite
def problems(draw):
    """X and y of a few rows, most values ordinary, and whether X is sparse."""
    n, d = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    few = draw(st.integers(0, 3))  # odd values
    X = draw(hnp.arrays(np.float64, (n, d), elements=st.sampled_from(ORDINARY)))
    y = draw(hnp.arrays(np.float64, (n,), elements=st.sampled_from(ORDINARY)))
    for _ in range(few if n and d else 0):
        place = draw(st.integers(0, n - 1)), draw(st.integers(0, d))
        value = draw(st.sampled_from(ODD))
        if place[1] < d:
            X[place] = value
        else:
            y[place[0]] = value
    return X, y, draw(st.booleans())


UNHURRIED = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
}


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in COUSINS])
@settings(max_examples=25, **UNHURRIED)
@given(problem=problems())
def test_an_answer_that_is_finite_or_an_error_of_ours(name, problem):
    check_problem(name, *problem)


@pytest.mark.parametrize("name", COUSINS)
@settings(max_examples=8, **UNHURRIED)
@given(problem=problems())
def test_a_cousins_answer_is_finite_or_an_error_of_ours(name, problem):
    check_problem(name, *problem)


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=500, **UNHURRIED)
@given(problem=problems())
def test_an_answer_that_is_finite_or_an_error_of_ours_at_length(name, problem):
    check_problem(name, *problem)


def check_problem(name, X, y, is_sparse):
    make, usual, attribute = ESTIMATORS[name]
    if usual is not None and usual.dtype == bool:
        y = np.where(y > 1, "b", "a") if np.isfinite(y).all() else y
    given_X = sparse.csr_matrix(X) if is_sparse else X.copy()
    given_y = y.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(ValueError, TypeError):
            model = make().fit(given_X) if usual is None else make().fit(given_X, given_y)
            value = getattr(model, attribute)
            for part in value if isinstance(value, list) else [value]:
                assert np.isfinite(part).all()
    np.testing.assert_array_equal(given_X.toarray() if is_sparse else given_X, X)
    np.testing.assert_array_equal(given_y, y)
