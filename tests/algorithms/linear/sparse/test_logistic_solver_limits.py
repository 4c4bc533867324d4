"""The logistic and multinomial solver along paths, from starts, and at the limits of its problems."""

import numpy as np
import pytest
from logistic_problems import CSC, DENSE, Reference, class_columns, class_problem, fit, full, make
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from stradask.algorithms.linear.sparse.classes import solve
from stradask.algorithms.linear.sparse.penalties import L1L2
from stradask.algorithms.linear.structured.losses import Multinomial
from stradask.algorithms.linear.structured.mean_loss import mean_loss
from stradask.algorithms.linear.structured.solving.solver import Solver


# Sequences, starts, ends -------------------------------------------------------------------------------
@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("form", [DENSE, CSC])
def test_path_equals_single_fits(K, form):
    X, labels = make(80, 100, K, 7, density=0.5)
    X = form(X)
    penalties = [L1L2(strength) for strength in (8.0, 4.0, 2.0, 1.0)]
    path = fit(X, class_problem(labels, K), penalties, tol=1e-10).solutions
    for penalty, point in zip(penalties, path, strict=True):
        alone = fit(X, class_problem(labels, K), [penalty], tol=1e-10).solutions[0]
        assert point.objective == pytest.approx(alone.objective, rel=1e-9)
        np.testing.assert_allclose(full(point, 100)[0], full(alone, 100)[0], atol=1e-4)
        np.testing.assert_allclose(point.intercept, alone.intercept, atol=1e-4)


@pytest.mark.parametrize("K", [1, 3])
def test_start_from_the_solution_needs_one_or_two_rounds(K):
    X, labels = make(80, 100, K, 7)
    X = DENSE(X)
    penalty = L1L2(1.0)
    solution = fit(X, class_problem(labels, K), [penalty], tol=1e-10).solutions[0]
    again = fit(
        X, class_problem(labels, K), [penalty], tol=1e-8, start=(solution.features, solution.coef)
    ).solutions[0]
    assert again.rounds <= 3 < solution.rounds
    np.testing.assert_allclose(full(again, 100)[0], full(solution, 100)[0], atol=1e-4)


def test_strong_penalty_leaves_the_intercept():
    X, labels = make(60, 10, 1, 0)
    solution = fit(DENSE(X), class_problem(labels, 1), [L1L2(1e6)]).solutions[0]
    assert len(solution.features) == 0
    assert solution.intercept == pytest.approx(np.log(labels.mean() / (1 - labels.mean())), abs=1e-7)


def test_unpenalised_features_have_no_slope():
    X, labels = make(100, 30, 1, 4)
    factors = np.ones(30)
    factors[[3, 11, 12]] = 0
    X = DENSE(X)
    X[:, 12] = X[:, 11]  # and one of them twice
    penalty = L1L2(4.0, l1_factors=factors)
    coef, c = full(fit(X, class_problem(labels, 1), [penalty], tol=1e-10).solutions[0], 30)
    probability = 1 / (1 + np.exp(-(X @ coef[:, 0] + c)))
    slopes = X.T @ (labels - probability)
    assert np.abs(slopes[[3, 11, 12]]).max() < 1e-3


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("form", [DENSE, CSC])
def test_many_unpenalised_features(K, form):
    X, labels = make(150, 12, K, 4)
    factors = np.ones(12)
    factors[2:7] = 0
    penalty = L1L2(3.0, l1_factors=factors)
    solution = fit(form(X), class_problem(labels, K), [penalty], tol=1e-10).solutions[0]
    assert solution.reason == "gap"
    coef, c = full(solution, 12)
    reference = Reference(X, labels, penalty)
    assert reference.objective(coef, c) <= reference.minimum() + 1e-8 * reference.zero()
    if K > 1:
        np.testing.assert_allclose(coef[2:7].sum(axis=1), 0, atol=1e-12)


@pytest.mark.parametrize("K", [1, 3])
def test_separable_rows_with_a_tiny_penalty(K):
    rng = np.random.default_rng(0)
    X = DENSE(rng.standard_normal((40, 100)))
    labels = (X[:, 0] > 0).astype(np.int64) if K == 1 else X[:, :3].argmax(axis=1)
    penalty = L1L2(1e-7 * 40)
    solution = fit(X, class_problem(labels, K), [penalty], tol=1e-6).solutions[0]
    assert solution.reason == "gap"
    assert np.isfinite(solution.coef).all()
    assert solution.objective < 1e-3


@pytest.mark.parametrize("form", [DENSE, CSC])
@pytest.mark.parametrize("scale", [1e-200, 1e-40, 1e40, 1e200])
@pytest.mark.parametrize("K", [1, 3])
def test_scale_of_columns_is_no_matter(form, scale, K):
    X, labels = make(50, 60, K, 9)
    plain = fit(form(X), class_problem(labels, K), [L1L2(2.0)], tol=1e-9).solutions[0]
    scaled = fit(form(scale * X), class_problem(labels, K), [L1L2(2.0 * scale)], tol=1e-9).solutions[0]
    assert scaled.reason == "gap"
    np.testing.assert_allclose(full(scaled, 60)[0] * scale, full(plain, 60)[0], atol=1e-5)


