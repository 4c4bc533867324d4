"""Named cross-validated models against scikit-learn; relaxed and reweighted fits; pictures of paths."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso, MultiTaskElasticNetCV, MultiTaskLassoCV

import stradask as sd
from stradask.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 20))
Y = X[:, :3] @ RNG.standard_normal((3, 2)) + RNG.standard_normal((60, 2))
ALPHAS = [0.5, 0.2, 0.05]


def test_multi_task_searches_are_those_of_scikit_learn():
    options = {"alphas": ALPHAS, "cv": 4, "tol": 1e-10}
    pairs = [
        (
            sd.MultiTaskElasticNetCV(l1_ratio=[0.3, 0.9], **options),
            MultiTaskElasticNetCV(l1_ratio=[0.3, 0.9], max_iter=10**5, **options),
        ),
        (sd.MultiTaskLassoCV(**options), MultiTaskLassoCV(max_iter=10**5, **options)),
    ]
    for ours, other in pairs:
        ours.fit(X, Y)
        other.fit(X, Y)
        assert ours.alpha_ == other.alpha_
        assert getattr(ours, "l1_ratio_", 1) == getattr(other, "l1_ratio_", 1)
        np.testing.assert_allclose(ours.coef_, other.coef_, atol=1e-5)
        np.testing.assert_allclose(ours.mse_path_, other.mse_path_, atol=1e-5)
        assert ours.alpha_1se_ >= ours.alpha_min_


def test_a_group_lasso_search_is_that_of_its_parts_and_is_drawn():
    model = sd.GroupLassoCV([[0, 1, 2], *([j] for j in range(3, 20))], alphas=8, cv=3, rule="1se")
    model.fit(X, Y[:, 0])
    same = sd.SparseGLMCV(sd.GroupLasso(model.groups), alphas=8, cv=3, rule="1se").fit(X, Y[:, 0])
    assert model.alpha_ == same.alpha_ == model.alpha_1se_
    np.testing.assert_array_equal(model.coef_, same.coef_)
    at = int(np.flatnonzero(model.alphas_ == model.alpha_)[0])
    np.testing.assert_allclose(model.coef_path_[:, [at]].toarray()[:, 0], model.coef_, atol=1e-2)
    upper, lower = model.plot()
    assert lower.get_ylabel() == "mean loss"
    np.testing.assert_allclose(lower.lines[0].get_ydata(), -model.scores_mean_)
    assert upper.get_xlim() == lower.get_xlim()
    with pytest.raises(AttributeError, match="squared loss"):
        _ = sd.GroupLassoCV(loss="huber", alphas=3, eps=0.01, cv=2).fit(X, Y[:, 0]).mse_path_
    with pytest.raises(DataError, match="has no l1_ratio"):
        sd.SparseGLMCV(sd.MultiTaskLasso(), l1_ratios=[0.5]).fit(X, Y)
    with pytest.raises(DataError, match="penalty='l1' has no l1_ratio"):
        sd.SparseGLMCV(sd.SparseGLM(), l1_ratios=[0.5, 1]).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="l1_ratio"):
        sd.MultiTaskElasticNetCV(l1_ratio=[0.5, 2]).fit(X, Y)


def test_a_relaxed_fit_is_least_squares_on_the_chosen_columns():
    first = sd.GroupLasso(4, alpha=0.35).fit(X, Y[:, 0])
    chosen = np.flatnonzero(first.coef_)
    assert 0 < len(chosen) < 20
    model = first.relaxed().fit(X, Y[:, 0])
    best = np.linalg.lstsq(np.c_[X[:, chosen], np.ones(60)], Y[:, 0], rcond=None)[0]
    np.testing.assert_allclose(model.coef_[chosen], best[:-1], atol=1e-10)
    assert not np.delete(model.coef_, chosen).any()
    tasks = sd.MultiTaskLasso(0.4).fit(X, Y)
    chosen = np.flatnonzero(tasks.coef_.any(axis=0))
    best = np.linalg.lstsq(np.c_[X[:, chosen], np.ones(60)], Y, rcond=None)[0]
    np.testing.assert_allclose(tasks.relaxed().fit(X, Y).coef_[:, chosen], best[:-1].T, atol=1e-10)


def test_an_adaptive_lasso_is_a_lasso_of_scaled_columns():
    first = sd.SparseGLM(alpha=0.1, tol=1e-10).fit(X, Y[:, 0])
    second = first.reweighted(gamma=0.5, epsilon=0.1).set_params(alpha=0.05).fit(X, Y[:, 0])
    scales = (np.abs(first.coef_) + 0.1) ** 0.5
    other = Lasso(0.05, tol=1e-12, max_iter=10**5).fit(X * scales, Y[:, 0])
    np.testing.assert_allclose(second.coef_, other.coef_ * scales, atol=1e-6)
    assert not first.reweighted().fit(X, Y[:, 0]).coef_[first.coef_ == 0].any()
    groups = sd.GroupLasso([[0, 1, 2, 3], *([j] for j in range(4, 20))], alpha=0.1).fit(X, Y[:, 0])
    assert groups.reweighted(epsilon=1).penalty_factor[0] == pytest.approx(
        2 / (np.linalg.norm(groups.coef_[:4]) + 1)
    )
    with pytest.raises(DataError, match="gamma=0"):
        first.reweighted(gamma=0)
