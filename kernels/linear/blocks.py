"""Block coordinate descent on a quadratic model with a penalty on the norm of each block.

The model is ``<B, H B> / 2 + <Q, B>`` over B of shape (m, K); the penalty of a block is ``phi(|B_g|)``, an l1
term, and bounds. `kind` says which phi: 0 is the norm, 1 the minimax concave penalty, 2 SCAD, 3 the logarithm
``lam gamma log(1 + s / gamma)``, 4 the power ``lam s^gamma``. With ``gamma=None`` it is the norm, and the
others are not compiled: they are half of what a first fit waits for.
"""

from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

from ..indexing import at, span
from ..options import INNER, KERNEL
from .columns import FAST
from .descent import dot, subtract

_WHOLE, _TO_ZERO, _PART, _FURTHER = 0, 1, 2, 3  # of steps
_DEPENDENT = 1e-12  # ratio of squared pivots of columns that depend on each other
_MOST_DEPENDENT = 20  # in a Newton step: where more must leave, one a step, sweeps are faster
_OF_ROWS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": FAST}


@nb.njit(**KERNEL)
def phi(size, lam, gamma, kind):
    """Penalty of a norm."""
    if gamma is None:
        return lam * size
    if kind == 1:
        return lam * size - size * size / (2 * gamma) if size <= gamma * lam else gamma * lam * lam / 2
    if kind == 2 and size > lam:
        if size > gamma * lam:
            return lam * lam * (gamma + 1) / 2
        return (2 * gamma * lam * size - size * size - lam * lam) / (2 * (gamma - 1))
    if kind == 3:
        return lam * gamma * np.log1p(size / gamma)
    if kind == 4:
        return lam * size**gamma
    return lam * size


@nb.njit(**KERNEL)
def slope_of_phi(size, lam, gamma, kind):
    """Derivative of `phi` at a norm above zero."""
    if gamma is None:
        return lam
    if kind == 1:
        return max(lam - size / gamma, 0.0)
    if kind == 2 and size > lam:
        return max(gamma * lam - size, 0.0) / (gamma - 1)
    if kind == 4:
        return lam * gamma * size ** (gamma - 1)
    return lam * gamma / (size + gamma) if kind == 3 else lam


@nb.njit(**KERNEL, **INNER)
def _bend_of_phi(size, lam, gamma, kind):
    """Second derivative of `phi` at a norm above zero."""
    if gamma is None:
        return 0.0
    if kind == 1:
        return -1 / gamma if size < gamma * lam else 0.0
    if kind == 2:
        return -1 / (gamma - 1) if lam < size < gamma * lam else 0.0
    if kind == 3:
        return -lam * gamma / (size + gamma) ** 2
    return -lam * gamma * (1 - gamma) * size ** (gamma - 2) if kind == 4 else 0.0


@nb.njit(**KERNEL)
def terms(sizes, lam, gamma, kind):
    """Penalties of norms, and their first and second derivatives; of a norm of zero they are zero."""
    out = np.zeros((3, len(sizes)))
    for g in range(len(sizes)):
        size = sizes[g]
        if size == 0.0:
            continue
        out[0, g], out[1, g] = phi(size, lam[g], gamma, kind), slope_of_phi(size, lam[g], gamma, kind)
        out[2, g] = _bend_of_phi(size, lam[g], gamma, kind)
    return out


@nb.njit(**KERNEL)
def shrunk(size, step, lam, gamma, kind):
    """The s >= 0 that minimises ``(s - size)^2 / (2 step) + phi(s)``, also where that is not convex."""
    if gamma is None:
        return max(size - step * lam, 0.0)
    if kind == 1:
        if gamma <= step:  # concave up to gamma * lam: the minimum is at an end
            return size if size * size > step * gamma * lam * lam else 0.0
        return size if size >= gamma * lam else max(size - step * lam, 0.0) / (1 - step / gamma)
    if kind == 2:
        near, far = min(max(size - step * lam, 0.0), lam), max(size, gamma * lam)
        if gamma - 1 <= step:
            at_near = (near - size) ** 2 / (2 * step) + phi(near, lam, gamma, kind)
            return near if at_near <= (far - size) ** 2 / (2 * step) + phi(far, lam, gamma, kind) else far
        if size <= lam * (1 + step):
            return near
        return size if size > gamma * lam else ((gamma - 1) * size - step * gamma * lam) / (gamma - 1 - step)
    if kind == 3:
        root = (size + gamma) ** 2 - 4 * step * lam * gamma
        far = (size - gamma + np.sqrt(root)) / 2 if root > 0 else 0.0
        if far > 0 and (far - size) ** 2 / (2 * step) + phi(far, lam, gamma, kind) < size * size / (2 * step):
            return far
        return 0.0
    if kind == 4:
        return _shrunk_by_power(size, step * lam, gamma)
    return max(size - step * lam, 0.0)


