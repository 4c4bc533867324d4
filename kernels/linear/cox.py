"""Cox's partial likelihood, of rows in any order: values, slopes and curvatures, Hessian and conjugate.

Sums over those at risk run backwards in time. `risk` is a tuple of arrays: `stops`, `begins` and `stratum`,
int64 (n,): a row is at risk at the times from `begins` to before `stops`. `edges`, int64: first times of the
strata, and their number. `died`, float64 (n,): weights of events over the number of rows, 0 of rows without.
`term`, int64, and `c`, `m`, float64, (n_terms,): the time of each term, by how much those who die at it count
less, and its factor. `work`, float64 (2, n_times), is written over.
"""

from typing import Any

import numba as nb
import numpy as np

from ..exponentials import fast_exp
from ..options import BORROWS, KERNEL

_KERNEL: dict[str, Any] = {**KERNEL, **BORROWS}


@nb.njit(**_KERNEL)
def risks(stratum, weights, f, v, tops):
    """Fill `tops` with the largest predictor of each stratum, and v (n,) with risks over those of these."""
    for s in range(len(tops)):
        tops[s] = -np.inf
    for i in range(len(f)):
        tops[stratum[i]] = max(tops[stratum[i]], f[i])
    for i in range(len(f)):
        v[i] = weights[i] * fast_exp(f[i] - tops[stratum[i]])


@nb.njit(**_KERNEL)
def risk_sums(A, v, risk, c, scale, work, out):
    """Fill `out` with ``scale (sum over those at risk of v a - c times that over those who die)``, by terms.

    `A`: float64 (m, n). `v`: float64 (n,). `c`, `scale`: float64 (n_terms,). `out`: float64 (m, n_terms).
    """
    stops, begins, stratum, edges, died, term, _, _ = risk
    for j in range(len(A)):
        for t in range(work.shape[1]):
            work[0, t] = work[1, t] = 0.0
        for i in range(len(v)):
            first, mass = edges[stratum[i]], v[i] * A[j, i]
            if stops[i] > first:
                work[0, stops[i] - 1] += mass
            if begins[i] > first:
                work[0, begins[i] - 1] -= mass
            if died[i] > 0.0:
                work[1, stops[i] - 1] += mass
        for s in range(len(edges) - 1):
            for t in range(edges[s + 1] - 2, edges[s] - 1, -1):
                work[0, t] += work[0, t + 1]
        for k in range(len(term)):
            out[j, k] = scale[k] * (work[0, term[k]] - c[k] * work[1, term[k]])


@nb.njit(**_KERNEL)
def partial_likelihood(f, v, tops, totals, risk, work, u, h):
    """Return minus its logarithm, over the number of rows; fill u and h with slopes and bounds of curvatures.

    `totals`: float64 (n_terms,), the sum of risks of each term. The Hessian is at most the diagonal matrix of
    h, also less what a constant takes up, as of rows of the curvatures h with an intercept: each term has a
    constant of its own.
    """
    stops, begins, stratum, edges, died, term, c, m = risk
    value, s = 0.0, 0
    for t in range(work.shape[1]):
        work[0, t] = work[1, t] = 0.0
    for k in range(len(term)):
        while term[k] >= edges[s + 1]:
            s += 1
        value += m[k] * (np.log(totals[k]) + tops[s])
        work[0, term[k]] += m[k] / totals[k]
        work[1, term[k]] += c[k] * m[k] / totals[k]
    for s in range(len(tops)):  # each apart: the rates of one may be beyond the digits of another's
        for t in range(edges[s] + 1, edges[s + 1]):
            work[0, t] += work[0, t - 1]
    for i in range(len(f)):
        first, rate = edges[stratum[i]], 0.0
        if stops[i] > first:
            rate += work[0, stops[i] - 1]
        if begins[i] > first:
            rate -= work[0, begins[i] - 1]
        if died[i] > 0.0:
            rate -= work[1, stops[i] - 1]
            value -= died[i] * f[i]
        h[i] = max(v[i] * rate, 0.0)
        u[i] = h[i] - died[i]
    return value


@nb.njit(**_KERNEL)
def conjugate(v, totals, moments, s, weights, risk, dead, firsts, masses):
    """Conjugate at the share s of the slopes, from the entropies of risks mixed with those of the dead.

    `moments`: float64 (n_terms,), sums of ``v log(v / weights)`` over those at risk who do not die. `dead`:
    int64, rows that die, by time. `firsts`: int64 (n_times + 1,), where those of each time begin. `masses`:
    float64 (n_times,), their weights.
    """
    _, _, _, _, _, term, c, m = risk
    value = 0.0
    for k in range(len(term)):
        t, each, rest = term[k], s * moments[k] / totals[k], 1.0
        for e in range(firsts[t], firsts[t + 1]):
            mass, weight = (1.0 - c[k]) * v[dead[e]] / totals[k], weights[dead[e]]
            share = (1.0 - s) * weight / masses[t] + s * mass
            rest -= mass
            if share > 0.0:
                each += share * np.log(share / (weight * (1.0 - c[k])))
        if s > 0.0:
            each += rest * s * (np.log(s) - np.log(totals[k]))
        value += m[k] * each
    return value
