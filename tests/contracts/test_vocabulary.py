"""Linear models have one vocabulary: parameters, defaults, arguments and methods of the same name everywhere.

A class that lacks a word has an entry in a table below, with the reason; a new class without it fails.
"""

import inspect

import numpy as np
import pytest
from contract_cases import CASES, cases
from sklearn import linear_model

import stradask as sd

# Parameters of the constructors; those that scikit-learn's class of the name has are taken besides.
WORDS = """
    alpha alphas l1_ratio l1_ratios eps n_alphas fit_intercept positive penalty_factor standardize
    class_weight groups overlap loss loss_options penalty penalty_options bounds gamma delta epsilon
    quantile ties schedule cv scoring rule max_iter tol warm_start random_state engine n_jobs verbose
    estimator solver n_replicas staleness family covariance power overdispersion dispersion weight_type
    reference
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
FIRST = {
    "C",
    "alpha",
    "estimator",
    "family",
    "groups",
    "loss",
    "penalty",
    "quantile",
}  # may be given by place
ON_ALL = {"engine", "n_jobs", "verbose"}
PREDICTED = {"X", "offset", "exposure"}
ARGUMENTS = {  # of methods; those that have a value a row may come as `**given`
    "fit": {*PREDICTED, "y", "sample_weight", "groups", "callback", "clusters", "entry", "strata"},
    "predict": PREDICTED,
    "predict_proba": {"X", "offset"},
    "predict_log_proba": {"X", "offset"},
    "decision_function": {"X", "offset"},
    "score": {*PREDICTED, "y", "sample_weight"},
}
# What a class has that scikit-learn's class of the name has not, or otherwise.
APART = {
    "use_legacy_attributes": "scikit-learn's transition: ours are those of False",
    "precompute": "of `lasso_path` and `enet_path` alone",
}
TOLERANCE = "bounds the excess of the objective, where scikit-learn's bounds a gradient or a step"
SMOOTH = {"Ridge", "LogisticRegression", "LogisticRegressionCV", "PoissonRegressor"}
OTHER_DEFAULTS = {  # of these
    "tol": TOLERANCE,
    "max_iter": "None of Ridge is a number of the solver; 100 of the others is that of L-BFGS",
    "solver": "'auto' runs the method that costs least; their names are taken",
    "penalty": "'auto' leaves C and l1_ratio as they are, as 'deprecated' does",
    "l1_ratios": "None is 0, scikit-learn's default after its transition",
    "scoring": "None is the accuracy, scikit-learn's default before its transition",
}
# Methods of siblings.
SEARCH = {"plot"}
SPARSE = {"path", "alpha_max"}  # where a penalty may have a kink on columns
WITHOUT = {
    ("RidgeCV", "plot"): "single rows are left out: there are no folds, and no scores with an error",
    ("LogisticRegression", "path"): "C is on another scale: SparseLogisticRegression.path",
    ("LogisticRegression", "alpha_max"): "C is on another scale: SparseLogisticRegression.alpha_max",
}


def linear(case):
    """Whether a case is a linear model, of the first of its class."""
    cls = type(case.make())
    first = next(other for other in CASES if type(other.make()) is cls)
    return ".linear." in cls.__module__ and ".selection." not in cls.__module__ and first is case


def parameters(function):
    return {name: p for name, p in inspect.signature(function).parameters.items() if name != "self"}


def linear_cases(keep=lambda case: True):
    return cases("vocabulary", lambda case: linear(case) and keep(case))


@pytest.mark.parametrize("case", linear_cases())
def test_constructors_speak_one_vocabulary(case):
    cls = type(case.make())
    ours, other = parameters(cls), getattr(linear_model, cls.__name__, None)
    theirs = parameters(other) if other else {}
    assert ours.keys() - theirs.keys() <= set(WORDS)
    assert ours.keys() >= ON_ALL
    assert "standardize" in ours or "estimator" in ours
    assert theirs.keys() - ours.keys() <= APART.keys()
    for name, parameter in ours.items():
        if name not in theirs:
            assert parameter.kind is parameter.KEYWORD_ONLY or name in FIRST, name
            assert name not in DEFAULTS or parameter.default == DEFAULTS[name], name
        else:
            assert parameter.kind is theirs[name].kind or name in FIRST, name
            exempt = cls.__name__ in SMOOTH and name in OTHER_DEFAULTS
            assert exempt or parameter.default == theirs[name].default, name


@pytest.mark.parametrize("case", linear_cases())
def test_methods_speak_one_vocabulary(case):
    cls = type(case.make())
    fit, searches = parameters(cls.fit), cls.__name__.endswith("CV")
    assert list(fit)[:3] == ["X", "y", "sample_weight"]
    assert "callback" in fit
    for method, words in ARGUMENTS.items():
        if hasattr(cls, method):
            taken = parameters(getattr(cls, method))
            assert taken.keys() - {"given"} <= words, method
            assert taken.keys() & {"offset", "given"}, method
    if searches:
        assert {"cv", "scoring"} <= parameters(cls).keys()
        assert "groups" in fit
    kinked = {"l1_ratio", "l1_ratios", "penalty_factor"} & parameters(cls).keys()
    wanted = SEARCH if searches else SPARSE if kinked else set()
    assert {name for name in wanted if not hasattr(cls, name)} == {
        name for owner, name in WITHOUT if owner == cls.__name__
    }
    if hasattr(cls, "summary"):
        assert {"confidence_interval", "plot"} <= set(dir(cls))
    if hasattr(cls, "alpha_max") and "offset" in fit:
        assert parameters(cls.alpha_max).keys() & {"offset", "more"}


@pytest.mark.parametrize("case", linear_cases(lambda case: type(case.make()).__name__.endswith("CV")))
def test_searches_have_scores(case):
    model = case.fitted
    assert hasattr(model, "scores_") or case.name == "RidgeCV"  # see `WITHOUT`


@pytest.mark.parametrize("function", [sd.enet_path, sd.lasso_path])
def test_paths_speak_scikit_learns_vocabulary(function):
    ours, theirs = parameters(sd.enet_path), parameters(getattr(linear_model, function.__name__))
    assert theirs.keys() - ours.keys() == {"params"}
    assert {"offset", "sample_weight", "standardize", "penalty_factor", "engine", "n_jobs"} <= ours.keys()


@pytest.mark.parametrize("case", linear_cases(lambda case: case.takes("offset") or case.takes("given")))
def test_an_offset_moves_the_predictor(case):
    """A fit to an offset is that without it, but for its part of the linear predictor."""
    n_outputs = {"classes": 3, "tasks": 2}.get(case.data, 1)
    offset = np.linspace(-0.5, 0.5, len(case.given.X))
    offset = offset if n_outputs == 1 else np.outer(offset, np.arange(n_outputs))
    model = case.fit(model=case.tight(), offset=offset)
    zero = case.fit(model=case.tight(), offset=np.zeros_like(offset))
    np.testing.assert_allclose(zero.coef_, case.fit(model=case.tight()).coef_, rtol=1e-6, atol=1e-8)
    assert np.abs(model.coef_ - zero.coef_).max() > 1e-3
    X, y = case.given.arguments()
    assert model.score(X, y, offset=offset) != model.score(X, y)


@pytest.mark.parametrize("case", linear_cases(lambda case: case.takes("standardize", "__init__")))
def test_standardize_is_a_fit_to_scaled_columns(case):
    """Of columns over their standard deviations, with coefficients for the columns as they are."""
    X = case.given.X * np.geomspace(0.5, 2, case.given.X.shape[1])
    centred = getattr(case.make(), "fit_intercept", True) or type(case.make()).__name__ == "CoxRegression"
    units = X.std(axis=0) if centred else np.sqrt((X**2).mean(axis=0))
    options = {"alpha": 0.1} if case.name == "GLM" else {}
    scaled = case.fit(case.given._replace(X=X / units), model=case.tight(**options))
    model = case.fit(case.given._replace(X=X), model=case.tight(standardize=True, **options))
    np.testing.assert_allclose(model.coef_ * units, scaled.coef_, rtol=1e-4, atol=1e-5)


# The estimates of a GLM have standard errors, and are float64.
@pytest.mark.parametrize("case", linear_cases(lambda case: case.name != "GLM"))
def test_coefficients_have_the_type_of_x(case):
    model = case.fit(case.given._replace(X=case.given.X.astype(np.float32)))
    assert model.coef_.dtype == np.float32
