"""Where the shards of a program lie and its calls run: the interface, and who implements it."""

from collections.abc import Sequence
from typing import Any, Protocol

from ...errors import DataError, shortened
from ..history import Activity
from .local import LocalSession


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

    def differing(self, program, trial) -> list[str]:
        """Make the first shard again, where it lies; see `stradask.scheduler.stores.restoring.differing`."""
        ...

    def close(self):
        """Let go of everything."""


def check_engine(engine):
    """Refuse what is neither "local" nor "dask" nor an address."""
    if not isinstance(engine, str) or (engine not in ("local", "dask") and "://" not in engine):
        raise DataError(
            f"engine={shortened(engine)} is unknown: take 'local', 'dask' or an address such as 'tcp://host:8786'"
        )


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
            raise DataError(
                f"engine must be 'local', 'dask' or a scheduler's address, got {shortened(engine)}"
            )
        return engine
    check_engine(engine)
    if engine == "local":
        return LocalSession(n_jobs)
    from .cluster import cluster_session

    return cluster_session(engine, n_jobs)
