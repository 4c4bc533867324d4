"""The memory of a fit: of a shard's state, of reading and layout, and whether a limit or workers have it.

A fit within a `memory_limit` may have its shards in memory-mapped files, a few at work at a time.
"""

import math
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ....datasets.document_files import is_compressed
from ....errors import DataError
from ....scheduler.engine import run
from ....scheduler.stores.copies import SMALL
from ....scheduler.stores.saved import MOST_TRIED
from ....scheduler.threads import own_threads
from ....scheduler.workers import open_workers

AT_ONCE = 4  # shards at work, so that at most as many threads are used; one at a time is read
# In units of the bytes of a plain file of entries: the memory to read it, and what becomes of it, tokens with
# their topics and documents with their counts.
_READING, _STATE = 3, 2
LAYOUT = 30  # bytes a token of a shard while it is laid out
BYTES_OF_WORD = 44  # what is known of a word
_COMPRESSED = 4  # about how much longer a compressed file is than it looks
KERNELS = 350e6  # bytes that a worker has of imports and compiled loops, or less
_ADVISED = 1.1  # times what is counted, in advice
_USED_FOR_COUNTS = 0.7  # part of what is left, for documents' counts of shards in files


class CorpusSizes(NamedTuple):
    """The numbers of a corpus from which the memory of a fit follows; arrays are by shard."""

    n_tokens: Any
    n_documents: Any
    longest: int
    n_words: int  # that occur
    n_labels: Any = None  # of documents, where they have them
    sources: Any = ()

    @classmethod
    def from_shards(cls, shards, n_tokens, n_documents, longest, n_words):
        """Read them off the shards of a `ShardedCorpus` of so many documents."""
        sizes = np.diff([*(shard["first_document"] for shard in shards), n_documents])
        labels = [shard["labels"].nnz for shard in shards if "labels" in shard]
        sources = [shard["source"] for shard in shards]
        return cls(
            np.asarray(n_tokens, float),
            sizes,
            longest,
            n_words,
            np.array(labels) if labels else None,
            sources,
        )


class StateBytes(NamedTuple):
    """Bytes of a fit, apart from its blocks of words."""

    shards: Any  # of each: tokens with their topics, documents with their counts
    saved: Any  # of each, the part that snapshots have
    passing: float  # reading, laying out or handing over the largest shard takes, besides what stays of it
    arrays: Any  # of each, what snapshots have before it is narrowed
    counts: Any = 0.0  # of each, the part that is documents' counts