@nb.njit(**KERNEL)
def _shrunk_by_power(size, lam, q):
    """The s >= 0 that minimises ``(s - size)^2 / 2 + lam s^q`` with 0 < q < 1.

    It is zero up to a threshold, and above it the largest root of the slope, which is convex in s: Newton's
    steps from `size` fall towards it.
    """
    least = (2 * lam * (1 - q)) ** (1 / (2 - q))  # the smallest minimum that is not zero
    if size <= least + lam * q * least ** (q - 1):
        return 0.0
    s = size
    for _ in range(50):
        power = lam * q * s ** (q - 2)
        step = (s - size + power * s) / (1 - (1 - q) * power)
        s -= step
        if step <= 1e-16 * s:
            break
    return s


@nb.njit(**KERNEL)
def jumps(slopes, curvature, lam, gamma, kind):
    """How far blocks at zero are from the minimum along themselves, times their curvature.

    `slopes`: norms. For penalties whose slope at zero is infinite: any slope is a subgradient there.
    """
    out = np.zeros(len(slopes))
    for g in range(len(out)):
        if curvature[g] > 0 and lam[g] < np.inf:
            step = 1 / curvature[g]
            out[g] = shrunk(slopes[g] * step, step, lam[g], gamma, kind) * curvature[g]
    return out


@nb.njit(**KERNEL)
def prox(z, step, lam, lam1, low, high, gamma, kind):
    """Replace the block `z` by the minimiser of ``|b - z|^2 / (2 step)`` plus the penalty of the block."""
    total = 0.0
    for i in range(z.shape[0]):
        for k in range(z.shape[1]):
            value = z[i, k]
            value = np.sign(value) * max(abs(value) - step * lam1, 0.0)
            if low == 0.0:
                value = max(value, 0.0)
            if high == 0.0:
                value = min(value, 0.0)
            z[i, k] = value
            total += value * value
    size = np.sqrt(total)
    factor = shrunk(size, step, lam, gamma, kind) / size if size > 0 else 0.0
    for i in range(z.shape[0]):
        for k in range(z.shape[1]):
            z[i, k] = min(max(z[i, k] * factor, low), high)


@nb.njit(**KERNEL, **INNER)
def single(b, slope, step, lam, lam1, low, high, gamma, kind):
    """Where a single coefficient goes."""
    z = b - step * slope
    z = np.sign(z) * max(abs(z) - step * lam1, 0.0)
    if (low == 0.0 and z < 0) or (high == 0.0 and z > 0):
        z = 0.0
    z = np.sign(z) * shrunk(abs(z), step, lam, gamma, kind)
    return min(max(z, low), high)


@nb.njit(**KERNEL, **INNER)
def _whole(b, slope, basis, spectrum, lam, new, z):
    """Put a block under its norm alone where it goes: by its size h in the basis of its own part of H.

    There ``b_i = h z_i / (d_i h + lam)``, and h is the root of a concave and rising function.
    """
    size, K = b.shape
    total = square = 0.0
    for i in range(size):
        for k in range(K):
            value = 0.0
            for j in range(size):
                value += basis[j, i] * (spectrum[i] * b[j, k] - slope[j, k])
            z[i, k], new[i, k] = value, 0.0
            total += value * value
            square += b[i, k] * b[i, k]
    if total <= lam * lam:
        return
    h = np.sqrt(square)
    for _ in range(50):
        squares, bend = 0.0, 0.0
        for i in range(size):
            scale = 1 / (spectrum[i] * h + lam)
            for k in range(K):
                square = (z[i, k] * scale) ** 2
                squares += square
                bend += square * spectrum[i] * scale
        if bend <= 0.0:
            break
        before, h = h, max(h + (np.sqrt(squares) - 1) * squares / bend, 0.0)
        if abs(h - before) <= 1e-14 * h:
            break
    for i in range(size):
        scale = h / (spectrum[i] * h + lam)
        for k in range(K):
            value = z[i, k] * scale
            for j in range(size):
                new[j, k] += basis[j, i] * value


