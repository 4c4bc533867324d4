"""Regressions with an intercept for each group: against quadrature, in shards, predictions, bad input."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.density import differences
from stradask.algorithms.bayes.groups import check_groups, cut_groups, find_groups
from stradask.algorithms.bayes.models import Prior, regression
from stradask.algorithms.bayes.sampling import sample_model
from stradask.errors import DataError, PosteriorWarning

FAMILIES = ("bernoulli", "normal", "poisson", "negative_binomial")
MODELS = {
    "bernoulli": sd.BayesianLogisticRegression,
    "normal": sd.BayesianLinearRegression,
    "poisson": sd.BayesianPoissonRegression,
}


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


def _made(family, f, rng):
    return {
        "bernoulli": lambda: np.where(rng.random(len(f)) < special.expit(f), 1.0, -1.0),
        "normal": lambda: f + 0.5 * rng.standard_normal(len(f)),
        "poisson": lambda: rng.poisson(np.exp(f)).astype(float),
        "negative_binomial": lambda: rng.negative_binomial(2, 2 / (2 + np.exp(f))).astype(float),
    }[family]()


def _data(family, n, G, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    X, numbers = rng.standard_normal((n, 2)), np.concatenate([np.arange(G), rng.integers(0, G, n - G)])
    u = rng.normal(0, spread, G)
    y = _made(family, X @ [1.0, -0.5] + 0.3 + u[numbers], rng)
    return X, y, numbers, u


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
    X, y, groups, _ = _data(family, 60, 7)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 2, 60) if weighted else np.ones(60)
    offsets = rng.normal(0, 0.3, 60)
    options = {"weights": weights, "offsets": offsets, "groups": groups, "power": power}
    model = regression(family, X, y, prior=Prior("normal", 2.0, own_scale=1.5), group_scale=2.0, **options)
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
    X, y, groups, _ = _data(family, 30, 3, seed=3)
    y = np.where(groups == 0, 1.0, y)  # one group far to a side: skewed
    model = regression(family, X, y, groups=groups, prior=Prior())
    q = np.array([0.8, -0.2, np.log(1.5), np.log(0.6)])[: model.n_params]
    found = model.draw_intercepts(np.tile(q, (4000, 1)), seed=5)
    np.testing.assert_array_equal(found, model.draw_intercepts(np.tile(q, (4000, 1)), seed=5, n_jobs=3))
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
    y = _made(family, 0.8 * x + np.array([-1.0, 0.2, 1.2])[groups], rng)
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
        ranks.append((np.column_stack([q, model.draw_intercepts(q, seed=k)[:, 0]]) < truth).sum(axis=0))
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
    X, y, groups, _ = _data("bernoulli", 90, 9)
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


@pytest.mark.parametrize("family", ["normal", "bernoulli", pytest.param("poisson", marks=pytest.mark.slow)])
def test_shards_give_the_posterior_of_one_piece(family):
    X, y, groups, u = _data(family, 400, 20)
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
    X, y, groups, _ = _data("poisson", 900, 45)
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


# Predictions -------------------------------------------------------------------------------------------


def _fitted(family, **options):
    X, y, groups, _ = _data(family, 200, 5)
    model = MODELS[family](random_state=0, **options)
    return model.fit(X, y, groups=np.array(["e", "a", "d", "b", "c"])[groups]), X, y


def test_predictions_for_known_and_new_groups():
    new, labels = np.array([[0.5, 1.0], [-1.0, 0.3], [0.5, 1.0]]), ["d", "elsewhere", "e"]
    model, _, _ = _fitted("bernoulli")
    p = model.posterior_
    f = p["coef"] @ new.T + p["intercept"][:, None]
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((300, len(p))) * p["group_sd"]
    expected = np.array(
        [
            special.expit(f[:, 0] + p["group[d]"]).mean(),
            special.expit(f[:, 1] + draws).mean(),
            special.expit(f[:, 2] + p["group[e]"]).mean(),
        ]
    )
    found = model.predict_proba(new, groups=labels)[:, 1]
    np.testing.assert_allclose(found[[0, 2]], expected[[0, 2]], rtol=1e-12)
    assert found[1] == pytest.approx(expected[1], abs=0.004)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(new, groups=labels))[:, 1], found)
    np.testing.assert_array_equal(
        model.predict(new, groups=labels), model.classes_[(found > 0.5).astype(int)]
    )
    np.testing.assert_allclose(model.predict_proba(new), model.predict_proba(new, groups=["?"] * 3))
    likelihood = model.log_likelihood(new, model.classes_[[1, 1, 0]], groups=labels)
    np.testing.assert_allclose(np.exp(likelihood).mean(axis=0), [found[0], found[1], 1 - found[2]])

    model, _, _ = _fitted("normal")
    p = model.posterior_
    mean, std = model.predict(new, return_std=True, groups=labels)
    f = p["coef"] @ new.T + p["intercept"][:, None]
    noise = (p["sigma"] ** 2).mean()
    np.testing.assert_allclose(mean[0], (f[:, 0] + p["group[d]"]).mean())
    np.testing.assert_allclose(std[0] ** 2, (f[:, 0] + p["group[d]"]).var() + noise)
    np.testing.assert_allclose(mean[1], f[:, 1].mean())
    np.testing.assert_allclose(std[1] ** 2, f[:, 1].var() + noise + (p["group_sd"] ** 2).mean())

    model, _, _ = _fitted("poisson")
    p = model.posterior_
    mean, _ = model.predict(new, return_std=True, groups=labels)
    f = p["coef"] @ new.T + p["intercept"][:, None]
    np.testing.assert_allclose(mean[1], np.exp(f[:, 1] + p["group_sd"] ** 2 / 2).mean(), rtol=1e-9)
    np.testing.assert_allclose(mean[2], np.exp(f[:, 2] + p["group[e]"]).mean())


def test_predictions_for_new_groups_that_differ_widely():
    """Intercepts many times as wide as the step from 0 to 1: what few nodes cannot see."""
    new, z = np.zeros((1, 2)), np.linspace(-20, 20, 2001)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    X, y, groups, _ = _data("negative_binomial", 60, 4)
    counts = sd.BayesianPoissonRegression("negative_binomial", n_samples=50, n_warmup=100, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # any draws will do
        model, _, _ = _fitted("bernoulli", n_samples=200, sampler="laplace")
        counts.fit(X, y, groups=groups)
    p = model.posterior_
    p.draws[:, p.names.index("group_sd")] *= 8 / p["group_sd"].mean()
    f = p["coef"] @ new[0] + p["intercept"] + 5.0
    t = p["group_sd"][:, None]
    expected = special.expit(f[:, None] + t * z) @ weights
    assert model.predict_proba(new, offset=[5.0])[0, 1] == pytest.approx(expected.mean(), abs=1e-4)
    far = special.expit(f[:, None] - 45 + t * z) @ weights
    found = model.log_likelihood(new, model.classes_[[1]], offset=[-40.0])
    np.testing.assert_allclose(found[:, 0], np.log(far), atol=0.01)

    p = counts.posterior_
    p.draws[:, p.names.index("group_sd")] *= 6 / p["group_sd"].max()
    mean, std = counts.predict(new, return_std=True)
    s2 = p["group_sd"] ** 2
    first, second = np.exp(p["intercept"] + s2 / 2), np.exp(2 * p["intercept"] + 2 * s2)
    assert mean[0] == pytest.approx(first.mean(), rel=1e-9)
    assert counts.predict(new)[0] == pytest.approx(mean[0], rel=1e-9)
    variance = first.mean() + ((1 + p["overdispersion"]) * second).mean() - first.mean() ** 2
    assert std[0] ** 2 == pytest.approx(variance, rel=1e-9)


def test_a_row_of_weight_two_is_two_rows():
    X, y, groups, _ = _data("bernoulli", 30, 30)
    weights = np.random.default_rng(0).integers(1, 4, 30)
    rows = np.repeat(np.arange(30), weights)
    short = regression("bernoulli", X, y, groups=groups, weights=weights.astype(float))
    long = regression("bernoulli", X[rows], y[rows], groups=groups[rows])
    for q in short.start + np.random.default_rng(1).normal(0, 1, (3, 3)):
        assert short.logp_grad(q)[0] == pytest.approx(long.logp_grad(q)[0], rel=1e-9)
    model = sd.BayesianLogisticRegression(sampler="laplace", n_samples=50, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of importance sampling; any draws will do
        model.fit(X, y, weights, groups=groups)
    assert model.group_intercepts_.shape == (30,)
    with pytest.raises(DataError, match="30 groups for 30 rows"):
        sd.BayesianLogisticRegression().fit(X, y, np.ones(30), groups=groups)
    pairs, counts = np.append(np.arange(29), 0), np.full(30, 2.0)  # one group of two rows, which X fits
    with pytest.raises(DataError, match="without noise"):
        sd.BayesianLinearRegression().fit(X, X[:, 0] + y, counts, groups=pairs)
    with pytest.raises(DataError, match="without noise"):
        sd.BayesianLinearRegression(fit_intercept=False).fit(X[:2], y[:2], counts[:2])


def test_times_are_compared_in_the_finer_unit():
    days = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
    hours = np.array(["2020-01-02T00", "2020-01-01T05"], "M8[h]")
    np.testing.assert_array_equal(find_groups(hours, days), [1, -1])
    np.testing.assert_array_equal(find_groups(days, hours), [-1, 0])


@pytest.mark.cluster
def test_a_cluster_draws_the_same():
    distributed = pytest.importorskip("distributed")
    X, y, groups, _ = _data("bernoulli", 200, 12)
    labels, offset = np.array([f"g{k}" for k in range(12)])[groups], 0.1 * X[:, 0]
    weights = np.random.default_rng(0).integers(0, 3, 200)
    options = {"n_shards": 2, "n_samples": 50, "n_warmup": 50, "sampler": "nuts", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        here = sd.BayesianLogisticRegression(combine="consensus", **options)
        here.fit(X, y, weights, offset=offset, groups=labels)
        settings = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
        with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster):
            there = sd.BayesianLogisticRegression(combine="consensus", engine="dask", **options)
            there.fit(X, y, weights, offset=offset, groups=labels)
    np.testing.assert_array_equal(here.posterior_.draws, there.posterior_.draws)


def test_files_and_fits_without_groups(tmp_path):
    model, X, y = _fitted("bernoulli")
    model.save(tmp_path / "m.npz")
    other = sd.load(tmp_path / "m.npz")
    assert other.posterior_.names == model.posterior_.names
    np.testing.assert_array_equal(
        other.predict_proba(X, groups=["a"] * 200), model.predict_proba(X, groups=["a"] * 200)
    )
    model.posterior_.save(tmp_path / "p.npz")
    assert sd.Posterior.load(tmp_path / "p.npz").names == model.posterior_.names
    model.fit(X, y)
    assert not hasattr(model, "groups_")
    assert "group" not in model.posterior_.variables
    with pytest.raises(DataError, match="the model was fitted without: leave them out"):
        model.predict(X, groups=["a"] * 200)


def test_weights_of_zero_leave_groups_out():
    X, y, groups, _ = _data("normal", 60, 4)
    weights = (groups != 2).astype(float)
    options = {"sampler": "split_hmc", "n_samples": 50, "random_state": 0}
    model, other = (sd.BayesianLinearRegression(**options) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of short chains
        model.fit(X, y, weights, groups=groups)
        other.fit(X[groups != 2], y[groups != 2], groups=groups[groups != 2])
    assert model.groups_.tolist() == [0, 1, 3]
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-9)


# Bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (pd.Series(["x", "y", "x"]), "O"),
        (pd.Categorical(["x", "y", "x"]), "O"),
        (pd.DataFrame({"g": ["x", "y", "x"]}), "O"),
        (pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-01"]), "M"),
        ([True, False, True], "b"),
        (np.array([1, 2, 1], dtype=object), "i"),
        ([1.5, 2.5, 1.5], "f"),
    ],
)
def test_labels_of_any_kind(labels, kind):
    checked = check_groups(labels, 3)
    assert checked.dtype.kind == kind
    names = np.unique(checked)
    np.testing.assert_array_equal(names[find_groups(checked, names)], checked)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], r"groups has the shape \(2,\), but X has 40 rows"),
        (np.zeros((40, 2)), r"groups has the shape \(40, 2\)"),
        (np.zeros(40), "groups holds one group, 0.0"),
        (np.arange(40), "groups holds 40 groups for 40 rows"),
        (np.append(np.zeros(39), np.nan), "groups holds nan in row 39"),
        (["a", None] * 20, "groups holds None in row 1"),
        (pd.array(["a", pd.NA] * 20), "groups holds <NA> in row 1"),
        (pd.array([1, None] * 20, dtype="Int64"), "groups holds (<NA>|nan) in row 1"),
        (np.array([1, "a"] * 20, dtype=object), "groups holds labels of the types int, str"),
        (np.array([{}] * 40), "groups holds labels of the types dict"),
        (np.ma.array([1, 2] * 20, mask=[0, 1] * 20), "groups masks row 1: give the row a label"),
        (np.zeros(40, complex), "groups holds labels of the type complex128"),
        (np.array(["2020-01-01", "NaT"] * 20, dtype="M8[D]"), "groups holds NaT in row 1"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    X, y, _, _ = _data("bernoulli", 40, 4)
    with pytest.raises(DataError, match=message):
        sd.BayesianLogisticRegression().fit(X, y, groups=groups)


def test_what_groups_cannot_do_is_refused():
    X, y, groups, _ = _data("normal", 40, 4)
    with pytest.raises(DataError, match="noise='student_t' has not: take noise='normal'"):
        sd.BayesianLinearRegression("student_t").fit(X, y, groups=groups)
    with pytest.raises(DataError, match=r"sampler='gibbs' takes linear regression .* without groups"):
        sd.BayesianLinearRegression(sampler="gibbs").fit(X, y, groups=groups)
    with pytest.raises(DataError, match=r"without noise \(or constant\) in every group"):
        sd.BayesianLinearRegression().fit(X, X[:, 0] + groups, groups=groups)
    with pytest.raises(DataError, match="n_shards=5, but there are 4 groups"):
        sd.BayesianLinearRegression(n_shards=5).fit(X, y, groups=groups)
    with pytest.raises(DataError, match="all rows of shard 0 of 2 are of one class: take a smaller n_shards"):
        sd.BayesianLogisticRegression(n_shards=2).fit(X, groups < 2, groups=groups < 2)
    model = sd.BayesianLinearRegression(random_state=0).fit(X, y, groups=groups)
    with pytest.raises(DataError, match="groups are text, those of the fit numbers"):
        model.predict(X, groups=["0"] * 40)
    with pytest.raises(ValueError, match="group_scale"):
        sd.BayesianLinearRegression(group_scale=np.inf).fit(X, y, groups=groups)


def test_groups_of_single_rows_are_the_overdispersion_of_counts():
    X, y, _, _ = _data("poisson", 150, 150, spread=0.8)
    model = sd.BayesianPoissonRegression(n_samples=300, random_state=0).fit(X, y, groups=np.arange(150))
    low, high = np.quantile(model.posterior_["group_sd"], [0.001, 0.999])
    assert low < 0.8 < high
