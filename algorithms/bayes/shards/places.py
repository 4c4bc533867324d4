"""Where chunks of shards' chains are done: on threads of this process, or as plain Dask tasks.

A chunk is the same function call in either place, and finds or writes the same file: see ``shard_tasks``.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask.base import tokenize

from ....errors import DataError, ModelFileError, WorkerLost, shortened
from ....scheduler.sessions.session import check_engine
from ....scheduler.stores.store import read_npz, write_npz
from ....scheduler.threads import effective_n_jobs, own_threads, run_tasks, single_threaded_blas, warn_in_task

_FORMAT = "stradask chunk"
_ATTEMPTS = 5  # each ended by the loss of all workers
_DEADLY = (
    "a chunk's workers died again and again: it may need more memory than they have; take more shards, or "
    "larger workers"
)


class Key(NamedTuple):
    """Which chunk, and which random numbers: a stream is named by these four and nothing else."""

    seed: int
    shard: int
    chain: int
    chunk: int


@dataclass(frozen=True, eq=False)
class Chunk:
    """What a chunk leaves.

    Attributes
    ----------
    state : dict of str to ndarray
        All that the next chunk has to know.
    arrays : dict of str to ndarray
        Draws and what belongs to them, one a row.
    digest : str
        Of all that went into it; "" without a checkpoint.
    found : bool
        Whether it was read from a file.
    """

    state: dict[str, np.ndarray]
    arrays: dict[str, np.ndarray]
    digest: str
    found: bool


# A chunk --------------------------------------------------------------------------------------------


class Work(NamedTuple):
    """What all chunks of a run share."""

    step: Callable
    seed: int
    identity: str
    folder: str | None
    fits: Callable | None


class _Loaded(NamedTuple):
    data: Any
    digest: str


def _load(load, shard, with_digest):
    try:
        data = load(shard)
    except Exception as error:
        error.add_note(f"in shard {shard}")
        raise
    if not with_digest:
        return _Loaded(data, "")
    try:
        return _Loaded(data, str(tokenize(data, ensure_deterministic=True)))
    except RuntimeError as error:
        raise DataError(
            f"the data of shard {shard} cannot be told from others, which a checkpoint needs: {error}; let "
            "load return arrays, plain values, and tuples, lists and dicts of them"
        ) from error


def _chunk(work, loaded, before, shard, chain, number):
    """Do a chunk, or read it from its file."""
    key = Key(work.seed, shard, chain, number)
    digest, path = "", None
    if work.folder is not None:
        parts = (work.identity, tuple(key), loaded.digest, before.digest if before else "")
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()
        Path(work.folder).mkdir(parents=True, exist_ok=True)
        path = Path(work.folder, f"shard-{shard}-chain-{chain}-chunk-{number}-{digest}.npz")
        found = _read(path, digest)
        if found and (work.fits is None or work.fits(loaded.data, found.state, found.arrays, key)):
            return found
    try:
        with single_threaded_blas():
            state, arrays = work.step(loaded.data, before.state if before else None, key)
        state, arrays = _as_arrays("state", state), _as_arrays("arrays", arrays)
    except Exception as error:
        error.add_note(f"in shard {shard}, chain {chain}, chunk {number}")
        raise
    if path is not None:
        content = {f"state/{name}": array for name, array in state.items()}
        content.update((f"arrays/{name}", array) for name, array in arrays.items())
        write_npz(path, content, {"format": _FORMAT, "digest": digest}, follow=False)
    return Chunk(state, arrays, digest, found=False)


def _as_arrays(what, values):
    if not isinstance(values, dict):
        raise DataError(f"step must return its {what} as a dict of arrays, got a {type(values).__name__}")
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise DataError(
                f"step returned {what} with {shortened(name)}, which is no array of numbers or text"
            )
    return arrays


def _read(path, digest):
    """Read a chunk's file; None if there is none, or if it is damaged, for then it is made anew."""
    try:
        content, header = read_npz(path)
    except (FileNotFoundError, ModelFileError):
        return None
    if header != {"format": _FORMAT, "digest": digest}:
        return None
    parts: dict[str, dict] = {"state": {}, "arrays": {}}
    for name, array in content.items():
        part, _, rest = name.partition("/")
        if part not in parts:
            return None
        parts[part][rest] = array
    return Chunk(parts["state"], parts["arrays"], digest, found=True)


# Where chunks are done ------------------------------------------------------------------------------


def make_place(engine, n_jobs, n_held=None):
    """Return where chunks are done: an object with `open`, `close`, `chains` and `values`."""
    check_engine(engine)
    threads = own_threads()  # inside a Dask task everything is local
    if threads is not None and n_jobs is None:
        n_jobs = threads
    if threads is not None and engine != "local":
        warn_in_task(engine, effective_n_jobs(n_jobs), stacklevel=4)
    if engine == "local" or threads is not None:
        return _Threads(n_jobs, n_held)
    return _Cluster(engine)


def _pairs(n_shards, n_chains):
    """Shards and chains as they are begun: first a chain of each shard, so that none waits for its data."""
    pairs = [(shard, chain) for shard in range(n_shards) for chain in range(n_chains)]
    return sorted(pairs, key=lambda pair: pair[1] > 0)