def test_constant_zero_and_duplicate_columns():
    X, labels = make(60, 20, 1, 1)
    X[:, 0], X[:, 1] = 0.0, 7.0
    X[:, 3] = X[:, 2]
    penalty = L1L2(0.5)
    solution = fit(DENSE(X), class_problem(labels, 1), [penalty], tol=1e-10).solutions[0]
    coef, c = full(solution, 20)
    reference = Reference(X, labels, penalty)
    assert coef[0] == 0
    assert abs(coef[1]) < 1e-10  # the intercept does it for nothing
    assert reference.objective(coef, c) <= reference.minimum() + 1e-8


@pytest.mark.parametrize("K", [1, 3])
def test_gap_holds_though_the_intercept_is_far_off(K):
    """The residual is then no dual point: what is made of it must be one."""
    _, labels = make(60, 4, K, 2)
    offset = 8.0 * np.random.default_rng(0).standard_normal((60, K)) ** 2
    X, penalty = np.zeros((60, 1), order="F"), L1L2(1.0)
    problem = class_problem(labels, K, offset=offset[:, 0] if K == 1 else offset)
    columns = class_columns(X, **problem)
    solver = Solver(columns.columns, columns.loss, columns.blocks, fit_intercept=True)
    solver.begin(solver.B, solver.c + 3.0 * np.arange(1, K + 1))
    terms = columns.terms(penalty)
    objective = solver.objective(terms)
    gap = solver.gap(terms, *solver.slopes(), objective)
    least = Reference(X, labels, penalty, offset=offset).zero() / 60
    assert objective > least + 0.05
    assert objective - gap <= least


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("shift", [50.0, -1e4])
def test_intercept_takes_up_a_constant_offset(K, shift):
    X, labels = make(60, 40, K, 2)
    plain = fit(DENSE(X), class_problem(labels, K), [L1L2(1.0)], tol=1e-10).solutions[0]
    offset = np.zeros((60, K))
    offset[:, 0] = shift
    sub = class_problem(labels, K, offset=offset[:, 0] if K == 1 else offset)
    shifted = fit(DENSE(X), sub, [L1L2(1.0)], tol=1e-10).solutions[0]
    assert shifted.reason == "gap"
    np.testing.assert_allclose(full(shifted, 40)[0], full(plain, 40)[0], atol=1e-4)
    change = np.atleast_1d(shifted.intercept) - np.atleast_1d(plain.intercept)
    expected = offset[0].mean() - offset[0] if K > 1 else -offset[0]
    np.testing.assert_allclose(change, expected, atol=1e-4)


def test_two_classes_as_multinomial():
    """The classes' coefficients are b / 2 and -b / 2: together the same penalty as that of b."""
    X, labels = make(70, 40, 1, 6)
    X = DENSE(X)
    one = fit(X, class_problem(labels, 1), [L1L2(1.0)], tol=1e-11).solutions[0]
    columns = class_columns(X, **class_problem(labels, 1))
    columns.loss = mean_loss(columns.design, Multinomial(), labels[:, None] == np.arange(2))
    (two,), _ = solve(columns, [L1L2(1.0)], tol=1e-11, max_iter=1000, label="test")
    coef = full(two, 40)[0]
    np.testing.assert_allclose(coef[:, 1] - coef[:, 0], full(one, 40)[0][:, 0], atol=1e-5)
    assert 70 * two.objective == pytest.approx(one.objective, rel=1e-9)


def test_no_penalty_is_maximum_likelihood():
    X, labels = make(200, 5, 1, 8)
    solution = fit(DENSE(X), class_problem(labels, 1), [L1L2(0.0)], tol=1e-12).solutions[0]
    peer = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(X, labels)
    np.testing.assert_allclose(full(solution, 5)[0][:, 0], peer.coef_[0], atol=1e-5)


def test_ridge_alone():
    X, labels = make_classification(80, 30, random_state=0)
    solution = fit(DENSE(X), class_problem(labels, 1), [L1L2(0.0, 2.0)], tol=1e-12).solutions[0]
    peer = LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000).fit(X, labels)
    np.testing.assert_allclose(full(solution, 30)[0][:, 0], peer.coef_[0], atol=1e-5)


def test_unpenalised_feature_that_separates():
    """There is no minimum, but an infimum: the fit ends near it, and every figure stays finite."""
    X, labels = make(50, 10, 1, 3)
    X[:, 0] = np.where(labels > 0, 1.0, -1.0) * (1 + np.random.default_rng(0).random(50))
    factors = np.ones(10)
    factors[0] = 0
    penalty = L1L2(1.0, l1_factors=factors)
    solution = fit(DENSE(X), class_problem(labels, 1), [penalty], tol=1e-8).solutions[0]
    assert solution.reason == "gap"
    assert solution.features.tolist() == [0]
    assert 0 <= solution.objective < 1e-6
    assert np.isfinite(solution.coef).all()
