"""Searches for all modes, and estimates of those that were not found."""

import itertools
import math

import numba as nb
import numpy as np
import pytest

from stradask.algorithms.bayes.chains.laplace import find_mode
from stradask.algorithms.bayes.chains.modes import MOST_MODES, find_modes, look_for_modes
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.model import Model


@nb.njit(nogil=True, error_model="numpy")
def normals(q, g, data, meta):
    """A mixture of normal densities; meta_0 rows of data are (log share, scale, middle)."""
    d, highest = len(q), -np.inf
    g[:] = 0.0
    rows = data.reshape(meta[0], d + 2)
    heights = np.empty(len(rows))
    for k, row in enumerate(rows):
        heights[k] = row[0] - d * math.log(row[1])
        for j in range(d):
            heights[k] -= 0.5 * ((q[j] - row[2 + j]) / row[1]) ** 2
        highest = max(highest, heights[k])
    total = 0.0
    for k in range(len(rows)):
        heights[k] = math.exp(heights[k] - highest)
        total += heights[k]
    for k, row in enumerate(rows):
        for j in range(d):
            g[j] -= heights[k] / total * (q[j] - row[2 + j]) / row[1] ** 2
    return highest + math.log(total)


def _mixture(n, d, width, seed=0):
    rng = np.random.default_rng(seed)
    shares, scales = rng.dirichlet(np.full(n, 2.0)), np.exp(rng.normal(0, 0.4, n))
    middles = rng.normal(0, width, (n, d))
    data = np.c_[np.log(shares), scales, middles]
    names = tuple(f"q{j}" for j in range(d))
    return Model(normals, data.ravel(), np.array([n]), names, np.full(d, 0.1)), shares, middles


@pytest.mark.parametrize(("n", "d", "width"), [(8, 5, 20.0), (8, 2, 40.0)])
def test_eight_modes_of_several_widths_have_their_shares(n, d, width):
    model, shares, middles = _mixture(n, d, width)
    sample = sample_model(model, n_samples=1000, seed=0)
    assert sample.sampler == "laplace"
    assert len(sample.found.modes) == n
    assert sample.found.complete
    weights = np.exp(sample.chains[0].log_weights)
    draws = sample.chains[0].draws
    nearest = ((draws[:, None] - middles) ** 2).sum(axis=2).argmin(axis=1)
    found = np.bincount(nearest, weights, minlength=n) / weights.sum()
    np.testing.assert_allclose(found, shares, atol=4 * math.sqrt(0.25 / len(draws)))


def test_a_hundred_modes_are_not_called_all():
    model, _, _ = _mixture(100, 2, 60.0)
    found = find_modes(model, find_mode(model), 4, seed=0)
    assert len(found.modes) > 20
    assert not found.complete


def test_a_search_after_the_draws_that_ends_at_the_most_modes_is_not_complete():
    model, _, _ = _mixture(100, 2, 60.0)
    sample = sample_model(model, "nuts", n_samples=4000, n_warmup=100, n_chains=8, seed=0)
    found = look_for_modes(model, sample, 0).found
    assert len(found.modes) == MOST_MODES
    assert not found.complete


@nb.njit(nogil=True, error_model="numpy")
def unordered(q, g, data, meta):
    """Means of as many unit normals as q has numbers, equally frequent, with priors N(0, 10^2)."""
    total, k = 0.0, len(q)
    g[:] = 0.0
    heights = np.empty(k)
    for j in range(k):
        total -= 0.5 * (q[j] / 10) ** 2
        g[j] -= q[j] / 100
    for x in data:
        highest, every = -np.inf, 0.0
        for j in range(k):
            heights[j] = -0.5 * (x - q[j]) ** 2
            highest = max(highest, heights[j])
        for j in range(k):
            heights[j] = math.exp(heights[j] - highest)
            every += heights[j]
        for j in range(k):
            g[j] += heights[j] / every * (x - q[j])
        total += highest + math.log(every)
    return total


def test_components_without_an_order_change_places():
    """Three means begin at one value, a saddle; each order of them has a sixth of the posterior.

    Any mean, whichever component it is, has the same posterior, so that predictions have too.
    """
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(middle, 1, 25) for middle in (0, 8, 16)])
    model = Model(unordered, x, np.zeros(1, np.int64), ("a", "b", "c"), np.full(3, 0.1))
    sample = sample_model(model, n_samples=2000, seed=0)
    draws, weights = sample.chains[0].draws, np.exp(sample.chains[0].log_weights)
    assert len(sample.found.modes) == 6
    order = np.argsort(draws, axis=1)
    for places in itertools.permutations(range(3)):
        share = weights[(order == places).all(axis=1)].sum() / weights.sum()
        assert share == pytest.approx(1 / 6, abs=4 * math.sqrt(5 / 36 / len(draws)))
    tight = 1 / (25 + 0.01)  # known components: normal posteriors of the sorted means
    means = weights @ np.sort(draws, axis=1) / weights.sum()
    np.testing.assert_allclose(means, [part.sum() * tight for part in np.split(x, 3)], atol=0.02)
