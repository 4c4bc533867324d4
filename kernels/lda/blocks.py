"""Blocks of words that travel between shards of documents: first topics, layout and packing.

A shard keeps the topics of its own tokens, in the order of blocks, words and documents. A block carries what
a shard must know of the others' tokens: rows of counts of its frequent words, and of each other word the
topics of all tokens, those of one shard behind those of the one before. A packed row is its number of topics
and then, for each, the distance from the last topic and the count, as numbers of seven bits a byte (LEB128).
"""

from typing import Any

import numba as nb
import numpy as np

from ..indexing import at, span
from ..options import BORROWS, INNER, KERNEL
from ..random import philox4x32
from .gibbs import AHEAD, DRAWS

_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS}
_INLINE: dict[str, Any] = {**_OPTIONS, **INNER, "forceinline": True}
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_UNIT = np.float32(2.0**-24)


@nb.njit(**_INLINE)
def _uniform(lane, block, index, purpose, seed):
    """One of the four draws of a block of `fill_uniform`."""
    drawn = philox4x32(
        np.uint32(block), np.uint32(index), np.uint32(0), np.uint32(purpose),
        np.uint32(seed & _LOW), np.uint32(seed >> _HALF),
    )  # fmt: skip
    bits = drawn[0]
    if lane == 1:
        bits = drawn[1]
    elif lane == 2:
        bits = drawn[2]
    elif lane == 3:
        bits = drawn[3]
    return np.float32(bits >> np.uint32(8)) * _UNIT


