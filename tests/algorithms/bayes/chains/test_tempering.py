"""Annealed populations: ``sampler="smc"``."""

import math
from functools import partial
from types import SimpleNamespace

import numba as nb
import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.chains.laplace import find_mode
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.chains.tempering import (
    Populations,
    Reference,
    reference_about,
    run_populations,
)
from stradask.algorithms.bayes.models.model import Model
from stradask.algorithms.bayes.posterior.convergence import ess
from stradask.errors import DataError, StradaskError
from stradask.kernels.bayes import tempering as kernels

_LOG_HEIGHT = 7.0  # of the density over a normalised one


@nb.njit(nogil=True, error_model="numpy")
def skewed_modes(q, g, data, meta):
    """A fifth and four fifths, mirrored: logarithms of Gamma(2) variables in d dimensions, data_0 apart."""
    one, two = math.log(0.2), math.log(0.8)
    for j in range(len(q)):
        here, there = q[j], data[0] - q[j]
        one += 2.0 * here - math.exp(here)
        two += 2.0 * there - math.exp(there)
    top = max(one, two)
    total = top + math.log(math.exp(one - top) + math.exp(two - top))
    for j in range(len(q)):
        g[j] = math.exp(one - total) * (2.0 - math.exp(q[j])) - math.exp(two - total) * (
            2.0 - math.exp(data[0] - q[j])
        )
    return total + 7.0


def _skewed(d=3, apart=25.0):
    names = tuple(f"q{j}" for j in range(d))
    model = Model(skewed_modes, np.array([apart]), np.zeros(1, np.int64), names, np.zeros(d))
    return model, [find_mode(model, np.full(d, at)) for at in (0.5, apart - 0.5)]


def _reference():
    rng = np.random.default_rng(0)
    roots = np.stack([np.tril(rng.standard_normal((3, 3)) + 3 * np.eye(3)) for _ in range(2)])
    return Reference(np.array([0.3, 0.7]), np.array([5.0, 3.0]), 4 * rng.standard_normal((2, 3)), roots)


def test_the_reference_is_a_mixture_of_student_ts():
    reference = _reference()
    arrays = reference.arrays()
    logs, _, freedom, middles, roots, inverses = arrays
    points = 5 * np.random.default_rng(1).standard_normal((10, 3))
    parts = [
        stats.multivariate_t(middle, root @ root.T, nu).pdf(points)
        for middle, root, nu in zip(middles, roots, freedom, strict=True)
    ]
    found, heights, g = np.empty(10), np.empty(2), np.empty(3)
    kernels.reference_all(points, found, arrays)
    np.testing.assert_allclose(np.exp(found), reference.shares @ parts, rtol=1e-12)
    for q in points:
        log_density = partial(kernels.reference.py_func, logs=logs, freedom=freedom, middles=middles)
        log_density = partial(log_density, heights=heights, inverses=inverses, g=np.empty(3))
        kernels.reference(q, heights, logs, freedom, middles, inverses, g)
        steps = 1e-5 * np.eye(3)
        slopes = [(log_density(q + step) - log_density(q - step)) / 2e-5 for step in steps]
        np.testing.assert_allclose(g, slopes, atol=1e-7)
    drawn = reference.draw(200_000, np.random.default_rng(2))
    np.testing.assert_allclose(drawn.mean(axis=0), reference.shares @ middles, atol=0.1)


