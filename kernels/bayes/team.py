"""Several threads in one evaluation: any free thread takes a block of rows, and none waits for a lost core.

The leader numbers its evaluations, and publishes the vectors. All threads take blocks, the leader from the
first on, helpers from the last. The result of a block is left with its number for the leader, which adds
blocks up in their order: the bits do not depend on which thread did which block. A helper whose core is taken
from it would hold up the others. So the leader, having waited for about as long as a block takes, does its
block anew; the helper's result is then late, and is not read.

Control words are int64, each on a cache line of its own: the number of the evaluation (-1 closes the team),
how many vectors, and for each block ``number << 16 | who << 2 | state`` of its latest. A thread takes,
finishes or takes over a block by exchanging that word, and only if it has the expected value.
"""

import numba as nb
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .streams import OPTIONS

LINE = 8  # words
ROUND, N_VECTORS, BLOCKS = 0, 1, 2  # lines of the control words
LEADER = 0  # the thread that draws
_TAKEN, _DONE = 1, 2  # the two low bits of a block's word
_WAIT = 100_000  # looks at a block of another, a few nanoseconds each
_ORDER = "seq_cst"


@intrinsic
def _load(typingctx, address):
    def codegen(context, builder, signature, args):
        return builder.load_atomic(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), _ORDER, 8)

    return types.int64(types.int64), codegen


@intrinsic
def store(typingctx, address, value):
    """Write a word that other threads read."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], builder.inttoptr(args[0], ir.IntType(64).as_pointer()), _ORDER, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def exchange(typingctx, address, expected, value):
    """Whether a word had the expected value, and now has the other, at once for all threads."""

    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.extract_value(builder.cmpxchg(place, args[1], args[2], _ORDER), 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@nb.njit(**OPTIONS)
def _line(control, line):
    return control + 8 * LINE * line


@nb.njit(**OPTIONS)
def current(control):
    """Number of the evaluation, and of its vectors."""
    return _load(_line(control, ROUND)), _load(_line(control, N_VECTORS))


@nb.njit(**OPTIONS)
def publish(control, n):
    """Begin to evaluate n vectors, which everyone can see by now; returns the number."""
    number = _load(_line(control, ROUND)) + 1
    store(_line(control, N_VECTORS), n)
    store(_line(control, ROUND), number)
    return number


@nb.njit(**OPTIONS)
def take(control, block, number, who):
    """Whether the block was free, and is now taken by `who`."""
    place = _line(control, BLOCKS + block)
    seen = _load(place)
    return seen >> 16 < number and exchange(place, seen, number << 16 | who << 2 | _TAKEN)


@nb.njit(**OPTIONS)
def finish(control, block, number, who):
    """Mark a block as done, if `who` still has it."""
    mine = number << 16 | who << 2
    exchange(_line(control, BLOCKS + block), mine | _TAKEN, mine | _DONE)


@nb.njit(**OPTIONS)
def done_by(control, block, number):
    """Return who has done a block; -1 where the leader, having waited, has taken it over and must do it."""
    place, mine = _line(control, BLOCKS + block), number << 16 | LEADER << 2 | _TAKEN
    for _ in range(_WAIT):
        seen = _load(place)
        if seen & 3 == _DONE:
            return (seen >> 2) & 0x3FFF
    return -1 if exchange(place, seen, mine) else (_load(place) >> 2) & 0x3FFF
