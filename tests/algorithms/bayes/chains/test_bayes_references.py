"""Samplers, and shards, against draws that others have made: the reference posteriors of posteriordb."""

import math

import numpy as np
import pytest
from reference_posteriors import NORMAL, POSTERIORS, credit, made, radon, votes
from scipy import stats

import stradask as sd
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.algorithms.bayes.posterior.convergence import ess, split_rhat


def _check(name, x, n=None):
    """Means of x (chains, draws, d): none 4 errors off, and their rms below the quantile of 1 - 1e-6."""
    mean, sd, error = np.array([POSTERIORS[name]["reference"][key] for key in ("mean", "sd", "error")])
    flat = x.reshape(-1, x.shape[-1])
    z = (flat.mean(axis=0) - mean) / np.hypot(flat.std(axis=0) / np.sqrt(ess(x) if n is None else n), error)
    assert np.abs(z).max() < 4
    assert (z**2).sum() < stats.chi2.ppf(1 - 1e-6, len(z))
    np.testing.assert_allclose(flat.std(axis=0), sd, rtol=0.12)


def _sampled(name, sampler, **options):
    model, values = made(name)
    sample = sample_model(model, sampler, seed=3, **options)
    q = sample.stacked()
    flat = q.reshape(-1, q.shape[2])
    x = (model.values if values is None else values)(flat).reshape(*q.shape[:2], -1)
    if sample.sampler != "laplace":
        assert split_rhat(x).max() < 1.02
        return _check(name, x)
    rng = np.random.default_rng(0)
    weights = np.exp(sample.chains[0].log_weights)
    n = 1 / (1 / len(weights) + (weights**2).sum())  # of draws that are drawn by their weights
    return _check(name, x[:, rng.choice(len(weights), len(weights), p=weights / weights.sum())], n)


REGRESSIONS = (*NORMAL, "nes", "german", "poisson")
# Draws and warm-up of a chain.
OTHERS = {"eight_schools": (10_000, 1000), "mixture": (500, 300), "seeds": (1500, 500)}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_auto_draws_is_the_reference(name):
    _sampled(name, "auto", n_samples=2000)


@pytest.mark.parametrize("name", ["eight_schools", "seeds", pytest.param("mixture", marks=pytest.mark.slow)])
def test_nuts_draws_the_reference(name):
    n_samples, n_warmup = OTHERS[name]
    _sampled(name, "nuts", n_samples=n_samples, n_warmup=n_warmup)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGRESSIONS)
@pytest.mark.parametrize("sampler", ["nuts", "split_hmc", "hmc"])
def test_every_sampler_draws_the_reference(name, sampler):
    _sampled(name, sampler, n_samples=4000)


def test_groups_are_the_reference():
    X, y, county = radon()
    prior = Prior(scale=10.0, own_scale=math.sqrt(2 - 0.73**2))
    model = regression("normal", X, y, groups=county, prior=prior)
    sample = sample_model(model, "nuts", n_samples=1000, seed=3)
    q = sample.stacked()
    flat = q.reshape(-1, q.shape[2])
    values, intercepts = model.values(flat), model.draw_local(flat, seed=3)[0]
    x = np.column_stack([values, values[:, :1] + intercepts])
    _check("radon_groups", x.reshape(*q.shape[:2], -1))


@pytest.mark.parametrize(
    ("name", "n_shards"), [("german", 3), pytest.param("nes", 4, marks=pytest.mark.slow)]
)
def test_shards_are_the_reference(name, n_shards):
    X, y = votes() if name == "nes" else credit()
    scale = np.inf if name == "nes" else 1.0
    model = sd.BayesianLogisticRegression(
        prior_scale=scale, fit_intercept=False, n_shards=n_shards, n_samples=500, random_state=0
    ).fit(X, y)
    draws = model.posterior_["coef"]
    diagnostics = model.posterior_.diagnostics
    n = 1 / (1 / len(draws) + 1 / diagnostics.row("importance ESS")["value"])
    _check(name, draws[None], n)
