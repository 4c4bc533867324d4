"""Where the fit of a penalty that is not convex begins."""

import numpy as np

from ..penalties import GivenPenalty
from .exchange import can_exchange, exchange, search
from .problem import smoothed

_ROUGH = 1e-2  # of the fits that begin one of a penalty that is not convex
_FALL, _ROUNDS = 1.7, 20  # of strengths on the way from zero, and rounds of each
_WAY = 0.1  # of a strength on the way: the tolerance there
_ALIKE = 1e-6  # of objectives, between starts that led to one point
_FEW_PRODUCTS = 3e6  # multiplications in products of all columns that cost less than the fits


def lowest(solver, penalties, penalty, alpha, unit, first, max_iter, *, tol, report):
    """Minimise a penalty that is not convex from the lowest of some points.

    Fits along falling strengths end at the first point. From zero, by few blocks at a time, the working set
    leads to the second. The convex penalty, if there is one, leads to the third. From each columns are
    exchanged while that lowers the objective. The last fit, from the lowest, is of all columns. Where
    products of all columns cost little, one call finds the lowest point. ``penalties(alpha)`` gives the
    penalty of another strength, ``penalties(alpha, convex=True)`` the convex one.
    """
    origin, found, stages, strengths = solver.state(), [], [], np.array([alpha])
    enough = _ROUGH * min(alpha, first)
    if 0 < alpha < first:
        n_strengths = 1 + int(np.ceil(np.log(first / alpha) / np.log(_FALL)))
        strengths = np.geomspace(first, alpha, n_strengths)[1:]
    is_quick = solver.loss.quadratic and can_exchange(solver, penalty)
    is_quick = is_quick and solver.columns.size * len(solver.B) <= _FEW_PRODUCTS
    if is_quick:
        solver.grow(np.flatnonzero(penalty.allowed))
        search(solver, penalty, strengths / alpha, np.maximum(_WAY * strengths, enough), enough)
    else:
        if 0 < alpha < first:
            stages = [(penalties(value), _WAY * value / first, _ROUNDS, False) for value in strengths]
        if not isinstance(penalty, GivenPenalty):
            stages.append((penalties(alpha, convex=True), _ROUGH, max_iter, True))

    def settle(few=False):
        solver.descend(penalty, enough, few=few)
        found.append((solver.objective(penalty), solver.state()))

    for stage, rough, most, is_start in stages:
        if is_start:
            settle()
            solver.restore(origin)
            settle(few=True)
        fit = solver.solve(stage, unit, first, tol=rough, max_rounds=most, report=report)
        if fit.reason in ("stopped", "large"):
            fit.objective, fit.gap = solver.objective(penalty), np.nan  # those of this penalty
            fit.violation = float(penalty.judge(solver.B, solver.slopes()[0], False)[0].max(initial=0.0))
            return fit
    if not is_quick:
        settle()
        solver.restore(_exchanged(solver, penalty, found, enough))
    return smoothed(solver, penalty, unit, first, max_rounds=max_iter, tol=tol, report=report)


def _exchanged(solver, penalty, found, tol):
    """The state of the lowest of some points, after exchanges from each where they can be made."""
    found.sort(key=lambda pair: pair[0])
    if not can_exchange(solver, penalty):
        return found[0][1]
    ends, last = [], np.inf
    for objective, state in found:
        if abs(objective - last) > _ALIKE * abs(objective):
            solver.restore(state)
            exchange(solver, penalty, tol)
            ends.append((solver.objective(penalty), solver.state()))
        last = objective
    return min(ends, key=lambda pair: pair[0])[1]
