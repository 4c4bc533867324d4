"""Errors inside a density: points outside of its domain are rejected and counted, other faults end the run.

The truth is that of exponential waiting times: the rate has a Gamma(n + 1, sum) density, and none below zero,
where a Cholesky factor, a division or a logarithm fails.
"""

import math
import pickle

import numba as nb
import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.chains.chain import advance, init
from stradask.algorithms.bayes.chains.laplace import find_mode, laplace_draws
from stradask.algorithms.bayes.models.density import user_model
from stradask.algorithms.bayes.posterior.draws import NamedValues
from stradask.errors import DataError

X = np.ones(1)
TRUTH = stats.gamma(2)
SHORT = {"n_samples": 100, "n_warmup": 100, "n_chains": 2, "random_state": 0}


def cholesky(q, x):
    root = np.linalg.cholesky(np.array([[q[0]]]))
    return 2.0 * len(x) * np.log(root[0, 0]) - q[0] * x.sum()


def raising(q, x):
    if q[0] <= 0.0:
        raise ValueError("a rate must be above zero")
    return len(x) * math.log(q[0]) - q[0] * x.sum()


def dividing(q, x):
    return len(x) * np.log(float(q[0] > 0) / max(float(1 / q[0]), 0.0)) - q[0] * x.sum()


def filling(q, x, g):
    if q[0] <= 0.0:
        raise ValueError("a rate must be above zero")
    g[0] += len(x) / q[0] - x.sum()
    return len(x) * math.log(q[0]) - q[0] * x.sum()


def with_slope(q, x):
    if q[0] <= 0.0:
        raise FloatingPointError("the slope has no value")
    return len(x) * math.log(q[0]) - q[0] * x.sum(), np.array([len(x) / q[0] - x.sum()])