@nb.njit(**KERNEL, **INNER)
def _several(b, slope, own, step, lam, lam1, low, high, gamma, kind, new, z):
    """Put a block where proximal gradient steps on its own part `own` of H lead. Changes `slope`."""
    size, K = b.shape
    first = 0.0
    for i in range(size):
        for k in range(K):
            new[i, k] = b[i, k]
    for visit in range(1 if size == 1 else 30):
        for i in range(size):
            for k in range(K):
                z[i, k] = new[i, k] - step * slope[i, k]
        prox(z, step, lam, lam1, low, high, gamma, kind)
        moved = 0.0
        for i in range(size):
            for k in range(K):
                d = z[i, k] - new[i, k]
                moved = max(moved, abs(d))
                if d != 0.0 and size > 1:
                    for j in range(size):
                        slope[j, k] += own[i, j] * d
                new[i, k] = z[i, k]
        first = moved if visit == 0 else first
        if moved <= 0.03 * first:
            break


@nb.njit(**KERNEL, **INNER)
def _work(starts, K):
    """Three arrays for the largest block."""
    largest = 1
    for g in range(len(starts) - 1):
        largest = max(largest, starts[g + 1] - starts[g])
    return np.empty((3, largest, K))


@nb.njit(**{**KERNEL, **INNER, "fastmath": FAST})
def _move(G, row, d):
    """Add what a change d (K,) of one coefficient makes to the slopes, of two outputs at a time."""
    for k in range(0, len(d), 2):
        first, second = d[k], d[k + 1] if k + 1 < len(d) else 0.0
        if second != 0.0:
            for j in range(len(row)):
                G[j, k] += row[j] * first
                G[j, k + 1] += row[j] * second
        elif first != 0.0:
            for j in range(len(row)):
                G[j, k] += row[j] * first


@nb.njit(**KERNEL, **INNER)
def _row(b, slope, step, lam, new):
    """Put a block of one column under its norm alone where it goes."""
    total = 0.0
    for k in range(len(b)):
        new[k] = b[k] - step * slope[k]
        total += new[k] * new[k]
    scale = 1.0 - step * lam / np.sqrt(total) if total > (step * lam) ** 2 else 0.0
    for k in range(len(b)):
        new[k] *= scale


@nb.njit(**KERNEL)
def sweeps(H, G, B, starts, steps, bases, spectra, lam, lam1, low, high, gamma, kind, n_sweeps, tol):
    """Visit every block, then several times the blocks that are not zero; change B and ``G = H B + Q``.

    `steps`: float64 (n_blocks,), 1 / largest eigenvalue of the block of H; 0 leaves the block at zero.
    `bases`: float64 (n_places, size of the largest block with a basis), eigenvectors of each block's own part
    of H, `spectra`: float64 (n_places,), its eigenvalues; larger blocks have none.
    Returns the largest change of a block in a whole sweep, in units of the slope: at most `tol` ends the
    descent.
    """
    n_blocks, K = len(starts) - 1, B.shape[1]
    most, whole, since, work = 0.0, True, 0, _work(starts, K)
    for _sweep in range(n_sweeps):
        change = 0.0
        for g in range(n_blocks):
            first, last, step = starts[g], starts[g + 1], steps[g]
            if step == 0.0 or not (whole or _any(B, first, last)):
                continue
            if last - first == 1 and K == 1:  # without the copies that a block needs
                value = single(B[first, 0], G[first, 0], step, lam[g], lam1[g], low[g], high[g], gamma, kind)
                d = value - B[first, 0]
                if d != 0.0:
                    B[first, 0] = value
                    for j in range(len(H)):
                        G[j, 0] += H[first, j] * d
                    change = max(change, abs(d) / step)
                continue
            size = last - first
            new, z, slope = work[0, :size], work[1, :size], work[2, :size]
            for i in range(size):
                for k in range(K):
                    slope[i, k] = G[first + i, k]
            if size == 1 and _is_norm(lam1[g], low[g], high[g], kind):
                _row(B[first], slope[0], step, lam[g], new[0])
            elif _by_norm(size, bases, lam1[g], low[g], high[g], kind):
                basis, spectrum = bases[first:last, :size], spectra[first:last]
                _whole(B[first:last], slope, basis, spectrum, lam[g], new, z)
            else:
                _several(
                    B[first:last], slope, H[first:last, first:last], step, lam[g], lam1[g],
                    low[g], high[g], gamma, kind, new, z,
                )  # fmt: skip
            norm = 0.0
            for i in range(size):
                for k in range(K):
                    z[i, k] = new[i, k] - B[first + i, k]
                    norm += z[i, k] * z[i, k]
                    B[first + i, k] = new[i, k]
                if norm > 0.0:
                    _move(G, H[first + i], z[i])
            change = max(change, np.sqrt(norm) / step)
        since = 0 if whole else since + 1
        if whole:
            most = change
            if most <= tol:
                break
        whole = since == 7 or (not whole and change <= 0.3 * tol)
    return most


