"""Models with a link from a bad beginning: exposures, offsets and targets far from one."""

import numpy as np
import pytest
from sklearn.base import clone

import stradask as sd
from stradask.algorithms.linear.structured.losses import Gamma, NegativeBinomial, Poisson
from stradask.errors import DataError

N = 200
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, 2))
MEAN = np.exp(X @ [0.5, -0.3] + 1)
YEARS = RNG.uniform(0.5, 2, N)
COUNTS = RNG.negative_binomial(2, 2 / (2 + MEAN)).astype(float)
TIMES = RNG.gamma(3, MEAN / 3)
FAR = {"max_iter": 50, "tol": 1e-6}
MODELS = {
    "poisson": (sd.GLM("poisson"), COUNTS),
    "negative-binomial": (sd.GLM("negative-binomial"), COUNTS),
    "gamma": (sd.GLM("gamma"), TIMES),
    "tweedie": (sd.GLM("tweedie"), np.where(COUNTS > 0, TIMES, 0.0)),
    "binomial": (sd.GLM("binomial"), (COUNTS > 2).astype(float)),
    "normal": (sd.GLM("normal"), COUNTS),
    "sparse poisson": (sd.SparsePoissonRegressor(alpha=0.01, **FAR), COUNTS),
    "sparse gamma": (sd.SparseGLM("gamma", alpha=0.01, **FAR), TIMES),
    "sparse negative-binomial": (sd.SparseGLM("negative-binomial", alpha=0.01, **FAR), COUNTS),
    "sparse logistic": (sd.SparseGLM("logistic", alpha=0.01, **FAR), (COUNTS > 2).astype(float)),
    "huber": (sd.SparseGLM("huber", alpha=0.01, **FAR), COUNTS),
    "groups": (sd.GroupLasso(loss="poisson", alpha=0.01, **FAR), COUNTS),
}


@pytest.mark.parametrize("shift", [-1e5, -700.0, -50.0, 50.0, 1e5])
@pytest.mark.parametrize("name", MODELS)
def test_a_constant_in_the_offset_changes_the_intercept_alone(name, shift):
    model, y = MODELS[name]
    small = np.log(YEARS)
    near, far = (clone(model).fit(X, y, offset=small + constant) for constant in (0.0, shift))
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-4)
    assert far.intercept_ + shift == pytest.approx(near.intercept_, abs=1e-4)
    assert np.abs(far.coef_).max() > 0.1


@pytest.mark.parametrize("factor", [1e-12, 1e12])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie", "negative-binomial"])
def test_the_unit_of_exposures_changes_the_intercept_alone(family, constant, factor):
    """Also where the intercept is a column of ones, which no start knows of."""
    y = MODELS[family][1]
    rows = np.c_[X, np.ones(N)] if constant else X
    near, far = (
        sd.GLM(family, fit_intercept=not constant).fit(rows, y, exposure=unit * YEARS)
        for unit in (1.0, factor)
    )
    np.testing.assert_allclose(far.coef_[:2], near.coef_[:2], rtol=1e-6)
    np.testing.assert_allclose(far.standard_errors_[:2], near.standard_errors_[:2], rtol=1e-6)
    assert far.deviance_ == pytest.approx(near.deviance_, rel=1e-9)
    assert far.log_likelihood_ == pytest.approx(near.log_likelihood_, rel=1e-9)


