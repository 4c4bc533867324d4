"""Generalised linear models with standard errors: statsmodels, NIST, R, closed forms, coverage.

`glm_references.json` holds figures of statsmodels 0.15 for the data below. Its GLM takes "HC1" for HC0, so
that HC1 is held against its least squares, which has the factor.
"""

import json
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from far_problems import two_workers
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning

import stradask as sd
from stradask.algorithms.linear.glm import row_places
from stradask.errors import DataError

REFERENCES = json.loads((Path(__file__).parents[3] / "problems" / "glm_references.json").read_text())
X, RAW = load_diabetes(return_X_y=True)
X = X[:, [1, 2, 3, 8]] * 20 + 1
N = len(X)
ROWS = np.arange(N)
WEIGHTS, OFFSET, CLUSTERS = 1.0 + ROWS % 3, 0.1 * np.sin(ROWS), ROWS % 20
COUNTS = np.floor(RAW / 20)
TARGETS = {
    "normal": RAW,
    "binomial": (RAW > 140).astype(float),
    "poisson": COUNTS,
    "gamma": RAW,
    "tweedie": RAW,
    "negative-binomial": COUNTS,
}
LONGLEY = np.array(
    [
        [83.0, 234289, 2356, 1590, 107608, 1947, 60323],
        [88.5, 259426, 2325, 1456, 108632, 1948, 61122],
        [88.2, 258054, 3682, 1616, 109773, 1949, 60171],
        [89.5, 284599, 3351, 1650, 110929, 1950, 61187],
        [96.2, 328975, 2099, 3099, 112075, 1951, 63221],
        [98.1, 346999, 1932, 3594, 113270, 1952, 63639],
        [99.0, 365385, 1870, 3547, 115094, 1953, 64989],
        [100.0, 363112, 3578, 3350, 116219, 1954, 63761],
        [101.2, 397469, 2904, 3048, 117388, 1955, 66019],
        [104.6, 419180, 2822, 2857, 118734, 1956, 67857],
        [108.4, 442769, 2936, 2798, 120445, 1957, 68169],
        [110.8, 444546, 4681, 2637, 121950, 1958, 66513],
        [112.6, 482704, 3813, 2552, 123366, 1959, 68655],
        [114.2, 502601, 3931, 2514, 125368, 1960, 69564],
        [115.7, 518173, 4806, 2572, 127852, 1961, 69331],
        [116.9, 554894, 4007, 2827, 130081, 1962, 70551],
    ]
)


pytestmark = pytest.mark.filterwarnings("ignore:clusters holds 20 labels")


def all_of(model):
    return np.append(model.coef_, model.intercept_)


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("covariance", ["nonrobust", "HC0", "cluster"])
def test_statsmodels(family, covariance):
    known = REFERENCES["glm"][family]
    clusters = CLUSTERS if covariance == "cluster" else None
    model = sd.GLM(family, covariance=covariance, overdispersion=0.3)
    model.fit(X, TARGETS[family], WEIGHTS, offset=OFFSET, clusters=clusters)
    np.testing.assert_allclose(all_of(model), known["coef"], rtol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, known[covariance], rtol=1e-6)
    figures = [model.deviance_, model.null_deviance_, model.pearson_chi2_, model.dispersion_]
    np.testing.assert_allclose(figures, known["figures"], rtol=1e-6)
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], rel=1e-8)


def test_robust_least_squares_quasi_likelihood_and_overdispersion_of_statsmodels():
    known = REFERENCES["least squares"]
    for kind in ("HC1", "HC2", "HC3"):
        model = sd.GLM(covariance=kind).fit(X, RAW, WEIGHTS)
        np.testing.assert_allclose(model.standard_errors_, known[kind], rtol=1e-8)
    model = sd.GLM().fit(X, RAW, WEIGHTS)
    np.testing.assert_allclose(np.roll(model.summary().table["P>|t|"], -1), known["p"], rtol=1e-8)
    np.testing.assert_allclose(model.confidence_interval(), known["intervals"], rtol=1e-8)
    quasi = sd.GLM("poisson", dispersion="estimate").fit(X, COUNTS)
    np.testing.assert_allclose(quasi.standard_errors_, REFERENCES["quasi-poisson"], rtol=1e-8)
    known = REFERENCES["negative binomial"]
    model = sd.GLM("negative-binomial").fit(X, COUNTS, offset=OFFSET)
    np.testing.assert_allclose([*all_of(model), model.overdispersion_], known["params"], rtol=1e-6)
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], rel=1e-9)


