"""A user's own density: compiled or Python, with gradients or without, right or wrong."""

import math
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numba as nb
import numpy as np
import pytest

from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models import density_check
from stradask.algorithms.bayes.models.called import CompiledCalls
from stradask.algorithms.bayes.models.density import user_model
from stradask.algorithms.bayes.posterior.convergence import ess
from stradask.algorithms.bayes.sample import sample
from stradask.errors import DataError
from stradask.kernels.bayes.chain import evaluate_all

X = np.random.default_rng(0).normal(3, 2, 60)
POWER = 0.25


def likelihood(q, x):
    """Normal with mean q_0 and standard deviation exp(q_1)."""
    return -len(x) * q[1] - 0.5 * ((x - q[0]) ** 2).sum() * math.exp(-2 * q[1])


def prior(q):
    return -0.5 * (q[0] ** 2 / 100 + q[1] ** 2)


def likelihood_and_slope(q, x):
    precision = math.exp(-2 * q[1])
    slope = [precision * (x - q[0]).sum(), precision * ((x - q[0]) ** 2).sum() - len(x)]
    return likelihood(q, x), np.array(slope)


def prior_and_slope(q):
    return prior(q), np.array([-q[0] / 100, -q[1]])


@nb.njit
def likelihood_adding(q, x, g):
    precision = math.exp(-2 * q[1])
    logp = -len(x) * q[1]
    g[1] -= len(x)
    for value in x:
        logp -= 0.5 * precision * (value - q[0]) ** 2
        g[0] += precision * (value - q[0])
        g[1] += precision * (value - q[0]) ** 2
    return logp


@nb.njit
def prior_adding(q, g):
    g[0] -= q[0] / 100
    g[1] -= q[1]
    return -0.5 * (q[0] ** 2 / 100 + q[1] ** 2)


FORMS = {
    "Python": (likelihood, prior),
    "Python with slopes": (likelihood_and_slope, prior_and_slope),
    "mixed": (likelihood_and_slope, prior),
    "compiled": (nb.njit(likelihood), nb.njit(prior)),
    "compiled with slopes": (likelihood_adding, prior_adding),
    "compiled, mixed": (likelihood_adding, nb.njit(prior)),
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_are_one_density(form):
    model = user_model(*FORMS[form], X, [1.0, 0.0], power=POWER, names=["mean", "log sd"])
    assert model.names == ("mean", "log sd")
    for q in ([0.3, 0.2], [3.0, 0.7], [5.0, -0.5]):
        value, slope = likelihood_and_slope(q, X)
        logp, gradient = model.logp_grad(q)
        assert logp == pytest.approx(value + POWER * prior(q), rel=1e-12)
        np.testing.assert_allclose(
            gradient, slope + POWER * prior_and_slope(np.array(q))[1], rtol=1e-6, atol=1e-6
        )


def test_compiled_and_python_densities_give_the_same_chain_and_the_right_one():
    chains = []
    for form in ("Python with slopes", "compiled with slopes"):
        model = user_model(*FORMS[form], X, [1.0, 0.0])
        chains.append(
            sample_model(model, "nuts", n_samples=300, n_warmup=200, n_chains=2, n_jobs=2).stacked()
        )
    # Sums differ in the last bit, and a chain magnifies that: compare what it begins with and where it is.
    np.testing.assert_allclose(chains[0][:, :3], chains[1][:, :3], rtol=0.2)
    for x in chains:
        z = (x[..., 0].mean() - X.mean()) / (X.std() / np.sqrt(60) / np.sqrt(ess(x)[0]))
        assert abs(z) < 5


def test_two_axes_of_data():
    rows = np.column_stack([np.ones(50), np.linspace(-1, 1, 50), np.linspace(0, 2, 50)])

    @nb.njit
    def squares(q, x):
        total = 0.0
        for i in range(x.shape[0]):
            total -= 0.5 * (x[i, 2] - x[i, 0] * q[0] - x[i, 1] * q[1]) ** 2
        return total

    logp, gradient = user_model(squares, None, rows, [0.0, 0.0]).logp_grad([1.0, 1.0])
    assert logp == pytest.approx(0, abs=1e-12)  # the line is exact
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_a_python_model_travels():
    model = user_model(likelihood_and_slope, prior, X, [1.0, 0.0])
    copy = pickle.loads(pickle.dumps(model))
    assert copy.meta[0] != model.meta[0]
    assert copy.logp_grad([1.0, 1.0])[0] == model.logp_grad([1.0, 1.0])[0]


def test_an_error_inside_is_raised_once_and_stops_the_run():
    calls = []

    def failing(q, x):
        calls.append(q)
        if len(calls) > 400:
            raise RuntimeError("of mine")
        return -0.5 * (q**2).sum(), -q

    model = user_model(failing, None, X, [0.0])
    with pytest.raises(RuntimeError, match="of mine"):
        sample_model(model, "nuts", n_chains=1)
    assert len(calls) == 401
    calls.clear()
    assert model.logp_grad([1.0])[0] == -0.5  # usable again


def _wrong_sign(q, x):
    return -0.5 * (q**2).sum(), np.array([-q[0], q[1]])


def _no_slope(q, x):
    return -0.5 * (q**2).sum(), np.array([-q[0], np.nan])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_wrong_sign, r"gradient for the parameter 'b' is .*differences of the log density give -"),
        (_no_slope, "gradient of the log density for the parameter 'b' is nan"),
        (lambda q, x: np.nan, "log density is nan at"),
        (lambda q, x: np.inf, "log density is inf at"),
        (lambda q, x: -np.inf, "log density is -inf at"),
        (lambda q, x: 1.0, "does not depend on the parameter 'a'"),
        (lambda q, x: -(q[0] ** 2), "does not depend on the parameter 'b'"),
        (lambda q, x: (-(q[0] ** 2), np.zeros(3)), r"gradient of log_likelihood has the shape \(3,\)"),
        (lambda q, x: -q, "must return one number"),
        (lambda q, x: "x", "log_likelihood must return one number, got a str"),
        (lambda q, x: (-(q[0] ** 2),), r"log_likelihood must return a number or \(value, gradient\), got"),
    ],
)
def test_wrong_densities_are_named(function, message):
    with pytest.raises(DataError, match=message):
        user_model(function, None, X, [0.5, 0.25], names=["a", "b"])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda q, x: -((x - q[0]) ** 2),
            r"log_likelihood must return one number, got array\(float64, 1d, C\)",
        ),
        (lambda q, x, g: None, "log_likelihood must return one number, got none"),
        (lambda q, x, g: q.size_of, r"log_likelihood does not compile for .*array\(float64, 1d, C\)"),
        (lambda q, x: 0.0 * q[0], None),
    ],
)
def test_compiled_functions_that_return_no_number_are_named(function, message):
    sound, bad = nb.njit(lambda q, x: 0.0 * q[0]), nb.njit(lambda q: (q[0], q))
    functions = (nb.njit(function), None) if message else (sound, bad)
    with pytest.raises(DataError, match=message or "log_prior must return one number, got Tuple"):
        user_model(*functions, X, [0.5, 0.25])


