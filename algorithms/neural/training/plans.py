"""Plans: which layers are on which places, how mini-batches are cut, in which order they go."""

import sys
from dataclasses import dataclass
from typing import Any

from ....errors import DataError, shortened
from ....scheduler.planning.arguments import given_stages
from ....scheduler.schedules.pipeline import Layout

_LEAST_ROWS, _MOST_MICRO = 100, 16  # of a micro-batch, for micro_batches="auto"


def layout_of(plan, n_steps):
    """Return the layout of a plan, for epochs of so many mini-batches."""
    widths = tuple(n for *_, n in plan.stages)
    splits = getattr(plan, "splits", ()) or (False,) * len(widths)
    parts = tuple(n if split else 1 for n, split in zip(widths, splits, strict=True))
    replicas = tuple(1 if split else n for n, split in zip(widths, splits, strict=True))
    return Layout(replicas, plan.micro_batches, n_steps, plan.order, parts)


@dataclass(frozen=True)
class Plan:
    """How a network is trained where nothing was chosen; see also `PipelinePlan`.

    Attributes
    ----------
    stages : tuple of (int, int, int)
        First layer, last layer (without it), and number of places.
    micro_batches : int
    order : {"1f1b", "gpipe", "pipedream"}
    recompute : bool
    note : str
        What the user should know.
    splits : tuple of bool
        Whether the places of each stage are parts of two of its layers, and not replicas; () for no stage.
    """

    stages: tuple[tuple[int, int, int], ...]
    micro_batches: int
    order: str
    recompute: bool = False
    note: str = ""
    splits: tuple[bool, ...] = ()

    def timeline(self) -> Any:
        """Raise DataError: the layers of such a plan were not timed."""
        raise DataError(
            "this plan was not chosen by timings, so that its steps cannot be played: plan='pipeline', or "
            "'auto' on several places, times the layers; timeline_ is what was measured"
        )

    def table(self) -> str:
        """Return the plan as text.

        Examples
        --------
        >>> from stradask.algorithms.neural.training.plans import Plan
        >>> print(Plan(((0, 4, 2), (4, 6, 1)), 4, "1f1b").table())
        stage  layers  replicas
            0     0:4         2
            1     4:6         1
        4 micro-batches a mini-batch, order 1f1b
        """
        splits = self.splits or (False,) * len(self.stages)
        rows = [
            (k, f"{a}:{b}", f"split {n}" if split else n)
            for (k, (a, b, n)), split in zip(enumerate(self.stages), splits, strict=True)
        ]
        lines = [f"{a!s:>5}  {b:>6}  {c!s:>8}" for a, b, c in [("stage", "layers", "replicas"), *rows]]
        again = ", activations computed again" if self.recompute else ""
        lines.append(f"{self.micro_batches} micro-batches a mini-batch, order {self.order}{again}")
        return "\n".join(lines + [self.note] * bool(self.note))


def default_micro_batches(batch_size):
    """Return a number that does not depend on the places, so that they change no bit: 1, 2, 4, 8 or 16.

    Examples
    --------
    >>> from stradask.algorithms.neural.training.plans import default_micro_batches
    >>> [default_micro_batches(n) for n in (32, 128, 256, 10_000)]
    [1, 1, 2, 16]
    """
    number = 1
    while 2 * number <= min(batch_size // _LEAST_ROWS, _MOST_MICRO):
        number *= 2
    return number


def check_micro_batches(micro_batches, batch_size, order):
    """Return the number of micro-batches of a mini-batch of so many rows."""
    if micro_batches == "auto":
        return 1 if order == "pipedream" else default_micro_batches(batch_size)
    if batch_size % micro_batches:
        raise DataError(
            f"micro_batches={micro_batches} does not divide batch_size={batch_size}: take one of its divisors"
        )
    return int(micro_batches)


def make_plan(plan, n_layers, n_places, *, micro_batches, order, recompute, bounded):
    """Read the parameter `plan` of an estimator, where nothing has to be chosen.

    Parameters
    ----------
    plan : "data" or list of (str, int) and (str, int, "split")
    n_layers, n_places : int
    micro_batches : int
    order : str
    recompute : bool or "auto"
    bounded : bool
        Whether there may be no more places than `n_places`. Threads can take turns, workers cannot.
    """
    stages: Any
    splits: tuple[bool, ...] = ()
    if plan != "data":
        plan, splits = _split_entries(plan)
    if any(splits) and recompute is True:
        raise DataError("recompute=True: a split stage keeps its activations; set recompute=False")
    if plan == "data":
        fit = [r for r in range(1, n_places + 1) if not micro_batches % r and _is_power(micro_batches // r)]
        stages = ((0, n_layers, max(fit, default=1)),)
    else:
        if n_layers == 1 and isinstance(plan, list | tuple) and len(plan) > 1:
            raise DataError(
                f"plan has {len(plan)} stages, but the network is one: only the children of a nn.Sequential "
                "that share no parameters can be cut"
            )
        stages = given_stages(plan, n_layers, sys.maxsize)
    n_used = sum(n for *_, n in stages)
    if bounded and n_used > n_places:
        raise DataError(
            f"plan takes {n_used} places, but the workers have {n_places} threads: start more workers, or "
            "take fewer stages or replicas"
        )
    found = Plan(stages, micro_batches, order, recompute is True, splits=splits)
    layout_of(found, 1)  # checks the replicas against the micro-batches
    return found


def _split_entries(plan):
    """Return a list of (span, places), and which of them are split."""
    entries, splits = [], []
    for entry in plan:
        split = is_split(entry)
        if split and entry[2] != "split":
            raise DataError(
                f"plan must have stages such as ('0:4', 2) or ('0:3', 2, 'split'), got {shortened(entry)}"
            )
        entries.append(entry[:2] if split else entry)
        splits.append(split and entry[1] != 1)
    return entries, tuple(splits) if any(splits) else ()


def is_split(entry):
    """Whether an entry of a plan has a third part, as ``("0:3", 2, "split")``."""
    return isinstance(entry, list | tuple) and len(entry) == 3


def _is_power(n):
    return not n & (n - 1)
