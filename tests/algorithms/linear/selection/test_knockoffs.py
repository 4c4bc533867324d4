"""Knockoffs: second moments, the filter against enumeration, and the share of false choices in simulation."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import stradask as sd
from stradask.algorithms.linear.selection.knockoffs import (
    fixed_knockoffs,
    gaps,
    gaussian_knockoffs,
    knockoff_threshold,
)
from stradask.errors import DataError

P = 12
SIGMA = 0.6 ** np.abs(np.subtract.outer(range(P), range(P)))


@pytest.mark.parametrize("method", ["equi", "sdp"])
def test_normal_copies_have_exchangeable_second_moments(method):
    """Exactly: the moments of ``[X, Z]`` are linear in those of X and of the independent draws."""
    rng = np.random.default_rng(0)
    scales, mean = rng.uniform(0.5, 3, P), rng.standard_normal(P)
    covariance = SIGMA * np.outer(scales, scales)
    X = rng.multivariate_normal(mean, covariance, 100_000)
    Z = gaussian_knockoffs(X, mean, covariance, np.random.RandomState(1), method)
    D = np.diag(gaps(SIGMA, method) * scales**2)
    joint = np.block([[covariance, covariance - D], [covariance - D, covariance]])
    found = np.cov(np.hstack([X, Z]).T)
    errors = np.sqrt((np.outer(np.diag(joint), np.diag(joint)) + joint**2) / len(X))
    assert np.abs((found - joint) / errors).max() < 5
    np.testing.assert_allclose(Z.mean(axis=0), mean, atol=5 * np.sqrt(np.diag(covariance).max() / len(X)))


@pytest.mark.parametrize("method", ["equi", "sdp"])
def test_copies_of_a_fixed_matrix_are_exchangeable_to_rounding(method):
    rng = np.random.default_rng(0)
    X = rng.multivariate_normal(np.zeros(P), SIGMA, 40)
    X -= X.mean(axis=0)
    Z = fixed_knockoffs(X, np.random.RandomState(2), method)
    S, cross = X.T @ X, X.T @ Z
    np.testing.assert_allclose(Z.T @ Z, S, atol=1e-9)
    off = ~np.eye(P, dtype=bool)
    np.testing.assert_allclose(cross[off], S[off], atol=1e-9)
    assert (np.diag(cross) <= np.diag(S) * (1 + 1e-12)).all()
    assert np.diag(cross).sum() < 0.9 * np.trace(S)
    np.testing.assert_allclose(Z.sum(axis=0), 0, atol=1e-9)


def test_sdp_gaps_are_feasible_and_sum_to_the_most():
    """The multipliers of the barrier, mu times the inverse, are a dual solution: no sum can be larger."""
    s = gaps(SIGMA)
    assert np.linalg.eigvalsh(2 * SIGMA - np.diag(s)).min() > 0
    assert (s >= 0).all()
    assert (s <= 1).all()
    assert s.sum() > gaps(SIGMA, "equi").sum()
    rng = np.random.default_rng(0)
    for _ in range(200):  # no direction leads to a larger sum
        t = np.clip(s + 0.02 * rng.standard_normal(P) + 0.002, 0, 1)
        if t.sum() > s.sum() * (1 + 1e-3):
            assert np.linalg.eigvalsh(2 * SIGMA - np.diag(t)).min() < 0
    np.testing.assert_allclose(gaps(np.eye(4)), 1, atol=1e-3)
    pair = np.array([[1.0, 0.8], [0.8, 1.0]])  # min(1, 2 (1 - .8)) each, or all to one: the sum is .8
    assert gaps(pair).sum() == pytest.approx(0.8, rel=2e-3)


def test_the_threshold_is_the_least_that_the_rule_allows():
    rng = np.random.default_rng(4)
    for _ in range(50):
        W = np.round(rng.standard_normal(20) + 0.7, 1)
        for offset in (0, 1):
            allowed = [
                t for t in np.abs(W) if t > 0 and (offset + (-t >= W).sum()) / max(1, (t <= W).sum()) <= 0.2
            ]
            assert knockoff_threshold(W, 0.2, offset) == min(allowed, default=np.inf)


@pytest.mark.parametrize("kind", ["gaussian", "fixed"])
def test_a_strong_signal_is_found(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 40)) + 3
    y = X[:, :10].sum(axis=1) + rng.standard_normal(200)
    model = sd.KnockoffSelection(kind=kind, fdr=0.2, random_state=0).fit(X, y)
    assert model.support_[:10].all()
    assert model.support_[10:].sum() <= 5
    again = sd.KnockoffSelection(kind=kind, fdr=0.2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.statistics_, model.statistics_)
    assert model.transform(X).shape[1] == model.support_.sum()
    with pytest.warns(UserWarning, match=r"fdr=0.01 can choose no column of 40.* 100 or more.*take fdr=0.03"):
        none = sd.KnockoffSelection(kind=kind, fdr=0.01, random_state=0).fit(X, y)
    assert none.threshold_ == np.inf
    assert not none.support_.any()
    sd.KnockoffSelection(kind=kind, random_state=0).fit(X[:, :10], y)  # 10 columns at 0.1: no warning
    sd.KnockoffSelection(kind=kind, offset=0, random_state=0).fit(X[:, :3], y)


def test_classes_by_an_estimator_for_them():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20))
    labels = np.where(2 * X[:, :8].sum(axis=1) + rng.logistic(size=300) > 0, "a", "b")
    estimator = sd.SparseLogisticRegression(0.01)
    model = sd.KnockoffSelection(estimator, fdr=0.3, mean=np.zeros(20), covariance=np.eye(20), random_state=0)
    assert model.fit(X, labels).support_[:8].sum() >= 7


class _Keep(BaseEstimator):
    """Keeps the columns that it is fitted to."""

    def fit(self, X, y):
        """Keep them."""
        _Keep.X, self.coef_ = X, np.zeros(X.shape[1])
        return self


def test_copies_by_an_estimated_covariance_vary_as_their_columns():
    rng = np.random.default_rng(0)
    scales = np.repeat([0.01, 1.0, 30.0], 4)
    X = rng.standard_normal((60, P)) * scales
    sd.KnockoffSelection(_Keep(), random_state=0).fit(X, X[:, 0])
    np.testing.assert_array_less(np.abs(np.log(_Keep.X.std(axis=0))), 0.5)


def test_the_plain_filter_refuses_labels():
    X = np.random.default_rng(0).standard_normal((60, P))
    with pytest.raises(DataError, match="y holds the text"):
        sd.KnockoffSelection(kind="fixed").fit(X, np.where(X[:, 0] > 0, "a", "b"))


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"kind": "fixed"}, lambda X: X[:24], "more than twice as many rows"),
        ({"kind": "fixed", "estimator": sd.Lasso()}, lambda X: X, "takes no estimator"),
        ({}, lambda X: np.where(np.arange(P) == 2, 1.0, X), "column 2 is constant"),
        ({"covariance": np.eye(3)}, lambda X: X, "has 12 columns"),
        ({"covariance": -np.eye(P)}, lambda X: X, "positive definite"),
        ({"covariance": np.ones((P, P))}, lambda X: X, "depend on each other"),
    ],
)
def test_bad_input_is_refused(options, change, message):
    X = np.random.default_rng(0).standard_normal((60, P))
    X = change(X)
    with pytest.raises(DataError, match=message):
        sd.KnockoffSelection(**options).fit(X, np.arange(len(X), dtype=float))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gaussian", "fixed"])
def test_the_share_of_false_choices_is_bounded(kind):
    """80 draws of correlated columns; the mean share is at most .2 but for three standard errors."""
    rng, shares, found = np.random.default_rng(7), [], []
    p = 30
    sigma = 0.4 ** np.abs(np.subtract.outer(range(p), range(p)))
    given = {"mean": np.zeros(p), "covariance": sigma} if kind == "gaussian" else {}
    for seed in range(80):
        X = rng.multivariate_normal(np.zeros(p), sigma, 120)
        true = rng.permutation(p) < 10
        y = X[:, true] @ rng.choice([-0.6, 0.6], 10) + rng.standard_normal(120)
        model = sd.KnockoffSelection(kind=kind, fdr=0.2, random_state=seed, **given).fit(X, y)
        shares.append((model.support_ & ~true).sum() / max(model.support_.sum(), 1))
        found.append((model.support_ & true).mean() * 3)
    assert np.mean(shares) <= 0.2 + 3 * np.std(shares) / np.sqrt(80)
    assert np.mean(found) > 0.3


def test_equal_columns_are_named():
    X = np.random.default_rng(0).standard_normal((60, P))
    X[:, 9] = 2 - 3 * X[:, 1]
    with pytest.warns(UserWarning, match=r"in 1 pair\(s\) such as \[\(1, 9\)\]: which of a pair"):
        sd.KnockoffSelection(fdr=0.5, random_state=0).fit(X, X[:, 0])
    X[:, 9] += 1e-3 * X[:, 0]
    sd.KnockoffSelection(fdr=0.5, random_state=0).fit(X, X[:, 0])
