"""Play a plan: when each place does what, and how long it waits."""

import heapq
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..schedules.pipeline import Layout, operations
from .timeline import Event, Timeline


class WorkItem(NamedTuple):
    """One entry of a place's list: ``"forward"`` or ``"backward"`` of a micro-batch, or ``"update"``.

    An update sums the gradients of the replicas first, if there are several; its `micro` is -1.
    """

    kind: str
    step: int
    micro: int


@lru_cache(64)
def work_of(layout):
    """Return the list of each place, not to be changed: what a schedule's operations compute."""
    lists: list[list[WorkItem]] = []
    for found in operations(layout):
        lists.append([])
        for op in found:
            if op.kind in ("forward", "backward"):
                lists[-1].append(WorkItem(op.kind, op.step, op.micro))
            if op.updates:
                lists[-1].append(WorkItem("update", op.step, -1))
    return lists


class StageCosts(NamedTuple):
    """What one replica of each stage takes: arrays of shape (n_stages,).

    Seconds of a micro-batch forward and backward (with the second forward pass of re-materialisation), bytes
    of a micro-batch's output, bytes of the parameters, and seconds of the optimizer.
    """

    forward: Any
    backward: Any
    out_bytes: Any
    parameter_bytes: Any
    update: Any


def stage_costs(profile, stages, rows, recompute=False):
    """Sum up a profile over stages ``(first, last, n_replicas)``, for micro-batches of so many rows."""
    forward, backward = profile.seconds(rows)

    def sums(values):
        total = np.concatenate([[0.0], np.cumsum(values)])
        return np.array([total[last] - total[first] for first, last, _ in stages])

    ends = [last - 1 for _, last, _ in stages]
    return StageCosts(
        sums(forward),
        sums(backward) + (sums(forward) if recompute else 0.0),
        profile.activation_bytes[ends] * rows,
        sums(profile.parameter_bytes),
        sums(profile.update),
    )


@dataclass(eq=False)
class Ports:
    """When each place can send and receive again; one port for both where the link is not duplex."""

    link: Any
    out: list
    into: list

    @classmethod
    def of(cls, link, n_places):
        """Return free ports."""
        out = [0.0] * n_places
        return cls(link, out, [0.0] * n_places if link.duplex else out)

    def send(self, source, target, ready, nbytes):
        """Return when bytes that are ready at a time have arrived."""
        start = max(ready, self.out[source], self.into[target])
        self.out[source] = self.into[target] = start + nbytes / self.link.bandwidth
        return self.out[source] + self.link.latency