def test_the_certified_values_of_nist_for_longleys_data():
    """https://www.itl.nist.gov/div898/strd/lls/data/Longley.shtml"""
    model = sd.GLM().fit(LONGLEY[:, :6], LONGLEY[:, 6])
    certified = [15.0618722713733, -0.358191792925910e-1, -2.02022980381683, -1.03322686717359]
    certified += [-0.511041056535807e-1, 1829.15146461355, -3482258.63459582]
    errors = [84.9149257747669, 0.334910077722432e-1, 0.488399681651699, 0.214274163161675]
    errors += [0.226073200069370, 455.478499142212, 890420.383607373]
    np.testing.assert_allclose(all_of(model), certified, rtol=1e-7)
    np.testing.assert_allclose(model.standard_errors_, errors, rtol=1e-7)
    assert np.sqrt(model.dispersion_) == pytest.approx(304.854073561965, rel=1e-9)


def test_dobsons_trial_as_in_the_manual_of_r():
    """`?glm` of R: counts of a randomised trial, Dobson 1990, page 93."""
    counts = [18, 17, 15, 20, 10, 20, 25, 13, 12]
    outcome, treatment = np.arange(9) % 3, np.arange(9) // 3
    dummies = np.column_stack([outcome == 1, outcome == 2, treatment == 1, treatment == 2]).astype(float)
    model = sd.GLM("poisson").fit(dummies, counts)
    np.testing.assert_allclose(all_of(model)[[4, 0, 1]], [3.045, -0.4543, -0.2930], atol=5e-4)
    np.testing.assert_allclose(model.standard_errors_, [0.2022, 0.1927, 0.2, 0.2, 0.1709], atol=5e-5)
    assert model.deviance_ == pytest.approx(5.1291, abs=5e-5)
    assert model.null_deviance_ == pytest.approx(10.5814, abs=5e-5)
    assert model.aic_ == pytest.approx(56.76, abs=5e-3)


def test_rates_of_two_groups_in_closed_form():
    exposure = np.array([10.0, 20, 30, 40])
    counts = np.array([3.0, 9, 30, 50])
    group = np.array([[0.0], [0], [1], [1]])
    model = sd.GLM("poisson").fit(group, counts, exposure=exposure)
    rates = np.array([12 / 30, 80 / 70])
    np.testing.assert_allclose(all_of(model), [np.log(rates[1] / rates[0]), np.log(rates[0])])
    np.testing.assert_allclose(model.standard_errors_, [np.sqrt(1 / 12 + 1 / 80), np.sqrt(1 / 12)])
    np.testing.assert_allclose(model.predict(group, exposure=exposure), rates[[0, 0, 1, 1]] * exposure)
    same = sd.GLM("poisson").fit(group, counts, offset=np.log(exposure))
    np.testing.assert_array_equal(all_of(same), all_of(model))


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize("covariance", ["nonrobust", "HC1", "HC3", "cluster"])
def test_frequencies_are_repeated_rows_and_sparse_rows_are_dense_ones(family, covariance):
    times = (ROWS % 3).astype(int)
    thinned = np.where(X > 1.2, X, 0)
    options = {"covariance": covariance, "overdispersion": 0.3}
    clustered = covariance == "cluster"
    model = sd.GLM(family, weight_type="frequency", **options)
    model.fit(sparse.csc_array(thinned), TARGETS[family], times, clusters=CLUSTERS if clustered else None)
    repeated = np.repeat(ROWS, times)
    plain = sd.GLM(family, **options).fit(
        thinned[repeated], TARGETS[family][repeated], clusters=CLUSTERS[repeated] if clustered else None
    )
    np.testing.assert_allclose(all_of(model), all_of(plain), rtol=1e-8)
    np.testing.assert_allclose(model.covariance_, plain.covariance_, rtol=1e-7, atol=1e-9)
    for name in ("deviance_", "df_residual_", "dispersion_", "bic_"):
        assert getattr(model, name) == pytest.approx(getattr(plain, name), rel=1e-9)