@nb.njit(**KERNEL, **INNER)
def _cost(b, lam, lam1, gamma, kind):
    return phi(abs(b), lam, gamma, kind) + lam1 * abs(b)


@nb.njit(**KERNEL)
def step_of_columns(H, G, b, lam, lam1, low, high, gamma, kind, support, M, work):
    """Take a Newton step on the coefficients that are not zero, if the objective falls.

    The penalty is smooth there. A step of the l1 norm that would change signs ends where a coefficient is
    zero, and another without it follows. `support`: int64 (k,). `M` (k, k), `work` (6, m): work space.
    Returns whether the last step was a whole one, ended at a zero or at a bound, or none of these.
    """
    k, m = len(support), len(b)
    g, d, new, move, image, start = work[0], work[1], work[2], work[3], work[4], work[5]
    most, n_dependent, n_left, state = 0.0, 0, 0, _TO_ZERO
    for i in range(k):  # Cholesky factor of the curvatures, by rows; above the diagonal these themselves
        j, row = support[i], M[i]
        g[i], start[i] = G[j], b[j]
        for e in range(i + 1):
            row[e] = M[e, i] = H[j, support[e]]
        row[i] += _bend_of_phi(abs(b[j]), lam[j], gamma, kind)
        for e in range(i):
            row[e] = (row[e] - dot(row, M[e], e)) / M[e, e]
        pivot = row[i] - dot(row, row, i)
        most = max(most, pivot)
        if pivot > _DEPENDENT * most:
            row[i] = np.sqrt(pivot)
        elif kind == 0:
            row[i] = np.inf  # a column that depends on those before it stays as it is
            n_dependent += 1
            if n_dependent > _MOST_DEPENDENT:
                return _PART
        else:  # no minimum is near
            return _PART
    while state == _TO_ZERO:
        before, first = 0.0, 1.0  # the share of the step at which a coefficient is zero
        for i in range(k):
            j = support[i]
            before += _cost(b[j], lam[j], lam1[j], gamma, kind)
            slope = (slope_of_phi(abs(b[j]), lam[j], gamma, kind) + lam1[j]) * np.sign(b[j])
            d[i] = (-(g[i] + slope) - dot(M[i], d, i)) / M[i, i]
        for i in range(k - 1, -1, -1):
            d[i] /= M[i, i]
            subtract(d, d[i], M[i], i)
        for i in range(k):
            if d[i] * b[support[i]] < 0.0:
                first = min(first, -b[support[i]] / d[i])
        state, is_bounded = _PART, False
        for t in (1.0, 0.3, first):
            to_zero = t not in (1.0, 0.3)
            if to_zero and kind != 0:
                break
            whole, after = t == 1.0, 0.0
            for i in range(k):
                j = support[i]
                value = b[j] + t * d[i]
                if value * b[j] < 0.0 or (to_zero and d[i] * b[j] < 0.0 and -b[j] / d[i] == first):
                    value = 0.0
                new[i] = min(max(value, low[j]), high[j])
                whole = whole and new[i] != 0.0
                after += _cost(new[i], lam[j], lam1[j], gamma, kind)
                move[i] = new[i] - b[j]
                image[i] = H[j, j] * move[i]
            for i in range(k - 1):
                row, rest = M[i, i + 1 : k], k - i - 1
                image[i] += dot(row, move[i + 1 :], rest)
                subtract(image[i + 1 :], -move[i], row, rest)
            for i in range(k):
                after += move[i] * (g[i] + 0.5 * image[i])
            if after < before:
                for i in range(k):
                    j = support[i]
                    b[j] = new[i]
                    g[i] += image[i]
                    is_bounded = is_bounded or (b[j] != 0.0 and not low[j] < b[j] < high[j])
                state = _TO_ZERO if to_zero else _WHOLE if whole else _PART
                break
        if state == _TO_ZERO and is_bounded:
            break
        for i in range(k if state == _TO_ZERO else 0):
            if b[support[i]] == 0.0 and M[i, i] < np.inf:
                _leave_out(M, i, k, new, image)
                n_left += 1
    for i in range(k):
        if b[support[i]] != start[i]:
            subtract(G, start[i] - b[support[i]], H[support[i]], m)
    return _FURTHER if state == _PART and n_left > 0 else state


