"""Shards that change members between two calls: of workers that leave, that join, or that are slow.

Nothing is done again: a shard's state goes whole from one member to the other.
"""

import asyncio
import logging
import time
from typing import Any

from .._version import __version__
from ..errors import WorkerLost
from .balancing import Balance
from .clients import CONNECT
from .members import opened
from .placement import place
from .threads import effective_n_jobs

OTHER_VERSION = (
    f"another version of stradask is installed there and {__version__} here; install the same on both"
)
_WITHOUT = "stradask does not come up there; install it there"
_log = logging.getLogger("stradask")


class Migration:
    """The part of a `ClusterSession` that moves shards, and blocks that have to leave with their member."""

    _lock: asyncio.Lock
    _epoch: int
    _whole: bool
    _members: dict[str, int]
    _leaving: set[str]
    _dead: set[str]
    _background: set[asyncio.Task]
    _pool: Any
    _newcomers: set[str]
    _unfit: set[str]
    _untold: list[str]
    _timeout: float
    _ready: dict[str, tuple[int, int]]
    _presences: dict[str, tuple]
    _shard_at: list[str]
    _block_at: list[str]
    _stamps: list[int]
    _seconds: dict[int, float]
    _balance: Balance | None
    _all: Any
    _ask: Any
    _calls: Any
    _drop: Any
    _furnish: Any
    _client: Any
    _n_jobs: int | None
    bytes_sent: int

    def _hear(self, event):
        """Take in the scheduler's news of a worker: lost (fail its calls now), or retired (relieve it)."""
        _, news = event
        if not isinstance(news, dict):  # a user's own
            return
        if news.get("action") == "add-worker":  # perhaps under an address that another had
            self._leaving.discard(news["worker"])
            self._dead.discard(news["worker"])
            self._unfit.discard(news["worker"])
            self._newcomers.add(news["worker"])
        if news.get("action") != "remove-worker":
            return
        member = news["worker"]
        self._newcomers.discard(member)
        if news.get("expected"):
            self._leaving.add(member)
            if member in self._members:
                self._in_background(self._hand_on())
            elif member in self._presences:  # it has a room, and no shards yet
                self._in_background(self._drop([member]))
        else:
            self._dead.add(member)
            self._pool.remove(member, reason="the scheduler lost this worker")

    async def _hand_on(self):
        """Give shards and blocks of retired members to others, between two calls: nothing is done again."""
        async with self._lock:
            gone = [m for m in self._members if m in self._leaving]
            stay = {m: n for m, n in self._members.items() if m not in self._leaving}
            if not gone or not self._whole:
                return
            try:
                if stay:
                    await self._move(gone, stay)
                self._whole = bool(stay)  # else the next call begins anew, on the workers that there are then
            except Exception:  # a member lost, or a state that does not pickle: beginning anew mends both
                _log.info("shards could not be handed on and are loaded again", exc_info=True)
                self._whole = False
            self._members = stay
            await self._drop(gone)
            for member in gone:
                self._presences.pop(member, None)

    async def _move(self, gone, stay):
        homes = place(len(self._shard_at), stay)
        await self._move_shards(
            [home if member in gone else member for member, home in zip(self._shard_at, homes, strict=True)]
        )
        homes = place(len(self._block_at), stay)
        moves: dict[str, list] = {m: [] for m in gone}
        for block, member in enumerate(self._block_at):
            if member in gone:
                moves[member].append((block, self._stamps[block], homes[block]))
                self._block_at[block] = homes[block]
                self._stamps[block] += 1
        await self._calls("run", {m: (-1, blocks, []) for m, blocks in moves.items() if blocks}, [])

    async def _move_shards(self, homes):
        """Send shards where they are wanted, one after the other."""
        for shard, (member, home) in enumerate(zip(list(self._shard_at), homes, strict=True)):
            if member != home:
                message = {"epoch": self._epoch, "shard": shard, "to": home}
                asked = [self._ask(member, "hand_on", once=True, **message)]
                (sent,) = await self._all(asked, [member, home])
                self._shard_at[shard] = home
                self.bytes_sent += sent

    # Fast and slow members ----------------------------------------------------------------------------

    async def _rebalance(self):
        """Before a round: take newcomers in, and move shards if the last rounds showed that it pays."""
        balance: Any = self._balance
        await self._admit()
        if self._seconds:
            balance.observe(self._seconds, self._shard_at, self._members)
        self._seconds = {}
        homes = balance.better(self._shard_at, self._members)
        if homes is None:
            return
        began = time.monotonic()
        try:
            await self._move_shards(homes)
        except WorkerLost:
            self._whole = False
            raise
        except Exception:  # a state that does not pickle; every shard is still somewhere
            _log.warning("shards cannot be moved to faster workers and stay where they are", exc_info=True)
            self._balance = None
            return
        balance.moved(time.monotonic() - began)
        _log.info("shards were moved to faster workers: %s", homes)

    async def _admit(self):
        """Take in workers that have joined and whose rooms are ready; have others make theirs meanwhile.

        That a worker imports what a program needs may take longer than many rounds.
        """
        for member, (epoch, n_threads) in list(self._ready.items()):
            del self._ready[member]
            if epoch == self._epoch and member not in self._leaving | self._dead:
                self._members[member] = n_threads
        if not self._newcomers:
            return
        threads = dict(await self._running())
        for member in sorted(self._newcomers & threads.keys() - self._members.keys() - self._leaving):
            self._newcomers.discard(member)
            self._in_background(self._prepare(member, self._epoch, threads[member]))
        self._newcomers -= self._members.keys()

    async def _prepare(self, member, epoch, n_threads):
        """Make a room on a worker that has joined; one that cannot have it holds nothing: nobody needs it."""
        try:
            end = time.monotonic() + self._timeout
            while (answer := await self._answers(member)) == "coming" and time.monotonic() < end:
                await asyncio.sleep(0.1)  # about to get the plugin
            if answer in ("coming", "other"):
                self._turn_away(member, OTHER_VERSION if answer == "other" else _WITHOUT)
            if answer == "ready" and epoch == self._epoch:
                await self._furnish([member])
                self._ready[member] = epoch, n_threads
        except Exception:  # it is gone, or cannot import the program
            _log.info("a worker that joined cannot take part: %s", member, exc_info=True)
            if epoch == self._epoch:
                self._presences.pop(member, None)

    def _turn_away(self, member, why):
        """Give no work to a worker that joined, and have the caller warned, once."""
        if member not in self._unfit:
            self._unfit.add(member)
            self._untold.append(f"the worker {member}, which joined a fit, gets no work: {why}")

    # Who is there ----------------------------------------------------------------------------------------

    async def _running(self):
        scheduler = self._client.scheduler
        try:  # none while the connection to the scheduler is broken
            found = [] if scheduler is None else sorted((await scheduler.ncores_running()).items())
        except OSError:
            return []
        # Shards go by the threads that work on them; of a negative n_jobs the worker alone knows how many.
        asked = effective_n_jobs(self._n_jobs) if (self._n_jobs or 0) > 0 else None
        return [(member, n_threads if asked is None else asked) for member, n_threads in found]

    async def _answers(self, member):
        """Tell whether a worker is ready, of another version, about to get the plugin, or silent."""
        try:
            ping = self._pool(member).stradask_ping()
            answer = await asyncio.wait_for(ping, min(self._timeout, CONNECT))
        except OSError:
            return "silent"
        if answer is None:
            return "coming"
        return "ready" if opened(answer, member) == __version__ else "other"

    def _in_background(self, work):
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._done_in_background)
        return task

    def _done_in_background(self, task):
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # seen: who needs to know asks the task
