"""Log densities of regressions with an intercept for each group, the groups' intercepts integrated out.

Group g has the intercept ``u_g = t z_g`` with z_g standard normal and a standard deviation t that all share.
Given coefficients b, t and the noise, groups are independent, so that the density is a product of integrals
over one number each:

    ``log p(b, t | y) = log prior + sum_g log Int N(z | 0, 1) prod_i p(y_i | x_i b + o_i + t z)^w_i dz``

- Normal noise has it in closed form, from sums over rows and group means (`linear_groups`).
- For the others the integrand's logarithm is concave. The integral is a trapezoidal sum about the mode, which
  converges exponentially for such functions. Its step, 0.7 standard deviations at first, is halved until the
  even and the odd nodes give the same to `_ENOUGH`: the error of both together is about the square of
  that or less, 1e-13 for a normal integrand (`glm_groups`).

By Fisher's identity the gradient is the mean, over z, of the gradient with z given: the same sum.
`draw_intercepts` draws z given the parameters, exactly, by rejection under Devroye's envelope of log-concave
densities. Parameters q: as in ``priors``, then ``log t``, half-normal, then the noise's own logarithm.

After the numbers of ``priors``, ``meta[N_GROUPS]`` counts groups and the row at which each begins
follows, and where the last ends. ``data[meta[START]]`` is the inverse scale of the half-normal prior; then
come the numbers of ``glm``, rows sorted by group; for `linear_groups` centre and triangle are of rows
with their group's mean taken off, and group means of X (G, d) and of y (G,) follow, and weights (G,).

References: Devroye, "Non-Uniform Random Variate Generation", 1986, chapter VII.2. Trefethen, Weideman, "The
exponentially convergent trapezoidal rule", SIAM Review 2014.
"""

import math

import numba as nb
import numpy as np

from ... import one_form
from ..streams import CALLED, OPTIONS, fill_normal, uniform
from . import glm, priors

N_GROUPS, FIRST_ROWS = priors.HEAD, priors.HEAD + 1  # of meta
_FAST = {**CALLED, "fastmath": {"nsz", "arcp", "contract", "reassoc"}}
_STEP, _NODES = 0.7, 10  # standard deviations at the mode, and nodes to a side: to begin with
_ENOUGH = 2e-4  # see above
_MOST_NODES = 4096  # of the integral; a cap
_NEGLIGIBLE = 24.0  # until the outermost nodes are at e^-24 of the mode
_LARGE = 600.0  # exponents that are far from an overflow
_NEWTON_STEPS = 200  # with halving; a cap
_NEAR, _EXACT = 0.1, 1e-9  # of a standard deviation: how well the mode must be known


@nb.njit(**CALLED)
def _slope(family, f, y, log_scale, scale):
    """First and minus second derivative of a row's log likelihood in f."""
    if family == glm.POISSON:
        mean = math.exp(f)
        return y - mean, mean
    gap = f + log_scale if family == glm.NEGATIVE_BINOMIAL else y * f
    e = math.exp(-abs(gap))
    less = e / (1.0 + e)
    share = 1.0 - less if gap >= 0.0 else less
    if family == glm.NEGATIVE_BINOMIAL:
        total = y + 1.0 / scale
        return y - total * share, total * share * (1.0 - share)
    return y * (less if gap >= 0.0 else 1.0 - less), share * (1.0 - share)


@nb.njit(**CALLED)
def _slopes(z, family, f, y, weights, t, log_scale, scale):
    """Slope of a group's integrand (of its logarithm) at z, and minus its curvature."""
    slope, curve = 0.0, 0.0
    for i in range(len(f)):
        first, second = _slope(family, f[i] + t * z, y[i], log_scale, scale)
        slope += weights[i] * first
        curve += weights[i] * second
    return t * slope - z, t * t * curve + 1.0


@nb.njit(**CALLED)
def _height(z, family, f, y, weights, t, log_scale, scale):
    """Logarithm of a group's integrand at z, without the constant of the normal density."""
    height = -0.5 * z * z
    for i in range(len(f)):
        height += weights[i] * glm.row_likelihood(family, f[i] + t * z, y[i], log_scale, scale, 0.0)[0]
    return height


