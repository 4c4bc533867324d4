"""Log densities of generalised linear mixed models, with all effects of groups among the parameters.

A row has the linear predictor ``f = x b + offset + sum_t z_t u_t[group]``. Each term t (intercepts and slopes
of the groups of one factor) has effects ``u ~ N(0, T T')``, ``T = diag(s) L``, with standard deviations s and
the Cholesky factor L of the correlations, or L = 1 where these are not modelled.

q begins with the unconstrained numbers of named parameters (see ``parameter_priors``): the coefficients b,
then s and L of each term, then the family's own. The effects of a term follow, as k numbers for each of its G
groups, in coordinates in which a diagonal metric serves:

- ``U = P V`` for the reflection P (G, G) that takes the first unit vector to ``1 / sqrt(G)``. Rows of V are
  independent and distributed as those of U; the first one is the mean of the effects, times ``sqrt(G)``. Data
  tell the mean of effects and the coefficients of the same columns apart by nothing, all else they tell well.
- Rows are ``v = T z`` with z standard normal. q holds v of columns that are centred and z of others. The
  first row is never centred; of the others a column is where rows say more of most groups' effects than the
  other groups do.
- q holds ``b + sum_t A_t m_t`` in place of b, for the means m_t (k,) of the effects and the least squares A_t
  (d, k) of the columns of Z_t on those of X: what the data tell.

References: Papaspiliopoulos, Roberts, Skold, "A general framework for the parametrization of hierarchical
models", Statistical Science 2007. Ogle, Barber, "Ensuring identifiability in hierarchical mixed effects
Bayesian models", Ecological Applications 2020.

``meta``: place of the layout's tables, number of values, then `HEAD` as named here and `TERM` numbers for
each term; ``data[0]`` is the power of the prior, and reals of the layout follow.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ... import one_form
from ..address import INTEGERS, MATRIX, VECTOR
from ..streams import CALLED, OPTIONS
from ..transforms import log_logistic
from .glm import digamma, predictor
from .parameter_priors import begin, end, place

# Parts of a density in one place: compiled alone they would be optimised there, and again in the density.
_PART: dict[str, Any] = {**CALLED, "inline": "always"}
NORMAL, STUDENT_T, BERNOULLI, POISSON, NEGATIVE_BINOMIAL, GAMMA, ORDERED = range(7)
# meta[2:]: free numbers of the layout; coefficients; family; rows; terms; place of the family's own
# parameters in the values, and how many; places of X, y, weights and offsets in data; groups of rows.
N_FREE, N_COEFS, FAMILY, N_ROWS, N_TERMS, OWN, N_OWN, X_AT, Y_AT, GROUPS_AT, TERMS_AT = range(2, 13)
HEAD = 13
# of a term: columns, groups, places of s and L in the values (L: -1 for none), of Z and of A in data, of the
# groups of rows in meta, of its effects in q, a bit for each column that is centred but for the first
# row, and whether other shards have these groups, so that the density of the effects has the prior's power.
WIDTH, N_GROUPS, SD_AT, L_AT, Z_AT, A_AT, ROWS_AT, Q_AT, CENTRED, SHARED = range(10)
TERM = 10


@nb.njit(**CALLED)
def logistic(x):
    """``1 / (1 + exp(-x))``."""
    e = math.exp(-abs(x))
    return (1.0 if x >= 0.0 else e) / (1.0 + e)


@nb.njit(**OPTIONS)
def constant(family, own):
    """Part of the log likelihood that every row has, and no predictor: a function of the own parameters."""
    if family == NORMAL:
        return -math.log(own[0]) - 0.5 * math.log(2.0 * math.pi)
    if family == STUDENT_T:
        half = 0.5 * own[1]
        return (
            math.lgamma(half + 0.5)
            - math.lgamma(half)
            - 0.5 * math.log(2.0 * half * math.pi)
            - math.log(own[0])
        )
    if family == GAMMA:
        return own[0] * math.log(own[0]) - math.lgamma(own[0])
    return 0.0


@nb.njit(**CALLED)
def add_constant_slope(family, own, weight, slope):
    """Add the derivatives of `constant`, times the weight of all rows."""
    if family == NORMAL:
        slope[0] -= weight / own[0]
    elif family == STUDENT_T:
        half = 0.5 * own[1]
        slope[0] -= weight / own[0]
        slope[1] += weight * 0.5 * (digamma(half + 0.5) - digamma(half) - 0.5 / half)
    elif family == GAMMA:
        slope[0] += weight * (math.log(own[0]) + 1.0 - digamma(own[0]))


@nb.njit(**CALLED)
def row(family, f, y, own, weight, slope):
    """Log likelihood of a row without `constant`, and its derivative in f; those in `own` go to slope.

    `weight` is that of the row in `slope` alone. Counts lack what depends on y alone.
    """
    if family == NORMAL:
        z = (y - f) / own[0]
        slope[0] += weight * z * z / own[0]
        return -0.5 * z * z, z / own[0]
    if family == STUDENT_T:
        z, freedom = (y - f) / own[0], own[1]
        square = z * z
        part = (freedom + 1.0) / (freedom + square)
        log_part = math.log1p(square / freedom)
        slope[0] += weight * part * square / own[0]
        slope[1] += weight * 0.5 * (part * square / freedom - log_part)
        return -0.5 * (freedom + 1.0) * log_part, part * z / own[0]
    if family == BERNOULLI:
        return y * f - max(f, 0.0) - math.log1p(math.exp(-abs(f))), y - logistic(f)
    if family == POISSON:
        mean = math.exp(f)
        return y * f - mean, y - mean
    if family == NEGATIVE_BINOMIAL:  # of mean exp(f) and variance mean + a mean^2
        a = own[0]
        r, gap = 1.0 / a, f + math.log(a)
        total, share = max(gap, 0.0) + math.log1p(math.exp(-abs(gap))), logistic(gap)
        value = y * f - (y + r) * total
        if y <= 200.0:  # gamma functions of a large r would cancel
            by_a, i = 0.0, 0.0
            while i < y:
                value += math.log1p(i * a)
                by_a += i / (1.0 + i * a)
                i += 1.0
        else:
            value += math.lgamma(y + r) - math.lgamma(r) - y * math.log(r)
            by_a = (y - r * (digamma(y + r) - digamma(r))) * r
        slope[0] += weight * (by_a + r * r * total - (y + r) * share * r)
        return value, y - (y + r) * share
    if family == GAMMA:  # of mean exp(f) and shape own[0]
        ratio, shape = y * math.exp(-f), own[0]
        slope[0] += weight * (math.log(y) - f - ratio)
        return shape * (math.log(y) - f - ratio) - math.log(y), shape * (ratio - 1.0)
    k = int(y)  # ORDERED: between the cuts k - 1 and k, by logistic noise
    if k == 0:
        high = own[0] - f
        slope[0] += weight * logistic(-high)
        return log_logistic(high), -logistic(-high)
    low = own[k - 1] - f
    if k == len(own):
        slope[k - 1] -= weight * logistic(low)
        return log_logistic(-low), logistic(low)
    high, gap = own[k] - f, own[k] - own[k - 1]
    part = 1.0 / math.expm1(gap)
    slope[k] += weight * (logistic(-high) + part)
    slope[k - 1] -= weight * (logistic(low) + part)
    value = log_logistic(high) + log_logistic(-low) + math.log(-math.expm1(-gap))
    return value, logistic(low) - logistic(-high)


@nb.njit(**CALLED)
def root(k, at_sd, at_L, theta, T):
    """Fill T = diag(s) L (k, k)."""
    for i in range(k):
        for j in range(k):
            entry = (1.0 if i == j else 0.0) if at_L < 0 else theta[at_L + i * k + j]
            T[i, j] = theta[at_sd + i] * entry


@nb.njit(**CALLED)
def pull_root(k, at_sd, at_L, theta, by_T, slope):
    """Add derivatives in s and L, from those in the lower triangle of T."""
    for i in range(k):
        for j in range(i + 1):
            entry = (1.0 if i == j else 0.0) if at_L < 0 else theta[at_L + i * k + j]
            slope[at_sd + i] += by_T[i, j] * entry
            if at_L >= 0:
                slope[at_L + i * k + j] += theta[at_sd + i] * by_T[i, j]


@nb.njit(**CALLED)
def _reflect(U):
    """Apply P to the columns of U (G, k): ``P = I - w w' / (1 - 1 / sqrt(G))``, ``w = e_0 - 1 / sqrt(G)``."""
    G, k = U.shape
    level = 1.0 / math.sqrt(G)
    if G == 1:
        return
    for j in range(k):
        total = U[0, j]
        for g in range(G):
            total -= level * U[g, j]
        total /= 1.0 - level
        U[0, j] -= total
        for g in range(G):
            U[g, j] += total * level


