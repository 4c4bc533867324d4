"""Plans: which layers are on which places, how mini-batches are cut, in which order they go."""

import re
from dataclasses import dataclass
from numbers import Integral

from ....errors import DataError, shortened
from ....scheduler.schedules.pipeline import ORDERS, Layout

_LEAST_ROWS, _MOST_MICRO = 64, 16  # of a micro-batch, where nobody says how many there are
_SPAN = re.compile(r"\s*(\d*)\s*:\s*(\d*)\s*")


@dataclass(frozen=True)
class Plan:
    """How a network is trained on several places.

    Attributes
    ----------
    stages : tuple of (int, int, int)
        First layer, last layer (without it), and number of replicas.
    micro_batches : int
    order : {"1f1b", "gpipe", "pipedream"}
    recompute : bool
    note : str
        What the user should know.
    """

    stages: tuple[tuple[int, int, int], ...]
    micro_batches: int
    order: str
    recompute: bool = False
    note: str = ""

    def layout(self, n_steps):
        """Return the layout of an epoch of so many mini-batches."""
        n_micro = 1 if self.order == "pipedream" else self.micro_batches
        return Layout(tuple(n for *_, n in self.stages), n_micro, n_steps, self.order)

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
        rows = [(k, f"{a}:{b}", n) for k, (a, b, n) in enumerate(self.stages)]
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
    [1, 2, 4, 16]
    """
    number = 1
    while 2 * number <= min(batch_size // _LEAST_ROWS, _MOST_MICRO):
        number *= 2
    return number


def check_micro_batches(micro_batches, batch_size, order):
    """Return the number of micro-batches of a mini-batch of so many rows."""
    if order == "pipedream":
        if micro_batches not in ("auto", 1):
            raise DataError(
                f"micro_batches={shortened(micro_batches)} with order='pipedream', where each mini-batch "
                "goes whole: leave it out, and make batch_size smaller"
            )
        return 1
    if micro_batches == "auto":
        return default_micro_batches(batch_size)
    if batch_size % micro_batches:
        raise DataError(
            f"micro_batches={micro_batches} does not divide batch_size={batch_size}: take one of its divisors"
        )
    return int(micro_batches)


def make_plan(plan, n_layers, n_places, *, micro_batches, order, recompute, bounded):
    """Read the parameter `plan` of an estimator.

    Parameters
    ----------
    plan : "auto", "data" or list of (str, int)
    n_layers, n_places : int
    micro_batches : int
    order : str
    recompute : bool or "auto"
    bounded : bool
        Whether there may be no more places than `n_places`. Threads can take turns, workers cannot.
    """
    if order not in ORDERS:
        raise DataError(f"order must be one of {', '.join(ORDERS)}, got {shortened(order)}")
    if isinstance(plan, str):
        if plan not in ("auto", "data"):
            raise DataError(
                f"plan must be 'auto', 'data' or a list such as [('0:4', 2), ('4:', 1)], got {plan!r}"
            )
        one = order == "pipedream"
        fit = (r for r in range(1, n_places + 1) if not micro_batches % r and _is_power(micro_batches // r))
        stages = [(0, n_layers, 1 if one else max(fit, default=1))]
    else:
        stages = _read(plan, n_layers)
    n_used = sum(n for *_, n in stages)
    if bounded and n_used > n_places:
        raise DataError(
            f"plan takes {n_used} places, but the workers have {n_places} threads: start more workers, or "
            "take fewer stages or replicas"
        )
    found = Plan(tuple(stages), micro_batches, order, recompute is True)
    found.layout(1)  # checks the replicas against the micro-batches
    return found


def _is_power(n):
    return not n & (n - 1)


def _read(plan, n_layers):
    """Turn ``[("0:4", 2), ("4:", 1)]`` into spans of layers."""
    stages, at = [], 0
    if not isinstance(plan, list | tuple) or not plan:
        raise DataError(f"plan must be 'auto', 'data' or a list of (layers, replicas), got {shortened(plan)}")
    for number, entry in enumerate(plan):
        pair = entry if isinstance(entry, tuple | list) and len(entry) == 2 else ("", 0)
        match = _SPAN.fullmatch(pair[0]) if isinstance(pair[0], str) else None
        if match is None or not isinstance(pair[1], Integral) or isinstance(pair[1], bool) or pair[1] < 1:
            raise DataError(
                f"entry {number} of plan must be layers and a number of replicas, such as ('0:4', 2), got "
                f"{shortened(entry)}"
            )
        first, last = int(match[1] or at), int(match[2] or n_layers)
        if first != at or last <= first or last > n_layers:
            raise DataError(
                f"entry {number} of plan has the layers {first}:{last}, and they must begin with layer {at} "
                f"and end at {n_layers} or before: the network has {n_layers} layers that can be cut, and a "
                "stage one or more"
            )
        stages.append((first, last, int(pair[1])))
        at = last
    if at < n_layers:
        raise DataError(
            f"plan ends with layer {at - 1}, but the network has {n_layers} layers: add ('{at}:', 1)"
        )
    return stages
