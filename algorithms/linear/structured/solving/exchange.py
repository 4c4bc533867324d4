r"""Exchanges of columns at a stationary point of a penalty that is not convex.

At such a point no coefficient alone lowers the objective, but two may. An exchange sets the coefficient of
column i to zero and lets column j, which is zero, take the value v that is best by the quadratic model of the
loss, of slopes g and curvatures H::

    rise(i, j) = min_v  <g, d> + <d, H d> / 2 + pen(v) - pen(b_i),     d = v e_j - b_i e_i

Those of the least rise are tried, each followed by descent on the working set. One is kept if the objective
then is lower. The end is a point that none of them leaves.

Hazimeh and Mazumder, "Fast best subset selection: coordinate descent and local combinatorial optimization
algorithms", Operations Research 2020, exchange columns so for an l0 penalty.
"""

import numpy as np

from .....kernels.linear.exchanges import exchanges
from ..penalties import BlockPenalty

_MOST_COLUMNS = 1000  # whose products are computed
_TRIED = 5  # exchanges at a point
_MOST = 100  # exchanges that are kept: a cap
_FALL = 1e-8  # of the objective, for an exchange to be kept


def can_exchange(solver, penalty):
    """Whether the blocks are single coefficients of a penalty of closed form that is not convex."""
    if not isinstance(penalty, BlockPenalty) or penalty.convex:
        return False
    return solver.K == 1 and len(penalty.lam) == len(solver.B)


def exchange(solver, penalty, tol):
    """Exchange columns of the working set while the objective falls, each time with descent to `tol`."""
    value, state, H = solver.objective(penalty), solver.state(), None
    on, g = _candidates(solver)
    for _ in range(_MOST):
        if H is None or not solver.loss.quadratic:
            H = _products(solver, on)
        places = solver.places[on]
        terms = (part[places] for part in (penalty.lam, penalty.l1, penalty.low, penalty.high))
        b = solver.B[places, 0]
        given, taken, values, rises = exchanges(H, g[on], b, *terms, penalty.gamma, penalty.kind)
        for k in np.argsort(rises, kind="stable")[:_TRIED].tolist():
            _move(solver, on[given[k]], on[taken[k]], values[k])
            solver.descend(penalty, tol)
            now = solver.objective(penalty)
            if now < value - _FALL * abs(value):
                break
            solver.restore(state)
        else:
            return
        value, state = now, solver.state()
        more, g = _candidates(solver)
        if not np.array_equal(more, on):
            on, H = more, None


def _candidates(solver):
    """Places in the working set whose columns may be exchanged, and the slopes at all of it."""
    g = solver.columns.slopes(solver.part, solver.loss.gradient(solver.f))[:, 0]
    if len(g) <= _MOST_COLUMNS:
        return np.arange(len(g)), g
    ranks = np.where(solver.B[solver.places, 0] != 0, np.inf, np.abs(g))
    return np.sort(np.argsort(-ranks, kind="stable")[:_MOST_COLUMNS]), g


def _products(solver, on):
    """Curvatures of the loss between columns, less what the intercept takes up."""
    if (
        solver.loss.quadratic
        and solver.products is not None
        and len(solver.products[0]) == len(solver.places)
    ):
        H, ones, total = solver.products
        H, ones = H[np.ix_(on, on)], None if ones is None else ones[on]
    else:
        floor = {"floor": solver.floor} if solver.loss.flat else {}
        part = solver.part[:, on]
        H, ones, total = solver.loss.gram(solver.f, solver.columns, part, solver.fit_intercept, **floor)
    return H - np.outer(ones, ones) / total if solver.fit_intercept else H


def _move(solver, given, taken, value):
    """Set the coefficient at one place of the working set to zero, and at another to a value."""
    step = np.zeros((len(solver.places), 1))
    step[given], step[taken] = -solver.B[solver.places[given]], value
    solver.B[solver.places] += step
    solver.B[solver.places[given]] = 0.0
    solver.f = solver.f + solver.columns.times(solver.part, step)
