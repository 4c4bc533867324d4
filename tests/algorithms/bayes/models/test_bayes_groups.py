"""Regressions with an intercept for each group: against quadrature, in shards."""

from functools import cache

import numpy as np
import pytest
from group_problems import MODELS, drawn_targets, group_data
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.models.called import differences
from stradask.algorithms.bayes.models.groups import cut_groups
from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.errors import DataError

FAMILIES = ("bernoulli", "normal", "poisson", "negative_binomial")


def _row(family, f, y, own):
    """Log likelihood of rows, from scipy, without what does not depend on parameters."""
    if family == "bernoulli":
        return special.log_expit(y * f)
    if family == "normal":
        return stats.norm.logpdf(y, f, own) + 0.5 * np.log(2 * np.pi)
    if family == "poisson":
        return stats.poisson.logpmf(y, np.exp(f)) + special.gammaln(y + 1)
    r = 1 / own
    return stats.nbinom.logpmf(y, r, r / (r + np.exp(f))) + special.gammaln(y + 1)


def _integrals(family, f, y, weights, groups, t, own):
    """Logarithm of each group's integral over its intercept, on a fine grid."""
    z = np.linspace(-60, 60, 24_001)
    found = []
    for k in np.unique(groups):
        i = groups == k
        heights = stats.norm.logpdf(z) + weights[i] @ _row(family, f[i, None] + t * z, y[i, None], own)
        found.append(special.logsumexp(heights) + np.log(z[1] - z[0]))
    return np.array(found)


# The density and the draws -----------------------------------------------------------------------------
@pytest.mark.parametrize(("power", "weighted"), [(1.0, False), (0.25, True)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_density_is_the_integral(family, power, weighted):
    X, y, groups, _ = group_data(family, 60, 7)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 2, 60) if weighted else np.ones(60)
    offsets = rng.normal(0, 0.3, 60)
    options = {"weights": weights, "offsets": offsets, "groups": groups, "power": power}
    model = regression(family, X, y, prior=Prior("normal", 2.0, own_scale=1.5, group_scale=2.0), **options)
    for log_t in (-3.0, 0.0, 2.3):
        q = model.start + rng.normal(0, 0.5, model.n_params)
        q[2] = log_t
        logp, gradient = model.logp_grad(q)
        t, own = np.exp(q[2]), np.exp(q[-1])
        prior = -0.5 * ((q[:2] / 2) ** 2).sum() - 0.5 * (t / 2) ** 2 + q[2]
        if model.n_params > 3:
            prior += q[3] - np.log1p((own / 1.5) ** 2)
        expected = _integrals(family, X @ q[:2] + offsets, y, weights, groups, t, own).sum()
        assert logp == pytest.approx(expected + power * prior, rel=3e-8)
        slopes = differences(lambda q: model.logp_grad(q)[0], q)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-6 * np.abs(slopes).max())


def test_far_from_the_posterior_the_density_stays_right():
    """Steep and flat integrands, large predictors: what a chain meets in its warm-up."""
    y, groups = np.array([1.0, -1.0, 1.0, 1.0]), np.array([0, 0, 1, 1])
    for b, log_t in ((40.0, 1.0), (-700.0, 0.0), (0.0, 3.5), (5.0, -30.0), (900.0, 6.0)):
        model = regression("bernoulli", np.ones((4, 1)), y, groups=groups, prior=Prior(scale=np.inf))
        t = np.exp(log_t)
        expected = 0.0
        for signs in ([1, -1], [1, 1]):
            at = np.linspace(-38, 38, 200_001) if abs(b) / t < 30 else np.linspace(-60, 60, 200_001)
            heights = stats.norm.logpdf(at) + sum(special.log_expit(s * (b + t * at)) for s in signs)
            expected += special.logsumexp(heights) + np.log(at[1] - at[0])
        logp, gradient = model.logp_grad(np.array([b, log_t]))
        assert logp == pytest.approx(expected + log_t - 0.5 * t**2, rel=1e-5), (b, log_t)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("family", ["bernoulli", "normal", "poisson"])
