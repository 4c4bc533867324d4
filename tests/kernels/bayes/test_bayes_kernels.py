"""Densities and random numbers of the Bayesian samplers against scipy and numpy."""

import numba as nb
import numpy as np
import pytest
from scipy import special, stats

from stradask.algorithms.bayes.models.called import differences
from stradask.algorithms.bayes.models.model import PRIORS, Prior, regression
from stradask.kernels.bayes import hmc
from stradask.kernels.bayes import streams as bayes_streams
from stradask.kernels.bayes.address import SIGNATURE, address_of
from stradask.kernels.bayes.densities import glm as bayes_glm
from stradask.kernels.bayes.densities import priors as bayes_priors
from stradask.kernels.random import philox4x32

FAMILIES = ("bernoulli", "normal", "student_t", "poisson", "negative_binomial")
N, D = 203, 5  # no multiple of the rows of a tile


def _data(family, n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = {
        "bernoulli": lambda: rng.choice([-1.0, 1.0], n),
        "poisson": lambda: rng.poisson(2, n),
        "negative_binomial": lambda: rng.negative_binomial(1, 0.01, n),
    }.get(family, lambda: rng.standard_normal(n))()
    return X, y.astype(float)


def _log_likelihood(family, f, y, scale, freedom=4.0):
    if family == "bernoulli":
        return special.log_expit(y * f)
    if family == "normal":
        return stats.norm.logpdf(y, f, scale)
    if family == "student_t":
        return stats.t.logpdf(y, freedom, f, scale)
    if family == "poisson":
        return stats.poisson.logpmf(y, np.exp(f))
    return stats.nbinom.logpmf(y, 1 / scale, 1 / (1 + scale * np.exp(f)))


def _log_prior(kind, b, scale):
    if kind == "normal":
        return stats.norm.logpdf(b, scale=scale)
    if kind == "student_t":
        return stats.t.logpdf(b, 4, scale=scale)
    return stats.laplace.logpdf(b, scale=scale)


@pytest.mark.parametrize("kind", ["normal", "student_t", "laplace"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("extras", [False, True])
def test_log_density_differs_from_scipys_by_a_constant(family, kind, extras):
    X, y = _data(family)
    rng = np.random.default_rng(1)
    more = {"weights": rng.random(N), "offsets": rng.standard_normal(N)} if extras else {}
    scale, power = rng.uniform(0.5, 2, D), 0.3
    model = regression(family, X, y, prior=Prior(kind, scale, own_scale=1.7), power=power, **more)
    Q = rng.standard_normal((6, model.n_params)) * 0.5
    expected = []
    for q in Q:
        own = np.exp(q[D]) if len(q) > D else 1.0
        terms = _log_likelihood(family, X @ q[:D] + more.get("offsets", 0), y, own)
        prior = _log_prior(kind, q[:D], scale).sum()
        if len(q) > D:
            prior += stats.halfcauchy.logpdf(own, scale=1.7) + q[D]
        expected.append((more.get("weights", np.ones(N)) * terms).sum() + power * prior)
    gap = model.logp_grads(Q)[0] - expected
    np.testing.assert_allclose(gap, gap[0], rtol=0, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_agree_with_differences(family, kind):
    X, y = _data(family)
    model = regression(family, X, y, prior=Prior(kind, 1.5, n_shrunk=D - 1, global_scale=0.7), power=0.25)
    for q in np.random.default_rng(2).standard_normal((3, model.n_params)) * 0.5:
        _, gradient = model.logp_grad(q)
        expected = differences(lambda point: model.logp_grad(point)[0], q)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_the_horseshoe_is_its_hierarchy():
    X, y = _data("bernoulli")
    prior = Prior("horseshoe", 2.0, n_shrunk=D - 1, global_scale=0.3)
    model, flat = (
        regression("bernoulli", X, y, prior=prior),
        regression("bernoulli", X, y, prior=Prior(scale=np.inf)),
    )
    gaps = []
    for q in np.random.default_rng(3).standard_normal((5, model.n_params)):
        z, local, whole = q[: D - 1], q[D:-1], q[-1]
        scales = np.exp(local + whole)
        b = np.append(2 * z * scales / np.sqrt(1 + scales**2), q[D - 1])
        np.testing.assert_allclose(model.values(q[None])[0, :D], b, rtol=1e-13)
        logp = flat.logp_grad(b)[0] + stats.norm.logpdf(z).sum() + stats.norm.logpdf(q[D - 1], scale=2)
        logp += (stats.halfcauchy.logpdf(np.exp(local)) + local).sum()
        logp += stats.halfcauchy.logpdf(np.exp(whole), scale=0.3) + whole
        gaps.append(model.logp_grad(q)[0] - logp)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-9)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 65, 8000, 25_001])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 3e-6)])
