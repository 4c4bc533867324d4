"""Values that follow from parameters: kept with the draws of `sample`, in one piece and in shards."""

import numba as nb
import numpy as np
import pytest

import stradask as sd
from stradask.errors import DataError

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
