r"""The exact second round: proposals from a combined density, weighed by the shards' own densities.

Every shard gets K points and returns K numbers :math:`\log p_m`; the weight of a point is
:math:`\exp(\sum_m \log p_m - \log q)`. However rough the combination was that made q, the weighted draws are
of the posterior itself, and Pareto's k-hat tells whether there are enough of them.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from ....errors import DataError
from ....kernels.bayes.posterior_product import pair_sums
from ..posterior.psis import importance_ess, khat_limit, psis
from .gaussian import Gaussian
from .kernel import kernel_width

LEAST_ESS = 100  # as for a shard's draws: quantiles of fewer are noise
LEAST_PART = 0.02  # of the proposals, that the weighted draws must be worth
# Of proposals: degrees of freedom of their tails, and their covariance over that of the product. Wider ones
# keep importance weights bounded.
FREEDOM, WIDER = 7, 1.2
_ABOUT, _MOST_CENTRES = 0.2, 6000  # part of proposals about draws of shards, and the most that these are
_FAR, _WIDE = 0.1, 2.0  # part and covariance of what goes with a mixture of kernels


class Proposals(NamedTuple):
    """Points (n, d), their log density (n,), and the function that gives it at any points."""

    points: np.ndarray
    log_q: np.ndarray
    density: Callable


def gaussian_proposals(gaussian, n, rng, freedom=None):
    """Draw n proposals from a normal density, or from Student's t of `freedom` with its scale."""
    z = rng.standard_normal((n, len(gaussian.mean)))
    if freedom is not None:
        z /= np.sqrt(rng.chisquare(freedom, n) / freedom)[:, None]
    points = gaussian.mean + z @ np.linalg.cholesky(gaussian.covariance).T
    density = partial(proposal_log_density, gaussian, freedom)
    return Proposals(points, density(points), density)


def proposal_log_density(gaussian, freedom, points):
    """Log density at points (n, d) of Student's t with the mean and scale of a Gaussian; None is normal."""
    d = len(gaussian.mean)
    root = np.linalg.cholesky(gaussian.covariance)
    squares = (np.linalg.solve(root, (points - gaussian.mean).T) ** 2).sum(axis=0)
    volume = np.log(np.diag(root)).sum() + d / 2 * math.log(math.pi)
    if freedom is None:
        return -squares / 2 - d / 2 * math.log(2) - volume
    constant = gammaln((freedom + d) / 2) - gammaln(freedom / 2) - d / 2 * math.log(freedom)
    return constant - volume - (freedom + d) / 2 * np.log1p(squares / freedom)


def kernel_proposals(draws, n, rng, centres=1500):
    """Draw n proposals from kernels about some of the draws (m, d), and one in ten from a wide t."""
    d = draws.shape[1]
    scale = draws.std(axis=0)
    middles = rng.permutation(draws)[:centres] / scale
    width = kernel_width(middles)
    around = Gaussian(middles.mean(axis=0), _WIDE * np.atleast_2d(np.cov(middles.T)))
    z = middles[rng.integers(len(middles), size=n)] + width * rng.standard_normal((n, d))
    far = rng.random(n) < _FAR
    z[far] = gaussian_proposals(around, far.sum(), rng, FREEDOM).points
    height = math.log(len(middles)) + d / 2 * math.log(2 * math.pi * width**2)

    def density(points):
        z = np.ascontiguousarray(points / scale)
        kernels, tails = pair_sums(z, middles, width**2) - height, proposal_log_density(around, FREEDOM, z)
        mixed = np.logaddexp(math.log(1 - _FAR) + kernels, math.log(_FAR) + tails)
        return mixed - np.log(scale).sum()

    return Proposals(z * scale, density(z * scale), density)


def with_draws(proposals, draws, rng):
    """Replace a fifth of some proposals by ones about draws (m, d) of shards, so that these are covered."""
    n = len(proposals.points)
    about = kernel_proposals(draws, n, rng, _MOST_CENTRES)
    points = np.where(rng.random(n)[:, None] < _ABOUT, about.points, proposals.points)

    def density(points):
        parts = math.log(1 - _ABOUT) + proposals.density(points), math.log(_ABOUT) + about.density(points)
        return np.logaddexp(*parts)

    return Proposals(points, density(points), density)


def evaluated(log_density, points):
    """Compute the log density at points (K, d), and check it: K numbers, none NaN or inf."""
    values = np.asarray(log_density(np.ascontiguousarray(points)), dtype=np.float64)
    if values.shape != (len(points),):
        raise DataError(
            f"log_density returned the shape {values.shape} for {len(points)} points; it must return one "
            "number a point, summed over the shards"
        )
    wrong = np.flatnonzero(np.isnan(values) | (values == np.inf))
    if len(wrong):
        raise DataError(
            f"log_density is {values[wrong[0]]} at {np.array2string(points[wrong[0]], threshold=6)}: it must "
            "be finite, or -inf where the posterior is zero"
        )
    return values


def scored(value_and_grad, points):
    """Compute the log density and its gradient at points (K, d), and check both; see `evaluated`.

    A gradient may be anything where the density is zero.
    """
    heights, gradients = value_and_grad(np.ascontiguousarray(points))
    heights = evaluated(lambda _: heights, points)
    gradients = np.asarray(gradients, dtype=np.float64)
    if gradients.shape != points.shape:
        raise DataError(
            f"value_and_grad returned gradients of the shape {gradients.shape} for points of {points.shape}; "
            "it must return one gradient a point, summed over the shards"
        )
    return heights, gradients


def weighed(proposals, log_density, heights=None):
    """Weigh proposals by the posterior; returns smoothed, normalised log weights, log densities and figures.

    `heights` are the log densities, if they are known.

    The figures are ``k_hat``, its ``k_hat_limit``, ``importance_ess``, ``importance_ess_limit`` and
    ``mean_ess`` of the means: the worst parameter's variance over its squared standard error.
    """
    heights = evaluated(log_density, proposals.points) if heights is None else heights
    log_weights, k_hat = psis(heights - proposals.log_q)
    return (
        log_weights,
        heights,
        {
            "k_hat": k_hat,
            "k_hat_limit": khat_limit(len(heights)),
            "importance_ess": importance_ess(log_weights),
            "importance_ess_limit": max(LEAST_ESS, LEAST_PART * len(heights)),
            "mean_ess": _mean_ess(proposals.points, np.exp(log_weights)),
        },
    )


def _mean_ess(points, weights):
    """A heavy draw far out counts for more here than in the effective size of the weights alone."""
    squares = (points - weights @ points) ** 2
    variances = weights @ squares
    with np.errstate(divide="ignore", invalid="ignore"):  # one draw has all the weight
        return float(np.nan_to_num(variances / (weights**2 @ squares)).min())


def passed(figures):
    """Whether weighted draws can be trusted; with a k-hat that is NaN they cannot."""
    return (
        figures["k_hat"] < figures["k_hat_limit"]
        and figures["importance_ess"] > figures["importance_ess_limit"]
        and figures["mean_ess"] > LEAST_ESS
    )
