"""A sweep of Gibbs sampling on threads of one process, without Python between its tasks.

A sweep of B shards has B^2 tasks. One by one they cost some 30 us of Python each, under the GIL, which many
threads would wait for. A worker of a cluster does its tasks of a step in this way.
"""

import threading
import time

import numpy as np

from ....kernels.lda import gibbs_steps as kernels
from ....scheduler.program import Task
from ....scheduler.threads import run_tasks
from ..._streams import Purpose
from ..blocks.document_rows import scratch_of
from ..blocks.word_blocks import FirstCountThenRotate, changes_of

_TOKENS_AT_ONCE = 2**24  # less than a second, after which Ctrl-C is heard
_LOOK_AGAIN = 5e-5  # seconds until a thread whose task waits asks again
_SCRATCH = threading.local()


def may_run_steps(sampler, states):
    """Whether the shards have plain rows of counts in memory, for which the kernel is compiled.

    It takes the addresses of their arrays, and the types of those of the first one.
    """
    schedule, program = sampler.schedule, sampler.program
    rotates = type(schedule) is FirstCountThenRotate and schedule.n_blocks == schedule.n_shards > 1
    plain = program.seeded is None and program.folder is None and not program.exact
    if not (rotates and plain and all(s.documents.takes_steps for s in states)):
        return False
    kinds = {tuple((a.dtype, a.flags.c_contiguous) for a in _arrays(state)) for state in states}
    return len(kinds) == 1 and all(contiguous for _, contiguous in next(iter(kinds)))


def all_steps(sampler, states, blocks, round_, first, steps, n_jobs):
    """Do the tasks of a sweep; return the partial result of each, and the changes of the totals."""
    order = np.array([[block for _, block in step] for step in steps])
    which = (range(len(states)), enumerate(blocks), round_, order, sampler.schedule.between)
    totals, _ = _swept(sampler, states, *which, n_jobs)
    changes = changes_of(states[0].totals, totals)
    return _figures(sampler, states, blocks, round_, first, steps, n_jobs), changes


def tasks_of_a_step(sampler, states, tasks):
    """Do tasks of one step on this thread; return their changes of the totals, in all."""
    order = np.array([[task.blocks for task in tasks]])
    numbers, blocks = [task.shard for task in tasks], [(task.blocks, task.value) for task in tasks]
    never = 2  # steps after which changes are added up
    _, changes = _swept(sampler, states, numbers, blocks, tasks[0].round, order, never, 1)
    return changes_of(0, changes.sum(axis=0))


def _swept(sampler, states, numbers, blocks, round_, order, between, n_jobs):
    """Do tasks, given (number, value) of blocks; return the totals, and changes that are not in them."""
    like, program, words = states[0], sampler.program, sampler.words
    n_topics = program.n_topics
    shards = np.array([_addresses(state) for state in states])
    sizes = np.array([state.documents.counts.size for state in states])
    places = np.zeros((program.n_blocks, 2), np.int64)
    for number, block in blocks:
        places[number] = block.rows.ctypes.data, block.tokens.ctypes.data
    counts, int32 = like.documents.counts.reshape(-1), np.zeros(1, np.int32)
    types = (like.starts, like.docs, like.topics, counts, like.offset, int32)
    totals, changes = like.totals.copy(), np.zeros((len(states), n_topics), np.int64)
    progress = np.zeros(4, np.int64)
    which = (shards, sizes, np.array(numbers), places, types)
    where = (*which, words.start, words.n_rows, words.before, totals, changes)
    priors = (_alpha_of(states), *_beta_of(like, words, round_))
    given = (progress, order, between, *where, *priors, program.seed, Purpose.SWEEP.value, round_)

    def work():
        sweep, scratch = scratch_of(like.documents), _scratch_of(words, n_topics)
        task = kernels.NO_TASK
        try:
            while task != kernels.FINISHED and not progress[kernels.STOPPED]:
                task = kernels.run_tasks(task, _TOKENS_AT_ONCE, *given, sweep, scratch)
                if task >= 0:
                    time.sleep(_LOOK_AGAIN)
        except BaseException:  # the tasks of this thread will not be done: others must not wait for them
            progress[kernels.STOPPED] = 1
            raise

    run_tasks([work] * min(n_jobs, len(states)), n_jobs)
    return totals, changes


def _beta_of(state, words, round_):
    """Beta of all words, and its sum, as the kernel takes them; a thread keeps those of a sweep."""
    own = state.priors
    kept = getattr(_SCRATCH, "beta", None)
    if kept is None or kept[0] is not own or kept[1] is not words or kept[2] != round_:
        beta, beta_sum = own.beta_of(round_)
        kept = own, words, round_, (beta[words.ids].astype(np.float32), np.float32(beta_sum))
        _SCRATCH.beta = kept
    return kept[3]


def _scratch_of(words, n_topics):
    """Scratch of this thread for all blocks."""
    key = int(np.diff(words.start).max()), n_topics
    if getattr(_SCRATCH, "key", None) != key:
        _SCRATCH.key, _SCRATCH.work = key, kernels.steps_scratch(*key)
    return _SCRATCH.work


def _alpha_of(states):
    """The vector of all documents, or where the tables of the shards lie."""
    first = states[0].documents.drawn_with(states[0].priors.alpha)
    if not isinstance(first, tuple):
        return first
    pairs = [state.documents.drawn_with(state.priors.alpha) for state in states]
    places = [(table.ctypes.data, row.ctypes.data, len(table), len(row)) for table, row in pairs]
    return np.array(places), first[0].reshape(-1), first[1], first[0].shape[1]


def _arrays(state):
    return state.starts, state.docs, state.topics, state.documents.counts, state.offset


def _addresses(state):
    return [array.ctypes.data for array in _arrays(state)]


def _figures(sampler, states, blocks, round_, first, steps, n_jobs):
    """What `figures_after` says of each task; only those of the last steps have something to say."""
    found: list[dict] = [{}] * sum(map(len, steps))
    place, at = sampler.schedule.place(round_, first), 0
    for number, step in enumerate(steps):
        here = place + number
        ends = sampler.schedule.is_last_of_shard(here) or sampler.schedule.may_be_last_of_block(here)
        if ends:
            calls = [
                (sampler.figures_after, (states[s], Task(round_, first + number, s, b, blocks[b]), here))
                for s, b in step
            ]
            found[at : at + len(step)] = run_tasks(calls, n_jobs)
        at += len(step)
    return found
