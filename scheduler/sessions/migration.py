"""Moves of shards between two calls: from workers that leave or are slow, to workers that join or are fast.

Nothing is done again: a shard's state goes whole from one worker to the other.
"""

import logging
import time
from typing import Any

from ...errors import WorkerLost
from .balancing import Balance, Spread
from .placement import place

_log = logging.getLogger("stradask")


class Moves:
    """Moves shards of a `ClusterSession`, and blocks of workers that leave.

    Attributes
    ----------
    balance : Balance, Spread or None
    seconds : dict of int to float
        What each shard took, in the round so far.
    newcomers : set of str
        Workers that joined and take no part yet.
    ready : dict of str to tuple
        Newcomers with a worker state: its epoch, and their threads.
    """

    def __init__(self, session):
        self.session = session
        self.balance: Balance | Spread | None = None
        self.seconds: dict[int, float] = {}
        self.newcomers: set[str] = set()
        self.ready: dict[str, tuple[int, int]] = {}

    def begin(self, program):
        """Balance the shards of a program, by their weights where it tells them."""
        self.seconds, self.balance = {}, Spread() if program.spreads else None
        if program.shard_weights is not None:
            self.balance = Balance(program.shard_weights)

    async def relieve(self):
        """Give shards and blocks of retired workers to others, between two calls."""
        session = self.session
        async with session.lock:
            gone = [m for m in session.threads if m in session.workers.leaving]
            stay = {m: n for m, n in session.threads.items() if m not in session.workers.leaving}
            if not gone or not session.is_complete:
                return
            try:
                if stay:
                    await self._move(gone, stay)
                # Else the next call begins anew, on the workers that there are then.
                session.is_complete = bool(stay)
            except Exception:  # a worker lost, or a state that does not pickle: beginning anew mends both
                _log.info("shards could not be handed on and are loaded again", exc_info=True)
                session.is_complete = False
            session.threads = stay
            await session.drop(gone)
            for worker in gone:
                session.keep_alives.pop(worker, None)

    async def _move(self, gone, stay):
        session = self.session
        homes = place(len(session.shard_at), stay)
        await self._move_shards(
            [home if worker in gone else worker for worker, home in zip(session.shard_at, homes, strict=True)]
        )
        homes = place(len(session.block_at), stay)
        moves: dict[str, list] = {m: [] for m in gone}
        for block, worker in enumerate(session.block_at):
            if worker in gone:
                moves[worker].append((block, session.stamps[block], homes[block]))
                session.block_at[block] = homes[block]
                session.stamps[block] += 1
        await session.calls("run", {m: (-1, blocks, [], None) for m, blocks in moves.items() if blocks}, [])

    async def _move_shards(self, homes):
        """Send shards to their new workers, one after the other."""
        session = self.session
        for shard, (worker, home) in enumerate(zip(list(session.shard_at), homes, strict=True)):
            if worker != home:
                message = {"epoch": session.epoch, "shard": shard, "to": home}
                asked = [session.ask(worker, "hand_on", once=True, **message)]
                (sent,) = await session.workers.gather(asked, [worker, home])
                session.shard_at[shard] = home
                session.bytes_sent += sent

    # Fast and slow workers ----------------------------------------------------------------------------

    async def rebalance(self):
        """Before a round: admit new workers, and move shards if the last rounds show that it pays."""
        session = self.session
        balance: Any = self.balance
        await self._admit()
        if self.seconds:
            balance.observe(self.seconds, session.shard_at, session.threads)
        self.seconds = {}
        homes = balance.better(session.shard_at, session.threads)
        if homes is None:
            return
        began = time.monotonic()
        try:
            await self._move_shards(homes)
        except WorkerLost:
            session.is_complete = False
            raise
        except Exception:  # a state that does not pickle; every shard is still somewhere
            _log.warning("shards cannot be moved to faster workers and stay where they are", exc_info=True)
            self.balance = None
            return
        balance.moved(time.monotonic() - began)
        _log.info("shards were moved to faster workers: %s", homes)

    async def _admit(self):
        """Admit new workers whose worker states are ready; have others make theirs meanwhile.

        Importing what a program needs may take a worker longer than many rounds.
        """
        session = self.session
        self.take_ready()
        if not self.newcomers:
            return
        threads = session.threads_of(await session.workers.running())
        out = session.threads.keys() | session.workers.leaving
        for worker in sorted(self.newcomers & threads.keys() - out):
            self.newcomers.discard(worker)
            session.background.start(self.prepare(worker, session.epoch, threads[worker]))
        self.newcomers -= session.threads.keys()

    def take_ready(self):
        """Let newcomers that have a worker state take part."""
        session = self.session
        for worker, (epoch, n_threads) in list(self.ready.items()):
            del self.ready[worker]
            if epoch == session.epoch and worker not in session.workers.leaving | session.workers.dead:
                session.threads[worker] = n_threads

    async def prepare(self, worker, epoch, n_threads):
        """Make a worker state on a worker that has joined; if that fails, it takes no part."""
        session = self.session
        try:
            answer = await session.workers.admitted(worker)
            if answer == "ready" and epoch == session.epoch:
                await session.open_workers([worker])
                self.ready[worker] = epoch, n_threads
        except Exception:  # it is gone, or cannot import the program
            _log.info("a worker that joined cannot take part: %s", worker, exc_info=True)
            if epoch == session.epoch:
                session.keep_alives.pop(worker, None)