@nb.njit(**CALLED)
def _mode(family, f, y, weights, t, log_scale, scale, near):
    """Mode of a group's integrand, within `near` standard deviations, and its standard deviation there.

    Newton's method within a bracket: the slope falls with z, and its zero is between 0 and the slope at 0.
    """
    z = 0.0
    slope, curve = _slopes(z, family, f, y, weights, t, log_scale, scale)
    low, high = min(slope, 0.0), max(slope, 0.0)
    for _ in range(_NEWTON_STEPS):
        step = slope / curve
        if not abs(step) * math.sqrt(curve) > near:  # false for NaN as well
            break
        if slope > 0.0:
            low = z
        else:
            high = z
        z += step
        if not low < z < high:
            z = 0.5 * (low + high)
        slope, curve = _slopes(z, family, f, y, weights, t, log_scale, scale)
    return z, 1.0 / math.sqrt(curve)


@nb.njit(**CALLED)
def _flush(heights, products):
    for k in range(len(heights)):
        heights[k] -= math.log(products[k])
        products[k] = 1.0


@nb.njit(**CALLED)
def _heights(nodes, powers, family, f, y, weights, t, log_scale, scale, heights, products):
    """Fill the heights of a group's integrand at all nodes.

    ``powers[0]`` and ``powers[1]`` are ``exp(t z)`` and ``exp(-t z)``, so that a row needs one exponential
    and not one a node; the logarithms of ``1 + e`` are that of a running product, taken before it overflows.
    """
    K = len(nodes)
    widest = t * max(abs(nodes[0]), abs(nodes[K - 1]))
    for k in range(K):
        heights[k], products[k] = -0.5 * nodes[k] * nodes[k], 1.0
    filled = 0.0
    for i in range(len(f)):
        size = abs(f[i]) + widest
        if family == glm.POISSON and size < _LARGE:
            level, up = weights[i] * math.exp(f[i]), weights[i] * y[i]
            for k in range(K):
                heights[k] += up * (f[i] + t * nodes[k]) - level * powers[0, k]
        elif family == glm.BERNOULLI and weights[i] == 1.0 and size < _LARGE:
            if filled + size > _LARGE:
                _flush(heights, products)
                filled = 0.0
            filled += size + 1.0
            level, row = math.exp(-y[i] * f[i]), powers[1] if y[i] > 0.0 else powers[0]
            for k in range(K):
                products[k] *= 1.0 + level * row[k]
        else:
            for k in range(K):
                value = glm.row_likelihood(family, f[i] + t * nodes[k], y[i], log_scale, scale, 0.0)[0]
                heights[k] += weights[i] * value
    _flush(heights, products)


@nb.njit(**_FAST)
def _moments(level, row, nodes, weights):
    """Means of ``e / (1 + e)`` and of z times it, e = level times row."""
    total, with_z = 0.0, 0.0
    for k in range(len(weights)):
        e = level * row[k]
        share = weights[k] * (e / (1.0 + e))
        total += share
        with_z += nodes[k] * share
    return total, with_z