class _Play:
    """A discrete-event simulation: messages leave in the order in which the operations before them end."""

    def __init__(self, costs, link, layout):
        self.costs, self.link, self.layout = costs, link, layout
        self.lists = work_of(layout)
        n_places = layout.n_places
        self.stage = [layout.stage_of(place)[0] for place in range(n_places)]
        self.last = len(layout.replicas) - 1
        self.at, self.free = [0] * n_places, [0.0] * n_places
        self.arrived: dict[tuple, float] = {}  # when the input of (kind, stage, step, micro) is there
        self.summing: dict[tuple, list] = {}  # places of (stage, step) that have their gradients
        self.ports = Ports.of(link, n_places)
        self.running: list[tuple] = []  # heap of (end, place, operation)
        self.busy = [False] * n_places
        self.events: list[Event] = []

    def run(self):
        for place in range(len(self.stage)):
            self.begin(place)
        while self.running:
            end, place, op = heapq.heappop(self.running)
            self.free[place], self.busy[place] = end, False
            self.at[place] += 1
            self.hand_on(place, op, end)
            self.begin(place)
        return self.events

    def begin(self, place):
        """Start the next operation of an idle place if its input is there, or is on its way."""
        if self.at[place] == len(self.lists[place]):
            return
        op, stage = self.lists[place][self.at[place]], self.stage[place]
        if op.kind == "update":
            self.update(place, op, stage)
            return
        first = stage == 0 if op.kind == "forward" else stage == self.last
        ready = 0.0 if first else self.arrived.get((op.kind, stage, op.step, op.micro))
        if ready is not None:
            seconds = self.costs.forward if op.kind == "forward" else self.costs.backward
            messages = (stage > 0) + (stage < self.last)
            start = max(ready, self.free[place])
            self.push(place, op, start, start + seconds[stage] + messages * self.link.cpu)

    def update(self, place, op, stage):
        """Sum the gradients of all replicas when the last one has them, then step."""
        there = self.summing.setdefault((stage, op.step), [])
        there.append(place)
        if len(there) < self.layout.replicas[stage]:
            return
        start = max(self.free[p] for p in there)
        summed = start + self.link.all_reduce(self.costs.parameter_bytes[stage], len(there))
        for p in there:
            if len(there) > 1:
                self.events.append(Event(p, "all-reduce", op.step, -1, start, summed))
            self.push(p, op, summed, summed + self.costs.update[stage])

    def push(self, place, op, start, end):
        if end > start:
            self.events.append(Event(place, op.kind, op.step, op.micro, start, end))
        self.busy[place] = True
        heapq.heappush(self.running, (end, place, op))

    def hand_on(self, place, op, end):
        """Send activations to the next stage, or gradients to the one before."""
        stage, step = self.stage[place], {"forward": 1, "backward": -1}.get(op.kind, 0)
        to = stage + step
        if not step or not 0 <= to <= self.last:
            return
        target = self.layout.place(to, op.micro)
        nbytes = self.costs.out_bytes[min(stage, to)]
        self.arrived[op.kind, to, op.step, op.micro] = self.ports.send(place, target, end, nbytes)
        if not self.busy[target] and self.lists[target][self.at[target]] == op:
            self.begin(target)


def simulate(profile, stages, link, *, batch_size, micro_batches, order="1f1b", recompute=False, n_steps=1):
    """Play mini-batches of a plan on a clock of its own.

    Parameters
    ----------
    profile : Profile
    stages : sequence of (int, int, int)
        First layer, last layer (not in it) and replicas of each stage.
    link : Link
    batch_size, micro_batches : int
        Rows of a mini-batch, and the parts that it is cut into.
    order : {"gpipe", "1f1b", "pipedream"}, default="1f1b"
    recompute : bool, default=False
        Whether a backward pass runs the forward pass again.
    n_steps : int, default=1
        Mini-batches.

    Returns
    -------
    Timeline

    Examples
    --------
    Two equal stages and four micro-batches: a fifth of the time is the bubble, (K - 1) / (M + K - 1).

    >>> from stradask.scheduler.planning import Link, Profile, simulate
    >>> profile = Profile([1.0, 1.0], [2.0, 2.0], [0, 0], [0, 0])
    >>> timeline = simulate(profile, [(0, 1, 1), (1, 2, 1)], Link(0, 1e9), batch_size=4, micro_batches=4)
    >>> timeline.seconds, timeline.idle
    (15.0, 0.2)
    """
    costs = stage_costs(profile, stages, batch_size / micro_batches, recompute)
    layout = Layout(tuple(n for _, _, n in stages), micro_batches, n_steps, order)
    return Timeline(_Play(costs, link, layout).run(), layout.n_places)


def seconds_of_a_step(profile, stages, link, *, batch_size, micro_batches, order, recompute):
    """Return the seconds of a mini-batch among many: without what only the first has, and the end."""
    warm = 2 * len(stages) if order == "pipedream" else 1
    options = {
        "batch_size": batch_size,
        "micro_batches": micro_batches,
        "order": order,
        "recompute": recompute,
    }
    one, two = (simulate(profile, stages, link, n_steps=n, **options).seconds for n in (warm, 2 * warm))
    return (two - one) / warm
