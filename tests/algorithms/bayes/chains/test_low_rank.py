"""The metric of low rank against normal densities, whose covariance is known."""

import numba as nb
import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.bayes.chains import adaptation
from stradask.algorithms.bayes.chains.adaptation import warm_up
from stradask.algorithms.bayes.chains.chain import advance
from stradask.algorithms.bayes.chains.low_rank import explained, low_rank, normal_metric
from stradask.algorithms.bayes.models.density import user_model
from stradask.errors import DataError


def few_factors(d, seed=0):
    """A covariance of unequal scales and three strong factors."""
    rng = np.random.default_rng(seed)
    loadings, scales = 3 * rng.standard_normal((d, 3)), np.exp(rng.standard_normal(d))
    return (loadings @ loadings.T + np.eye(d)) * scales[:, None] * scales


def draws_of(covariance, n, seed=1):
    """Draws of a normal density, and the gradients there."""
    rng = np.random.default_rng(seed)
    draws = rng.standard_normal((n, len(covariance))) @ np.linalg.cholesky(covariance).T
    return draws, -np.linalg.solve(covariance, draws.T).T


def condition(covariance, A):
    """The condition number that is left in the coordinates of a metric."""
    inverse = np.linalg.inv(A)
    return np.linalg.cond(inverse @ covariance @ inverse.T)


@pytest.mark.parametrize(("d", "n", "most"), [(20, 100, 5), (100, 200, 8), (100, 40, 100)])
def test_it_whitens_a_normal_density(d, n, most):
    """With as few draws as parameters, and with fewer, where the covariance of the draws does not."""
    covariance = few_factors(d)
    draws, gradients = draws_of(covariance, n)
    A = low_rank(draws, gradients)
    assert condition(covariance, A) < most
    assert condition(covariance, np.diag(draws.std(axis=0))) > 5 * most
    assert (np.triu(A, 1) == 0).all()


def test_scales_do_where_parameters_are_independent():
    covariance = np.diag(np.exp(np.random.default_rng(2).standard_normal(30)))
    assert low_rank(*draws_of(covariance, 200)) is None
    assert low_rank(*draws_of(few_factors(30), 200)) is not None


def test_nothing_is_said_of_too_little():
    draws, gradients = draws_of(few_factors(5), 50)
    assert low_rank(draws[:9], gradients[:9]) is None
    assert low_rank(draws, np.zeros_like(gradients)) is None
    assert low_rank(draws, np.where(gradients > 1, np.inf, gradients)) is None


def test_what_is_nearly_normal():
    covariance = few_factors(20)
    draws, gradients = draws_of(covariance, 100)
    assert condition(covariance, normal_metric(draws, gradients, 9.0)) < 5
    assert explained(np.linalg.cholesky(covariance), draws, gradients) == pytest.approx(1)
    few = normal_metric(*draws_of(np.diag([1.0, 100.0]), 30), 9.0)
    np.testing.assert_allclose(few, [[1, 10]], rtol=0.02)
    heavy = np.random.default_rng(0).standard_cauchy((100, 20))
    assert normal_metric(heavy, -2 * heavy / (1 + heavy**2), 9.0) is None


@nb.njit
def log_normal(q, precision, g):
    total = 0.0
    for i in range(len(q)):
        slope = 0.0
        for j in range(len(q)):
            slope += precision[i, j] * q[j]
        total -= 0.5 * q[i] * slope
        g[i] -= slope
    return total


def test_chains_of_many_correlated_parameters():
    """Where draws are too few for a dense metric: shorter trajectories, the same density."""
    covariance = few_factors(60)
    model = user_model(log_normal, None, np.linalg.inv(covariance), np.zeros(60), check=False)
    steps = {}
    for metric in ("low_rank", "diagonal"):
        state, _ = warm_up(model, np.zeros(60), metric=metric, n=500, seed=3)
        _, made = advance(model, state, 1000, seed=3)
        steps[metric] = made.statistics["n_gradients"].mean()
        if metric == "low_rank":
            assert state.A.shape == (60, 60)
            # 1,000 draws, nearly independent: means to 5 standard errors, variances as well.
            scale = np.sqrt(np.diag(covariance))
            assert (np.abs(made.draws.mean(axis=0)) / scale).max() < 5 / np.sqrt(1000)
            np.testing.assert_allclose(made.draws.var(axis=0), scale**2, rtol=5 * np.sqrt(2 / 1000))
    assert steps["diagonal"] > 4 * steps["low_rank"]


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")  # of so few draws
@pytest.mark.parametrize("options", [{}, {"checkpoint": True}, {"n_shards": 2}])
def test_sample_takes_a_metric(options, monkeypatch, tmp_path):
    """Windows of each chain make the metric that is given: in one piece, in files, in shards."""
    metrics = []

    def watched(model, state, made, metric):
        metrics.append(metric)
        return renewed(model, state, made, metric)

    renewed = adaptation._with_metric
    monkeypatch.setattr(adaptation, "_with_metric", watched)
    rows = np.random.default_rng(0).standard_normal((200, 2))
    settings = {"sampler": "nuts", "n_samples": 300, "n_warmup": 300, "n_chains": 2, "random_state": 0}
    settings |= options | ({"checkpoint": tmp_path} if "checkpoint" in options else {})
    draws = {
        metric: sd.sample(mean_of_rows, None, rows, np.zeros(2), metric=metric, **settings).draws
        for metric in ("low_rank", "diagonal")
    }
    assert set(metrics) == {"low_rank", "diagonal"}
    assert (draws["low_rank"] != draws["diagonal"]).any()  # nor files of the other metric


def mean_of_rows(q, rows):
    """Normal rows, correlated by .9, about their mean q."""
    apart = (rows - q) @ np.linalg.inv([[1.0, 0.9], [0.9, 1.0]])
    return -0.5 * (apart * (rows - q)).sum(), apart.sum(axis=0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "low rank"}, "metric must be one of auto, .*low_rank.*, got 'low rank'"),
        ({"metric": 3}, "metric must be one of auto"),
        ({"metric": "dense", "sampler": "split_hmc"}, "metric='dense' has no effect on sampler='split_hmc'"),
    ],
)
def test_metrics_that_are_refused(given, message):
    with pytest.raises(DataError, match=message):
        sd.sample(mean_of_rows, None, np.ones((20, 2)), np.zeros(2), **given)
