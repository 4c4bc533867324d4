"""A sweep of Gibbs sampling on threads of one process, without Python between its tasks.

A sweep of B shards has B^2 tasks. One by one they cost some 30 us of Python each, under the GIL, which many
threads would wait for.
"""

import time

import numpy as np

from ....kernels.lda import gibbs_steps as kernels
from ....scheduler.program import Task
from ....scheduler.threads import run_tasks
from ..blocks.document_rows import DenseDocuments, scratch_of
from ..blocks.word_blocks import FirstCountThenRotate, changes_of

SWEEP = 1  # purpose of a random stream
_TOKENS_AT_ONCE = 2**24  # less than a second, after which Ctrl-C is heard
_LOOK_AGAIN = 5e-5  # seconds until a thread whose task waits asks again


def may_run_steps(program, states):
    """Whether all shards have plain rows of counts in memory, for which the kernel is compiled.

    It takes the addresses of their arrays, and the types of those of the first one.
    """
    schedule = program.schedule
    rotates = type(schedule) is FirstCountThenRotate and schedule.n_blocks == len(states) > 1
    plain = program.seeded is None and program.folder is None and not program.exact
    if not (rotates and plain and all(type(s["documents"]) is DenseDocuments for s in states)):
        return False
    kinds = {tuple((a.dtype, a.flags.c_contiguous) for a in _arrays(state)) for state in states}
    return len(kinds) == 1 and all(contiguous for _, contiguous in next(iter(kinds)))


def all_steps(program, states, blocks, round_, first, steps, n_jobs):
    """Do the tasks of a sweep; return the partial result of each, and the changes of the totals."""
    like, n_topics, words = states[0], program.n_topics, program.words
    own = like["priors"]
    beta, beta_sum = own.beta_of(round_)
    beta, alpha = beta[words.ids].astype(np.float32), like["documents"].drawn_with(own.alpha)
    shards = np.array([_addresses(state) for state in states])
    sizes = np.array([state["documents"].counts.size for state in states])
    places = np.array([(block.rows.ctypes.data, block.tokens.ctypes.data) for block in blocks])
    counts, int32 = like["documents"].counts.reshape(-1), np.zeros(1, np.int32)
    types = (like["starts"], like["docs"], like["topics"], counts, like["offset"], int32)
    totals, changes = like["totals"].copy(), np.zeros((len(states), n_topics), np.int64)
    progress, most_words = np.zeros(4, np.int64), int(np.diff(words.start).max())
    where = (shards, sizes, places, types, words.start, words.n_rows, words.before, totals, changes)
    priors = (alpha, beta, np.float32(beta_sum))
    order = np.array([[block for _, block in step] for step in steps])
    given = (
        _TOKENS_AT_ONCE,
        progress,
        order,
        program.schedule.between,
        *where,
        *priors,
        program.seed,
        SWEEP,
        round_,
    )

    def work():
        sweep, scratch = scratch_of(like["documents"]), kernels.steps_scratch(most_words, n_topics)
        task = kernels.NO_TASK
        try:
            while task != kernels.FINISHED and not progress[kernels.STOPPED]:
                task = kernels.run_tasks(task, *given, sweep, scratch)
                if task >= 0:
                    time.sleep(_LOOK_AGAIN)
        except BaseException:  # the tasks of this thread will not be done: others must not wait for them
            progress[kernels.STOPPED] = 1
            raise

    run_tasks([work] * min(n_jobs, len(states)), n_jobs)
    return _figures(program, states, blocks, round_, first, steps, n_jobs), changes_of(like["totals"], totals)


def _arrays(state):
    return state["starts"], state["docs"], state["topics"], state["documents"].counts, state["offset"]


def _addresses(state):
    return [array.ctypes.data for array in _arrays(state)]


def _figures(program, states, blocks, round_, first, steps, n_jobs):
    """What `figures_after` says of each task; only those of the last steps have something to say."""
    found: list[dict] = [{}] * sum(map(len, steps))
    place, at = program.schedule.place(round_, first), 0
    for number, step in enumerate(steps):
        here = place + number
        ends = program.schedule.is_last_of_shard(here) or program.schedule.may_be_last_of_block(here)
        if ends:
            calls = [
                (program.figures_after, (states[s], Task(round_, first + number, s, b, blocks[b]), here))
                for s, b in step
            ]
            found[at : at + len(step)] = run_tasks(calls, n_jobs)
        at += len(step)
    return found
