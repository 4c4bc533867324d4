"""Paths from second moments: gaps from X itself, scikit-learn's coefficients, and what is handed over."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import linear_model

import stradask as sd
from stradask.algorithms.linear.sparse import moments
from stradask.algorithms.linear.sparse.fitting import Design
from stradask.algorithms.linear.sparse.least_squares import LeastSquares

FORMS = {"dense": np.asfortranarray, "rows": np.ascontiguousarray, "csc": sparse.csc_array}


def data(seed, n=60, p=8, shift=2.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * (rng.random((n, p)) < 0.7) * rng.uniform(0.1, 10, p)
    X[:, p // 2] = X[:, 0] + 0.05 * rng.standard_normal(n)
    y = X[:, 0] - 2 * X[:, p - 1] + shift + rng.standard_normal(n)
    return X, y, rng.uniform(0, 3, n) * (rng.random(n) < 0.8)


def gap_of(X, y, w, coef, alpha, ratio, *, intercept=True, positive=False, factors=1.0):
    """Gap of some coefficients, relative to the zero model's objective, from residuals in long double."""
    X, y, w, coef = (np.asarray(part, np.longdouble) for part in (X, y, w, coef))
    w = w / w.sum()
    if intercept:
        X, y = X - w @ X, y - w @ y
    finite = np.isfinite(np.broadcast_to(factors, len(coef)))
    factors = np.where(finite, factors, 1.0)
    r = y - X @ coef
    l1, l2 = alpha * ratio * factors, alpha * (1 - ratio) * factors
    pulls = X.T @ (w * r) - l2 * coef
    pulls = (np.maximum(pulls, 0) if positive else np.abs(pulls))[finite]
    total = w @ r**2 + l2 @ coef**2
    limit = (l1[finite] / np.where(pulls > 0, pulls, 1e-300)).min(initial=np.inf)
    s = np.clip((w * y) @ r / total, 0, limit)
    primal = 0.5 * total + l1 @ np.abs(coef)
    return float((primal - (s * ((w * y) @ r) - 0.5 * s * s * total)) / (0.5 * (w @ y**2)))


@pytest.fixture
def only_moments(monkeypatch):
    """Fail where the working set is asked."""

    def refuse(*args, **options):
        raise AssertionError("the working set was asked")

    monkeypatch.setattr(LeastSquares, "solve", refuse)


@pytest.mark.usefixtures("only_moments")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ratio", [1.0, 0.3])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("positive", [True, False])
def test_gaps_from_x_are_those_that_are_returned(form, ratio, intercept, positive):
    for seed, tol in ((0, 1e-4), (1, 1e-8)):
        X, y, w = data(seed, shift=2.0 * intercept)
        factors = np.array([1, 2, 0.5, np.inf, 1, 1, 3, 1.0])
        options = {"fit_intercept": intercept, "positive": positive, "penalty_factor": factors}
        options |= {"tol": tol, "l1_ratio": ratio, "sample_weight": w, "n_alphas": 30}
        alphas, coefs, gaps, *more = sd.enet_path(FORMS[form](X), y, **options)
        unit = np.average((y - intercept * np.average(y, weights=w)) ** 2, weights=w) / 2
        assert not coefs[3].any()
        assert not coefs[:, 0].any()
        assert coefs[:, -1].any()
        for k, alpha in enumerate(alphas):
            options = {"intercept": intercept, "positive": positive, "factors": factors}
            gap = gap_of(X, y, w, coefs[:, k], alpha, ratio, **options)
            assert gap <= tol
            assert gaps[k] / unit == pytest.approx(gap, abs=0.01 * tol)
        if intercept:
            best = np.average(y[:, None] - X @ coefs, axis=0, weights=w)
            np.testing.assert_allclose(more[0], best, rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("only_moments")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"positive": True}])
def test_estimators_agree_with_scikit_learn(form, options):
    X, y, w = data(2)
    for name, more in (("Lasso", {}), ("ElasticNet", {"l1_ratio": 0.4})):
        given = {"alpha": 0.3, **options, **more}
        ours = getattr(sd, name)(**given, tol=1e-9).fit(FORMS[form](X), y, w)
        theirs = getattr(linear_model, name)(**given, tol=1e-13, max_iter=100_000).fit(FORMS[form](X), y, w)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
        assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-3)
        P = [0.5 * np.average((y - m.predict(X)) ** 2, weights=w) for m in (ours, theirs)]
        ratio = more.get("l1_ratio", 1.0)
        for k, m in enumerate((ours, theirs)):
            P[k] += 0.3 * (ratio * np.abs(m.coef_).sum() + 0.5 * (1 - ratio) * (m.coef_ @ m.coef_))
        assert P[0] <= P[1] * (1 + 1e-8)
        assert ours.n_iter_ == 1 == len(ours.history_["round"])
        assert ours.history_["objective"][0] == pytest.approx(P[0])
        assert ours.dual_gap_ >= 0


