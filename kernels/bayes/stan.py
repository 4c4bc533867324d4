"""A density that is a compiled Stan program, behind the C function of BridgeStan.

``int bs_log_density_gradient(const bs_model *, bool propto, bool jacobian, const double *q, double *value,
double *gradient, char **message)`` is called by its address. It throws nothing: it returns another number
than 0, and a message that the caller frees.
"""

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .callback import call_function
from .streams import OPTIONS
from .team import exchange

# Places of `meta`: the C function; the programs with the rows and, 0 for none, without any; functions of
# Python for evaluations that failed, and for NaN; the word of whose turn it is, 0 where all may go at a time,
# and the function of Python that waits for it.
FUNCTION, ROWS, NONE, FAILED, UNDEFINED, TURN, WAIT, N_META = range(8)
_COMPILED = 1  # in the word, for any thread of compiled code


@intrinsic
def _evaluate(typingctx, function, program, q, g):
    """Return what the C function returns, the log density and the address of the message."""
    result = types.Tuple((types.int64, types.float64, types.int64))

    def codegen(context, builder, signature, args):
        number, whole, double = ir.IntType(32), ir.IntType(64), ir.DoubleType()
        address, program, q, g = args
        value = cgutils.alloca_once_value(builder, ir.Constant(double, np.nan))
        message = cgutils.alloca_once_value(builder, ir.Constant(whole, 0))
        kinds = [whole, number, number, whole, whole, whole, whole]
        called = builder.inttoptr(address, ir.FunctionType(number, kinds).as_pointer())
        yes = ir.Constant(number, 1)
        places = [builder.ptrtoint(place, whole) for place in (value, message)]
        code = builder.call(called, [program, yes, yes, q, places[0], g, places[1]])
        made = [builder.sext(code, whole), builder.load(value), builder.load(message)]
        return context.make_tuple(builder, result, made)

    return result(*[types.int64] * 4), codegen


@nb.njit(**OPTIONS)
def take_turn(turn, who):
    """Whether the word was free, and now has the number of `who`."""
    return exchange(turn, 0, who)


@nb.njit(**OPTIONS)
def end_turn(turn, who):
    """Free the word, if it has the number of `who`."""
    exchange(turn, who, 0)


@nb.njit(**OPTIONS)
def _in_turn(program, q, g, meta):
    """Evaluate a program, alone where its library has one stack for the derivatives of all threads."""
    turn = meta[TURN]
    if turn:
        while not take_turn(turn, _COMPILED):
            call_function(meta[WAIT], 0, 0, 0)
    code, value, message = _evaluate(meta[FUNCTION], program, q.ctypes.data, g.ctypes.data)
    if turn:
        end_turn(turn, _COMPILED)
    if code:
        g[:] = np.nan
        value = call_function(meta[FAILED], q.ctypes.data, message, len(q))
    elif np.isnan(value):
        value = call_function(meta[UNDEFINED], q.ctypes.data, g.ctypes.data, len(q))
    return value


@nb.njit(**OPTIONS)
def stan(q, g, data, meta):
    """The program of some rows; its part without rows, which is the prior, has the power ``data[0]``."""
    value = _in_turn(meta[ROWS], q, g, meta)
    if meta[NONE] and data[0] != 1.0 and np.isfinite(value):
        slope = np.empty(len(q))
        less = data[0] - 1.0
        prior = _in_turn(meta[NONE], q, slope, meta)
        # Where that part has no density there is none: less * -inf would be infinity.
        value = value + less * prior if prior > -np.inf else prior
        g += less * slope
    return value