def test_intercepts_have_their_conditional_distribution(family):
    X, y, groups, _ = group_data(family, 30, 3, seed=3)
    y = np.where(groups == 0, 1.0, y)  # one group far to a side: skewed
    model = regression(family, X, y, groups=groups, prior=Prior())
    q = np.array([0.8, -0.2, np.log(1.5), np.log(0.6)])[: model.n_params]
    found = model.draw_local(np.tile(q, (4000, 1)), seed=5)[0]
    np.testing.assert_array_equal(found, model.draw_local(np.tile(q, (4000, 1)), seed=5, n_jobs=3)[0])
    u, own = np.linspace(-12, 12, 20_001), 0.6
    for k in range(3):
        i = groups == k
        heights = stats.norm.logpdf(u, 0, 1.5) + _row(
            family, (X[i] @ q[:2])[:, None] + u, y[i, None], own
        ).sum(axis=0)
        cdf = np.cumsum(np.exp(heights - heights.max()))
        assert stats.kstest(found[:, k], lambda x, cdf=cdf: np.interp(x, u, cdf / cdf[-1])).pvalue > 1e-4
    assert abs(np.corrcoef(found.T) - np.eye(3)).max() < 0.07


@cache
def _grid_of(family):
    """Rows of three groups, and the means and standard deviations of their posterior."""
    rng = np.random.default_rng(4)
    x, groups = rng.standard_normal(24), np.repeat([0, 1, 2], 8)
    y = drawn_targets(family, 0.8 * x + np.array([-1.0, 0.2, 1.2])[groups], rng)
    return x, y, groups, *_grid_posterior(family, x, y, groups, 2.0, 1.0)


def _grid_posterior(family, x, y, groups, scale, t_scale):
    """Means and standard deviations of b, t and the intercepts of groups, by sums over grids of all three."""
    b, log_t, z = np.linspace(-3, 5, 81), np.linspace(-7, 3, 61), np.linspace(-7, 7, 71)
    t = np.exp(log_t)
    joint = stats.norm.logpdf(b / scale)[:, None] + stats.halfnorm.logpdf(t / t_scale) + log_t
    within = []
    for k in np.unique(groups):
        i = np.flatnonzero(groups == k)
        heights = np.broadcast_to(stats.norm.logpdf(z), (len(b), len(t), len(z))).copy()
        for row in i:
            heights += _row(family, (b * x[row])[:, None, None] + t[:, None] * z, y[row], 1.0)
        total = special.logsumexp(heights, axis=2)
        joint = joint + total
        weights = np.exp(heights - total[..., None])
        within.append([weights @ z * t, weights @ z**2 * t**2])
    p = np.exp(joint - special.logsumexp(joint))
    means = [(p.sum(axis=1) @ b), (p.sum(axis=0) @ t), *((p * m).sum() for m, _ in within)]
    squares = [(p.sum(axis=1) @ b**2), (p.sum(axis=0) @ t**2), *((p * s).sum() for _, s in within)]
    return np.array(means), np.sqrt(np.array(squares) - np.square(means))


@pytest.mark.filterwarnings("ignore:Use the draws with care.* ESS::")  # of the scale of few groups
@pytest.mark.parametrize(
    ("family", "sampler"),
    [("bernoulli", "auto"), ("bernoulli", "nuts"), ("poisson", "auto")],
)
def test_the_posterior_is_that_of_quadrature(family, sampler):
    x, y, groups, mean, sd_ = _grid_of(family)
    options = {"prior_scale": 2.0, "group_scale": 1.0, "fit_intercept": False, "random_state": 0}
    model = MODELS[family](sampler=sampler, n_samples=1000, **options)
    model.fit(x[:, None], y, groups=np.array(["b", "a", "c"])[groups])
    posterior = model.posterior_
    assert posterior.names == ["coef[0]", "group_sd", "group[a]", "group[b]", "group[c]"]
    order = [0, 1, 3, 2, 4]  # the labels are not in the order of the rows
    np.testing.assert_array_less(np.abs(posterior.draws.mean(axis=0) - mean[order]) / sd_[order], 0.1)
    np.testing.assert_allclose(posterior.draws.std(axis=0), sd_[order], rtol=0.09)
    np.testing.assert_array_equal(model.groups_, ["a", "b", "c"])
    np.testing.assert_allclose(model.group_intercepts_, posterior["group"].mean(axis=0))


