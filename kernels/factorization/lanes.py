"""Rows of factors in vector registers, for the innermost loops of matrix factorization.

Compiled loops of a few dozen factors are unrolled before they become vectors, and read and write their sums
in memory. Here vectors of 16 numbers are written down as such, and sums stay in registers while the ratings
go by.
Rows hold a multiple of 16 numbers; how many is known to the compiler by the length of the tuple `vectors`. As
in `vector`, no instruction set is named, and the lanes are summed in one order everywhere; nothing may be
reassociated, so that the same numbers come from any caller.

All arrays of numbers are C-contiguous and of one type, float32 or float64; indices are int32.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 16
_i32, _i64 = ir.IntType(32), ir.IntType(64)
_FUSED = ("contract",)


def _splat(b, scalar, kind):
    blank = ir.Constant(kind, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(_i32, LANES), [0] * LANES)
    return b.shuffle_vector(b.insert_element(blank, scalar, _i32(0)), blank, zeros)


def _times(b, x, y):
    return b.fmul(x, y, flags=_FUSED)


def _fma(b, total, x, y):
    return b.fadd(total, _times(b, x, y), flags=_FUSED)


def _lane_sum(b, v):
    width = LANES
    while width > 1:
        width //= 2
        halves = [
            b.shuffle_vector(
                v,
                ir.Constant(v.type, ir.Undefined),
                ir.Constant(ir.VectorType(_i32, width), list(range(first, first + width))),
            )
            for first in (0, width)
        ]
        v = b.fadd(*halves, flags=_FUSED)
    return b.extract_element(v, _i32(0))


def _dot(b, xs, ys):
    product = _times(b, xs[0], ys[0])
    for x, y in zip(xs[1:], ys[1:], strict=True):
        product = _fma(b, product, x, y)
    return _lane_sum(b, product)


def _loop(b, first, last, begun, body):
    """Build ``for t in range(first, last)`` with carried values; return their values after it."""
    before, loop, done = b.block, b.append_basic_block("each"), b.append_basic_block("done")
    b.cbranch(b.icmp_signed("<", first, last), loop, done)
    b.position_at_end(loop)
    t = b.phi(_i64)
    t.add_incoming(first, before)
    carried = [b.phi(value.type) for value in begun]
    for phi, value in zip(carried, begun, strict=True):
        phi.add_incoming(value, before)
    grown = body(t, carried)
    coming = b.add(t, _i64(1))
    t.add_incoming(coming, loop)
    for phi, value in zip(carried, grown, strict=True):
        phi.add_incoming(value, loop)
    b.cbranch(b.icmp_signed("<", coming, last), loop, done)
    b.position_at_end(done)
    ends = [b.phi(value.type) for value in begun]
    for end, value, new in zip(ends, begun, grown, strict=True):
        end.add_incoming(value, before)
        end.add_incoming(new, loop)
    return ends


class _Rows:
    """Vectors of an array whose rows lie one after another; an array of one dimension is one row."""

    def __init__(self, context, b, kind, array, n_vectors):
        self._b, self._n = b, n_vectors
        self.number = context.get_data_type(kind.dtype)
        self._item = context.get_abi_sizeof(self.number)
        self.vector = ir.VectorType(self.number, LANES)
        self._base = b.ptrtoint(context.make_array(kind)(context, b, array).data, _i64)

    def _address(self, row, place):
        """Address of a row's number of that place."""
        b = self._b
        first = b.mul(row, _i64(self._n * LANES * self._item))
        return b.add(self._base, b.add(first, b.mul(place, _i64(self._item))))

    def _places(self):
        return [_i64(d * LANES) for d in range(self._n)]

    def load_at(self, row, place):
        pointer = self._b.inttoptr(self._address(row, place), self.vector.as_pointer())
        return self._b.load(pointer, align=self._item)

    def store_at(self, value, row, place):
        pointer = self._b.inttoptr(self._address(row, place), self.vector.as_pointer())
        self._b.store(value, pointer, align=self._item)

    def number_at(self, row, place):
        pointer = self._b.inttoptr(self._address(row, place), self.number.as_pointer())
        return self._b.load(pointer, align=self._item)

    def load(self, row):
        return [self.load_at(row, place) for place in self._places()]

    def store(self, row, values):
        for place, value in zip(self._places(), values, strict=True):
            self.store_at(value, row, place)


def _entries(context, b, kind, array):
    """Return a function that loads number e of a vector, indices widened."""
    data = context.make_array(kind)(context, b, array).data

    def load(e):
        value = b.load(b.gep(data, [e]))
        return b.sext(value, _i64) if isinstance(value.type, ir.IntType) else value

    return load


# Ratings one after another -----------------------------------------------------------------------------


