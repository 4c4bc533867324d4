"""Vector steps of the topic samplers, as portable LLVM IR.

All vectors have 16 lanes; LLVM splits them to the width of the machine (one AVX-512 register, two of AVX2,
four of NEON). No instruction set is named, so the same code runs everywhere, and lanes are summed in one
order.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTES, _AT_ONCE = 32, 8  # bytes of one vector of AVX2; values between two branches
LANES = 16  # 64 bytes of 32-bit numbers: one vector of AVX-512, two of AVX2

_i8, _i16, _i32, _i64, _f32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_F, _I = ir.VectorType(_f32, LANES), ir.VectorType(_i32, LANES)


def aligned(shape, dtype):
    """Make an array of zeros at a multiple of 64 bytes: vectors of it lie in one cache line each."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(n_bytes + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + n_bytes].view(dtype).reshape(shape)


def _constant(kind, value):
    return ir.Constant(kind, [value] * LANES)


def _splat(b, scalar, kind):
    blank = ir.Constant(kind, ir.Undefined)
    return b.shuffle_vector(b.insert_element(blank, scalar, _i32(0)), blank, _constant(_I, 0))


def _data(context, b, kind, array):
    """Address of an array's first element, and its item size."""
    item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    return b.ptrtoint(context.make_array(kind)(context, b, array).data, _i64), item


def _at(b, base, index, item):
    return b.add(base, b.mul(index, _i64(item)))


def _load(b, address, kind, item=4):
    return b.load(b.inttoptr(address, kind.as_pointer()), align=item)


def _store(b, value, address, item=4):
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=item)


def _prefix_sum(b, v):
    zero = _constant(_F, 0.0)
    for shift in (1, 2, 4, 8):
        # Lane i takes lane i - shift; lanes before it take a zero, which is lane 16 of the pair.
        lanes = [LANES if i < shift else i - shift for i in range(LANES)]
        v = b.fadd(v, b.shuffle_vector(v, zero, ir.Constant(_I, lanes)))
    return v


def _bits(b, mask):
    return b.zext(b.bitcast(mask, _i16), _i32)


def _population(b, mask):
    f = cgutils.get_or_insert_function(b.module, ir.FunctionType(_i32, [_i32]), "llvm.ctpop.i32")
    return b.zext(b.call(f, [_bits(b, mask)]), _i64)


def _trailing_zeros(b, bits):
    kind = ir.FunctionType(_i32, [_i32, ir.IntType(1)])
    f = cgutils.get_or_insert_function(b.module, kind, "llvm.cttz.i32")
    return b.zext(b.call(f, [bits, ir.IntType(1)(0)]), _i64)


def _find(b, scratch, n, sums, u, extra=None):
    """Element on which the weight ``u * (total + extra)`` falls, and the lane: 16 means `extra`.

    `scratch` has the running sums of each lane in `n` rows, of which `sums` are the last; weights come lane
    after lane. The rows of all lanes are compared with what is left of the target where the lane begins, and
    one bit is taken of each comparison. Nothing is looked up in memory by lane, for a value that is written
    by vectors and read by its own is late by tens of cycles; and nothing branches on a draw.
    """
    prefix = _prefix_sum(b, sums)
    total = b.extract_element(prefix, _i32(LANES - 1))
    target = _splat(b, b.fmul(u, total if extra is None else b.fadd(total, extra)), _F)
    lane = _population(b, b.fcmp_ordered("<=", prefix, target))
    inside = b.select(b.icmp_signed("<", lane, _i64(LANES - 1)), lane, _i64(LANES - 1))
    bit, left = b.trunc(inside, _i32), b.fsub(target, b.fsub(prefix, sums))
    before, loop, done = b.block, b.append_basic_block("row"), b.append_basic_block("row_done")
    last = b.sub(n, _i64(1))  # it is where a target is that no row exceeds, by rounding
    b.cbranch(b.icmp_signed(">", last, _i64(0)), loop, done)
    b.position_at_end(loop)
    j, count = b.phi(_i64), b.phi(_i32)
    j.add_incoming(_i64(0), before)
    count.add_incoming(_i32(0), before)
    passed = _bits(b, b.fcmp_ordered("<=", _load(b, b.add(scratch, b.shl(j, _i64(6))), _F), left))
    more = b.add(count, b.and_(b.lshr(passed, bit), _i32(1)))
    after = b.add(j, _i64(1))
    j.add_incoming(after, loop)
    count.add_incoming(more, loop)
    b.cbranch(b.icmp_signed("<", after, last), loop, done)
    b.position_at_end(done)
    row = b.phi(_i32)
    row.add_incoming(_i32(0), before)
    row.add_incoming(more, loop)
    return b.add(b.shl(b.zext(row, _i64), _i64(4)), inside), lane


