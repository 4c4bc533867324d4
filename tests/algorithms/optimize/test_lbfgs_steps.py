"""The parts of L-BFGS: the recursion against its textbook form, the line search, rows in the memory."""

import numpy as np
import pytest
from smooth_problems import make_quadratic

from stradask.algorithms.optimize.methods.line_search import Trial, backtrack, strong_wolfe
from stradask.algorithms.optimize.methods.memory import Memory
from stradask.algorithms.optimize.space import LocalRows, LocalSpace


def two_loop(pairs, g):
    """The recursion as Nocedal and Wright print it."""
    q, alphas = g.copy(), []
    for s, y in reversed(pairs):
        alphas.append(s @ q / (s @ y))
        q -= alphas[-1] * y
    s, y = pairs[-1]
    q *= s @ y / (y @ y)
    for (s, y), alpha in zip(pairs, reversed(alphas), strict=True):
        q += (alpha - y @ q / (s @ y)) * s
    return -q


# The recursion --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_direction_is_that_of_the_two_loops(size, known):
    """Also when the memory is full, and products are known from the last direction."""
    A, b = make_quadratic(20)
    memory, pairs = Memory(LocalSpace(), size), []
    x, g = np.zeros(20), -b
    rng = np.random.default_rng(1)
    for _ in range(12):
        d = memory.direction(g)
        if pairs:
            np.testing.assert_allclose(d, two_loop(pairs[-size:], g), rtol=1e-9, atol=1e-12)
        t = rng.uniform(0.3, 1.2)
        after = A @ (x + t * d) - b
        pairs.append((t * d, after - g))
        assert memory.add(*pairs[-1], after, t if known else None)
        x, g = x + t * d, after


def test_after_clear_nothing_of_the_old_pairs_is_left():
    A, b = make_quadratic(6)
    rng = np.random.default_rng(0)
    memory = Memory(LocalSpace(), 3)
    for _ in range(4):
        s = rng.standard_normal(6)
        memory.add(s, A @ s, b)
    memory.clear()
    np.testing.assert_array_equal(memory.direction(b), -b)
    pairs = [(s, A @ s) for s in rng.standard_normal((2, 6))]
    for s, y in pairs:
        memory.add(s, y, b)
        memory.direction(b)
    np.testing.assert_allclose(memory.direction(b), two_loop(pairs, b), rtol=1e-12)


def test_a_pair_without_curvature_is_skipped():
    memory = Memory(LocalSpace(), 3)
    s = np.array([1.0, 0.0])
    assert not memory.add(s, np.array([0.0, 1.0]), s)
    assert not memory.add(s, -s, s)
    assert not memory.add(s, np.array([1e-11, 1.0]), s)
    assert memory.add(s, np.array([1e-9, 1.0]), s)
    assert len(memory.order) == 1


def test_with_exact_steps_a_quadratic_ends_after_n():
    """Where the memory holds all pairs, the directions are conjugate."""
    n = 9
    A, b = make_quadratic(n)
    memory = Memory(LocalSpace(), n)
    x, g = np.zeros(n), -b
    for _ in range(n):
        assert np.linalg.norm(g) > 1e-6
        d = memory.direction(g)
        t = -(g @ d) / (d @ A @ d)
        after = g + t * (A @ d)
        memory.add(t * d, after - g, after, t)
        x, g = x + t * d, after
    assert np.linalg.norm(A @ x - b) < 1e-9


def test_rows_that_were_set_count():
    """In any order, as a memory that was cleared leaves them."""
    rng = np.random.default_rng(0)
    rows = LocalRows(7, np.zeros(3))
    for row in (0, 4, 1, 5, 6, 4):
        rows.put(row, rng.standard_normal(3))
        x = rng.standard_normal(3)
        np.testing.assert_allclose(rows.dots(x), rows.array @ x)
        np.testing.assert_allclose(rows.combine(np.arange(7.0), 2.0, x), np.arange(7.0) @ rows.array + 2 * x)
    again = LocalRows(7, np.zeros(3))
    again.fill(rows.array, rows.used)
    assert again.dots(x).tobytes() == rows.dots(x).tobytes()
    assert not again.dots(x)[[2, 3]].any()
    assert again.dots(x)[[0, 1, 4, 5, 6]].all()