def bytes_of_state(sampler, n_topics, sizes, documents=None, averages=False):
    """Count the `StateBytes` of a fit of a corpus of these `CorpusSizes`.

    `sampler` is the name of a program, of which "auto" ("both") has two in turn; `documents` is the class of
    the counts of documents, by default that which the sampler takes, and `averages` says whether they are
    averaged.
    """
    from .document_rows import PackedLists, document_class, row_width  # they import numba

    if sampler in ("auto", "both"):
        parts = [bytes_of_state(name, n_topics, sizes, None, averages) for name in ("gibbs", "warp")]
        shards, saved, _, arrays, _ = (np.maximum(*both) for both in zip(*parts, strict=True))
        return StateBytes(shards, saved, max(parts[0].passing, max(parts[0].shards)), arrays)
    n_tokens, n_documents, longest, _, n_labels, _ = sizes
    if documents is None:
        documents = document_class(int(np.sum(n_documents)), longest, n_topics)
        documents = PackedLists if sampler == "light" else documents
    elif n_labels is None and sampler != "warp" and not hasattr(documents, "bytes_of"):
        raise DataError(
            f"{documents.__name__} has no bytes_of, by which memory of a fit is counted: add a static "
            "method bytes_of(n_topics, n_tokens, n_documents, longest), bytes of a shard's counts"
        )
    topic = bytes_of_topic(n_topics)
    narrow = 1 if n_topics <= 256 else topic  # snapshots have the fewest bytes
    about = n_topics, n_tokens, n_documents, longest
    saved, arrays = narrow * n_tokens, topic * n_tokens
    if sampler == "saber":  # lists of 32 topics a line; it holds the corpus in one piece
        lines = np.clip(
            n_tokens / 32 + n_documents / 2, n_documents, n_documents * (-(-min(longest, n_topics) // 32))
        )
        token, rows = topic + 4, 128 * lines + 4 * n_documents
    elif sampler == "warp":
        token, rows, saved, arrays = 2 * topic + 4, 16 * n_documents, 2 * saved, 2 * arrays
    else:
        token, rows = topic + 4, documents.bytes_of(*about) if n_labels is None else 20 * n_labels
        if n_labels is None and issubclass(documents, PackedLists):
            saved, arrays = saved + documents.bytes_saved(*about), arrays + rows
    sums = 4 * (row_width(n_topics) * n_documents if n_labels is None else n_labels) if averages else 0
    # Of a document its place and length, of a word where its tokens begin and how many are before them.
    shards = token * n_tokens + rows + sums + 16 * n_documents + 10 * sizes.n_words
    passing = max(LAYOUT * np.max(n_tokens), _bytes_to_read_one(sizes.sources))
    return StateBytes(shards, saved + sums, passing, arrays + sums, rows)


def bytes_of_topic(n_topics):
    """Bytes of a token's topic."""
    return 2 if n_topics <= np.iinfo(np.uint16).max else 4


@dataclass(frozen=True)
class FilePlan:
    """The folder of a fit's shards, and how many work at a time (None: all)."""

    folder: object = None
    at_once: int | None = None


def shards_for(n_bytes, is_compressed, memory_limit):
    """Into how many shards files must be cut so that half of the memory is enough for those at work.

    That is for the one that is read, and later for `AT_ONCE` at work. `n_bytes` are those of the files.
    """
    needed = n_bytes * max(_READING, AT_ONCE * _STATE) * (_COMPRESSED if is_compressed else 1)
    return math.ceil(2 * needed / memory_limit)


def check_shards_fit(shards, memory_limit):
    """Refuse shards one of which cannot be read in half of the memory.

    Parameters
    ----------
    shards : list of tuple of Piece
    memory_limit : int
    """
    for shard in shards:
        needed = bytes_to_read(shard)
        if 2 * needed > memory_limit:
            raise DataError(
                f"memory_limit={memory_limit:,} bytes, but to read a shard of {shard[0].path} takes about "
                f"{needed:,.0f}, and half of the limit is for that: give {2 * needed:,.0f} or more, or "
                "smaller shards (n_groups; files in the svmlight format are not cut, so give several)"
            )


def bytes_to_read(shard):
    """Bytes of memory that reading a shard takes, a tuple of `Piece`."""
    return _READING * sum(
        piece.own_bytes * (_COMPRESSED if is_compressed(piece.path) else 1) for piece in shard
    )


def plan_for(samplers, sizes, n_topics, memory_limit, folder):
    """Say where shards of these `CorpusSizes` are, for programs that run one after the other.

    `samplers` are names, each with the class of its documents (see `bytes_of_state`); `folder` is where files
    may be made, if it is not the system's place for temporary ones.
    """
    states = [bytes_of_state(name, n_topics, sizes, kind).shards for name, kind in samplers]
    if max(map(np.sum, states)) <= memory_limit // 2:
        return FilePlan(folder)
    largest = int(np.max(states))
    if 2 * largest > memory_limit:
        raise DataError(
            f"memory_limit={memory_limit:,} bytes, but the tokens of a shard take {largest:,}, and half "
            f"of the limit is for them: give {2 * largest:,} or more, or n_groups above {len(states[0])}"
        )
    at_once = min(AT_ONCE, memory_limit // 2 // largest)  # fewer where tokens outnumber entries
    return FilePlan(place_for_files(folder), at_once)


def place_for_files(folder):
    """Take the folder that is given, or the system's place for temporary files."""
    return tempfile.gettempdir() if folder is None else folder


def check_blocks_fit(program, memory_limit):
    """Refuse a model whose blocks alone take more than half of the memory."""
    needed = program.bytes_of_blocks + BYTES_OF_WORD * program.corpus.n_words
    if needed > memory_limit // 2:
        raise DataError(
            f"memory_limit={memory_limit:,} bytes, but the words and their counts take {needed:,}, and "
            f"half of the limit is for them: give {2 * needed:,} or more, or fewer topics"
        )


def check_worker_memory(program, engine, memory_limit=None):
    """Have workers that cannot hold a fit keep its shards in files; DataError if that takes too much, too.

    Counted are tokens, topics and blocks, and the most of what comes and goes: reading and laying out a shard
    on each thread, or the snapshots that workers keep, the new one beside the last. With shards in files it
    is what each thread works on (`_needs_in_files`). Workers that may be short of memory import and compile
    what the fit needs before it is seen what they have left; of others only the limits are asked for. A
    worker without a nanny, which would end it near its limit, holds any fit. `memory_limit` are bytes that
    the fit may have on each worker, besides the programs.
    """
    if own_threads() is not None:
        return
    cluster = open_workers(engine)
    needed_by = _needs(program, workers := cluster.memory())
    most = math.inf if memory_limit is None else memory_limit
    if all(
        KERNELS + sum(needed_by(worker.n_threads)) <= min(worker.limit / 2, KERNELS + most)
        for worker in workers
    ):
        return
    workers = cluster.memory_after(WarmUp(program.name, program.n_topics))
    needed_by, in_files = _needs(program, workers), _needs_in_files(program, workers)
    rooms = [_room(worker, memory_limit) for worker in workers]
    if all(
        sum(needed_by(worker.n_threads)) <= room.ends and room.pauses > 0
        for worker, room in zip(workers, rooms, strict=True)
    ):
        return
    for worker, room in zip(workers, rooms, strict=True):
        stays, passes = in_files(worker.n_threads)
        if stays + passes > room.pauses:
            _refuse(program, worker, stays, passes, room, memory_limit)
    free = min(
        room.pauses - sum(in_files(worker.n_threads)) for worker, room in zip(workers, rooms, strict=True)
    )
    program.stream(_USED_FOR_COUNTS * free)


class _Room(NamedTuple):
    """Bytes that a fit may take on a worker until Dask pauses it, and until it ends it."""

    pauses: float
    ends: float


def _room(worker, memory_limit=None):
    """Compute the `_Room` of a worker; `memory_limit` as in `check_worker_memory`."""
    most = math.inf if memory_limit is None else memory_limit
    if not worker.enforced:
        return _Room(most, most)
    return _Room(*(min(share * worker.limit - worker.used, most) for share in _shares_of_limits()))


def _shares_of_limits():
    import dask

    names = {"pause": 0.8, "terminate": 0.95}
    return [dask.config.get(f"distributed.worker.memory.{n}", s) or math.inf for n, s in names.items()]


def memory_of_workers(engine, enough):
    """Bytes that a fit may have on each worker; those with less than `enough` first import and compile."""
    cluster = open_workers(engine)
    room = min(_room(worker._replace(used=KERNELS)).pauses for worker in cluster.memory())
    if room < enough:
        room = min(_room(worker).pauses for worker in cluster.memory_after(WarmUp()))
    return max(room, 1)


def _needs(program, workers):
    """Return a function of a worker's threads: the bytes that it holds, and those that it has at times."""
    state = bytes_of_program(program)
    n_threads = sum(worker.n_threads for worker in workers)
    blocks = program.bytes_of_blocks, program.packed_bytes
    return partial(bytes_of_worker, state, *blocks, n_threads=n_threads, n_workers=len(workers))


def bytes_of_worker(state, blocks, packed, own_threads, *, n_threads, n_workers):
    """Count the bytes that a worker with some of all threads holds, and those that it has at times.

    `state` is a `StateBytes`; `blocks` and `packed` are bytes of all blocks, as they are and as they travel.
    """
    shards, saved, passing, arrays, _ = state
    share = own_threads / n_threads
    largest = np.max(shards)
    trial = 2 * passing + 3 * largest if largest <= MOST_TRIED else 0  # see `stores.saved.differing`
    is_small = np.sum(arrays) <= SMALL  # then the coordinator keeps it (blocks are not packed at that time)
    kept = 0 if is_small or n_workers == 1 else 2  # copies of it on a worker: of its parts, of another's
    stays = max(share * np.sum(shards), largest) + share * blocks
    copied = max(share * np.sum(saved), np.max(saved)) + share * packed
    loading = min(own_threads, len(shards)) * passing
    return stays, max(loading, kept * copied + trial, max(2 * kept, 1) * copied)


def bytes_of_worker_in_files(
    state, block, packed, own_threads, share, *, n_documents, n_words, collects, of_documents
):
    """As `bytes_of_worker`, where shards, blocks and snapshots are in files.

    A worker then has, for each thread, the counts of a shard's documents and a block (`block`: bytes of the
    largest), and for its share of all shards where documents' counts begin, with `collects` also the sizes of
    words. At times it has one shard that is read, laid out or copied; at the end the packed counts of its
    blocks' words, or those of its documents, in all `of_documents`.
    """
    stays = own_threads * (np.max(state.shards) + 2 * block)
    stays += share * (32 * n_documents + 8 * n_words * len(state.shards) * collects)
    return stays, max(state.passing, 4 * np.max(state.saved), share * max(2 * packed, of_documents))


def _needs_in_files(program, workers):
    """As `_needs`, where shards, blocks and snapshots are in files."""
    state = bytes_of_program(program)
    n_threads, n_topics = sum(worker.n_threads for worker in workers), program.n_topics
    blocks = [
        4 * n_topics * s.words.n_rows + 6 * bytes_of_topic(n_topics) * s.words.n_tokens
        for s in program.samplers
    ]
    numbers = {"n_documents": program.corpus.n_documents, "n_words": len(program.words.ids)}
    numbers["collects"] = any(getattr(sampler, "collects", False) for sampler in program.samplers)
    # Counts of documents come back of a matrix of the caller.
    most_counts = min(program.n_tokens, n_topics * program.corpus.n_documents)
    numbers["of_documents"] = 0 if program.rows is None else 8 * most_counts
    designs = sum(
        shard[name].nbytes for shard in program.shards for name in ("design", "response") if name in shard
    )

    def needed_by(own_threads):
        share = own_threads / n_threads
        block = max(map(np.max, blocks))
        stays, passes = bytes_of_worker_in_files(
            state, block, program.packed_bytes, own_threads, share, **numbers
        )
        return stays + BYTES_OF_WORD * numbers["n_words"] + 24 * n_topics + share * designs, passes

    return needed_by


def bytes_of_program(program):
    """Count the `StateBytes` of a program over shards."""
    shards, n_documents = program.shards, program.corpus.n_documents
    n_words = len(program.words.ids)
    sizes = CorpusSizes.from_shards(shards, program.shard_weights, n_documents, program.longest, n_words)
    counted = bytes_of_state(program.counted_as, program.n_topics, sizes, program.documents, program.averages)
    if "design" not in shards[0]:
        return counted
    designs = [program.documents.bytes_of_design(shard["design"], program.n_topics) for shard in shards]
    return counted._replace(shards=counted.shards + designs)


def _bytes_to_read_one(sources):
    """Bytes that reading the largest shard takes, of those in files."""
    try:
        return max([bytes_to_read(source) for source in sources if isinstance(source, tuple)], default=0)
    except DataError:  # a file that is gone: the worker that reads it says so, with its name
        return 0


def check_reading(sources, engine):
    """Raise a DataError if a shard of files takes more memory to be read than a worker has."""
    needed = _bytes_to_read_one(sources)
    if not needed or own_threads() is not None:
        return
    import dask

    end = dask.config.get("distributed.worker.memory.terminate", 0.95) or math.inf
    for worker in open_workers(engine).memory():
        if worker.enforced and KERNELS + needed > end * worker.limit:
            least = (KERNELS + needed) / end
            raise DataError(
                f"X has files of which a shard, as of {sources[0][0].path}, takes about "
                f"{needed / 1e6:,.0f} MB to be read, and programs take {KERNELS / 1e6:,.0f}, beyond the "
                f"limit of {worker.limit / 1e6:,.0f} MB of a worker: give workers "
                f"{math.ceil(least / 1e6):,} MB or more, or smaller shards (n_groups; compressed files and "
                "those in the svmlight format are not cut, so give several)"
            )


def _refuse(program, worker, stays, passes, room, memory_limit):
    needed = _ADVISED * (stays + passes)
    pauses, _ = _shares_of_limits()
    if memory_limit is not None and room.pauses == memory_limit:
        limit, free = f"memory_limit={memory_limit:,} bytes a worker", memory_limit
        remedy = f"give {math.ceil(needed):,} or more"
    else:
        free, least = room.pauses, (needed + worker.used) / pauses
        limit = (
            f"Programs take {worker.used / 1e6:,.0f} MB of a limit of {worker.limit / 1e6:,.0f}, and "
            f"Dask pauses it at {pauses:.0%} of that"
        )
        remedy = f"give workers {math.ceil(least / 1e6):,} MB or more"
    raise DataError(
        f"X is beyond the workers' memory, also in files: of {sum(program.shard_weights):,} tokens "
        f"in {len(program.shards):,} shards a worker would have {stays / 1e6:,.3g} MB for those at work, and "
        f"{passes / 1e6:,.3g} MB more for reading, layout and results. {limit}, which leaves "
        f"{max(free, 0) / 1e6:,.3g} MB: {remedy}, cut smaller shards (n_groups, more parts of X), or set "
        f"fewer topics than n_components={program.n_topics}"
    )


class WarmUp:
    """Imports and compiles, on a worker, what stays in its memory during a fit with a sampler."""

    def __init__(self, sampler="gibbs", n_topics=2):
        both = {"auto": ("warp", "gibbs"), "warp": ("warp",), "light": ("light",)}
        self.samplers = both.get(sampler, ("gibbs",))  # other ones draw much as gibbs does
        self.n_topics = n_topics

    def __call__(self):
        """Draw the topics of a few tokens, in blocks that are packed and unpacked before each step."""
        from ..corpus.shard_input import corpus_of_matrix
        from ..samplers.choose import program_of

        corpus, priors = corpus_of_matrix(sparse.csr_array(np.ones((4, 4), np.int32)), 2), np.full(4, 0.1)
        for name in self.samplers:
            program = program_of(name, corpus, self.n_topics, np.full(self.n_topics, 0.1), priors, 0)
            program.update = partial(_update_as_on_workers, program)
            program.run_steps = lambda *_: None  # threads of one process
            run(program, program.schedule, max_rounds=2)


def _update_as_on_workers(program, shard, task):
    task.value = program.unpack(task.blocks, program.pack(task.blocks, task.value))
    return type(program).update(program, shard, task)