def test_columns_far_from_zero_keep_their_digits_and_units_do_not_matter():
    far = sd.GLM("gamma", covariance="HC1").fit(X * [1e-6, 1, 1, 1e5] + [0, 1e6, 0, 0], RAW)
    near = sd.GLM("gamma", covariance="HC1").fit(X, RAW)
    np.testing.assert_allclose(far.coef_ * [1e-6, 1, 1, 1e5], near.coef_, rtol=1e-7)
    np.testing.assert_allclose(
        far.standard_errors_[:4] * [1e-6, 1, 1, 1e5], near.standard_errors_[:4], rtol=1e-7
    )


def test_a_penalty_gives_the_coefficients_of_poisson_regression_and_no_errors():
    model = sd.GLM("poisson", alpha=0.3).fit(X, COUNTS, WEIGHTS)
    other = sd.PoissonRegressor(alpha=0.3, tol=1e-14).fit(X, COUNTS, WEIGHTS)
    np.testing.assert_allclose(all_of(model), all_of(other), rtol=1e-6)
    assert np.isnan(model.covariance_).all()
    with pytest.raises(DataError, match="alpha is above 0"):
        model.summary()
    without = sd.GLM("poisson", fit_intercept=False).fit(X, COUNTS)
    other = sd.PoissonRegressor(alpha=0, fit_intercept=False, tol=1e-14).fit(X, COUNTS)
    np.testing.assert_allclose(without.coef_, other.coef_, rtol=1e-6)
    assert without.standard_errors_.shape == (4,)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("with_intercept", [True, False])
def test_a_penalty_of_scaled_columns(form, with_intercept):
    Z = np.where(np.abs(X - 1) > 0.5, X, 0) if form is sparse.csr_array else X
    options = {"alpha": 0.3, "fit_intercept": with_intercept}
    model = sd.GLM("poisson", standardize=True, **options).fit(form(Z), COUNTS, WEIGHTS, offset=OFFSET)
    means = np.average(Z, axis=0, weights=WEIGHTS) if with_intercept else 0.0
    units = np.sqrt(np.average((Z - means) ** 2, axis=0, weights=WEIGHTS))
    other = sd.GLM("poisson", **options).fit(Z / units, COUNTS, WEIGHTS, offset=OFFSET)
    np.testing.assert_allclose(model.coef_ * units, other.coef_, rtol=1e-7)
    assert model.intercept_ == pytest.approx(other.intercept_)


def test_the_same_bits_on_any_number_of_threads_and_the_same_model_on_a_cluster(monkeypatch):
    monkeypatch.setattr(row_places, "_LEAST_ENTRIES", 200)
    options = {"covariance": "cluster"}
    models = [
        sd.GLM("poisson", n_jobs=n_jobs, **options).fit(X, COUNTS, WEIGHTS, offset=OFFSET, clusters=CLUSTERS)
        for n_jobs in (1, 2)
    ]
    np.testing.assert_array_equal(models[0].covariance_, models[1].covariance_)
    np.testing.assert_array_equal(all_of(models[0]), all_of(models[1]))
    with two_workers():
        for form in (X, sparse.csr_array(X), da.from_array(X, (100, 2))):
            far = sd.GLM("poisson", engine="dask", **options)
            far.fit(form, COUNTS, WEIGHTS, offset=OFFSET, clusters=CLUSTERS)
            np.testing.assert_allclose(all_of(far), all_of(models[0]), rtol=1e-9)
            np.testing.assert_allclose(far.covariance_, models[0].covariance_, rtol=1e-8)
            assert far.null_deviance_ == pytest.approx(models[0].null_deviance_)
        mean = far.predict(da.from_array(X, (100, 2)), exposure=np.exp(OFFSET)).compute()
    np.testing.assert_allclose(mean, far.predict(X, offset=OFFSET))


@pytest.mark.slow
def test_intervals_cover_as_they_say():
    """95 % intervals of 300 draws; counts with twice the variance of Poisson's need the robust ones."""
    rng = np.random.default_rng(3)
    Z, truth = rng.standard_normal((100, 2)), 0.4
    inside = {"poisson": 0, "nonrobust": 0, "HC1": 0}
    for _ in range(300):
        mean = np.exp(1 + truth * Z[:, 0])
        cases = {
            "poisson": (rng.poisson(mean), "nonrobust"),
            "nonrobust": (rng.poisson(rng.gamma(1.2, mean / 1.2)), "nonrobust"),
        }
        cases["HC1"] = (cases["nonrobust"][0], "HC1")
        for name, (y, covariance) in cases.items():
            low, high = sd.GLM("poisson", covariance=covariance).fit(Z, y).confidence_interval()[0]
            inside[name] += low <= truth <= high
    assert stats.binomtest(inside["poisson"], 300, 0.95).pvalue > 1e-3
    assert inside["HC1"] > 0.88 * 300
    assert inside["nonrobust"] < 0.85 * 300


