"""Moves of shards between two calls: from workers that leave or are slow, to workers that join or are fast.

Nothing is done again: a shard's state goes whole from one worker to the other.
"""

import asyncio
import logging
import time
from typing import Any

from ...errors import WorkerLost
from .balancing import Balance, Spread
from .membership import Membership
from .placement import place

_log = logging.getLogger("stradask")


class Migration(Membership):
    """The part of a `ClusterSession` that moves shards, and blocks of workers that leave."""

    _lock: asyncio.Lock
    _whole: bool
    _ready: dict[str, tuple[int, int]]
    _shard_at: list[str]
    _block_at: list[str]
    _stamps: list[int]
    _seconds: dict[int, float]
    _balance: Balance | Spread | None
    _calls: Any
    _open_workers: Any
    bytes_sent: int

    async def _relieve(self):
        """Give shards and blocks of retired workers to others, between two calls."""
        async with self._lock:
            gone = [m for m in self._workers if m in self._leaving]
            stay = {m: n for m, n in self._workers.items() if m not in self._leaving}
            if not gone or not self._whole:
                return
            try:
                if stay:
                    await self._move(gone, stay)
                self._whole = bool(stay)  # else the next call begins anew, on the workers that there are then
            except Exception:  # a worker lost, or a state that does not pickle: beginning anew mends both
                _log.info("shards could not be handed on and are loaded again", exc_info=True)
                self._whole = False
            self._workers = stay
            await self._drop(gone)
            for worker in gone:
                self._keep_alives.pop(worker, None)

    async def _move(self, gone, stay):
        homes = place(len(self._shard_at), stay)
        await self._move_shards(
            [home if worker in gone else worker for worker, home in zip(self._shard_at, homes, strict=True)]
        )
        homes = place(len(self._block_at), stay)
        moves: dict[str, list] = {m: [] for m in gone}
        for block, worker in enumerate(self._block_at):
            if worker in gone:
                moves[worker].append((block, self._stamps[block], homes[block]))
                self._block_at[block] = homes[block]
                self._stamps[block] += 1
        await self._calls("run", {m: (-1, blocks, [], None) for m, blocks in moves.items() if blocks}, [])

    async def _move_shards(self, homes):
        """Send shards to their new workers, one after the other."""
        for shard, (worker, home) in enumerate(zip(list(self._shard_at), homes, strict=True)):
            if worker != home:
                message = {"epoch": self._epoch, "shard": shard, "to": home}
                asked = [self._ask(worker, "hand_on", once=True, **message)]
                (sent,) = await self._all(asked, [worker, home])
                self._shard_at[shard] = home
                self.bytes_sent += sent

    # Fast and slow workers ----------------------------------------------------------------------------

    async def _rebalance(self):
        """Before a round: admit new workers, and move shards if the last rounds show that it pays."""
        balance: Any = self._balance
        await self._admit()
        if self._seconds:
            balance.observe(self._seconds, self._shard_at, self._workers)
        self._seconds = {}
        homes = balance.better(self._shard_at, self._workers)
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
        """Admit new workers whose worker states are ready; have others make theirs meanwhile.

        Importing what a program needs may take a worker longer than many rounds.
        """
        self._take_ready()
        if not self._newcomers:
            return
        threads = dict(await self._running())
        for worker in sorted(self._newcomers & threads.keys() - self._workers.keys() - self._leaving):
            self._newcomers.discard(worker)
            self._in_background(self._prepare(worker, self._epoch, threads[worker]))
        self._newcomers -= self._workers.keys()

    def _take_ready(self):
        for worker, (epoch, n_threads) in list(self._ready.items()):
            del self._ready[worker]
            if epoch == self._epoch and worker not in self._leaving | self._dead:
                self._workers[worker] = n_threads

    async def _prepare(self, worker, epoch, n_threads):
        """Make a worker state on a worker that has joined; if that fails, it takes no part."""
        try:
            answer = await self._joined(worker)
            if answer == "ready" and epoch == self._epoch:
                await self._open_workers([worker])
                self._ready[worker] = epoch, n_threads
        except Exception:  # it is gone, or cannot import the program
            _log.info("a worker that joined cannot take part: %s", worker, exc_info=True)
            if epoch == self._epoch:
                self._keep_alives.pop(worker, None)
