"""How often each count of each topic occurs among the documents."""

import numba as nb

from ..options import BORROWS, KERNEL


@nb.njit(**KERNEL, **BORROWS)
def tally_dense(counts, n_topics, times):
    """Add to ``times[k, c]`` the documents that have c > 0 tokens of topic k; `counts` are dense rows."""
    for d in range(counts.shape[0]):
        for k in range(n_topics):
            c = counts[d, k]
            if c > 0:
                times[k, c] += 1
