"""The Bayesian regressions: predictions, files, bad input, scikit-learn's contract."""

import json

import numpy as np
import pytest
from regression_problems import TRUTH, assert_near, regression_data
from scipy import sparse, special, stats

import stradask as sd
from stradask.algorithms.bayes.chains.laplace import find_mode, laplace_draws
from stradask.algorithms.bayes.chains.sampling import sample_model
from stradask.algorithms.bayes.linear import BayesianLinearRegression
from stradask.algorithms.bayes.logistic import BayesianLogisticRegression
from stradask.algorithms.bayes.models.model import Prior, regression
from stradask.algorithms.bayes.models.propriety import check_identified
from stradask.algorithms.bayes.poisson import BayesianPoissonRegression
from stradask.algorithms.bayes.posterior.convergence import ess
from stradask.errors import (
    DataError,
    InterruptedFitWarning,
    ModelFileError,
    PosteriorWarning,
    StradaskError,
)
from stradask.kernels.bayes import gibbs as bayes_gibbs

# Against closed forms ----------------------------------------------------------------------------------


def test_linear_regression_is_the_closed_form():
    """A flat prior: coefficients are Student-t about least squares, and predictions too."""
    X, y = regression_data(BayesianLinearRegression, 60)
    options = {"prior_scale": np.inf, "noise_scale": np.inf, "n_samples": 4000, "random_state": 0}
    for sampler in ("auto", "nuts", "gibbs"):
        model = BayesianLinearRegression(sampler=sampler, **options).fit(X, y)
        A = np.column_stack([X, np.ones(60)])
        b, squares, *_ = np.linalg.lstsq(A, y, rcond=None)
        # With p(sigma) flat, not 1/sigma, there is a degree of freedom less.
        freedom = 60 - 3 - 1
        scale = np.sqrt(squares[0] / freedom)
        sd = scale * np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * freedom / (freedom - 2))
        found, n = model.posterior_, 2500
        draws = np.column_stack([found["coef"], found["intercept"]])
        mean = found.weights @ draws
        assert_near(mean, b, sd / np.sqrt(n))
        spread = np.sqrt(found.weights @ (draws - mean) ** 2)
        np.testing.assert_allclose(spread, sd, rtol=0.06)
        new = np.array([[0.5, 2.0], [-1.0, 0.0]])
        rows = np.column_stack([new, np.ones(2)])
        predicted, std = model.predict(new, return_std=True)
        assert_near(predicted, rows @ b, std / np.sqrt(n))
        factor = 1 + np.einsum("ij,jk,ik->i", rows, np.linalg.inv(A.T @ A), rows)
        np.testing.assert_allclose(std, scale * np.sqrt(factor * freedom / (freedom - 2)), rtol=0.04)
        np.testing.assert_allclose(model.predict(new), predicted)


@pytest.mark.parametrize("prior", ["normal", "student_t", "laplace"])
def test_one_coefficient_against_quadrature(prior):
    X, y = regression_data(BayesianLogisticRegression, 30)
    X, offset = X[:, :1], np.full(30, 0.2)
    grid = np.linspace(-6, 8, 20_001)
    density = {"normal": stats.norm, "student_t": stats.t(4), "laplace": stats.laplace}[prior].logpdf(
        grid / 0.8
    )
    f = X * grid + 0.2
    logp = density + special.log_expit(np.where(y == "yes", 1, -1)[:, None] * f).sum(axis=0)
    p = np.exp(logp - logp.max())
    p /= p.sum()
    mean = p @ grid
    sd = np.sqrt(p @ (grid - mean) ** 2)
    for sampler in ("auto", "nuts"):
        options = {"fit_intercept": False, "n_samples": 4000, "sampler": sampler, "random_state": 1}
        model = BayesianLogisticRegression(prior, 0.8, **options).fit(X, y, offset=offset)
        assert_near(model.coef_[0, 0], mean, sd / np.sqrt(3000))
        assert model.posterior_.sd()["coef"][0] == pytest.approx(sd, rel=0.06)
        assert model.intercept_[0] == 0
        new = np.array([[-1.0], [0.3], [2.0]])
        truth = special.expit(new * grid + 0.2) @ p
        found = model.predict_proba(new, offset=np.full(3, 0.2))
        np.testing.assert_allclose(found[:, 1], truth, atol=0.015)
        np.testing.assert_allclose(found.sum(axis=1), 1)
        np.testing.assert_allclose(np.exp(model.predict_log_proba(new, offset=np.full(3, 0.2))), found)
        assert (model.predict(new) == model.classes_[(truth > 0.5).astype(int)]).all()


