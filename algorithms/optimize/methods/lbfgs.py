"""L-BFGS on local or sharded vectors: the loop, its stopping rules and its history.

The direction is made by `memory`, the step by `steps` and `line_search`; with l1 `owlqn` takes other steps in
the same loop. With a preconditioner P all of it runs in u, x = P u: the gradient there is P^T g.
"""

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from ....errors import DataError, ModelFileError, shortened
from ....scheduler.compiling import CompileClock, compile_clock
from ....scheduler.parameters import check_count
from ..space import LocalSpace, checked_start
from .box import Box
from .excess import Differences
from .memory import Memory
from .owlqn import Orthant
from .steps import Identity, Point, Smooth
from .truncated_newton import TruncatedNewton

CONVERGED, LIMIT, STUCK, STOPPED, NOT_FINITE = range(5)  # `status` of a result
_LESS = 2.0, 10.0  # times less, at least and at most, is promised after it was too little
_BAD_STEPS = 5  # in a row that met points without a finite objective, before it is given up
_EPSILON, _TRUST = (
    2.0**-53,
    10.0,
)  # an excess is believed where the last step fell by this many times it, or less
_MOST_PASSES = 2**53  # that a checkpoint may state


@dataclass(frozen=True)
class Iterate:
    """The argument of callbacks after each step.

    `jac`: the gradient of the smooth part. `gap`: `gradient_norm` relative to that at the start. ``state()``
    returns a dict of arrays from which `minimize_lbfgs` goes on bitwise (numpy vectors only);
    ``state(whole=False)`` leaves out all vectors: with an ``x`` added, the minimiser goes on from there
    without pairs.
    """

    nit: int
    nfev: int
    x: Any
    fun: float
    jac: Any
    gradient_norm: float
    gap: float
    state: Any


def check_tolerances(**values):
    """Refuse tolerances that are no numbers, or negative; names them."""
    for name, value in values.items():
        try:
            sound = isinstance(value, Real) and float(value) >= 0
        except OverflowError:  # of a whole number
            sound = False
        if not sound:
            raise DataError(f"{name} must be a number that is not negative, got {shortened(value)}")


class Trace:
    """Objective, norm of the gradient, passes and seconds after each step; the start is the first row.

    Several minimisations may write into one, for instance one on a sample and one on all rows. Seconds in
    which numba compiles do not count.
    """

    def __init__(self):
        self.columns: dict[str, list] = {k: [] for k in ("objective", "gradient_norm", "passes", "seconds")}
        self._clock = CompileClock()
        self._began = self._now()

    def _now(self):
        return time.perf_counter() - self._clock.seconds

    @contextmanager
    def timed(self):
        """Watch numba inside of the block, in which rows are recorded."""
        with compile_clock() as self._clock:
            yield
        self._began += self._clock.seconds  # which the next block's clock does not know
        self._clock = CompileClock()

    def record(self, objective, gradient_norm, passes):
        """Append a row."""
        row = objective, gradient_norm, passes, self._now() - self._began
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)

    def restore(self, state):
        """Go on from the columns in ``Iterate.state()``."""
        kept = {name: state[f"trace/{name}"] for name in self.columns}
        if {(array.ndim, array.size, array.dtype.kind in "if") for array in kept.values()} != {
            (1, kept["seconds"].size, True)
        }:
            raise ValueError("the columns of the trace do not fit together")
        if kept["passes"].dtype.kind != "i":
            raise ValueError("the passes of the trace are no whole numbers")
        for name, column in self.columns.items():
            column[:] = kept[name].tolist()
        self._began = self._now() - self.columns["seconds"][-1]

    def as_dict(self):
        """Return the columns as arrays."""
        return {
            name: np.array(column, np.int64 if name == "passes" else np.float64)
            for name, column in self.columns.items()
        }


