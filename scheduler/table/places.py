"""The shards and replicas of a table on threads of this process, in real or simulated time."""

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from ...errors import DataError
from ..parameters import numbers_of
from ..threads import single_threaded_blas
from .table import ParameterTable


class Host:
    """Shards of this process; any thread may deliver messages to them."""

    def __init__(self, shards):
        self.shards = shards
        self._locks = {number: threading.Lock() for number in shards}
        self._waiting: dict[int, dict[int, Future]] = {number: {} for number in shards}
        self._tickets = itertools.count()
        self.failure: BaseException | None = None

    def deliver(self, shard, message):
        """Give a message to a shard; return the future of its answer."""
        future: Future = Future()
        with self._locks[shard]:
            if self.failure is not None:
                future.set_exception(self.failure)
                return future
            ticket, waits = next(self._tickets), self._waiting[shard]
            waits[ticket] = future
            ready = [(waits.pop(to), answer) for to, answer in self.shards[shard].receive(ticket, message)]
        for waiting, answer in ready:
            if waiting.set_running_or_notify_cancel():
                waiting.set_result(answer)
        return future

    def close(self, error):
        """Wake all waiting threads, with an error."""
        self.failure = error
        for number, lock in self._locks.items():
            with lock:  # no waiter is added from here on
                futures, self._waiting[number] = self._waiting[number].values(), {}
            for future in futures:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)


class LocalTable:
    """Holds the shards of a table and runs its replicas; `open` begins anew after a loss.

    Here replicas are threads of this process, and one shard is enough; `n_shards` is for tests. On a cluster
    there is `cluster.ClusterTable`.
    """

    remote = False  # whether `WorkerLost` can come

    def __init__(self, n_shards: int = 1) -> None:
        self._n_shards = n_shards
        self._threads: Any = None
        self._host: Any = None
        self._calls: list[Future] = []

    def open(self, design: Any, cells: Any, clock: Any) -> Any:
        """Lay out the cells over shards."""
        self._design, self._clock = design, clock
        self._starts = design.starts(self._n_shards)
        spans = itertools.pairwise(self._starts)
        self._host = Host({n: design.shard(cells[a:b].copy(), a, clock) for n, (a, b) in enumerate(spans)})
        # Their own threads: those of a pool that is shared could all be taken by replicas that wait.
        self._threads = ThreadPoolExecutor(design.n_replicas, "stradask-replica")

    def start(self, function: Any, tasks: Any) -> Any:
        """Call the function on threads, with a view and its task for every replica."""
        views = [self._view(number) for number in range(self._design.n_replicas)]
        pairs = zip(views, tasks, strict=True)
        self._calls = [self._threads.submit(self._call, function, *pair) for pair in pairs]
        return self._calls

    def _call(self, function, view, task):
        return call_replica(function, view, task)

    def _view(self, number):
        state = self._design.replica(number, self._starts, self._clock)
        return ParameterTable(state, self._design.n_replicas, self._host.deliver)

    def deliver(self, shard: int, message: Any) -> Any:
        """Give a message to a shard."""
        return self._host.deliver(shard, message)

    def n_shards(self) -> int:
        """Count the shards."""
        return self._n_shards

    def stop(self, error: Any) -> None:
        """Wake the replicas with an error and wait for their ends."""
        if self._host is not None:
            self._host.close(error)
        wait(self._calls)

    def close(self) -> None:
        """Let go of everything."""
        if self._threads is not None:
            self._threads.shutdown()


def call_replica(function, view, task):
    """Run a replica to its end, and send its last changes."""
    with single_threaded_blas(), view._timed():
        result = function(view, task)
    view._leave()
    return result


# Simulated time ---------------------------------------------------------------------------------------