def test_a_summary_in_text_html_and_pandas():
    import pandas as pd

    frame = pd.DataFrame(X, columns=["sex", "bmi", "bp", "s5"])
    summary = sd.GLM("poisson").fit(frame, COUNTS).summary(level=0.9)
    text = repr(summary)
    assert "GLM, poisson family, log link" in text
    assert "P>|z|" in text
    assert "5%" in text
    assert list(summary.to_pandas().index) == ["intercept", "sex", "bmi", "bp", "s5"]
    assert summary._repr_html_().count("<tr>") == 6 + 1 + 6
    row = summary.table.row("bmi")
    assert row["z"] == pytest.approx(row["coef"] / row["std err"])
    assert row["P>|z|"] == pytest.approx(2 * stats.norm.sf(abs(row["z"])))
    assert row["95%"] == pytest.approx(row["coef"] + stats.norm.ppf(0.95) * row["std err"])


def test_models_without_errors_to_trust_say_so():
    z = np.linspace(-1, 1, 40)[:, None]
    with pytest.warns(ConvergenceWarning, match="separates"):
        model = sd.GLM("binomial").fit(z, (z[:, 0] > 0).astype(float))
    with pytest.raises(DataError, match="separates"):
        model.summary()
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        sd.GLM("poisson", max_iter=1).fit(X, COUNTS)
    with pytest.warns(UserWarning, match="no count"):
        sd.GLM("poisson").fit(X, COUNTS + 0.5)
    assert sd.GLM("poisson", covariance="HC1").fit(X, COUNTS + 0.5).score(X, COUNTS + 0.5) > 0
    few = sd.GLM().fit([[0.0], [1.0]], [1.0, 2.0])
    with pytest.raises(DataError, match="2 coefficients, and only 2 rows"):
        few.summary()
    stopped = sd.GLM("poisson").fit(X, COUNTS, callback=lambda info: info.round == 2)
    with pytest.raises(DataError, match="ended before"):
        stopped.summary()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("family", ["binomial", "poisson", "negative-binomial", "tweedie"])
def test_a_group_of_rows_without_a_finite_estimate_is_found(family, form):
    # One dummy column, and all targets of its group at the end of their range.
    group = np.arange(N) < 20
    y = np.where(group, 0.0, np.median(RAW) < RAW if family == "binomial" else TARGETS[family])
    with pytest.warns(ConvergenceWarning, match="separates"):
        model = sd.GLM(family).fit(form(np.column_stack([X[:, 1], group])), y)
    assert np.isnan(model.standard_errors_).all()
    with pytest.raises(DataError, match="separates"):
        model.summary()


def test_perfect_fits_converge():
    x = np.linspace(-1, 1, 40)[:, None]
    model = sd.GLM().fit(x, 2 * x[:, 0] + 1000)
    np.testing.assert_allclose([model.coef_[0], model.intercept_], [2, 1000], rtol=1e-10)
    assert model.standard_errors_.max() < 1e-9


def test_a_sparse_column_of_ones_is_the_intercept():
    columns = sparse.csr_array(np.column_stack([X[:, 1], np.ones(N)]))
    with pytest.warns(UserWarning, match="depend on each other; 'x1' is left out"):
        model = sd.GLM().fit(columns, RAW)
    single = sd.GLM().fit(columns[:, :1], RAW)
    np.testing.assert_allclose(model.coef_, [single.coef_[0], 0], rtol=1e-9)


@pytest.mark.parametrize("family", ["normal", "poisson"])
def test_a_sparse_column_far_from_zero_is_no_intercept(family):
    far = np.column_stack([X[:, 0] + 1e6 * X[:, 0].std(), np.where(ROWS % 3, 0, X[:, 1])])
    dense = sd.GLM(family).fit(far, TARGETS[family])
    thin = sd.GLM(family).fit(sparse.csr_array(far), TARGETS[family])
    np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-8)
    np.testing.assert_allclose(thin.standard_errors_, dense.standard_errors_, rtol=1e-6)
    near = sd.GLM(family).fit(np.column_stack([X[:, 0], far[:, 1]]), TARGETS[family])
    np.testing.assert_allclose(thin.coef_, near.coef_, rtol=1e-6)


