"""Chains of shards as chunks, each a pure function, on threads of this process or as plain Dask tasks.

A chunk is known by its numbers (seed, shard, chain, chunk) and depends on the shard's data and the state that
the chunk before left: done again, on whatever machine, it gives the same bytes. So any worker may die, a run
goes on where it stopped, and the draws do not depend on how many workers there are. Data of shards are tasks
too and never scattered, for what is scattered dies with its worker.
"""

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from dask.base import tokenize

from ...errors import DataError, ModelFileError, WorkerLost
from ...scheduler.progress import Progress
from ...scheduler.session import own_threads
from ...scheduler.store import read_npz, write_npz
from ...scheduler.threads import effective_n_jobs, run_tasks, single_threaded_blas

_FORMAT = "stradask chunk"


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


@dataclass(frozen=True, eq=False)
class ShardRuns:
    """All chains of all shards.

    Attributes
    ----------
    arrays : dict of str to ndarray of shape (M, chains, draws, ...)
        What the chunks from number 1 on gave, in their order.
    last : list of list of Chunk
        For each shard and chain the chunk that the next one follows.
    n_chunks : int
        After the warm-up.
    n_found : int
        Chunks that were read from files.
    """

    arrays: dict[str, np.ndarray]
    last: list[list[Chunk]]
    n_chunks: int
    n_found: int


class ShardPool:
    """The data of shards where they are worked on, and what is asked of them.

    Parameters
    ----------
    load : callable
        ``load(shard)`` reads or makes the data of a shard; the same each time.
    n_shards : int
    engine : str, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; or a scheduler's address.
    n_jobs : int or None, default=None
        Threads of the local engine.
    checkpoint : path-like, optional
        A folder, of the workers as well, for the chunks' files. A chunk whose file is there is read and not
        done again. The name of a file has a digest of everything that the chunk depends on.

    Raises
    ------
    DataError
        For an engine that is unknown or a load function that cannot be shipped to workers.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.shard_tasks import ShardPool
    >>> def step(data, state, key):  # a chain of 5 draws a chunk that forgets where it was
    ...     rng = np.random.Generator(np.random.Philox(key=key.seed, counter=[0, *key[1:]]))
    ...     return {}, {"draws": rng.normal(data, size=(5, 1))}
    >>> with ShardPool(lambda shard: 10.0 * shard, n_shards=3) as pool:
    ...     runs = pool.run(step, n_chains=2, n_chunks=4, seed=1)
    ...     heights = pool.sum(lambda data, points: -((points[:, 0] - data) ** 2), np.array([[10.0]]))
    >>> runs.arrays["draws"].shape, runs.arrays["draws"].mean(axis=(1, 2, 3)).round(), heights
    ((3, 2, 20, 1), array([ 0., 10., 20.]), array([-200.]))
    """

    def __init__(self, load, n_shards, *, engine="local", n_jobs=None, checkpoint=None):
        _check_positive("n_shards", n_shards)
        if "://" in str(checkpoint or ""):
            raise DataError(f"checkpoint={str(checkpoint)!r} is a URL; give a folder that all workers see")
        self.n_shards, self.checkpoint = int(n_shards), None if checkpoint is None else str(checkpoint)
        self._place = _place(engine, n_jobs)
        self._place.open(load, self.n_shards, self.checkpoint is not None)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def close(self):
        """Let go of the data; a client that was the caller's stays open."""
        self._place.close()

    def run(self, step, *, n_chunks, n_chains=1, seed=0, identity=None, after=None, verbose=0):
        """Run all chains of all shards.

        Parameters
        ----------
        step : callable
            ``step(data, state, key)`` returns the next state and arrays, both dicts of arrays: a pure
            function of its arguments, with random numbers made from `key` alone. Chunk 0 is called with
            ``state=None``: it begins the chain and warms it up, and its arrays are dropped. Arrays have
            one row a draw.
        n_chunks : int
            After the warm-up, those of `after` included.
        n_chains : int, default=1
        seed : int, default=0
        identity : dict, optional
            What JSON can hold: the model, the sampler, draws a chunk; all that `step` depends on beside its
            arguments. Needed with a checkpoint.
        after : ShardRuns, optional
            A finished run with the same arguments but fewer chunks, to go on from.
        verbose : int, default=0

        Returns
        -------
        ShardRuns
            The same, bit for bit, on any engine and number of workers, interrupted or not.

        Raises
        ------
        DataError
            For arguments that do not fit. Whatever `step` raises is passed on, with the shard in a note.
        WorkerLost
            If one chunk's workers died again and again: it may need more memory than they have.
        """
        _check_positive("n_chunks", n_chunks)
        _check_positive("n_chains", n_chains)
        if self.checkpoint is not None and identity is None:
            raise DataError("with a checkpoint, identity must say what the chunks depend on, got None")
        self._check_after(after, n_chains, n_chunks)
        work = _Work(step, int(seed), _as_json(identity), self.checkpoint)
        numbers = range(0 if after is None else after.n_chunks + 1, n_chunks + 1)
        total = self.n_shards * n_chains * len(numbers)
        with Progress(total, label="shards", unit="chunk", verbose=verbose) as progress:
            chains = self._place.chains(work, n_chains, numbers, after, lambda: progress.advance(updates=1))
        return _joined(chains, after, n_chains, n_chunks)

    def _check_after(self, after, n_chains, n_chunks):
        if after is None:
            return
        there = (len(after.last), len(after.last[0]), after.n_chunks)
        if there[:2] != (self.n_shards, n_chains) or n_chunks < after.n_chunks:
            raise DataError(
                f"after has {there[0]} shards, {there[1]} chains and {there[2]} chunks; give the same "
                f"n_shards and n_chains, and no fewer n_chunks; got {self.n_shards}, {n_chains}, {n_chunks}"
            )

    def sum(self, function, points):
        """Add up a function of all shards at the same points: the second round's log densities.

        Parameters
        ----------
        function : callable
            ``function(data, points)`` returns one number a point.
        points : ndarray of shape (K, d)

        Returns
        -------
        ndarray of shape (K,)
            Added in the order of shards, so that the last bits do not depend on the engine.
        """
        total = np.zeros(len(points))
        for shard, values in enumerate(self._place.values(function, points)):
            part = np.asarray(values, dtype=np.float64)
            if part.shape != total.shape:
                raise DataError(
                    f"shard {shard} returned the shape {part.shape} for {len(points)} points; it must be one "
                    "number a point"
                )
            total += part
        return total