class SimulatedClock(LocalTable):
    """An `engine` in which replicas take the time that is set for them: a run is repeatable to the bit.

    One replica runs at a time, the one whose simulated time is least; the order of reads and updates depends
    on nothing else. What they compute is computed in earnest.

    Parameters
    ----------
    seconds : sequence of float, or callable
        Simulated seconds that each replica needs for a clock; ``seconds(replica, clock)`` for what varies.
    latency : float, default=0.0
        Seconds that a read takes if it asks the shards.

    Examples
    --------
    A fast replica may be one clock ahead of the slow one, and then waits for it.

    >>> import numpy as np
    >>> from stradask.scheduler import SimulatedClock, run_replicas
    >>> def work(table, task):
    ...     times = []
    ...     for _ in range(4):
    ...         table.get(0)
    ...         table.clock()
    ...         times.append(table.seconds)
    ...     return times
    >>> engine = SimulatedClock([1.0, 3.0])
    >>> run_replicas(work, [None, None], np.zeros((1, 1)), staleness=1, engine=engine).results
    [[1.0, 2.0, 4.0, 7.0], [3.0, 6.0, 9.0, 12.0]]
    """

    def __init__(self, seconds: Any, latency: float = 0.0) -> None:
        super().__init__()
        self._seconds = seconds if callable(seconds) else None
        self._speeds = [] if callable(seconds) else numbers_of("seconds", seconds).tolist()
        self._latency = latency
        if self._speeds and not min(self._speeds) > 0:
            raise DataError(f"seconds must be above 0, got {min(self._speeds)}")

    def open(self, design: Any, cells: Any, clock: Any) -> Any:
        """Lay out the cells and set all times to zero."""
        if self._seconds is None and len(self._speeds) != design.n_replicas:
            raise DataError(
                f"seconds has {len(self._speeds)} entries, but there are {design.n_replicas} tasks"
            )
        super().open(design, cells, clock)
        self._turns = _Turns(design.n_replicas)

    def start(self, function: Callable[..., Any], tasks: Any) -> Any:
        """Start the threads, and let the first run."""
        calls = super().start(function, tasks)
        self._turns.pass_on()
        return calls

    def _view(self, number):
        state = self._design.replica(number, self._starts, self._clock)
        send, turns = self._host.deliver, self._turns
        return _SimulatedTable(state, self._design.n_replicas, send, turns, self._cost, self._latency)

    def _cost(self, replica, clock):
        return self._speeds[replica] if self._seconds is None else float(self._seconds(replica, clock))

    def _call(self, function, view, task):
        self._turns.await_turn(view.replica)
        try:
            return call_replica(function, view, task)
        finally:
            self._turns.pass_on()

    def stop(self, error: Any) -> None:
        """Wake the replicas with an error and wait for their ends."""
        if self._host is not None:
            self._turns.stop(error)
        super().stop(error)


class _Turns:
    """Gives the turn to the replica whose time is least among those that do not wait for an answer."""

    def __init__(self, n_replicas):
        self.times = [0.0] * n_replicas
        self._ready = [(0.0, replica) for replica in range(n_replicas)]
        self._signals = [threading.Event() for _ in range(n_replicas)]
        self._running = 0
        self._failure: BaseException | None = None

    def spend(self, replica, seconds):
        """Let time pass for a replica."""
        self.times[replica] += seconds
        heapq.heappush(self._ready, (self.times[replica], replica))
        self.pass_on()
        self.await_turn(replica)

    def park(self, replica, future):
        """Let others run until an answer has come."""
        future.add_done_callback(lambda _: self._wake(replica))
        self.pass_on()
        self.await_turn(replica)

    def _wake(self, replica):
        """Advance a replica, whose answer has come, to the time of the running one."""
        self.times[replica] = max(self.times[replica], self.times[self._running])
        heapq.heappush(self._ready, (self.times[replica], replica))

    def pass_on(self):
        """Let the next replica run."""
        if self._ready and self._failure is None:
            _, self._running = heapq.heappop(self._ready)
            self._signals[self._running].set()

    def await_turn(self, replica):
        """Wait to be let on."""
        self._signals[replica].wait()
        if self._failure is not None:
            raise self._failure
        self._signals[replica].clear()

    def stop(self, error):
        """End all that wait."""
        self._failure = error
        for signal in self._signals:
            signal.set()


class _SimulatedTable(ParameterTable):
    """A view that passes the turn on whenever its time advances."""

    def __init__(self, state, n_replicas, send, turns, cost, latency):
        super().__init__(state, n_replicas, send)
        self._turns, self._cost, self._latency = turns, cost, latency

    @property
    def seconds(self):
        """Simulated seconds since the run began."""
        return self._turns.times[self.replica]

    def clock(self):
        """End a clock when its time has passed."""
        self._turns.spend(self.replica, self._cost(self.replica, self.now))
        super().clock()

    def _answers(self, asked):
        if self._latency:
            self._turns.spend(self.replica, self._latency)
        return super()._answers(asked)

    def _wait(self, future):
        if not future.done():
            self._turns.park(self.replica, future)
        return future.result()
