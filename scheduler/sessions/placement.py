"""Which worker holds which shard, and data of shards that Dask holds or can compute."""

import asyncio
import math
from typing import Any

import dask
import distributed
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, Layer

from ...errors import DataError, StradaskError, shortened
from .shards import Brought
from .worker import bring


def place(n_items, threads, held=(), kept=None):
    """Spread items over members, in their order and in proportion to threads.

    Parameters
    ----------
    n_items : int
    threads : dict of str to int
        Of each member.
    held : sequence of dict of str to int, optional
        For each item how many bytes of its data lie on which member: it goes where most of them lie,
        unless that member has its share already.
    kept : dict of int to str, optional
        Items that stay where they are; no member may have more of them than its share (`stays`).

    Returns
    -------
    list of str

    Examples
    --------
    >>> from stradask.scheduler.sessions.placement import place
    >>> place(4, {"a": 1, "b": 1})
    ['a', 'a', 'b', 'b']
    >>> place(3, {"a": 1, "b": 1}, held=[{"b": 8}, {}, {"a": 8}])
    ['b', 'a', 'a']
    """
    slots = [member for member, n in threads.items() for _ in range(n)]
    if not any(held) and not kept:
        return [slots[item * len(slots) // n_items] for item in range(n_items)]
    free, homes = _shares(n_items, threads), dict(kept or {})
    for member in homes.values():
        free[member] -= 1
    for item, where in enumerate(held):
        wished = [member for member in where if free.get(member)]
        if wished and item not in homes:
            homes[item] = max(wished, key=where.__getitem__)
            free[homes[item]] -= 1
    for item in range(n_items):
        if item not in homes:
            homes[item] = next(member for member in free if free[member])
            free[homes[item]] -= 1
    return [homes[item] for item in range(n_items)]


def stays(n_items, threads, homes):
    """Say which items need not move: of each member as many as its share is.

    Parameters
    ----------
    n_items : int
    threads : dict of str to int
    homes : dict of int to str
        Where items are.

    Returns
    -------
    dict of int to str

    Examples
    --------
    >>> from stradask.scheduler.sessions.placement import stays
    >>> stays(4, {"a": 1, "b": 1}, {0: "a", 1: "a", 2: "a"})
    {0: 'a', 1: 'a'}
    """
    free, found = _shares(n_items, threads), {}
    for item, member in sorted(homes.items()):
        if free.get(member):
            found[item] = member
            free[member] -= 1
    return found


def _shares(n_items, threads):
    n_threads = sum(threads.values())
    return {member: math.ceil(n_items * n / n_threads) for member, n in threads.items()}


class ShardData:
    """The entries of a program's `shards`; what Dask can compute in them becomes futures when it is wanted.

    Blocks that Dask holds already, of arrays that were persisted or made of futures, are these futures: no
    task is made of them.

    Parameters
    ----------
    shards : sequence
    scheduler : str or distributed.Client
        What the session was given.
    own : distributed.Client
        The session's.
    """

    def __init__(self, shards, scheduler, own):
        self.shards = shards
        found = {s: values for s, entry in enumerate(shards) if (values := list(_dask_values(entry)))}
        self.entries, self.futures = {}, {}
        self._known = {s: [(v, future_of(v)) for v in values] for s, values in found.items()}
        if found:
            pairs = [pair for pairs in self._known.values() for pair in pairs]
            self.client = _client_of([f for _, f in pairs if f is not None], scheduler, own)

    def __len__(self):
        return len(self.shards)

    def want(self, shards):
        """Have Dask compute what there is to compute in these shards, unless it has been told before."""
        found = {s: self._known[s] for s in shards if s in self._known and s not in self.entries}
        pairs = [pair for pairs in found.values() for pair in pairs]
        lazy = [value for value, future in pairs if future is None]
        made = iter(self.client.compute(lazy) if lazy else ())  # at once: they may have much in common
        futures = iter([next(made) if future is None else future for _, future in pairs])
        for s in found:
            self.entries[s] = _replaced(self.shards[s], futures)
            self.futures[s] = list(_dask_values(self.entries[s]))

    def form(self, shard):
        """Return a shard's entry with `Brought` in the places of Dask's data, and the keys of these."""
        keys = [future.key for future in self.futures.get(shard, ())]
        return _replaced(self.shards[shard], iter(map(Brought, range(len(keys))))), keys

    async def whereabouts(self, own):
        """Wait for what is wanted of Dask; return for each shard how many bytes of it lie on which worker."""
        keys = [future.key for futures in self.futures.values() for future in futures]
        if not keys:
            return ()
        await _settled([future for futures in self.futures.values() for future in futures])
        asked = own.scheduler.who_has(keys=keys), own.scheduler.nbytes(keys=keys, summary=False)
        holders, sizes = await asyncio.gather(*asked)
        held: list[dict[str, int]] = [{} for _ in self.shards]
        for shard, futures in self.futures.items():
            for key in (future.key for future in futures):
                for member in holders.get(key, ()):
                    held[shard][member] = held[shard].get(member, 0) + sizes.get(key, 0)
        return held

    async def bring(self, shard, session, epoch, member):
        """Have Dask put its data of a shard into the room that wants them."""
        arguments = bring, session, epoch, member, shard, self.futures[shard]
        where = {"workers": [member], "allow_other_workers": True}  # or it waits for ever for a lost worker
        await _settled([self.client.submit(*arguments, pure=False, **where)])


def _dask_values(entry):
    if isinstance(entry, distributed.Future) or dask.is_dask_collection(entry):
        yield entry
    elif type(entry) in (tuple, list, dict):
        for value in entry.values() if type(entry) is dict else entry:
            yield from _dask_values(value)


def holds_dask(entry):
    """Whether there is something in a shard's entry that Dask holds or computes."""
    return next(_dask_values(entry), None) is not None


def _replaced(entry, others):
    """Put others in the places of Dask's values, in the order of `_dask_values`."""
    if isinstance(entry, distributed.Future) or dask.is_dask_collection(entry):
        return next(others)
    if type(entry) in (tuple, list):
        return type(entry)(_replaced(value, others) for value in entry)
    if type(entry) is dict:
        return {name: _replaced(value, others) for name, value in entry.items()}
    return entry


def future_of(value):
    """Find the future that a value is, or is another name of; None where something is to be computed.

    A collection is one if its result is the block of its only key: an array of one chunk, or a delayed value.
    """
    if isinstance(value, distributed.Future):
        return value
    if not (hasattr(value, "chunks") or isinstance(value, Delayed)):
        return None
    (key, *others), graph = flatten(value.__dask_keys__()), value.__dask_graph__()
    layers = list(graph.layers.values()) if isinstance(graph, HighLevelGraph) else [graph]
    layers = [layer for layer in layers if not isinstance(layer, Layer) or layer.is_materialized()]
    while not others:
        node: Any = next((layer[key] for layer in layers if key in layer), None)
        if hasattr(node, "target"):  # an alias
            key = node.target
        elif type(node) is str or (type(node) is tuple and not callable(node[0])):  # in another form
            key = node
        else:
            return node if isinstance(node, distributed.Future) else None
    return None


def _client_of(futures, scheduler, own):
    """Choose the client that computes: that of the futures, the caller's, or the session's own."""
    clients = [future.client for future in futures]
    if not clients and not isinstance(scheduler, str):
        clients = [scheduler]
    if not clients:  # persisted collections hold futures of the current client
        try:
            clients = [distributed.default_client()]
        except ValueError:
            return own
        if _cluster_of(clients[0]) != _cluster_of(own):
            return own
    client = clients[0]
    if client.asynchronous:
        raise DataError(
            "shards cannot be data of an asynchronous Dask client: make it with asynchronous=False"
        )
    if client is not scheduler and _cluster_of(client) != _cluster_of(own):
        raise DataError(
            f"the shards lie on the cluster of {client.scheduler.address}, engine is "
            f"{own.scheduler.address}: give the engine of their cluster, or compute them first"
        )
    return client


def _cluster_of(client):
    return client.scheduler_info()["id"]


async def _settled(futures):
    """Wait for futures, perhaps of a client on another event loop; raise what made one of them fail.

    One that is "lost" is on its way again, or else "cancelled" soon.
    """
    while any(future.status in ("pending", "lost") for future in futures):
        await asyncio.sleep(0.005)
    for future in futures:
        if future.status == "error":
            raise await asyncio.to_thread(future.exception, 10)
        if future.status != "finished":
            raise StradaskError(
                f"Dask lost the data {shortened(future.key)} of a shard and cannot compute them again; "
                "scattered data die with their worker: let a task read or make them"
            )
