"""Addresses of compiled functions: one compiled sampler serves all models, and a loop all samplers.

What is called by its address is compiled on its own, once, and only where a fit calls it. numba takes a
function as an argument too, but looks it up by Python on every call of the sampler: that takes tens of
microseconds, more than many densities. An address is a number. It is valid in this process only, and as long
as the function exists.
"""

import numba as nb
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from ..options import BARE

ADDRESS = nb.int64
VECTOR, MATRIX, INTEGERS = nb.float64[::1], nb.float64[:, ::1], nb.int64[::1]
# ``logp = density(q, g, data, meta)``
SIGNATURE = nb.float64(VECTOR, VECTOR, VECTOR, INTEGERS)
# ``densities(n, Q, G, logps, data, meta)`` fills the first n rows of G and entries of logps.
TOGETHER = nb.void(nb.int64, MATRIX, MATRIX, VECTOR, VECTOR, INTEGERS)
_STREAM = nb.uint32[::1]
# ``logp = step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta)``: see ``hmc``.
STEP = nb.float64(
    ADDRESS, VECTOR, VECTOR, nb.float64, VECTOR, MATRIX, VECTOR, _STREAM, MATRIX, VECTOR, VECTOR, INTEGERS
)
# ``begin(z, gz, logp, q, mu, A, tuning, stream, work, numbers)`` and
# ``asks = go_on(z, gz, logp, q, g, mu, A, tuning, stream, work, numbers, info)``: see ``nuts``.
BEGIN = nb.void(VECTOR, VECTOR, nb.float64, VECTOR, VECTOR, MATRIX, VECTOR, _STREAM, MATRIX, VECTOR)
GO_ON = nb.boolean(
    VECTOR, VECTOR, nb.float64, VECTOR, VECTOR, VECTOR, MATRIX, VECTOR, _STREAM, MATRIX, VECTOR, VECTOR
)


def address_of(function, signature):
    """Compile a function of ``numba.njit`` for a signature, or read it from disk; return its address."""
    with global_compiler_lock:  # which forks wait for
        compiled = function.get_compile_result(signature)
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


def _emit(context, builder, signature, args):
    """Call the function as numba does, args[0] being its address; its exceptions propagate to the caller.

    Arrays are borrowed, without their owners: functions count the references to all their arguments, by
    locked instructions, which take longer than the density of a few rows.
    """
    convention, result, kinds = context.call_conv, signature.return_type, signature.args[1:]
    borrowed = [_borrowed(context, builder, kind, value) for kind, value in zip(kinds, args[1:], strict=True)]
    kind = convention.get_function_type(result, kinds).as_pointer()
    function = builder.inttoptr(args[0], kind)
    status, value = convention.call_function(builder, function, result, kinds, borrowed)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
    return value


def _borrowed(context, builder, kind, value):
    if not isinstance(kind, types.Array):
        return value
    array = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    return array._getvalue()


def _pointer_to(kind, item):
    """Make an intrinsic that turns an address into a pointer, for ``numba.carray``."""

    @intrinsic
    def pointer(typingctx, address):
        def codegen(context, builder, signature, args):
            return builder.inttoptr(args[0], item)

        return kind(types.int64), codegen

    return pointer


floats = _pointer_to(types.CPointer(types.float64), ir.DoubleType().as_pointer())
integers = _pointer_to(types.CPointer(types.int64), ir.IntType(64).as_pointer())
anything = _pointer_to(types.voidptr, cgutils.voidptr_t)  # for ``numba.carray`` with a dtype


def caller_of(function, first, second):
    """A function of two arguments of these types that calls one of ``numba.njit`` by its address.

    A caller that is linked with the function has all of it optimised once more.
    """
    address = address_of(function, types.void(first, second))
    result = function.overloads[first, second].signature.return_type

    @intrinsic
    def emit(typingctx, place, one, other):
        return result(types.int64, one, other), _emit

    return nb.njit(nogil=True, **BARE)(lambda one, other: emit(address, one, other))


@intrinsic
def call(typingctx, address, q, g, data, meta):
    """Evaluate the density at an address."""
    return SIGNATURE.return_type(types.int64, *SIGNATURE.args), _emit


@intrinsic
def call_together(typingctx, address, n, Q, G, logps, data, meta):
    """Evaluate the density at an address at several points."""
    return TOGETHER.return_type(types.int64, *TOGETHER.args), _emit


@intrinsic
def call_step(typingctx, address, density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """Make a transition by the step at an address."""
    return STEP.return_type(types.int64, *STEP.args), _emit


@intrinsic
def call_begin(typingctx, address, z, gz, logp, q, mu, A, tuning, stream, work, numbers):
    """Begin a transition by the function at an address."""
    return BEGIN.return_type(types.int64, *BEGIN.args), _emit


@intrinsic
def call_go_on(typingctx, address, z, gz, logp, q, g, mu, A, tuning, stream, work, numbers, info):
    """Go on with a transition by the function at an address."""
    return GO_ON.return_type(types.int64, *GO_ON.args), _emit


@intrinsic
def call_lead(typingctx, address, coefs, slopes, logps, X, meta):
    """Evaluate a likelihood by the function at an address, ``lead(coefs, slopes, logps, X, meta)``."""
    return types.void(types.int64, coefs, slopes, logps, types.int64, meta), _emit
