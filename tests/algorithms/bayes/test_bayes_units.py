"""Bayesian regressions and units: of columns, y, offsets, the evidence; and whether the prior dominates."""

import warnings

import numpy as np
import pytest
from regression_problems import MODELS, regression_data
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.linear import BayesianLinearRegression
from stradask.algorithms.bayes.logistic import BayesianLogisticRegression
from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.algorithms.bayes.poisson import BayesianPoissonRegression
from stradask.algorithms.bayes.posterior.diagnostics import add_prior_line
from stradask.algorithms.bayes.posterior.draws import Posterior
from stradask.errors import PosteriorWarning


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prior", ["normal", "laplace"])
def test_fits_do_not_know_the_units_of_the_data(model, prior, fit_intercept):
    """Columns and y times factors, columns and the offset shifted; weights; scales by deviations."""
    X, y = regression_data(model)
    X = X + 0.0 if fit_intercept else X - 1.5
    units, zeros, shift = np.array([1e-6, 4e5]), np.array([2000.0, -7e11]), -27.6
    unit = 1e6 if model is BayesianLinearRegression else 1.0
    zeros, shift = (zeros, shift) if fit_intercept else (0 * zeros, 0.0)
    options = {"prior": prior, "fit_intercept": fit_intercept, "n_samples": 500, "random_state": 0}
    weights = np.where(np.arange(len(y)) % 3 == 0, 3.0, 1.0)
    near = model(**options).fit(X, y, sample_weight=weights)
    target = unit * y if unit > 1 else y
    far = model(**options).fit(
        X * units + zeros, target, sample_weight=weights, offset=np.full(len(y), shift)
    )
    a, b = near.posterior_, far.posterior_
    np.testing.assert_allclose(b["coef"] * units / unit, a["coef"], rtol=0, atol=2e-4)
    if fit_intercept:
        middle = b["intercept"] + b["coef"] @ zeros + shift
        np.testing.assert_allclose(middle / unit, a["intercept"], atol=2e-4)
    shown = far.predict_proba if model is BayesianLogisticRegression else far.predict
    again = near.predict_proba if model is BayesianLogisticRegression else near.predict
    found = shown(X * units + zeros, offset=np.full(len(y), shift)) / unit
    np.testing.assert_allclose(found, again(X), rtol=1e-3, atol=2e-4)
    # By deviations of the repeated rows, about zero without an intercept.
    rows, of_y = np.repeat(X, weights.astype(int), axis=0), np.repeat(y, weights.astype(int))
    spread = rows.std(axis=0) if fit_intercept else np.sqrt((rows**2).mean(axis=0))
    size = of_y.std() if model is BayesianLinearRegression else 1.0
    by_hand = model(prior_scale=2.5 * size / spread, **options).fit(X, y, sample_weight=weights).posterior_
    np.testing.assert_allclose(by_hand["coef"], a["coef"], rtol=0, atol=1e-8)


def maximum_likelihood(model, A, y, weights):
    """Estimates and standard errors by Newton's method."""
    if model is BayesianLinearRegression:
        information = A.T @ (weights[:, None] * A)
        b = np.linalg.solve(information, A.T @ (weights * y))
        noise = weights @ (y - A @ b) ** 2 / (weights.sum() - A.shape[1])
        return b, np.sqrt(noise * np.diag(np.linalg.inv(information)))
    b = np.zeros(A.shape[1])
    y = (y == "yes") if model is BayesianLogisticRegression else y
    for _ in range(30):
        f = A @ b
        mean = special.expit(f) if model is BayesianLogisticRegression else np.exp(f)
        curve = mean * (1 - mean) if model is BayesianLogisticRegression else mean
        information = A.T @ ((weights * curve)[:, None] * A)
        b += np.linalg.solve(information, A.T @ (weights * (y - mean)))
    return b, np.sqrt(np.diag(np.linalg.inv(information)))


