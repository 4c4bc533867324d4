"""The integral over the k effects of one group of a mixed model, for any family, and draws of them.

The effects are ``u = T z`` with z standard normal, and row i has the predictor ``f_i + a_i z``, where
``a_i = T' Z_i``:

    ``Int N(z | 0, 1) prod_i p(y_i | f_i + a_i z)^w_i dz``

is a sum over the nodes of a lattice, about the mode of the integrand and in units of its curvature there: the
trapezoidal rule, which converges exponentially for such functions. Nodes are visited from the mode on, to all
whose neighbour is above ``e^-CUT`` of it. The step is cut until the even and the odd nodes (by the sum of
their coordinates), each a lattice of its own, agree to `_ENOUGH`; the error of both together is about the
square of that: 1e-6. By Fisher's identity gradients are means over z of those with z given, from the same
sum.

Student's t is not concave, so that several modes may be in one group: nodes are visited from the effects that
fit a single row as well. Only a mode below all of these, apart from them by a valley of ``e^-CUT``, would be
missed.

`draw_group` has the multilinear interpolation of the lattice as its proposal. The integrand over it is nearly
constant, and a chain of `_STEPS` independent proposals is closer to exact than the `e^-CUT` that is cut off.

References: Trefethen, Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 2014. Mengersen,
Tweedie, "Rates of convergence of the Hastings and Metropolis algorithms", Annals of Statistics 1996.
"""

import math

import numba as nb
import numpy as np

from ..streams import OPTIONS, uniform
from .mixed import BERNOULLI, GAMMA, NEGATIVE_BINOMIAL, NORMAL, POISSON, STUDENT_T, logistic, row

MOST_COLUMNS = 3
_CUT = 16.0  # logarithm of what is left out
_ENOUGH, _FINER, _TRIES = 1e-3, 0.7, 12
_STEP_SIZES = (0.8, 1.0, 1.2)  # standard deviations at the mode, to begin with, by k
_REACH = (2000, 60, 20)  # nodes to a side that the table has room for, by k
MOST_NODES = 60_000  # a cap
_NEWTON_STEPS, _HALVINGS, _NEAR = 60, 30, 1e-3
_RISE = 30.0  # of a second mode over the first, before sums are scaled anew
_DRAWING, _STEPS = 0.6, 12


@nb.njit(**OPTIONS)
def _information(family, f, y, own):
    """Minus the second derivative of a row's log likelihood in f; of Student's t its expectation."""
    if family == NORMAL:
        return 1.0 / (own[0] * own[0])
    if family == STUDENT_T:
        return (own[1] + 1.0) / ((own[1] + 3.0) * own[0] * own[0])
    if family == POISSON:
        return math.exp(f)
    if family == GAMMA:
        return own[0] * y * math.exp(-f)
    if family == BERNOULLI:
        p = logistic(f)
        return p * (1.0 - p)
    if family == NEGATIVE_BINOMIAL:
        p = logistic(f + math.log(own[0]))
        return (y + 1.0 / own[0]) * p * (1.0 - p)
    k, total = int(y), 0.0
    if k > 0:
        p = logistic(own[k - 1] - f)
        total += p * (1.0 - p)
    if k < len(own):
        p = logistic(own[k] - f)
        total += p * (1.0 - p)
    return total


@nb.njit(**OPTIONS)
def _at(z, family, f, y, weights, own, A, slopes, by_own):
    """Log of the integrand at z without the constant of the normal density; fills derivatives of all rows."""
    height = 0.0
    by_own[:] = 0.0
    for j in range(len(z)):
        height -= 0.5 * z[j] * z[j]
    for i in range(len(f)):
        at = f[i]
        for j in range(len(z)):
            at += A[i, j] * z[j]
        value, slope = row(family, at, y[i], own, weights[i], by_own)
        height += weights[i] * value
        slopes[i] = weights[i] * slope
    return height


@nb.njit(**OPTIONS)
def _curvature(z, family, f, y, weights, own, A, C):
    """Fill C with the lower Cholesky factor of minus the Hessian of the log integrand."""
    k = len(z)
    for a in range(k):
        for b in range(a + 1):
            C[a, b] = 1.0 if a == b else 0.0
    for i in range(len(f)):
        at = f[i]
        for j in range(k):
            at += A[i, j] * z[j]
        part = weights[i] * _information(family, at, y[i], own)
        for a in range(k):
            for b in range(a + 1):
                C[a, b] += part * A[i, a] * A[i, b]
    for a in range(k):
        for b in range(a + 1):
            total = C[a, b]
            for m in range(b):
                total -= C[a, m] * C[b, m]
            C[a, b] = math.sqrt(total) if a == b else total / C[b, b]


