"""How long a round of a fit takes on P workers, from measured rates and costs of messages, and what binds it.

Each family of models has a function that counts what a round needs: seconds of work on a thread, bytes that
a worker's link and disk take, messages that a worker waits for one after the other, messages that it handles,
and bytes and messages of the process that calls ``fit``, the hub. `RoundNeeds.on` turns the counts into
seconds for some `Machines`.

The workers of one machine may share its cores (`Machines.cores`). Then all CPU work, that of messages
included, takes turns, and so the model can be compared with sweeps of 16 processes on two cores.
"""

import math
from dataclasses import dataclass

from ...errors import DataError


@dataclass(frozen=True)
class Machines:
    """Machines as measured, or supposed.

    `latency` in seconds one way, `bandwidth` in bytes a second of a worker's link and of the hub's;
    `message` are CPU seconds that one message costs, at both ends together; `hub` CPU seconds of the hub for
    one answer of a worker; `idle` the CPU share that a worker process takes when it has nothing to do;
    `memory` bytes of a worker that data may take, and `stream` bytes a second that all its threads read from
    memory. `disk` are bytes a second of a worker's disk, read or written. `cores` are those that all workers
    share, and their disk, or None if each has its own.
    """

    n_workers: int
    n_threads: int = 1
    latency: float = 3e-4
    bandwidth: float = 1.25e9
    message: float = 1e-3
    hub: float = 1e-3
    idle: float = 0.01
    memory: float = 32e9
    stream: float = 1e11
    disk: float = math.inf
    cores: int | None = None


@dataclass(frozen=True)
class RoundNeeds:
    """What a round needs: of each worker, and of the hub.

    `work` are seconds of one thread in all, and `longest` those of a part of it that no two threads share.
    Each worker receives `blocks` blocks, one after the other, of `travels` bytes in all, while it works for
    the share `hides` of its time; and it waits for `waits` messages, one after the other, of `wait_bytes`
    each. `hub_bytes` pass the hub's link in `answers` answers, one of each worker by default; `asked` of its
    requests count among the messages of workers, and `alone` are seconds that it works between two rounds.
    `held` bytes lie in the memory of all workers, and `held_by_each` in that of each.
    `reads` are bytes that all read from memory, and `most_threads` is how many can work at a time. While its
    threads work, each worker reads and writes `disk` bytes of its disk.
    """

    work: float
    longest: float = 0.0
    blocks: float = 0.0
    travels: float = 0.0
    hides: float = 0.0
    waits: float = 0.0
    wait_bytes: float = 0.0
    hub_bytes: float = 0.0
    answers: float | None = None
    asked: float = 0.0
    alone: float = 0.0
    reads: float = 0.0
    most_threads: float = math.inf
    disk: float = 0.0
    held: float = 0.0
    held_by_each: float = 0.0

    def on(self, machines):
        """Return the seconds of each kind on some machines, a dict: their sum is that of the round."""
        m = machines
        if m.cores is None:
            # Blocks of a machine of its own are handled by the threads that work; a wait is for one message.
            threads = min(m.n_workers * m.n_threads, self.most_threads)
            work = max(self.work / threads / (1 - m.idle), self.reads / (m.n_workers * m.stream))
            handled = self.waits * m.message
            received = self.blocks * m.message
        else:
            free = m.cores - m.idle * m.n_workers
            if free <= 0:
                raise DataError(
                    f"{m.n_workers} idle processes take all of {m.cores} cores: give more cores, or fewer "
                    "processes"
                )
            at_once = min(free, m.n_workers * m.n_threads)
            work = self.work / at_once
            handled = self.messages(m.n_workers) * m.message / at_once
            received = 0.0
        answers = m.n_workers if self.answers is None else self.answers
        way = received + self.blocks * m.latency + self.travels / m.bandwidth
        return {
            "compute": work,
            "row": max(self.longest - work, 0.0),
            "blocks": max(way - self.hides * work, 0.0),
            "messages": handled + self.waits * (m.latency + self.wait_bytes / m.bandwidth),
            "hub": self.alone + m.hub * answers + self.hub_bytes / m.bandwidth + 2 * m.latency,
            "disk": max(self.disk * (1 if m.cores is None else m.n_workers) / m.disk - work, 0.0),
        }

    def messages(self, n_workers):
        """Return how many messages all workers handle."""
        return n_workers * (self.waits + self.blocks) + self.asked

    def cpu_seconds(self, machines):
        """Return the CPU seconds of all processes: also where others share the cores, these stay the same."""
        m, answers = machines, machines.n_workers if self.answers is None else self.answers
        clock = sum(self.on(m).values())
        own = self.work + self.messages(m.n_workers) * m.message + m.idle * m.n_workers * clock
        return own + self.alone + m.hub * answers

    def fits(self, machines):
        """Whether what workers hold fits their memory."""
        return self.held / machines.n_workers + self.held_by_each <= machines.memory


def binding(parts):
    """Return which part takes longest."""
    return max(parts, key=lambda name: parts[name])


def stages(n_workers):
    """Count the messages that a worker waits for in an exchange among all; see `sessions.routes`.

    Examples
    --------
    >>> from stradask.scheduler.planning.rounds import stages
    >>> [stages(n) for n in (1, 2, 3, 16, 1000)]
    [0, 1, 3, 4, 11]
    """
    whole = n_workers.bit_length() - 1
    return whole + 2 * (n_workers != 1 << whole)
