"""Log densities as addresses of compiled functions, so that one compiled sampler serves all models.

numba takes a function as an argument too, but looks it up by Python on every call of the sampler: that takes
tens of microseconds, more than many densities. An address is a number. It is valid in this process only, and
as long as the function exists.
"""

import numba as nb
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

ADDRESS = nb.int64
VECTOR, MATRIX, INTEGERS = nb.float64[::1], nb.float64[:, ::1], nb.int64[::1]
# ``logp = density(q, g, data, meta)``
SIGNATURE = nb.float64(VECTOR, VECTOR, VECTOR, INTEGERS)
# ``densities(n, Q, G, logps, data, meta)`` fills the first n rows of G and entries of logps.
TOGETHER = nb.void(nb.int64, MATRIX, MATRIX, VECTOR, VECTOR, INTEGERS)


def address_of(function, signature):
    """Compile a function of ``numba.njit`` for a signature, or read it from disk; return its address."""
    compiled = function.get_compile_result(signature)
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


def _emit(context, builder, signature, args):
    """Call the function as numba does; its exceptions propagate to the caller.

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


@intrinsic
def floats(typingctx, address):
    """A pointer to the float64 at an address, for ``numba.carray``."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.DoubleType().as_pointer())

    return types.CPointer(types.float64)(types.int64), codegen


@intrinsic
def integers(typingctx, address):
    """A pointer to the int64 at an address, for ``numba.carray``."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), codegen


@intrinsic
def call(typingctx, address, q, g, data, meta):
    """Evaluate the density at an address."""
    return SIGNATURE.return_type(types.int64, *SIGNATURE.args), _emit


@intrinsic
def call_together(typingctx, address, n, Q, G, logps, data, meta):
    """Evaluate the density at an address at several points."""
    return TOGETHER.return_type(types.int64, *TOGETHER.args), _emit
