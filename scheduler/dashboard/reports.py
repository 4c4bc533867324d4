"""What a fit on a cluster tells the scheduler: its rounds, and what each worker did."""

import asyncio
import math
import secrets
import threading
import time
from typing import Any

from ..loop import listeners

TOPIC = "stradask"  # of the scheduler's events
PARTS = frozenset(
    {"fit", "label", "total", "rounds", "work", "shards", "ended", "reason", "client", "sums", "totals"}
)  # of an event
_EVERY, _A_WORKER = 0.5, 0.005  # seconds between two events: at least, and for each worker in it
_NEAR, _LONG = 0.05, 0.4  # work is shown as one up to so many seconds apart, and so many events long
_PATIENCE = 2.0  # seconds for the scheduler to take an event
_MOST_ROUNDS = 200  # in one event; of more, every second one goes


class Reports:
    """Collects what one session does, and sends it as an event of the scheduler now and then.

    Nothing waits for an event, and none is sent for a session without rounds and steps. The times are those
    of this process's clock.

    Attributes
    ----------
    sent : int
        Events so far.
    """

    def __init__(self, client):
        self._client, self._name = client, secrets.token_hex(4)
        self._lock = threading.Lock()
        self._label, self._total, self._reason = "", 0, ""
        self._rounds: list[tuple] = []
        self._work: list[list] = []
        self._newest: dict[str, list] = {}  # a worker's last row in `_work`
        self._shards: dict[str, int] = {}
        # Since the fit began: an event that is lost, and rounds left out of one, are in the next one's.
        self._sums = dict.fromkeys(("seconds", "updates", "bytes_sent", "waiting"), 0)
        self._totals: dict[str, list] = {}
        self._due, self.sent, self._ended, self._sending = 0.0, 0, False, asyncio.Lock()
        self._listeners = listeners()
        self._listeners.append(self)

    def round(self, label, info, figures, reason):
        """Take in a round of the loop; `reason` is why it was the last one, if it was."""
        row = (info.round, info.seconds, info.objective, info.updates)
        traffic = (figures.get("bytes_sent", 0), figures.get("waiting", 0.0))
        with self._lock:
            self._label, self._total, self._reason = label, _plain(info.total), reason or ""
            plain = tuple(map(_plain, row + traffic))
            self._rounds.append(plain)
            _, seconds, _, *others = plain
            for name, value in zip(self._sums, (seconds, *others), strict=True):
                self._sums[name] += value if math.isfinite(value) else 0
            if len(self._rounds) > _MOST_ROUNDS:
                del self._rounds[::2]
        self._send_if_due()

    def work(self, worker, what, began, ended, *, working, waiting=0.0, sending=0.0, n_bytes=0):
        """Take in what a worker did between two times of `time.time`, in seconds and bytes."""
        figures = list(map(_plain, (working, waiting, sending, n_bytes)))
        with self._lock:
            totals = self._totals.setdefault(worker, [0.0, 0.0, 0.0, 0])
            totals[:] = [total + more for total, more in zip(totals, figures, strict=True)]
            last = self._newest.get(worker)
            long = _LONG * self._interval()
            if last is not None and last[1] == what and began - last[3] < _NEAR and ended - last[2] < long:
                last[3] = max(last[3], ended)
                for at, more in enumerate(figures, 4):
                    last[at] += more
                return
            row = [worker, what, began, ended, *figures]
            self._newest[worker] = row
            self._work.append(row)

    def holds(self, shard_at):
        """Take in which worker has each shard."""
        with self._lock:
            self._shards = {worker: shard_at.count(worker) for worker in set(shard_at)}

    def _interval(self):
        return max(_EVERY, _A_WORKER * len(self._newest))

    def _send_if_due(self):
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._interval()
            self._client.loop.add_callback(self._send)

    async def _send(self):
        if self._sending.locked() and not self._ended:
            return
        async with self._sending:
            if self._client.status != "running" or not (event := self._take()):
                return
            try:
                await asyncio.wait_for(self._client.scheduler.log_event(topic=TOPIC, msg=event), _PATIENCE)
                self.sent += 1
            except (OSError, TimeoutError):  # the scheduler is gone or hangs, which the fit sees by itself
                return

    def _take(self):
        with self._lock:
            if not (self._rounds or self._work) and not (self._ended and self.sent):
                return None
            event: dict[str, Any] = {"fit": self._name, "label": self._label, "total": self._total}
            event |= {"rounds": self._rounds, "work": self._work, "shards": self._shards}
            event |= {"ended": self._ended, "reason": self._reason, "client": self._client.id}
            event |= {"sums": dict(self._sums), "totals": {w: list(of) for w, of in self._totals.items()}}
            self._rounds, self._work, self._newest = [], [], {}
            return event

    async def end(self):
        """Send the rest."""
        self._ended = True
        await self._send()

    def close(self):
        """Take in no more rounds."""
        if self in self._listeners:
            self._listeners.remove(self)


def _plain(value):
    """Return a number that msgpack can hold."""
    return value.item() if hasattr(value, "item") else value