@nb.njit(**CALLED)
def _mean_slopes(nodes, powers, parts, family, f, y, weights, t, log_scale, scale, slopes):
    """Fill the slopes of rows, means over nodes with the weights `parts`.

    Returns the mean derivatives of the group's integrand in log t and in the logarithm of the noise's scale.
    """
    K = len(nodes)
    widest = t * max(abs(nodes[0]), abs(nodes[K - 1]))
    by_t, by_scale = 0.0, 0.0
    mean_z = 0.0
    for k in range(K):
        mean_z += parts[k] * nodes[k]
    for i in range(len(f)):
        size = abs(f[i]) + widest
        if family == glm.POISSON and size < _LARGE:
            level = math.exp(f[i])
            mean, with_z = 0.0, 0.0
            for k in range(K):
                value = parts[k] * level * powers[0, k]
                mean += value
                with_z += value * nodes[k]
            slopes[i] = y[i] - mean
            by_t += weights[i] * t * (y[i] * mean_z - with_z)
        elif family == glm.BERNOULLI and size < _LARGE:
            row = powers[1] if y[i] > 0.0 else powers[0]
            mean, with_z = _moments(math.exp(-y[i] * f[i]), row, nodes, parts)
            slopes[i] = y[i] * mean
            by_t += weights[i] * t * y[i] * with_z
        else:
            mean = 0.0
            for k in range(K):
                _, slope, own = glm.row_likelihood(family, f[i] + t * nodes[k], y[i], log_scale, scale, 0.0)
                mean += parts[k] * slope
                by_t += parts[k] * weights[i] * t * slope * nodes[k]
                by_scale += parts[k] * weights[i] * own
            slopes[i] = mean
    return by_t, by_scale


@nb.njit(**CALLED)
def _integral(family, f, y, weights, t, log_scale, scale, near, work):
    """Logarithm of a group's integral, the number K of its nodes, and the integrand's mode and sd.

    `work` (5, most nodes) is scratch: nodes, heights and then their weights, products, two rows of powers.
    ``work[0, :K]`` are the nodes, ``work[1, :K]`` their weights, which add up to one. The mode is within
    `near` standard deviations.
    """
    mode, sd = _mode(family, f, y, weights, t, log_scale, scale, near)
    step, low, high = _STEP * sd, -_NODES, _NODES
    while True:
        K = high - low + 1
        nodes, heights, products, powers = work[0, :K], work[1, :K], work[2, :K], work[3:5, :K]
        for k in range(K):
            nodes[k] = mode + step * (low + k)
            powers[0, k] = math.exp(t * nodes[k])
            powers[1, k] = 1.0 / powers[0, k]
        _heights(nodes, powers, family, f, y, weights, t, log_scale, scale, heights, products)
        top = heights[-low]
        even, odd = 0.0, 0.0
        for k in range(K):
            part = math.exp(heights[k] - top)
            if (low + k) % 2:
                odd += part
            else:
                even += part
        if work.shape[1] < 2 * K:
            break
        if heights[0] > top - _NEGLIGIBLE:
            low -= _NODES
        elif heights[K - 1] > top - _NEGLIGIBLE:
            high += _NODES
        elif abs(even - odd) > _ENOUGH * (even + odd):
            step, low, high = 0.5 * step, 2 * low, 2 * high
        else:
            break
    for k in range(K):
        heights[k] = math.exp(heights[k] - top) / (even + odd)
    return top + math.log((even + odd) * step) - 0.5 * math.log(2.0 * math.pi), K, mode, sd


@nb.njit(**CALLED)
def _rows(data, meta):
    """Rows of the data: X, y, weights, offsets, and where what follows them begins."""
    n, d, at = meta[priors.N_ROWS], meta[priors.N_COEFS], meta[priors.START] + 1
    X = data[at : at + n * d].reshape(n, d)
    at += n * d
    return X, data[at : at + n], data[at + n : at + 2 * n], data[at + 2 * n : at + 3 * n], at + 3 * n


@nb.njit(**CALLED)
def _longest(meta):
    """Rows of the largest group."""
    most = 0
    for g in range(meta[N_GROUPS]):
        most = max(most, meta[FIRST_ROWS + g + 1] - meta[FIRST_ROWS + g])
    return most


@nb.njit(**CALLED)
def _group_prior(log_t, slope, at, g, data, meta):
    """Add the half-normal prior of the groups' standard deviation to its gradient; returns its value."""
    ratio = math.exp(log_t) * data[meta[priors.START]]
    g[at] = slope + data[priors.POWER] * (1.0 - ratio * ratio)
    return data[priors.POWER] * (log_t - 0.5 * ratio * ratio)


