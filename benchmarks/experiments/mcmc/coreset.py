"""Coresets of a logistic regression: a posterior of few weighted rows, by sums from the shards.

M rows, as many of each class where there are enough, are drawn once and sent. Row m stands for n_m rows: its
weight is n_m u_m, with u = 1 to begin with. Each step draws S points from the posterior of the weighted rows,
and the shards answer with the log likelihood of all rows at them, one number a point. With G (S, M) the
log likelihoods of the M rows times n_m, and h (S,) those of all rows, both less their means, the weights are

    ``u = argmin |h - G u|^2 / S + t |u - 1|^2,  u >= 0``.

The minimum without the bound is a Newton step on the Kullback-Leibler divergence to the full posterior with
the covariance in place of the Hessian. Points of earlier steps stay, at half the weight for each step since:
with the last ones alone the weights of a rare event diverge. The last draws are the result.

References: Naik, Rousseau, Campbell, "Fast Bayesian coresets via subsampling and quasi-Newton refinement",
NeurIPS 2022. Chen, Campbell, "Coreset Markov chain Monte Carlo", AISTATS 2024, which also keeps chains of the
weighted rows going while their weights change.
"""

import numpy as np
from scipy.optimize import nnls
from scipy.special import log_expit

from ....algorithms.bayes.chains.sampling import sample_model
from ....algorithms.bayes.models.model import Prior, regression
from ...mcmc_cases import PRIOR_SCALE

ROWS_A_PARAMETER = 20  # of the coreset
N_POINTS = 500  # of a step, and draws of its chains
RIDGE = 1e-3  # t, in units of the mean diagonal entry of G'G / S


def weighted_model(X, signs, weights):
    """The posterior of weighted rows."""
    return regression("bernoulli", X, signs, weights=weights, prior=Prior("normal", PRIOR_SCALE))


def coreset_draws(X, signs, sums, *, n_steps, n_warmup, n_draws, seed):
    """Draws (n_draws, d) of the last weighted posterior, and the number of rows.

    ``sums(points)`` are log likelihoods of all rows, up to a constant, one a point.
    """
    rng = np.random.default_rng(seed)
    d = X.shape[1]
    rows, stands_for = _chosen(signs, min(ROWS_A_PARAMETER * d, len(X)), rng)
    X, signs, u = X[rows], signs[rows], np.ones(len(rows))

    def drawn(step, count):
        kept = u > 0
        sample = sample_model(
            weighted_model(X[kept], signs[kept], (stands_for * u)[kept]), n_samples=-(-count // 2),
            n_chains=2, n_warmup=n_warmup, n_jobs=1, seed=seed + step, weighted=False,
        )  # fmt: skip
        return sample.stacked().reshape(-1, d)

    seen: list[tuple] = []
    for step in range(n_steps):
        draws = drawn(step, N_POINTS)
        seen.append((log_expit(signs * (draws @ X.T)) * stands_for, sums(draws)))
        G, h = (np.concatenate(part) for part in zip(*seen, strict=True))
        u = _fitted(G, h, len(seen))
    return drawn(n_steps, n_draws), len(rows)


def _chosen(signs, m, rng):
    """Draw m rows, half of each class or all that it has, and say for how many each stands."""
    positive, negative = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
    of_positive = min(max(m // 2, m - len(negative)), len(positive))
    rows, stands_for = [], []
    for members, count in ((positive, of_positive), (negative, m - of_positive)):
        rows.append(rng.choice(members, count, replace=False))
        stands_for.append(np.full(count, len(members) / count))
    return np.concatenate(rows), np.concatenate(stands_for)


def _fitted(G, h, n_steps):
    """Solve for the weights, at points of all steps."""
    age = np.repeat(np.arange(n_steps)[::-1], N_POINTS)
    counts = 0.5**age / (0.5**age).sum()
    G, h = G - counts @ G, h - counts @ h
    normal = G.T @ (G * counts[:, None])
    t = RIDGE * np.diag(normal).mean()
    root = np.linalg.cholesky(normal + t * np.eye(len(normal)))
    return nnls(root.T, np.linalg.solve(root, G.T @ (h * counts) + t))[0]
