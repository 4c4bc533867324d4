"""Log-likelihoods of observations, draw by draw, and the way from there to leave-one-out."""

import numpy as np
import pytest
from scipy import integrate, stats

import stradask as sd
from stradask.errors import DataError, StradaskError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 2))
OFFSET = 0.3 * RNG.standard_normal(60)
F = X @ [0.5, -0.4] + OFFSET
OPTIONS = {"n_samples": 25, "n_warmup": 100, "random_state": 0}
LONGER = OPTIONS | {"n_samples": 200}  # of chains, whose R-hat passes 1.1 by chance in 25 draws


def density(model, values, f, y):
    """SciPy's, for predictors and targets that broadcast."""
    if isinstance(model, sd.BayesianLinearRegression):
        if model.noise == "student_t":
            return stats.t.logpdf(y, model.noise_freedom, f, values["sigma"])
        return stats.norm.logpdf(y, f, values["sigma"])
    if model.family == "poisson":
        return stats.poisson.logpmf(y, np.exp(f))
    r = 1 / values["overdispersion"]
    return stats.nbinom.logpmf(y, r, r / (r + np.exp(f)))


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (sd.BayesianLinearRegression(**OPTIONS), F + RNG.standard_normal(60)),
        (sd.BayesianLinearRegression("student_t", noise_freedom=3, **LONGER), F + RNG.standard_t(3, 60)),
        (sd.BayesianPoissonRegression(**OPTIONS), RNG.poisson(np.exp(F))),
        (
            sd.BayesianPoissonRegression("negative_binomial", **OPTIONS),
            RNG.poisson(np.exp(F + RNG.gamma(2, size=60))),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.* ESS::")  # of few draws, as the table says
def test_every_observation_under_every_draw(model, y):
    posterior = model.fit(X, y, offset=OFFSET).posterior_
    found = model.log_likelihood(X, y, offset=OFFSET)
    assert found.shape == (len(posterior), 60)
    for draw in (0, 41):
        values = {name: posterior[name][draw] for name in posterior.variables}
        f = X @ values["coef"] + values["intercept"] + OFFSET
        np.testing.assert_allclose(found[draw], density(model, values, f, y), rtol=1e-9)


def test_hardly_any_overdispersion_is_poissons():
    y = RNG.poisson(np.exp(F))
    model = sd.BayesianPoissonRegression("negative_binomial", **OPTIONS).fit(X, y)
    model.posterior_["overdispersion"][:] = 1e-9
    f = model.posterior_["coef"] @ X.T + model.posterior_["intercept"][:, None]
    np.testing.assert_allclose(model.log_likelihood(X, y), stats.poisson.logpmf(y, np.exp(f)), atol=1e-6)


def test_groups_of_the_fit_and_others():
    groups = np.arange(60) % 12
    own = np.random.default_rng(1).standard_normal(12)[groups]
    model = sd.BayesianLinearRegression(**OPTIONS).fit(X, F + own, groups=groups)
    posterior = model.posterior_
    found = model.log_likelihood(X[:2], [0.1, 0.2], groups=[3, 99])
    values = {name: posterior[name][7] for name in posterior.variables}
    f = X[:2] @ values["coef"] + values["intercept"]
    assert found[7, 0] == pytest.approx(stats.norm.logpdf(0.1, f[0] + values["group"][3], values["sigma"]))

    def joint(u):
        return stats.norm.pdf(u, 0, values["group_sd"]) * stats.norm.pdf(0.2, f[1] + u, values["sigma"])

    middle = (0.2 - f[1]) * values["group_sd"] ** 2 / (values["group_sd"] ** 2 + values["sigma"] ** 2)
    total = integrate.quad(joint, -20, 20, points=[middle], epsabs=0, limit=400)[0]
    assert found[7, 1] == pytest.approx(np.log(total))

    counts = sd.BayesianPoissonRegression(**OPTIONS).fit(X, RNG.poisson(np.exp(F)), groups=groups)
    assert np.isfinite(counts.log_likelihood(X, np.zeros(60), groups=groups)).all()
    with pytest.raises(DataError, match="row 1 has no group, or one that the fit did not see"):
        counts.log_likelihood(X[:2], [0, 1], groups=[0, 99])


@pytest.mark.parametrize("model", [sd.BayesianLogisticRegression, sd.BayesianLinearRegression])
@pytest.mark.parametrize("n", [1, 3])
def test_as_many_targets_as_rows(model, n):
    fitted = model(**OPTIONS).fit(X, F + RNG.standard_normal(60) > 0)
    with pytest.raises(DataError, match=f"y has {n} rows, but X has 60"):
        fitted.log_likelihood(X, np.ones(n))


@pytest.mark.parametrize("sampler", ["nuts", "laplace"])
def test_leave_one_out(sampler):
    pytest.importorskip("arviz_base")
    y = F + np.random.default_rng(0).standard_normal(60) > 0
    model = sd.BayesianLogisticRegression(sampler=sampler, n_samples=200, random_state=0).fit(X, y)
    pointwise = model.log_likelihood(X, y)
    tree = model.posterior_.to_arviz(log_likelihood=pointwise)
    there = tree["log_likelihood"]["y"].values.reshape(800, 60)
    draws = tree["posterior"]["intercept"].values.ravel()
    order = [np.flatnonzero(model.posterior_["intercept"] == draw)[0] for draw in draws]
    np.testing.assert_array_equal(there, pointwise[order])
    for wrong in (pointwise[1:], pointwise[0], "all"):
        with pytest.raises(DataError, match="log_likelihood must"):
            model.posterior_.to_arviz(log_likelihood=wrong)
    loo = pytest.importorskip("arviz_stats").loo
    assert np.isfinite(loo(tree).elpd)


def test_new_and_observed_data_go_to_arviz():
    pytest.importorskip("arviz_base")
    x = np.random.default_rng(0).normal(3, 1, 40)
    posterior = sd.sample(
        lambda q, x: -0.5 * ((x - q[0]) ** 2).sum(), None, x, [0.0], names=["mean"], random_state=0
    )
    tree = posterior.to_arviz(
        log_likelihood=True,
        predictive=lambda values, rng: rng.normal(values["mean"][:, None], 1, (len(values["mean"]), 40)),
        observed=x,
        random_state=0,
    )
    new = tree["posterior_predictive"]["y"]
    assert new.shape == tree["log_likelihood"]["y"].shape
    assert abs(float(new.mean()) - x.mean()) < 0.02
    np.testing.assert_array_equal(tree["observed_data"]["y"], x)
    with pytest.raises(StradaskError, match="does not know how to draw new data"):
        posterior.to_arviz(predictive=True)
    with pytest.raises(DataError, match="a row for each of"):
        posterior.to_arviz(predictive=lambda values, rng: np.zeros((3, 40)))


def test_a_model_by_formula_brings_all_groups():
    az = pytest.importorskip("arviz_stats")
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    x, g = rng.standard_normal(200), rng.integers(0, 10, 200)
    y = x + rng.normal(0, 1, 10)[g] + rng.normal(0, 0.5, 200)
    scores = []
    for formula in ("y ~ x + (1 | g)", "y ~ x"):
        model = sd.BayesianGLM(formula, n_samples=1500, random_state=0).fit({"x": x, "y": y, "g": g})
        tree = model.posterior_.to_arviz(log_likelihood=True, predictive=True)
        assert {"posterior", "log_likelihood", "posterior_predictive", "observed_data"} <= set(tree.children)
        scores.append(float(az.loo(tree).elpd))
    # The groups have a spread of 1, the noise of a half: sums of log densities by hand.
    assert scores[0] > scores[1] + 50
    assert scores[0] == pytest.approx(-200 * (np.log(0.5) + 0.5 + 0.5 * np.log(2 * np.pi)), abs=35)
