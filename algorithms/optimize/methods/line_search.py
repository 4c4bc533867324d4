"""Steps along a direction: strong Wolfe by bracketing and cubic zoom, and Armijo on a projected path."""

import math
from typing import Any, NamedTuple

ARMIJO, CURVATURE = 1e-4, 0.9  # Nocedal and Wright 2006, for quasi-Newton directions
_SLACK = 1e-13  # of |f|: how far rounding may lift an objective that does not change any more
_MARGIN = 0.05  # of the bracket: a cubic's minimum nearer to an end than this is not taken


class Trial(NamedTuple):
    """A point on the way.

    Attributes: `t`: length of the step. `value`, `slope`: objective, and its derivative by `t`; infinite
    where the objective is not finite. `state`: what the caller knows of the point; None at the start.
    """

    t: float
    value: float
    slope: float
    state: Any = None

    @property
    def finite(self):
        """Whether a cubic may be laid through it."""
        return math.isfinite(self.value) and math.isfinite(self.slope)


def strong_wolfe(phi, value, slope, first=1.0, *, max_trials=25):
    """Find t with ``f(t) <= f(0) + c1 t f'(0)`` and ``|f'(t)| <= c2 |f'(0)|``, c1 = 1e-4 and c2 = 0.9.

    Steps grow (by the secant of the slopes, 1.2 to 10 times) until a minimum is bracketed, then the bracket
    shrinks to the minimum of the cubic through its ends, or to its middle where that is too near to an end.
    Where the objective is not finite the step is cut to a tenth of the way.

    `phi`: ``phi(t)`` returns a `Trial`. `value`, `slope`: f(0) and f'(0), the latter negative. `first`: first
    step tried. Returns Trial or None; the best point with enough decrease if no point within `max_trials`
    meets both conditions; None if there is none. References: Nocedal, Wright, "Numerical optimization", 2nd
    edition, algorithms 3.5 and 3.6.
    """
    value, slope = float(value), float(slope)  # of Python: they overflow without a warning
    low, high = Trial(0.0, value, slope), None
    t = float(first)
    for _ in range(max_trials):
        trial = phi(t)
        trial = trial._replace(value=float(trial.value), slope=float(trial.slope))
        if not trial.finite:
            high = trial._replace(value=math.inf)
        elif trial.value > value + ARMIJO * t * slope + _SLACK * abs(value) or (
            low.t > 0 and trial.value >= low.value and not _unseen(trial, value, slope)
        ):
            high = trial
        elif abs(trial.slope) <= -CURVATURE * slope:
            return trial
        else:
            if high is None:
                high = low if trial.slope >= 0 else None
            elif (high.t - low.t) * trial.slope >= 0:
                high = low
            before, low = low, trial
            if high is None:
                t = _farther(before, trial)
                continue
        t = _between(low, high)
        if t in (low.t, high.t):  # no number lies between them
            break
    return low if low.value < value else None  # within the slack only: not worth a step


def _unseen(trial, value, slope):
    """Whether a step is too short for its decrease to show: the objective is as it was, and as steep."""
    return trial.slope < CURVATURE * slope and abs(trial.value - value) <= _SLACK * abs(value)


def _farther(before, trial):
    """Go to where the secant of the slopes is zero, within bounds."""
    bend = trial.slope - before.slope
    wanted = trial.t - trial.slope * (trial.t - before.t) / bend if bend > 0 else math.inf
    return min(max(wanted, 1.2 * trial.t), 10.0 * trial.t)


def _between(low, high):
    """Minimum of the cubic through the ends of a bracket; its middle, or near `low`, where there is none."""
    width = high.t - low.t
    if not high.finite:
        return low.t + 0.1 * width
    p = low.slope + high.slope - 3 * (high.value - low.value) / width
    square = p * p - low.slope * high.slope
    if 0 < square < math.inf:
        q = math.copysign(math.sqrt(square), width)
        below = high.slope - low.slope + 2 * q
        if below != 0:
            share = 1 - (high.slope + q - p) / below
            if _MARGIN < share < 1 - _MARGIN:
                return low.t + share * width
    return low.t + 0.5 * width


def backtrack(phi, value, first=1.0, factor=0.5, *, max_trials=40):
    """Find the first t = first, first * factor, ... with ``f(t) <= f(0) + c1 m(t)``, c1 = 1e-4.

    `phi`: ``phi(t)`` returns a `Trial` whose slope is m(t): the decrease that the gradient at the start
    promises for the point that was reached, negative; 0 where rounding leaves the point where it was.
    `value`: f(0). Returns Trial or None.
    """
    t = first
    for _ in range(max_trials):
        trial = phi(t)
        if trial.slope == 0:
            return None
        if (
            trial.finite
            and trial.slope < 0
            and trial.value <= value + ARMIJO * trial.slope + _SLACK * abs(value)
        ):
            return trial
        t *= factor
    return None