def test_normal_noise_against_integration():
    """Coefficients and noise of a balanced design whose marginal posterior of sd and sigma is a table."""
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(6), 4)
    y = 1.0 + rng.normal(0, 0.8, 6)[groups] + 0.5 * rng.standard_normal(24)
    log_t, log_s = np.linspace(-5, 2.5, 301), np.linspace(-2.5, 1.5, 301)
    t, s = np.exp(log_t)[:, None], np.exp(log_s)
    means = y.reshape(6, 4).mean(axis=1)
    within = ((y.reshape(6, 4) - means[:, None]) ** 2).sum()
    v = t**2 + s**2 / 4  # of a group's mean; the common intercept is flat, so that it leaves v^(1/2)
    logp = -18 * log_s - within / (2 * s**2) - 2.5 * np.log(v) - ((means - means.mean()) ** 2).sum() / (2 * v)
    logp = (
        logp
        + stats.halfnorm.logpdf(t, scale=1.0)
        + stats.halfcauchy.logpdf(s, scale=1.0)
        + log_t[:, None]
        + log_s
    )
    p = np.exp(logp - special.logsumexp(logp))
    truth = {"group_sd": (p.sum(axis=1), t[:, 0]), "sigma": (p.sum(axis=0), s)}
    for sampler in ("auto", "nuts"):
        model = sd.BayesianLinearRegression(
            prior_scale=1.0, noise_scale=1.0, group_scale=1.0, sampler=sampler, n_samples=2000, random_state=0
        ).fit(np.zeros((24, 1)), y, groups=groups)
        found = model.posterior_
        for name, (weights, values) in truth.items():
            mean = weights @ values
            spread = np.sqrt(weights @ values**2 - mean**2)
            assert abs(found.mean()[name] - mean) < 0.1 * spread, (sampler, name)
            assert found.sd()[name] == pytest.approx(spread, rel=0.09), (sampler, name)
        assert found.mean()["intercept"] == pytest.approx(y.mean(), abs=0.05)


def _calibrated(family, n_sets, seed, n=36, G=6):
    """Ranks of the truth among thinned draws: of coefficients, spread, noise, and a group's intercept."""
    rng, ranks = np.random.default_rng(seed), []
    for k in range(n_sets):
        X, groups = rng.standard_normal((n, 2)), np.arange(n) % G
        b, t, own = rng.normal(0, 0.7, 2), abs(rng.normal(0, 1.0)), abs(0.5 * rng.standard_cauchy())
        u = rng.normal(0, t, G)
        f = X @ b + u[groups]
        y = {
            "bernoulli": lambda f=f: np.where(rng.random(n) < special.expit(f), 1.0, -1.0),
            "normal": lambda f=f, own=own: f + own * rng.standard_normal(n),
            "poisson": lambda f=f: rng.poisson(np.exp(f)).astype(float),
            "negative_binomial": lambda f=f, own=own: rng.negative_binomial(
                1 / own, 1 / (1 + own * np.exp(f))
            ).astype(float),
        }[family]()
        model = regression(family, X, y, groups=groups, prior=Prior("normal", 0.7, own_scale=0.5))
        sample = sample_model(model, "nuts", n_samples=495, n_chains=1, n_warmup=300, seed=seed + k)
        q = sample.stacked()[0, ::5]
        truth = np.append(np.append(b, np.log([t, own]))[: model.n_params], u[0])
        ranks.append((np.column_stack([q, model.draw_local(q, seed=k)[0][:, 0]]) < truth).sum(axis=0))
    for column in np.array(ranks).T:
        counts = np.bincount(column // 10, minlength=10)
        assert stats.chisquare(counts).pvalue > 1e-5, counts


def test_simulation_based_calibration():
    _calibrated("normal", 80, seed=21)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", FAMILIES)
def test_simulation_based_calibration_at_length(family):
    _calibrated(family, 150, seed=22)


# Shards ------------------------------------------------------------------------------------------------
def test_groups_are_dealt_out_whole():
    numbers = np.random.default_rng(0).geometric(0.02, 3000)
    _, numbers = np.unique(numbers, return_inverse=True)
    shards = cut_groups(numbers, 4, seed=1)
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(3000))
    assert not any(set(numbers[a]) & set(numbers[b]) for i, a in enumerate(shards) for b in shards[:i])
    assert max(map(len, shards)) - min(map(len, shards)) <= np.bincount(numbers).max()
    with pytest.raises(DataError, match="n_shards=3, but there are 2 groups, of which none is split"):
        cut_groups(np.array([0, 1, 1]), 3, seed=0)


