"""Counts of a document's topics, however they are stored, for kernels that read all of them at a token.

`stored` is a vector of dense rows, the triple of short documents (`lda.short_rows`), or four arrays and
numbers of packed lists, ``entries, line_start, n_lines, shift`` (`lda.gibbs.sweep_sparse`). It is known at
compile time which of these it is.
"""

from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

from ...indexing import at
from ...options import BORROWS, INNER, KERNEL
from ...vector import LANES, prefetch
from ..short_rows import ask_for_counts, change_counts, row_of_counts

_INLINE: dict[str, Any] = {**KERNEL, **BORROWS, **INNER, "forceinline": True}
_LISTS = 4  # length of the tuple


def _are_lists(stored):
    return isinstance(stored, nb.types.BaseTuple) and len(stored) == _LISTS


def ask_for_row(stored, d, width):
    """Ask the memory for the counts of a document that comes later."""


@overload(ask_for_row, jit_options=_INLINE)
def _ask_for_row(stored, d, width):
    if _are_lists(stored):
        return lambda stored, d, width: prefetch(stored[0], stored[1][d] * LANES)
    return lambda stored, d, width: ask_for_counts(stored, d, width)


def load_row(stored, d, width, expanded, out):
    """Write the counts of document d to `out`; `expanded` (uint8, ``width + 32``) is scratch."""


@overload(load_row, jit_options=_INLINE)
def _load_row(stored, d, width, expanded, out):
    if _are_lists(stored):

        def load_list(stored, d, width, expanded, out):
            entries, line_start, n_lines, shift = stored
            mask, bits = np.uint32((np.int64(1) << shift) - 1), np.uint32(shift)
            start = line_start[d] * LANES
            for k in range(len(out)):
                out[k] = 0
            for j in range(start, start + n_lines[d] * LANES):
                e = entries[j]
                if e & mask:
                    out[at(e >> bits)] = e & mask

        return load_list

    def load(stored, d, width, expanded, out):
        row, first = row_of_counts(stored, d, width, expanded, 0)
        for k in range(len(out)):
            out[k] = row[at(first + k)]

    return load


def move_token(stored, d, width, old, new):
    """Take a token of document d from a topic to another one."""


@overload(move_token, jit_options=_INLINE)
def _move_token(stored, d, width, old, new):
    if not _are_lists(stored):
        return lambda stored, d, width, old, new: change_counts(stored, d, width, at(old), at(new))

    def move(stored, d, width, old, new):
        entries, line_start, n_lines, shift = stored
        mask, bits = np.uint32((np.int64(1) << shift) - 1), np.uint32(shift)
        start, n = line_start[d] * LANES, n_lines[d] * LANES
        slot, empty = np.int64(-1), np.int64(-1)
        for j in range(start, start + n):
            if entries[j] & mask and np.int64(entries[j] >> bits) == old:
                entries[j] -= np.uint32(1)
                break
        for j in range(start, start + n):
            if entries[j] & mask == 0:
                if empty < 0:
                    empty = j
            elif np.int64(entries[j] >> bits) == new:
                slot = j
                break
        if slot < 0:
            slot = empty
            if slot < 0:
                slot = start + n
                n_lines[d] += 1
            entries[slot] = np.uint32(new) << bits
        entries[slot] += np.uint32(1)

    return move