@nb.njit(**CALLED)
def glm_groups(q, g, data, meta):
    """Log posterior density of a family with a concave log likelihood, groups integrated out."""
    d, family = meta[priors.N_COEFS], meta[priors.FAMILY]
    X, y, weights, offsets, at = _rows(data, meta)
    b, gb = np.empty(d), np.zeros(d)
    priors.coefficients(q, b, data, meta)
    scaled = family == glm.NEGATIVE_BINOMIAL
    log_scale = q[len(q) - 1] if scaled else 0.0
    place = len(q) - 2 if scaled else len(q) - 1
    scale, t = math.exp(log_scale), math.exp(q[place])
    logp, by_t, by_scale = 0.0, 0.0, 0.0
    most = _longest(meta)
    predictors, slopes, work = np.empty(most), np.empty(most), np.empty((5, _MOST_NODES))
    for j in range(meta[N_GROUPS]):
        first, end = meta[FIRST_ROWS + j], meta[FIRST_ROWS + j + 1]
        n = end - first
        f, y_here, w_here = predictors[:n], y[first:end], weights[first:end]
        for i in range(n):
            f[i] = glm.predictor(X, first + i, b) + offsets[first + i]
        value, K, _, _ = _integral(family, f, y_here, w_here, t, log_scale, scale, _NEAR, work)
        logp += value
        group_t, group_scale = _mean_slopes(
            work[0, :K], work[3:5, :K], work[1, :K], family, f, y_here, w_here, t, log_scale, scale, slopes
        )
        for i in range(n):
            glm.add_row(X, first + i, w_here[i] * slopes[i], gb)
        by_t += group_t
        by_scale += group_scale
    if scaled:
        v = meta[priors.N_VALUES]
        value, slope = glm.count_values(data[at : at + v], data[at + v : at + 2 * v], scale)
        logp += value
        by_scale += slope
    logp += priors.add_prior(q, b, gb, g, data, meta)
    logp += _group_prior(q[place], by_t, place, g, data, meta)
    if scaled:
        logp += glm.add_own_scale(log_scale, by_scale, g, data)
    return logp


@nb.njit(**CALLED)
def _means(data, meta):
    """Of `linear_groups`: group means of X and y, and groups' weights."""
    d, G = meta[priors.N_COEFS], meta[N_GROUPS]
    at = meta[priors.START] + 1 + d + d * d
    X = data[at : at + G * d].reshape(G, d)
    at += G * d
    return X, data[at : at + G], data[at + G : at + 2 * G]


@nb.njit(**CALLED)
def linear_groups(q, g, data, meta):
    """Log posterior density with normal noise: no cost by row."""
    d, at = meta[priors.N_COEFS], meta[priors.START] + 1
    center, R = data[at : at + d], data[at + d : at + d + d * d].reshape(d, d)
    X, y, weights = _means(data, meta)
    b, gb = np.empty(d), np.zeros(d)
    priors.coefficients(q, b, data, meta)
    log_t, log_scale = q[len(q) - 2], q[len(q) - 1]
    precision, variance = math.exp(-2.0 * log_scale), math.exp(2.0 * log_t)
    squares = glm.add_squares(b, center, R, precision, gb, data)
    logp = -data[priors.WEIGHT] * log_scale - 0.5 * precision * squares
    by_t, by_scale = 0.0, precision * squares - data[priors.WEIGHT]
    for k in range(meta[N_GROUPS]):
        rest, ratio = y[k] - glm.predictor(X, k, b), variance * weights[k] * precision
        # 1 + ratio and what it divides would overflow one after the other: shares of 1 do not.
        own, shared = 1.0 / (1.0 + ratio), ratio / (1.0 + ratio)
        square = precision * weights[k] * rest * rest * own
        logp -= 0.5 * (math.log1p(ratio) + square)
        by_t += square * shared - shared
        by_scale += shared + square * own
        glm.add_row(X, k, precision * weights[k] * rest * own, gb)
    logp += priors.add_prior(q, b, gb, g, data, meta)
    logp += _group_prior(log_t, by_t, len(q) - 2, g, data, meta)
    return logp + glm.add_own_scale(log_scale, by_scale, g, data)


