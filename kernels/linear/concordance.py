"""Harrell's concordance in n log n steps."""

from typing import Any

import numba as nb
import numpy as np

from ..options import INNER

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True}


@nb.njit(**_OPTIONS, **INNER)
def _below(tree, rank):
    total = 0
    while rank > 0:
        total += tree[rank]
        rank -= rank & -rank
    return total


@nb.njit(**_OPTIONS)
def concordant_pairs(order, times, events, ranks, n_ranks):
    """Count comparable pairs: concordant, tied in risk, all.

    `order`: rows by falling time. `ranks`: int64 (n,), the rank of each risk from 1 to `n_ranks`. A row with
    an event is comparable with all that are observed longer, and with those censored at the same time.
    """
    tree = np.zeros(n_ranks + 1, np.int64)
    concordant, tied, total, n_longer = 0, 0, 0, 0
    first = 0
    while first < len(order):
        last = first
        while last < len(order) and times[order[last]] == times[order[first]]:
            last += 1
        for censored in (True, False):  # those censored join first
            if not censored:
                for i in range(first, last):
                    row = order[i]
                    if events[row]:
                        below = _below(tree, ranks[row] - 1)
                        concordant += below
                        tied += _below(tree, ranks[row]) - below
                        total += n_longer
            for i in range(first, last):
                row = order[i]
                if events[row] != censored:
                    n_longer += 1
                    rank = ranks[row]
                    while rank <= n_ranks:
                        tree[rank] += 1
                        rank += rank & -rank
        first = last
    return concordant, tied, total