def test_an_error_on_one_thread_ends_others_and_is_raised_on_each():
    def density(q, x):
        if q[0] > 1:
            raise RuntimeError("beyond 1")
        return -0.5 * q[0] ** 2, -q

    model = user_model(density, None, X, [0.0], check=False)
    with ThreadPoolExecutor(1) as other:
        logps, _ = other.submit(
            evaluate_all, model.address, np.array([[2.0]]), model.data, model.meta
        ).result()
        assert np.isnan(logps[0])  # such draws must never be kept
        for told in (lambda: model.logp_grad([0.0]), lambda: other.submit(model.raise_errors).result()):
            with pytest.raises(RuntimeError, match="beyond 1"):
                told()
        assert model.logp_grad([1.0])[0] == -0.5  # and then it is over
        other.submit(model.raise_errors).result()


def test_a_small_error_of_a_compiled_gradient_is_found():
    @nb.njit
    def nearly(q, x, g):
        g[0] -= 1.01 * q[0]
        g[1] -= q[1]
        return -0.5 * (q[0] ** 2 + q[1] ** 2)

    with pytest.raises(DataError, match=r"gradient for the parameter 'q\[0\]'"):
        user_model(nearly, None, X, [1.0, 1.0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((likelihood, prior, X, [[0.0, 0.0]]), "start must be a vector"),
        ((likelihood, prior, X, []), "start must be a vector"),
        ((likelihood, prior, X, ["a"]), "start must be a vector of numbers"),
        ((likelihood, prior, X, [np.nan, 0.0]), "start must be a vector of finite"),
        ((None, prior, X, [0.0, 0.0]), "must be a function"),
        ((likelihood, 3, X, [0.0, 0.0]), "must be a function"),
        ((nb.njit(likelihood), None, ["a"], [0.0, 0.0]), "must be an array of numbers"),
        ((nb.njit(likelihood), None, np.zeros((2, 2, 2)), [0.0, 0.0]), "one or two axes"),
        ((nb.njit(lambda q: 0.0), None, X, [0.0]), "must take"),
        (
            (likelihood_adding, prior, X, [0.0, 0.0]),
            r"log_likelihood\(q, data, g\) is compiled and the other",
        ),
        ((likelihood, prior_adding, X, [0.0, 0.0]), r"log_prior\(q, g\) is compiled and the other"),
    ],
)
def test_impossible_arguments(arguments, message):
    with pytest.raises(DataError, match=message):
        user_model(*arguments)
    with pytest.raises(DataError, match="names must be 2 different strings"):
        user_model(likelihood, prior, X, [1.0, 0.0], names=["a", "a"])


# sample() ----------------------------------------------------------------------------------------------