# Intercepts, given the parameters -------------------------------------------------------------------------


@nb.njit(**CALLED)
def _draw(family, f, y, weights, t, log_scale, scale, stream, work):
    """One z of a group, from its density given the parameters.

    With the mode m and the normalised height c there, ``c min(1, exp(1 - c |z - m|))`` lies above every
    log-concave density; four proposals are needed in the mean.
    """
    area, _, mode, _ = _integral(family, f, y, weights, t, log_scale, scale, _EXACT, work)
    top = _height(mode, family, f, y, weights, t, log_scale, scale)
    log_c = top - 0.5 * math.log(2.0 * math.pi) - area
    c = math.exp(log_c)
    while math.isfinite(c):
        part, where, accept = uniform(stream), uniform(stream), uniform(stream)
        sign = 1.0 if part < 0.5 else -1.0
        part = 2.0 * part if part < 0.5 else 2.0 * part - 1.0
        excess = 0.0 if part < 0.5 else -math.log(where)  # of the distance over 1, in the tails
        z = mode + sign * (where if part < 0.5 else 1.0 + excess) / c
        height = _height(z, family, f, y, weights, t, log_scale, scale)
        if math.log(accept) - excess <= height - top:
            return z
    return math.nan


@one_form.njit(
    nb.float64[:, ::1](nb.float64[:, ::1], nb.uint32[::1], nb.float64[::1], nb.int64[::1]), **OPTIONS
)
def draw_intercepts(Q, name, data, meta):
    """Draw the groups' intercepts given each of K parameter vectors; returns (K, G).

    Random numbers: draw k has the stream `name` with its draw number raised by k.
    """
    d, family = meta[priors.N_COEFS], meta[priors.FAMILY]
    X, y, weights, offsets, _ = _rows(data, meta)
    b, most, stream = np.empty(d), _longest(meta), name.copy()
    predictors, work = np.empty(most), np.empty((5, _MOST_NODES))
    out = np.empty((len(Q), meta[N_GROUPS]))
    for k in range(len(Q)):
        q = Q[k]
        priors.coefficients(q, b, data, meta)
        scaled = family == glm.NEGATIVE_BINOMIAL
        log_scale = q[len(q) - 1] if scaled else 0.0
        t = math.exp(q[len(q) - 2] if scaled else q[len(q) - 1])
        stream[0], stream[1] = np.uint32(0), np.uint32(name[1] + k)
        for j in range(meta[N_GROUPS]):
            first, end = meta[FIRST_ROWS + j], meta[FIRST_ROWS + j + 1]
            f = predictors[: end - first]
            for i in range(end - first):
                f[i] = glm.predictor(X, first + i, b) + offsets[first + i]
            scale = math.exp(log_scale)
            z = _draw(family, f, y[first:end], weights[first:end], t, log_scale, scale, stream, work)
            out[k, j] = t * z
    return out


@one_form.njit(
    nb.float64[:, ::1](nb.float64[:, ::1], nb.uint32[::1], nb.float64[::1], nb.int64[::1]), **OPTIONS
)
def draw_linear_intercepts(Q, name, data, meta):
    """The same with normal noise, where the intercepts are normal."""
    X, y, weights = _means(data, meta)
    b, stream = np.empty(meta[priors.N_COEFS]), name.copy()
    out = np.empty((len(Q), meta[N_GROUPS]))
    for k in range(len(Q)):
        q = Q[k]
        priors.coefficients(q, b, data, meta)
        precision, t = math.exp(-2.0 * q[len(q) - 1]), math.exp(q[len(q) - 2])
        stream[0], stream[1] = np.uint32(0), np.uint32(name[1] + k)
        fill_normal(stream, out[k])
        for j in range(meta[N_GROUPS]):
            own = 1.0 + t * t * weights[j] * precision
            mean = t * weights[j] * precision * (y[j] - glm.predictor(X, j, b)) / own
            out[k, j] = t * (mean + out[k, j] / math.sqrt(own))
    return out
