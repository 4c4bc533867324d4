"""Placement: the worker of each shard, and shards' data that Dask holds or can compute."""

import asyncio
import math
from typing import Any

import dask
import distributed
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph, Layer

from ...errors import DataError, StradaskError, shortened
from .shards import DaskValue
from .worker import deliver_values


def place(n_items, threads, held=(), kept=None):
    """Spread items over workers, in their order and in proportion to `threads` (by worker).

    `held` has for each item the bytes of its data by worker: it goes where most of them are, unless that
    worker has its share already. `kept` are items that stay on their worker, at most its share (`stays`).

    Examples
    --------
    >>> from stradask.scheduler.sessions.placement import place
    >>> place(4, {"a": 1, "b": 1})
    ['a', 'a', 'b', 'b']
    >>> place(3, {"a": 1, "b": 1}, held=[{"b": 8}, {}, {"a": 8}])
    ['b', 'a', 'a']
    """
    slots = [worker for worker, n in threads.items() for _ in range(n)]
    if not any(held) and not kept:
        return [slots[item * len(slots) // n_items] for item in range(n_items)]
    free, homes = _shares(n_items, threads), dict(kept or {})
    for worker in homes.values():
        free[worker] -= 1
    for item, where in enumerate(held):
        wished = [worker for worker in where if free.get(worker)]
        if wished and item not in homes:
            homes[item] = max(wished, key=where.__getitem__)
            free[homes[item]] -= 1
    for item in range(n_items):
        if item not in homes:
            homes[item] = next(worker for worker in free if free[worker])
            free[homes[item]] -= 1
    return [homes[item] for item in range(n_items)]


def stays(n_items, threads, homes):
    """Return the items that need not move: of each worker as many as its share.

    Examples
    --------
    >>> from stradask.scheduler.sessions.placement import stays
    >>> stays(4, {"a": 1, "b": 1}, {0: "a", 1: "a", 2: "a"})
    {0: 'a', 1: 'a'}
    """
    free, found = _shares(n_items, threads), {}
    for item, worker in sorted(homes.items()):
        if free.get(worker):
            found[item] = worker
            free[worker] -= 1
    return found


def _shares(n_items, threads):
    n_threads = sum(threads.values())
    return {worker: math.ceil(n_items * n / n_threads) for worker, n in threads.items()}


class ShardData:
    """The entries of a program's `shards`; values that Dask can compute become futures when wanted.

    Blocks that Dask holds already, of arrays that were persisted or made of futures, are these futures: no
    task is made of them. `scheduler` is the session's parameter, `own` its client.
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
        """Have Dask compute the values of these shards, unless that was requested before."""
        found = {s: self._known[s] for s in shards if s in self._known and s not in self.entries}
        pairs = [pair for pairs in found.values() for pair in pairs]
        lazy = [value for value, future in pairs if future is None]
        made = iter(self.client.compute(lazy) if lazy else ())  # at once: they may have much in common
        futures = iter([next(made) if future is None else future for _, future in pairs])
        for s in found:
            self.entries[s] = _replaced(self.shards[s], futures)
            self.futures[s] = list(_dask_values(self.entries[s]))

    def form(self, shard):
        """Return a shard's entry with `DaskValue` in the places of Dask's data, and their keys."""
        keys = [future.key for future in self.futures.get(shard, ())]
        return _replaced(self.shards[shard], iter(map(DaskValue, range(len(keys))))), keys

    async def whereabouts(self, own):
        """Wait for the wanted values; return for each shard the bytes of it by worker."""
        keys = [future.key for futures in self.futures.values() for future in futures]
        if not keys:
            return ()
        await _settled([future for futures in self.futures.values() for future in futures])
        asked = own.scheduler.who_has(keys=keys), own.scheduler.nbytes(keys=keys, summary=False)
        holders, sizes = await asyncio.gather(*asked)
        held: list[dict[str, int]] = [{} for _ in self.shards]
        for shard, futures in self.futures.items():
            for key in (future.key for future in futures):
                for worker in holders.get(key, ()):
                    held[shard][worker] = held[shard].get(worker, 0) + sizes.get(key, 0)
        return held

    async def deliver_values(self, shard, session, epoch, worker):
        """Have Dask put its data of a shard into the worker state that wants them."""
        arguments = deliver_values, session, epoch, worker, shard, self.futures[shard]
        where = {"workers": [worker], "allow_other_workers": True}  # or it waits for ever for a lost worker
        await _settled([self.client.submit(*arguments, pure=False, **where)])


def _dask_values(entry):
    if isinstance(entry, distributed.Future) or dask.is_dask_collection(entry):
        yield entry
    elif type(entry) in (tuple, list, dict):
        for value in entry.values() if type(entry) is dict else entry:
            yield from _dask_values(value)


def holds_dask(entry):
    """Whether a shard's entry has values that Dask holds or computes."""
    return next(_dask_values(entry), None) is not None


def _replaced(entry, others):
    """Replace Dask's values by others, in the order of `_dask_values`."""
    if isinstance(entry, distributed.Future) or dask.is_dask_collection(entry):
        return next(others)
    if type(entry) in (tuple, list):
        return type(entry)(_replaced(value, others) for value in entry)
    if type(entry) is dict:
        return {name: _replaced(value, others) for name, value in entry.items()}
    return entry


def future_of(value):
    """Return the future that a value is or refers to; None if it must be computed.

    A collection refers to one if its result is the block of its only key: an array of one chunk, or a delayed
    value.
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
    """Wait for futures, perhaps of a client on another event loop; raise the failure of one.

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
