"""Which densities can be normalised: slanted ridges are refused, walls and wide priors are not."""

import numba as nb
import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.models.density import user_model
from stradask.errors import DataError

X = np.random.default_rng(0).standard_normal(200)
SLANTS = {"(2, 1)": [1.0, -2.0], "(pi, 1, .3)": [np.pi, -2.0, 0.3], "(1, -3)": [3.0, 1.0]}


def line(weights, slope):
    weights = np.array(weights)

    def log_likelihood(q, x):
        rest = x - q @ weights
        value = -0.5 * (rest**2).sum()
        return (value, rest.sum() * weights) if slope else value

    return log_likelihood


def saturating(q, x):
    """Not quadratic: of the difference q[0] - 2 q[1] alone."""
    return -np.log(np.cosh(x - q[0] + 2 * q[1])).sum()


@pytest.mark.parametrize("slope", [False, True])
@pytest.mark.parametrize("name", SLANTS)
def test_a_slanted_ridge_is_refused_whatever_its_direction(name, slope):
    start = np.linspace(0.3, 0.1, len(SLANTS[name]))
    with pytest.raises(DataError, match=r"does not fall along .*cannot be normalised"):
        user_model(line(SLANTS[name], slope), None, X, start)


def test_a_ridge_of_a_curved_density_is_named_by_its_parameters():
    with pytest.raises(DataError, match=r"does not fall along [+-]1 a [+-]0.5 b: the posterior"):
        user_model(saturating, None, X, [1.0, 0.3], names=["a", "b"])
    with pytest.raises(DataError, match=r"does not fall along [+-]1 a [+-]0.5 b: the posterior"):
        user_model(nb.njit(saturating), None, X, [1.0, 0.3], names=["a", "b"])


@pytest.mark.parametrize("slope", [False, True])
@pytest.mark.parametrize("name", SLANTS)
@pytest.mark.parametrize(
    "prior",
    [
        lambda q: -0.5 * (q**2).sum(),
        lambda q: -0.5 * (q**2).sum() / 1e6**2,
        lambda q: stats.cauchy(scale=1000).logpdf(q).sum(),
        lambda q: stats.t(0.5).logpdf(q).sum(),
        lambda q: -np.abs(q).sum(),
        lambda q: 0.0 if (np.abs(q) < 1e7).all() else -np.inf,
    ],
)
def test_proper_priors_make_a_ridge_proper(name, slope, prior):
    user_model(line(SLANTS[name], slope), prior, X, np.linspace(0.3, 0.1, len(SLANTS[name])))


def box(q, x):
    return 0.0 if (np.abs(q) < 1).all() else -np.inf


@pytest.mark.parametrize("compiled", [False, True])
def test_a_uniform_density_on_a_box_is_sampled(compiled):
    density = nb.njit(box) if compiled else box
    found = sd.sample(density, None, np.zeros(1), [0.1, 0.2], names=["a", "b"], random_state=0)
    assert found.method.startswith("slice: the log density is constant about the start")
    assert found.diagnostics.level == 0
    for name in "ab":
        size = 2000  # of 4,000 draws, the least that they are worth here
        assert found.mean()[name] == pytest.approx(0, abs=4.5 * np.sqrt(1 / 3 / size))
        assert found.sd()[name] == pytest.approx(np.sqrt(1 / 3), abs=4.5 * np.sqrt(4 / 45 / (4 / 3) / size))


@pytest.mark.parametrize(
    ("low", "high", "d"),
    [(2.99, 3.01, 3), *(pytest.param(0, 1, d, marks=pytest.mark.slow) for d in (3, 10))],
)
def test_a_box_narrower_than_the_reach_of_starts_is_sampled(low, high, d):
    """Chains begin within 2 of the start, where the most of these points have no density."""
    start = np.full(d, (low + high) / 2)
    found = sd.sample(
        lambda q, x: 0.0 if ((low < q) & (q < high)).all() else -np.inf, None, None, start, random_state=0
    )
    width, size = (high - low) / np.sqrt(12), 2000  # of 4,000 draws, the least that they are worth here
    assert found.diagnostics.level == 0
    np.testing.assert_allclose(found.draws.mean(axis=0), start, atol=4.5 * width / np.sqrt(size))
    np.testing.assert_allclose(found.draws.std(axis=0), width, rtol=4.5 * np.sqrt(0.2 / size))


def test_a_box_that_differences_leave_asks_for_a_larger_unit():
    def narrow(q, x):
        return (0.0 if abs(q[0] - 0.1) < 1e-6 else -np.inf), np.zeros(1)

    with pytest.raises(DataError, match=r"-inf on both sides of a = 0.1, 6e-06 away: .* a larger unit"):
        user_model(narrow, None, X, [0.1], names=["a"])


def test_without_a_start_a_box_that_excludes_zero_asks_for_one():
    with pytest.raises(DataError, match=r"is -inf at a = 0: give a start= where it is finite"):
        sd.sample(lambda q, x: 0.0 if 5 < q[0] < 6 else -np.inf, names=["a"])


def test_a_parameter_that_has_walls_on_one_side_only_is_refused():
    def half(q, x):
        return -0.5 * q[0] ** 2 if q[1] > -3 else -np.inf

    with pytest.raises(DataError, match=r"does not fall along [+-]1 b: "):
        user_model(half, None, X, [0.5, 0.0], names=["a", "b"])


@pytest.mark.filterwarnings("ignore:.* (ESS|R-hat) ::")  # of few draws by NUTS
@pytest.mark.parametrize("n", [50, 100])
def test_the_choice_of_few_draws_is_not_contradicted_by_their_limit(n):
    """Of 50 and 100 draws k-hat may be .41 and .5 at most, and not .5 to be chosen."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 1))
    y = rng.random(30) < 0.5
    chosen = 0
    for seed in range(40):
        model = sd.BayesianLogisticRegression(n_samples=n, n_chains=1, n_warmup=50, random_state=seed)
        posterior = model.fit(X, y).posterior_
        if model.sampler_ == "laplace":
            chosen += 1
            line = posterior.diagnostics.row("k-hat")
            assert line["verdict"] == "good", seed
    assert chosen


@pytest.mark.parametrize("named", [False, True])
def test_a_constant_beyond_bounds_is_named(named):
    """A number for minus infinity cannot be normalised: the remedy is a bound, no prior."""

    def boxed(a, b, x):
        return (
            -1e10
            if not (0 < a < 10 and 0 < b < 10)
            else -len(x) * np.log(b) - 0.5 * (((x - a) / b) ** 2).sum()
        )

    x = np.array([1.0, 2.0, 3.0])
    given = {"start": [2.0, 1.0], "names": ["a", "b"]}
    if named:
        given = {"start": {"a": 2.0, "b": 1.0}, "parameters": {"a": sd.real(), "b": sd.real()}}
    function = (lambda p, x: boxed(p.a, p.b, x)) if named else (lambda q, x: boxed(*q, x))
    with pytest.raises(
        DataError, match=r"is -1e\+10 at a = 102, b = 1 and farther out, .* return -inf there, or declare"
    ):
        sd.sample(function, None, x, **given)
    given["start"] = {"a": -2.0, "b": 1.0}
    with pytest.raises(
        DataError, match=r"It is -1e\+10 at the start and .* return -inf there, .* begin within them"
    ):
        sd.sample(function, None, x, **given)
