"""A density given by a C function: one of Python (through ctypes), or of another compiled library.

``meta[0]`` is the address of ``double f(const double *q, double *g, int64_t d)``.
"""

import math

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .address import integers
from .streams import CALLED


@intrinsic
def call_function(typingctx, address, q, g, d):
    """Call the C function at an address with those of q and of g, and with d."""
    signature = types.float64(*[types.int64] * 4)

    def codegen(context, builder, signature, args):
        integer, double = ir.IntType(64), ir.DoubleType()
        function = ir.FunctionType(double, [integer] * 3).as_pointer()
        return builder.call(builder.inttoptr(args[0], function), args[1:])

    return signature, codegen


@nb.njit(**CALLED)
def callback(q, g, data, meta):
    """Log density and gradient from the function behind the address."""
    return call_function(meta[0], q.ctypes.data, g.ctypes.data, len(q))


@nb.njit(**CALLED)
def callback_together(n, Q, G, logps, data, meta):
    """Log densities and gradients of n points, by one call of the function behind the address ``meta[1]``."""
    places = np.array([Q.ctypes.data, G.ctypes.data, logps.ctypes.data])
    call_function(meta[1], places.ctypes.data, 0, n)
    places[0] = 0  # numba frees an array after its last use, which must not be before the call


@nb.njit(**CALLED)
def pointer(q, g, data, meta):
    """The same of a library's own function: the function behind ``meta[1]`` counts NaN.

    The number at the address ``meta[2]`` is not 0 once the function has raised an error. What it returned is
    then no density, and what remains of the run is not worth another call.
    """
    failed = nb.carray(integers(meta[2]), 1)
    if failed[0]:
        return np.nan
    logp = call_function(meta[0], q.ctypes.data, g.ctypes.data, len(q))
    if failed[0]:
        for i in range(len(g)):
            g[i] = np.nan
        return np.nan
    if math.isnan(logp):
        logp = call_function(meta[1], q.ctypes.data, g.ctypes.data, len(q))
    return logp
