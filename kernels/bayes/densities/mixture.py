"""Log density of a mixture of K Gaussians in p dimensions, each axis with a scale of its own.

    ``log p(x | m, s, w) = sum_i log sum_k w_k prod_j N(x_ij | m_kj, s_kj^2)``

Components are ordered by their means on the first axis: relabelled ones are the same mixture, so that the
posterior has K! copies of each mode, and this keeps one. As the prior treats components alike, so does every
shard, and the product of densities cut down to one order is the product cut down to it.

Parameters q: ``m_11``, then ``log(m_k1 - m_(k-1)1)`` for k > 1; means on the other axes, component by
component; ``log s`` component by component; K - 1 logarithms of ``w_k / w_K``. Priors, all to the power of a
subposterior with the Jacobians: means normal about 0, ``log s`` normal, weights symmetric Dirichlet.

``meta`` is (n, p, K); ``data`` is (power, inverse scale of means, mean of log s, its inverse standard
deviation, Dirichlet's number), then x (n, p).
"""

import math

import numba as nb
import numpy as np

from ..streams import CALLED, OPTIONS

HEAD = 5  # numbers before the rows


@nb.njit(**OPTIONS)
def unpack(q, means, log_scales, log_weights):
    """Fill means (K, p), logarithms of scales (K, p) and of weights (K,)."""
    K, p = means.shape
    at = K
    for k in range(K):
        means[k, 0] = q[0] if k == 0 else means[k - 1, 0] + math.exp(q[k])
        for j in range(1, p):
            means[k, j] = q[at]
            at += 1
    for k in range(K):
        for j in range(p):
            log_scales[k, j] = q[at]
            at += 1
    highest = 0.0
    for k in range(K - 1):
        highest = max(highest, q[at + k])
    total = 0.0
    for k in range(K):
        log_weights[k] = (q[at + k] if k < K - 1 else 0.0) - highest
        total += math.exp(log_weights[k])
    for k in range(K):
        log_weights[k] -= math.log(total)


@nb.njit(**CALLED)
def _add_points(x, means, scales, constants, parts, by_mean, by_scale, by_weight):
    """Add up the log likelihood, and its derivatives in means, log scales and log weights."""
    K, p = means.shape
    logp = 0.0
    for i in range(len(x)):
        highest = -math.inf
        for k in range(K):
            height = constants[k]
            for j in range(p):
                z = (x[i, j] - means[k, j]) / scales[k, j]
                height -= 0.5 * z * z
            parts[k] = height
            highest = max(highest, height)
        total = 0.0
        for k in range(K):
            parts[k] = math.exp(parts[k] - highest)
            total += parts[k]
        logp += highest + math.log(total)
        for k in range(K):
            share = parts[k] / total
            by_weight[k] += share
            for j in range(p):
                z = (x[i, j] - means[k, j]) / scales[k, j]
                by_mean[k, j] += share * z / scales[k, j]
                by_scale[k, j] += share * (z * z - 1.0)
    return logp


@nb.njit(**CALLED)
def mixture(q, g, data, meta):
    """Log posterior density, and its gradient into g."""
    n, p, K = meta[0], meta[1], meta[2]
    power, inverse, middle, spread, number = data[0], data[1], data[2], data[3], data[4]
    means, log_scales, log_weights = np.empty((K, p)), np.empty((K, p)), np.empty(K)
    unpack(q, means, log_scales, log_weights)
    scales, constants = np.exp(log_scales), log_weights.copy()
    by_mean, by_scale, by_weight = np.zeros((K, p)), np.zeros((K, p)), np.zeros(K)
    for k in range(K):
        for j in range(p):
            constants[k] -= log_scales[k, j]
    x = data[HEAD : HEAD + n * p].reshape(n, p)
    logp = _add_points(x, means, scales, constants, np.empty(K), by_mean, by_scale, by_weight)
    for k in range(K):
        for j in range(p):
            at, apart = means[k, j] * inverse, (log_scales[k, j] - middle) * spread
            logp -= 0.5 * power * (at * at + apart * apart)
            by_mean[k, j] -= power * at * inverse
            by_scale[k, j] -= power * apart * spread
        logp += power * number * log_weights[k] + (power * q[k] if k else 0.0)
    place = K
    for k in range(K):
        for j in range(1, p):
            g[place] = by_mean[k, j]
            place += 1
    for k in range(K):
        for j in range(p):
            g[place] = by_scale[k, j]
            place += 1
    for k in range(K - 1):
        share = math.exp(log_weights[k])
        g[place + k] = by_weight[k] - n * share + power * number * (1.0 - K * share)
    later = 0.0  # a gap moves all means from its own on
    for k in range(K - 1, 0, -1):
        later += by_mean[k, 0]
        g[k] = math.exp(q[k]) * later + power
    g[0] = later + by_mean[0, 0]
    return logp