def test_tiles_of_any_number_of_rows(n, dtype, tolerance):
    X, y = _data("bernoulli", n, 3, seed=n)
    X = X.astype(dtype)
    model = regression("bernoulli", X, y)
    Q = np.random.default_rng(4).standard_normal((5, 3)) * [[0.1], [1], [3], [10], [100]]
    f = y[:, None] * (X.astype(float) @ Q.T)
    expected = special.log_expit(f).sum(axis=0) - (Q**2).sum(axis=1) / 2 / 2.5**2
    slopes = (special.expit(-f) * y[:, None]).T @ X - Q / 2.5**2
    logps, gradients = model.logp_grads(Q)
    np.testing.assert_allclose(logps, expected, rtol=tolerance)
    np.testing.assert_allclose(model.logp_batch(Q), expected, rtol=tolerance)
    np.testing.assert_allclose(gradients, slopes, rtol=0, atol=30 * tolerance * n)


def test_single_precision_counts_few_rows_among_many():
    """Sums leave single precision before small terms are lost: 400,000 equal rows and one other."""
    X = np.ones((400_001, 1), np.float32)
    y = np.append(np.ones(400_000), -1)
    logp, gradient = regression("bernoulli", X, y, prior=Prior(scale=np.inf)).logp_grad([6.0])
    # Equal rows round 1 + t alike: 3e-8 each, which is the precision of the sum.
    assert logp == pytest.approx(400_000 * special.log_expit(6.0) + special.log_expit(-6.0), rel=2e-5)
    assert gradient[0] == pytest.approx(400_000 * special.expit(-6.0) - special.expit(6.0), rel=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_visible(dtype, bad):
    X, y = _data("bernoulli")
    model = regression("bernoulli", X.astype(dtype), y, prior=Prior(scale=np.inf))
    q = np.zeros(D)
    q[2] = bad
    assert not np.isfinite(model.logp_grad(q)[0])
    assert not np.isfinite(model.logp_batch(q[None])[0])


def test_linear_without_cancellation_and_with_columns_that_depend():
    X, y = _data("normal")
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    y = 1e6 + X @ np.arange(6.0) + 1e-3 * y
    X = np.column_stack([np.ones(N), X])
    model = regression("normal", X, y, prior=Prior(scale=np.inf, own_scale=np.inf))
    b = np.linalg.lstsq(X, y, rcond=None)[0]
    logp, _ = model.logp_grad(np.append(b, np.log(1e-3)))
    expected = -N * np.log(1e-3) - 0.5e6 * ((y - X @ b) ** 2).sum() + np.log(1e-3)
    assert logp == pytest.approx(expected, rel=1e-6)


def test_the_negative_binomial_tends_to_poisson():
    """Overdispersion 1e-9: the gamma functions of r = 1e9 must not cancel."""
    X, y = _data("poisson")
    q = np.full(D, 0.2)
    prior = Prior(scale=np.inf, own_scale=np.inf)
    near, limit = regression("negative_binomial", X, y, prior=prior), regression("poisson", X, y, prior=prior)
    small = np.log(1e-9)
    logp, gradient = near.logp_grad(np.append(q, small))
    expected, slopes = limit.logp_grad(q)
    assert logp - small == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(gradient[:D], slopes, rtol=1e-6)
    assert gradient[D] == pytest.approx(1, abs=1e-5)  # the Jacobian alone


def test_digamma():
    x = np.geomspace(1e-6, 1e8, 300)
    ours = [bayes_glm.digamma(value) for value in x]
    np.testing.assert_allclose(ours, special.digamma(x), rtol=1e-13, atol=1e-14)


def test_half_cauchy_far_out():
    for log_scale in (-400.0, 0.3, 400.0):
        value, slope = bayes_priors.half_cauchy(log_scale, 2.0)
        assert value == pytest.approx(log_scale - np.logaddexp(0, 2 * (log_scale + np.log(2))), rel=1e-12)
        assert slope == pytest.approx(-np.tanh(log_scale + np.log(2)), abs=1e-12)


def test_a_model_travels():
    import pickle

    X, y = _data("bernoulli")
    model = regression("bernoulli", X, y)
    copy = pickle.loads(pickle.dumps(model))
    q = np.linspace(-1, 1, D)
    assert copy.logp_grad(q)[0] == model.logp_grad(q)[0]
    assert copy.data.ctypes.data % 64 == model.data.ctypes.data % 64 == 0


# Random numbers ---------------------------------------------------------------------------------------


def _name(*numbers):
    return np.array(numbers, dtype=np.uint32)


def test_uniforms_are_the_words_of_philox():
    name = _name(7, 1, 2, 3, 4, 5)
    words = [int(w) for w in philox4x32(*name)]
    expected = ((words[0] >> 5) * 2**25 + (words[1] >> 7) + 0.5) / 2**52
    assert bayes_streams.uniforms(name, 1)[0] == expected
    assert name[0] == 7  # only a copy of the name moved on


def test_numbers_made_together_are_those_made_one_by_one():
    name = _name(7, 1, 2, 3, 4, 5)
    stream = name.copy()
    np.testing.assert_array_equal(
        bayes_streams.uniforms(name, 21), [bayes_streams.uniform(stream) for _ in range(21)]
    )
    assert stream[0] == 28
    for n in (1, 2, 9, 40):
        stream, out = name.copy(), np.empty(n)
        bayes_streams.fill_normal(stream, out)
        pairs = [bayes_streams._pair(_name(7 + k, 1, 2, 3, 4, 5)) for k in range(-(-n // 2))]
        expected = [
            np.sqrt(-2 * np.log(u)) * part(2 * np.pi * v) for u, v in pairs for part in (np.cos, np.sin)
        ]
        np.testing.assert_allclose(out, expected[:n], rtol=1e-12)
        assert stream[0] == 7 + len(pairs)


def test_normals_are_normal_and_independent_of_the_neighbour_streams():
    rows = [bayes_streams.normals(_name(0, draw, 0, 0, 9, 0), 1, 1001)[0] for draw in range(100)]
    x = np.array(rows)
    assert stats.kstest(x.ravel(), "norm").pvalue > 1e-4
    assert stats.kstest((x[:, :-1] * x[:, 1:]).sum(axis=1) / np.sqrt(1000), "norm").pvalue > 1e-4
    assert stats.kstest((x[:-1] * x[1:]).sum(axis=1) / np.sqrt(1001), "norm").pvalue > 1e-4
    assert len(np.unique(x)) == x.size


# The leapfrog step -------------------------------------------------------------------------------------


@nb.njit(error_model="numpy")
def _skewed(q, g, data, meta):
    logp = 0.0
    for j in range(len(q)):
        logp += 2.0 * q[j] - np.exp(q[j]) - 0.5 * q[0] * q[1] * q[0] * q[1]
        g[j] = 2.0 - np.exp(q[j])
    g[0] -= len(q) * q[0] * q[1] ** 2
    g[1] -= len(q) * q[0] ** 2 * q[1]
    return logp


def _leap(start, size, A, n=1):
    """Some leapfrog steps from (z, p); returns (z, p) and the change of the energy."""
    d = len(start) // 2
    z, p = start[:d].copy(), start[d:].copy()
    gz, q, g, mu = np.empty(d), np.empty(d), np.empty(d), np.full(d, 0.1)
    data, meta = np.empty(0), np.zeros(1, np.int64)
    density = address_of(_skewed, SIGNATURE)
    first = hmc.evaluate(density, z, gz, q, g, mu, A, data, meta) - p @ p / 2
    for _ in range(n):
        last = hmc.leapfrog(density, z, p, gz, q, g, mu, A, size, data, meta)
    return np.concatenate([z, p]), last - p @ p / 2 - first


@pytest.mark.parametrize(
    "A", [np.array([[0.7, 1.3, 1.0]]), np.tril(np.ones((3, 3))) * 0.6], ids=["scales", "triangle"]
)
def test_leapfrog_steps_go_back_keep_volumes_and_energies(A):
    start = np.array([0.2, -0.1, 0.4, 1.0, -0.5, 0.3])
    end, _ = _leap(start, 0.3, A, 5)
    assert np.abs(end - start).max() > 0.1
    np.testing.assert_allclose(_leap(end, -0.3, A, 5)[0], start, atol=1e-12)
    flip = np.repeat([1.0, -1.0], 3)
    np.testing.assert_allclose(_leap(end * flip, 0.3, A, 5)[0], start * flip, atol=1e-12)
    h = 1e-6
    columns = [
        (_leap(start + h * e, 0.3, A)[0] - _leap(start - h * e, 0.3, A)[0]) / (2 * h) for e in np.eye(6)
    ]
    assert np.linalg.det(np.array(columns)) == pytest.approx(1, abs=1e-7)
    errors = [abs(_leap(start, size, A, n)[1]) for size, n in ((0.02, 50), (0.01, 100))]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)  # second order
