"""The minimum of a quadratic plus weighted absolute values, for a few thousand parameters.

Coordinate descent finds which parameters are not zero; on these, with their signs, the minimum is that of a
system of equations, which a Cholesky factor solves however the parameters correlate. A parameter that would
change its sign on the way there stops at zero and is left out. Both take turns until no parameter gains.
"""

import numpy as np

from .preconditioner import Cholesky

_SWEEPS, _SWEEP_TOL = 100, 1e-10  # of coordinate descent a round; largest step^2, relative to the first
_ROUNDS = 300  # of active sets; a cap
_CROSSINGS = 3  # a round, before coordinate descent goes on
_GAIN = 1e-14  # of what the quadratic was lowered: what single parameters may still gain


def minimise_quadratic(H, g, x, l1, *, start=None, least=0.0):
    """Minimise ``g.(b - x) + (b - x)^T H (b - x) / 2 + sum_j l1_j |b_j|`` over b.

    `H`: float64 (p, p); symmetric, positive definite but for rounding. `g`, `x`, `l1`: float64 (p,). `start`:
    float64 (p,); where to begin; x when None. `least`: end, too, when a round lowers it by at most this part
    of what it fell by. Returns `b`: float64 (p,). `fell`: how much lower that is than at x.
    """
    from ....kernels.linear.weighted_descent import gram_descent

    b, none, free = (x if start is None else start).copy(), np.zeros(len(x)), np.zeros(len(x), bool)
    curvature, fell = np.diagonal(H), 0.0
    for _ in range(_ROUNDS):
        slopes = -g - H @ (b - x)
        gram_descent(H, slopes, b, l1, none, free, _SWEEPS, _SWEEP_TOL)
        _solve_support(H, g, x, l1, b)
        slope = g + H @ (b - x)
        before, fell = fell, -(0.5 * (g + slope) @ (b - x) + l1 @ (np.abs(b) - np.abs(x)))
        uphill = np.where(b != 0, slope + l1 * np.sign(b), np.maximum(np.abs(slope) - l1, 0))
        gains = np.divide(uphill**2, 2 * curvature, out=np.zeros(len(b)), where=curvature > 0)
        if gains.sum() <= _GAIN * fell or fell - before <= least * fell:
            break
    return b, float(fell)


def _solve_support(H, g, x, l1, b):
    """Go to the minimum over the parameters that are not zero, as long as none changes its sign."""
    for _ in range(_CROSSINGS):
        S = np.flatnonzero((b != 0) | (l1 == 0))
        if not len(S):
            return
        signs = np.sign(b[S])
        slope = g[S] + H[S] @ (b - x) + l1[S] * signs
        d = -Cholesky(H[np.ix_(S, S)]).solve(slope)
        crossing = (l1[S] > 0) & (signs * (b[S] + d) < 0)
        if not crossing.any():
            b[S] += d
            return
        steps = np.full(len(S), np.inf)
        steps[crossing] = -b[S][crossing] / d[crossing]
        first = int(steps.argmin())
        b[S] += steps[first] * d
        b[S[first]] = 0.0
