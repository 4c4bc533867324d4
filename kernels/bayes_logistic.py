"""Log density and gradient of Bayesian logistic regression, a few nanoseconds a row.

With signs s_i = 1 or -1 multiplied into the rows, a_i = s_i x_i,

    ``log p(y | b) = -sum_i log(1 + exp(-a_i b))``,  gradient ``sum_i a_i / (1 + exp(a_i b))``.

Rows lie in tiles: those of one tile side by side, coefficient after coefficient, shape (n_tiles, d, rows).
 1. The predictors of a tile stay in four vector registers.
 2. With ``t = exp(-|f|)`` the share is ``(t or 1) / (1 + t)``; the sum of ``log(1 + t)`` is the logarithm of
    a running product, taken before it can overflow.
 3. The gradient reads the tile again, from the first-level cache, in one loop with step 1 of the next tile:
    the first waits for the second-level cache, the second for the multipliers. Two tiles must fit into the
    first level; what comes 50 rows of a tile later is fetched into the second level only.
Padding rows are zero: they have no gradient, and their ``log 2`` are put back. Single precision keeps sums
over some thousand rows only, then goes over to double.

Written as LLVM vectors of 64 bytes, which every processor's compiler cuts to its own.
"""

import functools
import math

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .bayes_priors import N_COEFS, N_TILES, PADDING, START, add_prior, coefficients
from .bayes_streams import OPTIONS

LINE = 64  # bytes of a vector and of a cache line
N_VECTORS = 4  # of a tile
ROWS64, ROWS32 = N_VECTORS * LINE // 8, N_VECTORS * LINE // 4
_AHEAD = 50  # coefficients of a tile
_RUN64, _RUN32 = 960 // N_VECTORS, 96 // N_VECTORS  # tiles whose product of (1 + t) fits: 2^960, 2^96
_FLUSH = 8  # runs of single precision
_SHARED = 400_000  # bytes of X in the second-level cache while several parameter vectors meet them
_TOGETHER = 4  # parameter vectors that share one reading

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


def _tile_pass(single, n, with_gradient):
    """Make ``(x, n_tiles, d, coefs, gradient, sums)``, all addresses but the second and third.

    coefs (d, n); gradient (d, n, lanes), added to; sums (2, n, lanes): products of (1 + t) and sums of
    max(-f, 0).
    """

    @intrinsic
    def tile_pass(typingctx, x, n_tiles, d, coefs, gradient, sums):
        signature = types.void(*[types.int64] * 6)

        def codegen(context, builder, signature, args):
            x, n_tiles, d, coefs, gradient, sums = args
            _Tiles(context, builder, single, n, (x, d, coefs, gradient, sums)).emit(n_tiles, with_gradient)
            return context.get_dummy_value()

        return signature, codegen

    return tile_pass


_gradient64, _gradient32 = _tile_pass(False, 1, True), _tile_pass(True, 1, True)
_two64, _two32 = _tile_pass(False, 2, True), _tile_pass(True, 2, True)
_four64, _four32 = _tile_pass(False, _TOGETHER, True), _tile_pass(True, _TOGETHER, True)
_density64, _density32 = _tile_pass(False, _TOGETHER, False), _tile_pass(True, _TOGETHER, False)


@nb.njit(**OPTIONS)
def _sum_lanes(lanes, g):
    """Add the lanes of the gradient to `g`, and clear them."""
    width = len(lanes) // len(g)
    for j in range(len(g)):
        total = 0.0
        for lane in range(j * width, (j + 1) * width):
            total += np.float64(lanes[lane])
            lanes[lane] = 0.0
        g[j] += total


@nb.njit(**OPTIONS)
def _likelihood64(b, g, X, n_tiles):
    """Log likelihood of the tiles at address X, padding included; the gradient is added to `g`."""
    d, lanes = len(b), LINE // 8
    sums, running = np.empty(2 * lanes), np.zeros(d * lanes)
    logp = 0.0
    for tile in range(0, n_tiles, _RUN64):
        sums[:lanes], sums[lanes:] = 1.0, 0.0
        address = X + tile * (d * N_VECTORS * LINE)
        n = min(_RUN64, n_tiles - tile)
        _gradient64(address, n, d, b.ctypes.data, running.ctypes.data, sums.ctypes.data)
        for lane in range(lanes):
            logp -= math.log(sums[lane]) + sums[lanes + lane]
    _sum_lanes(running, g)
    return logp


@nb.njit(**OPTIONS)
def _likelihood32(b, g, X, n_tiles):
    """The same on tiles in single precision."""
    d, lanes = len(b), LINE // 4
    b32 = b.astype(np.float32)
    sums, running, product = np.empty(2 * lanes, np.float32), np.zeros(d * lanes, np.float32), np.ones(lanes)
    logp, runs = 0.0, 0
    for tile in range(0, n_tiles, _RUN32):
        sums[:lanes], sums[lanes:] = 1.0, 0.0
        address = X + tile * (d * N_VECTORS * LINE)
        n = min(_RUN32, n_tiles - tile)
        _gradient32(address, n, d, b32.ctypes.data, running.ctypes.data, sums.ctypes.data)
        for lane in range(lanes):
            product[lane] *= sums[lane]
            logp -= sums[lanes + lane]
        runs += 1
        if runs == _FLUSH or tile + _RUN32 >= n_tiles:
            runs = 0
            for lane in range(lanes):
                logp -= math.log(product[lane])
                product[lane] = 1.0
            _sum_lanes(running, g)
    return logp