def test_a_warm_start_ends_at_the_same_maximum_in_fewer_steps():
    for family, y in (("poisson", COUNTS), ("binomial", TARGETS["binomial"])):
        cold = sd.GLM(family).fit(X, y)
        warm = sd.GLM(family, warm_start=True).fit(X, y)
        assert warm.n_iter_ == cold.n_iter_
        warm.fit(X, y)
        assert warm.n_iter_ < cold.n_iter_
        np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=1e-8)
        np.testing.assert_allclose(warm.standard_errors_, cold.standard_errors_, rtol=1e-8)
        warm.coef_ = warm.coef_ + 1e3  # a start without a finite likelihood is not taken
        np.testing.assert_allclose(warm.fit(X, y).coef_, cold.coef_, rtol=1e-8)
    z = np.linspace(-1, 1, 40)[:, None]
    model = sd.GLM("binomial", warm_start=True)
    for _ in range(2):
        with pytest.warns(ConvergenceWarning, match="separates"):
            model.fit(z, (z[:, 0] > 0).astype(float))


def test_predictions_are_those_of_the_family_of_the_fit(tmp_path):
    model = sd.GLM("poisson").fit(X, COUNTS)
    means, share = model.predict(X), model.score(X, COUNTS)
    model.set_params(family="normal")
    np.testing.assert_array_equal(model.predict(X), means)
    np.testing.assert_allclose(model.predict(X, exposure=np.full(N, 2.0)), 2 * means)
    assert model.score(X, COUNTS) == share
    model.save(tmp_path / "glm.npz")
    np.testing.assert_array_equal(sd.load(tmp_path / "glm.npz").predict(X), means)
    with pytest.raises(DataError, match="family was 'poisson' in fit and is 'normal' now"):
        model.summary()
    np.testing.assert_allclose(model.fit(X, COUNTS).predict(X).mean(), COUNTS.mean())
    shaped = sd.GLM("negative-binomial").fit(X, COUNTS)
    known = shaped.predict(X)
    np.testing.assert_array_equal(shaped.set_params(overdispersion=5.0).predict(X), known)


def test_a_summary_does_not_name_a_covariance_that_was_not_computed():
    model = sd.GLM("poisson").fit(X, COUNTS).set_params(covariance="HC1")
    with pytest.raises(DataError, match="covariance was 'nonrobust' in fit and is 'HC1' now"):
        model.summary()
    assert "HC1" in repr(model.fit(X, COUNTS).summary())


def test_few_clusters_are_named_and_have_students_intervals():
    """As statsmodels 0.15 has them: GLM, cov_type="cluster", use_t=True."""
    rows = np.arange(96)
    clusters = rows // 8
    y = np.floor(3 + 2 * np.sin(clusters) + np.cos(rows) + rows % 3)
    with pytest.warns(UserWarning, match=r"12 labels for 2 coefficients.*too small.*40 or more"):
        model = sd.GLM("poisson", covariance="cluster").fit(np.cos(rows)[:, None], y, clusters=clusters)
    assert model.n_clusters_ == 12
    table = model.summary().table
    np.testing.assert_allclose(table["std err"], [0.12177818, 0.0457525], rtol=1e-6)
    np.testing.assert_allclose(table["P>|t|"], [5.97553864e-07, 1.52523783e-04], rtol=1e-5)
    np.testing.assert_allclose(
        model.confidence_interval(), [[0.15704316, 0.35844431], [0.97591811, 1.51198205]], rtol=1e-6
    )
    assert "cluster (12 clusters)" in repr(model.summary())
    with pytest.warns(UserWarning, match="2 labels for 5 coefficients.*singular"):
        sd.GLM(covariance="cluster").fit(X, RAW, clusters=np.arange(N) % 2)
    many = sd.GLM(covariance="cluster").fit(X, RAW, clusters=np.arange(N) % 40)  # no warning
    many.set_params(covariance="nonrobust").fit(X, RAW)
    assert not hasattr(many, "n_clusters_")