@pytest.mark.usefixtures("only_moments")
@pytest.mark.parametrize("form", FORMS)
def test_columns_that_are_constant_where_rows_have_weight(form):
    X, y, w = data(3)
    X[:, 2], X[:, 5] = 1e9 / 3, 0.0
    X[w > 0, 6] = 0.1
    model = sd.Lasso(0.05, tol=1e-8).fit(FORMS[form](X), y, w)
    assert not model.coef_[[2, 5, 6]].any()
    assert gap_of(X, y, w, model.coef_, 0.05, 1.0) <= 1e-8
    np.testing.assert_allclose(model.intercept_, np.average(y - X @ model.coef_, weights=w))


@pytest.mark.usefixtures("only_moments")
def test_one_column_has_the_closed_form():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(30)
    y = 3 * x + 1
    centred = x - x.mean()
    slope = centred @ y / 30
    for alpha in (0.5, 2 * abs(slope)):
        expected = np.sign(slope) * max(abs(slope) - alpha, 0) / (centred @ centred / 30)
        model = sd.Lasso(alpha, tol=1e-11).fit(x[:, None], y)
        assert model.coef_[0] == pytest.approx(expected, rel=1e-5)


def test_one_row_and_a_constant_target_have_no_coefficient():
    assert sd.Lasso(0.1).fit([[2.0]], [3.0]).intercept_ == 3.0
    model = sd.Lasso(0.1, fit_intercept=False, tol=1e-10).fit([[2.0]], [3.0])
    assert model.coef_[0] == pytest.approx((3.0 - 0.1 / 2) / 2, rel=1e-4)
    model = sd.Lasso(0.1).fit(data(0)[0], np.full(60, 7.0))
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(7.0)


@pytest.mark.usefixtures("only_moments")
@pytest.mark.parametrize("form", FORMS)
def test_single_precision_returns_gaps_of_rounded_coefficients(form):
    X, y, w = data(4)
    X = X.astype(np.float32)
    alphas, coefs, gaps, _ = sd.lasso_path(FORMS[form](X), y, sample_weight=w, tol=1e-6, fit_intercept=True)
    assert coefs.dtype == np.float32
    unit = np.average((y - np.average(y, weights=w)) ** 2, weights=w) / 2
    for k, alpha in enumerate(alphas):
        assert gaps[k] / unit == pytest.approx(gap_of(X, y, w, coefs[:, k], alpha, 1.0), abs=1e-9)
    model = sd.ElasticNet(alphas[50], tol=1e-6).fit(FORMS[form](X), y, w)
    gap = gap_of(X, y, w, model.coef_, alphas[50], 0.5)
    assert model.dual_gap_ / unit == pytest.approx(gap, abs=1e-9)


def test_standardised_columns_are_divided_columns():
    X, y, w = data(5)
    for intercept in (True, False):
        mean = np.average(X, axis=0, weights=w) * intercept
        scales = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
        options = {"tol": 1e-10, "fit_intercept": intercept}
        ours = sd.Lasso(0.2, standardize=True, **options).fit(X, y, w)
        other = sd.Lasso(0.2, **options).fit(X / scales, y, w)
        np.testing.assert_allclose(ours.coef_ * scales, other.coef_, atol=1e-4)


def test_several_targets_and_a_warm_start():
    X, y, _ = data(6)
    Y = np.column_stack([y, -2 * y, X[:, 1]])
    model = sd.Lasso(0.1, tol=1e-9, warm_start=True).fit(X, Y)
    for k in range(3):
        np.testing.assert_array_equal(model.coef_[k], sd.Lasso(0.1, tol=1e-9).fit(X, Y[:, k]).coef_)
    assert model.history_["target"].tolist() == [0, 1, 2]
    first = model.coef_.copy()
    assert model.fit(X, Y).history_["updates"].sum() == 0
    np.testing.assert_array_equal(model.coef_, first)


# What is handed over ----------------------------------------------------------------------------------


def count(monkeypatch):
    calls = []
    inner = LeastSquares.solve
    counted = lambda *args, **options: calls.append(1) or inner(*args, **options)  # noqa: E731
    monkeypatch.setattr(LeastSquares, "solve", counted)
    return calls


