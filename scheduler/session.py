"""Where the shards of a program lie and its calls run: the interface, and the threads of this process."""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import DataError, ModelFileError
from .history import Activity
from .program import Task
from .threads import effective_n_jobs, run_tasks


class Session(Protocol):
    """What the engine asks of the place where a program runs.

    A *step* is a list of (shard, blocks); no shard and, where blocks travel, no block stands twice in it.

    Attributes
    ----------
    remote : bool
        Whether shards can be lost: whether `WorkerLost` can be raised.
    bytes_sent : int
        Bytes of arrays that left a process since the session was opened.
    waiting : float
        Seconds that shards waited for blocks or for one another, summed over workers.
    activity : Activity
        What each worker did in each step; empty where there are no workers.
    """

    remote: bool
    bytes_sent: int
    waiting: float
    activity: Activity

    def n_threads(self) -> int:
        """Count the threads that work at once, on all workers that there are now."""
        ...

    def open(self, program, snapshot=None):
        """Load every shard (and make every travelling block), then lay a `snapshot` over them.

        Called again it begins anew, on the workers that there are then.
        """

    def run(self, round: int, first: int, steps: list, messages: list, later: Sequence = ()) -> list:
        """Give every shard the messages, carry out the steps in order; partial results in that order.

        The steps are those of the round that begin with number `first` (`Task.step`). Between the steps of
        one call nothing waits but a shard for its block. Asked again for the same round and step after
        `WorkerLost` and `open`, it does them again. Of the steps that come `later` in the round blocks may
        be taken to their places beforehand.
        """
        ...

    def measure(self, messages: list, method: str = "measure") -> list:
        """Give every shard the messages, then ask a method of the program of each; in their order."""
        ...

    def snapshot(self, messages: list, *, blocks_only: bool = False) -> dict[str, Any]:
        """Return, after the messages, copies of what `Program.saved` names and of all travelling blocks.

        Keys are ``"shard-3/residual"`` and ``"block-7"``; blocks are as `Program.pack` makes them.
        """
        ...

    def close(self):
        """Let go of everything."""


class LocalSession:
    """The reference: shards lie in this process, blocks and messages go by reference.

    The tasks of a step run on `n_jobs` threads of the process's pool.

    Parameters
    ----------
    n_jobs : int or None, default=None
        See `stradask.scheduler.threads.effective_n_jobs`.

    Examples
    --------
    See `stradask.scheduler.run`.
    """

    remote = False
    bytes_sent = 0
    waiting = 0.0

    def __init__(self, n_jobs=None):
        self.n_jobs = effective_n_jobs(n_jobs)
        self.activity = Activity()

    def open(self, program, snapshot=None):
        """Load every shard and make every travelling block."""
        self.program = program
        loads = [(program.load, (data,)) for data in program.shards]
        self.states = run_tasks(loads, program.loads_at_once or self.n_jobs)
        for state in self.states:
            check_saved(program, state)
        self._first = self._ahead = set[int]()
        self.blocks: Any = [program.block(b) for b in range(program.n_blocks)] if program.travels else None
        if snapshot is not None:
            check_complete(program, snapshot)
        for name, array in (snapshot or {}).items():
            self._lay_over(name, array)

    def _lay_over(self, name, array):
        """Put an array of a snapshot where it belongs; it may come from a file."""
        place, _, key = name.partition("/")
        kind, _, number = place.partition("-")
        if kind == "block":
            self.blocks[int(number)] = laid_over(self.program, int(number), array, self.blocks[int(number)])
        else:
            there = self.states[int(number)]
            check_same_form(name, array, there[key])
            there[key] = array.copy()

    def run(self, round, first, steps, messages, later=()):
        """Carry out steps one after another."""
        self._sync(messages)
        if self.blocks is not None and steps:
            self._read_ahead(first, steps, later)
        return [
            partial
            for number, step in enumerate(steps, first)
            for partial in run_tasks([(self._update, (round, number, *pair)) for pair in step], self.n_jobs)
        ]

    def _read_ahead(self, first, steps, later):
        """Tell the program, once for each turn, of the shards that come after those of these steps."""
        here = {shard for step in steps for shard, _ in step}
        if not first:
            self._first = here  # they come again in the next round
        parties = ({shard for shard, _ in step} for step in later)
        after = next((party for party in parties if party != here), self._first)
        if after != here and after != self._ahead:
            for shard in after - here:
                self.program.read_ahead(self.states[shard])
        self._ahead = after

    def _update(self, round, step, shard, blocks):
        value = None if self.blocks is None else self.blocks[blocks]
        return self.program.update(self.states[shard], Task(round, step, shard, blocks, value))

    def measure(self, messages, method="measure"):
        """Ask a method of the program of each shard."""
        self._sync(messages)
        asked = getattr(self.program, method)
        return run_tasks([(asked, (state,)) for state in self.states], self.n_jobs)

    def snapshot(self, messages, *, blocks_only=False):
        """Copy what updates change."""
        self._sync(messages)
        arrays = {
            f"shard-{s}/{name}": state[name].copy()
            for s, state in enumerate(self.states)
            for name in self.program.saved
            if not blocks_only
        }
        pack = self.program.pack
        arrays.update((f"block-{b}", pack(b, value).copy()) for b, value in enumerate(self.blocks or ()))
        return arrays

    def n_threads(self):
        """Count the threads that work at once."""
        return self.n_jobs

    def close(self):
        """Let go of the shards."""
        self.states = self.blocks = None

    def _sync(self, messages):
        for message in messages:
            run_tasks([(self.program.sync, (state, message)) for state in self.states], self.n_jobs)


