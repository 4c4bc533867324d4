"""Uniform and normal numbers in double precision, from streams named by seed, shard, chain and draw.

A stream is an array of six uint32: the counter (block, draw, chain, shard) and the key (the two halves of the
seed). Every draw of a chain begins at block 0 of a stream of its own, so that how a run is cut into chunks
cannot be seen in its numbers.
"""

from typing import Any

import numba as nb
import numpy as np
from numba.core.options import DefaultOptions

from .random import philox4x32

OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"contract"}}
# For the inside of a step, which makes no array: other functions count the references to all their arguments,
# by locked instructions, which is half the time of a tree in ten dimensions. `_nrt` is no public option.
INNER: dict[str, Any] = OPTIONS | {"forceinline": True}
INNER |= {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}

_HIGH_BITS, _LOW_BITS, _HALF = np.uint32(5), np.uint32(7), 0.5
_SCALE, _UNIT = 2.0**25, 2.0**-52  # 52 bits and a half: every sum is exact, and none is 0 or 1


@nb.njit(**OPTIONS)
def _pair(stream):
    """Two uniforms on the open interval (0, 1) from the next block."""
    r0, r1, r2, r3 = philox4x32(stream[0], stream[1], stream[2], stream[3], stream[4], stream[5])
    stream[0] += np.uint32(1)
    first = (np.float64(r0 >> _HIGH_BITS) * _SCALE + np.float64(r1 >> _LOW_BITS) + _HALF) * _UNIT
    second = (np.float64(r2 >> _HIGH_BITS) * _SCALE + np.float64(r3 >> _LOW_BITS) + _HALF) * _UNIT
    return first, second


@nb.njit(**OPTIONS)
def uniform(stream):
    """One uniform on (0, 1); it takes a whole block."""
    return _pair(stream)[0]


@nb.njit(**OPTIONS)
def fill_normal(stream, out):
    """Fill a vector with standard normal numbers, by the method of Box and Muller."""
    n = len(out)
    for i in range(0, n, 2):
        first, second = _pair(stream)
        radius, angle = np.sqrt(-2.0 * np.log(first)), 2.0 * np.pi * second
        out[i] = radius * np.cos(angle)
        if i + 1 < n:
            out[i + 1] = radius * np.sin(angle)


@nb.njit(nb.float64[:, ::1](nb.uint32[::1], nb.int64, nb.int64), **OPTIONS)
def normals(name, n_rows, n_columns):
    """Return an array of standard normal numbers, from the stream of that name."""
    out, stream = np.empty(n_rows * n_columns), name.copy()
    fill_normal(stream, out)
    return out.reshape(n_rows, n_columns)


@nb.njit(nb.float64[::1](nb.uint32[::1], nb.int64), **OPTIONS)
def uniforms(name, n):
    """Return a vector of uniforms on (0, 1), from the stream of that name."""
    out, stream = np.empty(n), name.copy()
    for i in range(n):
        out[i] = uniform(stream)
    return out
