"""Whether a corpus fits into the memory of a cluster's workers, known before tokens are laid out."""

import math
from typing import Any

import dask
import numpy as np
from scipy import sparse

from ....errors import DataError
from ....scheduler.engine import run
from ....scheduler.place import open_place
from ....scheduler.stores.saved import MOST_TRIED
from ....scheduler.threads import own_threads
from .document_rows import row_width
from .out_of_core import bytes_to_read
from .sizes import bytes_of_lists, bytes_of_state, bytes_of_topic

_KERNELS = 350e6  # bytes that a worker has of imports and compiled loops, or less
_ADVISED = 1.1  # times what is counted, in advice
_MOST_TIMES = 16  # as many workers are advised at most
_LAYOUT = 30  # bytes a token of a shard while it is laid out


def check_worker_memory(program, engine):
    """Raise a DataError if a fit of a program does not fit into the workers' memory.

    Counted are tokens, topics and blocks, and the most of what comes and goes: reading and laying out a shard
    on each thread, or the snapshots that workers keep, the new one beside the last. Workers that may be short
    of memory import and compile what the fit needs before it is seen what they have left; of others only the
    limits are asked for. A worker without a nanny, which would end it near its limit, is not refused.
    """
    if own_threads() is not None:
        return
    place = open_place(engine)
    needed_by = _needs(program, workers := place.memory())
    if all(_KERNELS + sum(needed_by(worker.n_threads)) <= worker.limit / 2 for worker in workers):
        return
    workers = place.memory_after(WarmUp())
    needed_by = _needs(program, workers)
    pauses, ends = (
        dask.config.get(f"distributed.worker.memory.{name}", share) or math.inf
        for name, share in (("pause", 0.8), ("terminate", 0.95))
    )
    for worker in workers:
        stays, passes = needed_by(worker.n_threads)
        free = ends * worker.limit - worker.used
        paused = worker.used > pauses * worker.limit  # no fit begins on it
        if worker.enforced and (paused or stays + passes > free):
            limit = max((_ADVISED * (stays + passes) + worker.used) / ends, _ADVISED * worker.used / pauses)
            _refuse(program, worker, stays, passes, 0 if paused else free, len(workers), limit)


def _needs(program, workers):
    """Return a function of a worker's threads: the bytes that it holds, and those that it has at times."""
    states, saved = bytes_of_shards(program)
    n_threads = sum(worker.n_threads for worker in workers)
    one = _loading(program)
    trial = 2 * one + 3 * max(states) if max(states) <= MOST_TRIED else 0  # see `stores.saved.differing`
    kept = 2 if len(workers) > 1 else 0  # copies of a snapshot on a worker: of its parts and of another's

    def needed_by(own_threads):
        share = own_threads / n_threads
        stays = max(share * sum(states), max(states)) + share * program.bytes_of_blocks
        copied = max(share * sum(saved), max(saved)) + share * program.packed_bytes
        loading = min(own_threads, len(states)) * one
        return stays, max(loading, kept * copied + trial, max(2 * kept, 1) * copied)

    return needed_by


def _loading(program):
    """Bytes that reading or laying out the largest shard takes, besides what stays of it."""
    return max(_LAYOUT * max(program.shard_weights), _reading(shard["source"] for shard in program.shards))


def _reading(sources):
    """Bytes that reading the largest shard takes, of those in files."""
    try:
        return max([bytes_to_read(source) for source in sources if isinstance(source, tuple)], default=0)
    except DataError:  # a file that is gone: the worker that reads it says so, with its name
        return 0


def check_reading(sources, engine):
    """Raise a DataError if a shard of files takes more memory to be read than a worker has."""
    needed = _reading(sources)
    if not needed or own_threads() is not None:
        return
    end = dask.config.get("distributed.worker.memory.terminate", 0.95) or math.inf
    for worker in open_place(engine).memory():
        if worker.enforced and _KERNELS + needed > end * worker.limit:
            least = (_KERNELS + needed) / end
            raise DataError(
                f"X has files of which a shard, as of {sources[0][0].path}, takes about "
                f"{needed / 1e6:,.0f} MB to be read, and programs take {_KERNELS / 1e6:,.0f}, beyond the "
                f"limit of {worker.limit / 1e6:,.0f} MB of a worker: give workers {least / 1e6:,.0f} MB or "
                "more, or smaller shards (n_groups; compressed files and those in the svmlight format are "
                "not cut, so give several)"
            )


def _refuse(program, worker, stays, passes, free, n_workers, limit):
    less, n = "", n_workers
    while n < _MOST_TIMES * n_workers and not less:
        n = -(-5 * n // 4)
        if _ADVISED * sum(_needs(program, [worker] * n)(worker.n_threads)) <= free:
            less = f", take {n:,} such workers or more"
    if 0 < free < 2 * _loading(program):
        less += f", cut smaller shards (n_groups, more parts of X: there are {len(program.shards):,})"
    elif free > 0:
        less += f", set fewer topics than n_components={program.n_topics}"
    raise DataError(
        f"X is beyond the workers' memory: of {sum(program.shard_weights):,} tokens with their topics and "
        f"counts a worker would hold {stays / 1e6:,.0f} MB, and {passes / 1e6:,.0f} MB more for reading, "
        f"layout and snapshots, but programs take {worker.used / 1e6:,.0f} of its limit of "
        f"{worker.limit / 1e6:,.0f} MB, which leaves {max(free, 0) / 1e6:,.0f}: give workers "
        f"{math.ceil(limit / 1e6):,} MB or more{less}, or fit files on one machine, with engine='local' and "
        "memory_limit="
    )


def bytes_of_shards(program):
    """List the bytes of each shard's tokens, topics and documents, and of these those in snapshots."""
    firsts = [shard["first_document"] for shard in program.shards]
    n_documents, n_topics = program.corpus.n_documents, program.n_topics
    sizes, n_tokens = np.diff([*firsts, n_documents]), np.asarray(program.shard_weights, float)
    n_labels: Any = None
    sums: Any = 0
    if program.labelled:
        n_labels = np.array([shard["labels"].nnz for shard in program.shards])
    if program.averages:
        sums = 4 * (row_width(n_topics) * sizes if n_labels is None else n_labels)
    about = n_tokens, sizes, program.longest, n_documents, program.corpus.n_words, n_labels
    lists = 0
    if "entries" in program.saved:
        lists = bytes_of_lists(n_topics, n_tokens, sizes, program.longest)
    topic = 1 if n_topics <= 256 else bytes_of_topic(n_topics)  # snapshots have the fewest bytes
    states: Any = 0
    saved: Any = 0
    for name in ("gibbs", "warp") if program.name == "auto" else (program.name,):
        states = np.maximum(states, sums + bytes_of_state(name, n_topics, *about))
        copied = 2 * topic * n_tokens if name == "warp" else topic * n_tokens + lists
        saved = np.maximum(saved, sums + copied)
    return states.tolist(), saved.tolist()


class WarmUp:
    """Imports and compiles, on a worker, what stays in its memory during a fit."""

    def __call__(self):
        """Draw the topics of a few tokens."""
        from ..corpus.shard_input import corpus_of_matrix
        from ..samplers.gibbs import RotatingGibbs

        corpus = corpus_of_matrix(sparse.csr_array(np.ones((4, 4), np.int32)), 1)
        program = RotatingGibbs(corpus, 2, np.full(2, 0.1), np.full(4, 0.1), 0, in_process=True)
        run(program, program.schedule, max_rounds=2)