@nb.njit(**KERNEL, **INNER)
def _leave_out(M, i, k, cosines, sines):
    """Take row and column i out of what a Cholesky factor is of, by rotations; its pivot is infinite then."""
    M[i, i] = np.inf
    for q in range(i + 1, k):
        row, c = M[q], M[q, i]
        for j in range(i + 1, q):
            if M[j, j] < np.inf:
                value = row[j]
                row[j] = cosines[j] * value + sines[j] * c
                c = cosines[j] * c - sines[j] * value
        if row[q] < np.inf:
            size = np.sqrt(row[q] * row[q] + c * c)
            cosines[q], sines[q] = row[q] / size, c / size
            row[q] = size


@nb.njit(**KERNEL)
def minimise_columns(H, G, b, steps, lam, lam1, low, high, gamma, kind, tol, most, largest_step):
    """Minimise the model plus the penalty of single columns; change b and the slopes G at it.

    Sweeps over all columns, and between two of them over those that are not zero, or a Newton step on these.
    `H`: float64 (m, m). `steps`: float64 (m,), 1 / diagonal of H; 0 leaves a coefficient as it is. `most`:
    sweeps. `largest_step`: coefficients that such a step may have; where there are more, the call returns.
    Returns the largest change in a whole sweep, in units of the slope: at most `tol` ends the descent.
    """
    m = len(b)
    support, work = np.empty(m, np.int64), np.empty((6, m))
    M, change, wait, due, sweep, n_support = np.empty((0, 0)), np.inf, 1, 1, 0, 0
    while sweep < most:
        since, before = 0, change
        while True:  # one sweep over all, then some over the support
            moved, k, count = 0.0, 0, m if since == 0 else n_support
            for e in range(count):
                j = e if since == 0 else support[e]
                step = steps[j]
                if step == 0.0:
                    continue
                value = single(b[j], G[j], step, lam[j], lam1[j], low[j], high[j], gamma, kind)
                d = value - b[j]
                if value != 0.0 and since == 0:
                    support[k] = j
                    k += 1
                if d != 0.0:
                    b[j] = value
                    subtract(G, -d, H[j], m)
                    moved = max(moved, abs(d) / step)
            since += 1
            if since == 1:
                change, n_support = moved, k
            if change <= tol:
                return change
            if since > 3 or moved <= 0.3 * tol:
                break
        sweep += since
        due -= 1
        # A step costs as much as some sweeps over the support, which may be enough.
        need = since * np.log(change / tol) / np.log(max(before / change, 1.0 + 1e-9))
        if due > 0 or need < n_support * n_support / (3.0 * m):
            continue
        state = _TO_ZERO
        while state == _TO_ZERO:
            k = 0
            for j in range(m):
                if low[j] < b[j] < high[j] and b[j] != 0.0:
                    support[k] = j
                    k += 1
            if k > largest_step:
                return change
            if k == 0:
                break
            if len(M) < k:
                M = np.empty((min(2 * k, m), min(2 * k, m)))
            state = step_of_columns(H, G, b, lam, lam1, low, high, gamma, kind, support[:k], M, work)
            wait = min(2 * wait, 16) if state == _PART else 1
            change = np.inf
        due = wait
    return change


def column_sum(A, j, q):
    """Return the sum of column j times q, less what the eliminated columns take up."""