@intrinsic
def row_products(typingctx, P, u, Q, j, vectors):
    """Return ``(p . q, p . p, q . q)`` of the rows u and j."""
    sig = types.UniTuple(P.dtype, 3)(P, types.int64, Q, types.int64, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        p = _Rows(context, b, sig.args[0], args[0], n).load(args[1])
        q = _Rows(context, b, sig.args[2], args[2], n).load(args[3])
        return context.make_tuple(b, sig.return_type, [_dot(b, p, q), _dot(b, p, p), _dot(b, q, q)])

    return sig, codegen


@intrinsic
def row_product(typingctx, P, u, Q, j, vectors):
    """Return ``p . q`` of the rows u and j."""
    sig = P.dtype(P, types.int64, Q, types.int64, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        p = _Rows(context, b, sig.args[0], args[0], n).load(args[1])
        q = _Rows(context, b, sig.args[2], args[2], n).load(args[3])
        return _dot(b, p, q)

    return sig, codegen


@intrinsic
def move_rows(typingctx, P, u, Q, j, p_keep, p_move, q_keep, q_move, vectors):
    """Put ``p_keep p + p_move q`` and ``q_keep q + q_move p`` in place of the rows u and j."""
    kinds = (P.dtype,) * 4
    sig = types.void(P, types.int64, Q, types.int64, *kinds, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        left, right = (_Rows(context, b, sig.args[i], args[i], n) for i in (0, 2))
        p_keep, p_move, q_keep, q_move = (_splat(b, value, left.vector) for value in args[4:8])
        p, q = left.load(args[1]), right.load(args[3])
        pairs = list(zip(p, q, strict=True))
        left.store(args[1], [_fma(b, _times(b, p_keep, x), p_move, y) for x, y in pairs])
        right.store(args[3], [_fma(b, _times(b, q_keep, y), q_move, x) for x, y in pairs])
        return context.get_dummy_value()

    return sig, codegen


# Sums over the ratings of a row: `others` are the factors of the other side, of which rating e has the row
# ``indices[first + e]``; weights are given for the `n` ratings of the row alone.


@intrinsic
def add_products(typingctx, others, indices, first, pulls, share, weights, n, s, out, vectors):
    """Add ``(share pulls[e] + weights[e] q . s) q`` of the n ratings to `out`; return sum pulls[e] q . s."""
    sig = types.float64(
        others, indices, types.int64, pulls, others.dtype, weights, types.int64, s, out, vectors
    )
    width = len(vectors)

    def codegen(context, b, sig, args):
        rows, s, out = (_Rows(context, b, sig.args[i], args[i], width) for i in (0, 7, 8))
        index, pull, weight = (_entries(context, b, sig.args[i], args[i]) for i in (1, 3, 5))
        first, share, fixed = args[2], args[4], s.load(_i64(0))
        double = ir.DoubleType()

        def widened(value):
            return value if value.type == double else b.fpext(value, double)

        def body(e, carried):
            total, *sums = carried
            q, pulled = rows.load(index(b.add(first, e))), pull(e)
            product = _dot(b, q, fixed)
            factor = _splat(b, _fma(b, _times(b, share, pulled), weight(e), product), rows.vector)
            total = _fma(b, total, widened(pulled), widened(product))
            return [total, *(_fma(b, old, factor, x) for old, x in zip(sums, q, strict=True))]

        begun = [ir.Constant(double, 0.0), *out.load(_i64(0))]
        total, *sums = _loop(b, _i64(0), args[6], begun, body)
        out.store(_i64(0), sums)
        return total

    return sig, codegen


@intrinsic
def add_rows(typingctx, others, indices, first, left, right, n, left_out, right_out, vectors):
    """Add ``left[e] q`` of the n ratings to `left_out`, and ``right[e] q`` to `right_out`."""
    sig = types.void(others, indices, types.int64, left, right, types.int64, left_out, right_out, vectors)
    width = len(vectors)

    def codegen(context, b, sig, args):
        rows, *outs = (_Rows(context, b, sig.args[i], args[i], width) for i in (0, 6, 7))
        index, *factors = (_entries(context, b, sig.args[i], args[i]) for i in (1, 3, 4))
        first = args[2]

        def body(e, sums):
            q = rows.load(index(b.add(first, e)))
            splats = [_splat(b, factor(e), rows.vector) for factor in factors for _ in q]
            return [_fma(b, *three) for three in zip(sums, splats, q + q, strict=True)]

        begun = [vector for out in outs for vector in out.load(_i64(0))]
        ends = _loop(b, _i64(0), args[5], begun, body)
        for out, values in zip(outs, (ends[:width], ends[width:]), strict=True):
            out.store(_i64(0), values)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def add_tile(typingctx, A, others, indices, first, weights, begin, end, i, j, vectors):
    """Add ``weights[e] q q'`` of ratings `begin` to `end` to the 16 x 16 tile of A that begins at (i, j)."""
    whole = (types.int64,) * 4
    sig = types.void(A, others, indices, types.int64, weights, *whole, vectors)
    width = len(vectors)

    def codegen(context, b, sig, args):
        table, rows = (_Rows(context, b, sig.args[k], args[k], width) for k in (0, 1))
        index, weight = (_entries(context, b, sig.args[k], args[k]) for k in (2, 4))
        first, begin, end, i, j = args[3], *args[5:9]

        def body(e, sums):
            row = index(b.add(first, e))
            x = _times(b, _splat(b, weight(e), rows.vector), rows.load_at(row, j))
            return [
                _fma(b, total, _splat(b, rows.number_at(row, b.add(i, _i64(k))), rows.vector), x)
                for k, total in enumerate(sums)
            ]

        places = [b.add(i, _i64(k)) for k in range(LANES)]
        ends = _loop(b, begin, end, [table.load_at(place, j) for place in places], body)
        for place, total in zip(places, ends, strict=True):
            table.store_at(total, place, j)
        return context.get_dummy_value()

    return sig, codegen


# Small matrices ----------------------------------------------------------------------------------------


@intrinsic
def add_matrix_product(typingctx, A, s, factor, out, vectors):
    """Add ``factor A s`` to `out`, for a symmetric A: its rows are added, and no lanes summed."""
    sig = types.void(A, s, A.dtype, out, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        table, out = (_Rows(context, b, sig.args[k], args[k], n) for k in (0, 3))
        number = _entries(context, b, sig.args[1], args[1])

        def body(row, sums):
            factor = _splat(b, _times(b, args[2], number(row)), table.vector)
            return [_fma(b, total, factor, x) for total, x in zip(sums, table.load(row), strict=True)]

        out.store(_i64(0), _loop(b, _i64(0), _i64(n * LANES), out.load(_i64(0)), body))
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def subtract_rows(typingctx, A, begin, end, pivot, n_pivots, start, vectors):
    """Eliminate by rows above: ``A[i, start:] -= sum_r A[pivot + r, i] A[pivot + r, start:]``.

    For i from `begin` to `end`, with r below the length of the tuple `n_pivots`; `start` is a multiple of 16.
    """
    whole = (types.int64,) * 3
    sig = types.void(A, *whole, n_pivots, types.int64, vectors)
    n, n_rows = len(vectors), len(n_pivots)

    def codegen(context, b, sig, args):
        table = _Rows(context, b, sig.args[0], args[0], n)
        begin, end, pivot, start = args[1], args[2], args[3], args[5]
        pivots = [b.add(pivot, _i64(r)) for r in range(n_rows)]
        tile_at = b.sdiv(start, _i64(LANES))

        outer_before, outer = b.block, b.append_basic_block("rows")
        latch, done = b.append_basic_block("next_row"), b.append_basic_block("rows_done")
        b.cbranch(b.icmp_signed("<", begin, end), outer, done)
        b.position_at_end(outer)
        i = b.phi(_i64)
        i.add_incoming(begin, outer_before)
        factors = [_splat(b, table.number_at(row, i), table.vector) for row in pivots]

        def body(tile, _):
            place = b.mul(tile, _i64(LANES))
            value = table.load_at(i, place)
            for row, factor in zip(pivots, factors, strict=True):
                value = b.fsub(value, _times(b, factor, table.load_at(row, place)), flags=_FUSED)
            table.store_at(value, i, place)
            return []

        _loop(b, tile_at, _i64(n), [], body)
        b.branch(latch)
        b.position_at_end(latch)
        coming = b.add(i, _i64(1))
        i.add_incoming(coming, latch)
        b.cbranch(b.icmp_signed("<", coming, end), outer, done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def add_row(typingctx, x, A, row, factor, start, vectors):
    """Add ``factor A[row, start:]`` to ``x[start:]``; `start` is a multiple of 16."""
    sig = types.void(x, A, types.int64, A.dtype, types.int64, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        vector, table = (_Rows(context, b, sig.args[k], args[k], n) for k in (0, 1))
        factor = _splat(b, args[3], table.vector)

        def body(tile, _):
            place = b.mul(tile, _i64(LANES))
            grown = _fma(b, vector.load_at(_i64(0), place), factor, table.load_at(args[2], place))
            vector.store_at(grown, _i64(0), place)
            return []

        _loop(b, b.sdiv(args[4], _i64(LANES)), _i64(n), [], body)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def scale_row(typingctx, A, row, factor, start, vectors):
    """Multiply ``A[row, start:]`` by a factor; `start` is a multiple of 16."""
    sig = types.void(A, types.int64, A.dtype, types.int64, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        table = _Rows(context, b, sig.args[0], args[0], n)
        factor = _splat(b, args[2], table.vector)

        def body(tile, _):
            place = b.mul(tile, _i64(LANES))
            table.store_at(_times(b, factor, table.load_at(args[1], place)), args[1], place)
            return []

        _loop(b, b.sdiv(args[3], _i64(LANES)), _i64(n), [], body)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def tail_product(typingctx, A, row, x, start, vectors):
    """Return ``A[row, start:] . x[start:]``; `start` is a multiple of 16."""
    sig = A.dtype(A, types.int64, x, types.int64, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        table, vector = (_Rows(context, b, sig.args[k], args[k], n) for k in (0, 2))
        zero = ir.Constant(table.vector, [0.0] * LANES)

        def body(tile, sums):
            place = b.mul(tile, _i64(LANES))
            return [_fma(b, sums[0], table.load_at(args[1], place), vector.load_at(_i64(0), place))]

        [total] = _loop(b, b.sdiv(args[3], _i64(LANES)), _i64(n), [zero], body)
        return _lane_sum(b, total)

    return sig, codegen
