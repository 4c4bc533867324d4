r"""Exchanges of columns at a stationary point of a penalty that is not convex.

At such a point no coefficient alone lowers the objective, but two may. An exchange sets the coefficient of
column i to zero and lets column j, which is zero, take the value v that is best by the quadratic model of the
loss, of slopes g and curvatures H::

    rise(i, j) = min_v  <g, d> + <d, H d> / 2 + pen(v) - pen(b_i),     d = v e_j - b_i e_i

Those of the least rise are tried, each followed by descent on the model, and where that is not exact, on the
loss. One is kept if the objective then is lower. The end is a point that none of them leaves.

Hazimeh and Mazumder, "Fast best subset selection: coordinate descent and local combinatorial optimization
algorithms", Operations Research 2020, exchange columns so for an l0 penalty.
"""

import numpy as np

from .....kernels.linear.exchanges import TRIED, exchange_columns
from ..penalties import BlockPenalty

_MOST_COLUMNS = 1000  # whose products are computed
_MOST = 100  # exchanges that are kept: a cap
_FALL = 1e-5  # of the objective, for an exchange to be kept: what descent leaves is less


def can_exchange(solver, penalty):
    """Whether the blocks are single coefficients of a penalty of closed form that is not convex."""
    if not isinstance(penalty, BlockPenalty) or penalty.convex:
        return False
    return solver.K == 1 and len(penalty.lam) == len(solver.B)


def exchange(solver, penalty, tol):
    """Exchange columns of the working set while the objective falls, each time with descent to `tol`."""
    if 2 * np.count_nonzero(solver.B) > len(solver.f):  # as many fit the rows as well
        return
    value, state, exact = solver.objective(penalty), solver.state(), solver.loss.quadratic
    for _ in range(_MOST):
        on, g = _candidates(solver)
        places = solver.places[on]
        lam, l1, ridge, low, high = penalty.table.take(places, axis=1)
        b, H = solver.B[places, 0], _products(solver, on)
        H[np.diag_indices_from(H)] += ridge
        curvatures, g = np.diagonal(H), g[on] + ridge * b
        steps = 1 / np.where(curvatures > 0, curvatures, np.inf)
        terms = steps, lam, l1, low, high, penalty.gamma, penalty.kind, tol
        for first in range(1 if exact else TRIED):
            least, most = (_FALL * abs(value), _MOST) if exact else (-np.inf, 1)
            new, step = b.copy(), np.zeros((len(solver.places), 1))
            if not exchange_columns(H, g.copy(), new, *terms, least, most, first):
                return
            step[on, 0] = new - b
            solver.B[places, 0] = new
            solver.f = solver.f + solver.columns.times(solver.part, step)
            solver.descend(penalty, tol)
            now = solver.objective(penalty)
            if now < value - _FALL * abs(value):
                break
            solver.restore(state)
        else:
            return
        value, state = now, solver.state()


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
