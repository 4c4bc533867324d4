"""Walker's alias tables: draws from a fixed distribution in one step, whatever its size.

References: Walker, "An efficient method for generating discrete random variables with general
distributions", ACM TOMS 1977; Vose, "A linear algorithm for generating random numbers with a given
distribution", IEEE TSE 1991.
"""

import numba as nb

from . import host as lda_host

alias_tables = nb.njit(nogil=True, cache=True, error_model="numpy")(lda_host.alias_tables)