def test_poisson_intercept_is_a_gamma():
    """Nothing but an intercept with a flat prior: its exponential is Gamma(sum y, n)."""
    y = np.array([3, 0, 4, 2, 2, 6, 1, 5])
    X = np.zeros((8, 1))
    model = BayesianPoissonRegression(intercept_scale=np.inf, n_samples=4000, random_state=0)
    model.fit(X, y, offset=np.full(8, np.log(2.0)))
    rate = np.exp(model.posterior_["intercept"])
    weights = model.posterior_.weights
    truth = stats.gamma(y.sum(), scale=1 / 16)
    assert_near(weights @ rate, truth.mean(), truth.std() / np.sqrt(3000))
    mean, std = model.predict(X[:1], return_std=True)
    assert mean[0] == pytest.approx(truth.mean(), rel=0.02)
    assert std[0] == pytest.approx(np.sqrt(truth.var() + truth.mean()), rel=0.03)


def test_noise_with_outliers_and_overdispersion():
    X, y = regression_data(BayesianLinearRegression)
    y[:8] += 50
    plain, robust = (
        BayesianLinearRegression(noise, random_state=0).fit(X, y) for noise in ("normal", "student_t")
    )
    assert np.abs(robust.coef_ - TRUTH).max() < 0.15 < np.abs(plain.intercept_ - 0.3)
    assert robust.posterior_.mean()["sigma"] < 1 < plain.posterior_.mean()["sigma"]
    assert np.isinf(
        BayesianLinearRegression("student_t", noise_freedom=2.0).fit(X, y).predict(X, True)[1]
    ).all()
    rng = np.random.default_rng(1)
    mean = np.exp(X @ TRUTH + 1)
    counts = rng.negative_binomial(2, 2 / (2 + mean))
    model = BayesianPoissonRegression("negative_binomial", random_state=0).fit(X, counts)
    assert_near(model.posterior_.mean()["overdispersion"], 0.5, model.posterior_.sd()["overdispersion"])
    assert_near(model.coef_, TRUTH, model.posterior_.sd()["coef"])
    assert model.predict(X, return_std=True)[1].mean() > 1.3 * np.sqrt(mean).mean()


