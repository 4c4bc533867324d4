"""Whether a corpus fits into the memory of a cluster's workers, known before tokens are laid out."""

import math

import dask
import numpy as np
from scipy import sparse

from ....errors import DataError
from ....scheduler.engine import run
from ....scheduler.place import open_place
from ....scheduler.threads import own_threads
from .document_rows import DENSE_TOPICS, are_short
from .out_of_core import bytes_to_read

_KERNELS = 350e6  # bytes that a worker has of imports and compiled loops, or less
_ADVISED = 1.1  # times what is counted, in advice


def check_worker_memory(program, engine):
    """Raise a DataError if tokens, topics and blocks of a program do not fit into the workers' memory.

    Counted is the least that they take: a fit that passes may still lose a worker. Workers that may be short
    of memory import and compile what the fit needs before it is seen what they have left; of others only the
    limits are asked for. A worker without a nanny, which would end it near its limit, is not refused.
    """
    if own_threads() is not None:
        return
    place = open_place(engine)
    limits = [limit for limit, *_ in place.memory()]
    shards, blocks = bytes_of_shards(program), program.bytes_of_blocks
    sources = [shard["source"] for shard in program.shards]
    try:
        reading = max([bytes_to_read(source) for source in sources if isinstance(source, tuple)], default=0)
    except DataError:  # a file that is gone: the worker that reads it says so, with its name
        return
    roughly = len(limits) * (_KERNELS + 2 * reading) + sum(shards) + blocks
    if roughly <= sum(limits) / 2 and _KERNELS + 2 * reading + max(shards) <= min(limits, default=0) / 2:
        return
    workers = place.memory_after(WarmUp())
    n_threads = sum(worker.n_threads for worker in workers)
    pauses, ends = (
        dask.config.get(f"distributed.worker.memory.{name}", share) or math.inf
        for name, share in (("pause", 0.8), ("terminate", 0.95))
    )
    for worker in workers:
        own = max(worker.n_threads / n_threads * sum(shards), max(shards))
        own += worker.n_threads / n_threads * blocks
        free = ends * worker.limit - worker.used - reading
        paused = worker.used > pauses * worker.limit  # no fit begins on it
        if worker.enforced and (paused or own > free):
            limit = max((_ADVISED * own + worker.used + reading) / ends, _ADVISED * worker.used / pauses)
            _refuse(program, worker, own, 0 if paused else free, len(workers), limit)


def _refuse(program, worker, own, free, n_workers, limit):
    less = ""
    if free > 2 * max(bytes_of_shards(program)):
        less = f", take {math.ceil(_ADVISED * n_workers * own / free):,} such workers or more"
    if free > 0:
        less += f", set fewer topics than n_components={program.n_topics}"
    raise DataError(
        f"X is beyond the workers' memory: of {sum(program.shard_weights):,} tokens with their topics and "
        f"counts a worker would hold {own / 1e6:,.0f} MB, but programs take {worker.used / 1e6:,.0f} of its "
        f"limit of {worker.limit / 1e6:,.0f} MB, which leaves {max(free, 0) / 1e6:,.0f}: give workers "
        f"{math.ceil(limit / 1e6):,} MB or more{less}, or fit files on one machine, with engine='local' and "
        "memory_limit="
    )


def bytes_of_shards(program):
    """List the bytes of each shard's tokens, topics and counts of documents, at least."""
    firsts = [shard["first_document"] for shard in program.shards]
    n_documents = program.corpus.n_documents
    sizes, weights = np.diff([*firsts, n_documents]), np.asarray(program.shard_weights, float)
    n_topics, topic = program.n_topics, np.dtype(program.kind).itemsize
    if program.name == "warp":
        return (weights * (2 * topic + 4)).tolist()
    if program.labelled or are_short(n_documents, program.longest, n_topics):
        rows = sizes
    elif n_topics <= DENSE_TOPICS and program.name != "light":
        rows = sizes * n_topics * np.min_scalar_type(program.longest).itemsize
    else:
        rows = 64 * sizes
    return (weights * (topic + 4) + rows).tolist()


class WarmUp:
    """Imports and compiles, on a worker, what stays in its memory during a fit."""

    def __call__(self):
        """Draw the topics of a few tokens."""
        from ..corpus.shard_input import corpus_of_matrix
        from ..samplers.gibbs import RotatingGibbs

        corpus = corpus_of_matrix(sparse.csr_array(np.ones((4, 4), np.int32)), 1)
        program = RotatingGibbs(corpus, 2, np.full(2, 0.1), np.full(4, 0.1), 0, in_process=True)
        run(program, program.schedule, max_rounds=2)
