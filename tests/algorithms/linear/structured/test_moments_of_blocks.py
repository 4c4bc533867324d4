"""Several targets, and groups of columns, by second moments: the optimum, and what other solvers take."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model

import stradask as sd
from stradask.algorithms.linear.structured import base
from stradask.algorithms.linear.structured.solving import moments
from stradask.algorithms.linear.structured.solving.moments import MomentSolver


@pytest.fixture
def solvers(monkeypatch):
    """The solvers that fits made by `moment_solver`; None where it left them to others."""
    made, before = [], base.moment_solver

    def watched(*args, **options):
        made.append(before(*args, **options))
        return made[-1]

    monkeypatch.setattr(base, "moment_solver", watched)
    return made


def draw(form="dense", n=80, p=12):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, p)) @ (np.eye(p) + 0.3 * rng.standard_normal((p, p))) + 2
    X = X if form == "dense" else sparse.csc_array(np.where(rng.random((n, p)) < 0.3, X, 0.0))
    W = rng.standard_normal((p, 3)) * (np.arange(p) < 6)[:, None]
    Y = X @ W + rng.standard_normal((n, 3)) + 5
    return X, Y, rng.uniform(0.5, 2.0, n), rng.standard_normal((n, 3))


def relative_gap(X, Y, weights, offset, model, group, lam, ridge):
    """Duality gap of a model with an intercept over half the variance, by NumPy.

    `group`: columns of a group. The penalty is ``lam |B_g| + ridge |B_g|^2 / 2``.
    """
    w = weights[:, None] / weights.sum()
    B = np.atleast_2d(model.coef_).T
    r = Y - offset - X @ B - model.intercept_
    Y = Y - offset - np.sum(w * (Y - offset), axis=0)
    r -= np.sum(w * r, axis=0)

    def norms(V):
        return np.linalg.norm(V.reshape(len(V) // group, -1), axis=1)

    pulls = norms(X.T @ (w * r))
    s = 1.0 if ridge else min(1.0, lam / pulls.max())
    conjugate = (np.maximum(pulls - lam, 0) ** 2).sum() / (2 * ridge) if ridge else 0.0
    primal = 0.5 * np.sum(w * r**2) + lam * norms(B).sum() + 0.5 * ridge * np.sum(B**2)
    dual = s * np.sum(w * r * Y) - 0.5 * s**2 * np.sum(w * r**2) - conjugate
    return (primal - dual) / (0.5 * np.sum(w * Y**2))


@pytest.mark.parametrize("form", ["dense", "csc"])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
@pytest.mark.parametrize("few_products", [np.inf, 0.0])
def test_several_targets_reach_the_gap(form, l1_ratio, few_products, solvers, monkeypatch):
    monkeypatch.setattr(moments, "_FEW_PRODUCTS", few_products)
    X, Y, weights, offset = draw(form, 80, 18)
    model = sd.MultiTaskElasticNet(alpha=0.5, l1_ratio=l1_ratio, tol=1e-9)
    model.fit(X, Y, weights, offset=offset)
    assert isinstance(solvers[0], MomentSolver)
    assert model.stopped_by_ == "duality gap"
    lam, ridge = 0.5 * l1_ratio, 0.5 * (1 - l1_ratio)
    gap = relative_gap(X, Y, weights, offset, model, 1, lam, ridge)
    assert -1e-13 < gap < 1e-9


@pytest.mark.parametrize("form", ["dense", "csc"])
@pytest.mark.parametrize("few_products", [np.inf, 0.0])
def test_groups_reach_the_gap(form, few_products, solvers, monkeypatch):
    monkeypatch.setattr(moments, "_FEW_PRODUCTS", few_products)
    X, Y, weights, offset = draw(form, 80, 18)
    y, offset = Y[:, 0], offset[:, 0]
    model = sd.GroupLasso(3, alpha=0.3, tol=1e-9).fit(X, y, weights, offset=offset)
    assert isinstance(solvers[0], MomentSolver)
    gap = relative_gap(X, y[:, None], weights, offset[:, None], model, 3, 0.3 * np.sqrt(3), 0.0)
    assert -1e-13 < gap < 1e-9


@pytest.mark.parametrize(
    "options",
    [
        {"l1_ratio": 0.3},
        {"positive": True},
        {"penalty_factor": [1.0, np.inf, 2.0, 1.0]},
        {"fit_intercept": False},
        {"standardize": True},
        {"groups": [0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 3]},
    ],
)
def test_moments_give_the_model_of_the_columns(options, solvers, monkeypatch):
    X, Y, weights, _ = draw()
    model = sd.GroupLasso(**{"groups": 3, "alpha": 0.2, "tol": 1e-11, **options}).fit(X, Y[:, 0], weights)
    assert (solvers[0] is None) == ("standardize" in options)
    monkeypatch.setattr(base, "moment_solver", lambda *args, **options: None)
    peer = sd.GroupLasso(**{"groups": 3, "alpha": 0.2, "tol": 1e-11, **options}).fit(X, Y[:, 0], weights)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-4)
    assert model.objective_ == pytest.approx(peer.objective_, rel=1e-10)
    assert model.intercept_ == pytest.approx(peer.intercept_, abs=1e-3)


def test_paths_go_on_from_the_strength_before(solvers):
    X, Y, _, _ = draw()
    alphas, coefs, _, gaps = sd.MultiTaskLasso(tol=1e-9).path(X, Y, alphas=20)
    assert isinstance(solvers[-1], MomentSolver)
    assert gaps.max() <= 1e-9 * 0.5 * Y.var(axis=0).sum()
    alone = sd.MultiTaskLasso(alpha=alphas[12], tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(coefs[..., 12], alone.coef_, atol=1e-3)


def test_what_moments_cannot_resolve_is_left_to_the_columns(solvers):
    X, Y, _, _ = draw()
    far = sd.MultiTaskLasso(alpha=0.5, tol=1e-9).fit(X + 1e7, Y)  # squares of which centring leaves nothing
    assert solvers == [None]
    near = sd.MultiTaskLasso(alpha=0.5, tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-5)
    exact = sd.MultiTaskLasso(alpha=0.5, tol=1e-13).fit(X, Y)  # less than rounding errors of moments
    assert isinstance(solvers[-1], MomentSolver)
    assert exact.dual_gap_ <= 1e-13 * 0.5 * Y.var(axis=0).sum()
    constant = X.copy()
    constant[:, 3] = 7.0
    assert not sd.MultiTaskLasso(alpha=0.5).fit(constant, Y).coef_[:, 3].any()
    assert solvers[-1] is None
    free = sd.MultiTaskElasticNet(alpha=0.5, penalty_factor=[0.0] + 11 * [1.0]).fit(X, Y)
    assert solvers[-1] is None
    assert free.coef_[:, 0].all()


def test_a_callback_sees_the_rounds_of_the_same_fit():
    X, Y, _, _ = draw(p=12)
    seen = []
    plain = sd.MultiTaskLasso(alpha=0.05, tol=1e-8).fit(X, Y)
    watched = sd.MultiTaskLasso(alpha=0.05, tol=1e-8).fit(X, Y, callback=lambda info: seen.append(info.gap))
    np.testing.assert_array_equal(plain.coef_, watched.coef_)
    assert len(seen) == plain.n_iter_
    assert seen[-1] == plain.dual_gap_


@pytest.mark.parametrize(("share", "n_wholes"), [(0.5, 0), (0.0001, 1)])
def test_products_of_all_columns_are_made_where_many_have_coefficients(monkeypatch, share, n_wholes):
    rng, wholes, moments = np.random.default_rng(2), [], MomentSolver._moments
    monkeypatch.setattr(MomentSolver, "_moments", lambda *args: wholes.append(1) or moments(*args))
    X = rng.standard_normal((1500, 180)) * np.exp(rng.standard_normal(180)) + 3
    Y = X[:, :9] @ rng.standard_normal((9, 3)) + rng.standard_normal((1500, 3))
    alpha = share * np.linalg.norm(X.T @ (Y - Y.mean(axis=0)), axis=1).max() / 1500
    model = sd.MultiTaskLasso(alpha, tol=1e-10).fit(X, Y)
    assert len(wholes) == n_wholes
    other = linear_model.MultiTaskLasso(alpha, tol=1e-12, max_iter=100_000).fit(X, Y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-6 * np.abs(other.coef_).max())
