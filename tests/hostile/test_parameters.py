"""Every parameter of every public estimator and function, given what it is not.

A value is either taken, and the fit ends well, or a ValueError or TypeError names the parameter.
"""

import inspect
import math
import warnings

import numpy as np
import pytest
from scipy import sparse

import stradask as sd

N, D = 24, 3
_RNG = np.random.default_rng(0)
COUNTS = 1 + _RNG.integers(3, size=(N, D))
X = _RNG.standard_normal((N, D))
Y = X @ np.array([1.0, -1.0, 0.0]) + 0.5 * _RNG.standard_normal(N)
R = sparse.csr_array(COUNTS.astype(float))
MCMC = {"n_samples": 8, "n_warmup": 8, "n_chains": 1, "sampler": "random_walk"}


def least_squares(portion, w):
    A, b = portion
    residual = A @ w - b
    return 0.5 * float(residual @ residual), A.T @ residual


def log_likelihood(q, data):
    return -0.5 * float(((data - q) ** 2).sum())


def estimator(cls, *data, **usual):
    """Call of a fit, the parameters of its constructor, and usual values of some of them."""
    return lambda **given: cls(**usual | given).fit(*data), inspect.signature(cls).parameters


def function(call, *data, **usual):
    names = list(inspect.signature(call).parameters)[len(data) :]
    return lambda **given: call(*data, **usual | given), names


DOORS = {
    "LatentDirichletAllocation": estimator(sd.LatentDirichletAllocation, COUNTS, n_components=2, max_iter=2),
    "Lasso": estimator(sd.Lasso, X, Y, alpha=0.1),
    "ElasticNet": estimator(sd.ElasticNet, X, Y, alpha=0.1),
    "LassoCV": estimator(sd.LassoCV, X, Y, alphas=3, cv=2),
    "ElasticNetCV": estimator(sd.ElasticNetCV, X, Y, alphas=3, cv=2),
    "SparseLogisticRegression": estimator(sd.SparseLogisticRegression, X, Y > 0, alpha=0.1),
    "SparseLogisticRegressionCV": estimator(sd.SparseLogisticRegressionCV, X, Y > 0, alphas=3, cv=2),
    "LogisticRegression": estimator(sd.LogisticRegression, X, Y > 0),
    "Ridge": estimator(sd.Ridge, X, Y),
    "PoissonRegressor": estimator(sd.PoissonRegressor, X, np.abs(Y).round()),
    "MLPClassifier": estimator(sd.MLPClassifier, X, Y > 0, hidden_layer_sizes=(2,), max_iter=2),
    "MLPRegressor": estimator(sd.MLPRegressor, X, Y, hidden_layer_sizes=(2,), max_iter=2),
    "BayesianLinearRegression": estimator(sd.BayesianLinearRegression, X, Y, **MCMC),
    "BayesianLogisticRegression": estimator(sd.BayesianLogisticRegression, X, Y > 0, **MCMC),
    "BayesianPoissonRegression": estimator(sd.BayesianPoissonRegression, X, np.abs(Y).round(), **MCMC),
    "MatrixFactorization": estimator(sd.MatrixFactorization, R, n_components=2, max_iter=2),
    "EASE": estimator(sd.EASE, R),
    "SLIM": estimator(sd.SLIM, R),
    "ItemKNN": estimator(sd.ItemKNN, R),
    "lasso_path": function(sd.lasso_path, X, Y, n_alphas=3),
    "enet_path": function(sd.enet_path, X, Y, n_alphas=3),
    "minimize": function(sd.minimize, least_squares, np.zeros(D), [(X, Y)], max_iter=3),
    "sample": function(sd.sample, log_likelihood, None, Y, start=np.zeros(1), **MCMC),
    "minimize, of what": (
        lambda **given: sd.minimize(
            **{"fun_and_grad": least_squares, "x0": np.zeros(D), "portions": [(X, Y)], "max_iter": 3} | given
        ),
        ["fun_and_grad", "x0"],  # what is in a portion is between it and the function
    ),
    "sample, of what": (
        lambda **given: sd.sample(
            **{"log_likelihood": log_likelihood, "data": Y, "start": np.zeros(1)} | MCMC | given
        ),
        ["log_likelihood", "log_prior"],
    ),
    "ratings by pairs": (
        lambda **given: sd.MatrixFactorization(2, max_iter=2).fit(
            *({"pairs": np.argwhere(COUNTS), "y": COUNTS.ravel()} | given).values()
        ),
        ["pairs", "y"],
    ),
    "rows beside weights": (
        lambda **given: sd.Ridge().fit(X, **{"y": Y} | given),
        ["y", "sample_weight"],
    ),
}

