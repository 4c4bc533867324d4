"""PipeDream's dynamic program: where to cut a net and how often to replicate each stage."""

from typing import NamedTuple

import numpy as np


class Cut(NamedTuple):
    """Seconds a micro-batch, of the slowest stage or of a step, and stages ``(first, last, n_replicas)``."""

    seconds: float
    stages: tuple[tuple[int, int, int], ...]


def stage_seconds(profile, n_places, link, *, rows, micro_batches=None):
    """Return what each stage takes for a micro-batch: shape (n_layers, n_layers + 1, n_places + 1).

    Entry ``[i, j, m]`` is of layers i to j - 1 on m replicas, the greater of two: computing, with its share
    of the all-reduce, ``T / m + sum / M``; and the way of its input and of that one's gradient, at m replicas
    in parallel. Infinite for ``j <= i`` and m = 0.
    """
    n = profile.n_layers
    forward, backward = profile.seconds(rows)
    work = np.concatenate([[0.0], np.cumsum(forward + backward)])
    size = np.concatenate([[0.0], np.cumsum(profile.parameter_bytes)])
    step = np.concatenate([[0.0], np.cumsum(profile.update)])
    travel = np.concatenate([[0.0], profile.activation_bytes[:-1]]) * rows  # into each layer
    travel *= (1 if link.duplex else 2) / link.bandwidth
    at = np.arange(n + 1)
    messages = 2 * link.cpu * ((at[:n, None] > 0) * 1.0 + (at[None, :] < n))
    found = np.full((n, n + 1, n_places + 1), np.inf)
    empty = at[None, :] <= at[:n, None]
    for m in range(1, n_places + 1):
        sum_of = link.ring if micro_batches is None else link.all_reduce
        summed = np.array([[sum_of(size[j] - size[i], m) for j in at] for i in at[:n]]) if m > 1 else 0.0
        shared = summed + step[None, :] - step[:n, None]
        computing = (work[None, :] - work[:n, None] + messages) / m + shared / (micro_batches or m)
        found[:, :, m] = np.where(empty, np.inf, np.maximum(computing, travel[:, None] / m))
    return found


def partition(profile, n_places, link, *, rows, micro_batches=None, flush=False, max_stages=None, fits=None):
    """Minimise the slowest stage, for each number of stages and of places.

    With `flush` the whole step is minimised that ends with an empty pipeline: a stage works on all
    micro-batches after the first has come to it and before the last has gone back from it, and the greatest
    sum of these counts.

    Gradients are summed over replicas once in `micro_batches`. None means once in as many as a stage has
    replicas, by a ring, as in PipeDream; with a link that is not duplex this is its cost

    ``max over stages of max((T + 4 (m - 1) W / (B m)) / m, 2 a / (B m))``

    for T seconds of computing and W bytes of parameters on m replicas whose input has a bytes.

    Parameters
    ----------
    profile : Profile
    n_places : int
    link : Link
    rows : float
        Of a micro-batch.
    micro_batches : int, optional
    flush : bool, default=False
    max_stages : int, optional
    fits : callable, optional
        ``fits(k)`` returns a boolean array of shape (n_layers, n_layers + 1, n_places + 1): which stages a
        place can hold when k - 1 stages follow.

    Returns
    -------
    dict of (int, int) to Cut
        By number of stages and number of places; what cannot be is not in it.

    Notes
    -----
    Stages are added from the end, as what a stage must hold in memory depends on how many follow. With N
    layers and P places there are ``P^3 / 6`` steps on matrices of N x N.

    References
    ----------
    Harlap, Narayanan, Phanishayee, Seshadri, Devanur, Ganger, Gibbons, "PipeDream: fast and efficient
    pipeline parallel DNN training", 2018.

    Examples
    --------
    >>> from stradask.scheduler.planning import Link, Profile, partition
    >>> profile = Profile([1, 1, 2], [2, 2, 4], [0, 0, 0], [0, 0, 0])
    >>> partition(profile, 2, Link(0, 1e9), rows=1)[2, 2]
    Cut(seconds=6.0, stages=((0, 2, 1), (2, 3, 1)))
    """
    n = profile.n_layers
    cost = stage_seconds(profile, n_places, link, rows=rows, micro_batches=micro_batches)
    through = np.zeros((n, n + 1))
    if (
        flush
    ):  # what passing a stage and the way to the next one take, there and back, in units of a micro-batch
        work = np.concatenate([[0.0], np.cumsum(sum(profile.seconds(rows)))])
        transfers = 2 * (link.latency + 2 * link.cpu + profile.activation_bytes * rows / link.bandwidth)
        through = (
            work[None, :] - work[:n, None] + np.concatenate([[0.0], transfers[:-1], [0.0]])
        ) / micro_batches
    # best[k][m][i]: the least of layers i to the end in k stages on m places; way: the stage that begins at
    # i.
    best = {0: {0: np.append(np.full(n, np.inf), 0.0)}}
    way: dict[tuple, tuple] = {}
    found = {}
    for k in range(1, min(max_stages or n_places, n_places, n) + 1):
        now = cost if fits is None else np.where(fits(k), cost, np.inf)
        best[k] = {}
        for m in range(k, n_places + 1):
            values, ends, replicas = np.full(n + 1, np.inf), np.zeros(n, int), np.zeros(n, int)
            for here in range(1, m - k + 2):
                rest = best[k - 1].get(m - here)
                if rest is None:
                    continue
                slowest = np.maximum(now[:, :, here], through + rest)
                at = slowest.argmin(axis=1)
                least = slowest[np.arange(n), at]
                better = least < values[:n]
                values[:n][better] = least[better]
                ends[better], replicas[better] = at[better], here
            best[k][m], way[k, m] = values, (ends, replicas)
            if np.isfinite(values[0]):
                found[k, m] = Cut(float(values[0]), _stages(way, k, m))
    return found


def _stages(way, k, m):
    first, stages = 0, []
    for left in range(k, 0, -1):
        ends, replicas = way[left, m]
        last, here = int(ends[first]), int(replicas[first])
        stages.append((first, last, here))
        first, m = last, m - here
    return tuple(stages)
