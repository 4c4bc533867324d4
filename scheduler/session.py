"""Where the shards of a program lie and its calls run: one small interface, and the threads of this process."""

from typing import Any, Protocol

from .program import Task
from .threads import run_tasks


class Session(Protocol):
    """What the engine asks of the place where a program runs.

    A *step* is a list of (shard, blocks); no shard and, where blocks travel, no block stands twice in it.

    Attributes
    ----------
    bytes_sent : int
        Bytes of arrays that left a process since the session was opened.
    waiting : float
        Seconds that shards waited for blocks or for one another, summed over workers.
    """

    bytes_sent: int
    waiting: float

    def open(self, program, snapshot=None):
        """Load every shard (and make every travelling block), then lay a `snapshot` over them.

        Called again it begins anew, on the workers that there are then.
        """

    def run(self, round: int, steps: list, messages: list) -> list:
        """Give every shard the messages, carry out the steps in order; partial results in that order.

        Between the steps of one call nothing waits but a shard for its block. Asked again for the same
        round and the same steps after `WorkerLost` and `open`, it does them again.
        """
        ...

    def measure(self, messages: list) -> list:
        """Give every shard the messages, then ask `Program.measure` of each; in the order of shards."""
        ...

    def snapshot(self, messages: list) -> dict[str, Any]:
        """Return, after the messages, copies of what `Program.saved` names and of all travelling blocks.

        Keys are ``"shard-3/residual"`` and ``"block-7"``.
        """
        ...

    def close(self):
        """Let go of everything."""
