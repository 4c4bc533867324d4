"""Mixtures of Gaussians for `sample`: against draws from the prior, in shards, and what is refused."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.combine.combiners import CombinationRefused
from stradask.algorithms.bayes.models.called import differences
from stradask.algorithms.bayes.models.mixture import _start
from stradask.errors import DataError, PosteriorWarning


def _points(n, seed=0):
    rng = np.random.default_rng(seed)
    left = rng.random(n) < 0.3
    return np.where(left, rng.normal(-3, 1, n), rng.normal(2, 0.5, n))


@pytest.mark.parametrize(("K", "p"), [(2, 1), (3, 1), (3, 2)])
def test_density_and_gradient(K, p):
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (40, p)) + rng.integers(0, 3, (40, 1))
    options = {"mean_scale": 1.5, "scale_median": 0.7, "scale_spread": 0.8, "concentration": 1.7}
    fitted = sd.GaussianMixtureDensity(K, **options).fitted_to(x)
    constants: dict = {}
    for power in (1.0, 0.25):
        model = fitted.model(fitted.points, power)
        for q in fitted.start + rng.normal(0, 0.7, (3, model.n_params)):
            logp, gradient = model.logp_grad(q)
            slopes = differences(lambda q, model=model: model.logp_grad(q)[0], q)
            np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6)
            values = model.values(q[None])[0]
            means = (values[: K * p].reshape(K, p) - fitted.location) / fitted.unit
            scales, weights = values[K * p : 2 * K * p].reshape(K, p) / fitted.unit, values[-K:]
            assert (np.diff(means[:, 0]) > 0).all()
            assert weights.sum() == pytest.approx(1)
            parts = stats.norm.logpdf(fitted.points[:, None], means, scales).sum(axis=2) + np.log(weights)
            # The Jacobian, by differences of the transform to means, scales and all but one weight.
            free = [*range(2 * K * p + K - 1)]

            def transformed(q, model=model, free=free):
                values = model.values(q[None])[0][free]
                values[: K * p] -= np.tile(fitted.location, K)
                values[: 2 * K * p] /= np.tile(fitted.unit, 2 * K)
                return values

            h = 1e-6 * np.eye(len(q))
            jacobian = np.array([(transformed(q + e) - transformed(q - e)) / 2e-6 for e in h])
            prior = stats.norm.logpdf(means, 0, 1.5).sum()
            prior += stats.lognorm.logpdf(scales, 0.8, scale=0.7).sum()
            prior += stats.dirichlet.logpdf(weights / weights.sum(), np.full(K, 1.7))
            prior += np.linalg.slogdet(jacobian)[1]
            expected = special.logsumexp(parts, axis=1).sum() + power * prior
            constants.setdefault(power, []).append(expected - logp)
    for found in constants.values():
        np.testing.assert_allclose(found, found[0], atol=1e-6)  # up to one constant


def test_the_posterior_is_the_weighted_prior():
    """Few points, so that draws from the prior, in the order of their means, can be weighed."""
    rng = np.random.default_rng(1)
    x = np.array([-1.2, -0.9, -1.1, 0.4, 1.1, 0.8, 0.9])
    n = 1_500_000
    means, scales = rng.normal(0, 2, (n, 2)), 0.5 * np.exp(rng.standard_normal((n, 2)))
    weights = rng.dirichlet([2, 2], n)
    order = np.argsort(means, axis=1)
    means, scales, weights = (np.take_along_axis(a, order, axis=1) for a in (means, scales, weights))
    unit, location = x.std(), x.mean()
    heights = np.zeros(n)
    for value in (x - location) / unit:
        parts = np.log(weights / scales) - 0.5 * ((value - means) / scales) ** 2
        heights += np.logaddexp(parts[:, 0], parts[:, 1])
    w = np.exp(heights - heights.max())
    w /= w.sum()
    values = np.column_stack([location + unit * means, unit * scales, weights])
    mean = w @ values
    spread = np.sqrt(w @ (values - mean) ** 2)
    assert 1 / (w**2).sum() > 3000
    options = {"sampler": "nuts", "n_samples": 4000, "target_accept": 0.95, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # few points: it is skewed, and mixes slowly
        posterior = sd.sample(sd.GaussianMixtureDensity(2), None, x, **options)
    found = posterior.draws.mean(axis=0)
    assert (np.abs(found - mean) < 0.12 * spread).all(), (found, mean, spread)
    np.testing.assert_allclose(posterior.draws.std(axis=0)[[0, 1, 4]], spread[[0, 1, 4]], rtol=0.12)


@pytest.mark.slow
def test_shards_give_the_posterior_of_one_piece():
    x = 100 + 10 * _points(1200)
    density = sd.GaussianMixtureDensity(2)
    whole, cut = (sd.sample(density, None, x, n_samples=400, n_shards=m, random_state=0) for m in (1, 3))
    assert whole.names == ["means[0]", "means[1]", "scales[0]", "scales[1]", "weights[0]", "weights[1]"]
    spread = whole.draws.std(axis=0)
    assert (np.abs(whole.draws.mean(axis=0) - [70, 120, 10, 5, 0.3, 0.7]) < 5 * spread).all()
    assert (np.abs(cut.draws.mean(axis=0) - whole.draws.mean(axis=0)) < 0.15 * spread).all()
    np.testing.assert_allclose(cut.draws.std(axis=0), spread, rtol=0.15)
    assert cut.shard_draws.shape[3] == 6


@pytest.mark.slow
def test_components_on_top_of_each_other_are_right_or_refused():
    """Nothing tells two components of one normal distribution apart: shards see many shapes."""
    x = np.random.default_rng(3).standard_normal(300)
    density, options = sd.GaussianMixtureDensity(2), {"n_samples": 500, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        whole = sd.sample(density, None, x, sampler="nuts", n_shards=1, **options | {"n_samples": 3000})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            cut = sd.sample(density, None, x, n_shards=3, **options)
        except CombinationRefused:
            return
    if any(issubclass(warning.category, PosteriorWarning) for warning in seen):
        return
    spread = whole.draws.std(axis=0)
    assert (np.abs(cut.draws.mean(axis=0) - whole.draws.mean(axis=0)) < 0.4 * spread).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((3, 2, 2)), r"data of a mixture must have the shape \(n,\) or \(n, p\), got \(3, 2, 2\)"),
        ([1.0, np.nan, 2.0, 3.0], "data of a mixture holds nan in row 1"),
        ([1.0, 2.0], "2 components need more than 2 points"),
        ([[1.0, 2.0], [1.0, 3.0], [1.0, 4.0]], "equal in column 0: leave the column out"),
        (np.array([1.0, -2.0, 3.0]) * 1e200, "in column 0 are too large to be squared: rescale"),
        (np.array([1.0, 2.0, 3.0j]), "data of a mixture hold complex numbers"),
        (np.ma.array([1.0, 2.0, 3.0, 9.0], mask=[0, 0, 0, 1]), "data of a mixture hold masked values"),
        ([None, "b", "c"], "data of a mixture must be an array of numbers"),
        (["a.npz", "b.npz"], "shard 0: there is no file .*a.npz"),
    ],
)
def test_bad_data_are_refused(data, message):
    with pytest.raises(DataError, match=message):
        sd.sample(sd.GaussianMixtureDensity(2), None, data)


def test_bad_arguments_are_refused():
    for value in (1, 2.5, True):
        with pytest.raises(DataError, match="n_components must be an integer from 2 on"):
            sd.GaussianMixtureDensity(value)
    with pytest.raises(DataError, match="scale_spread must be a finite number above zero, got -1"):
        sd.GaussianMixtureDensity(2, scale_spread=-1)
    with pytest.raises(DataError, match="start must be None with a GaussianMixtureDensity"):
        sd.sample(sd.GaussianMixtureDensity(2), None, _points(20), [0.0])
    with pytest.raises(DataError, match="start is missing"):
        sd.sample(lambda q, x: 0.0, None, _points(20))


@pytest.mark.slow
def test_simulation_based_calibration():
    """Ranks of the truth, drawn from the prior, are uniform; in units that do not go by the data."""
    rng, ranks = np.random.default_rng(5), []
    for k in range(200):
        means, scales = np.sort(rng.normal(0, 2, 2)), 0.5 * np.exp(0.5 * rng.standard_normal(2))
        weights = rng.dirichlet([4, 4])
        which = (rng.random(60) < weights[1]).astype(int)
        x = (means[which] + scales[which] * rng.standard_normal(60))[:, None]
        own = sd.GaussianMixtureDensity(2, scale_spread=0.5, concentration=4.0).fitted_to(x)
        model = replace(own, location=np.zeros(1), unit=np.ones(1), start=_start(x, 2)).model(x, 1.0)
        sample = sample_model(model, "nuts", n_samples=1980, n_chains=1, n_warmup=500, seed=k, target=0.9)
        values = model.values(sample.stacked()[0, ::20])[:, :5]  # of weights the first
        ranks.append((values < [*means, *scales, weights[0]]).sum(axis=0))
    for column in np.array(ranks).T:
        counts = np.bincount(column // 10, minlength=10)
        assert stats.chisquare(counts).pvalue > 1e-5, counts