@pytest.mark.parametrize("model", MODELS)
def test_shards_and_files_in_odd_units_agree_with_maximum_likelihood(model, tmp_path):
    """Years, and a column of small deviation, with weights: means and deviations are those of all shards."""
    X, y = regression_data(model, 600)
    units, zeros = np.array([1e-3, 40.0]), np.array([20.0, 2000.0])
    weights = np.where(np.arange(600) % 4 == 0, 2.0, 1.0)
    b, error = maximum_likelihood(model, np.column_stack([X, np.ones(600)]), y, weights)
    X = X * units + zeros
    files = [tmp_path / f"{m}.npz" for m in range(3)]
    order = np.argsort(X[:, 1])  # shards of unlike columns
    for m, file in enumerate(files):
        rows = order[m * 200 : (m + 1) * 200]
        np.savez(file, X=X[rows], y=y[rows], sample_weight=weights[rows])
    for fitted in (
        model(random_state=0).fit(X, y, sample_weight=weights),
        model(n_shards=3, random_state=0).fit(X, y, sample_weight=weights),
        model(n_shards="auto", random_state=0).fit(files),
    ):
        found = fitted.posterior_
        middle = found["intercept"] + found["coef"] @ zeros
        draws = np.column_stack([found["coef"] * units, middle])
        assert (np.abs(draws.mean(axis=0) - b) < 0.25 * error).all()
        np.testing.assert_allclose(draws.std(axis=0), error, rtol=0.12)
        assert found.diagnostics.row("prior")["verdict"] == "good"
        if found.shard_draws is not None:
            shard = found.shard_draws[0, 0, :, :2]
            assert (np.abs(shard.mean(axis=0) - found["coef"].mean(axis=0)) < 4 * shard.std(axis=0)).all()


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e9])
def test_timestamps_in_any_unit(unit):
    rng = np.random.default_rng(1)
    seconds = 1.6e9 + rng.uniform(0, 3e7, 300)
    y = 1e-7 * (seconds - 1.6e9) + rng.standard_normal(300)
    model = BayesianLinearRegression(random_state=0).fit(seconds[:, None] * unit, y)
    centred = seconds - seconds.mean()
    slope = centred @ y / (centred @ centred)
    error = (y - y.mean() - slope * centred).std() / np.sqrt(centred @ centred)
    assert model.coef_[0] * unit == pytest.approx(slope, abs=0.15 * error)
    assert model.posterior_["coef"].std() * unit == pytest.approx(error, rel=0.1)
    assert model.posterior_.diagnostics.level == 0
    np.testing.assert_allclose(model.predict(seconds[:, None] * unit), y.mean() + slope * centred, atol=0.05)


# The line about the prior -----------------------------------------------------------------------------


def test_power_scaling_is_the_closed_form():
    """A normal posterior of variance v under a normal prior of variance t: in log a, mean and sd move by
    -v mean / t and -v sd / (2 t)."""
    rng, t = np.random.default_rng(0), 4.0
    for mean, v in ((0.3, 0.1), (3.0, 1.0), (0.2, 3.5)):
        posterior = Posterior(rng.normal(mean, np.sqrt(v), (200_000, 1)))
        log_prior = -0.5 * posterior.draws[:, 0] ** 2 / t
        add_prior_line(posterior, posterior.draws, ["b"], log_prior)
        line = posterior.diagnostics.lines[0]
        expected = np.log(2) * max(np.sqrt(v) * mean / t, v / (2 * t))
        assert line[1] == pytest.approx(expected, rel=0.03)
        assert line[3] == int(expected > 0.3)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("prior", ["normal", "laplace"])
def test_a_prior_that_dominates_is_named_whatever_the_scale(model, prior):
    X, y = regression_data(model)
    for scale, verdict in (("auto", "good"), (0.01, "care"), (np.inf, None)):
        options = {"n_samples": 500, "random_state": 0, "intercept_scale": np.inf}
        found = model(prior=prior, prior_scale=scale, **options).fit(X * 0.5, y).posterior_.diagnostics
        if verdict is None:  # that of sigma is left
            assert ("prior" in found.rows) == (model is BayesianLinearRegression)
            continue
        assert found.row("prior")["verdict"] == verdict
        assert ("the prior dominates" in found.row("prior")["in words"]) == (verdict == "care")
    X[:, 1] = 7  # constant: nothing but its prior is known of it
    line = model(random_state=0).fit(X, y).posterior_.diagnostics.row("prior")
    assert "the prior dominates: with twice its power coef[1]" in line["in words"]