@overload(column_sum, jit_options=_OF_ROWS)
def _column_sum(A, j, q):
    def dense(A, j, q):
        total, a = 0.0, A[j]
        for row in range(len(q)):
            total += a[row] * q[row]
        return total

    def csc(A, j, q):
        data, indices, indptr, _, shares = A
        total, n = 0.0, len(q) - shares.shape[1]
        for e in span(indptr, j):
            total += data[e] * q[at(indices[e])]
        for column in range(shares.shape[1]):
            total -= shares[j, column] * q[n + column]
        return total

    return dense if isinstance(A, nb.types.Array) else csc


def add_column(A, j, d, D, q):
    """Add ``D a_j d`` to q."""


@overload(add_column, jit_options=_OF_ROWS)
def _add_column(A, j, d, D, q):
    def dense(A, j, d, D, q):
        a = A[j]
        for row in range(len(q)):
            q[row] += D[row] * a[row] * d

    def csc(A, j, d, D, q):
        data, indices, indptr, crossed, _ = A
        n = len(q) - crossed.shape[1]
        for e in span(indptr, j):
            row = at(indices[e])
            q[row] += D[row] * data[e] * d
        for column in range(crossed.shape[1]):
            q[n + column] += crossed[j, column] * d

    return dense if isinstance(A, nb.types.Array) else csc


def column_product(A, i, j, D):
    """Return ``a_i^T D a_j``, less what the eliminated columns take up."""


@overload(column_product, jit_options=_OF_ROWS)
def _column_product(A, i, j, D):
    def dense(A, i, j, D):
        total, a, b = 0.0, A[i], A[j]
        for row in range(len(D)):
            total += D[row] * a[row] * b[row]
        return total

    def csc(A, i, j, D):
        data, indices, indptr, crossed, shares = A
        total, other, end = 0.0, indptr[j], indptr[j + 1]
        for e in span(indptr, i):
            while other < end and indices[other] < indices[e]:
                other += 1
            if other < end and indices[other] == indices[e]:
                total += D[at(indices[e])] * data[e] * data[at(other)]
        for column in range(shares.shape[1]):
            total -= shares[i, column] * crossed[j, column]
        return total

    return dense if isinstance(A, nb.types.Array) else csc


@nb.njit(**{**KERNEL, "fastmath": FAST})
def row_sweeps(
    A, D, Q, own, q, B, starts, steps, bases, spectra, lam, lam1, low, high, gamma, kind, n_sweeps, tol
):
    """The same where H is ``A^T D A``, by the rows of A: change B by d and q by ``D A d``.

    `A`: float64 (n_places, n), the columns as rows; or those of a CSC matrix with sorted indices, ``(data,
    indices, indptr, crossed, shares)``, for ``H = A^T D A - shares crossed^T`` with k eliminated columns:
    float64 (n_places, k). `D`: float64 (n,). `Q`: float64 (n_places, K); slopes where q is zero. `own`:
    float64 (n_places, size of the largest block); each block's own part of H. `q`: float64 (K, n), or
    (K, n + k), which ends with ``crossed^T d``.
    """
    n_blocks, K = len(starts) - 1, B.shape[1]
    most, whole, since, work = 0.0, True, 0, _work(starts, K)
    for _sweep in range(n_sweeps):
        change = 0.0
        for g in range(n_blocks):
            first, last, step = starts[g], starts[g + 1], steps[g]
            if step == 0.0 or not (whole or _any(B, first, last)):
                continue
            if last - first == 1 and K == 1:
                slope = Q[first, 0] + column_sum(A, first, q[0])
                value = single(B[first, 0], slope, step, lam[g], lam1[g], low[g], high[g], gamma, kind)
                d = value - B[first, 0]
                if d != 0.0:
                    B[first, 0] = value
                    add_column(A, first, d, D, q[0])
                    change = max(change, abs(d) / step)
                continue
            size = last - first
            new, z, slope = work[0, :size], work[1, :size], work[2, :size]
            for i in range(size):
                for k in range(K):
                    slope[i, k] = Q[first + i, k] + column_sum(A, first + i, q[k])
            if _by_norm(size, bases, lam1[g], low[g], high[g], kind):
                basis, spectrum = bases[first:last, :size], spectra[first:last]
                _whole(B[first:last], slope, basis, spectrum, lam[g], new, z)
            else:
                _several(
                    B[first:last], slope, own[first:last, :size], step, lam[g], lam1[g], low[g], high[g],
                    gamma, kind, new, z,
                )  # fmt: skip
            norm = 0.0
            for i in range(size):
                for k in range(K):
                    d = new[i, k] - B[first + i, k]
                    if d != 0.0:
                        norm += d * d
                        B[first + i, k] = new[i, k]
                        add_column(A, first + i, d, D, q[k])
            change = max(change, np.sqrt(norm) / step)
        since = 0 if whole else since + 1
        if whole:
            most = change
            if most <= tol:
                break
        whole = since == 7 or (not whole and change <= 0.3 * tol)
    return most


