"""Compiled functions for log likelihoods: by enumeration, scipy, closed forms and differences."""

import itertools
import math

import numba as nb
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

import stradask as sd
from stradask.kernels.bayes.functions import ode

fn = sd.functions


def differences(function, x, h=1e-5):
    """Derivatives of a function of an array, or of a tuple of values."""
    slopes = np.zeros((*np.shape(function(x)), *x.shape))
    for place in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[place] = h
        slopes[(..., *place)] = (function(x + step) - function(x - step)) / (2 * h)
    return slopes


def test_a_hidden_markov_likelihood_is_the_sum_over_all_paths():
    rng = np.random.default_rng(0)
    T, K = 5, 3
    start, transition = rng.dirichlet([1.0] * K), rng.dirichlet([1.0] * K, K)
    transition[0] = [0.3, 0.7, 0.0]
    emissions = rng.normal(0, 3, (T, K))
    total = 0.0
    for path in itertools.product(range(K), repeat=T):
        steps = math.prod(transition[j, k] for j, k in itertools.pairwise(path))
        total += start[path[0]] * steps * math.exp(emissions[range(T), path].sum())
    given = start, transition, emissions
    by = tuple(np.zeros(x.shape) for x in given)
    assert fn.hidden_markov(*given, *by) == pytest.approx(math.log(total), rel=1e-12)
    for i in range(3):
        expected = differences(
            lambda x, i=i: fn.hidden_markov(*given[:i], x, *given[i + 1 :]), given[i], 1e-6
        )
        known = np.isfinite(expected)  # below zero there is no probability
        assert known.sum() >= expected.size - 1
        np.testing.assert_allclose(by[i][known], expected[known], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(by[2].sum(axis=1), 1)  # probabilities of the states


def test_a_hidden_markov_likelihood_does_not_underflow():
    emissions = np.zeros((200, 2))
    emissions[:100, 1], emissions[100:, 0] = -1000.0, -3000.0
    stays = np.eye(2)
    assert fn.hidden_markov(np.full(2, 0.5), stays, emissions) == pytest.approx(math.log(0.5) - 1e5)
    assert fn.hidden_markov(np.array([1.0, 0]), stays, emissions) == pytest.approx(-3e5)
    emissions[0] = -np.inf
    by = np.zeros(2), np.zeros((2, 2)), np.zeros((200, 2))
    assert fn.hidden_markov(np.full(2, 0.5), stays, emissions, *by) == -np.inf
    assert not any(one.any() for one in by)
    for row in (0, 100, 199):
        undefined = np.where(np.arange(200)[:, None] == row, np.nan, 0.0) + np.zeros(2)
        assert math.isnan(fn.hidden_markov(np.full(2, 0.5), stays, undefined))


@pytest.mark.parametrize("p", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_gaussian_processes_are_those_of_scipy(p):
    rng = np.random.default_rng(1)
    x, y, noise = rng.normal(size=(6, p) if p else 6), rng.normal(size=6), 0.3 * np.eye(6)
    K = fn.squared_exponential(x, 1.3, 0.8)
    apart = (np.reshape(x, (6, 1, -1)) - np.reshape(x, (1, 6, -1))) ** 2
    np.testing.assert_allclose(K, 1.69 * np.exp(-apart.sum(axis=2) / (2 * 0.64)))
    by_y, by_K = np.zeros(6), np.zeros((6, 6))
    expected = stats.multivariate_normal(np.zeros(6), K + noise).logpdf(y)
    assert fn.multivariate_normal(y, K + noise, by_y, by_K) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(
        by_y, differences(lambda y: fn.multivariate_normal(y, K + noise), y), rtol=1e-7
    )

    counts = np.arange(6)
    expected = fn.multivariate_normal.py_func(counts.astype(float), K + noise)
    assert fn.multivariate_normal.py_func(counts, K + noise) == pytest.approx(expected, rel=1e-12)

    def of(sizes):
        return fn.multivariate_normal(y, fn.squared_exponential(x, *sizes) + noise)

    found = fn.squared_exponential_gradient(x, 1.3, 0.8, by_K)
    np.testing.assert_allclose(found, differences(of, np.array([1.3, 0.8])), rtol=1e-6)


def test_derivatives_go_through_cholesky_factors():
    rng = np.random.default_rng(2)
    x, weights = rng.normal(size=(5, 2)), rng.normal(size=(5, 5))

    def of(sizes):
        return (weights * np.linalg.cholesky(fn.squared_exponential(x, *sizes) + 0.1 * np.eye(5))).sum()

    L = np.linalg.cholesky(fn.squared_exponential(x, 1.3, 0.8) + 0.1 * np.eye(5))
    found = fn.squared_exponential_gradient(x, 1.3, 0.8, fn.cholesky_gradient(L, weights))
    np.testing.assert_allclose(found, differences(of, np.array([1.3, 0.8])), rtol=1e-6)


@nb.njit
def prey(t, y, theta, dy):
    dy[0] = (theta[0] - theta[1] * y[1]) * y[0] + 0.1 * math.sin(t)
    dy[1] = (theta[2] * y[0] - theta[3]) * y[1]


def test_differential_equations_are_solved_to_their_tolerance():
    start, theta, times = np.array([30.0, 4.0]), np.array([0.55, 0.028, 0.024, 0.8]), np.linspace(1, 20, 20)

    def right(t, y):
        dy = np.zeros(2)
        prey(t, y, theta, dy)
        return dy

    expected = solve_ivp(right, (0, 20), start, "DOP853", times, rtol=1e-13, atol=1e-13).y.T
    np.testing.assert_allclose(
        fn.solve_ode(prey, start, 0.0, times, theta, 1e-8, 1e-10, 10**4), expected, rtol=3e-7
    )
    y, by_start, by_theta = fn.solve_ode_gradient(prey, start, 0.0, times, theta)
    whole = ode._solve.py_func(prey, start.astype(int), 0.0, times[:1], theta, 1e-8, 1e-10, 1000, True)
    np.testing.assert_allclose(whole[1], by_start[:1], rtol=1e-9)
    np.testing.assert_allclose(y, expected, rtol=3e-7)
    for found, x, of in (
        (by_start, start, lambda x: fn.solve_ode(prey, x, 0.0, times, theta, 1e-12, 1e-12, 10**4)),
        (by_theta, theta, lambda x: fn.solve_ode(prey, start, 0.0, times, x, 1e-12, 1e-12, 10**4)),
    ):
        size = np.abs(found).max()
        np.testing.assert_allclose(found, differences(of, x), rtol=1e-5, atol=1e-6 * size)


def test_differential_equations_that_cannot_be_solved_are_refused():
    given = np.ones(2), 0.0, np.array([1.0, 0.5]), np.ones(4), 1e-8, 1e-10
    with pytest.raises(ValueError, match="times must rise"):
        fn.solve_ode(prey, *given, 1000)
    with pytest.raises(ValueError, match="more than max_steps steps"):
        fn.solve_ode(prey, np.ones(2), 0.0, np.array([50.0]), np.ones(4), 1e-8, 1e-10, 3)
    with pytest.raises(ValueError, match="more than max_steps steps"):
        fn.solve_ode(prey, np.array([1.0, np.nan]), 0.0, np.array([50.0]), np.ones(4), 1e-8, 1e-10, 100)
