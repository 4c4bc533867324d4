"""Elementary functions of loops: against decimal arithmetic and special values of numpy, in vectors."""

from decimal import Context, Decimal

import numba as nb
import numpy as np
import pytest

import stradask as sd

fn = sd.functions
EXACT = Context(prec=60, Emin=-999999, Emax=999999)


def exact(name, x):
    """The value of a function as a Decimal, from the exponentials and logarithms of the standard library."""
    x = Decimal(float(x))
    if name == "exp":
        return EXACT.exp(x)
    if name == "log":
        return EXACT.ln(x)
    if name == "logistic":
        return EXACT.divide(1, EXACT.add(1, EXACT.exp(EXACT.minus(x))))
    u = x if name == "log1p" else EXACT.exp(x)
    if abs(u) < Decimal("1e-30"):
        return EXACT.subtract(u, EXACT.divide(EXACT.multiply(u, u), 2))
    return EXACT.ln(Context(prec=100).add(1, u))


@pytest.fixture(scope="module")
def loops():
    """Each function in a compiled loop that may reorder sums, as users have them."""

    def made(function):
        @nb.njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
        def loop(x, out):
            for i in range(len(x)):
                out[i] = function(x[i])

        return loop

    return {name: made(getattr(fn, name)) for name in ("exp", "log", "log1p", "log1p_exp", "logistic")}


@pytest.mark.parametrize(
    ("name", "units"), [("exp", 1.0), ("log", 1.0), ("log1p", 1.1), ("log1p_exp", 1.5), ("logistic", 2.1)]
)
def test_values_are_exact_to_the_last_place_over_all_numbers(loops, name, units):
    rng = np.random.default_rng(0)
    x = np.concatenate([
        2.0 ** rng.uniform(-1074, 1024, 150), 2.0 ** rng.uniform(-60, 11, 200),
        rng.uniform(0, 750, 150), rng.uniform(0, 3, 200), 1 - 2.0 ** rng.uniform(-53, 0, 50),
        np.sqrt(0.5) + np.arange(-9, 9) * 2.0**-53,
        [5e-324, 2.0**-1022, 2.0**1023, np.finfo(float).max],
    ])  # fmt: skip
    x = np.concatenate([x, -x])
    ends = {"log": (5e-324, np.inf), "log1p": (np.nextafter(-1, 0), np.inf)}
    low, high = ends.get(name, (-745.13, 709.78))
    x = x[(x >= low) & (x <= high)][::2].copy()
    made = np.empty_like(x)
    loops[name](x, made)
    for value, at in zip(made, x, strict=True):
        true = exact(name, at)
        error = abs(Decimal(float(value)) - true) / Decimal(float(np.spacing(abs(float(true)))))
        assert error <= units, (at, value, error)


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "log1p_exp", "logistic"])
def test_special_values_and_vectors(loops, name):
    x = np.array([
        np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, np.nextafter(-1, -2), -2.0, 1e-320, -1e-320, 709.79, 800.0,
        -745.14, -800.0, 1e308, -1e308,
    ])  # fmt: skip
    made = np.empty_like(x)
    loops[name](x, made)
    with np.errstate(all="ignore"):
        expected = {
            "log1p_exp": lambda x: np.logaddexp(0, x), "logistic": lambda x: 1 / (1 + np.exp(-x))
        }.get(name) or getattr(np, name)  # fmt: skip
        expected = expected(x)
    np.testing.assert_allclose(made, expected, rtol=5e-16)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(made[known]), np.signbit(expected[known]))
    assert getattr(fn, name)(2) == pytest.approx(float(exact(name, 2.0)), rel=1e-15)  # alone, of an integer
    (compiled,) = loops[name].inspect_llvm().values()
    assert "x double>" in compiled