def _in_order(pairs, found):
    return [chunks for _, chunks in sorted(zip(pairs, found, strict=True), key=lambda item: item[0])]


class _Threads:
    """Chunks on threads of this process; shards are loaded when needed, and the last `n_held` kept."""

    def __init__(self, n_jobs, n_held):
        self.n_jobs, self.n_held = effective_n_jobs(n_jobs), n_held

    def open(self, loads, with_digest):
        self._load = lambda shard: _load(loads[shard], shard, with_digest)
        self._loaded: dict[int, _Loaded] = {}  # the one that was used last stands last
        self._locks = [threading.Lock() for _ in loads]
        self._advancing, self._holding = threading.Lock(), threading.Lock()

    def close(self):
        self._loaded = {}

    def _data(self, shard):
        with self._locks[shard]:
            with self._holding:
                found = self._loaded.pop(shard, None)
                if found is None and self.n_held is not None and len(self._loaded) >= self.n_held:
                    del self._loaded[next(iter(self._loaded))]
            found = self._load(shard) if found is None else found
            with self._holding:
                self._loaded[shard] = found
            return found

    def chains(self, work, n_chains, numbers, after, done):
        def chain_of(shard, chain):
            loaded, chunks = self._data(shard), []
            last = None if after is None else after.last[shard][chain]
            for number in numbers:
                last = _chunk(work, loaded, last, shard, chain, number)
                chunks.append(last)
                with self._advancing:
                    done(shard)
            return chunks

        pairs = _pairs(len(self._locks), n_chains)
        if self.n_held is not None:
            pairs.sort()  # all chains of a shard while it is held
        found = run_tasks([(chain_of, pair) for pair in pairs], self.n_jobs)
        return _in_order(pairs, found)

    def values(self, function, points):
        shards = range(len(self._locks))
        return run_tasks([lambda m=m: _value(function, self._data(m), points) for m in shards], self.n_jobs)


class _Cluster:
    """Chunks as plain Dask tasks, each with the one before it and the shard's data as its inputs."""

    def __init__(self, engine):
        from ....scheduler.sessions.task_workers import task_workers

        self._workers = task_workers(engine)
        self._client = self._workers.open()

    def open(self, loads, with_digest):
        try:
            check_ships("load", loads[0])
            self._loads = [(load, shard, with_digest) for shard, load in enumerate(loads)]
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self):
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):  # data are tasks
            self._loaded = [self._workers.submit(_load, *load) for load in self._loads]

    def close(self):
        self._loaded = []
        self._workers.close()

    def chains(self, work, n_chains, numbers, after, done):
        check_ships("step", work.step)
        pairs = _pairs(len(self._loads), n_chains)
        told: Counter[int] = Counter()

        def rows():
            for shard, chain in pairs:
                last, row = None if after is None else after.last[shard][chain], []
                for number in numbers:
                    last = self._workers.submit(_chunk, work, self._loaded[shard], last, shard, chain, number)
                    row.append(last)
                yield row

        def tell(row, n_done):  # once a chunk, also where chunks that were lost are done again
            if n_done > told[row]:
                told[row] = n_done
                done(pairs[row][0])

        return _in_order(pairs, self._gathered(rows, tell))

    def values(self, function, points):
        check_ships("function", function)

        def rows():
            return ([self._workers.submit(_value, function, data, points)] for data in self._loaded)

        return [row[0] for row in self._gathered(rows, lambda row, n_done: None)]

    def _gathered(self, rows, tell):
        """Submit rows of tasks and wait for them; all anew, and their data, if all workers were lost."""
        from ....scheduler.sessions.clients import scheduler_named

        with scheduler_named(self._client):
            for attempt in range(_ATTEMPTS):
                before = self._workers.n_orphaned
                try:
                    return self._waited(list(rows()), tell)
                except CancelledError as error:
                    if self._workers.n_orphaned == before:  # the scheduler has gone, or others cancelled them
                        raise
                    if attempt + 1 == _ATTEMPTS:
                        raise WorkerLost(_DEADLY) from error
                    self._workers.cancel(self._loaded)
                    self._load()
        raise AssertionError("a last attempt returns or raises")

    def _waited(self, rows, tell):
        """Wait for rows of futures, and tell how many of a row are done; cancel the rest if one fails."""
        from distributed import KilledWorker, as_completed

        row_of = {future: i for i, row in enumerate(rows) for future in row}
        n_done: Counter[int] = Counter()
        try:
            for future in as_completed(row_of, loop=self._client.loop):
                if future.status in ("error", "cancelled"):
                    future.result()
                n_done[row_of[future]] += 1
                tell(row_of[future], n_done[row_of[future]])
            return [self._workers.gather(row) for row in rows]
        except KilledWorker as error:
            raise WorkerLost(_DEADLY) from error
        finally:
            self._workers.cancel(row_of)


def check_ships(name, function):
    """Raise a DataError that says why a function cannot be shipped to workers, if it cannot."""
    from distributed.protocol.pickle import dumps

    try:
        dumps(function)
    except Exception as error:  # what fails to pickle raises almost anything
        raise DataError(
            f"{name} cannot be shipped to workers: {error}; let it hold arrays, plain values and functions "
            "of modules that the workers can import, and no open files, locks or clients"
        ) from error


def _value(function, loaded, points):
    with single_threaded_blas():
        return function(loaded.data, points)