def check_saved(program, state):
    """Check that a state has the arrays that `Program.saved` names."""
    for name in program.saved:
        if not isinstance(state, dict) or not isinstance(state.get(name), np.ndarray):
            raise DataError(
                f"saved names {name!r}, but the state that {type(program).__name__}.load makes has no such "
                "array"
            )


def check_complete(program, names):
    """See that a snapshot has arrays of these names: all that a program keeps, and no others.

    What is not in it would silently begin anew.
    """
    wanted = {f"shard-{s}/{name}" for s in range(len(program.shards)) for name in program.saved}
    if program.travels:
        wanted |= {f"block-{b}" for b in range(program.n_blocks)}
    if odd := wanted ^ set(names):
        raise ModelFileError(f"the checkpoint is of other shards or blocks: {min(odd)}; remove the folder")


def check_same_form(name, array, there):
    """Hold an array of a snapshot, which may come from a file, against the one that it replaces."""
    if array.shape != there.shape or array.dtype != there.dtype:
        raise ModelFileError(
            f"the checkpoint's array {name} is {array.dtype}{array.shape}, but the program has "
            f"{there.dtype}{there.shape}; remove the folder to start anew"
        )


def laid_over(program, block, packed, there):
    """Make a block of its saved form, held against the one that it replaces; an array keeps its form."""
    if type(there) is np.ndarray:
        check_same_form(f"block-{block}", packed, program.pack(block, there))
    return program.unpack(block, packed.copy())


def own_threads():
    """Threads of the Dask worker in whose task this runs, where every session is local; None elsewhere."""
    if "distributed" not in sys.modules:
        return None
    import distributed

    try:
        return distributed.get_worker().state.nthreads
    except ValueError:
        return None


def open_session(engine, n_jobs=None):
    """Make the session that an estimator's parameter `engine` names.

    Parameters
    ----------
    engine : str or Session
        ``"local"``: threads of this process; ``"dask"``: the current Dask client; an address of a
        Dask scheduler (``"tcp://host:8786"``). A session is passed on as it is.
    n_jobs : int or None, default=None
        Threads, on each worker where there are workers.

    Returns
    -------
    Session
        Not opened yet.

    Raises
    ------
    DataError
        For anything else.
    """
    if not isinstance(engine, str):
        if not hasattr(engine, "snapshot"):
            raise DataError(f"engine must be 'local', 'dask' or a scheduler's address, got {engine!r}")
        return engine
    if engine == "local":
        return LocalSession(n_jobs)
    if engine != "dask" and "://" not in engine:
        raise DataError(
            f"engine={engine!r} is unknown: take 'local', 'dask' or an address such as 'tcp://host:8786'"
        )
    from .cluster import cluster_session

    return cluster_session(engine, n_jobs)