@nb.njit(**OPTIONS)
def _mode(family, f, y, weights, own, A, z, C, slopes, by_own):
    """Move z to the mode from zero, by Newton's method with halved steps; return the height there."""
    k = len(z)
    step, trial = np.empty(k), np.empty(k)
    z[:] = 0.0
    height = _at(z, family, f, y, weights, own, A, slopes, by_own)
    for _ in range(_NEWTON_STEPS):
        _curvature(z, family, f, y, weights, own, A, C)
        size = 0.0
        for a in range(k):
            total = -z[a]
            for i in range(len(f)):
                total += slopes[i] * A[i, a]
            for b in range(a):
                total -= C[a, b] * step[b]
            step[a] = total / C[a, a]
            size += step[a] * step[a]
        if not size > _NEAR:  # in squared standard deviations; false for NaN as well
            break
        for a in range(k - 1, -1, -1):
            for b in range(a + 1, k):
                step[a] -= C[b, a] * step[b]
            step[a] /= C[a, a]
        part = 1.0
        for _ in range(_HALVINGS):
            for a in range(k):
                trial[a] = z[a] + part * step[a]
            risen = _at(trial, family, f, y, weights, own, A, slopes, by_own)
            if risen > height:
                break
            part *= 0.5
        else:
            break
        z[:] = trial
        height = risen
    _curvature(z, family, f, y, weights, own, A, C)
    return _at(z, family, f, y, weights, own, A, slopes, by_own)


@nb.njit(**OPTIONS)
def _side(k):
    return 2 * _REACH[k - 1] + 1


@nb.njit(**OPTIONS)
def room(k):
    """Entries of the table of nodes that the functions here need, zeros when they are called and after."""
    return _side(k) ** k


@nb.njit(**OPTIONS)
def _coordinates(index, k, c):
    side, total = _side(k), 0
    for j in range(k):
        c[j] = index % side - _REACH[k - 1]
        total += c[j]
        index //= side
    return total % 2 == 0


@nb.njit(**OPTIONS)
def _point(c, step, mode, C, z):
    """z = mode + C^-T (step c)."""
    k = len(c)
    for a in range(k - 1, -1, -1):
        z[a] = step * c[a]
        for b in range(a + 1, k):
            z[a] -= C[b, a] * z[b]
        z[a] /= C[a, a]
    for a in range(k):
        z[a] += mode[a]


@nb.njit(**OPTIONS)
def _seed(z, step, mode, C):
    """Index of the node next to z, or -1 outside of the table."""
    k, index = len(z), 0
    for a in range(k - 1, -1, -1):
        total = 0.0
        for b in range(a, k):
            total += C[b, a] * (z[b] - mode[b])
        total = np.rint(total / step)
        if not abs(total) <= _REACH[k - 1]:
            return -1
        index = index * _side(k) + int(total) + _REACH[k - 1]
    return index


@nb.njit(**OPTIONS)
def _enqueue(index, queue, n, table):
    if n < len(queue) and table[index] == 0:
        queue[n] = index
        table[index] = n + 1
        return n + 1
    return n


@nb.njit(**OPTIONS)
def _clear(queue, n, table):
    for i in range(n):
        table[queue[i]] = 0


@nb.njit(**OPTIONS)
def _begin(family, f, y, weights, own, A, mode, C, step, top, queue, table, slopes, by_own):
    """Put the first nodes into the queue; return their number, or -1 if one is outside of the table."""
    k = len(mode)
    z = mode.copy()
    n = _enqueue(_seed(z, step, mode, C), queue, 0, table)
    if family != STUDENT_T:
        return n
    for i in range(len(f)):
        square, gap = 1e-12, y[i] - f[i]
        for j in range(k):
            square += A[i, j] * A[i, j]
        for j in range(k):
            z[j] = A[i, j] * gap / square
        if _at(z, family, f, y, weights, own, A, slopes, by_own) > top - _CUT:
            index = _seed(z, step, mode, C)
            if index < 0:
                _clear(queue, n, table)
                return -1
            n = _enqueue(index, queue, n, table)
    return n


@nb.njit(**OPTIONS)
def _neighbours(index, c, queue, n, table):
    """Queue all neighbours of a node; return the number of nodes, or -1 where there is no room."""
    k, width = len(c), 1
    for j in range(k):
        if abs(c[j]) >= _REACH[k - 1]:
            return -1
        n = _enqueue(index - width, queue, n, table)
        n = _enqueue(index + width, queue, n, table)
        width *= _side(k)
    return n if n < len(queue) else -1


