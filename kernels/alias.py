"""Walker's alias tables: draws from a fixed distribution in one step, whatever its size.

References: Walker, "An efficient method for generating discrete random variables with general
distributions", ACM TOMS 1977; Vose, "A linear algorithm for generating random numbers with a given
distribution", IEEE TSE 1991.
"""

from typing import Any

import numba as nb
import numpy as np

_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}


@nb.njit(**_OPTIONS)
def alias_tables(weights, aliases, limits):
    """Fill the tables of a distribution: place k is k for 32 bits below its limit, else its alias.

    Parameters
    ----------
    weights : float array (n,)
        Not negative, with a positive sum.
    aliases : int64 array (n,)
    limits : uint32 array (n,)
    """
    n = len(weights)
    total = 0.0
    for k in range(n):
        total += weights[k]
    share = np.empty(n)
    poor, rich = np.empty(n, np.int64), np.empty(n, np.int64)
    n_poor = n_rich = 0
    for k in range(n):
        share[k] = weights[k] / total * n
        aliases[k], limits[k] = k, np.uint32(0xFFFFFFFF)
        if share[k] < 1.0:
            poor[n_poor] = k
            n_poor += 1
        else:
            rich[n_rich] = k
            n_rich += 1
    while n_poor and n_rich:
        n_poor -= 1
        k, giver = poor[n_poor], rich[n_rich - 1]
        aliases[k] = giver
        limits[k] = np.uint32(min(share[k] * 4294967296.0, 4294967295.0))
        share[giver] -= 1.0 - share[k]
        if share[giver] < 1.0:
            n_rich -= 1
            poor[n_poor] = giver
            n_poor += 1
