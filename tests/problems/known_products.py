"""Shards whose product is known, and draws of each: Gaussian, gamma, beta, mixtures on a grid."""

import numpy as np
from scipy.special import digamma, polygamma

from stradask.algorithms.bayes.combine.combiners import combine


class GaussianShards:
    """M Gaussians with unlike precisions and means, draws of them, and their exact product."""

    def __init__(self, M=6, T=2000, d=4, seed=0, scales=1.0):
        rng = np.random.default_rng(seed)
        roots = rng.standard_normal((M, d, d))
        self.precisions = (roots @ np.swapaxes(roots, 1, 2) + np.eye(d)) / np.outer(
            *[np.ones(d) * scales] * 2
        )
        self.means = 0.5 * rng.standard_normal((M, d)) * scales
        spread = np.linalg.cholesky(np.linalg.inv(self.precisions))
        noise = rng.standard_normal((M, T, d))
        self.draws = self.means[:, None] + noise @ np.swapaxes(spread, 1, 2)
        self.gradients = -(self.draws - self.means[:, None]) @ self.precisions
        self.covariance = np.linalg.inv(self.precisions.sum(axis=0))
        self.mean = self.covariance @ np.einsum("mij,mj->i", self.precisions, self.means)
        self.sd = np.sqrt(np.diag(self.covariance))

    def log_density(self, points):
        apart = points - self.means[:, None]
        return -np.einsum("mki,mij,mkj->k", apart, self.precisions, apart) / 2


class GammaShards:
    """log x for x ~ Gamma(k, 1): log p = k u - exp(u); the product of M shards is log Gamma(M k, rate M)."""

    def __init__(self, k, M=8, T=1000, d=1, seed=0):
        rng = np.random.default_rng(seed)
        self.draws = np.log(rng.gamma(k, 1, (M, T, d)))
        self.gradients = k - np.exp(self.draws)
        self.mean, self.sd = digamma(M * k) - np.log(M), np.sqrt(polygamma(1, M * k))
        self.log_density = lambda u: (M * (k * u - np.exp(u))).sum(axis=1)


class BetaShards:
    """logit x for x ~ Beta(a, b): log p = a u - (a + b) log(1 + e^u); products add up a and b."""

    def __init__(self, a, b, T=1000, d=1, seed=0):
        rng = np.random.default_rng(seed)
        a, b = np.asarray(a, float)[:, None, None], np.asarray(b, float)[:, None, None]
        x = rng.beta(a, b, (len(a), T, d))
        self.draws = np.log(x / (1 - x))
        self.gradients = a - (a + b) * x
        A, B = a.sum(), b.sum()
        self.mean, self.sd = digamma(A) - digamma(B), np.sqrt(polygamma(1, A) + polygamma(1, B))
        self.log_density = lambda u: (A * u - (A + B) * np.logaddexp(0, u)).sum(axis=1)


class Mixtures:
    """Shards with modes at -2 and 2 in the first parameter; others are standard normal in each shard."""

    def __init__(self, left, s=0.6, T=1000, d=1, seed=0, stuck=False):
        rng = np.random.default_rng(seed)
        left = np.asarray(left, float)[:, None]
        M = len(left)
        self.draws = rng.standard_normal((M, T, d))
        on_left = np.arange(M)[:, None] % 2 == 0 if stuck else rng.random((M, T)) < left
        self.draws[:, :, 0] = np.where(on_left, -2, 2) + s * rng.standard_normal((M, T))
        parts = np.log(left), np.log1p(-left)

        def logs(x):
            return parts[0] - (x + 2) ** 2 / (2 * s**2), parts[1] - (x - 2) ** 2 / (2 * s**2)

        self.gradients = -self.draws
        first = self.draws[:, :, 0]
        share = np.exp(logs(first)[0] - np.logaddexp(*logs(first)))
        self.gradients[:, :, 0] = -(share * (first + 2) + (1 - share) * (first - 2)) / s**2
        self.log_density = lambda q: (
            np.logaddexp(*logs(q[:, 0])).sum(axis=0) - M * (q[:, 1:] ** 2).sum(axis=1) / 2
        )
        grid = np.linspace(-6, 6, 40_001)
        heights = self.log_density(np.column_stack([grid] + [0 * grid] * (d - 1)))
        p = np.exp(heights - heights.max())
        p /= p.sum()
        self.on_left = p[grid < 0].sum()
        self.mean, self.sd = p @ grid, np.sqrt(p @ (grid - p @ grid) ** 2)


def moments(combination):
    weights = np.full(len(combination.draws), 1 / len(combination.draws))
    if combination.log_weights is not None:
        weights = np.exp(combination.log_weights)
    mean = weights @ combination.draws
    return mean, np.sqrt(weights @ (combination.draws - mean) ** 2)


def errors(case, combination):
    """Largest error of a mean, and of a logarithm of a standard deviation, in posterior sd."""
    mean, sd = moments(combination)
    return np.abs((mean - case.mean) / case.sd).max(), np.abs(np.log(sd / case.sd)).max()


def combined(case, method="auto", n_draws=4000, seed=0, **given):
    given = {"gradients": case.gradients, "log_density": case.log_density} | given
    return combine(case.draws, method=method, n_draws=n_draws, random_state=seed, **given)