@pytest.mark.parametrize("unit", [1e10, 1e14])
def test_huge_counts_solve_the_equations_of_the_negative_binomial(unit):
    rng = np.random.default_rng(1)
    y = rng.negative_binomial(2, 2 / (2 + unit * MEAN)).astype(float)
    model = sd.GLM("negative-binomial", overdispersion=0.5).fit(X, y)
    mean, A = model.predict(X), np.c_[X, np.ones(N)]
    weights = mean / (1 + 0.5 * mean)
    step = np.linalg.solve((A.T * weights) @ A, A.T @ ((y - mean) / (1 + 0.5 * mean)))
    assert np.abs(step).max() < 1e-9
    gamma = sd.GLM("gamma").fit(X, y)  # whose limit it is: the same coefficients
    np.testing.assert_allclose(model.coef_, gamma.coef_, atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [Poisson(), Gamma(), NegativeBinomial(0.5), NegativeBinomial(1e-6)],
    ids=["poisson", "gamma", "negative binomial", "nearly poisson"],
)
def test_half_a_deviance_is_not_lost_in_large_numbers(loss):
    """Against its second order, near the least, and against the plain difference far from it."""
    y, u = np.array([1.0, 7.0, 1e5, 1e12]), 1e-5
    bend = loss.curvature(y, np.log(y))
    np.testing.assert_allclose(loss.excess(y, np.log(y) + u), bend * u**2 / 2, rtol=1e-3)
    for far in (-100.0, -3.0, 2.0):
        plain = loss.value(y[:2], np.log(y[:2]) + far) - loss.least(y[:2])
        np.testing.assert_allclose(loss.excess(y[:2], np.log(y[:2]) + far), plain, rtol=1e-7)


def test_offsets_that_no_mean_holds_are_refused():
    offset = np.linspace(0, 1e5, N)
    for model in (sd.GLM("poisson"), sd.SparsePoissonRegressor()):
        with pytest.raises(DataError, match=r"offset, .* goes from 0 to 100000.*pass exposures themselves"):
            model.fit(X, COUNTS, offset=offset)
    with pytest.raises(DataError, match=r"not finite where the fit begins.*fit_intercept=True"):
        sd.GLM("poisson", fit_intercept=False).fit(X, COUNTS, offset=np.full(N, 1e5))


@pytest.mark.parametrize("offset", [1e4, 1e5])
@pytest.mark.parametrize("family", ["gamma", "binomial"])
def test_rows_without_weight_where_the_fit_begins_are_not_called_dependent_columns(family, offset):
    y = MODELS[family][1]
    with pytest.raises(DataError, match=r"flat where the fit begins.*subtract a constant from offset"):
        sd.GLM(family, fit_intercept=False).fit(X, y, offset=np.full(N, offset))
    with pytest.warns(UserWarning, match="columns depend on each other"):  # which are, are said to be
        sd.GLM(family, fit_intercept=False).fit(np.c_[X, X[:, 0]], y, offset=np.full(N, 1.0))


@pytest.mark.parametrize("shift", [-700.0, -50.0, 50.0, 700.0])
@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie", "negative-binomial", "binomial", "normal"])
def test_a_constant_in_the_offset_is_made_up_for_by_a_column_of_ones(family, shift):
    if family == "binomial" and abs(shift) > 50:
        return  # whose means are all 0 or 1 in floating point
    y, rows = MODELS[family][1], np.c_[X, np.ones(N)]
    near = sd.GLM(family).fit(X, y)
    far = sd.GLM(family, fit_intercept=False).fit(rows, y, offset=np.full(N, shift))
    np.testing.assert_allclose(
        np.add(far.coef_, [0, 0, shift]), np.append(near.coef_, near.intercept_), atol=1e-6
    )


@pytest.mark.parametrize("shift", [-50.0, -20.0, 20.0, 50.0])
@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_without_an_intercept_or_ones_the_best_is_found_from_afar(family, shift):
    """The gradient of the likelihood vanishes: it is convex, so that no other point is better."""
    y, rows = MODELS[family][1], np.add(X, [0.5, 0.0])
    model = sd.GLM(family, fit_intercept=False).fit(rows, y, offset=np.full(N, shift))
    mean = np.exp(rows @ model.coef_ + shift)
    residual = mean - y if family == "poisson" else 1 - y / mean
    np.testing.assert_allclose(residual @ rows / (np.abs(residual) @ np.abs(rows)), 0, atol=1e-7)
