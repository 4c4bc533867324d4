"""Pipelines: stages and their replicas, micro-batches that travel, gradients that are summed."""

import functools
import itertools
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from ...errors import DataError, shortened
from ..parameters import check_count
from .schedule import Schedule

ORDERS = ("gpipe", "1f1b", "pipedream")
KINDS = (
    *("forward", "backward", "send", "add", "fill", "take"),
    *("open", "hand", "join", "close", "open back", "hand back", "join back", "close back"),
)
_TURNS = {
    kind: turn
    for turns in (
        ("send", "add", "fill", "take"),
        ("hand", "forward", "join", "hand back", "backward", "join back"),
    )
    for turn, kind in enumerate(turns)
}


@dataclass(frozen=True)
class Operation:
    """What one place does with one travelling block.

    Attributes
    ----------
    kind : str
        "forward" and "backward" are the passes of a micro-batch. "send", "add", "fill", "take" are the sum of
        gradients over replicas: a part of the sum is sent, and added by another replica, which later fills
        the block with the whole sum for the sender to take.

        The first place of a split stage opens a micro-batch, hands its input to the other parts, makes the
        forward pass of its own part, joins the outputs of the others to its own, and closes the micro-batch;
        for backward passes "open back", "hand back", "join back", "close back" do the same with gradients.
    place, block : int
    step : int
        Mini-batch of the round.
    micro : int
        Micro-batch of the mini-batch; -1 where gradients are summed.
    span : tuple of int
        ``(first, last, n)``: parts first to last of the gradient, which is cut into n.
    updates : bool
        Whether the place's gradient is whole after this operation.
    part : int
        Of a split stage, whose input or output the block carries; 0 for blocks of micro-batches.
    """

    kind: str
    place: int
    block: int
    step: int
    micro: int = -1
    span: tuple[int, int, int] = (0, 1, 1)
    updates: bool = False
    part: int = 0


