"""The solver of the squared loss, against scikit-learn and against a gap recomputed in plain numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import ElasticNet as TheirElasticNet
from sklearn.linear_model import LinearRegression
from squared_problems import dense, fit, problem, reference_gap, strength_max

from stradask.algorithms.linear.sparse.columns import columns_of, cut
from stradask.algorithms.linear.sparse.penalties import L1L2
from stradask.algorithms.linear.structured.solving import columns as columns_module

# --- against independent answers -----------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 40),
    p=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    density=st.sampled_from([None, None, 0.2, 0.7]),
    dtype=st.sampled_from([np.float64, np.float32]),
    intercept=st.booleans(),
    weighted=st.booleans(),
    positive=st.booleans(),
    factors=st.sampled_from(["none", "some", "zeros"]),
    part=st.sampled_from([0.7, 0.1, 0.01]),
    ratio=st.sampled_from([1.0, 0.5]),
    shift=st.sampled_from([0.0, 3.0]),
)
def test_gap_recomputed_from_outside(
    n, p, seed, density, dtype, intercept, weighted, positive, factors, part, ratio, shift
):
    X, y = problem(n, p, seed=seed, density=density, dtype=dtype, shift=shift)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, n) + 0.25 if weighted else None
    f = None if factors == "none" else rng.random(p) + 0.5
    if factors == "zeros" and not positive:
        f[: p // 4] = 0
    top = max(strength_max(X, y, weights, intercept), 1e-8)
    penalty = L1L2(part * top, ridge=(1 - ratio) * n, l1_factors=f, l2_factors=f, positive=positive)
    (solution,) = fit(X, y, [penalty], weights=weights, intercept=intercept, tol=1e-9)
    assert solution.reason == "gap"
    coef = dense(solution, p)
    assert reference_gap(X, y, coef, penalty, weights, intercept) <= 2e-9
    assert not positive or (coef >= 0).all()
    if intercept:
        w = np.ones(n) if weights is None else weights
        mean = np.average(y - X @ coef, weights=w)
        assert solution.intercept == pytest.approx(mean, abs=1e-6 * (1 + abs(y).max()))


@pytest.mark.parametrize(
    ("shape", "density", "intercept", "weighted", "positive", "l1_ratio"),
    [  # each pair of levels
        ((80, 30), None, False, False, True, 0.5),
        ((80, 30), None, True, True, False, 1.0),
        ((80, 30), 0.2, False, False, False, 1.0),
        ((40, 120), None, False, True, True, 1.0),
        ((40, 120), None, True, True, False, 1.0),
        ((40, 120), 0.2, True, False, False, 0.5),
        ((40, 120), 0.2, True, True, True, 0.5),
    ],
)
def test_equals_scikit_learn(shape, density, intercept, weighted, positive, l1_ratio):
    n, p = shape
    X, y = problem(n, p, density=density, shift=1.0, positive=positive)
    weights = np.random.default_rng(1).random(n) + 0.1 if weighted else None
    total = n if weights is None else weights.sum()
    alpha = 0.1 * strength_max(X, y, weights, intercept, positive) / total / l1_ratio
    penalty = L1L2(total * alpha * l1_ratio, total * alpha * (1 - l1_ratio), positive=positive)
    (solution,) = fit(X, y, [penalty], weights=weights, intercept=intercept, tol=1e-13)
    theirs = TheirElasticNet(
        alpha=alpha, l1_ratio=l1_ratio, fit_intercept=intercept, positive=positive, tol=1e-13, max_iter=10**6
    ).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(dense(solution, p), theirs.coef_, atol=1e-6)
    assert solution.intercept == pytest.approx(theirs.intercept_, abs=1e-6)
    assert len(solution.features) > 0


def test_objective_and_gap_are_reported_in_the_units_of_the_problem():
    X, y = problem(50, 80)
    penalty = L1L2(0.1 * strength_max(X, y), ridge=2.0)
    (solution,) = fit(X, y, [penalty], tol=1e-4)
    coef = dense(solution, 80)
    objective = np.sum((y - X @ coef) ** 2) / 2 + penalty.strength * np.abs(coef).sum() + coef @ coef
    assert solution.objective == pytest.approx(objective, rel=1e-12)
    assert solution.gap == pytest.approx(reference_gap(X, y, coef, penalty), rel=1e-6)
    assert solution.gap_absolute == pytest.approx(solution.gap * (y @ y) / 2, rel=1e-12)
    assert solution.updates > 0


# --- passes, however they are cut ---------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.2])
def test_threads_do_not_change_a_bit(density, monkeypatch):
    monkeypatch.setattr(columns_module, "_PART", 0)
    X, y = problem(40, 203, density=density, correlation=1.0)
    X = sparse.hstack([X, X[:, :50]]).tocsc() if density else np.asfortranarray(np.hstack([X, X[:, :50]]))
    f = np.random.default_rng(2).random(253) + 0.5
    f[[3, 200]] = 0
    penalties = [L1L2(part * strength_max(X, y), l1_factors=f) for part in (0.5, 0.1, 0.02)]
    alone = fit(X, y, penalties, intercept=True)
    for n_jobs in (2, 7):
        others = fit(X, y, penalties, intercept=True, n_jobs=n_jobs)
        for one, other in zip(alone, others, strict=True):
            np.testing.assert_array_equal(one.features, other.features)
            np.testing.assert_array_equal(one.coef, other.coef)
            assert (one.gap, one.intercept, one.rounds) == (other.gap, other.intercept, other.rounds)


def test_cuts_cover_all_columns_with_equal_work():
    X = sparse.random_array((50, 300), density=0.2, format="csc", random_state=0)
    ranges = cut(columns_of(X), 4)
    assert [a for a, _ in ranges[1:]] == [b for _, b in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 300)
    assert max(X[:, a:b].nnz for a, b in ranges) < 0.3 * X.nnz
    assert cut(columns_of(X[:, :2]), 5)[-1][1] == 2


# --- paths and starts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.3])
def test_a_path_is_its_single_fits(density):
    X, y = problem(60, 100, density=density)
    top = strength_max(X, y, intercept=True)
    penalties = [L1L2(part * top) for part in (1.5, 1.0, 0.5, 0.3, 0.1, 0.03, 0.03)]
    path = fit(X, y, penalties, intercept=True, tol=1e-12)
    assert [solution.strength for solution in path] == [penalty.strength for penalty in penalties]
    assert len(path[0].features) == len(path[1].features) == 0
    for penalty, point in zip(penalties, path, strict=True):
        (single,) = fit(X, y, [penalty], intercept=True, tol=1e-12)
        np.testing.assert_allclose(dense(point, 100), dense(single, 100), atol=1e-6)
    assert path[0].rounds == path[-1].rounds == 1


def test_a_start_saves_the_work():
    X, y = problem(60, 100)
    penalty = L1L2(0.05 * strength_max(X, y))
    (cold,) = fit(X, y, [penalty])
    (warm,) = fit(X, y, [penalty], start=(cold.features, cold.coef))
    assert warm.rounds == 1
    np.testing.assert_allclose(warm.coef, cold.coef, rtol=1e-12)
    (wrong,) = fit(X, y, [penalty], start=(np.array([5, 70]), np.array([100.0, -100.0])))
    np.testing.assert_allclose(dense(wrong, 100), dense(cold, 100), atol=1e-4)


# --- odd columns and penalties ----------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, 0.3])
@pytest.mark.parametrize("p", [20, 150])
def test_no_penalty_is_least_squares(p, density):
    X, y = problem(60, p, density=density, shift=1.0)
    (solution,) = fit(X, y, [L1L2(0.0)], intercept=True, tol=1e-10)
    assert solution.reason == "gap"
    theirs = LinearRegression().fit(X.toarray() if density else X, y)
    mine = X @ dense(solution, p) + solution.intercept
    np.testing.assert_allclose(mine, theirs.predict(X.toarray() if density else X), atol=1e-7)


def test_a_ridge_alone_has_its_closed_form():
    X, y = problem(50, 20)
    f = np.linspace(0.5, 2, 20)
    (solution,) = fit(X, y, [L1L2(0.0, 3.0, l2_factors=f)], tol=1e-13)
    expected = np.linalg.solve(X.T @ X + 3 * np.diag(f), X.T @ y)
    np.testing.assert_allclose(dense(solution, 20), expected, atol=1e-6)


def test_unpenalised_features_close_to_others():
    """Descent that alternates between the two kinds would take for ever."""
    X, y = problem(8, 22, seed=120)
    f = np.random.default_rng(120).random(22) + 0.5
    f[:5] = 0
    penalty = L1L2(0.01 * strength_max(X, y), l1_factors=f)
    (solution,) = fit(X, y, [penalty], tol=1e-10)
    assert solution.reason == "gap"
    assert reference_gap(X, y, dense(solution, 22), penalty) < 1e-9


def test_unpenalised_features_may_depend_on_one_another():
    X, y = problem(50, 30, shift=2.0)
    X[:, 1] = 2 * X[:, 0]
    X[:, 2], X[:, 3] = 0.0, 7.0
    f = np.ones(30)
    f[:4] = 0
    penalty = L1L2(0.1 * strength_max(X, y, intercept=True), l1_factors=f)
    (solution,) = fit(X, y, [penalty], intercept=True, tol=1e-10)
    assert reference_gap(X, y, dense(solution, 30), penalty, intercept=True) < 1e-9
    assert not np.isin([2, 3], solution.features).any()


def test_positive_without_penalty_is_non_negative_least_squares():
    from scipy.optimize import nnls

    X, y = problem(50, 20)
    (solution,) = fit(X, y, [L1L2(0.0, positive=True)], tol=1e-9)
    assert solution.reason == "gap"
    np.testing.assert_allclose(dense(solution, 20), nnls(X, y)[0], atol=1e-6)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_constant_and_empty_and_double_columns(form):
    X, y = problem(50, 10)
    odd = np.column_stack([X, np.full(50, 1e6), np.zeros(50), X[:, 0]])
    penalty = L1L2(0.05 * strength_max(X, y, intercept=True))
    (solution,) = fit(form(odd), y, [penalty], intercept=True, tol=1e-10)
    (plain,) = fit(np.asfortranarray(X), y, [penalty], intercept=True, tol=1e-10)
    coef = dense(solution, 13)
    assert coef[10] == coef[11] == 0
    coef[0] += coef[12]
    np.testing.assert_allclose(coef[:10], dense(plain, 10), atol=1e-5)


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
@pytest.mark.parametrize(
    ("of_x", "of_y"), [(1e-300, 1), (1e290, 1), (1, 1e-300), (1, 1e300), (1e-200, 1e100)]
)
def test_scales_near_the_ends_of_float64(form, of_x, of_y):
    X, y = problem(40, 60)
    strength = 0.1 * strength_max(X, y)
    (plain,) = fit(np.asfortranarray(X), y, [L1L2(strength)], tol=1e-10)
    (scaled,) = fit(form(X * of_x), y * of_y, [L1L2(strength * of_x * of_y)], tol=1e-10)
    assert scaled.reason == "gap"
    np.testing.assert_allclose(
        dense(scaled, 60) * (of_x / of_y), dense(plain, 60), atol=1e-6 * abs(plain.coef).max()
    )


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_indices_of_either_width(index):
    X, y = problem(40, 60, density=0.3)
    expected = fit(X, y, [L1L2(5.0)])[0]
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    np.testing.assert_array_equal(fit(X, y, [L1L2(5.0)])[0].coef, expected.coef)


def test_targets_without_variance_give_the_zero_model():
    X, _ = problem(40, 60)
    (solution,) = fit(X, np.full(40, 3.0), [L1L2(0.1)], intercept=True)
    assert (solution.reason, len(solution.features), solution.intercept) == ("gap", 0, 3.0)
    assert fit(X, np.zeros(40), [L1L2(0.1)])[0].gap == 0


def test_an_unreachable_tolerance_ends():
    X, y = problem(40, 60)
    (solution,) = fit(X, y, [L1L2(0.01 * strength_max(X, y))], tol=0.0)
    assert solution.reason in ("gap", "stalled")
    assert solution.gap < 1e-13
    (cut_short,) = fit(X, y, [L1L2(0.01 * strength_max(X, y))], tol=1e-12, rounds=2)
    assert (cut_short.reason, cut_short.rounds) == ("max_rounds", 2)
