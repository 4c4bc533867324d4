"""Compiled rounds of scheduled descent: the minimum, descent in every round, what is drawn, the same bits."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model

import stradask as sd
from stradask.algorithms.linear.sparse.drawn_rounds import DrawnRounds
from stradask.kernels import scheduling
from stradask.kernels.linear import scheduled_rounds
from stradask.scheduler import StaticSchedule, run

N, P = 80, 60


def problem(kind="dense", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 2
    X[:, 1::2] = X[:, ::2] + 0.4 * rng.standard_normal((N, P // 2))  # correlations of 0.93
    if kind == "sparse":
        X *= rng.random((N, P)) < 0.3
    y = X[:, :5] @ [3.0, -2, 1, 1, 2] + rng.standard_normal(N) + 4
    return (sparse.csc_array(X) if kind == "sparse" else np.asfortranarray(X)), y


def dense_of(X):
    return X.toarray() if sparse.issparse(X) else X


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize(
    "options", [{}, {"fit_intercept": False, "l1_ratio": 0.5}, {"positive": True, "weighted": True}]
)
def test_it_comes_to_the_minimum_and_no_pass_rises(kind, size, options):
    X, y = problem(kind)
    given = {"fit_intercept": True, "l1_ratio": 1.0, "positive": False} | options
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, N).astype(float) if given.pop("weighted", False) else np.ones(N)
    weights /= weights.sum()
    ratio, alpha, positive = given["l1_ratio"], 0.05, given["positive"]
    l1, l2 = np.full(P, alpha * ratio), np.full(P, alpha * (1 - ratio))
    program = DrawnRounds(
        X, y, l1, l2, weights, fit_intercept=given["fit_intercept"], positive=positive, tol=1e-8, size=size,
        random_state=3,
    )  # fmt: skip
    result = run(program, StaticSchedule(1), max_rounds=50_000)
    assert result.reason == "gap"
    objective = result.history.as_dict()["objective"]
    assert (np.diff(objective) <= 1e-12 * objective[0]).all()

    A, b, c = dense_of(X), program.coef, program.intercept
    r = y - A @ b - c
    means = (weights @ A, weights @ y) if given["fit_intercept"] else (0, 0)
    assert program.primal == pytest.approx(0.5 * weights @ r**2 + l1 @ abs(b) + 0.5 * l2 @ b**2, rel=1e-10)
    rows = np.vstack([np.sqrt(weights)[:, None] * (A - means[0]), np.diag(np.sqrt(l2))])
    target = np.concatenate([np.sqrt(weights) * (y - means[1]), np.zeros(P)])
    theta = target - rows @ b
    slopes = rows.T @ theta
    worst = (np.maximum(slopes, 0) if positive else abs(slopes)) / l1
    theta *= np.clip(target @ theta / (theta @ theta), 0, 1 / worst.max())
    assert program.primal - (target @ theta - theta @ theta / 2) <= 1.01e-8 * program.scale
    peer = linear_model.ElasticNet(
        alpha, l1_ratio=ratio, fit_intercept=given["fit_intercept"], positive=positive, tol=1e-12,
        max_iter=100_000,
    )  # fmt: skip
    peer.fit(A, y, sample_weight=weights * N)
    np.testing.assert_allclose(A @ b + c, peer.predict(A), atol=2e-3)


def arguments(X, y, rho, seed=5, share=0.5, size=8, n_rounds=1, first=0):
    A = dense_of(X)
    C = A - A.mean(axis=0)
    images = (C / np.linalg.norm(C, axis=0)).T.astype(np.float32)
    tree = np.zeros(2 * P)
    tree[P:] = np.random.default_rng(0).random(P)
    scheduling.build(tree)
    state = {"v": y - y.mean(), "coef": np.zeros(P), "tree": tree, "weights": np.ones(N)}
    l1, l2 = np.full(P, 5.0), np.full(P, 2.0)
    head = A.mean(axis=0), (C**2).sum(axis=0), state["v"], state["weights"]
    tail = state["coef"], l1, l2, False, images, rho, tree, np.uint64(seed), first, n_rounds, size, 64, share
    return state, images, head, tail


def dense_rounds(X, y, rho, **options):
    state, images, head, tail = arguments(X, y, rho, **options)
    visits = scheduled_rounds.dense_rounds(np.ascontiguousarray(dense_of(X).T), *head, *tail)
    return state, images, visits


@pytest.mark.parametrize("seed", range(8))
def test_a_round_takes_uncorrelated_columns_and_the_best_part_of_their_steps(seed):
    X, y = problem()
    rho = 0.2
    state, images, visits = dense_rounds(X, y, rho, seed=seed)
    moved = np.flatnonzero(state["coef"])
    correlations = abs(images[moved] @ images[moved].T)
    np.fill_diagonal(correlations, 0)
    assert correlations.max(initial=0) < rho
    assert len(moved) <= visits <= 8
    # The step by hand: own minima, and the part that the bound allows.
    C, v = X - X.mean(axis=0), y - y.mean()
    curvature, slopes = (C**2).sum(axis=0)[moved], C[:, moved].T @ v
    own = np.sign(slopes) * np.maximum(abs(slopes) - 5.0, 0) / (curvature + 2.0)
    d = C[:, moved] @ own
    t = np.clip((d @ v - 5 * abs(own).sum() - 0.5 * 2 * (own**2).sum()) / (d @ d), 0, 1)
    np.testing.assert_allclose(state["coef"][moved], t * own, rtol=1e-10)
    np.testing.assert_allclose(state["v"], v - t * d, atol=1e-10)
    priorities = state["tree"][P:]
    np.testing.assert_allclose(priorities[moved], t * abs(own) * np.sqrt(curvature), rtol=1e-10)
    assert state["tree"][1] == pytest.approx(priorities.sum())


def test_draws_are_in_proportion_to_priorities():
    X, y = problem()
    counts = np.zeros(P)
    for seed in range(4000):
        state, *_ = dense_rounds(X, 1e6 * y, 1.1, seed=seed, size=1, share=0.25)
        counts[np.flatnonzero(state["coef"])] += 1
    weights = np.random.default_rng(0).random(P)
    expected = 4000 * (0.75 * weights / weights.sum() + 0.25 / P)
    assert counts.sum() == 4000
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < P + 5 * np.sqrt(2 * P)  # five standard deviations


def test_sparse_columns_take_the_steps_of_dense_ones():
    X, y = problem("sparse")
    dense, _, visits = dense_rounds(X, y, 0.3, n_rounds=40)
    state, _, head, tail = arguments(X, y, 0.3, n_rounds=40)
    found = scheduled_rounds.csc_rounds(X.data, X.indices, X.indptr, *head, float(N), *tail)
    assert found == visits
    np.testing.assert_allclose(state["coef"], dense["coef"], atol=1e-10)
    np.testing.assert_allclose(state["v"], dense["v"], atol=1e-9)
    assert np.count_nonzero(state["coef"]) > 20


def test_one_call_of_many_rounds_is_many_calls():
    X, y = problem()
    once, _, _ = dense_rounds(X, y, 0.3, n_rounds=6)
    state, _, head, tail = arguments(X, y, 0.3)
    for r in range(6):
        scheduled_rounds.dense_rounds(np.ascontiguousarray(X.T), *head, *tail[:8], r, 1, *tail[10:])
    np.testing.assert_array_equal(state["coef"], once["coef"])


def test_the_estimator_says_what_ran_and_threads_and_copies_change_nothing():
    X, y = problem()
    X = np.asfortranarray(np.hstack([X, X[:, :10]]))  # the same columns twice
    lasso = sd.Lasso(alpha=0.1, schedule="dynamic", random_state=0, tol=1e-7, n_jobs=1).fit(X, y)
    again = sd.Lasso(**{**lasso.get_params(), "n_jobs": 2}).fit(X, y)
    np.testing.assert_array_equal(lasso.coef_, again.coef_)
    assert lasso.schedule_ == "dynamic"
    assert lasso.dual_gap_ <= 1e-7 * y.var() / 2
    theirs = sd.Lasso(alpha=0.1, tol=1e-10).fit(X, y)
    assert theirs.schedule_ == "working-set"
    np.testing.assert_allclose(lasso.predict(X), theirs.predict(X), atol=1e-2)