@intrinsic
def prefetch(typingctx, array, index):
    """Prefetch the cache line of ``array[index]``; reads nothing."""
    sig = types.void(array, types.int64)

    def codegen(context, b, sig, args):
        base, item = _data(context, b, sig.args[0], args[0])
        kind = ir.FunctionType(ir.VoidType(), [_i8.as_pointer(), _i32, _i32, _i32])
        f = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
        address = b.inttoptr(_at(b, base, args[1], item), _i8.as_pointer())
        b.call(f, [address, _i32(0), _i32(3), _i32(1)])
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def count_bytes(typingctx, values, first, n, ones, counts, start, width):
    """Count how often each of 0, 1, ..., width - 1 is among ``255 - values[first:first + n]``, into bytes.

    `values`, `counts` (from `start` on) and `ones` are uint8; n is a multiple of 8, and `width` is rounded up
    to one of 64. `ones` has 512 entries, all 0 but for a 1 at 255: from entry v on it is what a value v adds.
    Sums stay in registers, for a vector that is read soon after single bytes of it were written comes late.
    """
    i64 = types.int64
    sig = types.void(values, i64, i64, ones, counts, i64, i64)

    def codegen(context, b, sig, args):
        values, first, n, ones, counts, start, width = args
        values = b.add(_data(context, b, sig.args[0], values)[0], first)
        ones = _data(context, b, sig.args[3], ones)[0]
        counts = b.add(_data(context, b, sig.args[4], counts)[0], start)
        kind = ir.VectorType(_i8, _BYTES)
        zero = ir.Constant(kind, [0] * _BYTES)
        before, part, inner = b.block, b.append_basic_block("part"), b.append_basic_block("value")
        end, done = b.append_basic_block("part_done"), b.append_basic_block("counted")
        b.branch(part)
        b.position_at_end(part)
        k = b.phi(_i64)
        k.add_incoming(_i64(0), before)
        here = b.add(ones, k)
        b.branch(inner)
        b.position_at_end(inner)
        j, *held = b.phi(_i64), b.phi(kind), b.phi(kind)
        j.add_incoming(_i64(0), part)
        more = list(held)
        for v in held:
            v.add_incoming(zero, part)
        for i in range(_AT_ONCE):
            value = b.add(here, b.zext(_load(b, b.add(values, b.add(j, _i64(i))), _i8, 1), _i64))
            more = [b.add(v, _load(b, b.add(value, _i64(_BYTES * p)), kind, 1)) for p, v in enumerate(more)]
        after = b.add(j, _i64(_AT_ONCE))
        j.add_incoming(after, inner)
        for v, w in zip(held, more, strict=True):
            v.add_incoming(w, inner)
        b.cbranch(b.icmp_signed("<", after, n), inner, end)
        b.position_at_end(end)
        for p, v in enumerate(more):
            _store(b, v, b.add(counts, b.add(k, _i64(_BYTES * p))), 1)
        coming = b.add(k, _i64(2 * _BYTES))
        k.add_incoming(coming, end)
        b.cbranch(b.icmp_signed("<", coming, width), part, done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return sig, codegen


def _splat_byte(b, byte):
    blank = ir.Constant(ir.VectorType(_i8, _BYTES), ir.Undefined)
    lanes = ir.Constant(ir.VectorType(_i32, _BYTES), [0] * _BYTES)
    return b.shuffle_vector(b.insert_element(blank, byte, _i32(0)), blank, lanes)


@intrinsic
def find_byte(typingctx, values, first, value):
    """Place, counted from `first`, of the first byte `value` among the 32 from there on, which have it."""
    sig = types.int64(values, types.int64, types.int64)

    def codegen(context, b, sig, args):
        values, first, value = args
        here = b.add(_data(context, b, sig.args[0], values)[0], first)
        here = _load(b, here, ir.VectorType(_i8, _BYTES), 1)
        equal = b.icmp_unsigned("==", here, _splat_byte(b, b.trunc(value, _i8)))
        return _trailing_zeros(b, b.bitcast(equal, _i32))

    return sig, codegen


@intrinsic
def draw_dense(
    typingctx, counts, start, n_vectors, old, phi, phi_start, alpha, phi_old, u, scratch, scratch_start
):
    """Draw lane ``k`` with weight ``(counts[start + k] + alpha[k]) * phi[phi_start + k]``.

    At ``k == old`` the weight is ``(counts - 1 + alpha) * phi_old``: the token's own count is taken out,
    unless ``old = -1``. `phi` is zero beyond the last topic; `scratch` holds ``16 * n_vectors`` float32 from
    `scratch_start` on. Arrays are best `aligned`; places count on through their dimensions. The 16 lanes keep
    running sums: topics come in the order 0, 16, 32, ..., 1, 17, ... The caller clips the result to the last
    topic, past which rounding can carry it.
    """
    f32, i64 = types.float32, types.int64
    sig = i64(counts, i64, i64, i64, phi, i64, alpha, f32, f32, scratch, i64)

    def codegen(context, b, sig, args):
        counts, start, n_vectors, old, phi, phi_start, alpha, phi_old, u, scratch, scratch_start = args
        row, item = _data(context, b, sig.args[0], counts)
        row = _at(b, row, start, item)
        phi = _at(b, _data(context, b, sig.args[4], phi)[0], phi_start, 4)
        if isinstance(sig.args[6], types.Array):  # else its address
            alpha, _ = _data(context, b, sig.args[6], alpha)
        scratch = _at(b, _data(context, b, sig.args[9], scratch)[0], scratch_start, 4)
        kind = ir.VectorType(context.get_data_type(sig.args[0].dtype), LANES)
        old_v, phi_old_v = _splat(b, b.trunc(old, _i32), _I), _splat(b, phi_old, _F)

        before, loop, done = b.block, b.append_basic_block("sum"), b.append_basic_block("sum_done")
        b.branch(loop)
        b.position_at_end(loop)
        j, acc, lane_topic = b.phi(_i64), b.phi(_F), b.phi(_I)
        j.add_incoming(_i64(0), before)
        acc.add_incoming(_constant(_F, 0.0), before)
        lane_topic.add_incoming(ir.Constant(_I, list(range(LANES))), before)
        offset = b.shl(j, _i64(6))
        c = _load(b, b.add(row, b.mul(j, _i64(LANES * item))), kind, item)
        c = b.sitofp(b.zext(c, _I) if item < 4 else c, _F)
        own = b.icmp_unsigned("==", lane_topic, old_v)
        c = b.select(own, b.fsub(c, _constant(_F, 1.0)), c)
        p = b.select(own, phi_old_v, _load(b, b.add(phi, offset), _F))
        weight = b.fmul(b.fadd(c, _load(b, b.add(alpha, offset), _F)), p)
        acc2 = b.fadd(acc, weight)
        _store(b, acc2, b.add(scratch, offset))
        j2 = b.add(j, _i64(1))
        j.add_incoming(j2, loop)
        acc.add_incoming(acc2, loop)
        lane_topic.add_incoming(b.add(lane_topic, _constant(_I, LANES)), loop)
        b.cbranch(b.icmp_signed("<", j2, n_vectors), loop, done)
        b.position_at_end(done)

        return _find(b, scratch, n_vectors, acc2, u)[0]

    return sig, codegen


@intrinsic
def draw_sparse(typingctx, entries, start, n_lines, shift, old, phi, phi_old, smooth, u, scratch):
    """Draw an entry of a document's list with weight ``count * phi[topic]``, or the smooth part.

    `entries` from `start` on are `n_lines` lines of 16 packed ``topic << shift | count``; an empty slot has
    count zero. `smooth` is the weight of everything outside the list. At the entry of `old` the weight is
    ``(count - 1) * phi_old``. Returns ``slot | slot_of_old << 32``, with slot ``0xffffffff`` for the smooth
    part. `scratch` holds ``16 * n_lines`` float32.
    """
    f32, i64 = types.float32, types.int64
    sig = i64(entries, i64, i64, i64, i64, phi, f32, f32, f32, scratch)

    def codegen(context, b, sig, args):
        entries, start, n_lines, shift, old, phi, phi_old, smooth, u, scratch = args
        base, item = _data(context, b, sig.args[0], entries)
        base = _at(b, base, start, item)
        phi, _ = _data(context, b, sig.args[5], phi)
        scratch, _ = _data(context, b, sig.args[9], scratch)
        shift32 = b.trunc(shift, _i32)
        shift_v, old_v = _splat(b, shift32, _I), _splat(b, b.trunc(old, _i32), _I)
        count_mask = _splat(b, b.sub(b.shl(_i32(1), shift32), _i32(1)), _I)
        phi_old_v = _splat(b, phi_old, _F)

        before, loop, done = b.block, b.append_basic_block("sum"), b.append_basic_block("sum_done")
        b.branch(loop)
        b.position_at_end(loop)
        j, acc, at_old = b.phi(_i64), b.phi(_F), b.phi(_i64)
        j.add_incoming(_i64(0), before)
        acc.add_incoming(_constant(_F, 0.0), before)
        at_old.add_incoming(_i64(0), before)
        offset = b.shl(j, _i64(6))
        e = _load(b, b.add(base, offset), _I)
        topic = b.lshr(e, shift_v)
        c = b.sitofp(b.and_(e, count_mask), _F)
        p = _constant(_F, 0.0)
        for i in range(LANES):  # scalar gathers: measured within a few per cent of vgather
            k = b.zext(b.extract_element(topic, _i32(i)), _i64)
            p = b.insert_element(p, _load(b, _at(b, phi, k, 4), _f32), _i32(i))
        own = b.icmp_unsigned("==", topic, old_v)
        own = b.and_(own, b.icmp_unsigned("!=", b.and_(e, count_mask), _constant(_I, 0)))
        c = b.select(own, b.fsub(c, _constant(_F, 1.0)), c)
        p = b.select(own, phi_old_v, p)
        acc2 = b.fadd(acc, b.fmul(c, p))
        _store(b, acc2, b.add(scratch, offset))
        bits = _bits(b, own)
        here = b.add(b.shl(j, _i64(4)), _trailing_zeros(b, bits))
        at_old2 = b.select(b.icmp_unsigned("!=", bits, _i32(0)), here, at_old)
        j2 = b.add(j, _i64(1))
        j.add_incoming(j2, loop)
        acc.add_incoming(acc2, loop)
        at_old.add_incoming(at_old2, loop)
        b.cbranch(b.icmp_signed("<", j2, n_lines), loop, done)
        b.position_at_end(done)

        slot, lane = _find(b, scratch, n_lines, acc2, u, smooth)
        slot = b.select(b.icmp_signed("<", lane, _i64(LANES)), slot, _i64(0xFFFFFFFF))
        return b.or_(slot, b.shl(at_old2, _i64(32)))

    return sig, codegen


@intrinsic
def find_topic(typingctx, entries, first, end, key, mask):
    """Slot of the topic ``key >> shift`` if it has tokens, else `end`; ``first:end`` are whole lines."""
    u32, u64 = types.uint32, types.uint64
    sig = u64(entries, u64, u64, u32, u32)

    def codegen(context, b, sig, args):
        entries, first, end, key, mask = args
        base, item = _data(context, b, sig.args[0], entries)
        key_v, mask_v = _splat(b, key, _I), _splat(b, mask, _I)
        before, loop, done = b.block, b.append_basic_block("line"), b.append_basic_block("line_done")
        b.cbranch(b.icmp_unsigned("<", first, end), loop, done)

        b.position_at_end(loop)
        line = b.phi(_i64)
        line.add_incoming(first, before)
        # Other topics differ above the count; what is left of the entry of this one is its count.
        count = b.xor(_load(b, _at(b, base, line, item), _I), key_v)
        hits = _bits(b, b.icmp_unsigned("<", b.sub(count, _constant(_I, 1)), mask_v))
        found = b.icmp_unsigned("!=", hits, _i32(0))
        here = b.select(found, b.add(line, _trailing_zeros(b, hits)), end)
        coming = b.add(line, _i64(LANES))
        line.add_incoming(coming, loop)
        b.cbranch(b.or_(found, b.icmp_unsigned(">=", coming, end)), done, loop)

        b.position_at_end(done)
        slot = b.phi(_i64)
        slot.add_incoming(end, before)
        slot.add_incoming(here, loop)
        return slot

    return sig, codegen


@intrinsic
def draw_slot(typingctx, entries, first, target, mask):
    """Slot from `first` on at which the running sum of counts exceeds `target`, below their total."""
    u32, u64 = types.uint32, types.uint64
    sig = u64(entries, u64, u32, u32)

    def codegen(context, b, sig, args):
        entries, first, target, mask = args
        base, item = _data(context, b, sig.args[0], entries)
        mask_v = _splat(b, mask, _I)
        before, loop, done = b.block, b.append_basic_block("line"), b.append_basic_block("line_done")
        b.branch(loop)

        b.position_at_end(loop)
        line, left = b.phi(_i64), b.phi(_i32)
        line.add_incoming(first, before)
        left.add_incoming(target, before)
        sums = b.and_(_load(b, _at(b, base, line, item), _I), mask_v)
        for shift in (1, 2, 4, 8):
            # Lane i takes lane i - shift; lanes before it take a zero, which is lane 16 of the pair.
            lanes = [LANES if i < shift else i - shift for i in range(LANES)]
            sums = b.add(sums, b.shuffle_vector(sums, _constant(_I, 0), ir.Constant(_I, lanes)))
        total = b.extract_element(sums, _i32(LANES - 1))
        line.add_incoming(b.add(line, _i64(LANES)), loop)
        left.add_incoming(b.sub(left, total), loop)
        b.cbranch(b.icmp_unsigned("<", left, total), done, loop)

        b.position_at_end(done)
        return b.add(line, _population(b, b.icmp_unsigned("<=", sums, _splat(b, left, _I))))

    return sig, codegen