FAILING = {
    "cholesky": (cholesky, "LinAlgError: Matrix is not positive definite"),
    "compiled cholesky": (nb.njit(cholesky), "LinAlgError: Matrix is not positive definite"),
    "ValueError": (raising, "ValueError: a rate must be above zero"),
    "compiled ValueError": (nb.njit(raising), "ValueError: a rate must be above zero"),
    "compiled, with a slope": (nb.njit(filling), "ValueError: a rate must be above zero"),
    "division": (dividing, "ZeroDivisionError: float division by zero"),
    "with a slope": (with_slope, "FloatingPointError: the slope has no value"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_point_outside_of_the_domain_has_no_density(name):
    function, words = FAILING[name]
    model = user_model(function, None, X, [1.0], names=["rate"])
    for one in (model, pickle.loads(pickle.dumps(model))):
        one.take_tally()
        logps, gradients = one.logp_grads(np.array([[2.0], [-1.0], [-2.0]]))
        assert logps[0] == pytest.approx(math.log(2) - 2)
        assert gradients[0, 0] == pytest.approx(-0.5, rel=1e-6)
        assert (logps[1:] == -np.inf).all()
        tally = one.take_tally()
        assert (tally.failed, tally.undefined) == (2, 0)
        assert tally.first == f"{words}, at rate = -1"
        assert one.take_tally().failed == 0


# Short chains up to a wall: samplers are warned of for several reasons; the line "failed" is what counts.
@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "sampler", ["auto", "laplace", "nuts", "split_hmc", "hmc", "mala", "random_walk", "slice"]
)
def test_every_sampler_rejects_counts_and_names(sampler, compiled):
    function, words = FAILING["compiled ValueError" if compiled else "ValueError"]
    options = SHORT | {"n_samples": 400, "random_state": 3}  # some seeds of HMC never leave the density
    found = sd.sample(function, None, X, [1.0], names=["rate"], sampler=sampler, **options)
    line = found.diagnostics.row("failed")
    assert line["value"] > 0
    assert line["verdict"] == "care"
    assert f"the first: {words}, at rate = -" in line["in words"]
    assert (found["rate"] > 0).all()
    again = sd.sample(function, None, X, [1.0], names=["rate"], sampler=sampler, n_jobs=2, **options)
    assert str(again.diagnostics) == str(found.diagnostics)
    np.testing.assert_array_equal(again.draws, found.draws)


@pytest.mark.parametrize("sampler", ["slice", "random_walk"])
def test_the_draws_are_those_of_the_density_where_there_is_one(sampler):
    found = sd.sample(
        FAILING["compiled cholesky"][0], None, X, [1.0], sampler=sampler, n_samples=5000, random_state=0
    )
    size = found.summary()["ess"][0]
    assert size > 400
    assert found.mean()["theta"][0] == pytest.approx(TRUTH.mean(), abs=4.5 * TRUTH.std() / np.sqrt(size))
    assert found.diagnostics.row("failed")["value"] > 0


@pytest.mark.filterwarnings("ignore:.* ESS::")  # of few draws, as the table says
def test_no_line_where_nothing_fails():
    found = sd.sample(lambda q, x: -0.5 * q[0] ** 2, None, X, [0.0], sampler="nuts", **SHORT)
    assert "failed" not in found.diagnostics.rows


@pytest.mark.parametrize("engine", ["local", "dask"])
@pytest.mark.parametrize("name", ["ValueError", "compiled ValueError"])
def test_shards_and_their_second_round(name, engine, tmp_path):
    """Counts and words come back from chains, files and proposals, on threads and through Dask."""
    from dask.distributed import Client

    function, words = FAILING[name]
    options = SHORT | {"n_shards": 2, "combine": "exact", "sampler": "nuts", "engine": engine}
    options |= {"checkpoint": tmp_path, "names": ["rate"]}
    x = np.ones(4)
    if engine == "local":
        found, again = (sd.sample(function, None, x, [1.0], **options) for _ in range(2))
    else:
        with Client(processes=False, dashboard_address=":0"):
            found, again = (sd.sample(function, None, x, [1.0], **options) for _ in range(2))
    line = found.diagnostics.row("failed")
    assert line["value"] > 0
    assert f"the first: {words}, at rate = -" in line["in words"]
    assert str(again.diagnostics) == str(found.diagnostics)  # the chains' from files
    assert (found["rate"] > 0).all()


# Where nothing can be sampled ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAILING)
def test_a_failure_at_the_start_is_shown_with_its_place(name):
    function, words = FAILING[name]
    with pytest.raises(
        DataError, match=rf"fails at the start with {words}, at rate = -9: give a start="
    ) as told:
        sd.sample(function, None, X, [-9.0], names=["rate"])
    assert type(told.value.__cause__).__name__ == words.split(":")[0]


@pytest.mark.parametrize("name", FAILING)
def test_chains_begin_elsewhere_where_the_start_fails(name):
    """No density within 2 of -9; of -1 there is."""
    function, words = FAILING[name]
    with pytest.warns(
        UserWarning, match=rf"fails at the start with {words}, at rate = -1, .* begin about rate"
    ):
        model = user_model(function, None, X, [-1.0], names=["rate"])
    assert 0 < model.start[0] < 1


@pytest.mark.parametrize(
    ("function", "x", "words"),
    [
        (lambda p, x: -0.5 * (x - 1 / float(p.m)) ** 2, 3.0, "ZeroDivisionError: float division by zero"),
        (lambda p, x: -0.5 * (x - math.log(float(p.m))) ** 2, 0.1, "ValueError: math domain error"),
        (lambda p, x: -0.5 * (x - np.log(p.m)) ** 2, 0.1, "is -inf at m = 0"),
        (lambda p, x: -0.5 * (x - math.exp(1e3 - 2e3 * p.m)) ** 2, 0.0, "OverflowError: math range error"),
    ],
)
def test_zero_may_have_no_density(function, x, words):
    def total(p, x):
        return function(p, x).sum()

    given = {"parameters": {"m": sd.real()}, "priors": {"m": sd.priors.normal()}, "sampler": "slice"}
    with pytest.warns(UserWarning, match=words):
        found = sd.sample(total, None, np.full(5, x), n_samples=1000, random_state=0, **given)
    grid = np.linspace(-12, 12, 40_001)[1:-1:2] + 1e-9
    with np.errstate(all="ignore"):
        logps = np.array([_value(function, m, x) for m in grid]) * 5 - grid**2 / 2
    weights = np.exp(logps - logps.max())
    weights /= weights.sum()
    mean, square = weights @ grid, weights @ grid**2
    sd_of_mean = np.sqrt(square - mean**2) / np.sqrt(found.summary()["ess"][0])
    assert found.mean()["m"] == pytest.approx(mean, abs=4.5 * sd_of_mean)


def _value(function, m, x):
    try:
        value = float(function(NamedValues(m=m), x))
    except (ArithmeticError, ValueError):
        return -np.inf
    return value if np.isfinite(value) else -np.inf


@pytest.mark.parametrize("compiled", [False, True])
def test_chains_begin_beside_a_start_on_the_edge_of_a_differenced_density(compiled):
    """It was told to mend a gradient that nobody gave."""

    def edged(q, x):
        return -np.inf if q[0] < 0 else -q[0] * x[0]

    function = nb.njit(edged) if compiled else edged
    with pytest.warns(UserWarning, match=r"ends beside rate = 0, so that it has no gradient there: chains"):
        model = user_model(function, None, X, [0.0], names=["rate"])
    assert model.start[0] > 0

    def sloped(q, x):
        return edged(q, x), np.array([np.inf])

    with pytest.raises(DataError, match="mend the gradient, or leave it out"):
        user_model(sloped, None, X, [0.0], names=["rate"])


@pytest.mark.filterwarnings("ignore:the log density fails at the start")
def test_shards_begin_elsewhere_and_their_likelihood_is_still_a_sum():
    x, given = np.ones(200), {"names": ["rate"], "n_shards": 2, "random_state": 0}
    found = sd.sample(raising, None, x, [-0.5], **given)
    truth = stats.gamma(201, scale=1 / 200)
    assert found.mean()["rate"] == pytest.approx(truth.mean(), abs=0.2 * truth.std())
    with pytest.raises(DataError, match="no sum over rows"):
        sd.sample(lambda q, x: raising(q, x) / len(x), None, x, [-0.5], **given)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_density_that_fails_nearly_everywhere_shows_the_first_failure(compiled):
    def only_there(q, x, g):
        if q[0] != 0 and q[1] != 0:  # on two lines
            raise ValueError("too far")
        g -= q
        return -0.5 * (q**2).sum()

    function = nb.njit(only_there) if compiled else lambda q, x: (only_there(q, x, np.zeros(2)), -q)
    with pytest.raises(DataError, match=r"at any of 500 starting points, .* ValueError: too far, at rate = "):
        sd.sample(function, None, X, [0.0, 0.0], names=["rate", "size"], sampler="nuts", **SHORT)
    with pytest.raises(DataError, match=r"is ValueError: too far, at q\[0\] = 2, q\[1\] = 1; both must"):
        init(user_model(function, None, X, [0.0, 0.0]), np.array([2.0, 1.0]))


def test_what_prior_and_slope_raise_counts_too():
    def prior(q):
        return math.log(q[0]) - q[0]

    model = user_model(lambda q, x: 0.0, prior, X, [1.0])
    assert model.logp_grad([-1.0])[0] == -np.inf
    assert "ValueError" in model.take_tally().first
    compiled = user_model(
        nb.njit(lambda q, x: 0.0),
        nb.njit(lambda q: np.log(np.linalg.cholesky(q.reshape(1, 1))[0, 0]) - q[0]),
        X,
        [1.0],
    )
    assert compiled.logp_grad([-1.0])[0] == -np.inf
    assert "LinAlgError" in compiled.take_tally().first


def test_nan_of_compiled_functions_is_counted():
    """Compiled, a logarithm of a negative number is NaN; in Python it raises."""
    model = user_model(nb.njit(lambda q, x: math.log(q[0]) - q[0]), None, X, [1.0])
    model.take_tally()  # of its examination
    logps, _ = model.logp_grads(np.array([[2.0], [-1.0], [-2.0]]))
    np.testing.assert_array_equal(np.isnan(logps), [False, True, True])
    tally = model.take_tally()
    assert (tally.undefined, tally.failed) == (2, 0)


def test_the_search_of_the_mode_goes_around_what_fails():
    for function, _ in FAILING.values():
        model = user_model(function, None, X, [0.01])
        mode = find_mode(model)
        assert mode.q[0] == pytest.approx(1, abs=1e-3)  # of q exp(-q)
        draws, _ = laplace_draws(model, mode, 500, seed=0)
        assert draws.statistics["failed"].sum() == (draws.draws <= 0).sum() > 0
        assert (np.exp(draws.log_weights[draws.draws[:, 0] <= 0]) == 0).all()


# Faults of the program ----------------------------------------------------------------------------------


def _missing_name(q, x):
    return -0.5 * len(x) * q[0] ** 2 if q[0] < 1 else no_such_name  # noqa: F821


def _missing_attribute(q, x):
    return -0.5 * len(x) * q[0] ** 2 if q[0] < 1 else q.no_such


def _wrong_type(q, x):
    return -0.5 * len(x) * q[0] ** 2 if q[0] < 1 else q[0] + "1"


def _wrong_key(q, x):
    return -0.5 * len(x) * q[0] ** 2 if q[0] < 1 else {}["a"]


def _wrong_index(q, x):
    return -0.5 * len(x) * q[0] ** 2 if q[0] < 1 else x[5]


def _no_number(q, x):
    return -0.5 * len(x) * q[0] ** 2 if q[0] < 1 else "text"


def _interrupted(q, x):
    if q[0] < 1:
        return -0.5 * len(x) * q[0] ** 2
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (_missing_name, NameError),
        (_missing_attribute, AttributeError),
        (_wrong_type, TypeError),
        (_wrong_key, KeyError),
        (_wrong_index, IndexError),
        (_no_number, DataError),
        (_interrupted, KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("shards", [1, 2])
def test_faults_of_the_program_end_the_run_with_their_traceback(function, kind, shards):
    with pytest.raises(kind) as told:
        # As a prior, which may be the same in every shard; a likelihood must be a sum over rows.
        sd.sample(
            lambda q, x: 0.0,
            lambda q: function(q, np.ones(2)),
            np.ones(2),
            [0.0],
            names=["rate"],
            sampler="nuts",
            n_shards=shards,
            **SHORT,
        )
    frames = [frame.name for frame in told.traceback]
    assert function.__name__ in frames or kind in (DataError, KeyboardInterrupt)
    if kind is not KeyboardInterrupt:
        assert any("in the log density, at rate = " in note for note in told.value.__notes__)


def test_a_compiled_index_error_ends_the_run():
    @nb.njit
    def wrong(q, x):
        if q[0] > 1:
            raise IndexError("of mine")
        return -0.5 * q[0] ** 2

    model = user_model(wrong, None, X, [0.0])
    with pytest.raises(IndexError, match="of mine"):
        advance(model, init(model, np.zeros(1), "random_walk"), 200, seed=0)
    assert model.logp_grad([0.5])[0] == -0.125  # usable again
