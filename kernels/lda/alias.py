"""Walker's alias tables: draws from a fixed distribution in one step, whatever its size.

References: Walker, "An efficient method for generating discrete random variables with general
distributions", ACM TOMS 1977; Vose, "A linear algorithm for generating random numbers with a given
distribution", IEEE TSE 1991.
"""

import numba as nb
import numpy as np

from ..options import KERNEL
from . import host as lda_host

NO_TABLES = np.empty(0, np.int64), np.empty(0, np.uint32)  # of equal weights
alias_tables = nb.njit(**KERNEL)(lda_host.alias_tables)


def tables_of(weights, fill=alias_tables):
    """Walker's tables of a distribution: aliases and limits, both empty if all weights are equal."""
    if np.ptp(weights) == 0:
        return NO_TABLES
    aliases, limits = np.empty(len(weights), np.int64), np.empty(len(weights), np.uint32)
    fill(weights, aliases, limits)
    return aliases, limits
