"""Small matrices whose rows are vectors, see `lanes`: elimination, substitution, products."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .lanes import _FUSED, LANES, _fma, _i64, _lane_sum, _loop, _Rows, _splat, _times


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


@intrinsic
def turn_tile(typingctx, rows, first, n_rows, panel, out, place, vectors):
    """Put rows from `first` times `panel` (d, 16) in the 16 columns of `out` from `place`.

    They are as many as the tuple `n_rows` is long.
    """
    sig = types.void(rows, types.int64, n_rows, panel, out, types.int64, vectors)
    width, height = len(vectors), len(n_rows)

    def codegen(context, b, sig, args):
        left, right = (_Rows(context, b, sig.args[k], args[k], width) for k in (0, 4))
        table = _Rows(context, b, sig.args[3], args[3], 1)
        places = [b.add(args[1], _i64(r)) for r in range(height)]

        def body(k, sums):
            y = table.load_at(k, _i64(0))
            return [
                _fma(b, total, _splat(b, left.number_at(row, k), left.vector), y)
                for row, total in zip(places, sums, strict=True)
            ]

        zero = ir.Constant(left.vector, [0.0] * LANES)
        ends = _loop(b, _i64(0), _i64(width * LANES), [zero] * height, body)
        for row, total in zip(places, ends, strict=True):
            right.store_at(total, row, args[5])
        return context.get_dummy_value()

    return sig, codegen
