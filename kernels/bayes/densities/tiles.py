"""Passes over the rows of a logistic regression, as vector instructions: a few nanoseconds a row.

With signs s_i = 1 or -1 multiplied into the rows, a_i = s_i x_i, and coefficients b, a pass sums up
``log(1 + exp(-a_i b))`` and, for the gradient, ``a_i / (1 + exp(a_i b))``.

Rows lie in tiles: those of one tile side by side, coefficient after coefficient, shape (n_tiles, d, rows).
 1. The predictors of a tile stay in four vector registers.
 2. With ``t = exp(-|f|)`` the share is ``(t or 1) / (1 + t)``; the sum of ``log(1 + t)`` is the logarithm of
    a running product, taken before it can overflow.
 3. The gradient reads the tile again, from the first-level cache, in one loop with step 1 of the next tile:
    the first waits for the second-level cache, the second for the multipliers. Two tiles must fit into the
    first level; what comes 50 rows of a tile later is fetched into the second level only.
Padding rows are zero: they have no gradient, and a ``log 2`` each.

Written as LLVM vectors of 64 bytes, which every processor's compiler cuts to its own, in the precision of the
coefficients.
"""

import functools
import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

LINE = 64  # bytes of a vector and of a cache line
N_VECTORS = 4  # of a tile
ROWS64, ROWS32 = N_VECTORS * LINE // 8, N_VECTORS * LINE // 4
_AHEAD = 50  # coefficients of a tile
RUN64, RUN32 = 960 // N_VECTORS, 96 // N_VECTORS  # tiles whose product of (1 + t) fits: 2^960, 2^96

_i8, _i32, _i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


class _Vectors:
    """Vector instructions of one item type, at the end of a builder's block."""

    def __init__(self, builder, single):
        self.b = builder
        self.item = ir.FloatType() if single else ir.DoubleType()
        self.size = 4 if single else 8
        self.lanes = LINE // self.size
        self.kind = ir.VectorType(self.item, self.lanes)
        self.bits = ir.VectorType(_i32 if single else _i64, self.lanes)
        self.suffix = f"v{self.lanes}f{8 * self.size}"

    def number(self, value):
        return ir.Constant(self.kind, [value] * self.lanes)

    def integer(self, value):
        return ir.Constant(self.bits, [value] * self.lanes)

    def load(self, address):
        return self.b.load(self.b.inttoptr(address, self.kind.as_pointer()), align=self.size)

    def store(self, value, address):
        self.b.store(value, self.b.inttoptr(address, self.kind.as_pointer()), align=self.size)

    def load_splat(self, address):
        """One item, in all lanes."""
        scalar = self.b.load(self.b.inttoptr(address, self.item.as_pointer()), align=self.size)
        blank = ir.Constant(self.kind, ir.Undefined)
        lanes = ir.Constant(ir.VectorType(_i32, self.lanes), [0] * self.lanes)
        return self.b.shuffle_vector(self.b.insert_element(blank, scalar, _i32(0)), blank, lanes)

    def call(self, name, *args):
        kind = ir.FunctionType(self.kind, [self.kind] * len(args))
        function = cgutils.get_or_insert_function(self.b.module, kind, f"llvm.{name}.{self.suffix}")
        return self.b.call(function, args)

    def fma(self, x, y, z):
        return self.call("fma", x, y, z)

    def exp_of_negative(self, x):
        """``exp(x)`` for x <= 0: ``2^n exp(f)`` with n = round(x / log 2), and Taylor's polynomial in f.

        Of degree 11 in double precision (relative error 4e-16) and 6 in single (2e-7). n is rounded by adding
        a number so large that it is left in the low bits.
        """
        single = self.size == 4
        least, magic = (-80.0, 1.5 * 2.0**23) if single else (-700.0, 1.5 * 2.0**52)
        high, low = (
            (0.693145751953125, 1.4286068203094172e-6)
            if single
            else (0.6931471805598903, 5.497923018708371e-14)
        )
        degree, fraction_bits = (6, 23) if single else (11, 52)
        x = self.call("maxnum", x, self.number(least))
        shifted = self.fma(x, self.number(1.0 / math.log(2.0)), self.number(magic))
        n = self.b.fsub(shifted, self.number(magic))
        f = self.fma(n, self.number(-low), self.fma(n, self.number(-high), x))
        p = self.number(1.0 / math.factorial(degree))
        for i in range(degree - 1, -1, -1):
            p = self.fma(p, f, self.number(1.0 / math.factorial(i)))
        exponent = self.b.shl(self.b.bitcast(shifted, self.bits), self.integer(fraction_bits))
        return self.b.bitcast(self.b.add(self.b.bitcast(p, self.bits), exponent), self.kind)

    def fetch(self, address):
        """Ask for a cache line, for the second level."""
        kind = ir.FunctionType(ir.VoidType(), [_i8.as_pointer(), _i32, _i32, _i32])
        function = cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0")
        self.b.call(function, [self.b.inttoptr(address, _i8.as_pointer()), _i32(0), _i32(2), _i32(1)])


def _repeat(b, n, body):
    """Emit ``for i in range(n): body(i)`` for n >= 1."""
    before, loop, done = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(_i64)
    i.add_incoming(_i64(0), before)
    body(i)
    following = b.add(i, _i64(1))
    i.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("<", following, n), loop, done)
    b.position_at_end(done)