@nb.njit(**CALLED)
def _place_row(T, q, at, centred, z, v):
    """Fill ``v = T z`` of the numbers q[at : at + k]: of centred columns (bits) they are v, of others z."""
    for i in range(len(z)):
        total = 0.0
        for j in range(i):
            total += T[i, j] * z[j]
        if centred >> i & 1:
            v[i] = q[at + i]
            z[i] = (v[i] - total) / T[i, i]
        else:
            z[i] = q[at + i]
            v[i] = total + T[i, i] * z[i]


@nb.njit(**_PART)
def _pull_effects(T, q, centred, power, by_V, by_T, g):
    """Log density of the effects to a power; adds derivatives in q to g and in T to by_T.

    Those in V (G, k) are given.
    """
    G, k = by_V.shape
    logp, z, v, by_z = 0.0, np.empty(k), np.empty(k), np.empty(k)
    for n in range(G):
        at, own = n * k, centred if n else 0
        _place_row(T, q, at, own, z, v)
        for i in range(k):
            logp -= 0.5 * z[i] * z[i]
            by_z[i] = -power * z[i]
        for i in range(k - 1, -1, -1):
            if own >> i & 1:
                part = by_z[i] / T[i, i]
                logp -= math.log(T[i, i])
                by_T[i, i] -= z[i] * part + power / T[i, i]
                g[at + i] += by_V[n, i] + part
                part = -part
            else:
                part = by_V[n, i]
                by_T[i, i] += z[i] * part
                g[at + i] += by_z[i] + T[i, i] * part
            for j in range(i):
                by_z[j] += T[i, j] * part
                by_T[i, j] += z[j] * part
    return power * (logp - 0.5 * math.log(2.0 * math.pi) * G * k)


