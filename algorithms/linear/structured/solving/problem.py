"""Parts of a fit of the generic solver: data, penalty without strength, strengths of a path."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from .....errors import DataError
from .blocks import Blocks
from .kinks import KinkedRows, sharpened
from .small import SmallSolver
from .solver import Fit

_ROUNDING = 1e-12  # of the loss of the intercept alone
_MOST_INTERIOR = 20  # passes with interior points: what they do not reach by then, they never do


@dataclass
class StructuredProblem:
    """Checked data of a fit."""

    columns: Any  # `Columns`, or a CutColumns
    loss: Any
    blocks: Blocks
    factors: np.ndarray  # of blocks
    curvature: Any  # of the loss: the largest, for penalties on vectors; for "lq" that along each block
    scales: Any = None  # of columns, with `standardize`: the solver has coefficients times these

    def in_units(self, fit):
        """The fit with coefficients of the columns as they are."""
        if self.scales is None:
            return fit
        return replace(fit, B=fit.B / self.blocks.spread(self.scales)[:, None])

    def predictor(self, B):
        """Linear predictors of the rows, without intercept and offset; `B`: of columns as they are."""
        used = np.flatnonzero(B.any(axis=1))
        scales = 1.0 if self.scales is None else self.scales[used, None]
        return self.columns.times(self.columns.raw(used), B[used] * scales)


@dataclass
class Terms:
    """The penalty of an estimator without its strength.

    `kind`: "norm", "mcp", "scad", "log", "lq", or a `Penalty`. `l1_ratio`: the share of the l1 norm where
    there are groups, else of the norm next to the square. `factors`: None or one a block.
    """

    kind: Any = "norm"
    l1_ratio: float = 1.0
    groups: Any = None
    overlap: bool = False
    factors: Any = None
    low: Any = -np.inf
    high: Any = np.inf
    gamma: float | None = None
    sparse_groups: bool = False


def smoothed(solver, penalty, unit, first, *, wide=False, **options):
    """Solve; for a loss with a kink until the exact gap is small enough, with `wide` from its first width.

    Where the interior point of a linear program does not come near enough, smoothing goes on from there.
    """
    if not isinstance(solver.loss, KinkedRows):
        return solver.solve(penalty, unit, first, **options)
    rounds, loss, most = 0, solver.loss.loss, options["max_rounds"]
    if solver.takes(penalty):
        fit = solver.solve(penalty, unit, first, **options | {"max_rounds": min(most, _MOST_INTERIOR)})
        rounds = fit.rounds
        if fit.reason not in ("stalled", "max_rounds") or rounds == most:
            return fit
        solver.smooths, loss.width = True, loss.first_width
        solver.forget_slopes()
    elif wide:
        loss.width = loss.first_width
        solver.forget_slopes()
    fit = sharpened(solver, penalty, unit, first, **options | {"max_rounds": most - rounds})
    fit.rounds, solver.smooths = fit.rounds + rounds, False
    return fit


def begin_lower(solver, penalty, begin):
    """Start from a model by ``begin()``; but from the null model, the present one, where that is better.

    A model of other rows may be so far off that losses overflow, or have neither slope nor curvature. It may
    have coefficients of columns that are constant now, which no slope brings back to zero.
    """
    null = solver.B.copy(), solver.intercept()
    with np.errstate(over="ignore", invalid="ignore"):
        objective = np.inf if solver.loss.quadratic else solver.objective(penalty)
        begin()
        is_worse = not (solver.loss.quadratic or solver.objective(penalty) <= objective)
    if is_worse:
        solver.begin(*null)
    elif solver.f is not None and len(solver.places):
        largest = abs(solver.part).max(axis=0)
        is_constant = (largest.toarray().ravel() if sparse.issparse(largest) else largest) == 0
        if solver.B[solver.places[is_constant]].any():
            B = solver.B.copy()
            B[solver.places[is_constant]] = 0.0
            solver.begin(B, solver.intercept())


def scale_of(solver, penalty):
    """Fit the intercept and free columns alone: the units of gaps and violations."""
    loss, columns = solver.loss, solver.columns
    slopes = None
    if isinstance(solver, SmallSolver):
        unit, first = solver.null(penalty)
    else:
        slopes = solver.slopes()[0] if np.all(penalty.free) else None  # those of the end vanish
        unit, V = solver.null(penalty)
        first = float(np.abs(V if slopes is None else slopes).max(initial=0.0))
    is_far = not solver.fit_intercept and loss.offset is not None
    if is_far or penalty.free.any():
        # At a far offset the loss of coefficients of zero may be e^offset, and where free columns alone know
        # y it is rounding: both say nothing of the model's.
        f = null_predictor(loss, columns.n_samples)
        constant = loss.objective(f) - loss.least()
        if (is_far and 0 < constant < unit) or unit < _ROUNDING * constant:
            unit = constant
            if slopes is None:
                first = float(np.abs(columns.all_slopes(loss.gradient(f))).max())
    return unit or 1e-300, first or 1.0


def null_predictor(loss, n_samples):
    """The predictor of a model without columns."""
    f = np.repeat(loss.start()[None], n_samples, axis=0)
    return f if loss.offset is None else f + loss.offset


def least_alpha(penalty_at, solver):
    """The least strength whose penalty holds all coefficients at zero; `solver` is at the null model."""
    V, _ = solver.slopes()
    zero = np.zeros_like(solver.B)
    scale = float(np.abs(V).max(initial=0.0))

    def holds(alpha):
        penalty = penalty_at(alpha)
        return not (penalty.distances(zero, V) * (penalty.allowed & ~penalty.free) > 1e-12 * scale).any()

    if scale == 0 or holds(1e-12 * scale):
        return 0.0
    low, high = 1e-12 * scale, scale
    while not holds(high):
        low, high = high, 4 * high
        if high > 1e12 * scale:
            return np.inf
    while high > low * (1 + 1e-14):
        middle = np.sqrt(low) * np.sqrt(high)
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return float(high)


def so_far(solver, objective, figure, round_):
    """The solution of a running fit."""
    return Fit(solver.B.copy(), solver.intercept(), objective, figure, figure, round_, "running")


def times(share, strengths):
    """A share of strengths, some of which are infinite."""
    if share in (0, 1):
        return strengths if share else np.zeros(len(strengths))
    finite = np.isfinite(strengths)
    return np.where(finite, share * np.where(finite, strengths, 0), np.inf)


def spread_bounds(low, high, n_blocks, blocks, n_outputs):
    """Check bounds of coefficients; return numbers, or one of each kind for every block."""
    if np.ndim(low) == np.ndim(high) == 0 and (low, high) == (-np.inf, np.inf):
        return low, high
    given = []
    for name, value in (("low", low), ("high", high)):
        value = np.asarray(value, np.float64)
        if value.shape not in ((), (n_blocks,)) or np.isnan(value).any():
            raise DataError(
                f"bounds must be two numbers, or vectors of {n_blocks}, one entry a column, without NaN"
            )
        if (value > 0).any() if name == "low" else (value < 0).any():
            raise DataError("bounds must have 0 between them: a coefficient that is not chosen is 0")
        given.append(np.broadcast_to(value, (n_blocks,)).copy())
    low, high = given
    cones = np.isin(low, (0, -np.inf)) & np.isin(high, (0, np.inf))
    if (~cones & ((blocks.sizes > 1) | (n_outputs > 1))).any():
        raise DataError(
            "bounds other than 0 and infinity are for single columns and one target, not for groups"
        )
    return low, high
