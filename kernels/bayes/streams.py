"""Uniform and normal numbers in double precision, from streams named by seed, shard, chain and draw.

A stream is an array of six uint32: the counter (block, draw, chain, shard) and the key (the two halves of the
seed). Every draw of a chain begins at block 0 of a stream of its own, so that how a run is cut into chunks
cannot be seen in its numbers.
"""

from typing import Any

import numba as nb
import numpy as np

from .. import one_form, options
from ..options import KERNEL
from ..random import philox4x32

OPTIONS: dict[str, Any] = KERNEL | {"fastmath": {"contract"}}
CALLED: dict[str, Any] = OPTIONS | options.INNER  # by compiled code or address: from Python it crashes
# Without counts of references, which are locked instructions: half the time of a tree in ten dimensions.
UNCOUNTED: dict[str, Any] = OPTIONS | options.BORROWS
INNER: dict[str, Any] = CALLED | options.BORROWS | {"forceinline": True}  # the inside of a step

_HIGH_BITS, _LOW_BITS, _HALF = np.uint32(5), np.uint32(7), 0.5
_SCALE, _UNIT = 2.0**25, 2.0**-52  # 52 bits and a half: every sum is exact, and none is 0 or 1


@nb.njit(**OPTIONS)
def _pair(stream):
    """Two uniforms on the open interval (0, 1) from the next block."""
    r0, r1, r2, r3 = philox4x32(stream[0], stream[1], stream[2], stream[3], stream[4], stream[5])
    stream[0] += np.uint32(1)
    return _number(r0, r1), _number(r2, r3)


@nb.njit(**CALLED)
def _number(high, low):
    return (np.float64(high >> _HIGH_BITS) * _SCALE + np.float64(low >> _LOW_BITS) + _HALF) * _UNIT


@nb.njit(**OPTIONS)
def uniform(stream):
    """One uniform on (0, 1); it takes a whole block."""
    return _pair(stream)[0]


@nb.njit(**OPTIONS)
def fill_uniform(stream, out, first, n):
    """Put n numbers of `uniform` into `out`, from `first` on: several at once, by vectors."""
    block, draw, chain, shard, low, high = stream[0], stream[1], stream[2], stream[3], stream[4], stream[5]
    for i in range(n):
        r0, r1, _, _ = philox4x32(np.uint32(block + np.uint32(i)), draw, chain, shard, low, high)
        out[first + i] = _number(r0, r1)
    stream[0] = np.uint32(block + np.uint32(n))


@nb.njit(**OPTIONS)
def fill_normal(stream, out):
    """Fill a vector with standard normal numbers, by the method of Box and Muller."""
    n = len(out)
    block, draw, chain, shard, low, high = stream[0], stream[1], stream[2], stream[3], stream[4], stream[5]
    for k in range(n // 2):  # a loop of its own, which is done by vectors
        r0, r1, r2, r3 = philox4x32(np.uint32(block + np.uint32(k)), draw, chain, shard, low, high)
        out[2 * k], out[2 * k + 1] = _number(r0, r1), _number(r2, r3)
    stream[0] = np.uint32(block + np.uint32(n // 2))
    for i in range(0, n - 1, 2):
        out[i], out[i + 1] = _of_normal(out[i], out[i + 1])
    if n % 2:
        first, second = _pair(stream)
        out[n - 1] = _of_normal(first, second)[0]


@nb.njit(**CALLED)
def _of_normal(first, second):
    radius, angle = np.sqrt(-2.0 * np.log(first)), 2.0 * np.pi * second
    return radius * np.cos(angle), radius * np.sin(angle)


@one_form.njit(nb.float64[:, ::1](nb.uint32[::1], nb.int64, nb.int64), **OPTIONS)
def normals(name, n_rows, n_columns):
    """Return an array of standard normal numbers, from the stream of that name."""
    out, stream = np.empty(n_rows * n_columns), name.copy()
    fill_normal(stream, out)
    return out.reshape(n_rows, n_columns)


@one_form.njit(nb.float64[::1](nb.uint32[::1], nb.int64), **OPTIONS)
def uniforms(name, n):
    """Return a vector of uniforms on (0, 1), from the stream of that name."""
    out = np.empty(n)
    fill_uniform(name.copy(), out, 0, n)
    return out
