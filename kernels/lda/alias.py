"""Walker's alias tables: draws from a fixed distribution in one step, whatever its size.

References: Walker, "An efficient method for generating discrete random variables with general
distributions", ACM TOMS 1977; Vose, "A linear algorithm for generating random numbers with a given
distribution", IEEE TSE 1991.
"""

import numba as nb
import numpy as np

from . import host as lda_host

alias_tables = nb.njit(nogil=True, cache=True, error_model="numpy")(lda_host.alias_tables)


def tables_of(weights, fill=alias_tables):
    """Walker's tables of a distribution: aliases and limits, both empty if all weights are equal."""
    size = 0 if np.ptp(weights) == 0 else len(weights)
    aliases, limits = np.empty(size, np.int64), np.empty(size, np.uint32)
    if size:
        fill(weights, aliases, limits)
    return aliases, limits