@pytest.mark.parametrize("power", [1.0, 0.2])
@pytest.mark.parametrize("own_scale", [0.3, np.inf])
def test_gibbs_draws_the_same_posterior(power, own_scale):
    """Against importance sampling about the mode, of few rows and a prior that matters."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((12, 3))
    weights = rng.uniform(0.5, 2, 12)
    prior = Prior("normal", [0.3, 1.0, 3.0], own_scale=own_scale)
    model = regression("normal", X, rng.standard_normal(12), weights=weights, prior=prior, power=power)
    exact, _ = laplace_draws(model, find_mode(model), 200_000, seed=0, freedom=6.0)
    w = np.exp(exact.log_weights)
    mean = w @ exact.draws
    sd = np.sqrt(w @ (exact.draws - mean) ** 2)
    sample = sample_model(model, "gibbs", n_samples=20_000, n_warmup=50, seed=1)
    draws = sample.stacked()
    assert_near(draws.mean(axis=(0, 1)), mean, sd / np.sqrt(np.minimum(ess(draws), 40_000)))
    np.testing.assert_allclose(draws.std(axis=(0, 1)), sd, rtol=0.03)
    assert ess(draws).min() > 10_000
    logps, gradients = model.logp_grads(draws[0])
    np.testing.assert_array_equal(sample.chains[0].log_densities, logps)
    np.testing.assert_allclose(sample.chains[0].gradients, gradients)


def test_gamma_numbers():
    for shape in (0.02, 0.7, 1.0, 30.0):
        stream = np.array([0, 0, 0, 0, 1, 0], dtype=np.uint32)
        x = np.array([bayes_gibbs.gamma(stream, shape) for _ in range(4000)])
        assert stats.kstest(x, stats.gamma(shape).cdf).pvalue > 1e-4


def test_gibbs_refuses_other_models():
    for model, options in (
        (BayesianLogisticRegression, {}),
        (BayesianLinearRegression, {"noise": "student_t"}),
    ):
        with pytest.raises(DataError, match="sampler='gibbs' takes linear regression"):
            model(sampler="gibbs", **options).fit(*regression_data(model, 50))
    with pytest.raises(DataError, match="sampler='gibbs' takes linear regression"):
        BayesianLinearRegression(prior="laplace", sampler="gibbs").fit(
            *regression_data(BayesianLinearRegression, 50)
        )


@pytest.mark.filterwarnings("ignore:Use the draws with care.* ESS::")  # of the global scale
def test_the_horseshoe_leaves_what_matters():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 20))
    y = 2 * X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(150)
    model = BayesianLinearRegression(
        prior="horseshoe", n_samples=400, n_warmup=300, n_chains=2, random_state=0
    )
    model.fit(X, y)
    normal = BayesianLinearRegression(n_samples=500, random_state=0).fit(X, y)
    assert np.abs(model.coef_[2:]).mean() < 0.7 * np.abs(normal.coef_[2:]).mean()
    np.testing.assert_allclose(model.coef_[:2], [2, -1], atol=0.2)
    assert model.posterior_["local_scale"].shape == (800, 20)
    assert model.sampler_ == "nuts"


# Weights, offsets, types -------------------------------------------------------------------------------


def test_log_likelihood_of_each_observation():
    X, y = regression_data(BayesianLogisticRegression, 50)
    model = BayesianLogisticRegression(random_state=0, n_samples=50).fit(X, y)
    found = model.log_likelihood(X, y)
    f = model.posterior_["coef"] @ X.T + model.posterior_["intercept"][:, None]
    np.testing.assert_allclose(found, special.log_expit(np.where(y == "yes", f, -f)))
    with pytest.raises(DataError, match="labels among"):
        model.log_likelihood(X, np.full(50, "maybe"))


# Files, threads, interruption --------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"sampler": "nuts"}, {"n_shards": 2}])
def test_files_hold_the_posterior(options, tmp_path):
    X, y = regression_data(BayesianLogisticRegression, 100)
    model = BayesianLogisticRegression(n_samples=200, random_state=0, **options).fit(X, y)
    model.save(tmp_path / "model.npz")
    copy = sd.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    assert repr(copy.posterior_) == repr(model.posterior_)
    assert repr(copy.posterior_.diagnostics) == repr(model.posterior_.diagnostics)
    with np.load(tmp_path / "model.npz") as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    header["parameters"]["standardize"] = False  # as in version 0.2
    old = arrays | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
    np.savez(tmp_path / "old.npz", **old)
    np.testing.assert_array_equal(sd.load(tmp_path / "old.npz").predict_proba(X), model.predict_proba(X))
    arrays["header"] = np.frombuffer(
        arrays["header"]
        .tobytes()
        .replace(b'"coef": [2]', b'"coef": [1]')
        .replace(b'"coef":[2]', b'"coef":[1]'),
        dtype=np.uint8,
    )
    np.savez(tmp_path / "broken.npz", **arrays)
    with pytest.raises(ModelFileError, match="makes no sense"):
        sd.load(tmp_path / "broken.npz")


def test_a_callback_and_an_interrupt_stop_a_run():
    import os
    import signal

    X, y = regression_data(BayesianLinearRegression)
    options = {"sampler": "nuts", "random_state": 0}
    model = BayesianLinearRegression(**options).fit(X, y, callback=lambda info: info.round == 4)
    assert len(model.posterior_) == 4 * 300
    assert "callback" in model.posterior_.method

    def press(info):
        if info.round == 1:
            os.kill(os.getpid(), signal.SIGINT)

    none = pytest.warns(InterruptedFitWarning, match="0 of 1000 draws of each of 4 chains; nothing is kept")
    with none, pytest.raises(KeyboardInterrupt, match="before the first draw"):
        BayesianLinearRegression(**options).fit(X, y, callback=press)
    with pytest.raises(StradaskError, match="before the first draw"):
        BayesianLinearRegression(**options).fit(X, y, callback=lambda info: True)
    with pytest.raises(StradaskError, match="1 of 3 shards"):
        BayesianLinearRegression(n_shards=3, n_samples=50, random_state=0).fit(
            X, y, callback=lambda info: True
        )


# Bad input ---------------------------------------------------------------------------------------------


def test_separated_and_flat_data_are_refused():
    X = np.linspace(-1, 1, 20)[:, None]
    y = X[:, 0] > 0.1
    flat = {"prior_scale": np.inf, "intercept_scale": np.inf}
    with pytest.raises(DataError, match="separate the classes along a combination of x0, the intercept"):
        BayesianLogisticRegression(**flat).fit(X, y)
    assert BayesianLogisticRegression(random_state=0).fit(X, y).coef_[0, 0] > 1
    with pytest.raises(DataError, match="columns among x0, x1, the intercept depend on each other"):
        BayesianLinearRegression(prior_scale=np.inf).fit(np.ones((9, 2)), np.arange(9.0))
    with pytest.raises(DataError, match="no counts on one side"):
        BayesianPoissonRegression(**flat).fit(np.repeat([0.0, 1.0], 5)[:, None], np.repeat([2, 0], 5))
    with pytest.raises(DataError, match="2 samples cannot identify 2 coefficients"):
        BayesianLinearRegression(prior_scale=np.inf).fit([[1.0], [2.0]], [1.0, 3.0])


def test_noise_that_the_data_do_not_tell_of_is_refused():
    X, _ = regression_data(BayesianLinearRegression, 30)
    for noise in ("normal", "student_t"):
        for y in (np.ones(30), X @ [1.0, 2.0] + 3):
            with pytest.raises(DataError, match="linear function of X without noise"):
                BayesianLinearRegression(noise).fit(X, y)
    with pytest.raises(DataError, match="1 samples do not identify sigma"):
        BayesianLinearRegression(noise_scale=np.inf, intercept_scale=1.0).fit([[1.0]], [2.0])
    model = BayesianPoissonRegression("negative_binomial", overdispersion_scale=np.inf)
    with pytest.raises(DataError, match="1 counts above zero do not identify"):
        model.fit(X, np.eye(30)[0])
    with pytest.raises(DataError, match="no counts on one side"):
        BayesianPoissonRegression(intercept_scale=np.inf, prior="horseshoe").fit(X, np.zeros(30))


def test_separation_is_found_exactly():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    names = list("abcd")
    y = np.where(X @ [1, 2, -1, 0.5] > 0, 1.0, -1.0)
    with pytest.raises(DataError, match="separate"):
        check_identified("bernoulli", X, y, names)
    y[np.abs(X @ [1, 2, -1, 0.5]).argmax()] *= -1
    check_identified("bernoulli", X, y, names)
    X[:, 3] = 0
    X[0, 3] = 1  # quasi-complete: a column with one row
    with pytest.raises(DataError, match="along a combination of d,"):
        check_identified("bernoulli", X, y, names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior_scale": [1.0, 2.0, 3.0]}, "prior_scale must be a number or 2 of them"),
        ({"prior_scale": [1.0, -2.0]}, "prior_scale must be above zero, got -2"),
        ({"prior_scale": [1.0, np.nan]}, "prior_scale must be above zero, got nan"),
        ({"prior": "horseshoe", "prior_scale": np.inf}, "must be finite with prior='horseshoe'"),
        ({"n_samples": 0}, "n_samples"),
        ({"sampler": "stan"}, "sampler"),
        ({"prior": "spike"}, "prior"),
        ({"combine": "hope"}, "combine"),
        ({"n_shards": 1000}, "n_shards=1000, but there are 400 rows"),
    ],
)
def test_bad_parameters(options, message):
    X, y = regression_data(BayesianLogisticRegression)
    with pytest.raises(ValueError, match=message):
        BayesianLogisticRegression(**options).fit(X, y)


def test_badregression_data():
    X, y = regression_data(BayesianLogisticRegression, 30)
    with pytest.raises(TypeError, match="dense"):
        BayesianLogisticRegression().fit(sparse.csr_array(X), y)
    with pytest.raises(DataError, match="1 class"):
        BayesianLogisticRegression().fit(X, np.ones(30))
    with pytest.raises(DataError, match="3 classes"):
        BayesianLogisticRegression().fit(X, np.arange(30) % 3)
    with pytest.raises(DataError, match="row 2"):
        BayesianPoissonRegression().fit(X, [1, 2, -1] * 10)
    with pytest.raises(DataError, match=r"holds 0.5 in row 0.*counts"):
        BayesianPoissonRegression("negative_binomial").fit(X, [0.5] * 30)
    with pytest.raises(AttributeError, match="not fitted"):
        _ = BayesianLinearRegression().posterior_


def test_dask_tells_fits_apart():
    """Dask knows a data class by its fields: a task on another fit would get the result of this one."""
    from dask.base import tokenize

    model, (X, y) = (
        BayesianLinearRegression(random_state=0),
        regression_data(BayesianLinearRegression, 60),
    )
    blank, first = tokenize(model), tokenize(model.fit(X, y))
    again, other = tokenize(model.fit(X, y)), tokenize(model.fit(X, 2 * y))
    assert first == again
    assert len({blank, first, other}) == 3


def test_fewer_rows_than_coefficients_end_in_a_verdict():
    """The density has no end where the noise is zero; its gradients there overflowed in a LinAlgError."""
    X = np.random.default_rng(1).standard_normal((3, 4))
    model = sd.BayesianLinearRegression(n_samples=50, random_state=0)
    with pytest.warns(PosteriorWarning, match="Do not use these draws"):
        model.fit(X, X[:, 0])
    assert np.isfinite(model.posterior_.draws).all()
