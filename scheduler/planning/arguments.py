"""The arguments of the planner: stages, micro-batches, orders and re-materialisation, read and checked."""

from typing import Any

import numpy as np

from ...errors import DataError, shortened
from ..parameters import check_count
from ..schedules.pipeline import ORDERS

_MOST_MICRO_BATCHES = 64  # that are tried


def given_stages(plan: Any, n_layers: int, n_places: int) -> tuple[tuple[int, int, int], ...] | None:
    """Return the stages of a plan such as ``[("0:4", 2), ("4:", 1)]``; None for the name of a kind."""
    if isinstance(plan, str):
        if plan not in ("auto", "data", "pipeline"):
            raise DataError(
                f"plan must be 'auto', 'data', 'pipeline' or a list of stages, got {shortened(plan)}"
            )
        if plan == "pipeline" and min(n_layers, n_places) < 2:
            remedy = "raise n_jobs, join more workers, or take plan='data'"
            if n_layers < 2:
                remedy = "one layer cannot be cut (of torch only a nn.Sequential can), so take plan='data'"
            raise DataError(
                f"plan='pipeline' needs 2 layers and 2 places at least, got {n_layers} and {n_places}: "
                + remedy
            )
        return None
    stages: list[tuple[int, int, int]] = []
    try:
        for span, n_replicas in plan:
            first, last = span.split(":")
            stages.append(
                (int(first or 0), int(last or n_layers), check_count("replicas of a stage", n_replicas))
            )
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"plan must be a list such as [('0:4', 2), ('4:', 1)], got {shortened(plan)}"
        ) from error
    ends = [0, *(last for _, last, _ in stages)]
    if [first for first, _, _ in stages] != ends[:-1] or ends[-1] != n_layers or sorted(set(ends)) != ends:
        raise DataError(
            f"plan must cut layers 0 to {n_layers} into stages that follow one another, got {shortened(plan)}"
        )
    if sum(n for _, _, n in stages) > n_places:
        raise DataError(
            f"plan needs {sum(n for _, _, n in stages)} places, and n_places={n_places}; give it more, or "
            "take fewer replicas"
        )
    return tuple(stages)


def given_micro_batches(given, batch_size):
    """Return the numbers of micro-batches to try."""
    if isinstance(given, str) and given == "auto":
        return [m for m in range(1, min(batch_size, _MOST_MICRO_BATCHES) + 1) if batch_size % m == 0]
    given = check_count("micro_batches", given)
    if batch_size % given:
        raise DataError(f"micro_batches={given} does not divide batch_size={batch_size}; take a divisor")
    return [given]


def given_orders(given):
    """Return the orders to try."""
    found = [given] if isinstance(given, str) else list(given)
    wrong = [order for order in found if order not in ORDERS]
    if wrong or not found:
        raise DataError(f"orders must be of {', '.join(map(repr, ORDERS))}, got {shortened(given)}")
    return found


def given_recompute(given, memory_limit):
    """Return whether to try plans without and with re-materialisation."""
    if isinstance(given, str) and given == "auto":
        return [False] if memory_limit is None else [False, True]
    if not isinstance(given, bool | np.bool_):
        raise DataError(f"recompute must be True, False or 'auto', got {shortened(given)}")
    return [bool(given)]
