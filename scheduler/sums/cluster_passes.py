"""Passes over the portions of a sum on a Dask cluster: carries out the instructions of `portions`."""

import asyncio
import concurrent.futures
import math
import time
from typing import Any

from ...errors import WorkerLost
from ..parameters import ATTEMPTS
from ..sessions.clients import take_exception
from ..sessions.payloads import payload_bytes, wired
from .portions import Answered, Begin, Count, Failed, Joined, Lost, Order, Portions, Tick, TreeSum, Work
from .summed import Trouble, raise_trouble

_GRAIN, _GRAIN_PER_BYTE = 0.005, 4e-9  # seconds: of an order, four times what its answer takes at 1 GB/s


class ClusterPasses:
    """Passes on the workers of a Dask cluster.

    x goes to each worker once a pass, and one partial sum comes back for each order. The portions of a lost
    worker are loaded by others and computed in the same pass; if it was the only one, the pass goes on with
    workers that join. With `ordered`, sums have the same bits, whichever worker computes. `n_taken_over`
    counts the lost workers.
    """

    def __init__(self, session, program, *, ordered=False):
        self.session, self.program, self.ordered = session, program, ordered
        self.machine = Portions(len(program.shards))
        self.n_taken_over = 0
        self._calls: dict[asyncio.Future, Order] = {}  # on their way, those of earlier passes included
        self._begun: Any = None  # a future of the pass that `begin` made
        self._over = False
        self._open()

    def _open(self):
        for name in list(self.machine.workers):
            self.machine.handle(Lost(0.0, name))
        self._end_calls()
        self.session.open(self.program, keeps_data=True, at_once=True)
        self.machine.late = max(self.machine.late, self.session.load_seconds)
        self._extra: dict[str, set] = {}  # portions loaded in addition to a worker's own

    def run(self, x):
        """Return the sums of value and gradient at x.

        Raises NonFiniteObjective, and WorkerLost if five times all workers were lost.
        """
        self._settle()
        return self._run(x)

    def begin(self, x):
        """Begin a pass; return a future of its sums. The next pass waits for its end."""
        self._settle()
        thread = concurrent.futures.ThreadPoolExecutor(1, "stradask-pass")
        self._begun = thread.submit(self._run, x)
        thread.shutdown(wait=False)
        return self._begun

    def _settle(self):
        if self._begun is not None:
            concurrent.futures.wait([self._begun])  # an error is raised again where the sums are requested

    def _run(self, x):
        self._total = TreeSum(self.machine.n, ordered=self.ordered)
        self.machine.grain = _GRAIN + _GRAIN_PER_BYTE * self.program.answer_bytes(x)
        before = self.machine.round
        for _ in range(ATTEMPTS):
            try:
                event = Begin if self.machine.round == before else Joined
                trouble = self.session.sync(self._pass, x, event)
                break
            except WorkerLost as error:
                if self._over:
                    raise
                lost = error
                self._open()
        else:
            raise WorkerLost(
                f"{ATTEMPTS} times all workers were lost in one pass; does a portion need more memory than "
                f"a worker has? ({lost})"
            ) from lost
        if trouble is not None:
            raise_trouble(trouble)
        return self._total.value, self._total.vector

    def close(self):
        """Release the portions on the workers."""
        self._over = True
        try:
            self._settle()
        finally:  # an interrupted wait leaves nothing behind
            self._end_calls()
            self.session.close()

    def _end_calls(self):
        if self._calls:
            self.session.workers.client.sync(self._forget, list(self._calls))

    async def _forget(self, calls):
        """Stop waiting for calls whose results are not needed."""
        for call in calls:
            del self._calls[call]
            call.cancel()
            take_exception(call)
        await asyncio.wait(calls, timeout=1)  # closing a connection to a worker that hangs may hang

    # On the client's event loop -----------------------------------------------------------------------

    async def _pass(self, x, event):
        """Carry out the instructions of the state machine until every portion has been counted."""
        self.session.check_shown()
        now, machine = asyncio.get_running_loop().time, self.machine
        self._sent_to: set[str] = set()  # workers that have x
        guards = {asyncio.ensure_future(self.session.workers.watch(m)): m for m in self.session.threads}
        about = (self.program.kind(x),) if event is Begin else ()
        instructions = machine.handle(event(now(), self._holdings(), *about))
        try:
            while True:
                for order in (i.order for i in instructions if isinstance(i, Work)):
                    self._calls[asyncio.ensure_future(self._work(order, x))] = order
                if machine.finished:
                    return None
                if not machine.workers:
                    raise WorkerLost("no worker is left")
                wait = None if math.isinf(machine.wake) else max(machine.wake - now(), 0.0)
                pending = [*self._calls, *(g for g, m in guards.items() if m in machine.workers)]
                done, _ = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                instructions = [] if done else machine.handle(Tick(now()))
                for task in done:
                    if task in guards:  # which end only when a worker is silent
                        instructions += self._lost(guards[task], now())
                        continue
                    new, trouble = self._taken(task, now())
                    if trouble is not None:
                        return trouble
                    instructions += new
        finally:
            for guard in guards:
                guard.cancel()
            await asyncio.gather(*guards, return_exceptions=True)

    def _holdings(self):
        """Return, for each worker, its threads and the portions that it holds."""
        session = self.session
        held: dict[str, set] = {m: set(self._extra.get(m, ())) for m in session.threads}
        for portion, worker in enumerate(session.shard_at):
            if worker in held:
                held[worker].add(portion)
        return {m: (n_threads, held[m]) for m, n_threads in session.threads.items()}

    def _taken(self, call, now):
        """Handle a call that has ended; return instructions, and a `Trouble` or None."""
        order = self._calls.pop(call)
        try:
            found, seconds = call.result()
        except WorkerLost:
            return self._lost(order.worker, now), None
        except BaseException:
            self.machine.handle(Failed(now, order.number))
            raise
        if isinstance(found, Trouble):
            instructions = self.machine.handle(Failed(now, order.number))
            return instructions, found if order.round == self.machine.round else None
        instructions = self.machine.handle(Answered(now, order.number, seconds))
        if any(isinstance(i, Count) for i in instructions):
            self._count(order, found)
        return instructions, None

    def _count(self, order, found):
        self.session.bytes_sent += payload_bytes(found)
        self._total.add(order.first, order.size, *found, owned=True)

    def _lost(self, worker, now):
        """Go on without a worker."""
        if worker not in self.machine.workers:
            return []
        self.n_taken_over += 1
        for known in (self.session.threads, self.session.keep_alives, self._extra):
            known.pop(worker, None)
        return self.machine.handle(Lost(now, worker))

    async def _work(self, order, x):
        """Send an order, and before it the portions that its worker lacks."""
        worker, session = order.worker, self.session
        for portion in range(order.first, order.last):
            home = session.shard_at[portion]
            if worker != home and portion not in self._extra.get(worker, ()):
                await session.load(portion, worker, {})
                if home in session.threads:
                    self._extra.setdefault(worker, set()).add(portion)
                else:
                    session.shard_at[portion] = worker
        args = wired(("answer", order.round, order.first, order.last, self.ordered))
        message = {"epoch": session.epoch, "method": "ask", "args": args, "needs": order.round}
        began = time.time()
        if x is not None and worker not in self._sent_to:  # what goes first takes x along
            self._sent_to.add(worker)
            session.bytes_sent += payload_bytes(x)
            message["broadcast"] = wired(x)
        found, seconds = await session.ask(worker, "call", **message)
        sent = 0 if isinstance(found, Trouble) else payload_bytes(found)
        session.reporter.work(worker, "pass", began, time.time(), working=seconds, n_bytes=sent)
        return found, seconds
