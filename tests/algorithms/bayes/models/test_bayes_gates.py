"""Gates of ``combine="auto"`` on shards that they were not set on: right or refused, never wrong.

A shard's density is a product over axes, each known on a grid, in coordinates turned at random. So its
draws are exact, and so are mean and standard deviation of the product of all shards.
"""

import warnings
from collections import Counter

import numpy as np
import pytest
from scipy import special

from stradask.algorithms.bayes.combine.combiners import CombinationRefused, CombinationWarning, combine

GRID = np.linspace(-60, 60, 24_001)
WRONG = 0.25  # of a mean in standard deviations, or of the logarithm of a standard deviation


def bimodal(rng, M):
    """Two modes of any weights and widths, up to eight widths apart."""
    left, apart, s = rng.uniform(0.05, 0.95, M), rng.uniform(1, 4), rng.uniform(0.5, 1.5)
    return lambda m, u: (
        np.logaddexp(
            np.log(left[m]) - 0.5 * ((u + apart * s) / s) ** 2,
            np.log(1 - left[m]) - 0.5 * ((u - apart * s) / s) ** 2,
        )
        - u**2 / (200 * M)
    )


def heavy_tailed(rng, M):
    """Student's t of two to five degrees of freedom, about centres that disagree by up to their widths."""
    freedom, centres = rng.uniform(2, 5), rng.normal(0, rng.uniform(0, 1), M)
    return lambda m, u: -(freedom + 1) / 2 * np.log1p((u - centres[m]) ** 2 / freedom)


def rare(rng, M):
    """A logarithm of a rate, of a few events each, under a wide prior."""
    events, exposure = rng.poisson(rng.uniform(0.5, 4), M), rng.uniform(0.5, 2)
    return lambda m, u: events[m] * u - exposure * np.exp(u) - u**2 / (2 * 9 * M)


def shoulder(rng, M):
    """A steep side and a plateau down to the prior, as of a dose that is never reached."""
    steep, prior = rng.uniform(1, 4), rng.uniform(1, 3)
    return lambda m, u: special.log_expit(steep * (u + 1)) - u**2 / (2 * prior**2 * M)


def cusp(rng, M):
    """Normal shards under a Laplace prior, whose root each has."""
    centres, scale = rng.normal(0, 1, M), rng.uniform(0.05, 1)
    return lambda m, u: -0.5 * (u - centres[m]) ** 2 / M - np.abs(u) / (scale * M)


KINDS = {one.__name__: one for one in (bimodal, heavy_tailed, rare, shoulder, cusp)}


def outcome(kind, seed, *unknown):
    """Combine shards of one kind, without what is `unknown`: "right", "refused" or "wrong"."""
    rng = np.random.default_rng([seed, *kind.encode()])
    M, d = int(rng.integers(2, 13)), int(rng.choice([1, 2, 4]))
    T = int(rng.choice([60, 300, 1000]))  # few draws, and many
    axes = [KINDS[kind](rng, M) if j == 0 or kind != "bimodal" else KINDS["cusp"](rng, M) for j in range(d)]
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    logps = np.array([[axis(m, GRID) for m in range(M)] for axis in axes])  # (d, M, grid)
    slopes = np.gradient(logps, GRID, axis=2)
    z, g = np.empty((2, M, T, d))
    for j in range(d):
        for m in range(M):
            p = special.softmax(logps[j, m])
            z[m, :, j] = np.interp(rng.random(T), np.cumsum(p), GRID)
            g[m, :, j] = np.interp(z[m, :, j], GRID, slopes[j, m])
    whole = special.softmax(logps.sum(axis=1), axis=1)
    mean = whole @ GRID
    sd = np.sqrt([w @ (GRID - at) ** 2 for w, at in zip(whole, mean, strict=True)])

    def log_density(points):
        own = points @ turn
        inside = (np.abs(own) < GRID[-1]).all(axis=1)
        total = sum(np.interp(own[:, j], GRID, logps[j].sum(axis=0)) for j in range(d))
        return np.where(inside, total, -np.inf)

    given = {"gradients": g @ turn.T, "log_density": log_density} | dict.fromkeys(unknown)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            found = combine(z @ turn.T, n_draws=2000, random_state=seed, **given)
    except CombinationRefused:
        return "refused"
    weights = np.full(len(found.draws), 1 / len(found.draws))
    if found.log_weights is not None:
        weights = np.exp(found.log_weights)
    own = found.draws @ turn
    ours = weights @ own
    width = np.sqrt(weights @ (own - ours) ** 2)
    errors = np.concatenate([(ours - mean) / sd, np.log(width / sd)])
    return "wrong" if np.abs(errors).max() > WRONG else "right"


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_of_each_kind(kind):
    assert outcome(kind, 0) != "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_shards_of_many_kinds_are_right_or_refused(kind):
    counts = Counter(outcome(kind, seed) for seed in range(20))
    assert not counts["wrong"], counts
    assert counts["right"] >= 10, counts


UNKNOWN = [("log_density",), ("gradients", "log_density")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unknown", UNKNOWN)
def test_without_a_density_they_are_right_or_refused_too(kind, unknown):
    assert "wrong" not in {outcome(kind, seed, *unknown) for seed in (3, 8, 10)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unknown", [("gradients",), *UNKNOWN])
def test_many_without_gradients_or_density_are_right_or_refused(kind, unknown):
    counts = Counter(outcome(kind, seed, *unknown) for seed in range(20))
    assert not counts["wrong"], counts


@pytest.mark.parametrize("known", [True, False])
def test_one_shard_is_the_posterior_of_any_form(known):
    rng = np.random.default_rng(0)
    z = np.where(rng.random(1000) < 0.5, -4, 4)[None, :, None] + rng.standard_normal((1, 1000, 1))
    gradients = 4 * np.tanh(4 * z) - z if known else None
    found = combine(z, gradients=gradients, random_state=0, n_draws=2000)
    np.testing.assert_array_equal(np.sort(found.draws[:, 0]), np.sort(np.tile(z[0, :, 0], 2)))


def test_one_shard_in_two_pieces_is_seen_among_many_that_are_normal():
    rng = np.random.default_rng(0)
    draws = 2 * rng.standard_normal((20, 4000, 1))
    combine(draws, random_state=0)  # all normal
    draws[4] = np.where(rng.random(4000) < 0.5, -2, 2)[:, None] + 0.3 * rng.standard_normal((4000, 1))
    with pytest.raises(CombinationRefused, match="excess moments"):
        combine(draws, random_state=0)