@dataclass(frozen=True)
class Layout:
    """Stages, their replicas, and the order of micro-batches. A *place* is one replica of one stage.

    Parameters
    ----------
    replicas : tuple of int
        One number a stage.
    n_micro : int, default=1
        Micro-batches of a mini-batch, a multiple of every number of replicas.
    n_steps : int, default=1
        Mini-batches of a round.
    order : {"1f1b", "gpipe", "pipedream"}, default="1f1b"
        "gpipe" makes all forward passes of a mini-batch and then all backward passes; "1f1b" alternates after
        two forward passes for each stage that follows, which holds fewer activations and leaves time for
        messages ("eager 1F1B"); both end a mini-batch before the next. "pipedream" does not: replicas take
        forward and backward passes in turns, over the ends of mini-batches, and a backward pass uses the
        parameters of its forward pass.
    parts : tuple of int, optional
        Places over which the weights of each stage are split; 1 for each by default. A split stage has one
        replica.

    Examples
    --------
    >>> from stradask.scheduler.schedules.pipeline import Layout, levels
    >>> for step in levels(Layout((1, 1), n_micro=2)):
    ...     print([(op.kind, op.place, op.micro) for op in step])
    [('forward', 0, 0)]
    [('forward', 0, 1), ('forward', 1, 0)]
    [('backward', 1, 0)]
    [('backward', 0, 0), ('forward', 1, 1)]
    [('backward', 1, 1)]
    [('backward', 0, 1)]
    """

    replicas: tuple[int, ...]
    n_micro: int = 1
    n_steps: int = 1
    order: str = "1f1b"
    parts: tuple[int, ...] = ()

    def __post_init__(self):
        if not self.replicas:
            raise DataError("replicas is empty: a pipeline has one stage or more")
        object.__setattr__(self, "parts", self.parts or (1,) * len(self.replicas))
        if len(self.parts) != len(self.replicas):
            raise DataError(f"parts must be {len(self.replicas)} numbers, one a stage, got {self.parts}")
        for number in self.parts:
            check_count("parts", number)
        if any(min(pair) > 1 for pair in zip(self.parts, self.replicas, strict=True)):
            raise DataError("a stage is split, or has replicas, and not both: give it one of them")
        for number in self.replicas:
            check_count("replicas", number)
        check_count("n_micro", self.n_micro)
        check_count("n_steps", self.n_steps)
        if self.order not in ORDERS:
            raise DataError(f"order must be one of {', '.join(ORDERS)}, got {shortened(self.order)}")
        odd = next((n for n in self.replicas if self.n_micro % n), None)
        if odd is not None:
            raise DataError(
                f"{self.n_micro} micro-batches cannot be shared by {odd} replicas of a stage: take a "
                f"multiple of {odd} micro-batches, or a larger batch_size where they follow from it"
            )
        if self.order == "pipedream" and max(self.parts) > 1:
            raise DataError("order='pipedream' has no split stages: set order='1f1b' or 'gpipe'")

    @property
    def widths(self):
        """Places of each stage."""
        return tuple(map(max, self.replicas, self.parts))

    @property
    def n_places(self):
        """Number of places."""
        return sum(self.widths)

    @property
    def n_micro_blocks(self):
        """Blocks that carry micro-batches: as many as can be under way."""
        if self.order != "pipedream":
            return self.n_micro
        under_way = self.replicas[0] * in_flight(self.replicas)
        return self.n_micro * min(-(-under_way // self.n_micro), self.n_steps)

    @property
    def n_blocks(self):
        """Blocks that travel."""
        summed = sum(len(exchanges(n)) for n in self.replicas)
        return summed + self.n_micro_blocks * (1 + sum(n - 1 for n in self.parts))

    def place(self, stage, micro):
        """Return the place of a micro-batch: neighbours, which are summed first, share a replica.

        Of a split stage it is the first part. In "pipedream" replicas take turns, as nothing waits for the
        end of a mini-batch.
        """
        n = self.replicas[stage]
        replica = micro % n if self.order == "pipedream" else micro * n // self.n_micro
        return sum(self.widths[:stage]) + replica

    def stage_of(self, place):
        """Return the stage of a place, and the number of its replica or part."""
        for stage, n in enumerate(self.widths):
            if place < n:
                return stage, place
            place -= n
        raise IndexError(place)


def in_flight(replicas):
    """Return how many micro-batches each replica of the first of these stages has at once in "pipedream".

    As many as keep all places busy: places over replicas.

    Examples
    --------
    >>> from stradask.scheduler.schedules.pipeline import in_flight
    >>> in_flight((1, 1, 1)), in_flight((2, 1)), in_flight((3,))
    (3, 2, 1)
    """
    return -(-sum(replicas) // replicas[0])


@functools.lru_cache(256)
def exchanges(n):
    """Return how n replicas sum: (level, sender, receiver, span), by level.

    Neighbours are summed first, then pairs of neighbours, as a binary counter carries: the order of the sum
    over micro-batches does not depend on n if each replica has 1, 2, 4... of them. For n = 2, 4, 8... each
    replica sums a part (recursive halving); else the first one sums all.

    Examples
    --------
    >>> from stradask.scheduler.schedules.pipeline import exchanges
    >>> exchanges(2)
    [(0, 0, 1, (1, 2, 2)), (0, 1, 0, (0, 1, 2))]
    >>> exchanges(3)
    [(0, 1, 0, (0, 1, 1)), (1, 2, 0, (0, 1, 1))]
    """
    found, width, level = [], 1, 0
    own = [(0, n)] * n  # parts that a replica still sums
    while width < n:
        for r in range(n):
            if n & (n - 1):
                if r % (2 * width) == width:
                    found.append((level, r, r - width, (0, 1, 1)))
                continue
            first, last = own[r]
            middle = (first + last) // 2
            upper = bool(r & width)
            given = (first, middle) if upper else (middle, last)
            found.append((level, r, r ^ width, (*given, n)))
            own[r] = (middle, last) if upper else (first, middle)
        width, level = 2 * width, level + 1
    return found


def _passes(layout, stage):
    """Return (kind, step, micro) of a stage, over all its replicas, in order."""
    M, T = layout.n_micro, layout.n_steps
    if layout.order == "gpipe":
        return [(kind, t, m) for t in range(T) for kind in ("forward", "backward") for m in range(M)]
    # Twice as many as the stages after it: with one each, every message would be waited for.
    warm_up = 2 * (len(layout.replicas) - stage - 1)
    runs = [[(t, m) for m in range(M)] for t in range(T)]
    if layout.order == "pipedream":  # each replica by itself, over all mini-batches
        warm_up, n = in_flight(layout.replicas[stage:]) - 1, layout.replicas[stage]
        runs = [[(t, m) for t in range(T) for m in range(r, M, n)] for r in range(n)]
    found = []
    for run in runs:  # warm up, one forward one backward, drain
        warm = min(warm_up, len(run))
        found += [("forward", *pair) for pair in run[:warm]]
        for n, pair in enumerate(run[warm:]):
            found += [("forward", *pair), ("backward", *run[n])]
        found += [("backward", *pair) for pair in run[len(run) - warm :]]
    return found


def _sums(layout, stage, step, first_block):
    """Return for each replica of a stage the operations that sum its gradients over the replicas."""
    n, first_place = layout.replicas[stage], layout.place(stage, 0)
    lists: list[list] = [[] for _ in range(n)]
    ways = list(enumerate(exchanges(n), first_block))
    n_levels = 1 + max((level for _, (level, *_) in ways), default=-1)
    for kinds, by_level in ((("send", "add"), range(n_levels)), (("fill", "take"), range(n_levels)[::-1])):
        for level in by_level:
            here = [(block, way) for block, way in ways if way[0] == level]
            for kind in kinds:
                for block, (_, sender, receiver, span) in here:
                    r = sender if kind in ("send", "take") else receiver
                    lists[r].append(Operation(kind, first_place + r, block, step, span=span))
    return lists


def _of_parts(layout, stage, op, first_block):
    """Return what the places of a split stage do for a pass of a micro-batch."""
    n, back = layout.parts[stage], " back" if op.kind == "backward" else ""
    others = [
        replace(op, block=first_block + op.block * (n - 1) + part - 1, part=part) for part in range(1, n)
    ]
    return [
        replace(op, kind="open" + back),
        *(replace(other, kind="hand" + back) for other in others),
        op,
        *(replace(other, place=op.place + other.part) for other in others),
        *(replace(other, kind="join" + back) for other in others),
        replace(op, kind="close" + back),
    ]


def operations(layout):
    """Return for each place its operations in order: the same ones in every round."""
    lists: list[list] = [[] for _ in range(layout.n_places)]
    first_block = layout.n_micro_blocks
    for stage, (n, n_parts) in enumerate(zip(layout.replicas, layout.parts, strict=True)):
        last: dict[Any, int] = {}
        for kind, t, m in _passes(layout, stage):
            place = layout.place(stage, m)
            block = (t * layout.n_micro + m) % layout.n_micro_blocks
            one = Operation(kind, place, block, t, m)
            for op in [one] if n_parts == 1 else _of_parts(layout, stage, one, first_block):
                lists[op.place].append(op)
                last[op.place, t] = len(lists[op.place])
        for (place, t), at in reversed(last.items()):
            sums = [] if n == 1 else _sums(layout, stage, t, first_block)[layout.stage_of(place)[1]]
            lists[place][at:at] = sums
            done = at + len(sums) - 1
            lists[place][done] = replace(lists[place][done], updates=True)
        first_block += len(exchanges(n)) + layout.n_micro_blocks * (n_parts - 1)
    return lists


def visits(layout, lists):
    """Return for each block the operations that it meets, in order, as (place, index in the place's list)."""
    K, found = len(layout.replicas), defaultdict(list)
    for place, ops in enumerate(lists):
        stage, _ = layout.stage_of(place)
        for index, op in enumerate(ops):
            if op.micro < 0 or op.part:
                turn = _TURNS[op.kind]
            else:
                turn = stage if op.kind in ("forward", "open", "close") else 2 * K - 1 - stage
            found[op.block].append((op.step, op.micro, turn, place, index))
    return [[visit[3:] for visit in sorted(found[block])] for block in range(layout.n_blocks)]


@functools.lru_cache(16)
def levels(layout):
    """Return the plan of a round: steps of operations that may run at the same time."""
    lists = operations(layout)
    before = {two: one for seen in visits(layout, lists) for one, two in itertools.pairwise(seen)}
    level: dict[Any, int] = {}
    pending = [0] * len(lists)
    while any(at < len(ops) for at, ops in zip(pending, lists, strict=True)):
        moved = False
        for p, ops in enumerate(lists):
            while pending[p] < len(ops):
                here = (p, pending[p])
                if here in before and before[here] not in level:
                    break
                level[here] = 1 + max(level.get(before.get(here), -1), level.get((p, pending[p] - 1), -1))
                pending[p] += 1
                moved = True
        if not moved:
            raise AssertionError("the orders of two places wait for each other")
    steps: list[list] = [[] for _ in range(1 + max(level.values()))]
    for (p, i), n in sorted(level.items()):
        steps[n].append(lists[p][i])
    return steps


class PipelineSchedule(Schedule):
    """A pipeline of stages, as operations of places on travelling blocks; the same plan in every round.

    Shards of the program are places, and its blocks are micro-batches and parts of gradients.

    Parameters
    ----------
    layout : Layout

    References
    ----------
    Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", NeurIPS
    2019. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019. Thakur,
    Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19 (2005).
    Zhuang et al., "On optimizing the communication of model parallelism", MLSys 2023.

    Examples
    --------
    >>> from stradask.scheduler.schedules.pipeline import Layout, PipelineSchedule
    >>> PipelineSchedule(Layout((1, 1))).plan(0, {})
    [[(0, 0)], [(1, 0)], [(1, 0)], [(0, 0)]]
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.n_shards, self.n_blocks = layout.n_places, layout.n_blocks

    def plan(self, round: int, state: Any) -> Any:
        """Pair places with blocks, level by level."""
        return [[(op.place, op.block) for op in step] for step in levels(self.layout)]
