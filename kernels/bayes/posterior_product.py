"""Draws from a product of kernel density estimates: Metropolis over which draw of each shard is taken.

With one Gaussian kernel of width h at each draw x_m of each of M shards, the product is a mixture of T^M
Gaussians ``N(S / M, h^2 / M)`` with weights ``exp(-(Q - |S|^2 / M) / (2 h^2))``, where S is the sum of the
chosen x_m and Q that of their squared lengths. Both are kept, so that another choice for one shard costs
O(d), not O(M d).

Reference: Neiswanger, Wang, Xing, "Asymptotically exact, embarrassingly parallel MCMC", UAI 2014, Algorithm
1.
"""

import math

import numba as nb
import numpy as np

from ..indexing import at
from ..random import philox4x32

_PURPOSE = np.uint32(71)  # the stream of these draws
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)
_SLOW = 0.01  # part of a new draw in the running mean of the acceptance


@nb.njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _log_weight(S, Q, G, M, h2, semi, mean):
    """Log weight of a choice; `semi` adds ``log N(S / M | mean, (1 + h^2 / M) I)`` and takes off G."""
    squares, apart = 0.0, 0.0
    for j in range(len(S)):
        squares += S[j] * S[j]
        apart += (S[j] / M - mean[j]) ** 2
    weight = -(Q - squares / M) / (2.0 * h2)
    if semi:
        weight -= 0.5 * apart / (1.0 + h2 / M) + G
    return weight


@nb.njit(nogil=True, cache=True, error_model="numpy")
def product_draws(x, squares, logs, semi, mean, noise, skip, sweeps, width, exponent, floor, seed):
    """Draw from the product in coordinates where it is near a unit Gaussian.

    The width of draw i is ``width * i^exponent``, but i stands still while the running mean of the acceptance
    is below `floor`: below a few per cent the choices freeze, and the draws look narrower than they are.

    x (M, T, d) has the squared lengths `squares` (M, T). With `semi` kernels correct a Gaussian of covariance
    I about `mean` (the semiparametric product), and `logs` (M, T) are the log densities of draws under their
    shard's Gaussian. `noise` (n, d) is standard normal. The first `skip` draws are not returned; each takes
    `sweeps` over all shards. Returns the draws (n, d), their acceptance, and the last width.
    """
    M, T, d = x.shape
    n = noise.shape[0]
    k0, k1 = np.uint32(seed & _LOW), np.uint32(seed >> _HIGH)
    chosen = np.empty(M, np.int64)
    for m in range(M):
        r0, _, _, _ = philox4x32(np.uint32(0), np.uint32(m), np.uint32(0xFFFFFFFF), _PURPOSE, k0, k1)
        chosen[at(m)] = np.int64((np.uint64(r0) * np.uint64(T)) >> _HIGH)
    S, moved, out = np.empty(d), np.empty(d), np.empty((n, d))
    accepted, running, step, h2 = 0, 1.0, 1.0, width * width
    for i in range(skip + n):
        if running > floor:
            step += 1.0
            h2 = (width * step**exponent) ** 2
        Q, G = 0.0, 0.0
        S[:] = 0.0
        for m in range(M):  # anew for each draw, so that rounding does not gather
            c = chosen[at(m)]
            Q += squares[at(m), at(c)]
            G += logs[at(m), at(c)]
            for j in range(d):
                S[at(j)] += x[at(m), at(c), at(j)]
        now = _log_weight(S, Q, G, M, h2, semi, mean)
        here = 0
        for s in range(sweeps):
            for m in range(M):
                r0, r1, r2, _ = philox4x32(np.uint32(0), np.uint32(s * M + m), np.uint32(i), _PURPOSE, k0, k1)
                new = np.int64((np.uint64(r0) * np.uint64(T)) >> _HIGH)
                old = chosen[at(m)]
                for j in range(d):
                    moved[at(j)] = S[at(j)] + x[at(m), at(new), at(j)] - x[at(m), at(old), at(j)]
                Q_new = Q + squares[at(m), at(new)] - squares[at(m), at(old)]
                G_new = G + logs[at(m), at(new)] - logs[at(m), at(old)]
                then = _log_weight(moved, Q_new, G_new, M, h2, semi, mean)
                u = (np.float64(r1) * 4294967296.0 + np.float64(r2) + 0.5) * 2.0**-64
                if then >= now or math.log(u) < then - now:
                    now, Q, G = then, Q_new, G_new
                    chosen[at(m)] = new
                    here += 1
                    for j in range(d):
                        S[at(j)] = moved[at(j)]
        running += _SLOW * (here / (sweeps * M) - running)
        if i >= skip:
            accepted += here
            # Of the semiparametric product a component has precision M / h^2 + 1.
            precision = M / h2 + (1.0 if semi else 0.0)
            for j in range(d):
                centre = (S[j] / h2 + mean[j]) / precision if semi else S[j] / M
                out[i - skip, j] = centre + noise[i - skip, j] / math.sqrt(precision)
    return out, accepted / (n * sweeps * M), math.sqrt(h2)


@nb.njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _apart(a, b, i, j):
    squares = 0.0
    for k in range(a.shape[1]):
        squares += (a[at(i), at(k)] - b[at(j), at(k)]) ** 2
    return squares


@nb.njit(nogil=True, cache=True, error_model="numpy")
def pair_sums(a, b, variance):
    """Return ``log sum_j exp(-|a_i - b_j|^2 / (2 variance))`` (n_a,) for every row of a (n_a, d)."""
    sums = np.empty(len(a))
    for i in range(len(a)):
        nearest = _apart(a, b, i, 0)
        for j in range(1, len(b)):
            nearest = min(nearest, _apart(a, b, i, j))
        total = 0.0
        for j in range(len(b)):
            total += math.exp((nearest - _apart(a, b, i, j)) / (2.0 * variance))
        sums[i] = math.log(total) - nearest / (2.0 * variance)
    return sums


@nb.njit(nogil=True, cache=True, error_model="numpy")
def pair_choices(a, b, sums, rows, u, variance):
    """Draw a partner for some rows of a with probability ``exp(-|a_i - b_j|^2 / (2 variance) - sums_i)``.

    `sums` are those of `pair_sums`, `rows` (n,) are checked to be rows of a, and u (n,) is uniform on [0, 1).
    Returns rows of b.
    """
    chosen = np.empty(len(rows), np.int64)
    for r in range(len(rows)):
        i, left, j = rows[r], u[r], 0
        while j < len(b) - 1:  # the last one takes what rounding leaves
            left -= math.exp(-_apart(a, b, i, j) / (2.0 * variance) - sums[at(i)])
            if left < 0.0:
                break
            j += 1
        chosen[r] = j
    return chosen