def test_priors_of_scales_have_the_line_too():
    """Of groups and of noise; of the horseshoe that of its global scale."""
    X, y = regression_data(BayesianPoissonRegression, 60)
    groups = np.arange(60) % 3
    for scale, verdict in ((2.5, "good"), (0.02, "care")):
        model = BayesianPoissonRegression(group_scale=scale, n_samples=500, random_state=0)
        line = model.fit(X, y + 5 * groups, groups=groups).posterior_.diagnostics.row("prior")
        assert line["verdict"] == verdict
        assert verdict == "good" or "power group_sd changes" in line["in words"]
    X, y = regression_data(BayesianLinearRegression, 60)
    model = BayesianLinearRegression(noise_scale=0.01, n_samples=500, random_state=0).fit(X, y)
    assert " sigma changes" in model.posterior_.diagnostics.row("prior")["in words"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        model = BayesianLinearRegression(prior="horseshoe", n_samples=200, random_state=0).fit(X, y)
    assert model.posterior_.diagnostics.row("prior")["verdict"] == "good"


@pytest.mark.parametrize("kind", ["normal", "student_t", "laplace", "horseshoe"])
@pytest.mark.parametrize("family", ["bernoulli", "poisson", "negative_binomial", "normal", "student_t"])
def test_a_density_with_its_constant_is_that_of_scipy(family, kind):
    """Weights and offsets; Jacobians of logarithms are part of the density."""
    rng, n = np.random.default_rng(0), 12
    X, weights, offsets = rng.standard_normal((n, 3)), rng.integers(1, 4, n) + 0.0, rng.normal(0, 0.3, n)
    y = rng.poisson(2.0, n) + 0.0 if family in ("poisson", "negative_binomial") else rng.standard_normal(n)
    y = np.sign(y) if family == "bernoulli" else y
    prior = Prior(kind, np.array([0.7, 2.0, 3.0]), 5.0, 0.4, 1.3, n_shrunk=2)
    model = regression(family, X, y, weights=weights, offsets=offsets, prior=prior, freedom=3.0)
    q = model.start + rng.normal(0, 0.5, model.n_params)
    values = model.values(q[None])[0]
    f, scale = X @ values[:3] + offsets, values[-1]
    likelihood = {
        "bernoulli": lambda: special.log_expit(y * f),
        "poisson": lambda: stats.poisson.logpmf(y, np.exp(f)),
        "negative_binomial": lambda: stats.nbinom.logpmf(y, 1 / scale, 1 / (1 + scale * np.exp(f))),
        "normal": lambda: stats.norm.logpdf(y, f, scale),
        "student_t": lambda: stats.t.logpdf(y, 3, f, scale),
    }
    total = weights @ likelihood[family]()
    if kind == "horseshoe":  # numbers of unit variance, logarithms of local scales and of the global one
        total += stats.norm.logpdf(q[:3], scale=[1, 1, 3]).sum()
        total += (stats.halfcauchy.logpdf(np.exp(q[3:6]), scale=[1, 1, 0.4]) + q[3:6]).sum()
    else:
        known = {"normal": stats.norm, "student_t": stats.t(5), "laplace": stats.laplace}[kind]
        total += (known.logpdf(q[:3] / prior.scale) - np.log(prior.scale)).sum()
    if family not in ("bernoulli", "poisson"):
        total += stats.halfcauchy.logpdf(scale, scale=1.3) + q[-1]
    assert model.logp_grad(q)[0] + model.log_constant == pytest.approx(total, abs=1e-9)


def test_chains_of_the_horseshoe_begin_in_the_units_of_y():
    X, y = regression_data(BayesianLinearRegression, 40)
    X = np.column_stack([X, np.ones(40)])
    near, far = (
        regression("normal", X, y * unit, prior=Prior("horseshoe", unit, own_scale=unit, n_shrunk=2)).start
        for unit in (1.0, 1e12)
    )
    np.testing.assert_allclose(far - near, [0, 0, near[2] * (1e12 - 1), 0, 0, 0, np.log(1e12)], rtol=1e-9)


def test_the_evidence_does_not_know_units():
    """One coefficient is integrated out exactly, sigma by a sum; in units of y a density of 40 rows."""
    X, y = regression_data(BayesianLinearRegression, 40)
    x = X[:, :1] - X[:, 0].mean()
    options = {"sampler": "smc", "n_samples": 250, "random_state": 0, "intercept_scale": 10.0}
    of_sigma = np.log(y.std()) + np.linspace(-2, 2, 200)
    logs = [
        stats.multivariate_normal.logpdf(
            y, np.zeros(40), np.exp(2 * log) * np.eye(40) + 100 + (2.5 * y.std() / x.std()) ** 2 * x @ x.T
        )
        + stats.halfcauchy.logpdf(np.exp(log), scale=2.5 * y.std())
        + log
        for log in of_sigma
    ]
    exact = special.logsumexp(logs) + np.log(of_sigma[1] - of_sigma[0])
    for unit, of_y in ((1.0, 1.0), (1e-6, 1.0), (1e6, 1e3)):
        options["intercept_scale"] = 10 * of_y
        model = BayesianLinearRegression(**options).fit(X[:, :1] * unit + unit, y * of_y)
        value, error = model.posterior_.log_evidence
        assert abs(value + 40 * np.log(of_y) - exact) < 5 * error < 0.3


@pytest.mark.parametrize("family", ["normal", "student_t"])
def test_draws_do_not_know_the_unit_of_y(family):
    """A power of two, so that every bit is the same; effects, their deviations and sigma have units."""
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    g, x = np.arange(60) % 6, rng.standard_normal(60)
    y = x + rng.normal(0, 0.5, 6)[g] + rng.normal(0, 0.5, 60)
    options = {"n_samples": 30, "n_warmup": 60, "n_chains": 2, "random_state": 0, "family": family}
    unit = 2.0**-30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        near, far = (
            sd.BayesianGLM("y ~ x + (1 + x | g)", **options).fit({"x": x, "g": g, "y": scale * y}).posterior_
            for scale in (1.0, unit)
        )
    for name in near.variables:
        scale = 1.0 if name.startswith(("cor", "freedom")) else unit
        np.testing.assert_allclose(far[name], scale * near[name], rtol=1e-6, atol=1e-6 * scale)


def test_few_groups_leave_their_deviation_to_the_prior():
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    g, x = np.arange(60) % 3, rng.standard_normal(60)
    data = {"x": x, "g": g, "y": x + np.array([-2.0, 0.0, 2.0])[g] + rng.normal(0, 0.5, 60)}
    priors = {"sd": sd.priors.half_normal(0.1)}
    model = sd.BayesianGLM("y ~ x + (1 | g)", priors=priors, n_samples=200, random_state=0).fit(data)
    line = model.posterior_.diagnostics.row("prior")
    assert line["verdict"] == "care"
    assert "power sd_g[Intercept] changes" in line["in words"]
