"""Transports against differences, quadrature and products that are known."""

import itertools
from functools import partial

import numpy as np
import pytest
from known_products import errors, moments
from scipy import integrate
from scipy.special import digamma, expit, polygamma

from stradask.algorithms.bayes.combine.climbs import one_mode, starts
from stradask.algorithms.bayes.combine.combiners import CombinationRefused, combine
from stradask.algorithms.bayes.combine.fit_transport import (
    bent,
    fit_gaussian,
    fit_stage,
    third_derivatives,
)
from stradask.algorithms.bayes.combine.gaussian import Gaussian
from stradask.algorithms.bayes.combine.transport import Bend, Transport
from stradask.errors import DataError


def some_stage(d, seed, size=0.1):
    rng = np.random.default_rng(seed)
    squares = [size * rng.standard_normal((k, k)) for k in range(d)]
    return Bend(
        a=rng.standard_normal(d),
        B=np.tril(rng.standard_normal((d, d)), -1),
        A=tuple(square + square.T for square in squares),
        c=0.3 * rng.standard_normal(d),
        C=np.tril(size * rng.standard_normal((d, d)), -1),
        epsilon=0.5 * rng.standard_normal(d),
        delta=np.exp(0.2 * rng.standard_normal(d)),
    )


def some_transport(d=3, stages=2):
    root = np.tril(np.random.default_rng(9).standard_normal((d, d))) + 2 * np.eye(d)
    return Transport(
        Gaussian(np.arange(d) * 1.0, root @ root.T), tuple(some_stage(d, i) for i in range(stages))
    )


class TurnedGammas:
    """M shards of d independent log-gamma variables, mixed by a matrix; their product is known."""

    def __init__(self, k, M, T, d, seed=0):
        rng = np.random.default_rng(seed)
        mixed = np.linalg.qr(rng.standard_normal((d, d)))[0] * np.exp(rng.normal(0, 0.5, d))
        self._k, self._M, self._back = k, M, np.linalg.inv(mixed)
        u = np.log(rng.gamma(k, 1, (M, T, d)))
        self.draws, self.gradients = u @ mixed.T, (k - np.exp(u)) @ self._back
        self.mean = mixed @ np.full(d, digamma(M * k) - np.log(M))
        self.sd = np.sqrt((mixed**2).sum(axis=1) * polygamma(1, M * k))
        self.n_points = 0

    def value_and_grad(self, x):
        self.n_points += len(x)
        u = x @ self._back.T
        e = np.exp(u)
        return self._M * (self._k * u - e).sum(axis=1), self._M * (self._k - e) @ self._back

    def rms(self, found):
        mean, sd = moments(found)
        return np.sqrt(np.mean(((mean - self.mean) / self.sd) ** 2)), np.abs(np.log(sd / self.sd)).max()


# The map ---------------------------------------------------------------------------------------------


def test_a_transport_and_its_density_are_those_of_the_formula():
    transport = some_transport()
    z = np.random.default_rng(1).standard_normal((20, 3))
    x, log_q = transport.forward(z)
    for i in range(5):
        h = 1e-5 * np.eye(3)
        jacobian = (transport.forward(z[i] + h)[0] - transport.forward(z[i] - h)[0]).T / 2e-5
        volume = np.linalg.slogdet(jacobian)[1]
        normal = -(z[i] @ z[i]) / 2 - 1.5 * np.log(2 * np.pi)
        assert log_q[i] == pytest.approx(normal - volume, abs=1e-7)
    np.testing.assert_allclose(transport.density(x), log_q, rtol=1e-9)


def test_the_density_of_a_transport_integrates_to_one():
    transport = some_transport(d=2)
    spread = 12 * np.sqrt(np.diag(transport.gaussian.covariance))
    grids = [
        np.linspace(m - 3 * s, m + 3 * s, 601) for m, s in zip(transport.gaussian.mean, spread, strict=True)
    ]
    points = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1).reshape(-1, 2)
    heights = np.exp(transport.density(points)).reshape(601, 601)
    assert integrate.simpson(integrate.simpson(heights, x=grids[1]), x=grids[0]) == pytest.approx(1, abs=3e-3)


def test_the_residual_is_the_gradient_of_the_log_ratio():
    transport = some_transport()
    z = np.random.default_rng(2).standard_normal((4, 3))

    def ratio(z):  # of the density exp(-sum x^4 / 4) and the transport, as functions of z
        x, log_q = transport.forward(z)
        return -(x**4).sum(axis=1) / 4 - log_q

    found = transport.residual(z, -(transport.forward(z)[0] ** 3))
    h = 1e-5
    for j in range(3):
        step = h * np.eye(3)[j]
        np.testing.assert_allclose(found[:, j], (ratio(z + step) - ratio(z - step)) / (2 * h), rtol=1e-5)


