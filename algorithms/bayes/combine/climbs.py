"""Climbs from draws of shards to the modes of their product: one mode, or more?

A normal density fitted about one mode never learns of another, and k-hat cannot tell. Draws of the shards lie
in all regions that a shard holds possible. Where the product has one mode, climbs from all of them end there.
"""

import numpy as np

MOST_STARTS = 256  # climbs in all; one a shard where there are more shards
_STEPS = 300  # of a climb, at most
_PART = 0.5  # of a Newton step, or of a deviation in flat tails: does not cross to another mode's side
_FLAT = 0.05  # gradient at the end, in the unit of the normal density
_DIFFERENCE = 1e-4  # step of central differences, in standard deviations of the normal density
_MOST_DIFFERENCED = 3200  # starts times parameters: 2 d evaluations take a gradient
_APART = 1.0  # distance of ends, in its standard deviations in any direction


def starts(draws, most=MOST_STARTS):
    """Take draws of all shards (M, T, d) as starts (n, d), evenly."""
    M, T, d = draws.shape
    each = max(1, min(T, most // M))
    return draws[:, np.linspace(0, T - 1, each).astype(int)].reshape(-1, d)


def one_mode_by_values(gaussian, log_density, draws):
    """Whether climbs from draws of shards (M, T, d) all end at one place, where there are no gradients."""
    root, d = np.linalg.cholesky(gaussian.covariance), draws.shape[2]
    inverse = np.linalg.inv(root)

    def value_and_grad(x):
        steps = _DIFFERENCE * np.concatenate([root.T, -root.T])
        around = log_density((x[:, None] + steps).reshape(-1, d)).reshape(len(x), 2, d)
        with np.errstate(invalid="ignore"):
            slopes = (around[:, 0] - around[:, 1]) / (2 * _DIFFERENCE)
        return log_density(x), np.where(np.isfinite(slopes), slopes, 0.0) @ inverse

    most = min(MOST_STARTS, max(len(draws), _MOST_DIFFERENCED // d))
    return one_mode(gaussian, value_and_grad, starts(draws, most))


def one_mode(gaussian, value_and_grad, x):
    """Whether climbs from points x (n, d) all end, and at one place; the unit is a normal density's.

    Steps are parts of Newton steps by the density's covariance, shortened until they rise. Where slopes are
    less than 1, as in a tail like exp(-|x|), they may grow to a part of a deviation.
    """
    root = np.linalg.cholesky(gaussian.covariance)
    heights, gradients = value_and_grad(x)
    x, lengths = x.copy(), np.full(len(x), _PART)
    for _ in range(_STEPS):
        slopes = gradients @ root
        steep = np.sqrt((slopes**2).sum(axis=1))
        (left,) = np.nonzero(~(steep < _FLAT))
        if not len(left):
            break
        there = x[left] + lengths[left, None] * (slopes[left] @ root.T)
        tried, new = value_and_grad(there)
        rises = tried > heights[left]
        up, down = left[rises], left[~rises]
        x[up], heights[up], gradients[up] = there[rises], tried[rises], new[rises]
        lengths[up] = np.minimum(2 * lengths[up], _PART / np.minimum(steep[up], 1.0))
        lengths[down] /= 4
    else:
        return False
    ends = np.linalg.solve(root, (x - x[heights.argmax()]).T)
    return bool(np.sqrt((ends**2).sum(axis=0)).max() < _APART)
