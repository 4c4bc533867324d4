"""Divergence: an objective that is not finite any more, or rises to the end without slowing."""

import math
import warnings

from .program import Program

_IN_A_ROW = 3  # measured values that are not finite
_LEAST = 8  # measured values to judge a rise by


def broken_off(program):
    """Make a stopping rule: the objective was finite once, and then was not several times in a row.

    A start outside the domain of the objective, at infinity, does not count. A NaN counts where
    `Program.measure` was called; elsewhere it means that nothing was measured.
    """
    n_seen, was_finite, n_lost = 0, False, 0

    def stop(history):
        nonlocal n_seen, was_finite, n_lost
        for value in _measured(program, history, n_seen):
            finite = math.isfinite(value)
            n_lost = 0 if finite else n_lost + was_finite
            was_finite = was_finite or finite
        n_seen = len(history)
        return "diverged" if n_lost >= _IN_A_ROW else False

    return stop


def _measured(program, history, first=0):
    """Return the measured objectives from a row on; NaN among them are results, and not missing."""
    measures = program.measure_every and type(program).objective is not Program.objective
    return [
        value
        for round_, value in history.objectives_from(first)
        if not math.isnan(value) or (measures and round_ % program.measure_every == 0)
    ]


def check_end(program, history, reason, label):
    """Return the reason of a run's end; if that is ``"diverged"``, with a ConvergenceWarning.

    After all rounds a run has diverged if its last objective is the highest, exceeds the first by the first's
    size, and rose in the last quarter of the rounds at least as much as in the quarter before. A run that
    converges cannot do that: in the end its steps shrink. An objective below zero that is maximised, such as
    a log-likelihood, stays below the limit.
    """
    values, what = _measured(program, history), ""
    if reason == "diverged" or (reason == "finished" and values and not math.isfinite(values[-1])):
        what = "is no finite number any more"
    elif reason == "finished" and _rises(values):
        what = f"rose from {values[0]:.3g} to {values[-1]:.3g} and rises still"
    if not what:
        return reason
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"{label} diverged: its objective {what}. Update fewer blocks a round, take blocks that do not "
        "depend on each other (conflicts of DynamicSchedule), or smaller steps",
        ConvergenceWarning,
        stacklevel=3,
    )
    return "diverged"


def _rises(values):
    if len(values) < _LEAST or not all(map(math.isfinite, values)):
        return False
    quarter = len(values) // 4
    first, before, middle, last = values[0], values[-1 - 2 * quarter], values[-1 - quarter], values[-1]
    return last == max(values) and last > first + abs(first) and last - middle >= middle - before > 0
