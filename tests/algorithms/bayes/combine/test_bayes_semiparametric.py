"""The semiparametric product against the paper's own formulas, and against products that are known.

Neiswanger, Wang, Xing (2014), section 3.3: the product is a mixture over all choices t of one draw a shard,
with weights W_t = w_t N(mean_t | mu, Sigma + h^2 / M I) / prod_m N(x_m | mu_m, Sigma_m), w_t = prod_m N(x_m |
mean_t, h^2 I), and components N(mu_t, Sigma_t), Sigma_t = (M / h^2 I + Sigma^-1)^-1. Here all choices are
written out, densely, in the coordinates as they come.
"""

import itertools

import numpy as np
import pytest
from scipy import special, stats

from stradask.algorithms.bayes.combine.gaussian import from_moments
from stradask.algorithms.bayes.combine.kernel import kernel_product


def mixture(x, h):
    """Weights, means and covariance of the components; x (M, T, d)."""
    M, T, d = x.shape
    means, covariances = x.mean(axis=1), [np.cov(shard.T).reshape(d, d) for shard in x]
    shards = [stats.multivariate_normal(m, c) for m, c in zip(means, covariances, strict=True)]
    precisions = [np.linalg.inv(c) for c in covariances]
    precision = sum(precisions)
    sigma = np.linalg.inv(precision)
    mu = sigma @ sum(p @ m for p, m in zip(precisions, means, strict=True))
    logs, centres = [], []
    component = np.linalg.inv(M / h**2 * np.eye(d) + precision)
    for choice in itertools.product(range(T), repeat=M):
        chosen = x[np.arange(M), list(choice)]
        middle = chosen.mean(axis=0)
        log_w = sum(stats.multivariate_normal(middle, h**2 * np.eye(d)).logpdf(c) for c in chosen)
        log_w += stats.multivariate_normal(mu, sigma + h**2 / M * np.eye(d)).logpdf(middle)
        log_w -= sum(shard.logpdf(c) for shard, c in zip(shards, chosen, strict=True))
        logs.append(log_w)
        centres.append(component @ (M / h**2 * middle + precision @ mu))
    weights = np.exp(np.array(logs) - special.logsumexp(logs))
    return weights, np.array(centres), component


@pytest.mark.parametrize("h", [0.4, 1.0])
def test_draws_are_of_the_mixture_of_the_paper(h):
    """Three shards of nine skewed draws in one dimension: 729 components."""
    rng = np.random.default_rng(3)
    x = np.log(rng.gamma(4, size=(3, 9, 1)))
    precisions = 1 / x.var(axis=1, ddof=1)
    centre = (precisions * x.mean(axis=1)).sum() / precisions.sum()
    scale = 1 / np.sqrt(precisions.sum())  # kernel_product counts widths in this, times sqrt(M)
    weights, centres, component = mixture((x - centre) / scale, h * np.sqrt(3))
    mean = weights @ centres
    sd = np.sqrt(weights @ (centres - mean) ** 2 + component[0, 0])
    draws, acceptance, width = kernel_product(
        x, 40_000, np.random.default_rng(0), semiparametric=True, width=h, exponent=0.0, floor=0.0
    )
    assert width == pytest.approx(h)
    assert acceptance > 0.1
    z = (draws - centre) / scale
    batches = z.reshape(40, 1000).mean(axis=1)
    assert z.mean() == pytest.approx(mean[0], abs=4.5 * batches.std(ddof=1) / np.sqrt(40))
    assert z.std() == pytest.approx(sd[0], rel=0.03)


def errors(d, M, n_draws, **options):
    """Root mean square errors of means, in sd, of the semiparametric and the parametric product."""
    found = []
    k = 4 * M  # the product is of log(Gamma(4 M) / M)
    mean, sd = special.digamma(k) - np.log(M), np.sqrt(special.polygamma(1, k))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = np.log(rng.gamma(4, size=(M, n_draws, d)))
        kernels = kernel_product(x, 4000, rng, semiparametric=True, **options)[0]
        made = kernels, from_moments(x).draw(4000, rng)
        found.append([np.sqrt((((draws.mean(axis=0) - mean) / sd) ** 2).mean()) for draws in made])
    return np.sqrt((np.array(found) ** 2).mean(axis=0))


@pytest.mark.parametrize(("d", "M"), [(1, 8), (2, 8), (5, 8), (10, 8), (5, 16), (5, 32)])
def test_semiparametric_is_better_than_parametric_for_skewed_shards(d, M):
    semiparametric, parametric = errors(d, M, 300)
    assert semiparametric < 0.6 * parametric


def test_kernels_as_wide_as_a_shard_are_worse_than_none():
    """Why the width does not begin at twice that, and fall: its weights prefer draws far out."""
    wide, parametric = errors(2, 10, 3000, width=2.0, exponent=0.0)
    assert wide > 1.5 * parametric
    assert errors(2, 10, 3000)[0] < 0.6 * parametric
