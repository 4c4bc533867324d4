"""Simulation-based calibration: ranks of the truth among draws are uniform (Talts et al. 2018)."""

import warnings

import numpy as np
import pytest
from scipy import special, stats

from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.model import Prior, regression


def _ranks(family, sampler, n_sets, seed, n=40, d=2):
    """Ranks, among 99 thinned draws, of parameters drawn from the prior that made the data."""
    rng = np.random.default_rng(seed)
    ranks = []
    for k in range(n_sets):
        X = np.column_stack([np.ones(n), rng.standard_normal((n, d - 1))])
        b = rng.normal(0, 0.7, d)
        scale = abs(0.5 * rng.standard_cauchy())
        f = X @ b
        y = {
            "bernoulli": lambda f=f: np.where(rng.random(n) < special.expit(f), 1.0, -1.0),
            "normal": lambda f=f, scale=scale: f + scale * rng.standard_normal(n),
            "student_t": lambda f=f, scale=scale: f + scale * rng.standard_t(4, n),
            "poisson": lambda f=f: rng.poisson(np.exp(f)).astype(float),
            "negative_binomial": lambda f=f, scale=scale: rng.negative_binomial(
                1 / scale, 1 / (1 + scale * np.exp(f))
            ).astype(float),
        }[family]()
        model = regression(family, X, y, prior=Prior("normal", 0.7, own_scale=0.5))
        truth = np.append(b, np.log(scale))[: model.n_params]
        sample = sample_model(model, sampler, n_samples=495, n_chains=1, n_warmup=300, seed=seed + k)
        ranks.append((sample.stacked()[0, ::5] < truth).sum(axis=0))
    return np.array(ranks)


def _check_uniform(ranks):
    """Counts in ten bins, by chi-square."""
    for column in ranks.T:
        counts = np.bincount(column // 10, minlength=10)
        assert stats.chisquare(counts).pvalue > 1e-5, counts


@pytest.mark.parametrize("family", ["bernoulli", "normal", "student_t", "poisson", "negative_binomial"])
def test_simulation_based_calibration(family):
    _check_uniform(_ranks(family, "nuts", 100, seed=11))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["nuts", "split_hmc"])
@pytest.mark.parametrize("family", ["bernoulli", "normal", "student_t", "poisson", "negative_binomial"])
def test_simulation_based_calibration_at_length(family, sampler):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _check_uniform(_ranks(family, sampler, 600, seed=12, d=3))
