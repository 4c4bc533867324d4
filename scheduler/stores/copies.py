"""Snapshots that workers keep: each part on its worker and on another one."""

from dataclasses import dataclass

import numpy as np

from ...errors import StradaskError

SMALL = 2**24  # bytes of a snapshot that the coordinator keeps itself, which survives more losses


class CopiesLost(StradaskError):
    """All workers that kept a part of a snapshot are gone."""


@dataclass(frozen=True)
class CopiedPart:
    """A reference to the arrays of one shard or block, which its reader fetches from one of the `holders`."""

    number: int
    name: str
    holders: tuple


@dataclass(frozen=True)
class Copies:
    """A reference to all shards and blocks of a snapshot; `holders` has the two workers of each part."""

    number: int
    holders: dict

    def part(self, name):
        """Return the `CopiedPart` of ``"shard-3"`` or ``"block-7"``; None if there is none."""
        holders = self.holders.get(name)
        return None if holders is None else CopiedPart(self.number, name, holders)

    def among(self, workers):
        """Leave out holders that are gone, whom to call takes as long as a connection may; or `CopiesLost`.

        Examples
        --------
        >>> from stradask.scheduler.stores.copies import Copies
        >>> Copies(1, {"shard-0": ("tcp://a:1", "tcp://b:1")}).among({"tcp://b:1": 2}).holders
        {'shard-0': ('tcp://b:1',)}
        """
        found = {}
        for name, holders in self.holders.items():
            found[name] = tuple(holder for holder in holders if holder in workers)
            if not found[name]:
                raise CopiesLost(f"{name} was kept by {' and '.join(holders)}, which are gone")
        return Copies(self.number, found)

    def workers(self):
        """Return all workers that keep a part."""
        return {worker for holders in self.holders.values() for worker in holders}

    def names(self, saved):
        """Return the names of `Session.snapshot`, where `saved` names the arrays of each shard."""
        return names_of(self.holders, saved)


def names_of(parts, saved):
    """Return the names of a snapshot's arrays: those of each shard, and blocks."""
    return [
        f"{part}/{name}" if name else part
        for part in parts
        for name in (saved if part.startswith("shard-") else [""])
    ]


def narrowed(array):
    """Copy an array, unsigned integers in the fewest bytes that hold them; return it and its own dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.stores.copies import narrowed
    >>> narrowed(np.array([3, 99], np.uint16))
    (array([ 3, 99], dtype=uint8), '<u2')
    """
    kind = np.min_scalar_type(array.max(initial=0)) if array.dtype.kind == "u" else array.dtype
    return array.astype(kind), array.dtype.str


def other_holders(workers):
    """Choose for each of the workers another one, on another machine if there is one; a single one has none.

    Examples
    --------
    >>> from stradask.scheduler.stores.copies import other_holders
    >>> other_holders(["tcp://a:1", "tcp://a:2", "tcp://b:1"])
    {'tcp://a:1': 'tcp://b:1', 'tcp://a:2': 'tcp://b:1', 'tcp://b:1': 'tcp://a:1'}
    """
    found = {}
    for place, worker in enumerate(workers):
        after = [*workers[place + 1 :], *workers[:place]]
        apart = [other for other in after if _machine(other) != _machine(worker)]
        if after:
            found[worker] = (apart or after)[0]
    return found


def _machine(worker):
    return worker.rpartition(":")[0]
