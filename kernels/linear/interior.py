"""The entrywise half of the steps of an interior point; see `interior` of the structured solver.

`a`: slopes, from `l` to `h`. `s`, `t`: the room to these bounds, which rounding would take away. `z`, `y`:
their multipliers, 0 where there is no bound. ``r = A b - k``. All float64 of one length; `Xd` and `d` are the
changes of A b by rows, then by columns.
"""

import numba as nb

from ..indexing import copy
from ..options import KERNEL

_BACK = 0.9995  # of the way to the nearest bound
_FAR = 1e300  # in place of an infinite bound


@nb.njit(**KERNEL)
def prepare(r, a, z, y, s, t, D, missing):
    """Fill D and what the multipliers miss of r; return the complementarity, and what that costs."""
    gap, cost = 0.0, 0.0
    for i in range(len(a)):
        missing[i] = y[i] - z[i] - r[i]
        D[i] = 1 / min(z[i] / s[i] + y[i] / t[i], 1e200)
        gap += z[i] * s[i] + y[i] * t[i]
        cost += abs(missing[i] * a[i])
    return gap, cost


@nb.njit(**KERNEL)
def predict(Xd, d, r, l, h, z, y, s, t, D, missing, together, gap, first, second, g):  # noqa: E741
    """Follow the step to the bounds as far as it goes; fill the right hand sides of the corrector."""
    n, N, up, across, after, bounds = len(Xd), len(r), 0.0, 0.0, 0.0, 0
    for i in range(N):
        da = D[i] * ((Xd[i] if i < n else d[i - n]) + r[i])
        first[i], second[i], g[i] = -z[i] - z[i] * da / s[i], -y[i] + y[i] * da / t[i], da
        up = max(up, -da / s[i], da / t[i])
        if z[i] > 0:
            across, bounds = max(across, -first[i] / z[i]), bounds + 1
        if y[i] > 0:
            across, bounds = max(across, -second[i] / y[i]), bounds + 1
    if together:
        up = across = max(up, across)
    up, across = 1 / max(up / _BACK, 1.0), 1 / max(across / _BACK, 1.0)
    for i in range(N):
        if z[i] > 0:
            after += (z[i] + across * first[i]) * (s[i] + up * g[i])
        if y[i] > 0:
            after += (y[i] + across * second[i]) * (t[i] - up * g[i])
    mu = (after / gap) ** 3 * gap / max(bounds, 1)
    for i in range(N):
        first[i] = mu - s[i] * z[i] - g[i] * first[i] if l[i] > -_FAR else 0.0
        second[i] = mu - t[i] * y[i] + g[i] * second[i] if h[i] < _FAR else 0.0
        g[i] = missing[i] + second[i] / t[i] - first[i] / s[i]


@nb.njit(**KERNEL)
def correct(Xd, d, a, z, y, s, t, D, g, first, second, together):
    """Take the step, in place, as far as the bounds allow; return the share for the coefficients."""
    n, N, up, across = len(Xd), len(a), 0.0, 0.0
    for i in range(N):
        da = D[i] * ((Xd[i] if i < n else d[i - n]) - g[i])
        g[i], first[i], second[i] = da, (first[i] - z[i] * da) / s[i], (second[i] + y[i] * da) / t[i]
        up = max(up, -da / s[i], da / t[i])
        if z[i] > 0:
            across = max(across, -first[i] / z[i])
        if y[i] > 0:
            across = max(across, -second[i] / y[i])
    if together:
        up = across = max(up, across)
    up, across = 1 / max(up / _BACK, 1.0), 1 / max(across / _BACK, 1.0)
    for i in range(N):
        a[i] += up * g[i]
        s[i] += up * g[i]
        t[i] -= up * g[i]
        z[i] += across * first[i]
        y[i] += across * second[i]
    return across


@nb.njit(**KERNEL)
def best_constant(order, k, low, high, v):
    """Minimise the sum of ``max(low (c - k), high (c - k))`` over c; fill slopes v, of sum 0; return c."""
    total, c = low.sum(), 0.0
    copy(low, v)
    for i in order:
        c, v[i] = k[i], min(high[i], low[i] - total)
        total += v[i] - low[i]
        if total >= 0:
            break
    return c