def run_shards(load, step, n_shards, *, engine="local", n_jobs=None, checkpoint=None, **arguments):
    """Run chains of shards once; see `ShardPool` and `ShardPool.run`.

    Parameters
    ----------
    load, n_shards, engine, n_jobs, checkpoint
        See `ShardPool`.
    step, **arguments
        See `ShardPool.run`.

    Returns
    -------
    ShardRuns
    """
    with ShardPool(load, n_shards, engine=engine, n_jobs=n_jobs, checkpoint=checkpoint) as pool:
        return pool.run(step, **arguments)


def _check_positive(name, value):
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise DataError(f"{name} must be a positive integer, got {value!r}")


def _as_json(identity):
    try:
        return json.dumps(identity, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise DataError(f"identity must be what JSON can hold: {error}") from error


# A chunk --------------------------------------------------------------------------------------------


class _Work(NamedTuple):
    """What all chunks of a run share."""

    step: Callable
    seed: int
    identity: str
    folder: str | None


class _Loaded(NamedTuple):
    data: Any
    digest: str


def _load(load, shard, with_digest):
    data = load(shard)
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
        if found is not None:
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
        write_npz(path, content, {"format": _FORMAT, "digest": digest})
    return Chunk(state, arrays, digest, found=False)


def _as_arrays(what, values):
    if not isinstance(values, dict):
        raise DataError(f"step must return its {what} as a dict of arrays, got a {type(values).__name__}")
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise DataError(f"step returned {what} with {name!r}, which is no array of numbers or text")
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
        parts[part][rest] = array
    return Chunk(parts["state"], parts["arrays"], digest, found=True)


def _joined(chains, after, n_chains, n_chunks):
    """Put the chunks of all chains, in the order of shards and chains, into one array a name."""
    old = [] if after is None else [chunk for row in after.last for chunk in row]
    last = [chunks[-1] if chunks else old[i] for i, chunks in enumerate(chains)]
    drawn = [[c.arrays for c in (chunks[1:] if after is None else chunks)] for chunks in chains]
    if after is not None:
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in after.arrays.items()}
        before = [{name: array[i] for name, array in flat.items()} for i in range(len(old))]
        drawn = [[first, *parts] for first, parts in zip(before, drawn, strict=True)]
    arrays = {}
    for name in drawn[0][0]:
        try:
            whole = np.stack([np.concatenate([part[name] for part in parts]) for parts in drawn])
        except (KeyError, ValueError) as error:
            raise DataError(
                f"chunks returned {name!r} in shapes that do not fit together: {error}"
            ) from error
        arrays[name] = whole.reshape(-1, n_chains, *whole.shape[1:])
    nested = [last[i : i + n_chains] for i in range(0, len(last), n_chains)]
    return ShardRuns(arrays, nested, n_chunks, sum(chunk.found for chunks in chains for chunk in chunks))