WRONG = [
    *(object(), "nonsense", b"bytes", "", math.nan, math.inf, -math.inf, -1, 0, -0.5, 0.5, 1.5, 1e-320),
    *(2 + 1j, [], {}, (), [[1.0]], ["a"], np.zeros(0), np.array([1.0, np.nan]), np.full((2, 2, 2), 1.0)),
    *(lambda x: x, int, True, None, 10**400, -(10**400), np.float64("nan"), np.datetime64("2020-01-01")),
]
# For ever is what whoever asks for so many gets.
COUNTED = {"max_iter", "n_samples", "n_warmup", "n_chains", "memory", "tol", "patience", "n_iter_no_change"}
# Named in the message by what they are, not as they are called.
CALLED = {
    "random_state": ("random_state", "RandomState"),
    "callback": ("callback", "callable", "int()"),  # what a callable raises is its own
    "n_alphas": ("n_alphas", "alphas"),
    "x0": ("x0", "matmul"),  # may have any form, which a function of the user's does not take
    # int does not tell what it takes, and what it says of arrays is NumPy's
    **{
        name: (name, "int()", "integer scalar", "0-dimensional")
        for name in ("fun_and_grad", "hessp", "log_likelihood", "log_prior")
    },
}


def endless(name, value):
    return name in COUNTED and isinstance(value, int) and value > 1


def check(door, share):
    call, names = DOORS[door]
    cases = [(name, value) for name in names for value in WRONG if not endless(name, value)]
    if share > 1:
        keep = np.random.default_rng(len(door)).integers(share, size=len(cases)) == 0
        cases = [case for case, kept in zip(cases, keep, strict=True) if kept]
    refused = 0
    for name, value in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = None
            try:
                call(**{name: value})
            except (ValueError, TypeError) as error:
                said = str(error)
            except Exception as error:
                error.add_note(f"{door}({name}={value!r})")
                raise
        if said is not None:
            refused += 1
            words = CALLED.get(name, (name,))
            assert any(word in said for word in words), f"{door}({name}={value!r}): {said}"
    assert refused > len(cases) // 3
    return len(cases)


@pytest.mark.parametrize("door", DOORS)
def test_a_parameter_is_taken_or_named(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # "nonsense" is a fine name of a folder
    assert check(door, 15) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_a_parameter_is_taken_or_named_at_length(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check(door, 1) >= (len(WRONG) - 1) * len(DOORS[door][1])


TEXT = "nonsense " * 1200
LONG = [TEXT, TEXT.encode(), [TEXT] * 3, list(range(5000)), {TEXT: TEXT}, np.arange(5000.0), 10**3000]


def refusals(call, cases):
    """Yield what is said of the cases that are refused."""
    for name, value in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                call(**{name: value})
            except Exception as error:
                yield name, str(error)


@pytest.mark.parametrize("door", DOORS)
def test_no_message_shows_a_long_value(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, names = DOORS[door]
    cases = [(name, value) for name in names for value in LONG if not endless(name, value)]
    said = list(refusals(call, cases))
    assert len(said) > len(cases) // 3
    for name, text in said:
        assert len(text) <= 300, f"{door}({name}=...), {len(text)} characters: {text[:400]}"