@nb.njit(**OPTIONS)
def _tiles_of(data, meta):
    """The address of the first tile."""
    return data.ctypes.data + 8 * meta[START]


@nb.njit(**OPTIONS)
def logistic64(q, g, data, meta):
    """Log posterior density in double precision."""
    b, gb = np.empty(meta[N_COEFS]), np.zeros(meta[N_COEFS])
    coefficients(q, b, data, meta)
    logp = _likelihood64(b, gb, _tiles_of(data, meta), meta[N_TILES]) + data[PADDING]
    return logp + add_prior(q, b, gb, g, data, meta)


@nb.njit(**OPTIONS)
def logistic32(q, g, data, meta):
    """Log posterior density, the rows in single precision."""
    b, gb = np.empty(meta[N_COEFS]), np.zeros(meta[N_COEFS])
    coefficients(q, b, data, meta)
    logp = _likelihood32(b, gb, _tiles_of(data, meta), meta[N_TILES]) + data[PADDING]
    return logp + add_prior(q, b, gb, g, data, meta)


@nb.njit(**OPTIONS)
def _likelihoods64(coefs, slopes, logps, X, n_tiles):
    """Log likelihoods of two or four vectors, coefs (d, n), in one pass; slopes (d, n) are set.

    Every number is made by the same operations as for one vector, so that it is the same to the last bit.
    """
    d, n = coefs.shape
    half = n * LINE // 8
    sums, running = np.empty(2 * half), np.zeros(d * half)
    logps[:] = 0.0
    for tile in range(0, n_tiles, _RUN64):
        sums[:half], sums[half:] = 1.0, 0.0
        address, many = X + tile * (d * N_VECTORS * LINE), min(_RUN64, n_tiles - tile)
        if n == 2:
            _two64(address, many, d, coefs.ctypes.data, running.ctypes.data, sums.ctypes.data)
        else:
            _four64(address, many, d, coefs.ctypes.data, running.ctypes.data, sums.ctypes.data)
        for lane in range(half):
            logps[lane // (LINE // 8)] -= math.log(sums[lane]) + sums[half + lane]
    slopes[:] = 0.0
    _sum_lanes(running, slopes.ravel())


@nb.njit(**OPTIONS)
def _likelihoods32(coefs, slopes, logps, X, n_tiles):
    """The same on tiles in single precision."""
    d, n = coefs.shape
    half, runs = n * LINE // 4, 0
    coefs = coefs.astype(np.float32)
    sums, running, product = np.empty(2 * half, np.float32), np.zeros(d * half, np.float32), np.ones(half)
    logps[:], slopes[:] = 0.0, 0.0
    for tile in range(0, n_tiles, _RUN32):
        sums[:half], sums[half:] = 1.0, 0.0
        address, many = X + tile * (d * N_VECTORS * LINE), min(_RUN32, n_tiles - tile)
        if n == 2:
            _two32(address, many, d, coefs.ctypes.data, running.ctypes.data, sums.ctypes.data)
        else:
            _four32(address, many, d, coefs.ctypes.data, running.ctypes.data, sums.ctypes.data)
        for lane in range(half):
            product[lane] *= sums[lane]
            logps[lane // (LINE // 4)] -= sums[half + lane]
        runs += 1
        if runs == _FLUSH or tile + _RUN32 >= n_tiles:
            runs = 0
            for lane in range(half):
                logps[lane // (LINE // 4)] -= math.log(product[lane])
                product[lane] = 1.0
            _sum_lanes(running, slopes.ravel())


@nb.njit(**OPTIONS)
def _coefficients_of(Q, first, n, data, meta):
    """Coefficients (d, n) of n parameter vectors, side by side."""
    b, coefs = np.empty(meta[N_COEFS]), np.empty((meta[N_COEFS], n))
    for k in range(n):
        coefficients(Q[first + k], b, data, meta)
        coefs[:, k] = b
    return coefs


@nb.njit(**OPTIONS)
def _add_priors(coefs, slopes, likelihoods, Q, G, logps, first, data, meta):
    """Fill log densities and gradients from the likelihoods of several vectors, the priors added."""
    b, gb = np.empty(len(coefs)), np.empty(len(coefs))
    for k in range(coefs.shape[1]):
        b[:], gb[:] = coefs[:, k], slopes[:, k]
        logp = likelihoods[k] + data[PADDING]
        logps[first + k] = logp + add_prior(Q[first + k], b, gb, G[first + k], data, meta)


@nb.njit(**OPTIONS)
def _next_group(left):
    """How many vectors share the next pass."""
    return _TOGETHER if left >= _TOGETHER else 2 if left >= 2 else 1


@nb.njit(**OPTIONS)
def logistic64_together(n, Q, G, logps, data, meta):
    """Log posterior densities and gradients of n parameter vectors, that share passes over the rows."""
    first = 0
    while first < n:
        size = _next_group(n - first)
        if size == 1:
            logps[first] = logistic64(Q[first], G[first], data, meta)
        else:
            coefs = _coefficients_of(Q, first, size, data, meta)
            slopes, likelihoods = np.empty_like(coefs), np.empty(size)
            _likelihoods64(coefs, slopes, likelihoods, _tiles_of(data, meta), meta[N_TILES])
            _add_priors(coefs, slopes, likelihoods, Q, G, logps, first, data, meta)
        first += size


@nb.njit(**OPTIONS)
def logistic32_together(n, Q, G, logps, data, meta):
    """The same on tiles in single precision."""
    first = 0
    while first < n:
        size = _next_group(n - first)
        if size == 1:
            logps[first] = logistic32(Q[first], G[first], data, meta)
        else:
            coefs = _coefficients_of(Q, first, size, data, meta)
            slopes, likelihoods = np.empty_like(coefs), np.empty(size)
            _likelihoods32(coefs, slopes, likelihoods, _tiles_of(data, meta), meta[N_TILES])
            _add_priors(coefs, slopes, likelihoods, Q, G, logps, first, data, meta)
        first += size


@nb.njit(**OPTIONS)
def _groups(Q, out, data, meta):
    """Fill `out` with what is no likelihood; return coefficients, four parameter vectors side by side."""
    d, n = meta[N_COEFS], len(Q)
    b, gb, g = np.empty(d), np.zeros(d), np.empty(Q.shape[1])
    groups = np.zeros(((n + _TOGETHER - 1) // _TOGETHER, d * _TOGETHER))
    for k in range(n):
        coefficients(Q[k], b, data, meta)
        out[k] = data[PADDING] + add_prior(Q[k], b, gb, g, data, meta)
        for j in range(d):
            groups[k // _TOGETHER, j * _TOGETHER + k % _TOGETHER] = b[j]
    return groups


@nb.njit(**OPTIONS)
def logistic64_batch(Q, out, data, meta):
    """Log densities (K,) of K parameter vectors: some tiles meet all of them before the next are read."""
    d, n_tiles, X, lanes = meta[N_COEFS], meta[N_TILES], _tiles_of(data, meta), LINE // 8
    groups = _groups(Q, out, data, meta)
    half = _TOGETHER * lanes
    sums = np.empty(2 * half)
    size = d * N_VECTORS * LINE
    run = max(1, min(_RUN64, _SHARED // size))
    for tile in range(0, n_tiles, run):
        for i in range(len(groups)):
            sums[:half], sums[half:] = 1.0, 0.0
            n = min(run, n_tiles - tile)
            _density64(X + tile * size, n, d, groups[i].ctypes.data, 0, sums.ctypes.data)
            for lane in range(half):
                k = i * _TOGETHER + lane // lanes
                if k < len(Q):
                    out[k] -= math.log(sums[lane]) + sums[half + lane]


@nb.njit(**OPTIONS)
def logistic32_batch(Q, out, data, meta):
    """The same on tiles in single precision."""
    d, n_tiles, X, lanes = meta[N_COEFS], meta[N_TILES], _tiles_of(data, meta), LINE // 4
    groups = _groups(Q, out, data, meta).astype(np.float32)
    half = _TOGETHER * lanes
    sums, product = np.empty(2 * half, np.float32), np.ones((len(groups), half))
    size = d * N_VECTORS * LINE
    run = max(1, min(_RUN32, _SHARED // size))
    for tile in range(0, n_tiles, run):
        flush = (tile // run) % _FLUSH == _FLUSH - 1 or tile + run >= n_tiles
        for i in range(len(groups)):
            sums[:half], sums[half:] = 1.0, 0.0
            n = min(run, n_tiles - tile)
            _density32(X + tile * size, n, d, groups[i].ctypes.data, 0, sums.ctypes.data)
            for lane in range(half):
                k = i * _TOGETHER + lane // lanes
                product[i, lane] *= sums[lane]
                if k < len(Q):
                    out[k] -= sums[half + lane]
                    if flush:
                        out[k] -= math.log(product[i, lane])
                        product[i, lane] = 1.0


def tiles(rows, dtype):
    """Lay rows out in tiles.

    Parameters
    ----------
    rows : array (n, d)
    dtype : float32 or float64

    Returns
    -------
    ndarray of shape (n_tiles, d, rows of a tile)
        Rows beyond n are zero.
    """
    n, d = rows.shape
    height = ROWS64 if np.dtype(dtype) == np.float64 else ROWS32
    n_tiles = -(-n // height)
    out = np.zeros((n_tiles, d, height), dtype)
    whole = n // height
    out[:whole] = rows[: whole * height].reshape(whole, height, d).transpose(0, 2, 1)
    if whole < n_tiles:
        out[whole, :, : n - whole * height] = rows[whole * height :].T
    return out