@nb.njit(**CALLED)
def n_effects(meta):
    """Effects that are in q."""
    total = 0
    for t in range(meta[N_TERMS]):
        at = meta[TERMS_AT] + t * TERM
        total += meta[at + WIDTH] * meta[at + N_GROUPS]
    return total


@nb.njit(**_PART)
def _fill_effects(q, theta, out, data, meta):
    """Fill the effects of all terms, group by group; turn coefficients in theta from those of q into b."""
    first, d = 0, meta[N_COEFS]
    for t in range(meta[N_TERMS]):
        at = meta[TERMS_AT] + t * TERM
        k, G, q_at, A_at = meta[at + WIDTH], meta[at + N_GROUPS], meta[at + Q_AT], meta[at + A_AT]
        T, z = np.empty((k, k)), np.empty(k)
        root(k, meta[at + SD_AT], meta[at + L_AT], theta, T)
        U = out[first : first + G * k].reshape(G, k)
        for n in range(G):
            _place_row(T, q, q_at + n * k, meta[at + CENTRED] if n else 0, z, U[n])
        for i in range(d):
            for j in range(k):
                theta[i] -= data[A_at + i * k + j] * U[0, j] / math.sqrt(G)
        _reflect(U)
        first += G * k


@nb.njit(**_PART)
def begin_rows(q, work, U, data, meta):
    """Fill values, priors, effects U and the linear predictors; return these and the log prior.

    The effects of terms whose groups' effects are in q alone.
    """
    n_values, n_free, d, n = meta[1], meta[N_FREE], meta[N_COEFS], meta[N_ROWS]
    qg = q[:n_free].copy()
    if meta[N_TERMS]:
        place(qg, work, data, meta)
        _fill_effects(q, work[:n_values], U, data, meta)
        for j in range(d):
            qg[j] = work[j]
    logp = begin(qg, work, data, meta)
    X, offsets_at = data[meta[X_AT] : meta[X_AT] + n * d].reshape(n, d), meta[Y_AT] + 2 * n
    predictors, first = np.empty(n), 0
    for i in range(n):
        predictors[i] = predictor(X, i, work[:d]) + data[offsets_at + i]
    for t in range(meta[N_TERMS]):
        at = meta[TERMS_AT] + t * TERM
        k, G = meta[at + WIDTH], meta[at + N_GROUPS]
        Z = data[meta[at + Z_AT] : meta[at + Z_AT] + n * k].reshape(n, k)
        groups = meta[meta[at + ROWS_AT] : meta[at + ROWS_AT] + n]
        for i in range(n):
            row_at = first + groups[i] * k
            for j in range(k):
                predictors[i] += Z[i, j] * U[row_at + j]
        first += G * k
    return predictors, qg, logp