class _Tiles:
    """The code of one pass over tiles, for several parameter vectors (`n`) at once."""

    def __init__(self, context, builder, single, n, args):
        self.b, self.v, self.n = builder, _Vectors(builder, single), n
        self.x, self.d, self.coefs, self.gradient, self.sums = args
        self.row = N_VECTORS * LINE
        slot = functools.partial(cgutils.alloca_once, builder, self.v.kind)
        # In registers, once the compiler has been over them.
        self.predictors = [[slot() for _ in range(N_VECTORS)] for _ in range(n)]
        self.shares = [[slot() for _ in range(N_VECTORS)] for _ in range(n)]

    def clear(self):
        for row in self.predictors:
            for slot in row:
                self.b.store(self.v.number(0.0), slot)

    def at(self, base, index, size):
        return self.b.add(base, self.b.mul(index, _i64(size)))

    def forward(self, tile, j):
        """Coefficient j enters the predictors."""
        b, v = self.b, self.v
        x, coefs = self.at(tile, j, self.row), self.at(self.coefs, j, self.n * v.size)
        splats = [v.load_splat(b.add(coefs, _i64(c * v.size))) for c in range(self.n)]
        for k in range(N_VECTORS):
            xk = v.load(b.add(x, _i64(k * LINE)))
            for c in range(self.n):
                slot = self.predictors[c][k]
                b.store(v.fma(xk, splats[c], b.load(slot)), slot)

    def backward(self, tile, j):
        """The shares of the tile before enter the gradient of coefficient j."""
        b, v = self.b, self.v
        x, gradient = self.at(tile, j, self.row), self.at(self.gradient, j, self.n * LINE)
        columns = [v.load(b.add(x, _i64(k * LINE))) for k in range(N_VECTORS)]
        for c in range(self.n):
            place = b.add(gradient, _i64(c * LINE))
            halves = [v.load(place), v.number(0.0)]  # two chains of additions
            for k in range(N_VECTORS):
                halves[k % 2] = v.fma(columns[k], b.load(self.shares[c][k]), halves[k % 2])
            v.store(b.fadd(*halves), place)

    def link(self, with_gradient):
        """From predictors to shares and sums; a NaN goes into the sums."""
        b, v = self.b, self.v
        zero, one = v.number(0.0), v.number(1.0)
        for c in range(self.n):
            at_product = b.add(self.sums, _i64(c * LINE))
            at_linear = b.add(self.sums, _i64((self.n + c) * LINE))
            product, linear = v.load(at_product), v.load(at_linear)
            for k in range(N_VECTORS):
                f = b.load(self.predictors[c][k])
                t = v.exp_of_negative(b.fneg(v.call("fabs", f)))
                whole = b.fadd(t, one)
                product = b.fmul(product, whole)
                positive = b.fcmp_ordered(">=", f, zero)
                linear = b.fsub(linear, b.select(positive, zero, f))
                if with_gradient:
                    b.store(b.fdiv(b.select(positive, t, one), whole), self.shares[c][k])
            v.store(product, at_product)
            v.store(linear, at_linear)

    def fetch(self, tile, j):
        address = self.at(tile, j, self.row)
        for k in range(N_VECTORS):
            self.v.fetch(self.b.add(address, _i64(k * LINE + _AHEAD * self.row)))

    def emit(self, n_tiles, with_gradient):
        b = self.b
        size = b.mul(self.d, _i64(self.row))

        def following(i):
            before = b.add(self.x, b.mul(i, size))
            tile = b.add(before, size)
            self.clear()

            def both(j):
                self.fetch(tile, j)
                self.forward(tile, j)
                self.backward(before, j)

            _repeat(b, self.d, both if with_gradient else functools.partial(self.forward, tile))
            self.link(with_gradient)

        self.clear()
        _repeat(b, self.d, functools.partial(self.forward, self.x))
        self.link(with_gradient)
        others = b.sub(n_tiles, _i64(1))
        with b.if_then(b.icmp_signed(">", n_tiles, _i64(1))):
            _repeat(b, others, following)
        if with_gradient:
            _repeat(b, self.d, functools.partial(self.backward, b.add(self.x, b.mul(others, size))))


def tile_pass(n, with_gradient):
    """Make ``(x, n_tiles, d, coefs, gradient, sums)``: a pass for n vectors over tiles at address x.

    coefs (d, n), float64 or float32 as the tiles are; gradient (d, n, lanes), added to; sums (2, n, lanes):
    products of (1 + t) and sums of max(-f, 0). All of one type, and contiguous.
    """

    @intrinsic
    def pass_over(typingctx, x, n_tiles, d, coefs, gradient, sums):
        single = coefs.dtype == types.float32

        def codegen(context, builder, signature, args):
            arrays = (
                builder.ptrtoint(make_array(kind)(context, builder, value).data, _i64)
                for kind, value in zip(signature.args[3:], args[3:], strict=True)
            )
            emitted = _Tiles(context, builder, single, n, (args[0], args[2], *arrays))
            emitted.emit(args[1], with_gradient)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, coefs, gradient, sums), codegen

    return pass_over


def tiles(rows, dtype):
    """Lay rows (n, d) out in tiles (n_tiles, d, rows of a tile) of that type; rows beyond n are zero."""
    n, d = rows.shape
    height = ROWS64 if np.dtype(dtype) == np.float64 else ROWS32
    n_tiles = -(-n // height)
    out = np.zeros((n_tiles, d, height), dtype)
    whole = n // height
    out[:whole] = rows[: whole * height].reshape(whole, height, d).transpose(0, 2, 1)
    if whole < n_tiles:
        out[whole, :, : n - whole * height] = rows[whole * height :].T
    return out
