"""Densities as addresses, and the compiled way up to a mode."""

import math

import numba as nb
import numpy as np
import pytest

from stradask.algorithms.bayes.chains.laplace import find_mode
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.model import Model
from stradask.kernels.bayes.address import SIGNATURE, address_of
from stradask.kernels.bayes.climb import climb


@nb.njit
def valley(q, g, data, meta):
    """Rosenbrock's, upside down: its top is (1, 1), at the end of a crooked ridge."""
    a, b = 1 - q[0], q[1] - q[0] * q[0]
    g[0], g[1] = 2 * a + 400 * b * q[0], -200 * b
    return -a * a - 100 * b * b


@nb.njit
def edge(q, g, data, meta):
    """Not a number beyond 3, and two modes, at -1 and 1, along the first axis."""
    g[0], g[1] = -4 * q[0] * (q[0] * q[0] - 1), 3 - 1 / (3 - q[1])
    if q[1] >= 3:
        return np.nan
    return -((q[0] * q[0] - 1) ** 2) + 3 * q[1] + math.log(3 - q[1])


@nb.njit
def kink(q, g, data, meta):
    """A Laplace density, whose top has no slope to be seen."""
    g[0], g[1] = -np.sign(q[0] - 2), -10 * np.sign(q[1] + 1)
    return -abs(q[0] - 2) - 10 * abs(q[1] + 1)


@nb.njit
def slope(q, g, data, meta):
    """Rises without end."""
    g[0], g[1] = 1.0, 2.0
    return q[0] + 2 * q[1]


def top(density, start, S=None, piece=500):
    d = len(start)
    z, gz, H = np.full(d, np.nan), np.empty(d), np.empty((d, d))
    S, logp, first, going = np.eye(d) if S is None else S, np.nan, 0, True
    address = address_of(density, SIGNATURE)
    data, meta, start = np.zeros(1), np.zeros(1, np.int64), np.array(start)
    while going and first < 500:
        logp, going, _ = climb(address, start, S, z, gz, H, logp, first, piece, data, meta)
        first += piece
    return start + S @ z, logp


@pytest.mark.parametrize("start", [(-1.2, 1.0), (50.0, -3.0), (1.0, 1.0)])
@pytest.mark.parametrize("S", [np.eye(2), np.array([[10.0, 0.3], [-2.0, 0.01]])])
def test_the_end_of_a_crooked_ridge(start, S):
    q, logp = top(valley, start, S)
    np.testing.assert_allclose(q, 1, atol=1e-5)
    assert -1e-10 < logp <= 0


def test_a_climb_in_pieces_is_one_bit_for_bit():
    whole, pieces = (top(valley, (-1.2, 1.0), piece=piece) for piece in (500, 3))
    np.testing.assert_array_equal(whole[0], pieces[0])
    assert whole[1] == pieces[1]


def test_a_place_without_density_is_a_step_too_far():
    for start, end in (((0.4, 0.0), 1.0), ((-0.4, -500.0), -1.0)):
        np.testing.assert_allclose(top(edge, start)[0], [end, 8 / 3], atol=1e-5)
    assert top(edge, (0.0, 4.0))[1] == -np.inf


def test_a_kink_is_a_top():
    np.testing.assert_allclose(top(kink, (0.3, 0.3))[0], [2, -1], atol=1e-3)


def test_what_rises_without_end_has_no_mode():
    model = Model(slope, np.zeros(1), np.zeros(1, np.int64), ("a", "b"), np.zeros(2))
    with np.errstate(all="ignore"):
        assert find_mode(model) is None


def test_a_search_that_ends_at_a_known_mode_says_so():
    model = Model(edge, np.zeros(1), np.zeros(1, np.int64), ("a", "b"), np.array([0.4, 0.0]))
    mode = find_mode(model)
    np.testing.assert_allclose(mode.q, [1, 8 / 3], atol=1e-4)
    assert find_mode(model, [2.0, 1.0], known=[mode]) is mode
    other = find_mode(model, [-2.0, 1.0], known=[mode])
    np.testing.assert_allclose(other.q, [-1, 8 / 3], atol=1e-4)


def test_what_a_compiled_density_raises_comes_out():
    @nb.njit
    def density(q, g, data, meta):
        g[0] = -q[0]
        if abs(q[0]) > 1:
            raise ArithmeticError("no density beyond 1")
        return -0.5 * q[0] * q[0]

    model = Model(density, np.zeros(1), np.zeros(1, np.int64), ("a",), np.zeros(1))
    with pytest.raises(ArithmeticError, match="no density beyond 1"):
        sample_model(model, "nuts", n_samples=200, n_warmup=20, n_chains=1)