@nb.njit(**_PART)
def end_rows(q, qg, g, slopes, work, data, meta):
    """Fill the gradient, given derivatives in the predictors; return the log density of the effects in q."""
    n_values, n_free, d, n = meta[1], meta[N_FREE], meta[N_COEFS], meta[N_ROWS]
    theta, slope = work[:n_values], work[2 * n_values : 3 * n_values]
    gb, X = slope[:d], data[meta[X_AT] : meta[X_AT] + n * d].reshape(n, d)
    for i in range(n):
        for j in range(d):
            gb[j] += slopes[i] * X[i, j]
    for i in range(len(g)):
        g[i] = 0.0
    logp = 0.0
    for t in range(meta[N_TERMS]):
        at = meta[TERMS_AT] + t * TERM
        k, G, q_at = meta[at + WIDTH], meta[at + N_GROUPS], meta[at + Q_AT]
        Z = data[meta[at + Z_AT] : meta[at + Z_AT] + n * k].reshape(n, k)
        groups = meta[meta[at + ROWS_AT] : meta[at + ROWS_AT] + n]
        T, by_T, by_V = np.empty((k, k)), np.zeros((k, k)), np.zeros((G, k))
        for i in range(n):
            for j in range(k):
                by_V[groups[i], j] += slopes[i] * Z[i, j]
        root(k, meta[at + SD_AT], meta[at + L_AT], theta, T)
        _reflect(by_V)
        for i in range(d):
            for j in range(k):
                by_V[0, j] -= data[meta[at + A_AT] + i * k + j] * gb[i] / math.sqrt(G)
        own_q, own_g = q[q_at : q_at + G * k], g[q_at : q_at + G * k]
        power = data[0] if meta[at + SHARED] else 1.0
        logp += _pull_effects(T, own_q, meta[at + CENTRED], power, by_V, by_T, own_g)
        pull_root(k, meta[at + SD_AT], meta[at + L_AT], theta, by_T, slope)
    end(qg, work, data, meta)
    for i in range(n_free):
        g[i] += work[4 * n_values + i]
    return logp


@nb.njit(**CALLED)
def targets(data, meta):
    """Targets of the rows, and their weights."""
    n, at = meta[N_ROWS], meta[Y_AT]
    return data[at : at + n], data[at + n : at + 2 * n]


@nb.njit(**CALLED)
def mixed(q, g, data, meta):
    """Log posterior density of all parameters and effects, and its gradient."""
    n_values, n, family = meta[1], meta[N_ROWS], meta[FAMILY]
    work, U = np.empty(4 * n_values + meta[N_FREE]), np.empty(n_effects(meta))
    slopes, qg, logp = begin_rows(q, work, U, data, meta)
    own = work[meta[OWN] : meta[OWN] + meta[N_OWN]]
    by_own = work[2 * n_values + meta[OWN] : 2 * n_values + meta[OWN] + meta[N_OWN]]
    y, weights = targets(data, meta)
    total = 0.0
    for i in range(n):
        value, by_f = row(family, slopes[i], y[i], own, weights[i], by_own)
        logp += weights[i] * value
        total += weights[i]
        slopes[i] = weights[i] * by_f
    logp += total * constant(family, own)
    add_constant_slope(family, own, total, by_own)
    return logp + end_rows(q, qg, g, slopes, work, data, meta)


@one_form.njit(MATRIX(MATRIX, MATRIX, VECTOR, INTEGERS), **OPTIONS)
def all_effects(Q, values, data, meta):
    """Effects (K, n) at points Q (K, d); coefficients in the values (K, n_values) become b."""
    out = np.empty((len(Q), n_effects(meta)))
    for r in range(len(Q)):
        _fill_effects(Q[r], values[r], out[r], data, meta)
    return out
