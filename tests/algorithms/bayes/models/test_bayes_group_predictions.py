"""Predictions with an intercept for each group, known or new; groups that cannot be."""

import warnings

import numpy as np
import pandas as pd
import pytest
from group_problems import MODELS, group_data
from scipy import special, stats

import stradask as sd
from stradask.algorithms.bayes.models.groups import check_groups, find_groups
from stradask.algorithms.bayes.models.model import regression
from stradask.errors import DataError, PosteriorWarning


# Predictions -------------------------------------------------------------------------------------------
def _fitted(family, **options):
    X, y, groups, _ = group_data(family, 200, 5)
    model = MODELS[family](random_state=0, **options)
    return model.fit(X, y, groups=np.array(["e", "a", "d", "b", "c"])[groups]), X, y


@pytest.mark.filterwarnings("ignore:Use the draws with care.* ESS::")  # of the scale of few groups
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
    X, y, groups, _ = group_data("negative_binomial", 60, 4)
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
    X, y, groups, _ = group_data("bernoulli", 30, 30)
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
    X, y, groups, _ = group_data("bernoulli", 200, 12)
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


@pytest.mark.filterwarnings("ignore:Use the draws with care.* ESS::")  # of the scale of few groups
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
    X, y, groups, _ = group_data("normal", 60, 4)
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
    X, y, _, _ = group_data("bernoulli", 40, 4)
    with pytest.raises(DataError, match=message):
        sd.BayesianLogisticRegression().fit(X, y, groups=groups)


def test_what_groups_cannot_do_is_refused():
    X, y, groups, _ = group_data("normal", 40, 4)
    with pytest.raises(DataError, match="noise='student_t' has not: take noise='normal'"):
        sd.BayesianLinearRegression("student_t").fit(X, y, groups=groups)
    with pytest.raises(DataError, match=r"sampler='gibbs' takes linear regression .* without groups"):
        sd.BayesianLinearRegression(sampler="gibbs").fit(X, y, groups=groups)
    with pytest.raises(DataError, match=r"without noise \(or constant\) in every group"):
        sd.BayesianLinearRegression().fit(X, X[:, 0] + groups, groups=groups)
    with pytest.raises(DataError, match="n_shards=5, but there are 4 groups"):
        sd.BayesianLinearRegression(n_shards=5).fit(X, y, groups=groups)
    with pytest.raises(DataError, match="all rows of shard 0 of 2 are of one class: take prior='normal'"):
        sd.BayesianLogisticRegression(prior_scale=np.inf, n_shards=2).fit(X, groups < 2, groups=groups < 2)
    model = sd.BayesianLinearRegression(random_state=0).fit(X, y, groups=groups)
    with pytest.raises(DataError, match="groups are text, those of the fit numbers"):
        model.predict(X, groups=["0"] * 40)
    with pytest.raises(ValueError, match="group_scale"):
        sd.BayesianLinearRegression(group_scale=np.inf).fit(X, y, groups=groups)


def test_groups_of_single_rows_are_the_overdispersion_of_counts():
    X, y, _, _ = group_data("poisson", 150, 150, spread=0.8)
    model = sd.BayesianPoissonRegression(n_samples=300, random_state=0).fit(X, y, groups=np.arange(150))
    low, high = np.quantile(model.posterior_["group_sd"], [0.001, 0.999])
    assert low < 0.8 < high