@pytest.mark.parametrize("family", ["poisson", "binomial", "negative-binomial"])
def test_quasi_likelihoods_have_no_likelihood(family):
    for dispersion in ("estimate", 2.0):
        model = sd.GLM(family, dispersion=dispersion, overdispersion=0.3).fit(X, TARGETS[family])
        assert np.isnan([model.log_likelihood_, model.aic_, model.bic_]).all()
        assert "nan" in model.summary().figures["AIC, BIC"]
    plain, given = (
        sd.GLM(family, dispersion=d, overdispersion=0.3).fit(X, TARGETS[family]) for d in ("auto", 1.0)
    )
    assert plain.log_likelihood_ == given.log_likelihood_ < 0


@pytest.mark.parametrize(
    ("family", "given", "message"),
    [
        ("binomial", {"y": np.ones(N)}, "y is 1 in every row"),
        ("poisson", {"exposure": np.r_[0.0, np.ones(N - 1)]}, "exposure is 0 in row 0"),
        ("normal", {"exposure": np.ones(N)}, "logarithmic link"),
        ("gamma", {"y": np.r_[0.0, RAW[1:]]}, "y holds 0 in row 0"),
        ("binomial", {"y": RAW}, "0, 1 or shares"),
        ("poisson", {"y": -COUNTS}, "0 or above"),
        ("poisson", {"clusters": CLUSTERS}, "covariance='cluster' needs"),
        ("negative-binomial", {"y": np.full(N, 3.0)}, "varies no more than Poisson"),
    ],
)
def test_bad_input_is_refused(family, given, message):
    given = {"y": TARGETS[family]} | given
    with pytest.raises(DataError, match=message):
        sd.GLM(family).fit(X, **given)


def test_bad_parameters_are_refused():
    with pytest.raises(DataError, match="clusters holds one label"):
        sd.GLM(covariance="cluster").fit(X, RAW, clusters=np.zeros(N))
    with pytest.raises(DataError, match="covariance='cluster' needs"):
        sd.GLM(covariance="cluster").fit(X, RAW)
    with pytest.raises(DataError, match="whole numbers"):
        sd.GLM(weight_type="frequency").fit(X, RAW, WEIGHTS / 2)
    with pytest.raises(ValueError, match="power"):
        sd.GLM("tweedie", power=2.0).fit(X, RAW)
    with pytest.raises(DataError, match="level=95"):
        sd.GLM().fit(X, RAW).summary(95)
    with pytest.raises(DataError, match="10000"):
        sd.GLM().fit(sparse.csr_array((20, 10_001)), np.arange(20.0))


def test_the_page_prints_what_it_says(capsys):
    text = (Path(__file__).parents[4] / "docs" / "inference.md").read_text(encoding="utf-8")
    code, printed = text.split("```python\n")[1].split("```\n")[0], text.split("```\n")[2]
    exec(compile(code, "inference", "exec"), {})
    assert capsys.readouterr().out == printed


# Columns that are left out -------------------------------------------------------------------------


def test_columns_that_are_combinations_of_earlier_ones_are_left_out_as_in_r(tmp_path):
    z = np.linspace(-1, 1, 40)[:, None]
    with pytest.warns(UserWarning, match="depend on each other; 'x1' is left out, with coefficients of 0"):
        model = sd.GLM().fit(np.hstack([z, 2 * z]), z[:, 0] + 1)
    np.testing.assert_allclose(model.predict(np.hstack([z, 2 * z])), z[:, 0] + 1, atol=1e-9)
    model.save(tmp_path / "glm")
    assert list(np.isnan(sd.load(tmp_path / "glm").standard_errors_)) == [False, True, False]
    # A null space of three dimensions: x3 = x1 - 2 x2, x5 = 0, x6 = x0 + x4.
    A = np.column_stack([X[:, :3], X[:, 1] - 2 * X[:, 2], X[:, 3], np.zeros(N), X[:, 0] + X[:, 3]])
    kept = [0, 1, 2, 4]
    with pytest.warns(UserWarning, match="'x3, x5, x6' are left out"):
        model = sd.GLM("poisson", covariance="HC3").fit(A, COUNTS)
    alone = sd.GLM("poisson", covariance="HC3").fit(A[:, kept], COUNTS)
    np.testing.assert_allclose(model.coef_[kept], alone.coef_, rtol=1e-8)
    np.testing.assert_allclose(model.standard_errors_[[*kept, 7]], alone.standard_errors_, rtol=1e-8)
    np.testing.assert_array_equal(model.coef_[[3, 5, 6]], 0)
    assert model.summary().table.row("x3")["coef"] == 0
    np.testing.assert_allclose([model.aic_, model.df_residual_], [alone.aic_, alone.df_residual_])