# Line search ----------------------------------------------------------------------------------------------


FUNCTIONS = {  # value, slope; all fall at 0
    "quadratic": (lambda t: (t - 3) ** 2, lambda t: 2 * (t - 3)),
    "quartic": (lambda t: (t - 1) ** 4 - t, lambda t: 4 * (t - 1) ** 3 - 1),
    "waves": (lambda t: 0.1 * t * t - np.sin(5 * t), lambda t: 0.2 * t - 5 * np.cos(5 * t)),
    "wall": (lambda t: -t - 1e-3 * np.log(2 - t) if t < 2 else np.inf, lambda t: -1 + 1e-3 / (2 - t)),
    "flat": (lambda t: -1e-3 * t + 1e-8 * t * t, lambda t: -1e-3 + 2e-8 * t),
    "kink": (lambda t: abs(t - 1) + 0.01 * t, lambda t: np.sign(t - 1) + 0.01),
}


@pytest.mark.parametrize("first", [1e-6, 0.01, 1.0, 100.0, 1e6])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strong_wolfe(name, first):
    f, df = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        found = strong_wolfe(lambda t: Trial(t, f(t), df(t)), f(0), df(0), first)
    assert found.value <= f(0) + 1e-4 * found.t * df(0)
    if name != "kink":  # where no point has a small slope
        assert abs(found.slope) <= 0.9 * abs(df(0))


UNSOUND = {  # value, slope: of no smooth function, or none that floating point can follow
    "end in infinity": (lambda t: -t if t <= 1 else np.inf, lambda t: -1.0),
    "step down to a wall": (lambda t: -t if t <= 1 else 5.0, lambda t: -1.0),
    "fall that ends at once": (lambda t: -1e-9 if t else 0.0, lambda t: -1.0),
    "rise": (lambda t: 1.0 + t, lambda t: 1.0 if t else -1.0),
    "rise without slope": (lambda t: 1.0 + t, lambda t: 0.0 if t else -1e-320),
    "nowhere a number": (lambda t: np.nan if t else 1.0, lambda t: np.nan if t else -1.0),
    "equal everywhere": (lambda t: 1.0, lambda t: -1.0),
    "largest numbers": (lambda t: -1e308 if 0 < t < 2 else 1e308, lambda t: -1e308),
    "squares that overflow": (lambda t: 1e300 * (t - 1e-5) * (t - 1e-5), lambda t: 2e300 * (t - 1e-5)),
    "smallest lengths": (lambda t: -t if t < 1e-320 else 1.0, lambda t: -1.0),
    "no end": (lambda t: -t, lambda t: -1.0),
}


@pytest.mark.parametrize("first", [5e-324, 1e-9, 1.0, 1e300])
@pytest.mark.parametrize("name", UNSOUND)
def test_no_bracket_breaks_a_search(name, first):
    """Without a warning, in few trials: no higher point, or none; also where a bracket has no width."""
    f, df = UNSOUND[name]
    lengths = []

    def phi(t):
        lengths.append(t)
        return Trial(t, np.float64(f(t)), np.float64(df(t)))

    found = strong_wolfe(phi, np.float64(f(0)), np.float64(df(0)), first)
    assert found is None or (found.value <= f(0) + 1e-13 * abs(f(0)) and 0 < found.t < np.inf)
    assert len(lengths) <= 25
    for slope in (0.0, df(0)):  # a path that rounding holds where it is
        reached = backtrack(lambda t: Trial(t, f(t), slope * t), f(0), first)  # noqa: B023
        assert reached is None or (slope and reached.value <= f(0) + 1e-13 * abs(f(0)))
    assert backtrack(lambda t: Trial(t, 1.0 + t, t), 1.0) is None  # a path that turns uphill


def test_few_trials_on_a_quadratic():
    """The secant and the cubic are exact there."""
    for first in (1e-3, 1.0, 50.0):
        trials = []
        strong_wolfe(lambda t: trials.append(t) or Trial(t, (t - 3) ** 2, 2 * (t - 3)), 9.0, -6.0, first)  # noqa: B023
        assert len(trials) <= 5