def minimize_lbfgs(
    fun_and_grad,
    x0,
    *,
    space=None,
    memory=10,
    l1=None,
    bounds=None,
    product=None,
    preconditioner=None,
    max_iter=1000,
    tol_gradient=1e-6,
    tol_decrease=0.0,
    tol_objective=0.0,
    precision=1e-12,
    excess=None,
    proves=False,
    callback=None,
    history=None,
    resume=None,
):
    """Minimise f(x), or f(x) + sum_j l1_j abs(x_j), by L-BFGS or OWL-QN; return an OptimizeResult.

    A step goes along -H g, H made of the last pairs of steps and changes of the gradient, to a point that
    meets the strong Wolfe conditions (with `l1` see `stradask.algorithms.optimize.methods.owlqn`). A pair is
    skipped unless s.y > 1e-10 abs(s) abs(y); all are dropped where the direction does not go down, or no
    point along it is lower.

    ``fun_and_grad(x)`` returns f and a gradient that is not changed later. A value that is not finite, or a
    `NonFiniteObjective`, shortens the step; after five such steps in a row the minimiser stops at the last
    good point. `x0`: vector of `space` (default: numpy arrays), not changed. `memory`: pairs, of 2 n numbers
    each. `preconditioner`: a change of variables x = P u, with ``direct(v)`` P v and ``transposed(v)`` P^T v;
    P P^T should be near the inverse Hessian, and with `l1` P diagonal and positive. `bounds`: for
    `stradask.algorithms.optimize.methods.box`, low, high and the weights of a linear term or None.
    ``product(x, v)``: the Hessian at x times v, for the steps of
    `stradask.algorithms.optimize.methods.truncated_newton`. Either stands without the other, `l1` and
    `preconditioner`.

    Stops when the 2-norm of the (pseudo-)gradient is at most `tol_gradient` of that at `x0`, and -g.d/2,
    which estimates f(x) - min f, at most `tol_gradient` abs(f) (or rounding); when that estimate
    is at most `tol_decrease` abs(f); or when a step lowers the objective by at
    most `tol_objective` of its size. ``excess(x, f, gradient)``, the excess over the minimum relative to the
    allowed one, must be at most 1 for the second. `proves`: whether the first needs an estimate by products
    with the Hessian, too, which differences of gradients make. `precision` of f, relative: if no lower point
    is found, the run has converged where the promised decrease is at most this part of abs(f).
    ``callback(iterate)``: True stops. `history`: a `Trace` to be written into. `resume`: what
    ``Iterate.state()`` gave; goes on bitwise, without `x0`.

    The result has ``x``, ``fun``, ``jac`` (of the smooth part), ``nit``, ``nfev`` (passes), ``success``,
    ``status`` (0: converged; 1: `max_iter`; 2: no lower point was found, or the objective falls without end;
    3: `callback`; 4: the objective is not finite), ``message``, ``history`` (arrays objective, gradient_norm,
    passes, seconds).

    References: Nocedal, "Updating quasi-Newton matrices with limited storage", Math. Comp. 1980; Andrew, Gao,
    "Scalable training of L1-regularized log-linear models", ICML 2007.
    """
    check_count("memory", memory)
    check_count("max_iter", max_iter, least=0)
    tolerances = {"tol_gradient": tol_gradient, "tol_decrease": tol_decrease, "tol_objective": tol_objective}
    check_tolerances(**tolerances, precision=precision)
    if space is None:
        space, x0 = LocalSpace(), checked_start(x0) if resume is None else _resumed_start(x0, resume)
    scaling = preconditioner or Identity()
    steps: Smooth
    if bounds is not None:
        steps = Box(fun_and_grad, space, *bounds)
    elif product is not None:
        steps = TruncatedNewton(fun_and_grad, space, product)
    elif l1 is not None:
        steps = Orthant(fun_and_grad, space, scaling, l1, x0)
    else:
        steps = Smooth(fun_and_grad, space, scaling)
    trace = Trace() if history is None else history
    run = _Run(
        steps, Memory(space, memory), trace, preconditioner is None and not steps.natural, precision, excess
    )
    run.proves = proves
    with trace.timed():
        run.begin(x0, resume)
        while run.status is None:
            run.step(max_iter, tol_gradient, tol_decrease, tol_objective, callback)
    return run.result()


def _resumed_start(x0, resume):
    x = resume.get("x")
    if x is None or x.dtype != np.float64 or (x0 is not None and x.shape != np.shape(x0)):
        raise ModelFileError(
            f"the checkpoint does not hold a vector of the shape {np.shape(x0)}; remove the folder to start "
            "anew"
        )
    return checked_start(x)