@nb.njit(**{**KERNEL, "fastmath": FAST})
def own_products(A, D, starts, own):
    """Fill in each block's own part of H: see `row_sweeps`."""
    for g in range(len(starts) - 1):
        for i in range(starts[g], starts[g + 1]):
            for j in range(starts[g], i + 1):
                own[i, j - starts[g]] = own[j, i - starts[g]] = column_product(A, i, j, D)


@nb.njit(**KERNEL, **INNER)
def _by_norm(size, bases, lam1, low, high, kind):
    """Whether a block has a basis and only its norm is penalised."""
    return 1 < size <= bases.shape[1] and _is_norm(lam1, low, high, kind)


@nb.njit(**KERNEL, **INNER)
def _is_norm(lam1, low, high, kind):
    return kind == 0 and lam1 == 0.0 and low == -np.inf and high == np.inf


@nb.njit(**KERNEL, **INNER)
def _any(B, first, last):
    """Whether a block has coefficients."""
    for i in range(first, last):
        for k in range(B.shape[1]):
            if B[i, k] != 0.0:
                return True
    return False


@nb.njit(**KERNEL)
def distances(B, V, starts, lam, lam1, low, high, gamma, kind):
    """Distance of each block of ``V = -slope`` from the subdifferential of its penalty at B."""
    out = np.zeros(len(starts) - 1)
    K = B.shape[1]
    for g in range(len(out)):
        first = starts[g]
        if K == 1 and starts[g + 1] - first == 1 and B[first, 0] == 0.0:
            v = V[first, 0]
            if not ((low[g] >= 0.0 and v < 0) or (high[g] <= 0.0 and v > 0)):
                out[g] = max(abs(v) - lam1[g] - lam[g], 0.0)
            continue
        size = 0.0
        for i in range(starts[g], starts[g + 1]):
            for k in range(K):
                size += B[i, k] ** 2
        size = np.sqrt(size)
        radial = slope_of_phi(size, lam[g], gamma, kind) if size > 0 else 0.0
        total = 0.0
        for i in range(starts[g], starts[g + 1]):
            for k in range(K):
                b, v = B[i, k], V[i, k]
                if b != 0.0:
                    v -= radial * b / size + np.sign(b) * lam1[g]
                else:
                    v = np.sign(v) * max(abs(v) - lam1[g], 0.0)
                if (b <= low[g] and v < 0) or (b >= high[g] and v > 0):
                    v = 0.0
                total += v * v
        out[g] = np.sqrt(total) if size > 0 else max(np.sqrt(total) - lam[g], 0.0)
    return out


@nb.njit(**KERNEL)
def gauges(V, starts, lam, lam1, low, high):
    """For each block the least t of at least 1 for which ``V / t`` is a subgradient of its penalty at zero.

    A bound at zero takes the slopes that point out of the range; a block between two finite bounds, or with
    an infinite strength, takes all.
    """
    out = np.empty(len(starts) - 1)
    for g in range(len(out)):
        out[g] = _gauge(V, starts[g], starts[g + 1], lam[g], lam1[g], low[g], high[g], 1.0)
    return out


@nb.njit(**KERNEL)
def gauge(V, starts, lam, lam1, low, high):
    """The largest of the `gauges`."""
    most = 1.0
    for g in range(len(starts) - 1):
        most = _gauge(V, starts[g], starts[g + 1], lam[g], lam1[g], low[g], high[g], most)
    return most