def test_points_that_cannot_be_mapped_back_have_no_density():
    far = np.full((1, 3), 1e200)
    assert some_transport().density(far) == -np.inf


def symmetric(raw):
    return sum(np.transpose(raw, order) for order in itertools.permutations(range(3)))


# Fitting ---------------------------------------------------------------------------------------------


def test_third_derivatives_are_found_from_scores():
    rng = np.random.default_rng(3)
    d = 6
    raw = rng.standard_normal((d, d, d))
    T = symmetric(raw)
    z = rng.standard_normal((600, d))
    r = (np.einsum("kij,ni,nj->nk", T, z, z) - np.einsum("kii->k", T)) / 2
    np.testing.assert_allclose(third_derivatives(z, r), T, atol=1e-3 * np.abs(T).max())
    assert third_derivatives(z, rng.standard_normal((600, d))) is None


def test_a_stage_takes_a_small_bend_away_to_first_order():
    rng = np.random.default_rng(4)
    d, n = 4, 4000
    raw = rng.standard_normal((d, d, d)) / 6
    T = symmetric(raw)
    left = []
    for size in (0.1, 0.05):

        def score(z, size=size):
            return size * (np.einsum("kij,ni,nj->nk", T, z, z) - np.einsum("kii->k", T)) / 2 - z

        z = rng.standard_normal((n, d))
        one = Transport(Gaussian(np.zeros(d), np.eye(d)), (fit_stage(z, score(z) + z),))
        z = rng.standard_normal((n, d))
        left.append(np.sqrt(np.mean(one.residual(z, score(one.forward(z)[0])) ** 2)))
        assert left[-1] < 0.5 * np.sqrt(np.mean((score(z) + z) ** 2))
    assert left[0] / left[1] == pytest.approx(4, rel=0.3)  # second order


def test_the_normal_density_of_least_divergence():
    """Of log-gamma variables it has the mean m and variance v with k = e^(m + v/2), v = 1 / k."""
    k = np.array([1.0, 3.0, 10.0])

    def value_and_grad(u):
        return (k * u - np.exp(u)).sum(axis=1), k - np.exp(u)

    start = Gaussian(np.array([-2.0, 2.0, 1.0]), np.eye(3))
    found = fit_gaussian(start, value_and_grad, 4000, np.random.default_rng(5))
    assert (np.abs(found.mean - np.log(k) + 1 / (2 * k)) * np.sqrt(k)).max() < 0.25  # 200 points
    np.testing.assert_allclose(np.diag(found.covariance), 1 / k, rtol=0.3)


def test_no_stage_where_nothing_is_bent():
    z = np.random.default_rng(6).standard_normal((2000, 5))
    one = bent(Transport(Gaussian(np.zeros(5), np.eye(5))), z, -z).stages[0]
    x, _ = one.forward(z)
    np.testing.assert_allclose(x, z, atol=1e-12)


# Combinations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "d"),
    [
        (4.0, 50),
        pytest.param(1.0, 50, marks=pytest.mark.slow),
        pytest.param(1.0, 100, marks=pytest.mark.slow),
    ],
)
def test_skewed_shards_of_many_parameters(k, d):
    """Gaussians alone are worth a few draws here, or are not tried at all; the goal is .03 sd."""
    case = TurnedGammas(k, M=8, T=6 * d, d=d)
    found = combine(
        case.draws, gradients=case.gradients, value_and_grad=case.value_and_grad, n_draws=4000, random_state=0
    )
    mean, sd = case.rms(found)
    assert mean < 0.03
    assert sd < 0.1
    assert found.method.startswith("transport")
    assert found.figures["k_hat"] < 0.5
    assert found.figures["importance_ess"] > 2000
    assert case.n_points < 30_000


