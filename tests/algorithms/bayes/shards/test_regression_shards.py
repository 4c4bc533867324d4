"""Bayesian regressions in shards: the posterior of all rows, and how rows are cut."""

from types import SimpleNamespace

import numpy as np
import pytest
from regression_problems import MODELS, assert_near, regression_data

from stradask.algorithms.bayes.combine.combiners import CombinationRefused
from stradask.algorithms.bayes.linear import BayesianLinearRegression
from stradask.algorithms.bayes.logistic import BayesianLogisticRegression
from stradask.algorithms.bayes.poisson import BayesianPoissonRegression
from stradask.algorithms.bayes.shards import rows as shards
from stradask.algorithms.bayes.shards.mixed_rows import mixed_rows
from stradask.algorithms.bayes.shards.rows import cut_rows, number_of_shards
from stradask.errors import DataError


@pytest.mark.parametrize("estimator", MODELS)
def test_shards_are_the_whole(estimator):
    X, y = regression_data(estimator, 3000)
    whole = estimator(n_samples=1000, random_state=0).fit(X, y)
    shards = estimator(n_samples=1000, n_shards=4, random_state=0).fit(X, y)
    sd = whole.posterior_.sd()["coef"]
    assert_near(shards.coef_, whole.coef_, sd * np.sqrt(2 / 1500))
    np.testing.assert_allclose(shards.posterior_.sd()["coef"], sd, rtol=0.1)
    assert shards.n_shards_ == 4
    assert shards.posterior_.shard_draws.shape[:3] == (4, 4, 1000)
    again = estimator(n_samples=1000, n_shards=4, random_state=0, n_jobs=2).fit(X, y)
    assert (again.posterior_.draws == shards.posterior_.draws).all()


def test_the_prior_is_cut_as_well():
    """A prior that matters: raised to 1 in each of 5 shards it would pull five times as hard."""
    X, y = regression_data(BayesianLogisticRegression, 200)
    options = {"prior_scale": 0.1, "intercept_scale": 0.1, "n_samples": 2000, "random_state": 0}
    whole = BayesianLogisticRegression(**options).fit(X, y)
    shards = BayesianLogisticRegression(n_shards=5, **options).fit(X, y)
    assert_near(shards.coef_, whole.coef_, whole.posterior_.sd()["coef"] * np.sqrt(2 / 2000))


def test_rows_are_dealt_once_and_by_class():
    groups = np.repeat([0, 1], [95, 5])
    parts = cut_rows(100, 5, seed=3, groups=groups)
    assert sorted(np.concatenate(parts)) == list(range(100))
    assert [groups[rows].sum() for rows in parts] == [1] * 5
    assert any((a != b).any() for a, b in zip(parts, cut_rows(100, 5, seed=4, groups=groups), strict=True))
    assert sorted(groups[rows].sum() for rows in cut_rows(100, 6, seed=3, groups=groups)) == [0, *[1] * 5]
    with pytest.raises(DataError, match="n_shards=101, but there are 100 rows"):
        number_of_shards(101, 100, 3)


@pytest.mark.parametrize(
    ("n_rows", "n_params", "n_rare", "expected"),
    [
        (60_000, 3, None, 1),  # all of them take a second
        (1_000_000, 3, None, 3333),
        (50_000, 50, None, 10),
        (50_000, 50, 25_000, 10),
        (50_000, 50, 420, 8),  # as many rows of the rarer class as there are columns
        (50_000, 50, 20, 1),
        (2000, 600, None, 1),
    ],
)
def test_number_of_shards_by_itself(n_rows, n_params, n_rare, expected):
    assert number_of_shards("auto", n_rows, n_params, n_rare) == expected


@pytest.mark.parametrize("n_rare", [3, 200])
def test_auto_shards_of_a_mixed_model_have_rows_of_every_class(n_rare):
    """By rows alone there would be 625, and too few of the class for each."""
    design = SimpleNamespace(X=np.ones((250_000, 3)), y=np.arange(250_000) < n_rare, terms=())
    settings = SimpleNamespace(n_shards="auto", seed=0, check_combines=lambda: None)
    parts = mixed_rows("logistic", design, settings)
    assert len(parts) == max(1, n_rare // 4)
    assert parts == [None] or all(design.y[rows].any() for rows in parts)


@pytest.mark.parametrize("estimator", MODELS)
def test_auto_shards_follow_the_rare_rows(estimator, monkeypatch):
    monkeypatch.setattr(shards, "_CELLS", 1000)
    X, y = regression_data(estimator, 1300)
    if estimator is BayesianLogisticRegression:
        y = np.arange(1300) < 8  # 8 rows, 3 columns with the intercept
    elif estimator is BayesianPoissonRegression:
        y = np.where(np.arange(1300) < 7, 3, 0)
    model = estimator(n_shards="auto", n_samples=100, random_state=0).fit(X, y)
    assert model.n_shards_ == (1 if estimator is BayesianLinearRegression else 2)


def test_what_cannot_be_cut_is_refused():
    X, y = regression_data(BayesianLogisticRegression)
    separated = X[:, 0] > 0
    with pytest.raises(DataError, match=r"improper to the power 1/5.*take n_shards below 5"):
        BayesianLogisticRegression("student_t", n_shards=5).fit(X, separated)
    heavy = BayesianLogisticRegression("student_t", n_shards=5, n_samples=500, random_state=0).fit(X, y)
    assert heavy.posterior_.diagnostics.level < 2  # every shard identifies the coefficients
    with pytest.raises(DataError, match="weighted draws, which no combination takes"):
        BayesianLogisticRegression(sampler="laplace", n_shards=2).fit(X, y)
    with pytest.raises((CombinationRefused, DataError)):
        BayesianLogisticRegression(n_shards=2, n_samples=2, n_chains=1, random_state=0).fit(X, y)