@pytest.mark.parametrize("spread", [1e-3, 1e-6])
def test_columns_far_from_zero_keep_their_digits(spread, monkeypatch):
    X, y, w = data(8)
    far = 1e6 + spread * X
    calls = count(monkeypatch)
    alpha = sd.Lasso().alpha_max(far, y, w) / 20
    model = sd.Lasso(alpha, tol=1e-6).fit(far, y, w)
    assert calls
    assert gap_of(far, y, w, model.coef_, alpha, 1.0) <= 1e-6


@pytest.mark.parametrize("factor", [1e-160, 1e140])
def test_extreme_scales_are_handed_over(factor, monkeypatch):
    X, y, _ = data(9)
    calls = count(monkeypatch)
    alpha = sd.Lasso().alpha_max(X * factor, y) / 5
    coef = sd.Lasso(alpha, tol=1e-8).fit(X * factor, y).coef_ * factor
    assert calls
    np.testing.assert_allclose(coef, sd.Lasso(alpha / factor, tol=1e-8).fit(X, y).coef_, atol=1e-3)


def test_a_gap_below_rounding_errors_is_handed_over(monkeypatch):
    X, y, w = data(10)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]
    calls = count(monkeypatch)
    model = sd.Lasso(1e-6, tol=1e-13).fit(X, y, w)
    assert calls
    assert gap_of(X, y, w, model.coef_, 1e-6, 1.0) <= 1e-12


@pytest.mark.parametrize(
    "more",
    [{"penalty_factor": [0, 1, 1, 1, 1, 1, 1, 1]}, {"l1_ratio": 0.0, "alphas": [1.0]}, {"alphas": [1, 0]}],
)
@pytest.mark.filterwarnings("ignore:alpha=0")
def test_problems_without_an_l1_penalty_are_handed_over(more, monkeypatch):
    X, y, _ = data(11)
    calls = count(monkeypatch)
    sd.enet_path(X, y, **more)
    assert calls


@pytest.mark.slow
def test_random_problems_meet_the_gap_on_either_way(monkeypatch):
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(2, 80)), int(rng.integers(1, 40))
        X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, p)) + 10 ** rng.uniform(
            -4, 0
        ) * rng.standard_normal((n, p))
        X *= 10 ** rng.uniform(-3, 3, p)
        y, w = X @ rng.standard_normal(p) + rng.standard_normal(n), rng.uniform(0.01, 1, n)
        options = {
            "fit_intercept": bool(seed % 2),
            "positive": seed % 3 == 0,
            "l1_ratio": 1.0 if seed % 5 else 0.6,
        }
        tol = 10.0 ** -rng.integers(3, 9)
        design = Design.make(
            np.asfortranarray(X),
            w / w.mean(),
            None,
            standardize=False,
            fit_intercept=options["fit_intercept"],
            positive=options["positive"],
        )
        problem = moments.problem_of(design, y)
        alphas, coefs, *_ = sd.enet_path(X, y, sample_weight=w, tol=tol, **options)
        for k in range(0, 100, 7):
            gap = gap_of(
                X,
                y,
                w,
                coefs[:, k],
                alphas[k],
                options["l1_ratio"],
                intercept=options["fit_intercept"],
                positive=options["positive"],
            )
            assert gap <= tol * 1.001, (seed, n, p, tol, gap, problem is None)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_in_c_order_give_the_moments_of_columns_without_a_copy(monkeypatch, weighted, dtype):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((70_000, 3)) + np.array([1e3, -5.0, 0.0])).astype(dtype)  # several blocks
    y, w = X @ np.array([1.0, 2.0, 3.0]) + rng.standard_normal(70_000), rng.uniform(0, 2, 70_000)
    w = w if weighted else None
    shift = moments.shift_of(X, y[:, None], True)
    A = np.column_stack([X - shift.columns, y - shift.targets, np.ones(70_000)])
    expected = A.T @ (A if w is None else A * w[:, None])
    for form in (X, np.asfortranarray(X)):
        np.testing.assert_allclose(
            moments.moments_of(form, y[:, None], w, shift), expected, rtol=1e-9, atol=1e-6
        )
    by_columns = sd.Lasso(0.1, tol=1e-6).fit(np.asfortranarray(X), y, w)
    monkeypatch.setattr(np, "asfortranarray", lambda X: pytest.fail("X was copied"))
    model = sd.Lasso(0.1, tol=1e-6).fit(X, y, w)
    np.testing.assert_allclose(model.coef_, by_columns.coef_, rtol=1e-4)
    assert model.intercept_ == pytest.approx(by_columns.intercept_, rel=1e-4)