def test_skewed_shards_of_a_logistic_regression():
    """Few positives in each of six shards; the truth by importance sampling of a Laplace approximation."""
    rng = np.random.default_rng(7)
    n, d, M = 800, 7, 5
    X = np.column_stack([np.ones(n), rng.random((n, d - 1)) < 0.15])
    y = (rng.random(n) < expit(X @ np.r_[-3.5, rng.normal(0, 0.8, d - 1)])).astype(float)
    parts = np.array_split(rng.permutation(n), M)

    def value_and_grad(x, rows=slice(None), power=1.0):
        eta = x @ X[rows].T
        value = eta @ y[rows] - np.logaddexp(0, eta).sum(axis=1) - power * (x**2).sum(axis=1) / 8
        return value, (y[rows] - expit(eta)) @ X[rows] - power * x / 4

    def curvature(x, rows, power):
        p = expit(X[rows] @ x)
        return X[rows].T @ (X[rows] * (p * (1 - p))[:, None]) + power * np.eye(d) / 4

    draws, gradients = [], []
    for rows in parts:  # draws of a shard by sampling importance resampling of a wide t about its mode
        q = np.zeros(d)
        for _ in range(50):
            q = q + np.linalg.solve(curvature(q, rows, 1 / M), value_and_grad(q[None], rows, 1 / M)[1][0])
        root = np.linalg.cholesky(np.linalg.inv(curvature(q, rows, 1 / M)))
        z = rng.standard_normal((4000, d)) / np.sqrt(rng.chisquare(5, 4000) / 5)[:, None]
        x = q + 1.2 * z @ root.T
        log_w = value_and_grad(x, rows, 1 / M)[0] + (5 + d) / 2 * np.log1p((z**2).sum(axis=1) / 5)
        w = np.exp(log_w - log_w.max())
        draws.append(x[rng.choice(len(x), 400, p=w / w.sum())])
        gradients.append(value_and_grad(draws[-1], rows, 1 / M)[1])
    q = np.zeros(d)
    for _ in range(50):
        q = q + np.linalg.solve(curvature(q, slice(None), 1.0), value_and_grad(q[None])[1][0])
    root = np.linalg.cholesky(np.linalg.inv(curvature(q, slice(None), 1.0)))
    z = rng.standard_normal((12_000, d)) / np.sqrt(rng.chisquare(7, 12_000) / 7)[:, None]
    x = q + 1.1 * z @ root.T
    log_w = value_and_grad(x)[0] + (7 + d) / 2 * np.log1p((z**2).sum(axis=1) / 7)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    assert 1 / (w**2).sum() > 6000  # the truth is known to .013 sd

    class Case:
        mean = w @ x
        sd = np.sqrt(w @ (x - w @ x) ** 2)

    found = combine(
        np.stack(draws),
        gradients=np.stack(gradients),
        value_and_grad=value_and_grad,
        n_draws=2000,
        random_state=0,
    )
    assert found.figures["k_hat"] < 0.5
    assert errors(Case, found)[0] < 0.08  # the largest of seven; root mean square .03
    assert np.sqrt(np.mean(((moments(found)[0] - Case.mean) / Case.sd) ** 2)) < 0.04


def two_modes(x, M, s, d):
    """The sum over M shards of d parameters, the first with modes at -2 and 2 of width s."""
    logs = [-((x[..., 0] - at) ** 2) / (2 * s**2) for at in (-2, 2)]
    total = np.logaddexp(*logs)
    gradient = -x
    gradient[..., 0] = sum(
        np.exp(log - total) * -(x[..., 0] - at) / s**2 for log, at in zip(logs, (-2, 2), strict=True)
    )
    return M * (total - (x[..., 1:] ** 2).sum(axis=-1) / 2), M * gradient


@pytest.mark.parametrize("s", [0.5, 0.8])
def test_two_modes_in_many_dimensions_are_refused(s):
    rng = np.random.default_rng(8)
    M, T, d = 4, 400, 30
    draws = rng.standard_normal((M, T, d))
    draws[:, :, 0] = np.where(rng.random((M, T)) < 0.5, -2, 2) + s * rng.standard_normal((M, T))
    value_and_grad = partial(two_modes, M=M, s=s, d=d)
    gradients = two_modes(draws, 1, s, d)[1]
    with pytest.raises(CombinationRefused, match="climbs from the shards' draws do not all end at one mode"):
        combine(draws, gradients=gradients, value_and_grad=value_and_grad, random_state=0)


def test_climbs_find_one_mode_where_there_is_one():
    case = TurnedGammas(0.5, M=3, T=300, d=4)
    wide = Gaussian(np.zeros(4), 4 * np.eye(4))
    assert one_mode(wide, case.value_and_grad, starts(case.draws))
    points = starts(np.random.default_rng(0).standard_normal((3, 100, 4)))
    assert not one_mode(wide, partial(two_modes, M=3, s=0.5, d=4), points)
    assert not one_mode(wide, lambda x: (x[:, 0], np.ones_like(x)), points)  # without end


def test_gradients_of_another_shape_are_an_error():
    case = TurnedGammas(1.0, M=4, T=200, d=6)
    options = {"gradients": case.gradients, "random_state": 0}
    with pytest.raises(DataError, match="value_and_grad must be a function"):
        combine(case.draws, value_and_grad=3, **options)
    with pytest.raises(DataError, match=r"value_and_grad returned gradients of the shape \(\d+,\)"):
        combine(case.draws, value_and_grad=lambda x: (case.value_and_grad(x)[0],) * 2, **options)


def test_few_proposals_are_told():
    case = TurnedGammas(1.0, M=8, T=300, d=30)
    with pytest.raises(CombinationRefused, match="30 parameters need n_draws of at least 120, got 60"):
        combine(
            case.draws,
            gradients=case.gradients,
            value_and_grad=case.value_and_grad,
            n_draws=60,
            random_state=0,
        )
