"""The second round by subsets of rows: against all rows, and refusals where these do not serve."""

from functools import partial

import numba
import numpy as np
import pytest
from scipy import special

import stradask as sd
from stradask.algorithms.bayes.models.model import regression
from stradask.algorithms.bayes.shards import chains, subsets
from stradask.algorithms.bayes.shards.builds import RegressionBuild
from stradask.algorithms.bayes.shards.rows import Part

N, D = 40_000, 4


@pytest.fixture
def few(monkeypatch):
    """Subsets at a size that a test can have: an eighth of the rows."""
    monkeypatch.setattr(subsets, "LEAST_ROWS", 1000)
    monkeypatch.setattr(subsets, "_PART", 8)
    monkeypatch.setattr(subsets, "_LEAST_IN_ALL", 1000)


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    return X, rng.random(n) < special.expit(X @ [0.5, -1.0, 0.2, 0.0])


def places(centre, width, n=600):
    rng = np.random.default_rng(1)
    points = centre + width * rng.standard_normal((n, len(centre)))
    return points, points.mean(axis=0), np.linalg.cholesky(np.cov(points.T))


@pytest.mark.parametrize(("family", "prior_power"), [("bernoulli", 1.0), ("poisson", 0.25)])
def test_estimates_err_as_they_say(few, family, prior_power):
    X, y = rows()
    y = np.where(y, 1.0, -1.0)
    if family == "poisson":
        y = np.random.default_rng(2).poisson(np.exp(X @ [0.5, -1.0, 0.2, 0.0])).astype(float)
    build = RegressionBuild(family, {"X": Part(X), "y": Part(y)}, {"power": prior_power})
    model, parts = build.with_parts()
    assert len(parts) == subsets.N_SUBSETS
    width = 1 / np.sqrt(N / 4)
    where = places(np.array([0.5, -1.0, 0.2, 0.0]), width * (2 if family == "bernoulli" else 0.5))
    values, gradients, squares = subsets.estimates(model, parts, where)
    heights, slopes = model.logp_grads(where[0])
    z = (values - heights) / np.sqrt(squares)
    assert np.abs(z).mean() < 1.6  # Student's t with 7 degrees of freedom: .86; points share their rows
    assert np.quantile(np.sqrt(squares), 0.9) < 0.02
    assert np.ptp(heights) > 5  # of which hundredths are left
    assert np.sqrt(np.mean((gradients - slopes) ** 2)) < 0.01 * np.sqrt(np.mean(slopes**2))


def test_outliers_and_biases_are_found(few):
    """An outlier that no subset has, or one; a bias, which the comparison at some points finds."""
    X, y = rows()
    y = np.where(y, 1.0, -1.0)
    X[0] = 300.0
    model = regression("bernoulli", X, y)
    _, parts = RegressionBuild("bernoulli", {"X": Part(X), "y": Part(y)}, {"power": 1.0}).with_parts()
    where = places(np.array([0.5, -1.0, 0.2, 0.0]), 0.02)

    estimate = partial(subsets.estimates, model, parts)
    found = subsets.summed(model.logp_grads, estimate, where[0])
    heights, _ = model.logp_grads(where[0])
    assert found is None or np.abs(found[0] - heights - (found[0] - heights).mean()).std() < 0.02

    def biased(at):
        values, gradients, squares = estimate(at)
        return values + (at[0] - at[1])[:, 0] * 30, gradients, squares

    assert subsets.summed(model.logp_grads, biased, where[0]) is None


def test_the_posterior_of_shards_is_the_same(few, monkeypatch):
    X, y = rows()
    settings = {"n_shards": 2, "n_samples": 300, "random_state": 0}
    near = sd.BayesianLogisticRegression(**settings).fit(X, y).posterior_
    assert "by subsets of rows" in near.method
    again = sd.BayesianLogisticRegression(**settings, n_jobs=2).fit(X, y).posterior_
    np.testing.assert_array_equal(near.draws, again.draws)
    monkeypatch.setattr(subsets, "LEAST_ROWS", 10**9)
    exact = sd.BayesianLogisticRegression(**settings).fit(X, y).posterior_
    assert "by subsets" not in exact.method
    np.testing.assert_allclose(near["coef"].mean(axis=0), exact["coef"].mean(axis=0), atol=0.06 * 0.015)
    np.testing.assert_allclose(near["coef"].std(axis=0), exact["coef"].std(axis=0), rtol=0.1)


@numba.njit
def log_likelihood(p, data):
    X, y = data
    r = (y - X @ p.beta) / p.sigma
    return -2.5 * np.log1p(r**2 / 4).sum() - len(y) * np.log(p.sigma)


@pytest.mark.slow
def test_densities_of_users_have_subsets(few, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 2))
    y = X @ [1.0, -2.0] + 0.7 * rng.standard_t(4, 20_000)
    seen = []

    class Watched(chains._SecondRound):
        def _by_subsets(self, points):
            found = super()._by_subsets(points)
            if found is not None:
                gap = found[0] - self._both(points)[0]
                seen.append((gap - gap.mean()).std())
            return found

    monkeypatch.setattr(chains, "_SecondRound", Watched)
    posterior = sd.sample(
        log_likelihood,
        data=(X, y),
        parameters={"beta": sd.real(2), "sigma": sd.positive()},
        priors={"beta": sd.priors.normal(0, 1), "sigma": sd.priors.half_cauchy(1)},
        n_shards=2, n_samples=200, n_chains=2, random_state=0, n_proposals=1000,
    )  # fmt: skip
    assert "by subsets of rows" in posterior.method
    assert seen[0] < 0.02
    assert np.abs(posterior.mean()["beta"] - [1, -2]).max() < 4 * posterior.sd()["beta"].max()


def test_the_error_said_knows_rows_that_no_subset_has():
    """The spread of the subsets is small, and the comparison with all rows speaks."""
    where = places(np.zeros(2), 1.0)

    def exact(points):
        return -(points**2).sum(axis=1) / 2, -points

    def estimate(at):
        off = 0.02 * np.sin(7 * at[0][:, 0])
        return exact(at[0])[0] + off, -at[0], np.full(len(at[0]), 0.008**2)

    values, _, said = subsets.summed(exact, estimate, where[0])
    assert said == pytest.approx((values - exact(where[0])[0]).std(), rel=0.3)
