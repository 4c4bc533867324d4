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

from .....kernels.linear.blocks import minimise_columns
from .....kernels.linear.exchanges import TRIED, exchange_columns
from .....kernels.linear.newton import STEPS, judge_columns
from ..penalties import BlockPenalty
from .second_order import visited

_MOST_COLUMNS = 1000  # whose products are computed
_MOST, _MOST_SWEEPS = 100, 20_000  # exchanges that are kept, and sweeps of a descent: caps
_FALL = 1e-5  # of the objective, for an exchange to be kept: what descent leaves is less
_ALIKE = 1e-6  # of objectives, between starts that led to one point


def can_exchange(solver, penalty):
    """Whether the blocks are single coefficients of a penalty of closed form that is not convex."""
    if not isinstance(penalty, BlockPenalty) or penalty.convex:
        return False
    return solver.K == 1 and len(penalty.lam) == len(solver.B)


def search(solver, penalty, strengths, tolerances, tol):
    """Go to the lowest of three points of the working set, of a quadratic loss.

    The first is at the end of falling `strengths`, the last of them 1. To the second columns get coefficients
    by and by, those first that break the conditions most. The third is reached from the norm. From each
    columns are exchanged.
    """
    on, places, H, g, steps = _model(solver, penalty)
    start, P = solver.B[places, 0], penalty.table.take(places, axis=1)
    lam, l1, _, low, high = P
    value, scores, is_free = solver.objective(penalty), np.empty(len(on)), lam + l1 == 0

    def descend(b, G, steps=steps, strength=1.0, tol=tol, kind=penalty.kind):
        terms = steps, strength * lam, strength * l1, low, high, penalty.gamma, kind, tol
        minimise_columns(H, G, b, *terms, _MOST_SWEEPS, len(b))

    def judged(b, G):
        return judge_columns(b, -G, P, penalty.gamma, penalty.kind, False, scores)

    def rise(b, G):
        return value + 0.5 * float((b - start) @ (g + G)) + judged(b, G)[0] - cost

    P[2], cost = 0.0, 0.0  # H has the ridge
    cost = judged(start, g)[0]
    points = [(start.copy(), g.copy()) for _ in range(3)]
    for strength, enough in zip(strengths, tolerances, strict=True):
        descend(*points[0], strength=strength, tol=enough)
    for _ in range(STEPS):
        if judged(*points[1])[-1] <= tol:
            break
        moves = visited(scores, (points[1][0] != 0) | is_free, True)
        descend(*points[1], steps=np.where(moves, steps, 0.0))
    descend(*points[2], kind=0)
    descend(*points[2])
    ends, last = [], np.inf
    for end, b, G in sorted(((rise(*point), *point) for point in points), key=lambda point: point[0]):
        terms = steps, lam, l1, low, high, penalty.gamma, penalty.kind, tol, _FALL * abs(end), _MOST, 0
        if abs(end - last) > _ALIKE * abs(end) and 2 * np.count_nonzero(b) <= len(solver.f):
            while exchange_columns(H, G, b, *terms):
                descend(b, G)
        ends.append((rise(b, G), b))
        last = end
    _move(solver, on, places, min(ends, key=lambda pair: pair[0])[1])


def exchange(solver, penalty, tol):
    """Exchange columns of the working set while the objective falls, each time with descent to `tol`."""
    if 2 * np.count_nonzero(solver.B) > len(solver.f):  # as many fit the rows as well
        return
    value, state, exact = solver.objective(penalty), solver.state(), solver.loss.quadratic
    for _ in range(_MOST):
        on, places, H, g, steps = _model(solver, penalty)
        lam, l1, _, low, high = penalty.table.take(places, axis=1)
        terms = steps, lam, l1, low, high, penalty.gamma, penalty.kind, tol
        for first in range(1 if exact else TRIED):
            least, most = (_FALL * abs(value), _MOST) if exact else (-np.inf, 1)
            b = solver.B[places, 0]
            if not exchange_columns(H, g.copy(), b, *terms, least, most, first):
                return
            _move(solver, on, places, b)
            solver.descend(penalty, tol)
            now = solver.objective(penalty)
            if now < value - _FALL * abs(value):
                break
            solver.restore(state)
        else:
            return
        value, state = now, solver.state()


def _move(solver, on, places, b):
    """Give coefficients to columns, which are at `on` in the working set."""
    step = np.zeros((len(solver.places), 1))
    step[on, 0] = b - solver.B[places, 0]
    solver.B[places, 0] = b
    solver.f = solver.f + solver.columns.times(solver.part, step)


def _model(solver, penalty):
    """The columns of the working set that may be exchanged; curvatures, slopes and steps of their model."""
    on, g = _candidates(solver)
    places = solver.places[on]
    ridge, H = penalty.table[2, places], _products(solver, on)
    H[np.diag_indices_from(H)] += ridge
    curvatures, g = np.diagonal(H), g[on] + ridge * solver.B[places, 0]
    return on, places, H, g, 1 / np.where(curvatures > 0, curvatures, np.inf)


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
