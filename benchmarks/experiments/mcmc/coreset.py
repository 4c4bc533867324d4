"""Quasi-Newton coresets of a logistic regression: a posterior of few weighted rows, by sums from the shards.

M rows, drawn uniformly and sent once, have weights w, N / M to begin with. With S draws from the posterior
of the weighted rows, their log likelihoods G (S, M) and the sums h (S,) of all rows, both less their means, a
step is

    ``w <- max(0, w + g (G'G / S + t I)^-1 G' (h - G w) / S)``,

a Newton step on the Kullback-Leibler divergence to the full posterior with the covariance in place of the
Hessian. Shards answer the S points of each step with a number a point. The last draws are the result.

References: Naik, Rousseau, Campbell, "Fast Bayesian coresets via subsampling and quasi-Newton refinement",
NeurIPS 2022. Chen, Campbell, "Coreset Markov chain Monte Carlo", AISTATS 2024, which also keeps chains of the
weighted rows going while their weights change.
"""

import numpy as np
from scipy.special import log_expit

from ....algorithms.bayes.chains.sampling import sample_model
from ....algorithms.bayes.models.model import Prior, regression
from ...mcmc_cases import PRIOR_SCALE

ROWS_A_PARAMETER = 10  # of the coreset
N_STEPS, N_POINTS, RIDGE = 10, 500, 1e-2  # the ridge in units of the mean eigenvalue


def weighted_model(X, signs, weights):
    """The posterior of weighted rows."""
    return regression("bernoulli", X, signs, weights=weights, prior=Prior("normal", PRIOR_SCALE))


def coreset_draws(X, signs, sums, *, length, n_warmup, n_draws, seed):
    """Draws (n_draws, d) of the last weighted posterior, and the number of rows.

    ``sums(points)`` are log likelihoods of all rows, up to a constant, one a point. Each step has a chain of
    `length` draws, and the last one `n_draws`.
    """
    rng = np.random.default_rng([seed, 7])
    n, d = X.shape
    m = min(ROWS_A_PARAMETER * d, n)
    rows = rng.choice(n, m, replace=False)
    X, signs, weights = X[rows], signs[rows], np.full(m, n / m)
    for step in range(N_STEPS + 1):
        kept = weights > 0
        count = n_draws if step == N_STEPS else max(length, N_POINTS)
        sample = sample_model(
            weighted_model(X[kept], signs[kept], weights[kept]), n_samples=-(-count // 2), n_chains=2,
            n_warmup=n_warmup, n_jobs=1, seed=seed + step, weighted=False,
        )  # fmt: skip
        draws = sample.stacked().reshape(-1, d)
        if step == N_STEPS:
            return draws, m
        points = draws[rng.choice(len(draws), N_POINTS, replace=False)]
        G, h = log_expit(signs * (points @ X.T)), sums(points)
        G, h = G - G.mean(axis=0), h - h.mean()
        C = G.T @ G / N_POINTS
        ridge = RIDGE * np.trace(C) / m * np.eye(m)
        move = np.linalg.solve(C + ridge, G.T @ (h - G @ weights) / N_POINTS)
        weights = np.maximum(weights + move / (1 + step / N_STEPS), 0.0)
    raise AssertionError("the last step returns")
