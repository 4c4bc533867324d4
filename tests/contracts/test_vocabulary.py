"""Linear models have one vocabulary: parameters, defaults and arguments of the same name everywhere."""

import inspect

import numpy as np
import pytest
from contract_cases import CASES, cases
from sklearn import linear_model

FIT = {
    "X",
    "y",
    "sample_weight",
    "offset",
    "exposure",
    "groups",
    "callback",
    "clusters",
    "entry",
    "strata",
    "given",
}
# Parameters of the constructors; those that scikit-learn's class of the name has are taken besides.
WORDS = """
    alpha alphas l1_ratio l1_ratios eps n_alphas fit_intercept positive penalty_factor standardize
    class_weight groups overlap loss loss_options penalty penalty_options bounds gamma delta epsilon
    quantile ties schedule cv scoring rule max_iter tol warm_start random_state engine n_jobs verbose
    estimator solver n_replicas staleness family covariance power overdispersion dispersion weight_type
""".split()  # noqa: SIM905
DEFAULTS = {
    "alphas": 100,
    "eps": 1e-3,
    "max_iter": 1000,
    "fit_intercept": True,
    "standardize": False,
    "positive": False,
    "penalty_factor": None,
    "warm_start": False,
    "rule": "min",
    "cv": None,
    "engine": "local",
    "n_jobs": None,
    "verbose": 0,
}
FIRST = {"alpha", "estimator", "family", "groups", "loss", "penalty"}  # may be given by place
ON_ALL = {"engine", "n_jobs", "verbose"}


def linear(case):
    """Whether a case is a linear model, of the first of its class."""
    cls = type(case.make())
    first = next(other for other in CASES if type(other.make()) is cls)
    return ".linear." in cls.__module__ and ".selection." not in cls.__module__ and first is case


def parameters(function):
    return {name: p for name, p in inspect.signature(function).parameters.items() if name != "self"}


@pytest.mark.parametrize("case", cases("vocabulary", linear))
def test_constructors_speak_one_vocabulary(case):
    cls = type(case.make())
    ours, other = parameters(cls), getattr(linear_model, cls.__name__, None)
    theirs = parameters(other) if other else {}
    assert ours.keys() - theirs.keys() <= set(WORDS)
    assert ours.keys() >= ON_ALL
    assert "standardize" in ours or "estimator" in ours
    for name, parameter in ours.items():
        if name not in theirs:
            assert parameter.kind is parameter.KEYWORD_ONLY or name in FIRST, name
            assert name not in DEFAULTS or parameter.default == DEFAULTS[name], name


@pytest.mark.parametrize("case", cases("vocabulary", linear))
def test_fits_speak_one_vocabulary(case):
    cls = type(case.make())
    fit = parameters(cls.fit)
    assert list(fit)[:3] == ["X", "y", "sample_weight"]
    assert fit.keys() <= FIT
    assert fit.keys() & {"offset", "given"}
    assert "callback" in fit
    if cls.__name__.endswith("CV"):
        assert {"cv", "scoring"} <= parameters(cls).keys()
        assert "groups" in fit
    if "offset" in fit and hasattr(cls, "alpha_max"):
        assert parameters(cls.alpha_max).keys() & {"offset", "more"}


@pytest.mark.parametrize("case", cases("vocabulary", lambda case: linear(case) and case.takes("offset")))
def test_an_offset_moves_the_predictor(case):
    """A fit to an offset is that without it, but for its part of the linear predictor."""
    n_outputs = {"classes": 3, "tasks": 2}.get(case.data, 1)
    offset = np.linspace(-0.5, 0.5, len(case.given.X))
    offset = offset if n_outputs == 1 else np.outer(offset, np.arange(n_outputs))
    model = case.fit(model=case.tight(), offset=offset)
    zero = case.fit(model=case.tight(), offset=np.zeros_like(offset))
    np.testing.assert_allclose(zero.coef_, case.fit(model=case.tight()).coef_, rtol=1e-6, atol=1e-8)
    assert np.abs(model.coef_ - zero.coef_).max() > 1e-3


# The estimates of a GLM have standard errors, and are float64.
@pytest.mark.parametrize("case", cases("vocabulary", lambda case: linear(case) and case.name != "GLM"))
def test_coefficients_have_the_type_of_x(case):
    model = case.fit(case.given._replace(X=case.given.X.astype(np.float32)))
    assert model.coef_.dtype == np.float32