def test_subposteriors_multiply_to_the_posterior():
    X, y, groups, _ = group_data("bernoulli", 90, 9)
    prior = Prior("normal", 1.5)
    whole = regression("bernoulli", X, y, groups=groups, prior=prior)
    parts = [
        regression("bernoulli", X[rows], y[rows], groups=groups[rows], prior=prior, power=1 / 3)
        for rows in cut_groups(groups, 3, seed=0)
    ]
    Q = whole.start + np.random.default_rng(0).normal(0, 0.7, (5, 3))
    total = sum(part.logp_grads(Q)[1] for part in parts)
    np.testing.assert_allclose(total, whole.logp_grads(Q)[1], rtol=1e-6)
    np.testing.assert_allclose(sum(part.logp_batch(Q) for part in parts), whole.logp_batch(Q), rtol=1e-8)


@pytest.mark.parametrize(
    "family",
    [
        "normal",
        pytest.param("bernoulli", marks=pytest.mark.slow),
        pytest.param("poisson", marks=pytest.mark.slow),
    ],
)
def test_shards_give_the_posterior_of_one_piece(family):
    X, y, groups, u = group_data(family, 400, 20)
    labels = groups * 10 - 50
    options = {"n_samples": 300, "random_state": 0}
    whole, cut = (
        MODELS[family](n_shards=n_shards, **options).fit(X, y, groups=labels) for n_shards in (1, 2)
    )
    assert cut.n_shards_ == 2
    assert cut.posterior_.names == whole.posterior_.names
    spread = whole.posterior_.draws.std(axis=0)
    apart = np.abs(cut.posterior_.draws.mean(axis=0) - whole.posterior_.draws.mean(axis=0)) / spread
    assert apart.max() < 0.25, dict(zip(whole.posterior_.names, apart, strict=True))
    np.testing.assert_allclose(cut.posterior_.draws.std(axis=0), spread, rtol=0.2)
    assert np.corrcoef(cut.group_intercepts_, u)[0, 1] > 0.75
    again = MODELS[family](n_shards=2, n_jobs=2, **options).fit(X, y, groups=labels)
    np.testing.assert_array_equal(again.posterior_.draws, cut.posterior_.draws)
    assert "group[-50]" in str(cut.posterior_.summary())


def test_auto_takes_no_fewer_than_twenty_groups_a_shard():
    X, y, groups, _ = group_data("poisson", 900, 45)
    X = np.tile(X, (1, 1))
    model = sd.BayesianPoissonRegression(n_shards="auto")
    assert model._count_shards(np.zeros((600_000, 3)), np.ones(600_000), groups) == 2
    assert model._count_shards(np.zeros((600_000, 3)), np.ones(600_000), None) > 100
    assert model._count_shards(X, y, groups) == 1


def test_auto_takes_fewer_shards_until_all_have_both_classes():
    """Two of six groups have positives, so that two shards can have both classes; then one of six."""
    model = sd.BayesianLogisticRegression(n_shards="auto")
    groups, seen = np.repeat(np.arange(6), 10), []
    y = np.where(np.isin(groups, (0, 3)) & (np.arange(60) % 2 == 0), 1.0, -1.0)
    for positives in (y, np.where(groups == 0, y, -1.0)):
        model.n_shards_ = 6
        shards = model._cut(positives, groups, seed=0)
        seen.append(model.n_shards_)
        if model.n_shards_ > 1:
            assert all(len(np.unique(positives[rows])) == 2 for rows in shards)
            np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(60))
    assert seen == [2, 1]
    model.set_params(n_shards=3).n_shards_ = 3
    assert len(model._cut(y, groups, seed=0)) == 3  # what was asked for is refused later, aloud
