"""The choice of a plan: candidates of the dynamic program, played by the simulator, the fastest that fits."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ...errors import DataError, shortened
from ..parameters import check_count
from .arguments import given_micro_batches, given_orders, given_recompute, given_stages
from .costs import Link, Profile, as_link, is_number
from .memory import held, stage_bytes
from .partition import partition
from .simulate import seconds_of_a_step, simulate, stage_costs
from .splits import play_split, split_bytes, split_row
from .timeline import Timeline, columns

_MOST_SHOWN, _REFINED = 6, 6  # plans in the table; candidates that are played in detail
_WORTH = 1.2  # slower plans, in units of the fastest, are not improved
_FASTER = 0.8  # so much of the time of the best other plan a split must take: its last bits are its own
_EQUAL = 1.02  # seconds that differ by less than predictions do: fewer micro-batches are then taken
_NEAR = 1.05  # data parallelism is taken if the best other plan is not faster than that


@dataclass(frozen=True, eq=False, repr=False)
class PipelinePlan:
    """How a net is trained on several places, and what that is predicted to take.

    Attributes
    ----------
    stages : tuple of (int, int, int)
        First layer, last layer (not in it) and replicas of each stage. One stage is data parallelism.
    micro_batches : int
        Parts of a mini-batch.
    order : {"gpipe", "1f1b", "pipedream"}
    recompute : bool
        Whether a backward pass runs the forward pass again, to keep less.
    batch_size : int
        Rows of a mini-batch.
    seconds : float
        Predicted for a mini-batch.
    memory : tuple of float
        Bytes that a place of each stage holds at most.
    fits : bool
        Whether that is within the limit.
    considered : tuple of PipelinePlan
        The best plan of each kind, the fastest first.
    splits : tuple of bool
        ``(True,)`` where the places of the only stage are no replicas: each has some hidden units of a pair
        of layers (`Profile.pair`), and the first place all other layers. Else empty.
    """

    stages: tuple[tuple[int, int, int], ...]
    micro_batches: int
    order: str
    recompute: bool
    batch_size: int
    seconds: float
    memory: tuple[float, ...]
    fits: bool
    profile: Profile
    link: Link
    considered: tuple["PipelinePlan", ...] = ()
    splits: tuple[bool, ...] = ()

    def __repr__(self) -> str:
        stages = ", ".join(f"{a}:{b} on {n}" for a, b, n in self.stages)
        return (
            f"PipelinePlan({self.kind}, layers {stages}, {self.micro_batches} micro-batches, "
            f"order={self.order!r}, {1e3 * self.seconds:.3g} ms a step)"
        )

    @property
    def replicas(self) -> tuple[int, ...]:
        """Places of each stage."""
        return tuple(n for _, _, n in self.stages)

    @property
    def n_places(self) -> int:
        """Places in all."""
        return sum(self.replicas)

    @property
    def kind(self) -> str:
        """One of "one place", "data", "pipeline", "hybrid" (with replicas of some stage), "split"."""
        if self.splits:
            return "split"
        if len(self.stages) == 1:
            return "one place" if self.n_places == 1 else "data"
        return "pipeline" if max(self.replicas) == 1 else "hybrid"

    def timeline(self, n_steps: int = 1) -> Timeline:
        """Play so many mini-batches (of a split one): who does what when."""
        if self.splits:
            return Timeline(self._played(), self.n_places)
        return simulate(
            self.profile,
            self.stages,
            self.link,
            batch_size=self.batch_size,
            micro_batches=self.micro_batches,
            order=self.order,
            recompute=self.recompute,
            n_steps=n_steps,
        )

    def _played(self):
        how = {"micro_batches": self.micro_batches, "order": self.order}
        return play_split(self.profile, self.n_places, self.link, batch_size=self.batch_size, **how)

    def table(self) -> str:
        """Return the plan, what its stages take, and the plans that it was chosen from, as plain text."""
        rows = self.batch_size / self.micro_batches
        costs = stage_costs(self.profile, self.stages, rows, self.recompute)
        lines = [["stage", "layers", "places", "forward", "backward", "send", "all-reduce", "update", "MB"]]
        if self.splits:
            milliseconds = (f"{1e3 * value:.2f}" for value in split_row(self, rows))
            split = f"split {self.n_places}"
            lines.append(["0", f"0:{self.stages[0][1]}", split, *milliseconds, f"{self.memory[0] / 1e6:.1f}"])
        for k, (first, last, n) in enumerate(() if self.splits else self.stages):
            send = self.link.seconds(costs.out_bytes[k]) if k + 1 < len(self.stages) else 0.0
            summed = self.link.all_reduce(costs.parameter_bytes[k], n)
            seconds = (costs.forward[k], costs.backward[k], send, summed, costs.update[k])
            milliseconds = (f"{1e3 * value:.2f}" for value in seconds)
            lines.append([str(k), f"{first}:{last}", str(n), *milliseconds, f"{self.memory[k] / 1e6:.1f}"])
        again = ", with re-materialisation" if self.recompute else ""
        parts = [
            f"{self.kind}, order {self.order!r}, {self.micro_batches} micro-batches of {rows:g} rows{again}: "
            f"{1e3 * self.seconds:.2f} ms a step",
            columns(lines),
            "milliseconds of a micro-batch; all-reduce and update once a step; MB that a place holds",
        ]
        return "\n".join([*parts, *self._others()])

    def _others(self):
        if not self.considered:
            return []
        lines = [["plan", "places", "micro-batches", "ms a step", "MB", ""]]
        for rank, plan in enumerate(self.considered):
            chosen = (plan.stages, plan.splits) == (self.stages, self.splits)
            if rank >= _MOST_SHOWN and len(plan.stages) > 1 and not chosen:
                continue
            said = "chosen" if chosen else "" if plan.fits else "does not fit"
            name = plan.kind + (" " + "-".join(map(str, plan.replicas)) if len(plan.stages) > 1 else "")
            figures = (
                plan.n_places,
                plan.micro_batches,
                f"{1e3 * plan.seconds:.2f}",
                f"{max(plan.memory) / 1e6:.1f}",
            )
            lines.append([name, *map(str, figures), said])
        return ["", columns(lines, left=1)]


def plan_pipeline(
    profile: Profile,
    n_places: int,
    link: Link | None = None,
    *,
    batch_size: int,
    memory_limit: float | None = None,
    plan: Any = "auto",
    micro_batches: Any = "auto",
    orders: str | Sequence[str] = "1f1b",
    recompute: Any = "auto",
) -> PipelinePlan:
    """Choose how to train a net on several places: which layers where, how often, in which order.

    PipeDream's dynamic program proposes cuts and replicas for each number of stages, places and
    micro-batches; a simulator plays them; the fastest that fits into memory is taken, or one with fewer
    micro-batches that is slower by 2 % at most: what each of them costs in messages and sums of gradients
    is what predictions miss most. A single stage, that is data parallelism, is preferred if nothing is
    faster by more than 5 %, since it needs no cut. A split of two dense layers (`Profile.pair`) is taken
    where it needs at most 80 % of the time of the best other plan.

    Parameters
    ----------
    profile : Profile
        Seconds and bytes of each layer.
    n_places : int
        Places there are: workers, or processes of one. A plan may use fewer.
    link : Link, optional
        The way between two places.
    batch_size : int
        Rows of a mini-batch.
    memory_limit : float, optional
        Bytes that a place may hold of parameters, gradients, the optimizer's state and activations.
    plan : {"auto", "data", "pipeline"} or list, default="auto"
        One stage, several, or these: ``[("0:4", 2), ("4:", 1)]`` are two stages, layers 0 to 3 on two
        places and the rest on one.
    micro_batches : int or "auto", default="auto"
        Parts of a mini-batch; "auto" tries the divisors of `batch_size` up to 64. Each replica of a stage
        has 1, 2, 4... of them, so that sums in pairs are the same for any plan.
    orders : str or sequence of str, default="1f1b"
        Which of "gpipe", "1f1b" and "pipedream" may be taken. The last trains with older parameters than the
        others, and is faster by their bubble.
    recompute : bool or "auto", default="auto"
        Whether activations are computed again in the backward pass; "auto" where the plan needs it to fit.

    Returns
    -------
    PipelinePlan

    References
    ----------
    Huang, Cheng, Bapna, Firat, Chen, Chen, Lee, Ngiam, Le, Wu, Chen, "GPipe: efficient training of giant
    neural networks using pipeline parallelism", NeurIPS 2019.

    Narayanan, Harlap, Phanishayee, Seshadri, Devanur, Ganger, Gibbons, Zaharia, "PipeDream: generalized
    pipeline parallelism for DNN training", SOSP 2019.

    Examples
    --------
    Four layers of equal work; the parameters of the last are many, so their gradients are not to travel.

    >>> from stradask.scheduler import plan_pipeline
    >>> from stradask.scheduler.planning import Link, Profile
    >>> profile = Profile([0.01] * 4, [0.02] * 4, [2000] * 4, [1e6, 1e6, 1e6, 1e9], rows=256)
    >>> plan = plan_pipeline(profile, 2, Link(1e-3, 1e9), batch_size=256)
    >>> plan.stages
    ((0, 2, 1), (2, 4, 1))
    >>> print(plan.table())
    pipeline, order '1f1b', 16 micro-batches of 16 rows: 65.81 ms a step
    stage  layers  places  forward  backward  send  all-reduce  update      MB
        0     0:2       1     1.25      2.50  1.03        0.00    0.00    12.2
        1     2:4       1     1.25      2.50  0.00        0.00    0.00  6006.1
    milliseconds of a micro-batch; all-reduce and update once a step; MB that a place holds
    <BLANKLINE>
    plan          places  micro-batches  ms a step      MB
    pipeline 1-1       2             16      65.81  6006.1  chosen
    one place          1              1     120.00  3011.0
    data               2              2    1065.00  3010.0
    """
    n_places, batch_size = check_count("n_places", n_places), check_count("batch_size", batch_size)
    if not isinstance(profile, Profile):
        raise DataError(f"profile must be a Profile of stradask.scheduler.planning, got {shortened(profile)}")
    if memory_limit is not None and not (is_number(memory_limit) and memory_limit > 0):
        raise DataError(
            f"memory_limit must be a number of bytes above 0, or None, got {shortened(memory_limit)}"
        )
    search = _Search(
        profile,
        n_places,
        as_link(link),
        batch_size,
        memory_limit,
        given_stages(plan, profile.n_layers, n_places),
        given_micro_batches(micro_batches, batch_size),
        given_orders(orders),
        given_recompute(recompute, memory_limit),
    )
    return search.best(plan)


@dataclass(eq=False)
class _Search:
    """All candidates of one question; a dynamic program for each number of micro-batches and each order."""

    profile: Profile
    n_places: int
    link: Link
    batch_size: int
    memory_limit: float | None
    given: tuple | None
    micro_batches: list
    orders: list
    recompute: list

    def __post_init__(self):
        self.memory_of = cache(self._memory_of)

    def best(self, plan):
        """Return the fastest plan that fits, and the best of each kind."""
        least, most = {"data": (1, 1), "pipeline": (2, self.n_places)}.get(
            plan if self.given is None else "", (1, self.n_places)
        )
        candidates = [c for c in self.candidates(most, limited=True) if least <= len(c[1]) or self.given]
        fitting = self.fastest(candidates)
        splits = self.splits() if plan == "auto" else []
        split: Any = min((one for one in splits if one.fits), key=_seconds, default=None)
        if not fitting and split is None:
            raise DataError(self._why_nothing(least, most))
        chosen: Any = min(fitting.values(), key=_seconds, default=split)
        uncut = [found for found in fitting.values() if len(found.stages) == 1]
        if uncut and min(uncut, key=_seconds).seconds <= _NEAR * chosen.seconds:
            chosen = min(uncut, key=_seconds)
        if (
            self.given is None and least == 1 and self.memory_limit is not None
        ):  # also where they do not fit: what there is to gain
            fitting = self.fastest(self.candidates(1, limited=False)) | fitting
        if split is not None and split.seconds < _FASTER * chosen.seconds:
            chosen = split
        others = [*fitting.values(), *(splits[:1] if split is None else [split])]
        return replace(chosen, considered=tuple(sorted(others, key=_seconds)))

    def splits(self):
        """Return the plans that split a pair of layers, over each number of places."""
        if self.profile.pair is None or False not in self.recompute:
            return []
        orders = [order for order in self.orders if order != "pipedream"]
        numbers = range(2, min(self.n_places, self.profile.pair.widths[1]) + 1)
        return [self.split(n, *how) for n, *how in itertools.product(numbers, self.micro_batches, orders)]

    def split(self, n_parts, micro, order):
        """Play a split, and make a plan of it."""
        how = {"batch_size": self.batch_size, "micro_batches": micro, "order": order}
        events = play_split(self.profile, n_parts, self.link, **how)
        nbytes = split_bytes(self.profile, n_parts, **how)
        return PipelinePlan(
            ((0, self.profile.n_layers, n_parts),),
            recompute=False,
            **how,
            seconds=Timeline(events, n_parts).seconds,
            memory=(nbytes,),
            fits=self.memory_limit is None or nbytes <= self.memory_limit,
            profile=self.profile,
            link=self.link,
            splits=(True,),
        )

    def candidates(self, most_stages, limited):
        """Return tuples (least seconds, stages, micro-batches, order, recompute), the shortest first."""
        found = []
        for order in self.orders:
            for micro in self.micro_batches:
                for again in self.recompute:
                    for stages in self._cuts(order, micro, again, most_stages, limited):
                        found.append((self.least(stages, micro, order, again), stages, micro, order, again))
        return sorted(found, key=lambda candidate: candidate[0])

    def _cuts(self, order, micro, again, most_stages, limited):
        if self.given is not None:
            even = all(self._even(order, micro)[n] for _, _, n in self.given)
            if even and (not limited or self.held_by(self.given, micro, order, again)[1]):
                yield self.given
            return

        def fits(k):
            return self._mask(k, order, micro, again) if limited else self._even(order, micro)

        options = {
            "rows": self.batch_size / micro,
            "micro_batches": micro,
            "max_stages": most_stages,
            "fits": fits,
        }
        seen = set()
        for flush in (True, False) if order != "pipedream" else (False,):
            cuts = partition(self.profile, self.n_places, self.link, flush=flush, **options)
            seen |= {cut.stages for cut in cuts.values()}
        yield from (s for s in sorted(seen) if not limited or self.held_by(s, micro, order, again)[1])

    def least(self, stages, micro, order, again):
        """Return seconds that no order can beat: a stage's work, and what comes before and after it."""
        costs = stage_costs(self.profile, stages, self.batch_size / micro, again)
        both, before, most = costs.forward + costs.backward, 0.0, 0.0
        for k, (_, _, n) in enumerate(stages):
            own = micro // n * both[k]
            summed = self.link.all_reduce(costs.parameter_bytes[k], n) + costs.update[k]
            most = max(most, own + summed, before + own)
            if order != "pipedream":
                before += both[k] + 2 * self.link.seconds(costs.out_bytes[k])
        return most

    def _even(self, order, micro):
        """Which numbers of replicas the order can have.

        Each has 1, 2, 4... micro-batches, or a stage has no replicas: sums in pairs are the same then for all
        of these numbers, so that a choice by timings changes no bit. In "pipedream" it does change them.
        """
        n = np.arange(self.n_places + 1)
        each = micro // np.maximum(n, 1)
        even = (n > 0) & (each * n == micro)
        return even if order == "pipedream" else even & ((n == 1) | (each & (each - 1) == 0))

    def _mask(self, k, order, micro, again):
        """Which stages a place can hold when k - 1 follow."""
        even = self._even(order, micro)
        n = self.profile.n_layers
        mask = np.broadcast_to(even, (n, n + 1, len(even))).copy()
        if self.memory_limit is not None:
            for m in np.flatnonzero(even):
                mask[:, :, m] &= self.memory_of(k - 1, int(m), micro, order, again) <= self.memory_limit
        return mask

    def _memory_of(self, after, n_replicas, micro, order, again):
        counts = held(after, n_replicas, micro, order)
        return stage_bytes(self.profile, self.batch_size / micro, again, *counts)

    def held_by(self, stages, micro, order, again):
        """Return the bytes that a place of each stage holds, and whether all are within the limit."""
        after = [len(stages) - k - 1 for k in range(len(stages))]
        if order == "pipedream":  # as many micro-batches are under way as there are places
            after = [sum(n for _, _, n in stages[k + 1 :]) for k in range(len(stages))]
        memory = tuple(
            float(self.memory_of(n_after, n, micro, order, again)[first, last])
            for n_after, (first, last, n) in zip(after, stages, strict=True)
        )
        return memory, self.memory_limit is None or max(memory) <= self.memory_limit

    def fastest(self, candidates):
        """Play candidates, the most promising first; return the best of each number of stages."""
        played: dict[tuple, list[PipelinePlan]] = {}
        best = np.inf
        for bound, *choices in candidates:
            own = played.setdefault((len(choices[0]), sum(n for _, _, n in choices[0]) == 1), [])
            if not own or bound < min(_EQUAL * own[0].seconds, _WORTH * best):
                own.append(self.made(*choices))
                best = min(best, own[-1].seconds)
                own.sort(key=_seconds)  # of equal ones the first stays first
        if self.given is None and played:
            for own in played.values():
                own[:_REFINED] = [
                    self.refined(plan) if plan.seconds < _WORTH * best else plan for plan in own[:_REFINED]
                ]
        return {k: _simplest(own) for k, own in played.items()}

    def refined(self, plan):
        """Move cuts by one layer, and places between neighbours, as long as that is faster.

        The dynamic program knows the slowest stage alone; few micro-batches have bubbles, and messages take
        time.
        """
        better = True
        while better:
            better = False
            for stages in list(_neighbours(plan.stages)):
                if all(self._even(plan.order, plan.micro_batches)[n] for _, _, n in stages):
                    moved = self.made(stages, *_choices(plan)[1:])
                    if moved.seconds < plan.seconds * (1 - 1e-9) and moved.fits >= plan.fits:
                        plan, better = moved, True
        return plan

    def made(self, stages, micro, order, again):
        """Play a candidate, and make a plan of it."""
        options = {"batch_size": self.batch_size, "micro_batches": micro, "order": order, "recompute": again}
        seconds = seconds_of_a_step(self.profile, stages, self.link, **options)
        memory, fits = self.held_by(stages, micro, order, again)
        return PipelinePlan(
            stages,
            **options,
            seconds=seconds,
            memory=memory,
            fits=fits,
            profile=self.profile,
            link=self.link,
        )

    def _why_nothing(self, least, most):
        """Say what would be needed, when no plan fits, or none can be."""
        free = [c for c in self.candidates(most, limited=False) if least <= len(c[1]) or self.given]
        if not free:
            return (
                f"no plan: each replica of a stage must have 1, 2, 4... micro-batches, of which there are "
                f"{shortened(self.micro_batches)}; take another batch_size, micro_batches or plan"
            )
        need = min(max(self.held_by(*choices)[0]) for _, *choices in free)
        return (
            f"no plan for {self.n_places} places fits memory_limit={self.memory_limit:.4g}: the smallest "
            f"that was found needs {need:.4g} bytes a place; take more places, a smaller batch_size or "
            "recompute='auto'"
        )


def _neighbours(stages):
    """Yield stages with a cut or a place moved from one to the next or back."""
    for k, way in itertools.product(range(1, len(stages)), (-1, 1)):
        (first, cut, here), (_, last, there) = stages[k - 1 : k + 1]
        for step, place in ((way, 0), (0, way)):
            if first < cut + step < last and min(here + place, there - place) > 0:
                pair = (first, cut + step, here + place), (cut + step, last, there - place)
                yield (*stages[: k - 1], *pair, *stages[k + 1 :])


def _simplest(plans):
    """Return the plan with the fewest micro-batches among those that are about as fast as the fastest."""
    least = min(map(_seconds, plans))
    equal = (one for one in plans if one.seconds <= _EQUAL * least)
    return min(equal, key=lambda one: (one.micro_batches, one.seconds))


def _seconds(plan):
    return plan.seconds


def _choices(plan):
    return plan.stages, plan.micro_batches, plan.order, plan.recompute
