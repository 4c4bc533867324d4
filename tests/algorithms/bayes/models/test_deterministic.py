"""Values that follow from parameters: kept with the draws of `sample`, in one piece and in shards."""

import numba as nb
import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.bayes.posterior.convergence import split_rhat
from stradask.errors import DataError, PosteriorWarning

X = np.random.default_rng(0).normal(2, 3, 400)
PARAMETERS = {"mean": sd.real(), "sigma": sd.positive()}


def log_likelihood(p, x):
    z = (x - p.mean) / p.sigma
    slopes = {"mean": z.sum() / p.sigma, "sigma": ((z**2).sum() - len(x)) / p.sigma}
    return -len(x) * np.log(p.sigma) - 0.5 * (z**2).sum(), slopes


def follows(p):
    return {"variance": p.sigma**2, "band": [p.mean - p.sigma, p.mean + p.sigma]}


@pytest.mark.parametrize("n_shards", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_values_are_those_of_each_draw(n_shards, tmp_path):
    posterior = sd.sample(
        log_likelihood, None, X, parameters=PARAMETERS, deterministic=follows, n_shards=n_shards,
        n_samples=200, random_state=0,
    )  # fmt: skip
    assert posterior.variables == {"mean": (), "sigma": (), "variance": (), "band": (2,)}
    np.testing.assert_allclose(posterior["variance"], posterior["sigma"] ** 2, rtol=1e-14)
    np.testing.assert_array_equal(posterior["band"][:, 1], posterior["mean"] + posterior["sigma"])
    plain = sd.sample(
        log_likelihood, None, X, parameters=PARAMETERS, n_shards=n_shards, n_samples=200, random_state=0
    )
    np.testing.assert_array_equal(posterior.draws[:, :2], plain.draws)
    assert posterior.summary().rows[2:] == ["variance", "band[0]", "band[1]"]
    posterior.save(tmp_path / "posterior.npz")
    np.testing.assert_array_equal(sd.Posterior.load(tmp_path / "posterior.npz")["band"], posterior["band"])
    rows = posterior.log_likelihood(5, random_state=0)
    np.testing.assert_array_equal(rows, plain.log_likelihood(5, random_state=0))


def test_vectors_and_c_functions():
    @nb.cfunc("float64(CPointer(float64), CPointer(float64), int64)")
    def normal(q, g, d):
        g[0], g[1] = -q[0], -q[1]
        return -0.5 * (q[0] ** 2 + q[1] ** 2)

    settings = {"n_samples": 100, "random_state": 0, "deterministic": lambda q: {"radius": np.hypot(*q)}}
    for density, *given in (
        (sd.from_pointer(normal, [0.0, 0.0]),),
        (lambda q, x: (-0.5 * q @ q, -q), None, X, [0.0, 0.0]),
    ):
        posterior = sd.sample(density, *given, **settings)
        np.testing.assert_allclose(posterior["radius"], np.hypot(*posterior["theta"].T), rtol=1e-15)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (3, "deterministic must be a function"),
        (lambda: {}, "is called as deterministic.p."),
        (lambda p: p.sigma, "must return a dict of numbers"),
        (lambda p: {}, "must return a dict of numbers"),
        (lambda p: {"sigma": 1.0}, "which is a parameter"),
        (lambda p: {"text": "a"}, "must return numbers"),
        (lambda p: {"one": np.nan}, "returns one="),
        (lambda p: {"one": p.nothing}, "fails at .*AttributeError"),
    ],
)
def test_what_is_refused_before_sampling(function, words):
    def never(p, x):
        raise AssertionError("sampled")

    with pytest.raises(DataError, match=words):
        sd.sample(never, None, X, parameters=PARAMETERS, deterministic=function)


# What is said of them --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["auto", "nuts", "smc"])
def test_values_without_a_mean_are_not_trusted(sampler):
    """The reciprocal of a normal number about zero has no mean."""
    given = {"parameters": {"m": sd.real()}, "priors": {"m": sd.priors.normal()}, "sampler": sampler}

    def heavy(p):
        return {"odds": np.exp(40 * p.m), "ratio": 1 / float(p.m)}

    assert sd.sample(None, random_state=0, **given).diagnostics.level == 0
    with pytest.warns(PosteriorWarning, match="the mean and the sd, which may be infinite"):
        found = sd.sample(None, random_state=0, deterministic=heavy, **given)
    assert found.diagnostics.level == 1
    assert found.diagnostics.row("k-hat of tails")["in words"].endswith(("odds", "ratio"))


def test_values_without_a_mean_are_not_trusted_in_shards():
    given = {"parameters": PARAMETERS, "n_shards": 2, "random_state": 0}
    with pytest.warns(PosteriorWarning, match="a few draws are most of it"):
        found = sd.sample(
            log_likelihood, None, X, deterministic=lambda p: {"ratio": 1 / (p.mean - 1.9)}, **given
        )
    assert found.diagnostics.row("error of sd")["in words"].endswith("ratio")


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
def test_chains_are_judged_by_them():
    """Two modes of equal distance from zero: the radius mixes, the side does not."""

    @nb.njit
    def ring(p, g):
        g.x[0] += 2000 * p.x * (1 - p.x**2)
        return -500 * (p.x**2 - 1) ** 2

    posterior = sd.sample(
        None, ring, parameters={"x": sd.real()}, start={"x": 1.0}, sampler="nuts", n_samples=200,
        deterministic=lambda p: {"radius": abs(p.x), "always": 1.0, "rare": float(abs(p.x) > 1.05)},
        random_state=0,
    )  # fmt: skip
    chains = posterior.draws.reshape(4, 200, 4)
    expected = max(split_rhat(chains[..., j]) for j in (0, 1, 3) if np.ptp(chains[..., j]) > 0)
    assert posterior.diagnostics.row("R-hat")["value"] == pytest.approx(expected)


def test_a_rare_event_does_not_spoil_the_verdict():
    """3 % of the draws: both tail quantiles are the largest value."""
    posterior = sd.sample(
        None, None, parameters={"a": sd.real()}, priors={"a": sd.priors.normal()}, random_state=0,
        deterministic=lambda p: {"usual": float(p.a < 1.9)}, sampler="nuts",
    )  # fmt: skip
    assert 0.95 < posterior.mean()["usual"] < 1
    assert posterior.diagnostics.level == 0


def test_a_quotient_without_a_value_at_the_start():
    posterior = sd.sample(
        None, None, parameters={"a": sd.real()}, priors={"a": sd.priors.normal(5, 0.1)}, random_state=0,
        deterministic=lambda p: {"inverse": 1 / float(p.a)},
    )  # fmt: skip
    np.testing.assert_allclose(posterior["inverse"], 1 / posterior["a"], rtol=1e-15)
    assert posterior.diagnostics.level == 0
