"""Which place runs which operation of a graph: list scheduling, and REINFORCE."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._typing import Array, RandomState
from ...errors import DataError, shortened
from ..parameters import check_count, numbers_of, random_source
from .costs import Link, as_link

_SAMPLES, _RATE, _SMOOTH = 16, 0.5, 0.95  # placements a step, length of a step, memory of the baseline


@dataclass(frozen=True, eq=False)
class Placement:
    """Where each operation runs.

    Attributes
    ----------
    places : ndarray of shape (n_operations,)
        The place of each operation.
    order : ndarray of shape (n_operations,)
        In which order they begin; a place runs its own in this order.
    seconds : float
        Until the last one ends.
    lower_bound : float
        Less is impossible: the longest path without any transfer, or all work shared evenly.
    history : ndarray
        The best seconds after each step of "reinforce"; of one number for "list".
    """

    places: Array
    order: Array
    seconds: float
    lower_bound: float
    history: Array


def place_graph(
    cost: Any,
    edges: Any,
    n_places: int | None = None,
    link: Link | None = None,
    *,
    method: str = "list",
    max_iter: int = 500,
    random_state: RandomState | None = None,
) -> Placement:
    """Choose for each operation of a graph the place that runs it.

    Parameters
    ----------
    cost : array-like of shape (n_operations,) or (n_operations, n_places)
        Seconds of each operation, on each place if they differ.
    edges : sequence of (int, int, float)
        ``(a, b, nbytes)``: b needs the output of a, which has so many bytes. They must not form a cycle.
    n_places : int, optional
        Needed where `cost` has one column.
    link : Link, optional
        What travels takes this between two places, and nothing on one.
    method : {"list", "reinforce"}, default="list"
        "list" goes through operations by the longest way to the end and puts each where it ends first (HEFT):
        the better and faster one. "reinforce" learns a distribution over places for each operation from the
        seconds of placements drawn from it.
    max_iter : int, default=500
        Steps of "reinforce", of 16 placements each.
    random_state : int, RandomState or None, default=None
        For "reinforce".

    Returns
    -------
    Placement

    Notes
    -----
    The reward of a placement is ``-sqrt(seconds)``, its baseline a moving average, as in the paper; the
    probabilities are a table, not an LSTM.

    References
    ----------
    Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
    computing", IEEE TPDS 13 (2002).

    Mirhoseini, Pham, Le, Steiner, Larsen, Zhou, Kumar, Norouzi, Bengio, Dean, "Device placement optimization
    with reinforcement learning", ICML 2017.

    Examples
    --------
    Two independent chains of two operations go to two places:

    >>> from stradask.scheduler import place_graph
    >>> from stradask.scheduler.planning import Link
    >>> found = place_graph([1.0, 2.0, 1.0, 2.0], [(0, 1, 1e6), (2, 3, 1e6)], 2, Link(0.1, 1e7))
    >>> found.places.tolist(), found.seconds, found.lower_bound
    ([0, 0, 1, 1], 3.0, 3.0)
    """
    graph = _Graph.of(cost, edges, n_places, as_link(link))
    if method == "list":
        places, seconds = graph.listed()
        return Placement(places, graph.order, seconds, graph.bound, np.array([seconds]))
    if method != "reinforce":
        raise DataError(f"method must be 'list' or 'reinforce', got {shortened(method)}")
    places, history = _reinforce(graph, check_count("max_iter", max_iter), random_source(random_state))
    return Placement(places, graph.order, float(history[-1]), graph.bound, history)


@dataclass(frozen=True, eq=False)
class _Graph:
    """Operations with the edges into each, in the order of their longest ways to the end."""

    cost: Array  # (n, n_places)
    first: Array
    source: Array
    seconds: Array
    order: Array
    bound: float

    @classmethod
    def of(cls, cost, edges, n_places, link):
        """Check what the caller gave."""
        cost = numbers_of("cost", cost)
        if cost.ndim == 1:
            if n_places is None:
                raise DataError("n_places is missing: give it, or cost with a column for each place")
            cost = np.repeat(cost[:, None], check_count("n_places", n_places), axis=1)
        if cost.ndim != 2 or not cost.size or n_places not in (None, cost.shape[1]):
            raise DataError(
                f"cost must have a row for each operation and n_places columns, got shape {cost.shape}"
            )
        if not (np.isfinite(cost) & (cost >= 0)).all():
            raise DataError("cost must be finite seconds that are not negative")
        table = numbers_of("edges", edges) if len(edges) else np.zeros((0, 3))
        if table.ndim != 2 or table.shape[1] != 3:
            raise DataError(f"edges must be (a, b, nbytes) each, got an array of shape {table.shape}")
        ends, n = table[:, :2], len(cost)
        wrong = ~((ends >= 0) & (ends < n) & (ends == np.floor(ends))).all(axis=1)
        wrong |= ~(np.isfinite(table[:, 2]) & (table[:, 2] >= 0))
        if wrong.any():
            raise DataError(
                f"edges must be (a, b, nbytes) with operations from 0 to {n - 1} and bytes from 0, got "
                f"{shortened(tuple(table[wrong][0].tolist()))}"
            )
        table = table[np.argsort(table[:, 1], kind="stable")]
        source, target = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
        first = np.searchsorted(target, np.arange(n + 1))
        seconds = link.latency + table[:, 2] / link.bandwidth
        order = _topological(n, source, target)
        # The longest way to the end, by mean cost with transfers, and by least cost without.
        rank, path = cost.mean(axis=1), cost.min(axis=1)
        out = np.argsort(source, kind="stable")
        begin = np.searchsorted(source[out], np.arange(n + 1))
        for i in order[::-1]:
            edges_out = out[begin[i] : begin[i + 1]]
            rank[i] += max((seconds[k] + rank[target[k]] for k in edges_out), default=0.0)
            path[i] += max((path[target[k]] for k in edges_out), default=0.0)
        number = np.empty(n, np.int64)
        number[order] = np.arange(n)  # ties, of operations that cost nothing, stay topological
        by_rank = np.lexsort((number, -rank))
        bound = max(path.max(), cost.min(axis=1).sum() / cost.shape[1])
        return cls(np.ascontiguousarray(cost), first, source, seconds, by_rank, float(bound))

    @property
    def edges(self):
        """Arrays of the edges, as kernels take them."""
        return self.cost, self.first, self.source, self.seconds

    def listed(self):
        """Put each operation where it ends first."""
        from ...kernels import placement

        places = np.zeros(len(self.cost), np.int64)
        return places, float(placement.earliest_finish(self.order, *self.edges, places))


def _topological(n, source, target):
    """Return operations in an order in which edges lead forward; refuse a cycle."""
    missing = np.bincount(target, minlength=n)
    out = np.argsort(source, kind="stable")
    begin = np.searchsorted(source[out], np.arange(n + 1))
    found = np.flatnonzero(missing == 0).tolist()
    for i in found:  # which grows
        for k in out[begin[i] : begin[i + 1]]:
            missing[target[k]] -= 1
            if not missing[target[k]]:
                found.append(int(target[k]))
    if len(found) < n:
        raise DataError(
            f"edges form a cycle through operation {int(np.flatnonzero(missing)[0])}; remove one of them"
        )
    return np.array(found, np.int64)


def _reinforce(graph, n_steps, source):
    """Follow the gradient of the expected reward; return the best placement and its seconds by step."""
    from ...kernels import placement

    n, n_places = graph.cost.shape
    rng = np.random.default_rng(source.randint(0, 2**31, size=4))
    logits, average = np.zeros((n, n_places)), None
    where, seconds = np.empty((_SAMPLES, n), np.int64), np.empty(_SAMPLES)
    best, places, history = np.inf, where[0], np.empty(n_steps)
    for step in range(n_steps):
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        uniforms = rng.random((_SAMPLES, n))
        placement.sample_places(odds.cumsum(axis=1), uniforms, graph.order, *graph.edges, where, seconds)
        if seconds.min() < best:
            best, places = seconds.min(), where[seconds.argmin()].copy()
        history[step] = best
        reward = -np.sqrt(seconds)
        average = reward.mean() if average is None else _SMOOTH * average + (1 - _SMOOTH) * reward.mean()
        advantage = (reward - average) / max(reward.std(), 1e-12)
        drawn = (where[:, :, None] == np.arange(n_places)) * advantage[:, None, None]
        logits += _RATE * (drawn.mean(axis=0) - advantage.mean() * odds)
    return places, history