@pytest.mark.parametrize(
    "t", [pytest.param(0.0, marks=pytest.mark.slow), 0.4, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_moves_keep_the_density_of_their_temperature(t):
    """Points that have that density keep it; the reference has two widths, and the density other modes."""
    model, _ = _skewed(1, 6.0)
    reference = Reference(
        np.array([0.5, 0.5]), np.array([3.0, 3.0]), np.array([[0.0], [4.0]]), np.array([[[0.5]], [[3.0]]])
    )
    grid = np.linspace(-80, 80, 400_001)[:, None]
    log_q = np.empty(len(grid))
    arrays = reference.arrays()
    kernels.reference_all(grid, log_q, arrays)
    log_p = model.logp_batch(grid)
    heights = (1 - t) * log_q + (t * log_p if t else 0.0)
    p = np.exp(heights - heights.max())
    levels = np.random.default_rng(0).permutation((np.arange(20_000) + 0.5) / 20_000)
    x = np.interp(levels, np.cumsum(p) / p.sum(), grid[:, 0])[:, None]
    at = np.quantile(x, [0.1, 0.3, 0.5, 0.7, 0.9])
    populations = Populations(model, reference, 20_000, 1, seed=1)
    columns = {"x": x.copy(), "log_p": model.logp_batch(x), "log_q": np.empty(len(x))}
    columns["gradients"] = model.logp_grads(x)[1]
    kernels.reference_all(x, columns["log_q"], arrays)
    for _ in range(8):
        populations._sweep(columns, t)
    moved = columns["x"]
    assert (moved != x).mean() > 0.9
    np.testing.assert_allclose([(moved < q).mean() for q in at], [0.1, 0.3, 0.5, 0.7, 0.9], atol=0.015)
    np.testing.assert_allclose(columns["log_p"], model.logp_batch(moved))
    np.testing.assert_allclose(columns["gradients"], model.logp_grads(moved)[1])


def test_shares_of_skewed_modes_and_the_evidence():
    model, modes = _skewed()
    made, _ = run_populations(model, modes, 500, 4, seed=0, n_jobs=2)
    again, _ = run_populations(model, modes, 500, 4, seed=0, n_jobs=1)
    assert (made.chains[3].draws == again.chains[3].draws).all()
    auto = sample_model(_skewed(1)[0], "auto", n_samples=500, seed=0)
    assert auto.sampler == "smc"
    assert "different modes" in auto.reason
    assert (auto.stacked() > 12).mean() == pytest.approx(0.8, abs=0.06)
    found = made.evidence
    assert 0 < found.error < 0.1
    assert abs(found.log_evidence - _LOG_HEIGHT) < 5 * found.error
    draws = np.stack([one.draws for one in made.chains])
    right = (draws.mean(axis=2) > 12).astype(float)
    sizes = ess(right[..., None])[0]
    assert sizes > 200
    assert abs(right.mean() - 0.8) < 4 * 0.4 / math.sqrt(sizes)
    left = draws[right == 0]
    sd_of = math.sqrt(math.pi**2 / 6 - 1)
    np.testing.assert_allclose(
        left.mean(axis=0), 1 - np.euler_gamma, atol=5 * sd_of / math.sqrt(len(left) / 2)
    )
    np.testing.assert_allclose(left.std(axis=0), sd_of, rtol=0.2)


def test_populations_that_disagree_by_far_say_so():
    logs = np.array([0.0, -20.0])
    annealing = SimpleNamespace(
        log_evidence=logs, variance=np.zeros(2), columns={"ancestor": np.arange(4)}, n_steps=1
    )
    evidence = Populations.evidence.fget(SimpleNamespace(_annealing=annealing, _tally=np.ones((2, 2))))
    assert evidence.error == pytest.approx(10)


def test_without_a_mode_the_reference_lies_about_the_start():
    model, _ = _skewed(1, 3.0)
    assert len(reference_about(model, (), seed=0).shares) == 1
    seen = []
    made, _ = run_populations(model, (), 500, 2, seed=0, callback=lambda info: seen.append(info.objective))
    assert made.evidence.n_steps == len(seen) > 1
    assert abs(made.evidence.log_evidence - _LOG_HEIGHT) < 0.1
    with pytest.raises(StradaskError, match="stopped at t = 0"):
        run_populations(model, (), 50, 2, seed=0, callback=lambda info: True)


@pytest.mark.slow
def test_a_posterior_says_its_evidence():
    """Twenty rows N(mu, 1), and mu ~ N(0, 3^2)."""
    x = np.random.default_rng(0).normal(1, 1, 20)

    def log_likelihood(q, x):
        rest = x - q[0]
        return -0.5 * rest @ rest - 0.5 * len(x) * math.log(2 * math.pi), np.array([rest.sum()])

    def log_prior(q):
        return -0.5 * (q[0] / 3) ** 2 - math.log(3) - 0.5 * math.log(2 * math.pi), -q / 9

    def sampled(**options):
        given = {"n_samples": 150, "sampler": "smc", "random_state": 0} | options
        return sd.sample(log_likelihood, log_prior, x, [0.0], **given)

    posterior = sampled()
    exact = stats.multivariate_normal(np.zeros(20), np.eye(20) + 9).logpdf(x)
    value, error = posterior.log_evidence
    assert abs(value - exact) < 5 * error < 0.3
    assert posterior.diagnostics.level == 0
    assert posterior.mean()["theta"][0] == pytest.approx(x.sum() / (20 + 1 / 9), abs=0.04)
    assert sampled(sampler="laplace").log_evidence is None
    for options, words in (({"n_shards": 2}, "n_shards=1"), ({"metric": "dense"}, "no effect")):
        with pytest.raises(DataError, match=words):
            sampled(**options)


@nb.njit(nogil=True, error_model="numpy")
def with_a_pole(q, g, data, meta):
    """Standard normal, without a limit on a strip of width .2."""
    g[0] = -q[0]
    return math.inf if 1.0 < q[0] < 1.2 else -0.5 * q[0] * q[0]


def test_points_do_not_stay_where_a_density_has_no_limit():
    model = Model(with_a_pole, np.zeros(1), np.zeros(1, np.int64), ("q",), np.zeros(1))
    found = sample_model(model, "smc", seed=0, n_samples=200)
    draws = found.stacked()[..., 0]
    assert ((draws > 0.9) & (draws < 1.3)).any()
    assert not ((draws > 1.0) & (draws < 1.2)).any()
