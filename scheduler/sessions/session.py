"""The interface of sessions, which hold the shards of a program and run its calls."""

from collections.abc import Sequence
from typing import Any, Protocol

from ..history import Activity


class Session(Protocol):
    """What the engine calls.

    A *step* is a list of (shard, blocks); no shard and, where blocks travel, no block is in it twice.
    `remote` sessions can raise `WorkerLost`. `bytes_sent` counts the bytes of arrays that left a process
    since the session was opened, `waiting` the seconds that shards waited for blocks or for one another,
    summed over workers; `activity` is empty where there are no workers. `joined` is what the program tells
    of all barriers of the last `run`, of a program that joins; None for nothing.
    """

    remote: bool
    bytes_sent: int
    waiting: float
    activity: Activity
    joined: Any

    def n_threads(self) -> int:
        """Count the threads that work at once, on all workers that there are now."""
        ...

    def open(self, program, snapshot=None):
        """Load every shard, make every travelling block, and lay a `snapshot` over them.

        Called again it begins anew, on the workers that there are then.
        """

    def run(self, round: int, first: int, steps: list, messages: list, later: Sequence = ()) -> list:
        """Give every shard the messages, carry out the steps in order; return partial results in that order.

        The steps are those of the round that begin with number `first` (`Task.step`). Between them nothing
        waits but a shard for its block, and all shards at the barriers of a program that joins. Called again
        for the same round and step, after `WorkerLost` and `open`, it does them again. `later` are the steps
        that follow in the round: blocks may already be moved there.
        """
        ...

    def measure(self, messages: list, method: str = "measure") -> list:
        """Give every shard the messages, then call a method of the program for each."""
        ...

    def measure_blocks(self, messages: list, method: str, *args) -> list:
        """Give every shard the messages, then call ``method(block, value, *args)`` of the program.

        For each travelling block, where it lies; it must not change the value. Results are in the order of
        blocks.
        """
        ...

    def snapshot(self, messages: list) -> dict[str, Any]:
        """Return, after the messages, copies of what `Program.saved` names and of travelling blocks.

        Keys are ``"shard-3/residual"`` and ``"block-7"``; blocks are as `Program.pack` makes them.
        """
        ...

    def copies(self, messages: list) -> Any:
        """Have workers keep what `snapshot` returns, each its own and another one's; return `Copies`.

        None, and nothing done, where the coordinator is to keep it: in one process, on one worker, if it is
        small, or if the program says so.
        """
        ...

    def differing(self, program, trial) -> list[str]:
        """Make the first shard again, where it lies; see `stradask.scheduler.stores.saved.differing`."""
        ...

    def fault(self, program, as_opened, messages, task) -> str:
        """Try a program where its first shard lies; see `stradask.scheduler.stores.trial.fault`.

        Where there are workers, these have the program as it was opened.
        """
        ...

    def close(self):
        """Let go of everything."""
