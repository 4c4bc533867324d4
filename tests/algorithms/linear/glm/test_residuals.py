"""Residuals of generalised linear models: normal where the model is true, and they add up to its figures."""

import matplotlib as mpl
import numpy as np
import pytest
from scipy import stats

import stradask as sd
from stradask.errors import DataError

mpl.use("agg")

FAMILIES = {
    "normal": lambda rng, m: rng.normal(m, 1.7),
    "binomial": lambda rng, m: rng.binomial(1, m),
    "poisson": lambda rng, m: rng.poisson(m),
    "negative-binomial": lambda rng, m: rng.poisson(rng.gamma(1 / 0.6, 0.6 * m)),
    "gamma": lambda rng, m: rng.gamma(2.5, m / 2.5),
    "tweedie": lambda rng, m: np.array(
        # dispersion .8, power 1.5: a Poisson number of exponential variables
        [rng.gamma(k, 0.4 * x**0.5) if k else 0.0 for k, x in zip(rng.poisson(m**0.5 / 0.4), m, strict=True)]
    ),
}


def drawn(family, n=4000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    f = X @ [0.4, -0.3] + 0.2
    mean = {"normal": f, "binomial": 1 / (1 + np.exp(-f))}.get(family, np.exp(f))
    return X, FAMILIES[family](rng, mean), mean


@pytest.mark.parametrize("family", FAMILIES)
def test_quantile_residuals_of_a_true_model_are_standard_normal(family):
    X, y, _ = drawn(family)
    r = sd.residuals(sd.GLM(family).fit(X, y), X, y, random_state=0)
    assert stats.kstest(r, "norm").pvalue > 1e-3
    assert abs(r.mean()) < 4 / len(r) ** 0.5
    assert abs(r.std() - 1) < 0.05


def test_another_distribution_is_seen():
    X, y, _ = drawn("negative-binomial")
    r = sd.residuals(sd.GLM("poisson").fit(X, y), X, y, random_state=0)
    assert stats.kstest(r, "norm").pvalue < 1e-10
    assert r.std() > 1.2


def test_pearson_and_deviance_residuals_add_up_to_the_models_figures():
    for family in FAMILIES:
        X, y, _ = drawn(family, 500)
        model = sd.GLM(family).fit(X, y)
        pearson = sd.residuals(model, X, y, "pearson")
        deviance = sd.residuals(model, X, y, "deviance")
        assert (pearson**2).sum() * model.dispersion_ == pytest.approx(model.pearson_chi2_, rel=1e-8)
        assert (deviance**2).sum() * model.dispersion_ == pytest.approx(model.deviance_, rel=1e-6)
        np.testing.assert_allclose(sd.residuals(model, X, y, "response"), y - model.predict(X))
        assert (np.sign(deviance) == np.sign(pearson)).all()


def test_weights_and_exposures_are_those_of_the_fit():
    rng = np.random.default_rng(3)
    X, trials = rng.standard_normal((3000, 1)), rng.integers(1, 30, 3000)
    shares = rng.binomial(trials, 1 / (1 + np.exp(-X[:, 0]))) / trials
    model = sd.GLM("binomial").fit(X, shares, trials)
    r = sd.residuals(model, X, shares, sample_weight=trials, random_state=0)
    assert stats.kstest(r, "norm").pvalue > 1e-3
    years = rng.uniform(0.5, 9, 3000)
    claims = rng.poisson(years * np.exp(0.5 * X[:, 0]))
    model = sd.GLM("poisson").fit(X, claims, exposure=years)
    assert stats.kstest(sd.residuals(model, X, claims, exposure=years, random_state=0), "norm").pvalue > 1e-3
    assert stats.kstest(sd.residuals(model, X, claims, random_state=0), "norm").pvalue < 1e-10


def test_far_targets_keep_their_digits():
    """In both tails, where a distribution function is 1 to all digits."""
    X, y, _ = drawn("gamma")
    model = sd.GLM("gamma").fit(X, y)
    far = np.full(len(y), 1e3)
    r = sd.residuals(model, X, far)
    shape = 1 / model.dispersion_
    log_tail = stats.gamma.logsf(far, shape, scale=model.predict(X) / shape)
    np.testing.assert_allclose(stats.norm.logsf(r), np.maximum(log_tail, np.log(1e-300)), rtol=1e-8)
    tweedie = sd.GLM("tweedie").fit(*drawn("tweedie", 300)[:2])
    assert (sd.residuals(tweedie, X[:9], np.full(9, 60.0)) > 5).all()


def test_the_same_seed_draws_the_same_and_rows_without_weight_have_none():
    X, y, _ = drawn("poisson", 60)
    weights = np.ones(60)
    weights[7] = 0
    model = sd.GLM("poisson").fit(X, y, weights)
    a, b = (sd.residuals(model, X, y, sample_weight=weights, random_state=5) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert np.flatnonzero(np.isnan(a)).tolist() == [7]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "Ridge"}, "model is a Ridge; residuals are of a fitted GLM"),
        ({"kind": "studentised"}, "kind='studentised' is not one of quantile, deviance, pearson, response"),
        ({"dispersion": "estimate"}, "has no distribution; take kind='pearson'"),
        ({"sample_weight": 0.5}, "sample_weight holds 0.5; of a poisson model it counts trials"),
        ({"y": -1}, "y"),
    ],
)
def test_bad_input_is_named(change, words):
    X, y, _ = drawn("poisson", 60)
    model = (
        sd.Ridge() if "model" in change else sd.GLM("poisson", dispersion=change.get("dispersion", "auto"))
    )
    model.fit(X, y)
    weights = np.full(60, change["sample_weight"]) if "sample_weight" in change else None
    y = np.full(60, change["y"]) if "y" in change else y
    with pytest.raises(DataError, match=words):
        sd.residuals(model, X, y, change.get("kind", "quantile"), sample_weight=weights)


@pytest.mark.parametrize("kind", ["quantile", "response"])
def test_pictures_show_every_row(kind):
    X, y, _ = drawn("poisson", 300)
    left, right = sd.plot_residuals(sd.GLM("poisson").fit(X, y), X, y, kind, random_state=0)
    r = sd.residuals(sd.GLM("poisson").fit(X, y), X, y, kind, random_state=0)
    np.testing.assert_array_equal(left.lines[1].get_ydata(), r)
    np.testing.assert_array_equal(right.lines[-1].get_ydata(), np.sort(r))
    assert len(right.collections) == (kind != "response")
    mpl.pyplot.close(left.figure)


def test_the_calibration_of_a_classifier_is_scikit_learns_picture():
    from sklearn.calibration import CalibrationDisplay

    X, y, _ = drawn("binomial", 2000)
    shown = CalibrationDisplay.from_estimator(
        sd.LogisticRegression().fit(X, y), X, y, n_bins=5, strategy="quantile"
    )
    assert np.abs(shown.prob_true - shown.prob_pred).max() < 0.1
    mpl.pyplot.close(shown.figure_)
