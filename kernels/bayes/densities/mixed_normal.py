"""Log density of a linear mixed model with one grouping factor, the effects integrated out.

Of each group ``Z = Q R`` with k orthonormal columns Q, so that its k numbers ``Q' (y - X b)`` are normal with
the covariance ``V = s^2 I + (R T) (R T)'``, and what is orthogonal to them is independent with the variance
s^2 (the noise's). An evaluation costs nothing by row. Groups whose Z has a rank below k have rows of zeros,
whose normal densities add ``-log s`` each, and `WEIGHT` counts them back.

``meta`` is that of ``mixed``, with one term; after the reals of the layout ``data[meta[X_AT]]`` begin the
least squares of the orthogonal rest: centre (d,), triangle (d, d), sum of squares, weight; then of the groups
R (G, k, k), Q'X (G, k, d), Q'y (G, k).

Reference: Pinheiro, Bates, "Mixed-Effects Models in S and S-PLUS", 2000, section 2.2.
"""

import math

import numba as nb
import numpy as np

from ... import one_form
from ..address import INTEGERS, MATRIX, VECTOR
from ..streams import CALLED, OPTIONS, fill_normal
from ..triangles import factor, solve_lower, solve_upper
from .mixed import L_AT, N_COEFS, N_FREE, N_GROUPS, OWN, SD_AT, TERMS_AT, WIDTH, X_AT, pull_root, root
from .parameter_priors import begin, end


@nb.njit(**CALLED)
def _parts(data, meta):
    at, d = meta[X_AT], meta[N_COEFS]
    k, G = meta[meta[TERMS_AT] + WIDTH], meta[meta[TERMS_AT] + N_GROUPS]
    center, triangle = data[at : at + d], data[at + d : at + d + d * d].reshape(d, d)
    at += d + d * d + 2
    R = data[at : at + G * k * k].reshape(G, k, k)
    at += G * k * k
    X = data[at : at + G * k * d].reshape(G, k, d)
    at += G * k * d
    return center, triangle, R, X, data[at : at + G * k].reshape(G, k)


@nb.njit(**CALLED)
def _times_root(R, T, B):
    """B = R T, with a lower triangle T."""
    k = len(T)
    for i in range(k):
        for j in range(k):
            total = 0.0
            for m in range(j, k):
                total += R[i, m] * T[m, j]
            B[i, j] = total


@nb.njit(**CALLED)
def mixed_normal(q, g, data, meta):
    """Log posterior density of all but the effects, and its gradient."""
    n_values, n_free, d = meta[1], meta[N_FREE], meta[N_COEFS]
    term = meta[TERMS_AT]
    k, G = meta[term + WIDTH], meta[term + N_GROUPS]
    work = np.empty(4 * n_values + n_free)
    logp = begin(q, work, data, meta)
    theta, slope = work[:n_values], work[2 * n_values : 3 * n_values]
    b, gb = theta[:d], slope[:d]
    center, triangle, R, X, Y = _parts(data, meta)
    squares, weight = data[meta[X_AT] + d + d * d], data[meta[X_AT] + d + d * d + 1]
    sigma = theta[meta[OWN]]
    variance = sigma * sigma
    for i in range(d):
        total = 0.0
        for j in range(i, d):
            total += triangle[i, j] * (b[j] - center[j])
        squares += total * total
        for j in range(i, d):
            gb[j] -= total * triangle[i, j] / variance
    logp -= weight * (math.log(sigma) + 0.5 * math.log(2.0 * math.pi)) + 0.5 * squares / variance
    by_variance = 0.5 * (squares / variance - weight) / variance
    T, by_T, B, V = np.empty((k, k)), np.zeros((k, k)), np.empty((k, k)), np.empty((k, k))
    e, w, inverse = np.empty(k), np.empty(k), np.empty((k, k))
    root(k, meta[term + SD_AT], meta[term + L_AT], theta, T)
    for n in range(G):
        _times_root(R[n], T, B)
        for i in range(k):
            for j in range(i + 1):
                total = variance if i == j else 0.0
                for m in range(k):
                    total += B[i, m] * B[j, m]
                V[i, j] = total
            total = Y[n, i]
            for j in range(d):
                total -= X[n, i, j] * b[j]
            e[i] = total
        factor(V)
        log_det = 0.0
        for i in range(k):
            log_det += 2.0 * math.log(V[i, i])
            w[i] = e[i]
        solve_lower(V, w)  # V^-1 e
        solve_upper(V, w)
        for i in range(k):
            for j in range(k):
                inverse[i, j] = 1.0 if i == j else 0.0
            solve_lower(V, inverse[i])  # symmetric, so that rows are columns
            solve_upper(V, inverse[i])
        logp -= 0.5 * (log_det + k * math.log(2.0 * math.pi))
        for i in range(k):
            logp -= 0.5 * e[i] * w[i]
            by_variance += 0.5 * (w[i] * w[i] - inverse[i, i])
            for j in range(d):
                gb[j] += w[i] * X[n, i, j]
        for m in range(k):  # by_T = R' (w w' - V^-1) B
            for j in range(k):
                total = 0.0
                for i in range(k):
                    total += (w[m] * w[i] - inverse[m, i]) * B[i, j]
                for i in range(k):
                    by_T[i, j] += R[n, m, i] * total
    slope[meta[OWN]] += 2.0 * sigma * by_variance
    pull_root(k, meta[term + SD_AT], meta[term + L_AT], theta, by_T, slope)
    end(q, work, data, meta)
    for i in range(n_free):
        g[i] = work[4 * n_values + i]
    return logp


@one_form.njit(MATRIX(MATRIX, nb.uint32[::1], VECTOR, INTEGERS), **OPTIONS)
def draw_effects(values, name, data, meta):
    """Draw the effects given each of K vectors of values; returns (K, G k).

    They are normal: of ``v = T^-1 u`` the precision is ``I + B'B / s^2``, the mean that times ``B'e / s^2``.
    Random numbers: row r has the stream `name` with its draw number raised by r.
    """
    d, term = meta[N_COEFS], meta[TERMS_AT]
    k, G = meta[term + WIDTH], meta[term + N_GROUPS]
    _, _, R, X, Y = _parts(data, meta)
    T, B, P = np.empty((k, k)), np.empty((k, k)), np.empty((k, k))
    mean, stream = np.empty(k), name.copy()
    out = np.empty((len(values), G * k))
    for r in range(len(values)):
        theta = values[r]
        precision = 1.0 / theta[meta[OWN]] ** 2
        root(k, meta[term + SD_AT], meta[term + L_AT], theta, T)
        stream[0], stream[1] = np.uint32(0), np.uint32(name[1] + r)
        fill_normal(stream, out[r])
        for n in range(G):
            _times_root(R[n], T, B)
            mean[:] = 0.0
            for i in range(k):
                e = Y[n, i]
                for j in range(d):
                    e -= X[n, i, j] * theta[j]
                for j in range(k):
                    mean[j] += B[i, j] * e * precision
                    P[i, j] = 1.0 if i == j else 0.0
            for i in range(k):
                for j in range(k):
                    for m in range(k):
                        P[i, j] += B[m, i] * B[m, j] * precision
            factor(P)
            solve_lower(P, mean)
            solve_upper(P, mean)
            u = out[r, n * k : (n + 1) * k]
            solve_upper(P, u)  # L' x = z has the covariance P^-1
            for i in range(k):
                mean[i] += u[i]
            for i in range(k):
                total = 0.0
                for j in range(i + 1):
                    total += T[i, j] * mean[j]
                u[i] = total
    return out
