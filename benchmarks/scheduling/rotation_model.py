"""How fast a rotation would be on other machines: a model of steps, fed with measured rates.

A sweep of S shards and as many blocks on P workers runs S steps. In a step each worker works on its shards,
as many at a time as it has threads and those first whose block goes elsewhere; such a block travels, at a
latency and a bandwidth, while the worker goes on. The step ends for all when every worker has done its
shards and holds the blocks of the next step, and after one message from and to each worker, with the totals.

`experiments.simulate_rotation` makes tables of it.
"""

import heapq
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Machines:
    """Machines as measured, or supposed.

    `rate` is in tokens a second and thread, `latency` in seconds, `bandwidth` in bytes a second from one
    worker to another; `overhead` are the seconds of a step but for this: one message to each worker and
    back.
    """

    n_workers: int
    n_threads: int = 1
    rate: float = 5e6
    latency: float = 3e-4
    bandwidth: float = 1e9
    overhead: float = 1.5e-3


@dataclass(frozen=True)
class Sweep:
    """Seconds of a sweep; ``sampling`` and ``waiting``, summed over threads: at work on tokens, and not.

    `n_bytes` are those of the blocks that changed workers, and of totals.
    """

    seconds: float
    sampling: float
    waiting: float
    n_bytes: float


def simulate(tokens, block_bytes, totals_bytes, machines):
    """Go through the steps of one sweep; return the `Sweep`.

    `tokens` (n_shards, n_blocks), square, is how many meet; `block_bytes` (n_blocks,) are those of packed
    blocks, `totals_bytes` those of the changes of the topic totals, from a shard or to a worker.
    """
    tokens, block_bytes = np.asarray(tokens, float), np.asarray(block_bytes, float)
    n_shards, n_workers = len(tokens), machines.n_workers
    if tokens.shape != (n_shards, n_shards) or block_bytes.shape != (n_shards,):
        raise ValueError(
            f"tokens must be square and block_bytes as long, got {tokens.shape}, {block_bytes.shape}"
        )
    if n_workers > n_shards:
        raise ValueError(f"{n_workers} workers have nothing to do with {n_shards} shards: give more shards")
    worker_of = np.arange(n_shards) * n_workers // n_shards
    totals = totals_bytes * (n_shards / n_workers + 1) / machines.bandwidth
    clock = sent = 0.0
    for step in range(n_shards):
        ends = []
        for worker in range(n_workers):
            shards = np.flatnonzero(worker_of == worker)
            work = [tokens[s, (s + step) % n_shards] / machines.rate for s in shards]
            done = _finish(work, machines.n_threads)
            ends.append(max(done))
            if n_workers > 1:  # the first shard's block goes to the worker before
                size = block_bytes[(shards[0] + step) % n_shards]
                ends.append(done[0] + machines.latency + size / machines.bandwidth)
                sent += size
        clock += max(ends) + machines.overhead + totals
    sent += n_shards * totals_bytes * (n_shards + n_workers)
    sampling = tokens.sum() / machines.rate
    return Sweep(clock, sampling, clock * n_workers * machines.n_threads - sampling, sent)


def _finish(work, n_threads):
    """When each task ends, taken in order by threads as they come free."""
    free, ends = [0.0] * min(n_threads, len(work)), []
    for seconds in work:
        ends.append(heapq.heappop(free) + seconds)
        heapq.heappush(free, ends[-1])
    return ends