@nb.njit(**KERNEL, **INNER)
def _gauge(V, first, last, lam, lam1, low, high, least):
    """The gauge of one block, or `least` if that is more."""
    free = lam == 0.0 and lam1 == 0.0
    if (low > -np.inf and high < np.inf) or lam == np.inf or lam1 == np.inf:
        return least
    if free and low == -np.inf and high == np.inf:
        return least
    K = V.shape[1]
    if K == 1 and last - first == 1:
        v = V[first, 0]
        if abs(v) <= least * (lam1 + lam) or (low == 0.0 and v < 0) or (high == 0.0 and v > 0):
            return least
        return np.inf if free else abs(v) / (lam1 + lam)
    if _rest(V, first, last, K, least * lam1, low, high) <= least * lam:
        return least
    if free:
        return np.inf
    if lam1 == 0.0:
        return _rest(V, first, last, K, 0.0, low, high) / lam
    under, over = least, 2 * least
    while _rest(V, first, last, K, over * lam1, low, high) > over * lam:
        under, over = over, 2 * over
    for _ in range(52):
        middle = 0.5 * (under + over)
        if _rest(V, first, last, K, middle * lam1, low, high) <= middle * lam:
            over = middle
        else:
            under = middle
    return over


@nb.njit(**KERNEL, **INNER)
def _rest(V, first, last, K, threshold, low, high):
    """Norm of what a threshold leaves of the slopes of a block."""
    total = 0.0
    for i in range(first, last):
        for k in range(K):
            v = V[i, k]
            if (low == 0.0 and v < 0) or (high == 0.0 and v > 0):
                continue
            rest = abs(v) - threshold
            if rest > 0:
                total += rest * rest
    return np.sqrt(total)


@nb.njit(**KERNEL)
def judge(B, V, starts, P, gamma, kind, has_dual):
    """What the penalty of all blocks, of a kind below 4, says of B where ``V = -slope`` of the loss.

    `P`: float64 (5, n_blocks), lam, l1, ridge, low and high. Returns the `distances` from the
    subdifferentials, 0 of excluded blocks; the penalty; the share of the slopes that is dual feasible; the
    conjugate of the penalty there; and ``|V B|`` of blocks without penalty, whose slopes vanish but for
    rounding.
    """
    lam, l1, ridge, low, high = P[0], P[1], P[2], P[3], P[4]
    K, pulled, bound = B.shape[1], np.empty(B.shape), np.empty(len(lam))
    value = rest = dual = 0.0
    for g in range(len(lam)):
        square = size = slack = 0.0
        for i in range(starts[g], starts[g + 1]):
            for k in range(K):
                pulled[i, k] = V[i, k] - ridge[g] * B[i, k]
                square += B[i, k] * B[i, k]
                size += abs(B[i, k])
                slack += abs(V[i, k] * B[i, k])
        if square > 0.0:
            value += phi(np.sqrt(square), lam[g], gamma, kind) + l1[g] * size + 0.5 * ridge[g] * square
        costless = lam[g] == 0.0 and l1[g] == 0.0
        bound[g] = np.inf if costless and ridge[g] > 0.0 else lam[g]  # a ridge alone takes any slopes
        if costless and ridge[g] == 0.0 and low[g] == -np.inf and high[g] == np.inf:
            rest += slack
    out = distances(B, pulled, starts, lam, l1, low, high, gamma, kind)
    for g in range(len(lam)):
        if not (lam[g] < np.inf and l1[g] < np.inf and low[g] < high[g]):
            out[g] = 0.0
    if not has_dual:
        return out, value, np.nan, np.nan, rest
    scale = 1.0 / gauge(pulled, starts, bound, l1, low, high)
    for g in range(len(lam)):
        bounded = low[g] > -np.inf or high[g] < np.inf
        if not ((ridge[g] > 0.0 or bounded) and lam[g] < np.inf and l1[g] < np.inf and low[g] < high[g]):
            continue  # the conjugate is the indicator of its domain
        square = last = 0.0
        for i in range(starts[g], starts[g + 1]):
            for k in range(K):
                v = scale * V[i, k]
                if (low[g] == 0.0 and v < 0.0) or (high[g] == 0.0 and v > 0.0):
                    continue
                last = np.sign(v) * max(abs(v) - l1[g], 0.0)
                square += last * last
        excess = np.sqrt(square) - lam[g]
        if excess > 0.0:
            size = excess / ridge[g] if ridge[g] > 0.0 else np.inf
            if bounded:  # of single columns
                size = min(size, high[g] if last > 0.0 else -low[g])
            if size < np.inf:
                dual += excess * size - 0.5 * ridge[g] * size * size
    return out, value, scale, dual, rest