@nb.njit(**OPTIONS)
def integral(family, f, y, weights, own, Z, T, queue, table, by_f, by_own, by_T):
    """Log of the integral of a group; fills derivatives in the predictors, adds those in own and in T.

    NaN where it needs more nodes than there is room for.
    """
    n_rows, k = Z.shape
    A = np.zeros((n_rows, k))
    for i in range(n_rows):
        for j in range(k):
            for a in range(j, k):
                A[i, j] += Z[i, a] * T[a, j]
    mode, C, z, c = np.empty(k), np.zeros((k, k)), np.empty(k), np.empty(k, np.int64)
    slopes, own_here, own_sum = np.empty(n_rows), np.empty(len(own)), np.empty(len(own))
    T_sum, row_sum = np.empty((k, k)), np.empty(k)
    height = _mode(family, f, y, weights, own, A, mode, C, slopes, own_here)
    step, even, odd, top = _STEP_SIZES[k - 1], 0.0, 0.0, height
    for _ in range(_TRIES):
        top, even, odd = height, 0.0, 0.0
        by_f[:], own_sum[:], T_sum[:] = 0.0, 0.0, 0.0
        n = _begin(family, f, y, weights, own, A, mode, C, step, top, queue, table, slopes, own_here)
        if n < 0:
            return math.nan
        done = 0
        while done < n:
            index = queue[done]
            done += 1
            is_even = _coordinates(index, k, c)
            _point(c, step, mode, C, z)
            here = _at(z, family, f, y, weights, own, A, slopes, own_here)
            if here > top + _RISE:
                factor = math.exp(top - here)
                even, odd, top = even * factor, odd * factor, here
                by_f *= factor
                own_sum *= factor
                T_sum *= factor
            if here > top - _CUT:
                grown = _neighbours(index, c, queue, n, table)
                if grown < 0:
                    _clear(queue, n, table)
                    return math.nan
                n = grown
            part = math.exp(here - top)
            if not part > 0.0:
                continue
            if is_even:
                even += part
            else:
                odd += part
            row_sum[:] = 0.0
            for i in range(n_rows):
                by_f[i] += part * slopes[i]
                for a in range(k):
                    row_sum[a] += slopes[i] * Z[i, a]
            for a in range(k):
                for b in range(a + 1):
                    T_sum[a, b] += part * row_sum[a] * z[b]
            for j in range(len(own)):
                own_sum[j] += part * own_here[j]
        _clear(queue, n, table)
        if not abs(even - odd) > _ENOUGH * (even + odd):
            break
        step *= _FINER
    else:
        return math.nan
    total = even + odd
    by_f /= total
    for j in range(len(own)):
        by_own[j] += own_sum[j] / total
    for a in range(k):
        for b in range(a + 1):
            by_T[a, b] += T_sum[a, b] / total
    value = top + math.log(total) + k * (math.log(step) - 0.5 * math.log(2.0 * math.pi))
    for a in range(k):
        value -= math.log(C[a, a])
    return value


@nb.njit(**OPTIONS)
def _interpolated(x, heights, top, table):
    """Multilinear interpolation of the integrand at x, in steps of the lattice."""
    k, total = len(x), 0.0
    for corner in range(1 << k):
        index, share = 0, 1.0
        for a in range(k - 1, -1, -1):
            low = math.floor(x[a])
            up = corner >> a & 1
            share *= x[a] - low if up else 1.0 - (x[a] - low)
            at = int(low) + up + _REACH[k - 1]
            if at < 0 or at >= _side(k):
                share, at = 0.0, 0
            index = index * _side(k) + at
        if share > 0.0 and table[index]:
            total += share * math.exp(heights[table[index] - 1] - top)
    return total


@nb.njit(**OPTIONS)
def draw_group(family, f, y, weights, own, Z, T, queue, table, heights, stream, u):
    """Fill u (k,) with a draw of a group's effects given all else; NaN as in `integral`."""
    n_rows, k = Z.shape
    A = np.zeros((n_rows, k))
    for i in range(n_rows):
        for j in range(k):
            for a in range(j, k):
                A[i, j] += Z[i, a] * T[a, j]
    mode, C, z, c = np.empty(k), np.zeros((k, k)), np.empty(k), np.empty(k, np.int64)
    x, at, slopes, own_here = np.empty(k), np.empty(k), np.empty(n_rows), np.empty(len(own))
    top = _mode(family, f, y, weights, own, A, mode, C, slopes, own_here)
    u[:] = math.nan
    n = _begin(family, f, y, weights, own, A, mode, C, _DRAWING, top, queue, table, slopes, own_here)
    if n < 0:
        return
    done, total = 0, 0.0
    while done < n:
        _coordinates(queue[done], k, c)
        _point(c, _DRAWING, mode, C, z)
        heights[done] = _at(z, family, f, y, weights, own, A, slopes, own_here)
        if heights[done] > top + _RISE:
            total *= math.exp(top - heights[done])
            top = heights[done]
        total += math.exp(heights[done] - top)
        if heights[done] > top - _CUT:
            grown = _neighbours(queue[done], c, queue, n, table)
            if grown < 0:
                _clear(queue, n, table)
                return
            n = grown
        done += 1
    ratio = -1.0
    for _ in range(_STEPS):
        left, node = total * uniform(stream), 0
        while node < n - 1:
            left -= math.exp(heights[node] - top)
            if left < 0.0:
                break
            node += 1
        _coordinates(queue[node], k, c)
        for a in range(k):
            x[a] = c[a] + uniform(stream) + uniform(stream) - 1.0
        _point(x, _DRAWING, mode, C, z)
        value = math.exp(_at(z, family, f, y, weights, own, A, slopes, own_here) - top)
        own_ratio = value / _interpolated(x, heights, top, table)
        accept = uniform(stream)
        if ratio < 0.0 or accept * ratio < own_ratio:
            ratio = own_ratio
            at[:] = z
    _clear(queue, n, table)
    for a in range(k):
        u[a] = 0.0
        for b in range(a + 1):
            u[a] += T[a, b] * at[b]
