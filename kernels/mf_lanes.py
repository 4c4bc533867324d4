"""Rows of factors in vector registers, for the innermost loop of implicit feedback.

A compiled loop over the factors of a rating reads and writes its sum in memory, once a rating. Here the sum
and the vector that all ratings are multiplied with stay in registers while the ratings go by. Rows hold a
multiple of 16 numbers; how many is known to the compiler by the length of a tuple. As in `vector`, no
instruction set is named, and the lanes are summed in one order everywhere.
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


def _fma(b, total, x, y):
    return b.fadd(total, b.fmul(x, y, flags=_FUSED), flags=_FUSED)


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


class _Rows:
    """Vectors of an array whose rows lie one after another."""

    def __init__(self, context, b, kind, array, n_vectors):
        self._b, self._n = b, n_vectors
        self.number = context.get_data_type(kind.dtype)
        self._item = context.get_abi_sizeof(self.number)
        self.vector = ir.VectorType(self.number, LANES)
        self._base = b.ptrtoint(context.make_array(kind)(context, b, array).data, _i64)

    def _pointers(self, row):
        size = self._n * LANES * self._item
        first = self._b.add(self._base, self._b.mul(row, _i64(size)))
        places = [self._b.add(first, _i64(d * LANES * self._item)) for d in range(self._n)]
        return [self._b.inttoptr(place, self.vector.as_pointer()) for place in places]

    def load(self, row):
        return [self._b.load(pointer, align=self._item) for pointer in self._pointers(row)]

    def store(self, row, values):
        for pointer, value in zip(self._pointers(row), values, strict=True):
            self._b.store(value, pointer, align=self._item)


@intrinsic
def add_products(typingctx, others, indices, weights, first, last, s, out, vectors):
    """Add ``w_e (q . s) q`` of the entries from `first` to `last` to `out`, with q the row ``indices[e]``.

    `others`, `s`, `out` and `weights` are C-contiguous and of one type; `indices` are int32. A row has 16
    numbers for each entry of the tuple `vectors`.
    """
    sig = types.void(others, indices, weights, types.int64, types.int64, s, out, vectors)
    n = len(vectors)

    def codegen(context, b, sig, args):
        rows, s, out = (_Rows(context, b, sig.args[i], args[i], n) for i in (0, 5, 6))
        indices = context.make_array(sig.args[1])(context, b, args[1]).data
        weights = context.make_array(sig.args[2])(context, b, args[2]).data
        first, last = args[3], args[4]
        fixed, begun = s.load(_i64(0)), out.load(_i64(0))

        before, loop, done = b.block, b.append_basic_block("entry"), b.append_basic_block("entries_done")
        b.cbranch(b.icmp_signed("<", first, last), loop, done)
        b.position_at_end(loop)
        e = b.phi(_i64)
        sums = [b.phi(rows.vector) for _ in range(n)]
        e.add_incoming(first, before)
        q = rows.load(b.sext(b.load(b.gep(indices, [e])), _i64))
        product = b.fmul(q[0], fixed[0], flags=_FUSED)
        for x, y in zip(q[1:], fixed[1:], strict=True):
            product = _fma(b, product, x, y)
        factor = b.fmul(_lane_sum(b, product), b.load(b.gep(weights, [e])), flags=_FUSED)
        factor = _splat(b, factor, rows.vector)
        grown = [_fma(b, total, factor, x) for total, x in zip(sums, q, strict=True)]
        coming = b.add(e, _i64(1))
        e.add_incoming(coming, loop)
        for total, start, new in zip(sums, begun, grown, strict=True):
            total.add_incoming(start, before)
            total.add_incoming(new, loop)
        b.cbranch(b.icmp_signed("<", coming, last), loop, done)

        b.position_at_end(done)
        ends = [b.phi(rows.vector) for _ in range(n)]
        for end, start, new in zip(ends, begun, grown, strict=True):
            end.add_incoming(start, before)
            end.add_incoming(new, loop)
        out.store(_i64(0), ends)
        return context.get_dummy_value()

    return sig, codegen
