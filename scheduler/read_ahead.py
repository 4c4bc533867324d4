"""Values that one worker reads where they are needed: what fits stays in memory, the rest is read ahead.

Passes go over the same values in the same order, again and again. So a value that was read stays if it fits
into the memory set aside, and is never put out for another one: the one that was used last is the one that is
needed latest. Those that do not fit are read by threads, a few before they are needed.
"""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class ReadAhead:
    """Values by number, each from a function that reads it.

    `n_bytes` may be kept; `ahead` values are read before they are needed, in the order of their numbers and
    from the last one to the first. A pickled one is another one, without values.

    Attributes
    ----------
    n_reads, n_hits : int
        Values that were read, and those that were kept or on their way when they were needed.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.read_ahead import ReadAhead
    >>> values = ReadAhead(n_bytes=8 * 100)
    >>> for number in range(3):
    ...     values.add(number, lambda n=number: np.full(60, n), 480)
    >>> [int(values.get(number)[0]) for _ in range(2) for number in range(3)]
    [0, 1, 2, 0, 1, 2]
    >>> values.kept_bytes
    480
    """

    def __init__(self, n_bytes, ahead=2):
        self.n_bytes, self.ahead = n_bytes, ahead
        self.kept_bytes = self.n_reads = self.n_hits = 0
        self._read: dict[int, Any] = {}  # function and bytes, by number
        self._kept: dict[int, Any] = {}
        self._coming: dict[int, tuple[Future, int]] = {}  # and the turn in which it was begun
        self._needed: set[int] = set()  # those that somebody works on
        self._elsewhere: set[int] = set()  # those that came and were not needed
        self._turn = 0
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None

    def __reduce__(self):
        return type(self), (self.n_bytes, self.ahead)

    def add(self, number, read, n_bytes, value=None):
        """Make a value known: ``read()`` returns it, of so many bytes; perhaps it is there already."""
        with self._lock:
            self._read[number] = read, n_bytes
            if value is not None:
                self._keep(number, value)

    def kept(self, number):
        """A value that is in memory, else None."""
        return self._kept.get(number)

    def get(self, number):
        """Return a value, and have the next ones read meanwhile."""
        with self._lock:
            self._turn += 1
            self._needed.add(number)
            self._elsewhere.discard(number)
            value = self._kept.get(number)
            coming, _ = self._coming.pop(number, (None, 0))
            self.n_hits += value is not None or coming is not None
            self._look_ahead(number)
        try:
            if value is None:
                value = self._now(number) if coming is None else coming.result()
                with self._lock:
                    self._keep(number, value)
        finally:
            with self._lock:
                self._needed.discard(number)
        return value

    def _now(self, number):
        read, _ = self._read[number]
        with self._lock:
            self.n_reads += 1
        return read()

    def _keep(self, number, value):
        n_bytes = self._read[number][1]
        if number not in self._kept and self.kept_bytes + n_bytes <= self.n_bytes:
            self._kept[number] = value
            self.kept_bytes += n_bytes

    def _look_ahead(self, number):
        """Begin to read what comes after a value, if it is not here and few others are on their way."""
        if len(self._kept) == len(self._read):
            return
        numbers = sorted(self._read)
        for old, (_, turn) in list(self._coming.items()):
            if self._turn - turn > 2 * len(numbers):  # not needed here in two passes
                del self._coming[old]
                self._elsewhere.add(old)
        after = [n for n in numbers if n > number] + [n for n in numbers if n < number]
        for other in after:
            if len(self._coming) >= self.ahead:
                return
            if other in self._kept or other in self._coming or other in self._needed | self._elsewhere:
                continue
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.ahead, "stradask-read")
            self._coming[other] = self._threads.submit(self._now, other), self._turn
