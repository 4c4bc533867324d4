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

LANES = 16  # 64 bytes of float32: one vector of AVX-512, two of AVX2
_i32, _i64 = ir.IntType(32), ir.IntType(64)
_FUSED = ("contract",)
_AT_ONCE = 4  # ratings


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


def _lane_sums(b, vectors):
    """Sums of the lanes of one vector, or of each of four, whose halves are folded together."""
    if len(vectors) == 1:
        return [_lane_sum(b, vectors[0])]

    def folded(x, y, run):
        """Put x and y side by side, runs of twice `run` lanes folded to `run`."""
        starts = range(0, x.type.count * (1 if x is y else 2), 2 * run)
        halves = [[k + shift + i for k in starts for i in range(run)] for shift in (0, run)]
        picks = [ir.Constant(ir.VectorType(_i32, len(half)), half) for half in halves]
        return b.fadd(*(b.shuffle_vector(x, y, pick) for pick in picks), flags=_FUSED)

    one, two = (folded(*vectors[k : k + 2], LANES // 2) for k in (0, 2))
    total, run = folded(one, two, LANES // 4), LANES // 4
    while run > 1:
        run //= 2
        total = folded(total, total, run)
    return [b.extract_element(total, _i32(k)) for k in range(4)]


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

    @property
    def places(self):
        """Where the vectors of a row begin."""
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
        return [self.load_at(row, place) for place in self.places]

    def store(self, row, values):
        for place, value in zip(self.places, values, strict=True):
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


def _by_products(b, rows, index, n, s, use, begun):
    """Build a loop over the n ratings, one at least, with their products q . s.

    ``use(numbers, places, products, carried)`` gets the numbers e of some ratings, the places of their rows,
    the products, and what it returned before, first `begun`. Ratings go by four at a time, so that their
    products share the sums over lanes. The products of the next four begin before these are used, since the
    use waits for the sums. Returns what is carried at the end.
    """

    def numbered(t):
        return [b.add(b.mul(t, _i64(_AT_ONCE)), _i64(k)) for k in range(_AT_ONCE)]

    def products(places):
        totals = [None] * len(places)
        for place in s.places:
            x = s.load_at(_i64(0), place)
            for r, row in enumerate(places):
                q = rows.load_at(row, place)
                totals[r] = _times(b, q, x) if totals[r] is None else _fma(b, totals[r], q, x)
        return totals

    def products_of(t, otherwise):  # after the last rating: of `otherwise`, and not used
        numbers = [b.select(b.icmp_signed("<", e, n), e, otherwise) for e in numbered(t)]
        return products([index(e) for e in numbers])

    def four(t, carried):
        numbers, sums = numbered(t), _lane_sums(b, carried[:_AT_ONCE])
        coming = products_of(b.add(t, _i64(1)), numbers[0])
        return coming + use(numbers, [index(e) for e in numbers], sums, carried[_AT_ONCE:])

    def one(e, carried):
        return use([e], [index(e)], _lane_sums(b, products([index(e)])), carried)

    whole = b.sdiv(n, _i64(_AT_ONCE))
    carried = _loop(b, _i64(0), whole, products_of(_i64(0), _i64(0)) + begun, four)[_AT_ONCE:]
    return _loop(b, b.mul(whole, _i64(_AT_ONCE)), n, carried, one)


def _add_weighed(b, rows, index, n, s, out, weigh, begun):
    """Build ``out += sum_e f_e q_e``: ``weigh(numbers, products, carried)`` returns the f of ratings."""

    def add(numbers, places, products, carried):
        factors, carried = weigh(numbers, products, carried)
        splats = [_splat(b, factor, rows.vector) for factor in factors]
        for place in s.places:
            total = out.load_at(_i64(0), place)
            for row, splat in zip(places, splats, strict=True):
                total = _fma(b, total, splat, rows.load_at(row, place))
            out.store_at(total, _i64(0), place)
        return carried

    return _by_products(b, rows, index, n, s, add, begun)


def _widened(b, value):
    double = ir.DoubleType()
    return value if value.type == double else b.fpext(value, double)


@intrinsic
def add_slopes(typingctx, others, indices, first, pulls, weights, n, s, out, vectors):
    """Add ``(pulls[e] - weights[e] q . s) q`` of the n ratings to `out`; return sum pulls[e] q . s."""
    sig = types.float64(others, indices, types.int64, pulls, weights, types.int64, s, out, vectors)
    width = len(vectors)

    def codegen(context, b, sig, args):
        rows, s, out = (_Rows(context, b, sig.args[i], args[i], width) for i in (0, 6, 7))
        index, pull, weight = (_entries(context, b, sig.args[i], args[i]) for i in (1, 3, 4))

        def weigh(numbers, products, carried):
            [total], factors = carried, []
            for e, product in zip(numbers, products, strict=True):
                pulled = pull(e)
                factors.append(b.fsub(pulled, _times(b, weight(e), product), flags=_FUSED))
                total = _fma(b, total, _widened(b, pulled), _widened(b, product))
            return factors, [total]

        begun = [ir.Constant(ir.DoubleType(), 0.0)]
        return _add_weighed(b, rows, lambda e: index(b.add(args[2], e)), args[5], s, out, weigh, begun)[0]

    return sig, codegen


@intrinsic
def add_image(typingctx, others, indices, first, weights, n, s, out, vectors):
    """Add ``weights[e] (q . s) q`` of the n ratings to `out`."""
    sig = types.void(others, indices, types.int64, weights, types.int64, s, out, vectors)
    width = len(vectors)

    def codegen(context, b, sig, args):
        rows, s, out = (_Rows(context, b, sig.args[i], args[i], width) for i in (0, 5, 6))
        index, weight = (_entries(context, b, sig.args[i], args[i]) for i in (1, 3))

        def weigh(numbers, products, carried):
            return [_times(b, weight(e), x) for e, x in zip(numbers, products, strict=True)], carried

        _add_weighed(b, rows, lambda e: index(b.add(args[2], e)), args[4], s, out, weigh, [])
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def sum_squares(typingctx, others, indices, first, weights, n, s, vectors):
    """Return ``sum weights[e] (q . s)^2`` of the n ratings."""
    sig = types.float64(others, indices, types.int64, weights, types.int64, s, vectors)
    width = len(vectors)

    def codegen(context, b, sig, args):
        rows, s = (_Rows(context, b, sig.args[i], args[i], width) for i in (0, 5))
        index, weight = (_entries(context, b, sig.args[i], args[i]) for i in (1, 3))

        def use(numbers, places, products, carried):
            [total] = carried
            for e, product in zip(numbers, products, strict=True):
                total = _fma(b, total, _widened(b, _times(b, weight(e), product)), _widened(b, product))
            return [total]

        begun = [ir.Constant(ir.DoubleType(), 0.0)]
        return _by_products(b, rows, lambda e: index(b.add(args[2], e)), args[4], s, use, begun)[0]

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
