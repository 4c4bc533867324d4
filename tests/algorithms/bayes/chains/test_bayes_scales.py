"""Columns as they come: populations beside ages, lengths in nanometres beside incomes."""

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

import stradask as sd
from stradask.algorithms.bayes.chains.laplace import find_mode
from stradask.algorithms.bayes.models.model import Prior, regression

RNG = np.random.default_rng(0)
N = 300
Z = RNG.standard_normal((N, 3))


@pytest.mark.parametrize("ratio", [1e3, 1e8])
@pytest.mark.parametrize("sampler", ["auto", "nuts", "gibbs"])
def test_linear_regression_does_not_depend_on_units(ratio, sampler):
    y = Z @ [1.0, 2.0, 3.0] + 5 + 2 * RNG.standard_normal(N)
    units = np.array([ratio, 1.0, 1 / ratio])
    model = sd.BayesianLinearRegression(sampler=sampler, n_samples=500, random_state=0)
    usual = model.fit(Z, y).posterior_
    mean, sd_ = usual.mean()["coef"], usual.sd()["coef"]
    other = model.fit(Z * units, y).posterior_
    np.testing.assert_allclose(other.mean()["coef"] * units, mean, atol=0.2 * sd_.max())
    np.testing.assert_allclose(other.sd()["coef"] * units, sd_, rtol=0.2)


@pytest.mark.parametrize("n_shards", [1, 2])
def test_counts_by_populations(n_shards):
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(45, 12, N), rng.lognormal(12, 1.5, N)])
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    y = rng.poisson(np.exp(1.5 + 0.3 * scaled.sum(axis=1)))
    model = sd.BayesianPoissonRegression(n_shards=n_shards, n_samples=300, random_state=0).fit(X, y)
    assert model.posterior_.diagnostics.level == 0
    likeliest = PoissonRegressor(alpha=0, solver="newton-cholesky", tol=1e-8).fit(scaled, y).coef_
    sd_ = model.posterior_.sd()["coef"]
    np.testing.assert_array_less(np.abs(model.coef_ - likeliest / X.std(axis=0)) / sd_, 0.3)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6, 1e9])
def test_the_mode_of_counts_is_found_in_any_units(unit):
    y = RNG.poisson(np.exp(Z @ [0.3, 0.2, -0.2]))
    prior = Prior("normal", np.full(3, 2.5) / [1, unit, 1], 4.0, 1.0, 1.0)
    X = Z * [1, unit, 1]
    mode = find_mode(regression("poisson", X, y, prior=prior))
    gradient = X.T @ (y - np.exp(X @ mode.q)) - mode.q / prior.scale**2
    np.testing.assert_allclose(gradient * np.sqrt(np.diag(mode.A @ mode.A.T)), 0, atol=1e-4)
