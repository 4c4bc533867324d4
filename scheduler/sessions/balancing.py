"""Balancing: moves of shards from slow workers to fast ones, by their measured pace."""

import heapq
from collections import Counter

import numpy as np

from . import placement

_WORTH = 0.8  # a round must become shorter than this part of itself, or nothing moves
_FIRST_PRICE = 0.5  # seconds that moving is thought to take before any was seen
_LEAST = 1e-3  # of the mean weight, that a shard has at least
_FORGETTING = 0.99  # a round: how long a worker without shards is remembered as slow


class Balance:
    """Measures the pace of workers, and proposes better places for the shards.

    A worker's first round does not count, since kernels are compiled in it. Its pace is the better one of its
    last two rounds after that, so that a single bad round moves nothing. Shards move once the time lost to
    worse places has reached the time of the last move: a lasting slowdown costs at most twice the price of
    moving at once. `weights` are the work of each shard, in any unit; `pace` is the seconds that a thread of
    each worker takes for a unit.

    Examples
    --------
    >>> from stradask.scheduler.sessions.balancing import Balance
    >>> balance = Balance([1, 1, 1, 1])
    >>> threads, places = {"quick": 1, "slow": 1}, ["quick", "quick", "slow", "slow"]
    >>> for round in range(2):
    ...     balance.observe({0: 1.0, 1: 1.0, 2: 10.0, 3: 10.0}, places, threads)
    >>> balance.better(places, threads)
    ['quick', 'quick', 'quick', 'quick']
    """

    def __init__(self, weights):
        weights = np.asarray(weights, float)
        # A shard without work still takes a moment, which tells nothing of the pace.
        self.weights = np.maximum(weights, _LEAST * weights.mean() or 1.0)
        self.pace: dict[str, float] = {}
        self._begun: set[str] = set()  # workers that have had a round with shards
        self._last: dict[str, float] = {}  # of one round
        self._price, self._lost = _FIRST_PRICE, 0.0

    def observe(self, seconds, places, workers):
        """Record a round: seconds by shard, the worker of each shard, and the threads of all workers."""
        for known in (self.pace, self._last):
            for gone in known.keys() - workers.keys():
                del known[gone]
        self._begun &= workers.keys()
        for worker in workers:
            own = [shard for shard, place in enumerate(places) if place == worker and shard in seconds]
            if own and worker not in self._begun:
                self._begun.add(worker)
            elif own:
                pace = sum(seconds[shard] for shard in own) / self.weights[own].sum()
                self.pace[worker] = min(pace, self._last.get(worker, pace))
                self._last[worker] = pace
            elif worker in self.pace:  # it may have come to itself: in time it is tried again
                usual = self._usual()
                self.pace[worker] = usual + _FORGETTING * (self.pace[worker] - usual)

    def better(self, places, workers):
        """Return other places for the shards if it is time to move, else None; once a round."""
        if not self.pace:
            return None
        pace = {worker: self.pace.get(worker, self._usual()) for worker in workers}
        now = slowest(self.weights, places, pace, workers)
        wished, then = places, now
        if self.weights.sum() / sum(n / pace[m] for m, n in workers.items()) <= _WORTH * now:  # it may pay
            wished = contiguous(self.weights, pace, workers, places)
            then = slowest(self.weights, wished, pace, workers)
        if then > _WORTH * now:
            self._lost = 0.0
            return None
        self._lost += now - then
        return wished if self._lost >= self._price else None

    def moved(self, seconds):
        """Record how long moving the shards took."""
        self._price, self._lost = seconds, 0.0

    def _usual(self):
        return float(np.median(list(self.pace.values())))


class Spread:
    """Proposes other places for shards where some workers have more of them than threads, and others none.

    For programs that do not tell the work of their shards; see `Balance`.

    Examples
    --------
    >>> from stradask.scheduler.sessions.balancing import Spread
    >>> Spread().better(["old", "old", "old"], {"old": 1, "new": 1})
    ['old', 'old', 'new']
    >>> Spread().better(["old", "old", "new"], {"old": 1, "new": 1})
    """

    def observe(self, seconds, places, workers):
        """Record nothing."""

    def better(self, places, workers):
        """Return other places for the shards, or None."""
        counts = Counter(places)
        if all(counts[worker] <= n for worker, n in workers.items()):
            return None
        if all(counts[worker] for worker in workers):
            return None
        n_shards = len(places)
        kept = placement.stays(n_shards, workers, dict(enumerate(places)))
        homes = placement.place(n_shards, workers, kept=kept)
        return None if homes == places else homes

    def moved(self, seconds):
        """Record nothing."""


def slowest(weights, places, pace, workers):
    """Return the time of the worker that takes longest; arguments by shard or by worker."""
    own: dict[str, list] = {}
    for weight, place in zip(weights, places, strict=True):
        own.setdefault(place, []).append(weight)
    return max(_duration(shards, pace[worker], workers[worker]) for worker, shards in own.items())


def _duration(weights, pace, n_threads):
    """Return the time of threads that each take the next shard when they are free."""
    free = [0.0] * n_threads
    for weight in weights:
        heapq.heappush(free, heapq.heappop(free) + weight * pace)
    return max(free)


def contiguous(weights, pace, workers, places):
    """Give each worker neighbouring shards such that the slowest ends as soon as possible.

    With neighbours together, few travelling blocks change their worker. Workers stay in the order of their
    first shards, new ones last; one that is too slow to help gets none. Returns the worker of each shard.
    """
    order = list(dict.fromkeys([*places, *workers]))

    def filled(limit):
        """Fill worker after worker up to a time limit; None if shards are left."""
        found: list[str] = []
        for worker in order:
            free = [0.0] * workers[worker]
            while len(found) < len(weights):
                end = heapq.heappop(free) + weights[len(found)] * pace[worker]
                if end > limit:
                    break
                heapq.heappush(free, end)
                found.append(worker)
        return found if len(found) == len(weights) else None

    low, high = 0.0, min(_duration(weights, pace[worker], workers[worker]) for worker in order) * (1 + 1e-9)
    best = filled(high)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        found = filled(middle)
        if found is None:
            low = middle
        else:
            best, high = found, middle
    return best
