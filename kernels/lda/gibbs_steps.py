"""Steps of a rotation of Gibbs sampling without Python in between: threads take the next task by themselves.

A task draws one shard's tokens of one block's words. Tasks are numbered step by step, and threads take them
in this order; one of a later step waits until all of the step before are done. After some steps the changes
of the topic totals are added up. A thread with a task works on it or waits for tasks that others have, so
that any number of threads comes to an end, and with the same result.

Shards and blocks are given by the addresses of their arrays::

    shards[s] = (starts, docs, topics, counts, offset)        blocks[b] = (rows, tokens)

A thread returns to its caller with a task that waits, and after some time of work: the caller calls again.
"""

from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from ..options import BORROWS, INNER, KERNEL
from .gibbs import AHEAD, sweep_dense_within

TAKEN, DONE, READY, STOPPED = range(4)  # places in `state`: tasks taken, tasks done, steps done, 1 to give up
NO_TASK, FINISHED = -1, -2
_PATIENCE = 2_000  # looks at what is awaited, some 10 us
_OPTIONS: dict[str, Any] = {**KERNEL, **BORROWS}


def _place(context, b, kind, array, index):
    data = context.make_array(kind)(context, b, array).data
    return b.gep(data, [index])


@intrinsic
def _add(typingctx, array, index, value):
    """Add to an int64 that other threads change; return what it was."""
    sig = types.int64(array, types.int64, types.int64)

    def codegen(context, b, sig, args):
        return b.atomic_rmw("add", _place(context, b, sig.args[0], *args[:2]), args[2], "seq_cst")

    return sig, codegen


@intrinsic
def _look(typingctx, array, index):
    """Read an int64 that other threads change."""
    sig = types.int64(array, types.int64)

    def codegen(context, b, sig, args):
        return b.load_atomic(_place(context, b, sig.args[0], *args), "seq_cst", 8)

    return sig, codegen


@intrinsic
def _array_at(typingctx, like, address, n):
    """A vector of n elements of `like`'s type that lie at an address."""
    kind = types.Array(like.dtype, 1, "C")
    sig = kind(like, types.int64, types.int64)

    def codegen(context, b, sig, args):
        item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        array = context.make_array(kind)(context, b)
        data = b.inttoptr(args[1], context.get_data_type(kind.dtype).as_pointer())
        size = ir.Constant(ir.IntType(64), item)
        context.populate_array(
            array,
            data=data,
            shape=cgutils.pack_array(b, [args[2]]),
            strides=cgutils.pack_array(b, [size]),
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()

    return sig, codegen


def priors_of_shard(alpha, s):
    """The prior of a shard's documents as the sweep takes it.

    `alpha` is a vector for all of them, or says where tables lie: for each shard the addresses of its table
    and of the documents' rows, and how many there are of both; arrays of their types; the tables' width.
    """


@overload(priors_of_shard, jit_options={**_OPTIONS, **INNER})
def _priors_of_shard(alpha, s):
    if isinstance(alpha, types.Array):
        return lambda alpha, s: alpha

    def pair(alpha, s):
        places, like_table, like_row, width = alpha
        table = _array_at(like_table, places[s, 0], places[s, 2] * width).reshape(places[s, 2], width)
        return table, _array_at(like_row, places[s, 1], places[s, 3])

    return pair


def steps_scratch(most_words, n_topics):
    """Scratch of a thread for blocks of at most so many words."""
    words = np.arange(most_words, dtype=np.int32)
    bounds, row_of_word = np.empty((3, most_words + 1), np.int64), np.empty(most_words, np.int32)
    return words, bounds, row_of_word, np.empty(n_topics, np.int64)


@nb.njit(**_OPTIONS)
def run_tasks(
    held, most_tokens, state, order, between, shards, sizes, numbers, blocks, like, word_start, n_rows,
    before, totals, changes, alpha, beta, beta_sum, seed, purpose, round_, work, scratch,
):  # fmt: skip
    """Do task `held`, unless it is `NO_TASK`, and those that come next.

    Returns a task that waits, `NO_TASK` after some `most_tokens`, or `FINISHED`.

    `like` are arrays of the types of starts, docs, topics, counts, offsets and rows. Block b has the words
    ``word_start[b]:word_start[b + 1]`` (`beta` and what a shard has are in that order), of which the first
    ``n_rows[b]`` keep a row; `before` are the tokens that blocks have of words before each. ``sizes[s]`` is
    the length of a shard's rows, ``numbers[s]`` its number among all, which names its random streams.
    `totals` are those of the last step, ``changes[s]`` a shard's since then: they are added up after every
    `between` steps. Shard s meets block ``order[step, s]``; other blocks need no address.
    `alpha` is what `priors_of_shard` takes; other parameters are those of `gibbs.sweep_dense`.
    """
    like_starts, like_docs, like_topics, like_counts, like_offset, like_rows = like
    words, bounds, row_of_word, own_totals = scratch
    n_shards, n_blocks, n_topics = len(shards), len(blocks), len(totals)
    begin, end, their = bounds[0], bounds[1], bounds[2]
    task, n_tokens = held, 0
    while n_tokens < most_tokens:
        if task < 0:
            task = _add(state, TAKEN, 1)
        if task >= len(order) * n_shards:
            return np.int64(FINISHED)
        step, s = task // n_shards, task % n_shards
        looks = 0
        while _look(state, READY) < step:
            looks += 1
            if looks > _PATIENCE or _look(state, STOPPED):
                return task
        block = order[step, s]
        here, n = word_start[block], word_start[block + 1] - word_start[block]
        starts = _array_at(like_starts, shards[s, 0], word_start[n_blocks] + 1)
        offset = _array_at(like_offset, shards[s, 4], word_start[n_blocks])
        first, last = np.int64(starts[here]), np.int64(starts[here + n])
        for j in range(n):
            begin[j], end[j] = starts[here + j] - first, starts[here + j + 1] - first
            their[j] = before[here + j] - before[here]
            row_of_word[j] = j if j < n_rows[block] else -1
        their[n] = before[here + n] - before[here]
        item = np.int64(like_topics.itemsize)
        own = _array_at(like_topics, shards[s, 2] + first * item, last - first)
        docs = _array_at(like_docs, shards[s, 1] + first * 4, last - first + AHEAD)
        counts = _array_at(like_counts, shards[s, 3], sizes[s])
        tokens = _array_at(like_topics, blocks[block, 1], their[n])
        row_counts = _array_at(like_rows, blocks[block, 0], n_rows[block] * n_topics)
        rows = row_counts.reshape(n_rows[block], n_topics)
        for k in range(n_topics):
            own_totals[k] = totals[k]
        sweep_dense_within(
            words[:n], begin[:n], end[:n], their[: n + 1], docs, own, tokens, counts, row_of_word[:n], rows,
            own_totals, priors_of_shard(alpha, s), beta[here : here + n], beta_sum, 0, seed, purpose, round_,
            numbers[s] * n_blocks + block, None, work,
        )  # fmt: skip
        for j in range(n_rows[block], n):
            to = their[j] + offset[here + j]
            for i in range(begin[j], end[j]):
                tokens[to] = own[i]
                to += 1
        for k in range(n_topics):
            changes[s, k] += own_totals[k] - totals[k]
        if _add(state, DONE, 1) + 1 == (step + 1) * n_shards:
            if (step + 1) % between == 0:
                for i in range(n_shards):
                    for k in range(n_topics):
                        totals[k] += changes[i, k]
                        changes[i, k] = 0
            _add(state, READY, 1)
        n_tokens += last - first
        task = np.int64(NO_TASK)
    return task
