"""Shards that change members between two calls: of workers that leave, that join, or that are slow.

Nothing is done again: a shard's state goes whole from one member to the other.
"""

import asyncio
import logging
import time
from typing import Any

from ...errors import WorkerLost
from .balancing import Balance
from .membership import Membership
from .placement import place

_log = logging.getLogger("stradask")


class Migration(Membership):
    """The part of a `ClusterSession` that moves shards, and blocks that have to leave with their member."""

    _lock: asyncio.Lock
    _whole: bool
    _ready: dict[str, tuple[int, int]]
    _shard_at: list[str]
    _block_at: list[str]
    _stamps: list[int]
    _seconds: dict[int, float]
    _balance: Balance | None
    _calls: Any
    _furnish: Any
    bytes_sent: int

    async def _relieve(self):
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
        self._take_ready()
        if not self._newcomers:
            return
        threads = dict(await self._running())
        for member in sorted(self._newcomers & threads.keys() - self._members.keys() - self._leaving):
            self._newcomers.discard(member)
            self._in_background(self._prepare(member, self._epoch, threads[member]))
        self._newcomers -= self._members.keys()

    def _take_ready(self):
        for member, (epoch, n_threads) in list(self._ready.items()):
            del self._ready[member]
            if epoch == self._epoch and member not in self._leaving | self._dead:
                self._members[member] = n_threads

    async def _prepare(self, member, epoch, n_threads):
        """Make a room on a worker that has joined; one that cannot have it holds nothing: nobody needs it."""
        try:
            answer = await self._joined(member)
            if answer == "ready" and epoch == self._epoch:
                await self._furnish([member])
                self._ready[member] = epoch, n_threads
        except Exception:  # it is gone, or cannot import the program
            _log.info("a worker that joined cannot take part: %s", member, exc_info=True)
            if epoch == self._epoch:
                self._presences.pop(member, None)
