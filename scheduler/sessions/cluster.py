"""Sessions on Dask: shards are on workers, which are called directly; blocks travel between workers."""

import asyncio
import logging
import time
import uuid
from typing import Any

from ..._version import __version__
from ...errors import StradaskError, WorkerLost
from ..dashboard.reports import Reports
from ..history import Activity
from ..parameters import ATTEMPTS
from ..program import barriers as program_barriers
from ..stores.copies import SMALL, Copies, other_holders
from ..stores.saved import check_complete, saved_block, saved_shard, twin_of
from ..stores.shared_store import StoredState
from ..stores.trial import copied, without_shards
from ..threads import effective_n_jobs
from .clients import scheduler_named
from .keep_alive import end_keep_alives, keep_alive_key, start_keep_alive
from .migration import Moves
from .payloads import payload_bytes, wired
from .placement import ShardData, holds_dask, place, stays
from .routes import plan_routes
from .worker import NAME
from .workers import Background

_PATIENCE = 1.0  # seconds that workers which have just joined have to be ready, when others are
_log = logging.getLogger("stradask")


class ClusterSession:
    """Shards on the workers of a Dask cluster (see `LocalSession` of what the engine calls).

    Each worker gets its part of a round in one call. A travelling block goes straight to the worker that
    needs it next, while this one works on another. Results are put in the order of steps and shards, so they
    are bitwise those of `LocalSession`, wherever the shards are.

    Messages and partial results are arrays, plain values, scipy sparse matrices, and tuples, lists and dicts
    of them. A program goes to the workers once, without its `shards`; each entry of these only to the worker
    of the shard. Entries may contain Dask futures, delayed values and arrays: their data are used on their
    worker.

    ``dask.config`` ``stradask.timeout`` (default "30s") is the time without an answer after which a worker
    counts as lost, and for which a session waits for workers.

    Parameters
    ----------
    workers : Workers
    n_jobs : int or None
        Threads of each worker, as many as it has when None.

    Attributes
    ----------
    threads : dict of str to int
        Threads of the workers that take part, by address.
    shard_at, block_at : list of str
        Where each shard and block is.
    stamps : list of int
        How often each block was moved.
    is_complete : bool
        Whether all shards and blocks are where they should be.
    bytes_sent : int
        Bytes of the arrays in messages (once for each worker), in partial results, and of travelling blocks.
    waiting : float
        Seconds that workers waited for blocks, and for the last of them to answer.
    """

    remote = True

    def __init__(self, workers, n_jobs=None):
        effective_n_jobs(n_jobs)  # refuses what the workers would
        self.workers, self._n_jobs = workers, n_jobs
        self.id, self.epoch, self.is_open = uuid.uuid4().hex, -1, False
        self.threads: dict[str, int] = {}
        self.shard_at: list[str] = []
        self.block_at: list[str] = []
        self.stamps: list[int] = []
        self.keep_alives: dict[str, tuple] = {}  # worker: key, future
        self.background = Background()
        self.moves = Moves(self)
        self.bytes_sent, self.waiting, self._serial = 0, 0.0, 0
        self._data: Any = None  # `ShardData` while it is needed
        self.is_complete = False
        self._shown: Any = None  # a task that ends when the scheduler shows the workers busy
        self._program: list = []  # packed, for workers that come later
        self._opened: Any = None  # the program
        self._since = (0, 0)  # the first epoch with this program, and the first one of this opening
        self._kept: dict[int, str] = {}  # shards that workers have, and need not read again
        self._warm: set[str] = set()  # workers that have had a worker state
        self._late: dict[str, float] = {}  # how long each worker waited for the last answer of a call
        self.joined: Any = None
        self._n_copies = 0
        self.load_seconds = 0.0  # that the slowest shard took to be loaded
        self.activity = Activity()

    # The interface ----------------------------------------------------------------------------------

    def open(self, program, snapshot=None, *, keeps_data=False, at_once=False):
        """Load every shard on the workers that there are, and lay a `snapshot` over them.

        When the same program is opened again, and when a worker is lost meanwhile, the others keep the shards
        that they have read (see `Program.renew`). With `keeps_data` Dask's own copy of the shards stays as
        well, for workers that take one over later. With `at_once` it does not wait until the scheduler shows
        the workers busy: the caller must tolerate that a loss goes unnoticed, and call `check_shown` before
        each call.
        """
        if snapshot is not None:
            stored = isinstance(snapshot, (StoredState, Copies))
            check_complete(program, snapshot.names(program.saved) if stored else snapshot)
        self._join()
        # Before the next: Dask makes anew what a worker took with it only if no task holds it.
        self._data = None
        with scheduler_named(self.workers.client):
            self._data = ShardData(program.shards, self.workers.scheduler, self.workers.client)
            self._open(program, self._data, snapshot or {}, keeps_data, at_once)
        self.workers.warn()
        if not keeps_data:
            self._data = None

    def run(self, round, first, steps, messages, later=()):
        """Carry out the steps; return partial results in their order."""
        partials = self.sync(self._run, round, first, steps, messages, later)
        self.workers.warn()
        return partials

    def measure(self, messages, method="measure"):
        """Call a method of the program for each shard."""
        return self.sync(self._measured, "measure", messages, method)

    def measure_blocks(self, messages, method, *args):
        """Call a method of the program for each travelling block."""
        return self.sync(self._measured, "measure_blocks", messages, method, args)

    def snapshot(self, messages):
        """Gather the saved arrays and the blocks."""
        return self.sync(self._merged, "snapshot", messages)

    def copies(self, messages):
        """Have workers keep a snapshot, if it is large and there are two of them or more."""
        return self.sync(self._copies, messages)

    def forget_copies(self, before):
        """Have workers let go of snapshots of lower numbers, some time soon."""
        self.workers.client.loop.add_callback(self._forget, before)

    def has(self, workers):
        """Whether all these workers take part."""
        return self.threads.keys() >= workers

    def store(self, messages, url, folder):
        """Have workers write their parts of a snapshot to a shared place; return the sizes."""
        return self.sync(self._merged, "store", messages, url, folder)

    def differing(self, program, trial):
        """Make the first shard again on its worker, unless Dask would have to compute it."""
        return [] if holds_dask(program.shards[0]) else self.sync(self._differing, program, trial)

    def fault(self, program, as_opened, messages, task):
        """Try the program on copies where the first shard is, unless it is too large to be sent."""
        program = copied(without_shards(program))
        asked = "fault", program, messages, task
        return "" if program is None else self.sync(self._at_first_shard, *asked)

    def probe(self, checkpoint):
        """Check that every worker sees the place of a `SharedCheckpoint`."""
        self._join()
        self.workers.client.sync(self._probe, checkpoint)

    def n_threads(self):
        """Count the threads of the workers that take part, or of all; at least 1."""
        self._join()
        threads = self.threads or self.threads_of(self.workers.client.nthreads())
        return max(sum(threads.values()), 1)

    def threads_of(self, workers):
        """Threads of workers by address: `n_jobs`, or all; of a negative one the worker knows how many."""
        asked = effective_n_jobs(self._n_jobs) if (self._n_jobs or 0) > 0 else None
        return {worker: n if asked is None else asked for worker, n in dict(workers).items()}

    def close(self):
        """Release the workers; the caller's client stays open."""
        if not self.is_open:
            return
        self.is_open = False
        self.reporter.close()
        try:
            self.workers.client.sync(self._leave)
        finally:
            self.workers.leave(self)

    def _join(self):
        if not self.is_open:
            self.lock = asyncio.Lock()  # of one call or move at a time
            self.workers.join(self)
            self.reporter, self.is_open = Reports(self.workers.client), True

    async def _leave(self):
        self.background.cancel()
        await self.reporter.end()
        if self.workers.client.status == "running":  # else they end with the scheduler, or their keep-alives
            await self.drop(self.threads)
        end_keep_alives(self.keep_alives)

    async def drop(self, workers):
        """End what the session has on workers."""
        await self.workers.drop(workers, session=self.id)

    def worker_joined(self, worker):
        """Hear of a worker that has joined."""
        self._warm.discard(worker)
        self.moves.newcomers.add(worker)

    def worker_left(self, worker, retires):
        """Hear of a worker that was lost, or retires."""
        self._warm.discard(worker)
        self.moves.newcomers.discard(worker)
        if retires and worker in self.threads:
            self.background.start(self.moves.relieve())
        elif retires and worker in self.keep_alives:  # it has a worker state, and no shards yet
            self.background.start(self.drop([worker]))

    def sync(self, function, *args):
        """Call a coroutine function on the client's event loop, one at a time."""
        if not self.is_open:
            raise StradaskError("the session is not open")
        with scheduler_named(self.workers.client):
            return self.workers.client.sync(self._locked, function, *args)

    async def _locked(self, function, *args):
        async with self.lock:
            self.workers.check_scheduler()  # workers go on for some seconds without it
            if not self.is_complete:
                raise WorkerLost("shards were lost; the session must be opened again")
            return await function(*args)

    def check_shown(self):
        """Raise what went wrong with showing the scheduler that workers are busy, if known."""
        if self._shown.done() and not self._shown.cancelled():
            self._shown.result()

    # Coming and going of workers ------------------------------------------------------------------------

    async def _assemble(self, program, n_shards):
        """Begin an epoch: new worker states on all workers that run and answer."""
        async with self.lock:
            self.is_complete = False
            self.epoch += 1
            if self._shown is not None:
                self._shown.cancel()
            self._kept = {}
            await self._make_worker_states(program)
            self._kept = stays(n_shards, self.threads, self._kept)

    async def _make_worker_states(self, program):
        available, self._program = self.threads_of(await self.workers.find(self.epoch > 0)), program
        self.moves.newcomers = (self.moves.newcomers | self.workers.newcomers) - available.keys()
        # Those that had no worker state must import the program first: where others had one they are not
        # waited for.
        self.threads = {worker: n for worker, n in available.items() if worker in self._warm} or available
        cold = {worker: n for worker, n in available.items() if worker not in self.threads}
        # Keep-alives are new in every epoch: a worker that came back under its old address may have finished
        # the old task. The old ones are released at the end, and worker states elsewhere end with them.
        before, self.keep_alives = self.keep_alives, {}
        preparing = [self.background.start(self.moves.prepare(w, self.epoch, n)) for w, n in cold.items()]
        await self.open_workers(self.threads)
        end_keep_alives(before)
        if preparing:
            await asyncio.wait(preparing, timeout=_PATIENCE)
            self.moves.take_ready()

    async def open_workers(self, workers):
        """Make worker states, and their keep-alive tasks."""
        message = {"version": __version__, "program": self._program, "n_jobs": self._n_jobs}
        message["same"], epoch = self._since, self.epoch

        async def make_worker_state(worker):
            key = keep_alive_key(self.id, worker, epoch)
            held = await self.ask(worker, "open", epoch=epoch, keep_alive=key, **message)
            self._warm.add(worker)
            if epoch == self.epoch:  # else the state of a worker that joined, while the others began anew
                self._kept.update(dict.fromkeys(held, worker))
                self.keep_alives[worker] = start_keep_alive(self.workers.client, NAME, self.id, worker, epoch)

        await self.workers.gather(map(make_worker_state, workers), workers)

    async def _be_seen(self):
        """Wait until the scheduler shows all workers busy, and so has handled our earlier messages.

        From here on we hear of every worker that leaves; those that have left already are found here.
        """
        end = time.monotonic() + self.workers.timeout
        while time.monotonic() < end:
            shown = await self.workers.client.scheduler.processing(workers=None)
            running = dict(await self.workers.running())
            if left := [m for m in self.threads if m not in running]:
                raise WorkerLost(f"{left[0]} left while the shards were loaded")
            if all(key in shown.get(worker, ()) for worker, (key, _) in self.keep_alives.items()):
                return
            for _, task in self.keep_alives.values():
                if task.status == "error":
                    error = await task.exception()
                    raise StradaskError(f"the scheduler cannot run stradask ({error}): install it there, too")
            await asyncio.sleep(0.005)
        raise WorkerLost(
            f"the scheduler has not shown the session's tasks for {self.workers.timeout:g} s: if it is that "
            "busy, raise stradask.timeout in dask.config"
        )

    # Opening ------------------------------------------------------------------------------------------

    def _open(self, program, data, snapshot, keeps_data, at_once):
        packed, epoch = wired(without_shards(program)), self.epoch + 1
        if (
            self._opened is not program
        ):  # no worker has any of its shards: Dask computes while worker states are made
            self._opened, self._since = program, (epoch, epoch)
            data.want(range(len(data)))
        self._since = self._since[0], epoch
        for attempt in range(ATTEMPTS):
            try:
                self.workers.client.sync(self._assemble, packed, len(data))
                data.want([s for s in range(len(data)) if keeps_data or s not in self._kept])
                self.workers.client.sync(self._fill, program, data, snapshot, at_once)
            except WorkerLost as error:
                if attempt + 1 == ATTEMPTS:
                    raise WorkerLost(
                        f"{ATTEMPTS} attempts to load the shards each lost a worker ({error}): do they "
                        "fit into the workers' memory? Cut smaller shards, or raise memory_limit"
                    ) from error
            else:
                return

    async def _fill(self, program, data, snapshot, at_once):
        async with self.lock:
            await self._put(program, data, snapshot, at_once)
            self.is_complete = True
        if self.workers.leaving & self.threads.keys():  # they could not be relieved before
            self.background.start(self.moves.relieve())

    async def _put(self, program, data, snapshot, at_once):
        """Put shards and blocks on workers: neighbours together, Dask's data where they are."""
        if isinstance(snapshot, Copies):
            snapshot = snapshot.among(self.threads)
        held = await data.whereabouts(self.workers.client)
        self.shard_at = place(len(data), self.threads, held, self._kept)
        self.reports: list = [None] * len(data)
        n_blocks = program.n_blocks if program.travels else 0
        self.block_at, self.stamps = place(n_blocks, self.threads), [0] * n_blocks
        self.moves.begin(program)
        self.load_seconds = 0.0
        # One more than there are threads: what is loaded next is on its way meanwhile.
        places = {m: asyncio.Semaphore(program.loads_at_once or n + 1) for m, n in self.threads.items()}

        async def load(shard, worker):
            async with places[worker]:
                began = time.monotonic()
                saved = saved_shard(snapshot, twin_of(program, shard), program.saved)
                deliver_values = self._keep if shard in self._kept else self.load
                self.reports[shard] = await deliver_values(shard, worker, saved)
                self.load_seconds = max(self.load_seconds, time.monotonic() - began)

        async def make_block(block, worker):
            async with places[worker]:
                await self._call(worker, "make_block", (block, saved_block(snapshot, block)))

        loads = [load(shard, worker) for shard, worker in enumerate(self.shard_at)]
        blocks = [make_block(block, worker) for block, worker in enumerate(self.block_at)]
        self._shown = self.background.start(self._be_seen())
        await self.workers.gather([*loads, *blocks, *(() if at_once else (self._shown,))], self.threads)

    async def _keep(self, shard, worker, saved):
        (report,) = await self._call(worker, "keep", (shard, saved))
        return report

    async def load(self, shard, worker, saved):
        """Load a shard on a worker, and lay what was `saved` over it."""
        entry, keys = self._data.form(shard)
        args = shard, entry, len(keys), saved
        if keys:
            about = {"epoch": self.epoch, "shard": shard, "keys": keys}
            if found := await self.ask(worker, "load", args=wired(args), **about):
                return found[0]
            await self._data.deliver_values(shard, self.id, self.epoch, worker)
        (report,) = await self._call(worker, "load", args)
        return report

    # Rounds -------------------------------------------------------------------------------------------

    async def _run(self, round_, first, steps, messages, later=()):
        if not first and self.moves.balance is not None:
            await self.moves.rebalance()
        plans, moves, block_at, stamps = self._plan_routes(first, steps, later)
        joins = self._opened.joins and bool(steps)
        holders = list(dict.fromkeys(self.shard_at)) if messages or joins else []
        barriers: dict = {}
        if joins:
            firsts = [begin + first for begin, _ in program_barriers(self._opened, steps)]
            barriers = {worker: (firsts, holders, rank) for rank, worker in enumerate(holders)}
        called = set(plans) | set(moves) | set(holders)
        args = {m: (round_, moves.get(m, []), plans.get(m, []), barriers.get(m)) for m in called}
        partials, self.joined, began = {}, None, time.time()
        for worker, (done, effort, joined) in zip(args, await self.calls("run", args, messages), strict=True):
            partials.update(done)
            self.joined = joined if self.joined is None else self.joined
            self.bytes_sent += payload_bytes(joined)
            sent = effort["bytes"] + sum(map(payload_bytes, done.values()))
            self.bytes_sent += sent
            self.waiting += effort["waiting"]
            for shard, seconds in effort["working"].items():
                self.moves.seconds[shard] = self.moves.seconds.get(shard, 0.0) + seconds
            working, waiting = sum(effort["working"].values()), effort["waiting"] + self._late[worker]
            self.activity.record(round_ + 1, first, worker, working, waiting, effort["sending"], sent)
            effort = {"working": working, "waiting": waiting, "sending": effort["sending"], "n_bytes": sent}
            self.reporter.work(worker, "steps", began, time.time(), **effort)
        self.reporter.holds(self.shard_at)
        self.block_at, self.stamps = block_at, stamps
        return [partials.get(position) for position in range(sum(map(len, steps)))]

    def _plan_routes(self, first, steps, later=()):
        return plan_routes(first, steps, self.shard_at, self.block_at, self.stamps, later)

    async def _merged(self, method, messages, *args):
        """Call a method on the workers that it is for, each once, and merge the dicts that it returns."""
        shards = [] if method == "measure_blocks" and not messages else self.shard_at
        blocks = [] if method == "measure" else self.block_at
        answers = await self.calls(method, dict.fromkeys([*blocks, *shards], args), messages)
        return {name: value for answer in answers for name, value in answer.items()}

    async def _measured(self, method, messages, *args):
        """As `_merged`, of results by number; list these."""
        parts = await self._merged(method, messages, *args)
        self.bytes_sent += sum(map(payload_bytes, parts.values()))
        return [parts[number] for number in range(len(parts))]

    async def _copies(self, messages):
        workers = list(dict.fromkeys(self.shard_at + self.block_at))
        program = self._opened
        if not program.keeps_copies or (len(workers) < 2 and not program.on_disk):
            return None
        sizes = await self.calls("saved_bytes", dict.fromkeys(workers, ()), None)
        if sum(size for (size,) in sizes) <= SMALL:
            return None
        self._n_copies += 1
        everyone = list(dict.fromkeys([*workers, *self.threads])) if program.on_disk else workers
        others, holders = other_holders(everyone), {}
        args = {worker: (self._n_copies, others.get(worker, "")) for worker in workers}
        for worker, sizes in zip(workers, await self.calls("copy", args, messages), strict=True):
            holders.update(dict.fromkeys(sizes, tuple(filter(None, (worker, args[worker][1])))))
            self.bytes_sent += sum(sizes.values()) if args[worker][1] else 0
        return Copies(self._n_copies, holders)

    def _forget(self, before):
        for worker in self.threads:
            self.background.start(self.ask(worker, "forget", once=True, before=before))

    async def _differing(self, program, trial):
        can_be = await self._at_first_shard("can_be_tried")  # or its entry would be as large
        entry = without_shards(program), program.shards[0]
        return await self._at_first_shard("differing", *entry, trial) if can_be else []

    async def _at_first_shard(self, method, *args):
        (answer,) = await self.calls(method, {self.shard_at[0]: (0, *args)}, None)
        return answer

    async def _probe(self, checkpoint):
        workers, word = await self.workers.find(), await asyncio.to_thread(checkpoint.leave_word)
        asked = [
            self.ask(worker, "probe", url=checkpoint.url, word=word, number=number)
            for number, worker in enumerate(workers)
        ]
        answers = dict(zip(workers, await self.workers.gather(asked, workers), strict=True))
        await asyncio.to_thread(checkpoint.check_answers, answers)

    # Calls --------------------------------------------------------------------------------------------

    async def ask(self, worker, handler, *, once=False, **message):
        """Call the session's handler on a worker; see `Workers.call`."""
        return await self.workers.call(worker, handler, once=once, session=self.id, **message)

    async def calls(self, method, args, messages):
        """Call a method on several workers, each with its arguments, and all with the messages."""
        if not args:
            return []
        self._serial += 1
        self.bytes_sent += payload_bytes(messages) * len(args)
        shared = None if messages is None else wired(messages)
        loop, arrivals = asyncio.get_running_loop(), {}

        async def call(worker):
            answer = await self._call(worker, method, args[worker], shared=shared, serial=self._serial)
            arrivals[worker] = loop.time()
            return answer

        try:
            answers = await self.workers.gather([call(m) for m in args], args)
        except BaseException:
            self.is_complete = False
            raise
        last = max(arrivals.values())
        self._late = {worker: last - arrival for worker, arrival in arrivals.items()}
        self.waiting += sum(self._late.values())
        return answers

    async def _call(self, worker, method, args, **rest):
        return await self.ask(worker, "call", epoch=self.epoch, method=method, args=wired(args), **rest)
