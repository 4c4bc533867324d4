"""Mass outside of all draws: by closed forms, and where the default sampler misses it."""

import math
import warnings

import numba
import numpy as np
import pytest
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.chains.outside import (
    _SHARES,
    _SHARES_OF_WALLS,
    Missed,
    _About,
    missed_mass,
)
from stradask.algorithms.bayes.posterior.diagnostics import diagnose, lines_of_warning
from stradask.errors import PosteriorWarning


@pytest.mark.parametrize("shares", [_SHARES, _SHARES_OF_WALLS])
@pytest.mark.parametrize("d", [1, 2, 6])
@pytest.mark.parametrize("width", [1.0, 3.0, 20.0])
def test_weights_of_the_proposals_sum_to_the_mass_beyond_the_radius(d, width, shares):
    """Of a normal density some times as wide as the draws: a tail of chi-square."""
    rng = np.random.default_rng(0)
    about = _About(rng.standard_normal(d), np.tril(rng.standard_normal((d, d))) + 2 * np.eye(d), shares)
    radius = 1.5 * np.sqrt(d)
    x = about.proposals(radius, 20_000, rng)
    log_p = stats.multivariate_normal(about.mean, width**2 * about.A @ about.A.T).logpdf(x)
    weights = np.exp(log_p - about.log_proposal(radius, x))
    error = weights.std() / np.sqrt(len(x))
    assert weights.mean() == pytest.approx(stats.chi2.sf((radius / width) ** 2, d), abs=4.5 * error)


class Density:
    """What `missed_mass` asks of a model."""

    def __init__(self, function):
        self.logp_batch = function

    def take_tally(self):
        """Nothing is counted."""


@pytest.mark.parametrize(
    ("share", "width", "d"), [(0.2, 6, 15), (0.1, 10, 8), (0.049, 100, 3), (0.02, 50, 5)]
)
def test_the_part_that_draws_of_a_narrow_component_have_missed(share, width, d):
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4, 1000, d))

    def log_density(x):
        r = (x * x).sum(axis=-1)
        wide = math.log(share) - r / 2 / width**2 - d * math.log(width)
        return np.logaddexp(math.log(1 - share) - r / 2, wide)

    exact = math.sqrt(1 - share + share * width**2)
    found = missed_mass(Density(log_density), (), draws, log_density(draws), 1000, rng)
    assert found.outside == pytest.approx(share, rel=0.15)
    assert found.spread == pytest.approx(exact, rel=0.15)
    normal = Density(lambda x: -(x * x).sum(axis=-1) / 2)
    assert missed_mass(normal, (), draws, normal.logp_batch(draws), 1000, rng) == Missed()

    def fails(x):
        raise ZeroDivisionError

    assert missed_mass(Density(fails), (), draws, log_density(draws), 1000, rng) == Missed()
    assert missed_mass(normal, (), draws[:, :1], normal.logp_batch(draws[:, :1]), 1000, rng) is None
    assert missed_mass(normal, (), 0 * draws, np.zeros((4, 1000)), 1000, rng) is None


@numba.njit
def scale_mixture(q, data, g):
    share, width, d = data[0], data[1], len(q)
    r = (q * q).sum()
    narrow = math.log(1 - share) - r / 2
    wide = math.log(share) - r / 2 / width**2 - d * math.log(width)
    top = max(narrow, wide)
    total = top + math.log(math.exp(narrow - top) + math.exp(wide - top))
    precision = math.exp(narrow - total) + math.exp(wide - total) / width**2
    for i in range(d):
        g[i] -= q[i] * precision
    return total