# Where chunks are done ------------------------------------------------------------------------------


def _place(engine, n_jobs):
    if not isinstance(engine, str) or (engine not in ("local", "dask") and "://" not in engine):
        raise DataError(
            f"engine={engine!r} is unknown: take 'local', 'dask' or an address such as 'tcp://host:8786'"
        )
    threads = own_threads()  # inside a Dask task everything is local
    if engine == "local" or threads is not None:
        return _Threads(n_jobs if n_jobs is not None or threads is None else threads)
    return _Cluster(engine)


class _Threads:
    """Chunks on threads of this process; a shard's data are loaded when first needed."""

    def __init__(self, n_jobs):
        self.n_jobs = effective_n_jobs(n_jobs)

    def open(self, load, n_shards, with_digest):
        self._load = lambda shard: _load(load, shard, with_digest)
        self._loaded: list[Any] = [None] * n_shards
        self._locks = [threading.Lock() for _ in range(n_shards)]
        self._advancing = threading.Lock()

    def close(self):
        self._loaded = [None] * len(self._loaded)

    def _data(self, shard):
        with self._locks[shard]:
            if self._loaded[shard] is None:
                self._loaded[shard] = self._load(shard)
            return self._loaded[shard]

    def chains(self, work, n_chains, numbers, after, done):
        def chain_of(shard, chain):
            loaded, chunks = self._data(shard), []
            last = None if after is None else after.last[shard][chain]
            for number in numbers:
                last = _chunk(work, loaded, last, shard, chain, number)
                chunks.append(last)
                with self._advancing:
                    done()
            return chunks

        pairs = [(shard, chain) for shard in range(len(self._loaded)) for chain in range(n_chains)]
        return run_tasks([(chain_of, pair) for pair in pairs], self.n_jobs)

    def values(self, function, points):
        shards = range(len(self._loaded))
        return run_tasks([lambda m=m: _value(function, self._data(m), points) for m in shards], self.n_jobs)


class _Cluster:
    """Chunks as plain Dask tasks, each with the one before it and the shard's data as its inputs."""

    def __init__(self, engine):
        import distributed

        self._own = engine != "dask"
        if self._own:
            self._client = distributed.Client(engine, set_as_default=False)
            return
        try:
            self._client = distributed.default_client()
        except ValueError as error:
            raise DataError(
                "engine='dask' is the current Dask client, and there is none: make one with "
                "dask.distributed.Client(...), or give the scheduler's address as engine"
            ) from error

    def open(self, load, n_shards, with_digest):
        try:
            _check_ships("load", load)
        except DataError:
            self.close()
            raise
        submit = self._client.submit
        self._loaded = [submit(_load, load, shard, with_digest, pure=False) for shard in range(n_shards)]

    def close(self):
        self._loaded = []
        if self._own:
            self._client.close()

    def chains(self, work, n_chains, numbers, after, done):
        _check_ships("step", work.step)
        rows = []
        for shard, loaded in enumerate(self._loaded):
            for chain in range(n_chains):
                last, row = None if after is None else after.last[shard][chain], []
                for number in numbers:
                    last = self._client.submit(_chunk, work, loaded, last, shard, chain, number, pure=False)
                    row.append(last)
                rows.append(row)
        return self._gathered(rows, done)

    def values(self, function, points):
        _check_ships("function", function)
        futures = [self._client.submit(_value, function, data, points, pure=False) for data in self._loaded]
        return [row[0] for row in self._gathered([[future] for future in futures], lambda: None)]

    def _gathered(self, rows, done):
        """Wait for rows of futures; cancel what is left if one fails."""
        from distributed import KilledWorker, as_completed

        futures = [future for row in rows for future in row]
        try:
            for future in as_completed(futures):
                if future.status == "error":
                    future.result()
                done()
            return [self._client.gather(row) for row in rows]
        except KilledWorker as error:
            raise WorkerLost(
                "a chunk's workers died again and again: it may need more memory than they have; take more "
                "shards, or larger workers"
            ) from error
        finally:
            unfinished = [future for future in futures if not future.done()]
            if unfinished:
                self._client.cancel(unfinished)


def _check_ships(name, function):
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
