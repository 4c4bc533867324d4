"""Whether a gradient is that of its value: differences compared with derivatives."""

from typing import Any, NamedTuple

import numpy as np

from ..._typing import Engine
from ...errors import DataError
from ...scheduler.parameters import check_count, random_source
from .problem import Problem
from .sandblaster import Sandblaster

_STEPS = 1e-3, 1e-5, 1e-7  # of a parameter's size; the best counts, for the right one depends on f
_NOISE = 16.0  # roundings of f that a difference may have lost
_NOTICED = 100.0  # of what rounding makes: no difference below says anything


class GradientCheck(NamedTuple):
    """What `check_gradient` found.

    Attributes: `error`: the largest difference of a derivative and a difference quotient, beyond what
    rounding explains, as a share of the larger; 1e-6 or less is right, 1e-2 or more is wrong. `worst`: the
    parameter where it is so large, as ``x0['W'][1, 2]``; or "a direction of all parameters", or "hessp".
    `derivative`, `quotient`: the numbers there.
    """

    error: float
    worst: str
    derivative: float
    quotient: float


def check_gradient(
    fun_and_grad: Any,
    x0: Any,
    portions: Any,
    *,
    args: tuple = (),
    hessp: Any = None,
    n_entries: int = 50,
    engine: Engine = "local",
    n_jobs: int | None = None,
    random_state: int = 0,
) -> GradientCheck:
    """Hold a gradient (and products with the Hessian) against central differences of the objective.

    The difference quotient of parameter j is (f(x0 + h e_j) - f(x0 - h e_j)) / (2 h), for three h; that
    nearest to the derivative counts. If not all parameters are checked, a random direction of all is as
    well, in which a wrong entry can hide among many others. Choose x0 away from kinks and from a minimum,
    where all is zero.

    Parameters
    ----------
    fun_and_grad, x0, portions, args, hessp, engine, n_jobs
        See `minimize`. With `hessp` its products with random vectors are held against differences of the
        gradient, too.
    n_entries : int, default=50
        Parameters that are checked, drawn at random; all, if there are no more.
    random_state : int, default=0
        Which are drawn.

    Returns
    -------
    GradientCheck
        ``error``, ``worst``, ``derivative``, ``quotient``.

    Raises
    ------
    DataError
        For arguments that `minimize` would not take; or if rounding of the objective hides its differences.
    NonFiniteObjective
        If the objective is not finite at x0 or near it.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> def loss(portion, x):
    ...     return ((x - portion) ** 2).sum(), 2 * (x - portion)
    >>> sd.check_gradient(loss, np.ones(3), [0.0, 5.0]).error < 1e-6
    True
    >>> def wrong(portion, x):
    ...     return ((x - portion) ** 2).sum(), x - portion
    >>> print(f"{sd.check_gradient(wrong, np.ones(3), [0.0, 5.0]).error:.2f}")
    0.50
    """
    check_count("n_entries", n_entries)
    problem = Problem(fun_and_grad, x0, args, hessp=hessp)
    x = problem.start()
    rng = random_source(random_state)
    entries = np.sort(rng.choice(len(x), min(len(x), n_entries), replace=False))
    with Sandblaster(
        problem.function, portions, hessp=problem.hessp, engine=engine, n_jobs=n_jobs
    ) as objective:
        value, gradient = objective(x)
        largest = 0.0
        found = GradientCheck(0.0, problem.form.address(entries[0], "x0"), gradient[entries[0]], np.nan)
        for j in entries:
            e = np.zeros(len(x))
            e[j] = max(1.0, abs(x[j]))
            error, quotient = _held(objective, x, e, gradient[j] * e[j], lambda answer: answer[0])
            largest = max(largest, abs(gradient[j] * e[j]), abs(quotient))
            if not error <= found.error or np.isnan(found.quotient):
                found = GradientCheck(
                    error, problem.form.address(j, "x0"), float(gradient[j]), quotient / e[j]
                )
        if 0 < largest <= _NOTICED * _noise(value, _STEPS[0]):
            raise DataError(
                f"the objective is {value:g} at x0, and its rounding hides differences that derivatives of "
                f"{largest:g} make: leave out constants, scale it, or choose another x0"
            )
        if len(entries) < len(x):
            d = rng.choice([-1.0, 1.0], len(x)) * np.maximum(1.0, np.abs(x)) / np.sqrt(len(x))
            derivative = float(gradient @ d)
            error, quotient = _held(objective, x, d, derivative, lambda answer: answer[0])
            if error > found.error:
                found = GradientCheck(error, "a direction of all parameters", derivative, quotient)
        if hessp is not None:
            v, w = rng.standard_normal((2, len(x))) * np.maximum(1.0, np.abs(x)) / np.sqrt(len(x))
            derivative = float(w @ objective.product(x, v))
            error, quotient = _held(objective, x, v, derivative, lambda answer: float(w @ answer[1]))
            if error > found.error:
                found = GradientCheck(error, "hessp", derivative, quotient)
    return found


def _held(objective, x, d, derivative, reading):
    """The smallest error over the steps h d, and its quotient."""
    best = np.inf, np.nan
    for h in _STEPS:
        ahead, behind = reading(objective(x + h * d)), reading(objective(x - h * d))
        quotient = (ahead - behind) / (2 * h)
        noise = _noise(max(abs(ahead), abs(behind)), h)
        off = max(0.0, abs(quotient - derivative) - noise)
        size = max(abs(quotient), abs(derivative))
        best = min(best, (float(off / size) if off else 0.0, float(quotient)))
    return best


def _noise(value, h):
    """What rounding may make of a difference quotient."""
    return _NOISE * np.finfo(float).eps * abs(value) / h
