"""Solutions of ordinary differential equations, and their derivatives in the start and the parameters.

Dormand and Prince's pair of orders 5 and 4, with steps that keep the estimated error of each within ``atol +
rtol |y|``: Dormand, Prince, "A family of embedded Runge-Kutta formulae", 1980; Hairer, Norsett, Wanner,
"Solving ordinary differential equations I", chapter II.4.
"""

import math

import numba as nb
import numpy as np

from ..streams import OPTIONS

# The cache of compiled code does not know functions that are arguments.
_NOT_CACHED = OPTIONS | {"cache": False}
_NODES = np.array([0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_STAGES = np.zeros((7, 6))
_STAGES[1, :1] = 1 / 5
_STAGES[2, :2] = 3 / 40, 9 / 40
_STAGES[3, :3] = 44 / 45, -56 / 15, 32 / 9
_STAGES[4, :4] = 19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729
_STAGES[5, :5] = 9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656
_STAGES[6] = 35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84
_ERROR = np.array([71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])
_SAFETY, _LEAST, _MOST = 0.9, 0.2, 5.0  # of the next step in parts of this one
_DIFFERENCE = np.finfo(float).eps ** (1 / 3)
_SMALL = 1e-3  # below, differences take steps as for this size


@nb.njit(**_NOT_CACHED)
def solve_ode(f, start, t0, times, theta, rtol=1e-8, atol=1e-10, max_steps=10_000):
    """Solve ``dy/dt = f(t, y, theta)``; returns y at each of the times.

    Parameters
    ----------
    f : compiled function ``f(t, y, theta, dy)``
        Fills dy (n,).
    start : array of shape (n,)
        y at t0.
    t0 : float
    times : array of shape (T,)
        Rising, from t0 on.
    theta : array of shape (m,)
        Parameters of f.
    rtol, atol : float
        A step's estimated error of each y is at most ``atol + rtol |y|``.
    max_steps : int

    Returns
    -------
    array of shape (T, n)

    Raises
    ------
    ValueError
        If times do not rise, or `max_steps` are not enough: the problem is stiff there. `sample` takes that
        for a density of zero, and counts it.
    """
    y, _, _ = _solve(f, start, t0, times, theta, rtol, atol, max_steps, False)
    return y


@nb.njit(**_NOT_CACHED)
def solve_ode_gradient(f, start, t0, times, theta, rtol=1e-8, atol=1e-10, max_steps=10_000):
    """Solve as `solve_ode` does; returns y (T, n), and its derivatives in start (T, n, n), theta (T, n, m).

    The derivatives solve ``dS/dt = (df/dy) S + df/dtheta`` in the same steps, to the same tolerances. Those
    of f are central differences, so f must be defined within 1e-5 of the values (of their size, or 1e-8). A
    step takes 2 (n + m) + 1 evaluations of f where one of `solve_ode` takes one.
    """
    return _solve(f, start, t0, times, theta, rtol, atol, max_steps, True)


@nb.njit(**_NOT_CACHED)
def _solve(f, start, t0, times, theta, rtol, atol, max_steps, gradient):
    n, m = len(start), len(theta)
    width = n * (1 + n + m) if gradient else n  # y, then a row of n + m derivatives for each of its entries
    y, stage, slopes = np.zeros(width), np.empty(width), np.empty((7, width))
    for i in range(n):
        y[i] = start[i]
    unit = np.ones(width)  # of atol: a derivative's is one over the number's size
    if gradient:
        for i in range(n):
            row = n + i * (n + m)
            y[row + i] = 1.0
            for j in range(n + m):
                unit[row + j] = 1.0 / max(abs(start[j] if j < n else theta[j - n]), _SMALL)
    made = np.empty((len(times), n))
    by_start, by_theta = np.empty((len(times), n, n)), np.empty((len(times), n, m))
    point, nudged, above, below = np.empty(n), np.empty(m), np.empty(n), np.empty(n)
    for j in range(m):  # copies of integers would cut off what is added
        nudged[j] = theta[j]
    t, steps = t0, max_steps
    _slope(f, t, y, theta, slopes[0], gradient, point, nudged, above, below)
    h = _first_step(y, slopes[0], n, rtol, atol)
    for place in range(len(times)):
        end = times[place]
        if not end >= t:
            raise ValueError("solve_ode: times must rise, from t0 on")
        while t < end:
            if steps == 0:
                raise ValueError("solve_ode: more than max_steps steps: stiff, or without a solution")
            steps -= 1
            step = min(h, end - t)
            for s in range(1, 7):
                for i in range(width):
                    total = 0.0
                    for r in range(s):
                        total += _STAGES[s, r] * slopes[r, i]
                    stage[i] = y[i] + step * total
                _slope(
                    f, t + _NODES[s] * step, stage, theta, slopes[s], gradient, point, nudged, above, below
                )
            error = 0.0
            for i in range(width):
                total = 0.0
                for r in range(7):
                    total += _ERROR[r] * slopes[r, i]
                part = abs(step * total) / (atol * unit[i] + rtol * max(abs(y[i]), abs(stage[i])))
                error = max(error, part) if part >= 0.0 else math.inf
            factor = _SAFETY * error**-0.2 if error > 0.0 else _MOST
            if error <= 1.0:
                # What is left to a time must not shorten the steps after it.
                t = end if step >= end - t else t + step
                for i in range(width):
                    y[i], slopes[0, i] = stage[i], slopes[6, i]
                h = max(h, step * min(factor, _MOST)) if step < h else step * min(factor, _MOST)
            else:
                h = step * max(factor, _LEAST)
        for i in range(n):
            made[place, i] = y[i]
            if gradient:
                row = n + i * (n + m)
                for j in range(n):
                    by_start[place, i, j] = y[row + j]
                for j in range(m):
                    by_theta[place, i, j] = y[row + n + j]
    return made, by_start, by_theta


@nb.njit(**OPTIONS)
def _first_step(y, slope, n, rtol, atol):
    """A hundredth of the time in which y changes by its size (Hairer et al., II.4)."""
    size, change = 0.0, 0.0
    for i in range(n):
        scale = atol + rtol * abs(y[i])
        size, change = max(size, abs(y[i]) / scale), max(change, abs(slope[i]) / scale)
    return 0.01 * size / change if size > 1e-5 and change > 1e-5 else 1e-6


@nb.njit(**_NOT_CACHED)
def _slope(f, t, y, theta, slope, gradient, point, nudged, above, below):
    """Fill the derivatives in t of y, and of its derivatives."""
    n, m = len(point), len(nudged)
    for i in range(n):
        point[i] = y[i]
    f(t, point, theta, slope[:n])
    if not gradient:
        return
    for i in range(n):
        for j in range(n + m):
            slope[n + i * (n + m) + j] = 0.0
    for j in range(n + m):
        values = point if j < n else nudged
        k = j if j < n else j - n
        value = values[k]
        h = _DIFFERENCE * max(abs(value), _SMALL)
        values[k] = value + h
        f(t, point, nudged, above)
        values[k] = value - h
        f(t, point, nudged, below)
        values[k] = value
        for i in range(n):
            part = (above[i] - below[i]) / (2.0 * h)
            row = n + i * (n + m)
            if j < n:
                for c in range(n + m):
                    slope[row + c] += part * y[n + j * (n + m) + c]
            else:
                slope[row + j] += part