@pytest.fixture(scope="module")
def towns():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"town": rng.choice(["Lima", "Oslo", "Rome"], 200), "plan": rng.choice(["a", "b"], 200)}
    )
    frame["age"] = rng.normal(40, 10, 200)
    return frame, rng.gamma(2, np.exp(0.01 * frame.age + 0.4 * (frame.town == "Rome")))


def _dummies(frame, *without):
    import pandas

    return pandas.get_dummies(frame, dtype=float).drop(columns=list(without))


@pytest.mark.parametrize("covariance", ["nonrobust", "HC1", "HC2", "cluster"])
def test_a_level_of_each_category_is_the_reference(towns, covariance):
    frame, y = towns
    vectors = {"clusters": np.arange(200) % 50} if covariance == "cluster" else {}
    glm = sd.GLM("gamma", covariance=covariance, reference={"town": "Rome"})
    pipeline = sd.table_pipeline(glm, scale=False)
    pipeline.fit(frame, y, **{f"model__{name}": value for name, value in vectors.items()})
    model = pipeline[-1]
    assert model.reference_levels_ == {"town": "Rome", "plan": "a"}
    assert "reference levels" in repr(model.summary())
    rest = _dummies(frame, "town_Rome", "plan_a")
    alone = sd.GLM("gamma", covariance=covariance).fit(rest, y, **vectors).summary().table
    table = model.summary().table
    for name in alone.rows:
        for column in alone.columns:
            np.testing.assert_allclose(table.row(name)[column], alone.row(name)[column], rtol=1e-7)
    with pytest.raises(DataError, match=r"no category 'twon'; .*'town'"):
        sd.table_pipeline(sd.GLM(reference={"twon": "Rome"})).fit(frame, y)
    with pytest.raises(DataError, match="'town' has no level 'Paris'; it has 'Lima', 'Oslo', 'Rome'"):
        sd.table_pipeline(sd.GLM(reference={"town": "Paris"})).fit(frame, y)


def test_levels_stay_where_no_intercept_is(towns):
    frame, y = towns
    model = sd.table_pipeline(sd.GLM("gamma", fit_intercept=False)).fit(frame[["town", "age"]], y)[-1]
    assert model.reference_levels_ == {}
    assert np.isfinite(model.standard_errors_).all()


@pytest.mark.parametrize("model", [sd.GLM("gamma"), sd.CoxRegression(0)])
def test_a_level_without_weight_is_no_reference(towns, model):
    frame, y = towns
    counts = (frame.town != "Lima").to_numpy()
    pipeline = sd.table_pipeline(model, scale=False)
    with pytest.warns(UserWarning, match=r"\W(town.Lima)\W.* is left out"):
        pipeline.fit(frame, y, model__sample_weight=counts * 1.0)
    model = pipeline[-1]
    assert model.reference_levels_ == {"town": "Oslo", "plan": "a"}
    alone = clone(model).fit(_dummies(frame, "town_Lima", "town_Oslo", "plan_a")[counts], y[counts])
    np.testing.assert_allclose(model.coef_[model.coef_ != 0], alone.coef_, rtol=1e-6)
    pipeline.set_params(model__reference={"town": "Lima"})
    with pytest.raises(DataError, match=r"no row that counts has the level 'Lima' .*'town'; take .*'Rome'"):
        pipeline.fit(frame, y, model__sample_weight=counts * 1.0)


def test_survival_has_reference_levels_too(towns):
    frame, y = towns
    cox = sd.table_pipeline(sd.CoxRegression(0, reference={"plan": "b"}), scale=False).fit(frame, y)[-1]
    assert cox.reference_levels_ == {"town": "Lima", "plan": "b"}
    alone = sd.CoxRegression(0).fit(_dummies(frame, "town_Lima", "plan_b"), y)
    stays = cox.coef_ != 0
    np.testing.assert_allclose(cox.coef_[stays], alone.coef_, rtol=1e-6)
    np.testing.assert_allclose(cox.standard_errors_[stays], alone.standard_errors_, rtol=1e-6)
    assert "town: Lima, plan: b" in repr(cox.summary())