def _slopes(q, data):
    """A line with known noise; data are a tuple of x and y."""
    x, y = data
    rest = y - q[0] - q[1] * x
    return -0.5 * (rest**2).sum(), np.array([rest.sum(), (rest * x).sum()])


def _line(n=600):
    rng = np.random.default_rng(2)
    x = rng.standard_normal(n)
    y = 1 + 2 * x + rng.standard_normal(n)
    A = np.column_stack([np.ones(n), x])
    covariance = np.linalg.inv(A.T @ A + np.eye(2) / 4)  # with the prior N(0, 2)
    return (x, y), covariance @ A.T @ y, covariance


def _normal_prior(q):
    return -0.125 * (q**2).sum(), -0.25 * q


@pytest.mark.parametrize(
    ("n_shards", "sampler"),
    [(1, "auto"), (3, "auto"), (1, "nuts"), pytest.param(3, "nuts", marks=pytest.mark.slow)],
)
def test_sample_is_the_closed_form(n_shards, sampler):
    data, mean, covariance = _line()
    posterior = sample(
        _slopes,
        _normal_prior,
        data,
        [0.0, 0.0],
        names=["a", "b"],
        sampler=sampler,
        n_shards=n_shards,
        n_samples=600,
        n_warmup=300,
        random_state=0,
    )
    sd = np.sqrt(np.diag(covariance))
    assert posterior.names == ["a", "b"]
    found = posterior.mean()
    assert np.abs(np.array([found["a"], found["b"]]) - mean).max() < (4 * sd / np.sqrt(500)).max()
    np.testing.assert_allclose([posterior.sd()["a"], posterior.sd()["b"]], sd, rtol=0.15)
    assert (posterior.shard_draws is None) == (n_shards == 1)


def test_sample_with_compiled_functions_in_shards():
    rows = np.random.default_rng(4).normal(2, 1, 400)
    options = {"names": ["mean", "log sd"], "random_state": 0, "n_samples": 500}
    one, four = (
        sample(likelihood_adding, prior_adding, rows, [1.0, 0.0], n_shards=n, **options) for n in (1, 4)
    )
    for name in one.names:
        assert abs(one.mean()[name] - four.mean()[name]) < 5 * one.sd()[name] / np.sqrt(800)
    again = sample(likelihood_adding, prior_adding, rows, [1.0, 0.0], n_shards=4, n_jobs=2, **options)
    assert (again.draws == four.draws).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_shards": 61}, "n_shards=61, but there are 60 rows"),
        ({"n_shards": 0}, "n_shards=0"),
        ({"n_shards": 2.5}, "n_shards must be 'auto' or an integer"),
        ({"combine": "hope"}, "combine='hope' is unknown"),
        ({"sampler": "stan"}, "sampler must be one of"),
        ({"sampler": "laplace", "n_shards": 2}, "no combination takes"),
        ({"data": (X, X[:5]), "n_shards": 2}, "as many observations"),
        ({"data": 3.0, "n_shards": 2}, "observations along the first axis"),
    ],
)
def test_sample_refuses(options, message):
    arguments = {"data": X, **options}
    with pytest.raises(DataError, match=message):
        sample(likelihood_and_slope, prior, arguments.pop("data"), [1.0, 0.0], **arguments)


# What a user may stumble over ----------------------------------------------------------------------------


def _of_numbers(q, x):
    return -0.5 * ((x - q[0]) ** 2).sum() - x.shape[0], np.array([(x - q[0]).sum()])


@pytest.mark.parametrize("data", [[1.0, 2.0, 4.0], [[1, 2], [4, 5]], [(1.0, 2.0), (4.0, 5.0)]])
def test_lists_of_numbers_are_arrays(data):
    options = {"n_samples": 50, "random_state": 0}
    found = sample(_of_numbers, None, data, [0.0], **options)
    given = sample(_of_numbers, None, np.array(data), [0.0], **options)
    np.testing.assert_array_equal(found.draws, given.draws)


def test_lists_in_a_tuple_are_arrays():
    found = sample(
        lambda q, data: _of_numbers(q, data[0] + data[1]), None, ([1.0, 2.0], [3.0, 4.0]), [0.0], n_samples=50
    )
    assert found.draws.shape == (200, 1)


def test_a_warning_of_long_differences_comes_before_the_checks(monkeypatch):
    monkeypatch.setattr(density_check, "_seconds_of_gradient", lambda model: 0.03)

    def value(q, x):
        return -0.5 * ((x - q) ** 2).sum()

    words = r"5 evaluations of 6000 microseconds: 8000 draws of NUTS.* some 28 minutes.* \(value, gradient\)"
    with pytest.warns(UserWarning, match=words):
        user_model(value, None, np.ones(2), np.zeros(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        user_model(lambda q, x: (value(q, x), x - q), None, np.ones(2), np.zeros(2))
    assert not CompiledCalls.is_differenced.fget(SimpleNamespace(functions=()))  # PyTensor's