class _Run:
    """The loop: stopping rules, restarts, history and callbacks."""

    def __init__(self, steps, memory, trace, unscaled, precision, excess):
        self.steps, self.memory, self.trace, self.unscaled = steps, memory, trace, unscaled
        self.precision, self.promised = precision, math.inf  # by the last direction that led nowhere
        self.nit, self.status, self.message = 0, None, ""
        self.first_norm, self.fell = math.nan, math.inf  # how much the last step lowered the objective
        self.bad_steps, self.flat = 0, False  # whether the gradient is small beside that at x0
        self.proves, self.excess = False, excess
        self.share = 1.0  # of the tolerance, once the excess was found too large

    def begin(self, x0, resume):
        if resume is not None:
            try:
                self._restore(resume)
            except (LookupError, TypeError, ValueError, OverflowError) as error:
                raise ModelFileError(
                    f"the checkpoint does not hold a state of L-BFGS ({shortened(error)}); remove the "
                    "folder to start anew"
                ) from error
            if "gradient" in resume:
                return
        self.point = self.steps.point(x0)
        if self.point is None:
            nowhere = Point(x0, math.nan, None, None, None)
            self.point, self.norm = nowhere, math.nan
            self._end(NOT_FINITE, f"{self.steps.trouble} at x0")
        else:
            self.norm = self._norm()
            if resume is None:
                self.first_norm = self.norm
            if not math.isfinite(self.norm):
                self._end(NOT_FINITE, "the gradient is not finite at x0")
        if resume is None:
            self.trace.record(self.point.value, self.norm, self.steps.passes)

    def step(self, max_iter, tol_gradient, tol_decrease, tol_objective, callback):
        self.flat = self.norm <= tol_gradient * self.first_norm
        low = "the estimated excess to that part of the objective"
        converged = CONVERGED, f"the gradient fell to {tol_gradient:g} of that at x0, and {low}"
        if self.norm == 0:
            return self._end(*converged)
        if self.nit >= max_iter and not self.flat:
            return self._end(LIMIT, f"max_iter={max_iter} steps were taken")
        fresh, before = not self.memory.order, self.point
        self.steps.trouble = None
        d, slope = self.steps.direction(self.memory, before)
        if not slope < 0 and not fresh:
            return self.memory.clear()
        size = abs(before.value)
        allowed = self._allowed(tol_gradient * size)
        low = -0.5 * slope <= self.share * allowed and self.fell <= _TRUST * allowed
        if self.flat and not (fresh and self.unscaled) and low:
            if self._holds(allowed):
                return self._end(*converged)
            d, slope = self.steps.direction(self.memory, before)  # which the memory knows as the last
        if self.nit >= max_iter:
            return self._end(LIMIT, f"max_iter={max_iter} steps were taken")
        small = -0.5 * slope <= self.share * tol_decrease * size
        if small and self.steps.trusted(self.fell, tol_decrease * size) and self._proved():
            return self._end(CONVERGED, f"the promised decrease is at most {tol_decrease:g} of the objective")
        first = min(1.0, 1.0 / math.sqrt(-slope)) if fresh and self.unscaled else 1.0
        trial = self.steps.search(before, d, slope, first, fresh) if slope < 0 else None
        if trial is None:
            return self._without_step(fresh, slope, max(tol_gradient, self.precision) * size)
        self.steps.remember(self.memory, before, trial, d)
        self.point, self.nit = trial.state, self.nit + 1
        self.norm = self._norm()
        self.fell, self.promised = before.value - self.point.value, math.inf
        self.trace.record(self.point.value, self.norm, self.steps.passes)
        if self.steps.endless:
            return self._end(STUCK, "the objective falls without end along a direction: it has no minimum")
        self.bad_steps = self.bad_steps + 1 if self.steps.trouble else 0
        if self.bad_steps == _BAD_STEPS:
            return self._end(NOT_FINITE, f"{self.steps.trouble}, again and again; x is the last good point")
        asked = callback is not None and callback(self._iterate())
        if isinstance(asked, (bool, np.bool_)) and asked:  # any other value may be what the callback did
            return self._end(STOPPED, "the callback stopped it")
        if self.fell <= tol_objective * max(size, abs(self.point.value)) and tol_objective > 0:
            part = f"{tol_objective:g} of itself"
            return self._end(CONVERGED, f"a step lowered the objective by at most {part}")

    def _allowed(self, excess):
        """The allowed excess, at least rounding of f at x0, or of 1 where that is more."""
        return max(excess, _EPSILON * min(1.0, abs(self.trace.columns["objective"][0])))

    def _holds(self, allowed):
        """Whether products with the Hessian say so, too: the pairs know the steep sides of a valley only."""
        sharded = not isinstance(self.point.x, np.ndarray)
        if not self.proves or (sharded and isinstance(self.steps, Orthant)):  # whose zeros are not left out
            return True
        excess = Differences(self.steps, self.memory, self.point).excess(allowed)
        self.share /= min(max(excess / allowed, _LESS[0]), _LESS[1])
        return excess <= allowed

    def _without_step(self, fresh, slope, allowed):
        """Try again without memory; then give up."""
        self.promised = min(self.promised, -0.5 * slope)
        if not fresh:
            return self.memory.clear()
        if self.steps.trouble is not None:
            return self._end(NOT_FINITE, f"{self.steps.trouble}; x is the last good point")
        small = self.promised <= self.precision * abs(self.point.value) and self._proved()
        if small or (self.flat and self._holds(self._allowed(allowed))):
            return self._end(CONVERGED, "the objective cannot fall further in floating point")
        why = "the objective is less precise than that, or value and gradient do not agree"
        return self._end(STUCK, f"no lower point was found along the gradient: {why}")

    def _proved(self):
        """Whether the excess is small enough; if not, promise less the next time."""
        if self.excess is None:
            return True
        part = self.excess(self.point.x, self.point.value, self.point.gradient)
        self.share /= min(max(part, _LESS[0]), _LESS[1])
        return part <= 1

    def _norm(self):
        return math.sqrt(self.steps.space.dots([(self.point.uphill, self.point.uphill)])[0])

    def _end(self, status, message):
        self.status, self.message = status, message

    def _iterate(self):
        point = self.point
        numbers = self.nit, self.steps.passes, point.x, point.value, point.gradient, self.norm
        return Iterate(*numbers, self.norm / self.first_norm, self._state)

    def _state(self, whole=True):
        memory = self.memory
        state = {
            "numbers": np.array([self.point.value, self.first_norm, self.fell, self.share]),
            "counts": np.array([self.nit, self.steps.passes]),
            **{f"trace/{name}": column for name, column in self.trace.as_dict().items()},
        }
        if not whole:
            return state
        state |= {"x": self.point.x, "gradient": self.point.gradient, "products": memory.products}
        state["order"] = np.array(memory.order, np.int64)
        if memory.rows is not None:
            state |= {"rows": memory.rows.array, "used": memory.rows.used}
        if memory.seen is not None:
            state["with_seen"] = memory.with_seen
        return state

    def _restore(self, state):
        value, self.first_norm, self.fell, *share = map(float, state["numbers"])
        self.share = min(share, default=1.0)  # which older checkpoints lack
        self.nit, self.steps.passes = map(int, state["counts"])
        if not 0 <= self.nit <= self.steps.passes < _MOST_PASSES:
            raise ValueError(f"{self.nit} steps in {self.steps.passes} passes")
        self.trace.restore(state)
        if "gradient" not in state:
            return
        self.point = self.steps.made(state["x"], value, state["gradient"])
        memory, order = self.memory, state["order"].tolist()
        sound = np.shape(state["x"]) == np.shape(state["gradient"])
        kept = [state[name] for name in ("products", "with_seen") if name in state]
        sound = sound and all(array.dtype.kind == "f" for array in kept)
        sound = sound and state["products"].shape == memory.products.shape
        sound = sound and state.get("with_seen", memory.with_seen).shape == memory.with_seen.shape
        oldest = order[0] if len(order) == memory.size else 0  # places are filled in turn
        in_turn = [(oldest + n) % memory.size for n in range(len(order) if "rows" in state else 0)]
        if not sound or order != in_turn or state["order"].dtype.kind != "i":
            raise ValueError("its arrays do not fit together")
        memory.products, memory.order = state["products"].copy(), order
        if "rows" in state:
            memory.rows = self.steps.space.rows(2 * memory.size, state["x"])
            memory.rows.fill(state["rows"], state["used"])
        if "with_seen" in state:
            memory.seen, memory.with_seen = self.point.scaled, state["with_seen"].copy()
        self.norm = self._norm()

    def result(self):
        """Make scipy's result."""
        self.trace.columns["passes"][-1] = self.steps.passes  # with those of the last proof
        point = self.point
        result = OptimizeResult()
        result.update(x=point.x, fun=point.value, jac=point.gradient, nit=self.nit, nfev=self.steps.passes)
        result.update(success=self.status == CONVERGED, status=self.status, message=self.message)
        result.update(history=self.trace.as_dict())
        return result
