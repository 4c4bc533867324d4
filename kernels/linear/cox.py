"""Sums over those at risk, for the Hessian of Cox's partial likelihood."""

import numba as nb
import numpy as np

from ..options import KERNEL


@nb.njit(**KERNEL)
def risk_sums(AT, v, stops, begins, first, dead, at_death, edges, term, c, scale, out):
    """Fill `out` with ``scale (sum over those at risk of v a - c times that over those who die)``, by terms.

    `AT`: float64 (m, n). `v`: float64 (n,). `stops`, `begins`, `first`: int64 (n,); a row is at risk at the
    times from `begins` to `stops`, and those of its stratum start at `first`. `dead`, `at_death`: int64; rows
    that die, and their times. `edges`: int64; first times of the strata, and their number. `term`: int64
    (n_terms,); the time of each term. `c`, `scale`: float64 (n_terms,). `out`: float64 (m, n_terms).
    """
    n_times = edges[-1]
    for j in range(len(AT)):
        a, sums, deaths = AT[j], np.zeros(n_times), np.zeros(n_times)
        for i in range(len(v)):
            if stops[i] > first[i]:
                sums[stops[i] - 1] += v[i] * a[i]
            if begins[i] > first[i]:
                sums[begins[i] - 1] -= v[i] * a[i]
        for d in range(len(dead)):
            deaths[at_death[d]] += v[dead[d]] * a[dead[d]]
        for s in range(len(edges) - 1):
            for t in range(edges[s + 1] - 2, edges[s] - 1, -1):
                sums[t] += sums[t + 1]
        for k in range(len(term)):
            out[j, k] = scale[k] * (sums[term[k]] - c[k] * deaths[term[k]])
