"""Chains of shards as chunks, each a pure function, on threads of this process or as plain Dask tasks.

A chunk is identified by its numbers (seed, shard, chain, chunk) and depends on the shard's data and the state
that the chunk before left: done again, on any machine, it gives the same bytes. So any worker may die, a run
resumes where it stopped, and the draws do not depend on the number of workers. The data of shards are tasks
too and never scattered, for what is scattered is lost with its worker.
"""

import json
from dataclasses import dataclass

import numpy as np

from ....errors import DataError, in_brief, shortened
from ....scheduler.parameters import check_count
from ....scheduler.tasks import Chain, Load
from ....scheduler.threads import own_threads
from ....scheduler.workers import check_engine, open_workers
from .chunks import Chunk, ChunkWork, load_shard, run_chunk, value_of


@dataclass(frozen=True, eq=False)
class ShardRuns:
    """All chains of all shards.

    `arrays` have the shape (M, chains, draws, ...) and hold the chunks from number 1 on, in their order;
    `last` is for each shard and chain the chunk that the next one follows; `n_chunks` counts those after the
    warm-up, `n_found` those that were read from files.
    """

    arrays: dict[str, np.ndarray]
    last: list[list[Chunk]]
    n_chunks: int
    n_found: int


class ShardPool:
    """The data of shards on the workers or in this process, and functions of them.

    Parameters
    ----------
    load : callable, or sequence of n_shards callables
        ``load(shard)`` reads or makes the data of a shard; the same each time. Of several each one, which
        may hold its shard's data, travels alone.
    n_shards : int
    engine : str or distributed.Client, default="local"
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; a client; or a scheduler's
        address.
    n_jobs : int or None, default=None
        Threads of the local engine.
    checkpoint : path-like, optional
        A folder, of the workers as well, for the chunks' files. A chunk whose file is there is read and not
        done again. The name of a file has a digest of everything that the chunk depends on.
    n_held : int, optional
        Shards whose data the local engine holds at a time; others are loaded again when they are needed. All
        by default.
    workers : sequence of n_shards tuples, optional
        Names or addresses of the Dask workers that alone may load a shard and compute with it; () for any.
        Data of such a shard cannot be sent elsewhere, which a DataError of that worker says.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.bayes.shards.tasks import ShardPool
    >>> def step(data, state, key):  # a chain of 5 draws a chunk that forgets where it was
    ...     rng = np.random.Generator(np.random.Philox(key=key.seed, counter=[0, *key[1:]]))
    ...     return {}, {"draws": rng.normal(data, size=(5, 1))}
    >>> with ShardPool(lambda shard: 10.0 * shard, n_shards=3) as pool:
    ...     runs = pool.run(step, n_chains=2, n_chunks=4, seed=1)
    ...     heights = pool.sum(lambda data, points: -((points[:, 0] - data) ** 2), np.array([[10.0]]))
    >>> runs.arrays["draws"].shape, runs.arrays["draws"].mean(axis=(1, 2, 3)).round(), heights
    ((3, 2, 20, 1), array([ 0., 10., 20.]), array([-200.]))
    """

    def __init__(
        self, load, n_shards, *, engine="local", n_jobs=None, checkpoint=None, n_held=None, workers=None
    ):
        check_count("n_shards", n_shards)
        if "://" in str(checkpoint or ""):
            raise DataError(
                f"checkpoint={shortened(str(checkpoint), 200)} is a URL; give a folder that all workers see"
            )
        self.n_shards, self.checkpoint = int(n_shards), None if checkpoint is None else str(checkpoint)
        check_engine(engine)
        cluster = open_workers(engine, own_threads() if n_jobs is None else n_jobs)
        loads = [load] * self.n_shards if callable(load) else list(load)
        if len(loads) != self.n_shards:
            raise DataError(f"load holds {len(loads)} functions for {self.n_shards} shards: one a shard")
        with_digest = self.checkpoint is not None
        workers = [()] * self.n_shards if workers is None else workers
        if not cluster.remote:
            _check_unbound(workers)
        inputs = [
            Load(load_shard, (load, shard, with_digest, bool(only)), only)
            for shard, (load, only) in enumerate(zip(loads, workers, strict=True))
        ]
        labels = {"name": "the data of shards", "advice": "more shards, or larger workers"}
        self._tasks = cluster.tasks(inputs, n_held=n_held, **labels)
        self._tasks.check_ships("load", loads[0])
        self._tasks.open()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def close(self):
        """Release the data; a client that was the caller's stays open."""
        self._tasks.close()

    def run(
        self,
        step,
        *,
        n_chunks,
        n_chains=1,
        seed=0,
        identity=None,
        fits=None,
        after=None,
        verbose=0,
        on_chunk=None,
    ):
        """Run all chains of all shards: the same bits on any engine and number of workers, resumed or not.

        Parameters
        ----------
        step : callable
            ``step(data, state, key)`` returns the next state and arrays, both dicts of arrays: a pure
            function of its arguments, with random numbers made from `key` alone. Chunk 0 is called with
            ``state=None``: it begins the chain and warms it up, and its arrays are dropped. Arrays have
            one row a draw.
        n_chunks : int
            After the warm-up, those of `after` included.
        identity : dict, optional
            What JSON can hold: the model, the sampler, draws a chunk; all that `step` depends on except its
            arguments. Needed with a checkpoint.
        fits : callable, optional
            ``fits(data, state, arrays, key)`` says whether a file's content can be a result of `step`; if
            not, the chunk is made anew.
        after : ShardRuns, optional
            A finished run with the same arguments but fewer chunks, to go on from.
        on_chunk : callable, optional
            ``on_chunk(shard)`` is called after each chunk, one at a time; an exception of it ends the run.

        Raises
        ------
        DataError
            For arguments that do not fit. An exception of `step` is passed on, with the shard in a note.
        WorkerLost
            If one chunk's workers died again and again: it may need more memory than they have.
        """
        check_count("n_chunks", n_chunks)
        check_count("n_chains", n_chains)
        if self.checkpoint is not None and identity is None:
            raise DataError("with a checkpoint, identity must say what the chunks depend on, got None")
        self._check_after(after, n_chains, n_chunks)
        work = ChunkWork(step, int(seed), _as_json(identity), self.checkpoint, fits)
        numbers = range(0 if after is None else after.n_chunks + 1, n_chunks + 1)
        last = [[None] * n_chains] * self.n_shards if after is None else after.last
        chains = [
            Chain(shard, [(work, shard, chain, number) for number in numbers], last[shard][chain])
            for shard in range(self.n_shards)
            for chain in range(n_chains)
        ]
        n_done = 0

        def done(number):
            nonlocal n_done
            n_done += 1
            if on_chunk is not None:
                on_chunk(chains[number].input)

        self._tasks.check_ships("step", step)
        bar = {"label": "shards", "unit": "chunk", "verbose": verbose}
        try:
            results = self._tasks.chains(run_chunk, chains, done, **bar)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(self._kept(n_done, len(chains) * len(numbers))) from error
        return _joined(results, after, n_chains, n_chunks)

    def _kept(self, n_done, total):
        """Return what Ctrl-C leaves, for its message."""
        kept = "nothing is kept, which a checkpoint would"
        if self.checkpoint is not None:
            kept = (
                f"those are kept in {shortened(self.checkpoint, 200)}, and the same call goes on from there"
            )
        return f"interrupted after {n_done} of {total} chunks of draws; {kept}"

    def _check_after(self, after, n_chains, n_chunks):
        if after is None:
            return
        there = (len(after.last), len(after.last[0]), after.n_chunks)
        if there[:2] != (self.n_shards, n_chains) or n_chunks < after.n_chunks:
            raise DataError(
                f"after has {there[0]} shards, {there[1]} chains and {there[2]} chunks; give the same "
                f"n_shards and n_chains, and no fewer n_chunks; got {self.n_shards}, {n_chains}, {n_chunks}"
            )

    def values(self, function, points):
        """Return ``function(data, points)`` of each shard, a list in the order of shards."""
        self._tasks.check_ships("function", function)
        return self._tasks.map(value_of, [(shard, function, points) for shard in range(self.n_shards)])

    def sum(self, function, points):
        """Add up ``function(data, points)``, one number a point, over the shards.

        In the order of shards, so that the last bits do not depend on the engine; of shape (n_points,).
        """
        total = np.zeros(len(points))
        for shard, values in enumerate(self.values(function, points)):
            part = np.asarray(values, dtype=np.float64)
            if part.shape != total.shape:
                raise DataError(
                    f"shard {shard} returned the shape {part.shape} for {len(points)} points; it must be one "
                    "number a point"
                )
            total += part
        return total


def _check_unbound(workers):
    """Refuse shards of certain workers where this process would read them."""
    for shard, only in enumerate(workers):
        if only:
            raise DataError(
                f"shard {shard} is for the worker {' or '.join(only)} alone (dask.annotate), and would be "
                "read in this process: take engine='dask', outside of any task"
            )


def _as_json(identity):
    try:
        return json.dumps(identity, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise DataError(f"identity must be what JSON can hold: {in_brief(error)}") from error


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
                f"chunks returned {shortened(name)} in shapes that do not fit together: {error}"
            ) from error
        arrays[name] = whole.reshape(-1, n_chains, *whole.shape[1:])
    nested = [last[i : i + n_chains] for i in range(0, len(last), n_chains)]
    return ShardRuns(arrays, nested, n_chunks, sum(chunk.found for chunks in chains for chunk in chunks))