@nb.njit(**_OPTIONS)
def assign_first(starts, firsts, token_doc, topics, n_topics, choices, spread, seed, purpose):
    """As `host.assign_first`, for tokens that are a part of all.

    The tokens ``starts[j]:starts[j + 1]`` are number ``firsts[j]`` and the following of all.
    """
    few, quarter = choices.shape[1], DRAWS // 4
    for j in range(len(firsts)):
        for i in span(starts, j):
            number = firsts[j] + (np.int64(i) - starts[j])
            place = number % DRAWS
            begin = number - place
            block = begin // 4 + place % quarter
            u, d = _uniform(place // quarter, block, begin >> 34, purpose, seed), at(token_doc[i])
            if not spread[d]:
                u = choices[d, min(np.int64(u * few), few - 1)]
            topics[i] = min(np.int64(u * n_topics), n_topics - 1)


@nb.njit(**_OPTIONS)
def assign_seeded(starts, firsts, topics, seeds, seed, purpose):
    """Give tokens of words with weights a topic in proportion to them; tokens as in `assign_first`."""
    indptr, their_topics, weights, _ = seeds
    quarter = DRAWS // 4
    for j in range(len(firsts)):
        total = 0.0
        for m in span(indptr, j):
            total += weights[m]
        if total <= 0:
            continue
        for i in span(starts, j):
            number = firsts[j] + (np.int64(i) - starts[j])
            place = number % DRAWS
            begin = number - place
            block = begin // 4 + place % quarter
            left = _uniform(place // quarter, block, begin >> 34, purpose, seed) * total
            for m in span(indptr, j):
                if weights[m] > 0:
                    topics[i] = their_topics[m]
                left -= weights[m]
                if left < 0:
                    break


@nb.njit(**_OPTIONS)
def lay_documents(begin, end, own, token_doc):
    """Put the documents of own tokens in their places among all tokens of a block.

    Those of word j go to ``begin[j]:end[j]``. The entries behind, which are asked for in advance, become 0.
    """
    i, stop = 0, 0
    for j in range(len(begin)):
        if begin[j] == end[j]:
            continue
        for to in range(stop, min(stop + AHEAD, begin[j])):
            token_doc[to] = 0
        for to in range(begin[j], end[j]):
            token_doc[to] = own[i]
            i += 1
        stop = end[j]
    for to in range(stop, min(stop + AHEAD, len(token_doc))):
        token_doc[to] = 0


@nb.njit(**_OPTIONS)
def take_own(begin, end, topics, own):
    """Copy the topics ``begin[j]:end[j]`` of each word, one behind the other."""
    i = 0
    for j in range(len(begin)):
        for source in range(begin[j], end[j]):
            own[i] = topics[source]
            i += 1


@nb.njit(**_OPTIONS)
def put_own(begin, end, own, topics):
    """Undo `take_own`."""
    i = 0
    for j in range(len(begin)):
        for to in range(begin[j], end[j]):
            topics[to] = own[i]
            i += 1


@nb.njit(**_OPTIONS)
def add_rows(starts, topics, rows):
    """Count the tokens ``starts[j]:starts[j + 1]`` in row j."""
    for j in range(len(rows)):
        for i in span(starts, j):
            rows[j, at(topics[i])] += 1


# Packing ----------------------------------------------------------------------------------------------


@nb.njit(**_INLINE)
def _write(number, out, to):
    while number >= 128:
        out[to] = np.uint8(number & 127 | 128)
        number >>= 7
        to += 1
    out[to] = np.uint8(number)
    return to + 1


@nb.njit(**_INLINE)
def _read(packed, start, stop):
    """Return a number and where the next one begins, or -1 twice where the bytes are none."""
    number, bits = np.int64(0), np.int64(0)
    while start < stop and bits < 63:
        byte = np.int64(packed[start])
        start += 1
        number |= (byte & 127) << bits
        if byte < 128:
            return number, start
        bits += 7
    return np.int64(-1), np.int64(-1)


@nb.njit(**_OPTIONS)
def pack_rows(rows, out):
    """Write rows of counts into `out`; return how many bytes they take, at most those of `packed_size`."""
    to = 0
    for j in range(len(rows)):
        held, last = 0, 0
        for k in range(rows.shape[1]):
            held += rows[j, k] != 0
        to = _write(held, out, to)
        for k in range(rows.shape[1]):
            if rows[j, k]:
                to = _write(np.int64(rows[j, k]), out, _write(k - last, out, to))
                last = k
    return to


@nb.njit(**_OPTIONS)
def pack_numbers(numbers, out):
    """Write numbers from 0 on, of ten bytes at most each; return how many bytes they take."""
    to = 0
    for number in numbers:
        to = _write(np.int64(number), out, to)
    return to


@nb.njit(**_OPTIONS)
def unpack_numbers(packed, start, numbers):
    """Fill `numbers` from the bytes from `start` on; return where they end, -1 where the bytes are none."""
    for i in range(len(numbers)):
        numbers[i], start = _read(packed, start, len(packed))
        if start < 0:
            break
    return start


@nb.njit(**_OPTIONS)
def pack_bits(values, n_bits, out):
    """Write the lowest bits, at most 32, of each value one after the other, and fill the last byte."""
    held, n_held, to = np.uint64(0), np.uint64(0), 0
    for value in values:
        held |= np.uint64(value) << n_held
        n_held += np.uint64(n_bits)
        while n_held >= np.uint64(8):
            out[to] = np.uint8(held & np.uint64(255))
            held >>= np.uint64(8)
            n_held -= np.uint64(8)
            to += 1
    if n_held:
        out[to] = np.uint8(held)


@nb.njit(**_OPTIONS)
def unpack_bits(packed, n_bits, values):
    """Undo `pack_bits`; there are bytes enough."""
    held, n_held, start = np.uint64(0), np.uint64(0), 0
    mask = (np.uint64(1) << np.uint64(n_bits)) - np.uint64(1)
    for i in range(len(values)):
        while n_held < np.uint64(n_bits):
            held |= np.uint64(packed[start]) << n_held
            n_held += np.uint64(8)
            start += 1
        values[i] = held & mask
        held >>= np.uint64(n_bits)
        n_held -= np.uint64(n_bits)


def packed_size(n_rows, n_topics):
    """Bytes that rows of int32 take at most: a topic up to 2**28 takes 4, as does their number, a count 5."""
    return n_rows * (4 + 9 * n_topics)


@nb.njit(**_OPTIONS)
def unpack_rows(packed, rows, most):
    """Fill zero rows; False if the bytes are not just such rows, whose sums are at most `most`."""
    start, stop = 0, len(packed)
    for j in range(len(rows)):
        held, start = _read(packed, start, stop)
        if held < 0 or held > rows.shape[1]:
            return False
        k, total = 0, 0
        for _ in range(held):
            step, start = _read(packed, start, stop)
            if step < 0:
                return False
            count, start = _read(packed, start, stop)
            k += step
            if count < 1 or k >= rows.shape[1]:
                return False
            total += count
            if total > most[j]:
                return False
            rows[j, k] = count
    return start == stop