@numba.njit
def threshold(q, data):
    x, y = data[: len(data) // 2], data[len(data) // 2 :]
    means = q[1] / (1 + np.exp(-4 * (x - q[0])))
    return -((q[0] / 30) ** 2 + (q[1] / 10) ** 2 + ((y - means) ** 2).sum()) / 2


@numba.njit
def intervals(q, data):
    return 0.0 if 0 < q[0] < 1 or 10 < q[0] < 13 else -np.inf


@numba.njit
def balls(q, data):
    """Two balls of radius 1, the second about (c, 0, 0, 0) or (c, c, c, c)."""
    return 0.0 if min((q * q).sum(), ((q - data) ** 2).sum()) < 1 else -np.inf


def responses(seed):
    """Thirty rows of a threshold response, and the exact sd of its place, by a sum over a grid."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-2, 2, 30)
    y = special.expit(4 * (x - 0.5)) + rng.standard_normal(30)
    at = np.linspace(-200, 200, 40_001)
    K = special.expit(4 * (x - at[:, None]))
    precision = (K**2).sum(axis=1) + 0.01  # of the height, which is normal for each place
    weights = special.softmax((K @ y) ** 2 / precision / 2 - np.log(precision) / 2 - (at / 30) ** 2 / 2)
    return np.append(x, y), math.sqrt(weights @ (at - weights @ at) ** 2)


def mixture_case(share, width, d):
    exact = math.sqrt(1 - share + share * width**2)
    return scale_mixture, np.array([share, float(width)]), np.full(d, 0.3), exact


def cases():
    """Densities, data, starts, and the exact standard deviation of the first parameter."""
    yield from (mixture_case(*c) for c in [(0.2, 6, 15), (0.1, 10, 8), (0.049, 100, 3), (0.02, 50, 5)])
    yield mixture_case(0.04, 30, 10)
    for seed in (3, 9):
        data, exact = responses(seed)
        yield threshold, data, np.zeros(2), exact
    yield intervals, np.zeros(1), np.array([0.5]), math.sqrt((1 / 3 + (13**3 - 10**3) / 3) / 4 - 8.75**2)
    for middle in (np.array([8.0, 0, 0, 0]), np.array([60.0, 0, 0, 0]), np.full(4, 20.0)):
        yield balls, middle, np.full(4, 0.1), math.sqrt(1 / 6 + middle[0] ** 2 / 4)


@pytest.mark.parametrize("case", [*cases()])
def test_no_default_fit_that_misses_mass_is_trusted(case):
    density, data, start, exact = case
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = sd.sample(density, None, data, start, random_state=0)
    ratio = found.sd()["theta"][0] / exact
    warned = any(one.category is PosteriorWarning for one in caught)
    assert abs(ratio - 1) < 0.2 or (found.diagnostics.level == 2 and warned)


def test_the_table_shows_k_hat_and_what_refutes_it():
    """Importance sampling fails, and chains do not: that is no reason for care."""

    def power(q, x):
        """The density exp(-r^1.2), r the distance from zero."""
        r = np.sqrt(q @ q)
        return -(r**1.2), -1.2 * r**-0.8 * q

    found = sd.sample(power, None, None, np.full(10, 0.5), random_state=0)
    (line,) = [line for line in found.diagnostics.lines if line[0] == "k-hat of the mode"]
    assert line[1] >= 0.7
    assert (line[3], found.diagnostics.level) == (0, 0)
    assert "no mass that these miss" in line[4]
    exact = np.sqrt(special.gamma(12 / 1.2) / special.gamma(10 / 1.2) / 10)
    np.testing.assert_allclose(found.sd()["theta"], exact, rtol=0.1)


@pytest.mark.parametrize(
    ("figures", "level"),
    [
        ({"k_hat_mode": 0.69, "k_hat_mode_refuted": False}, 0),
        ({"k_hat_mode": 1.2, "k_hat_mode_refuted": True, "missed": Missed()}, 0),
        ({"k_hat_mode": 1.2, "k_hat_mode_refuted": False}, 1),  # nothing says that chains do better
        ({"k_hat_mode": np.inf, "k_hat_mode_refuted": False}, 1),
        ({"k_hat_mode": 0.1, "k_hat_mode_refuted": True, "missed": Missed(0.0, 0.04, 6.0)}, 2),
    ],
)
def test_k_hat_decides_unless_points_about_the_draws_refute_it(figures, level):
    found = diagnose(None, figures=figures)
    assert found.level == level
    assert bool(lines_of_warning(found)) == bool(level)
