"""What must not be trusted: densities that cannot be normalised, modes that no chain saw."""

import threading
import warnings
from contextlib import nullcontext

import numba
import numpy as np
import pytest
from scipy import special

import stradask as sd
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.combine.collect import from_sample
from stradask.algorithms.bayes.models.density import user_model
from stradask.algorithms.bayes.shards.chains import Densities
from stradask.errors import DataError, PosteriorWarning

X = np.random.default_rng(0).normal(3, 1, 60)
FEW = {"n_samples": 300, "n_warmup": 200, "random_state": 0}


def _normal(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum()


@numba.njit
def _compiled_ridge(q, x):
    return -0.5 * ((x - q[0] - q[1]) ** 2).sum()


def _ridge(q, x):
    return _compiled_ridge.py_func(q, x)


@pytest.mark.parametrize(
    ("log_likelihood", "start", "message"),
    [
        (
            _ridge,
            [0.0, 0.0],
            r"does not fall along [-+]1 q\[0\] [-+]1 q\[1\]: the posterior cannot be normalised",
        ),
        (_compiled_ridge, [0.0, 0.0], r"does not fall along [-+]1 q\[0\] [-+]1 q\[1\]"),
        (lambda q, x: special.log_expit(q[0] * np.abs(x)).sum(), [0.0], r"does not fall along \+1 q\[0\]"),
        (lambda q, x: 0.3 * q[0] + _normal(q[1:], x), [0.0, 0.0], r"does not fall along \+1 q\[0\]"),
        (lambda q, x: -np.log1p(q[0] ** 2) / 4 * (x[0] > -99), [0.0], r"does not fall along \+1 q\[0\]"),
    ],
)
def test_a_density_that_cannot_be_normalised_is_refused(log_likelihood, start, message):
    with pytest.raises(DataError, match=message):
        sd.sample(log_likelihood, None, X, start, n_shards=1, **FEW)


def test_a_shard_that_cannot_be_normalised_is_refused():
    """Student's t with one degree of freedom to the power 1/3 falls too slowly."""

    def log_prior(q):
        return -np.log1p(q[0] ** 2) - 0.5 * q[1] ** 2

    def log_likelihood(q, x):
        return -0.5 * ((x - q[1]) ** 2).sum()

    assert user_model(log_likelihood, log_prior, X, [0.0, 0.0]).n_params == 2
    with pytest.raises(DataError, match=r"does not fall along [-+]1 q\[0\]"):
        user_model(log_likelihood, log_prior, X, [0.0, 0.0], power=1 / 3)


@pytest.mark.parametrize(
    ("log_likelihood", "log_prior", "start"),
    [
        (_compiled_ridge, numba.njit(lambda q: -0.5 * (q[0] / 1e3) ** 2), [0.0, 0.0]),
        (lambda q, x: -0.5 * (q[0] / 1e7) ** 2 + 0 * x[0], None, [0.0]),
        (lambda q, x: -np.log1p((x[:2] - q[0]) ** 2).sum(), None, [3.0]),
        (lambda q, x: -np.exp(q[0]) + 5 * q[0] + 0 * x[0], None, [0.0]),
        (lambda q, x: -0.5 * (q[0] / 1e12) ** 2 + 0 * x[0], None, [0.0]),
        (lambda q, x: -0.5 * (q[0] / 1e25) ** 2 + 0 * x[0], None, [0.0]),
        (lambda q, x: -np.log1p((q[0] / 1e12) ** 2) + 0 * x[0], None, [0.0]),
        (_compiled_ridge, numba.njit(lambda q: -np.log1p((q[0] / 1e12) ** 2)), [0.0, 0.0]),
        (lambda q, x: _short_of(q[0]), None, [0.0]),
    ],
)
def test_wide_and_heavy_tailed_densities_are_not(log_likelihood, log_prior, start):
    assert user_model(log_likelihood, log_prior, X, start).n_params == len(start)


def _short_of(q):
    """Wide, and with an error of its own where no chain comes."""
    if abs(q) > 1e12:
        raise RuntimeError("too far out")
    return -0.5 * (q / 1e11) ** 2


def _two_modes(q, x):
    return np.logaddexp(-0.5 * ((q[0] - 8) / 0.1) ** 2, -0.5 * ((q[0] + 1) / 0.1) ** 2) - 1e-4 * q[0] ** 2


@pytest.mark.parametrize("sampler", ["laplace", "split_hmc"])
def test_a_mode_that_no_chain_saw_is_told_of(sampler):
    with pytest.warns(PosteriorWarning, match=r"missed mode 0\.[45]"):
        posterior = sd.sample(_two_modes, None, X, [0.0], sampler=sampler, **FEW)
    assert posterior.diagnostics.level >= 1
    assert "searches from scattered points end in other modes" in str(posterior.diagnostics)
    one = sd.sample(_normal, None, X, [0.0], sampler=sampler, **FEW)
    assert "other modes" not in str(one.diagnostics)


def test_modes_that_normal_densities_describe_have_their_shares():
    """Two modes of Student's t, 30 scales apart, one with a third of the posterior."""

    def density(q, x):
        one, two = (-301 / 2 * np.log1p((q[0] - at) ** 2 / 300) for at in (0, 30))
        return np.logaddexp(one, two - np.log(2))

    with warnings.catch_warnings():
        warnings.simplefilter("error", PosteriorWarning)
        found = sd.sample(density, None, X, [0.0], random_state=0, n_samples=500, n_warmup=100)
    assert found.method.startswith("laplace")
    assert found.diagnostics.level == 0
    assert (found.draws > 15).mean() == pytest.approx(1 / 3, abs=4 * np.sqrt(2 / 9 / len(found)))


@pytest.mark.parametrize("log_part", [0.0, -15.0])
def test_chains_begin_in_each_mode_that_counts(log_part):
    """Two normal modes 45 standard deviations apart in five dimensions: no chain changes places."""

    def density(q, x):
        logps = np.array([-0.5 * q @ q, log_part - 0.5 * (q - 20) @ (q - 20)])
        total = np.logaddexp(*logps)
        return total, np.exp(logps - total) @ np.stack([-q, 20 - q])

    def draw():
        return sd.sample(density, None, X, np.zeros(5), n_chains=4, **FEW)

    if log_part:
        one = draw()
        assert one.diagnostics.row("modes")["value"] == 1
        assert (np.abs(one.draws) < 10).all()
        return
    both = draw()  # by proposals about both
    assert "about all 2 modes" in both.method
    assert both.diagnostics.level == 0
    assert both.diagnostics.row("modes")["value"] == 2
    assert abs((both.draws[:, 0] > 10).mean() - 0.5) < 4 * 0.5 / np.sqrt(len(both))


@pytest.mark.parametrize(
    ("sampler", "words"), [("auto", r"missed mode 0\.[45]"), ("split_hmc", r"missed mass 0\.5")]
)
def test_a_narrow_mode_within_a_wide_one_is_not_forgotten(sampler, words):
    """Half N(0, .01^2 I), half N(0, I) in five dimensions: each sampler knows one of the two."""

    def nested(q, x):
        parts = np.array([-0.5 * q @ q / 1e-4 - 5 * np.log(0.01), -0.5 * q @ q])
        total = np.logaddexp(*parts)
        share = np.exp(parts - total)
        return total, -q * (share[0] / 1e-4 + share[1])

    with pytest.warns(PosteriorWarning, match=words):
        found = sd.sample(nested, None, X, np.zeros(5), sampler=sampler, n_chains=4, **FEW)
    assert found.diagnostics.level == 2
    assert abs(found.draws.std() - np.sqrt(0.5)) > 0.25


@numba.njit
def _far_apart(q, x):
    return np.logaddexp(-0.5 * q[0] ** 2, -0.5 * (q[0] - 40) ** 2)


@pytest.mark.parametrize("sampler", ["nuts", "hmc", "mala", "slice"])
def test_chains_asked_for_by_name_are_told_of_the_mode_that_all_missed(sampler):
    with pytest.warns(PosteriorWarning, match=r"missed mode 0\.5"):
        found = sd.sample(_far_apart, None, X, [0.0], sampler=sampler, random_state=0)
    assert found.diagnostics.level == 2
    assert np.abs(found.draws).max() < 20


def test_two_modes_that_chains_go_between_are_not_missed():
    """Three standard deviations apart, mixed in equal parts: mean 1.5, variance 1 + 2.25."""

    def density(q, x):
        return np.logaddexp(-0.5 * q[0] ** 2, -0.5 * (q[0] - 3.0) ** 2)

    found = sd.sample(numba.njit(density), None, X, [0.0], sampler="nuts", random_state=0)
    assert found.diagnostics.level == 0
    assert found.diagnostics.row("modes")["value"] == 2
    assert abs(found.draws.mean() - 1.5) < 0.2
    assert abs(found.draws.std() - np.sqrt(3.25)) < 0.2


def test_the_search_for_modes_is_short_and_may_fail_far_out():
    """Beyond 20 the density fails for the search alone, many of whose points lie there."""
    points, end = [], [np.inf]

    def density(q, x):
        points.append(q[0])
        if abs(q[0]) > end[0]:
            raise RuntimeError("too far out")
        return -0.5 * q[0] ** 2, -q

    model = user_model(density, None, X, [0.0])
    points.clear()
    plain = sample_model(model, "nuts", seed=1)
    n_plain = len(points)
    points.clear()
    end[0] = 20.0
    found = from_sample(model, plain, Densities([], lambda _: {"theta": (1,)}), 1)
    assert max(map(abs, points)) > 20
    assert len(points) < 0.1 * n_plain
    np.testing.assert_array_equal(found.draws, plain.stacked().reshape(-1, 1))
    assert found.diagnostics.row("modes")["value"] == 1
    assert found.diagnostics.row("modes")["verdict"] == "good"


def test_a_density_that_ends_at_its_top_has_no_mode_to_sample_about():
    def half_normal(q, x):
        return (-0.5 * q[0] ** 2 if q[0] > 0 else -np.inf), -q

    for sampler in ("laplace", "split_hmc"):
        with pytest.raises(DataError, match="need a mode with a definite Hessian"):
            sd.sample(half_normal, None, None, [0.7], sampler=sampler, **FEW)
    with pytest.warns(PosteriorWarning, match="divergences"):
        found = sd.sample(half_normal, None, None, [0.7], sampler="nuts", **FEW)
    assert (found.draws > 0).all()


def test_messages_name_value_and_remedy():
    lock = threading.Lock()
    cases = [
        (
            lambda q, x: (lock, _normal(q, x))[1],
            {"engine": "dask", "n_shards": 2},
            "pickle '_thread.lock' object; let",
        ),
        (
            lambda q, x: (_normal(q, x), np.zeros(2)),
            {},
            r"the shape \(2,\), its argument \(1,\): return one number",
        ),
        (
            lambda q, x: (_normal(q, x), -np.array([(x - q[0]).sum()])),
            {},
            "gradient for the parameter 'mu' is",
        ),
        (_normal, {"n_shards": 61}, "n_shards=61, but there are 60 rows: take from 1 to 60"),
        (
            _normal,
            {"n_shards": 2, "n_samples": 2, "n_chains": 1},
            "needs 3 draws a shard, got 2: take more draws",
        ),
        (lambda q, x: np.inf, {}, "the log density is inf at"),
        (lambda q, x: -1.0, {}, "does not depend on the parameter 'mu': leave it out"),
    ]
    for log_likelihood, options, message in cases:
        with pytest.raises(DataError, match=message):
            sd.sample(log_likelihood, None, X, [0.0], names=["mu"], **FEW | options)
    rare = np.arange(60) == 3
    with pytest.raises(DataError, match=r"all rows of shard \d of 2 are of one class: take prior='normal'"):
        sd.BayesianLogisticRegression(prior_scale=np.inf, n_shards=2).fit(X[:, None], rare)


def test_the_chains_of_an_improper_shard_are_bounded():
    """The line along which it does not fall is crooked, which no check finds: the verdict does."""

    def crooked(q, x):
        return -0.5 * (q[1] - np.sin(3 * q[0]) * 2 - 0.5 * q[0]) ** 2 * 100 + 0 * x[0]

    with pytest.warns(PosteriorWarning, match="Do not use these draws"):
        sd.sample(
            crooked,
            None,
            X,
            [0.0, 0.0],
            n_chains=2,
            sampler="nuts",
            n_samples=40,
            n_warmup=40,
            random_state=0,
        )


# Shards that the prior to the power 1/M does not hold ---------------------------------------------------


class Begun(Exception):
    """The door let a fit through."""


@pytest.fixture
def no_draws(monkeypatch):
    def begin(self, *args, **options):
        raise Begun

    monkeypatch.setattr(sd.BayesianLinearRegression, "_draw", begin)
    monkeypatch.setattr(sd.BayesianLogisticRegression, "_draw", begin)
    monkeypatch.setattr(sd.BayesianPoissonRegression, "_draw", begin)


@pytest.mark.usefixtures("no_draws")
@pytest.mark.parametrize("noise", ["normal", "student_t"])
def test_a_shard_without_noise_is_named(noise):
    X, y = np.random.default_rng(0).standard_normal((40, 2)), np.zeros(40)
    y[7] = 1.0  # in one of two shards, and the other is constant
    model = sd.BayesianLinearRegression(noise, intercept_scale=1.0, random_state=0)
    with pytest.raises(Begun):
        model.fit(X, y)
    with pytest.raises(DataError, match=r"shard [01] of 2: y is a linear .*; or take a smaller n_shards"):
        model.set_params(n_shards=2).fit(X, y)


@pytest.mark.usefixtures("no_draws")
def test_a_shard_that_says_nothing_of_the_overdispersion_is_named():
    X, y = np.random.default_rng(0).standard_normal((40, 2)), np.zeros(40)
    y[[3, 9, 30]] = 2.0  # at most one of them in one of the shards
    model = sd.BayesianPoissonRegression("negative_binomial", overdispersion_scale=np.inf, random_state=0)
    with pytest.raises(Begun):
        model.fit(X, y)
    with pytest.raises(
        DataError, match=r"shard [01] of 2: overdispersion_scale=inf is flat, and [01] counts"
    ):
        model.set_params(n_shards=2).fit(X, y)


@pytest.mark.usefixtures("no_draws")
def test_ridges_across_the_axes_are_refused_where_the_prior_does_not_fall_fast_enough():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((60, 1)), 2, axis=1)
    X[11, 1] += 3.0  # one row tells the columns apart: the other shard has a ridge, its own a slope
    y = rng.random(60) < 0.5
    model = sd.BayesianLogisticRegression("student_t", random_state=0)
    for freedom, n_shards in ((1.0, 1), (1.1, 2)):
        tails = pytest.warns(PosteriorWarning, match="Student's t with 0.05 degrees of freedom")
        with tails if n_shards > 1 else nullcontext(), pytest.raises(Begun):
            model.set_params(prior_freedom=freedom, n_shards=n_shards).fit(X, y)
    for freedom, n_shards in ((1.0, 2), (2.0, 3)):
        said = (
            rf"improper to the power 1/{n_shards}, and the rows of shard .*(depend on|separate the classes)"
        )
        with pytest.raises(DataError, match=said):
            model.set_params(prior_freedom=freedom, n_shards=n_shards).fit(X, y)
