"""Counter-based random numbers: Philox4x32-10, the same on the CPU and in CUDA.

A stream is identified by a 64-bit key (the seed) and three 32-bit indices (purpose, round, index); the fourth
word of the counter counts blocks of four draws. No state is carried from draw to draw, so any part of any
stream can be made anywhere, in any order.

Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

import numba as nb
import numpy as np

from .options import BORROWS, INNER, KERNEL

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_LOW, _HIGH = np.uint64(0xFFFFFFFF), np.uint64(32)
_BITS, _UNIT = np.uint32(8), np.float32(2.0**-24)


@nb.njit(cache=True, inline="always")
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Ten rounds over a counter of four uint32 under a key of two; returns four uint32."""
    for _ in range(10):
        p0, p1 = _M0 * np.uint64(c0), _M1 * np.uint64(c2)
        c0, c1, c2, c3 = (
            np.uint32(p1 >> _HIGH) ^ c1 ^ k0,
            np.uint32(p1 & _LOW),
            np.uint32(p0 >> _HIGH) ^ c3 ^ k1,
            np.uint32(p0 & _LOW),
        )
        k0, k1 = np.uint32(k0 + _W0), np.uint32(k1 + _W1)
    return c0, c1, c2, c3


@nb.njit(cache=True, inline="always")
def fill_uniform(out, first, seed, purpose, round_, index):
    """Fill `out` (float32, length a multiple of 4) with uniforms on [0, 1) from block `first` of a stream on.

    Draw ``i`` of block ``b`` goes to ``out[i * (len(out) // 4) + b]``: four runs of contiguous stores, which
    the compiler vectorises.
    """
    # One type each, whatever the caller gives, so that the filling code is compiled once.
    k0, k1 = np.uint32(seed & _LOW), np.uint32(seed >> _HIGH)
    _fill(out, np.uint32(first), np.uint32(index), np.uint32(round_), np.uint32(purpose), k0, k1)


@nb.njit(**KERNEL, **BORROWS, **INNER)
def _fill(out, first, c1, c2, c3, k0, k1):
    quarter = len(out) // 4
    for b in range(quarter):
        r0, r1, r2, r3 = philox4x32(np.uint32(first + b), c1, c2, c3, k0, k1)
        out[b] = np.float32(r0 >> _BITS) * _UNIT
        out[b + quarter] = np.float32(r1 >> _BITS) * _UNIT
        out[b + 2 * quarter] = np.float32(r2 >> _BITS) * _UNIT
        out[b + 3 * quarter] = np.float32(r3 >> _BITS) * _UNIT


@nb.njit(cache=True, inline="always")
def hash32(x):
    """Hash a uint32 in a few operations (Wellons' lowbias32, 2018)."""
    x = np.uint32(x)
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x7FEB352D))
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0x846CA68B))
    return np.uint32(x ^ (x >> np.uint32(16)))
