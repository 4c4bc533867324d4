"""Topics of the tokens of short documents, in place of a row of counts a document.

A document of up to 8 tokens has 8 bytes, one of up to 16 tokens 16, and one of up to 32 tokens 32: for each
token ``255 - topic``, in any order, then zeros. Documents come in the order of their lengths, so where one
begins follows from its number, and from how many have up to 8 and up to 16 tokens::

    (slots, n_eight, n_sixteen)

The sampler takes as `doc_counts` such a triple or a vector of rows. It is known at compile time which of the
two it is. A triple becomes a row of counts before a token is drawn, so that the draws are, bit for bit, those
of rows of counts.
"""

from typing import Any

import numba as nb
import numpy as np
from numba.extending import overload

from ..indexing import at
from ..options import BORROWS, INNER, KERNEL
from ..vector import count_bytes, find_byte, prefetch

MOST_TOKENS, MOST_TOPICS = 32, 255  # topic 255 would look like no token
PAST_END = 32  # bytes after the last document, which `find_byte` reads
_NO_TOKEN = 255  # less the topic is what a byte holds, so that zero is a free place
_ONE = np.zeros(512, np.uint8)  # where to begin in it says of which of 256 values it is one
_ONE[_NO_TOKEN] = 1

_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS}
_INLINE: dict[str, Any] = {**_OPTIONS, **INNER, "forceinline": True}


@nb.njit(**_INLINE)
def _start_of(short, d):
    return 8 * d + 8 * max(d - short[1], 0) + 16 * max(d - short[2], 0)


@nb.njit(**_INLINE)
def _slots_of(short, d):
    return 8 if d < short[1] else 16 if d < short[2] else 32


def ask_for_counts(doc_counts, d, width):
    """Ask the memory for the counts of a document that comes later."""


@overload(ask_for_counts, jit_options=_INLINE)
def _ask_for_counts(doc_counts, d, width):
    if not isinstance(doc_counts, nb.types.Array):
        return lambda doc_counts, d, width: prefetch(doc_counts[0], _start_of(doc_counts, np.int64(d)))

    def ask(doc_counts, d, width):
        line, start = 0, np.int64(d) * width
        while line < width:
            prefetch(doc_counts, start + line)
            line += 64 // doc_counts.itemsize

    return ask


def row_of_counts(doc_counts, d, width, expanded, m):
    """Return an array and where in it the counts of document d begin.

    Those of a triple go to row m of `expanded`, uint8, of rows of ``width + 32``.
    """


@overload(row_of_counts, jit_options=_INLINE)
def _row_of_counts(doc_counts, d, width, expanded, m):
    if isinstance(doc_counts, nb.types.Array):
        return lambda doc_counts, d, width, expanded, m: (doc_counts, np.int64(d) * width)

    def expand(doc_counts, d, width, expanded, m):
        document, here = np.int64(d), np.int64(m) * (width + 32)
        n = np.int64(_slots_of(doc_counts, document))
        count_bytes(doc_counts[0], _start_of(doc_counts, document), n, _ONE, expanded, here, width)
        return expanded, here

    return expand


def change_counts(doc_counts, d, width, old, new):
    """Take a token of document d from a topic to another."""


@overload(change_counts, jit_options=_INLINE)
def _change_counts(doc_counts, d, width, old, new):
    if isinstance(doc_counts, nb.types.Array):

        def change(doc_counts, d, width, old, new):
            row = at(d) * at(width)
            doc_counts[row + old] -= 1
            doc_counts[row + new] += 1

        return change

    def change_slot(doc_counts, d, width, old, new):
        first = _start_of(doc_counts, np.int64(d))
        there = first + find_byte(doc_counts[0], first, _NO_TOKEN - np.int64(old))
        doc_counts[0][at(there)] = _NO_TOKEN - new

    return change_slot


@nb.njit(**_OPTIONS)
def fill_slots(token_doc, topics, short, filled):
    """List the topics of the tokens anew; `filled` (by document) is scratch."""
    slots = short[0]
    slots[:] = 0
    filled[:] = 0
    for i in range(len(topics)):
        d = np.int64(token_doc[i])
        slots[_start_of(short, d) + filled[d]] = _NO_TOKEN - topics[i]
        filled[d] += 1


@nb.njit(**_OPTIONS)
def add_slots(first, last, short, weight, counts):
    """Add `weight` for each token of documents ``first:last`` to its document and topic in `counts`."""
    slots = short[0]
    for d in range(first, last):
        start = _start_of(short, d)
        for j in range(start, start + _slots_of(short, d)):
            if slots[j]:
                counts[d - first, _NO_TOKEN - slots[j]] += weight
