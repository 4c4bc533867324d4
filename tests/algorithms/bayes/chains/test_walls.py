"""Densities that end at a wall: "auto" takes slices, and walls that do not matter change nothing."""

import math
import warnings

import numpy as np
import pytest
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.chains.chain import advance, init
from stradask.algorithms.bayes.chains.laplace import find_mode, laplace_draws
from stradask.algorithms.bayes.chains.walls import jumps, wall_about, wall_near
from stradask.algorithms.bayes.models.density import user_model
from stradask.errors import DataError


def _normal(mean, wall):
    """A normal density that ends at a wall below."""

    def log_likelihood(q, data):
        return -math.inf if (q < wall).any() else -0.5 * ((q - mean) ** 2).sum()

    return log_likelihood


@pytest.mark.parametrize(("mean", "wall"), [(-1.0, 0.0), (0.5, 0.0)])
def test_auto_takes_slices(mean, wall):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sd.sample(
            _normal(mean, wall), None, np.ones(1), [1.0, 1.0], n_samples=200, n_warmup=100, random_state=0
        )
    assert found.method.startswith("slice: the density ends at a wall")
    truth = stats.truncnorm(wall - mean, np.inf, mean, 1)
    size = found.summary()["ess"].min()
    assert found.draws.mean(axis=0) == pytest.approx(
        [truth.mean()] * 2, abs=4 * truth.std() / math.sqrt(size)
    )
    assert found.draws.std(axis=0) == pytest.approx([truth.std()] * 2, rel=0.2)


def _model(density, start=(1.0, 1.0)):
    return user_model(density, None, np.ones(1), list(start), check=False)


def _gamma(q, data):
    """Falls to nothing where it ends."""
    return -math.inf if (q <= 0).any() else (5 * np.log(q) - q).sum()


@pytest.mark.parametrize(
    ("density", "walled"),
    [(_normal(0.5, 0.0), True), (_normal(0.0, -6.0), False), (_gamma, False)],
)
def test_a_wall_matters_where_the_density_is_high(density, walled):
    model = _model(density)
    mode = find_mode(model)
    draws, _ = laplace_draws(model, mode, 2000, seed=0)
    assert wall_about(model, mode, draws) == walled


@pytest.mark.parametrize(
    ("density", "walled"),
    [
        (lambda q, data: -math.inf if q.sum() > 2.5 else q.sum(), True),
        (lambda q, data: -math.inf if (q <= 0).any() else -(1 / q**2 + 2 * np.log1p(q)).sum(), False),
        (lambda q, data: -np.log1p(q**2).sum(), False),
    ],
)
def test_walls_along_axes(density, walled):
    assert wall_near(_model(density)) == walled


def test_what_a_density_raises_beyond_its_end_is_a_wall():
    def log_likelihood(q, data):
        return -0.5 * math.sqrt(q[0]) ** 4 - q[1] ** 2

    model = _model(log_likelihood)
    assert wall_near(model)
    assert model.take_tally().failed == 0


def test_slices_begin_beside_a_wall_whose_differences_are_infinite():
    """A chain that adapts its metric begins again at its last draw, wherever that lies."""
    model = user_model(lambda q, x: 0.0 if abs(q[0]) < 1 else -np.inf, None, None, np.zeros(1), check=False)
    beside = np.array([1 - 1e-9])
    assert not np.isfinite(model.logp_grad(beside)[1][0])
    _, made = advance(model, init(model, beside, "slice"), 50, seed=0)
    assert (np.abs(made.draws) < 1).all()
    with pytest.raises(DataError, match="where a chain begins"):
        init(model, beside, "nuts")


# Jumps ------------------------------------------------------------------------------------------------------

TIMES = np.arange(40)
COUNTS = np.where(TIMES < 15, [3, 4, 2, 5] * 10, [1, 0, 2, 1] * 10)
RATES = {"early": sd.priors.gamma(2, 1), "late": sd.priors.gamma(2, 1)}


def changing(p, data):
    """Counts whose rate changes at a time."""
    times, counts = data
    rates = np.where(times < p.time, p.early, p.late)
    return (counts * np.log(rates) - rates).sum()


def test_the_time_of_a_change_is_sampled_by_slices():
    """Rates of Gamma(2, 1) are integrated out: k counts of the sum s have Gamma(2 + s) / (1 + k)^(2 + s)."""
    parameters = {"time": sd.interval(0, 40), "early": sd.positive(), "late": sd.positive()}
    found = sd.sample(
        changing, None, (TIMES, COUNTS), parameters=parameters, priors=RATES, n_warmup=200, random_state=0
    )
    assert found.method.startswith("slice: the density jumps")
    assert found.diagnostics.level == 0
    before, k = np.cumsum(COUNTS), np.arange(1, 41)
    logs = sum(
        special.gammaln(2 + s) - (2 + s) * np.log(1 + n)
        for s, n in ((before, k), (before[-1] - before, 40 - k))
    )
    shares = special.softmax(logs)
    mean = shares @ (k - 0.5)
    spread = math.sqrt(shares @ ((k - 0.5 - mean) ** 2 + 1 / 12))
    size = found.summary()["ess"][0]
    assert found.mean()["time"] == pytest.approx(mean, abs=4.5 * spread / math.sqrt(size))
    assert found.sd()["time"] == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize(
    ("density", "jumping"),
    [
        (lambda q, data: -0.5 * (q**2).sum() - 0.2 * np.floor(q[1]), True),
        (lambda q, data: -0.5 * (q**2).sum() - 1e10 * (q[0] < -1.5), True),
        (lambda q, data: -0.5 * (q**2).sum() - 1e10 * (q[0] < -7), False),  # where no draw comes
        (lambda q, data: -0.5 * (q**2).sum() - 1e-3 * np.floor(9 * q[1]), False),
        (lambda q, data: -np.abs(q).sum(), False),  # a kink
        (lambda q, data: -0.5 * (q**2).sum() - np.log1p(np.exp(300 * (q[0] - 0.3))), False),  # steep
        (lambda q, data: -math.inf if q[0] < 0 else -(q.sum() ** 2), False),  # a wall
    ],
)
def test_jumps_along_axes(density, jumping):
    assert jumps(_model(density), np.zeros((1, 2)), np.full(2, 8.0)) == jumping
