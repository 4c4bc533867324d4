"""Where a fit begins: from a model of other rows, from columns without penalty, from nearly none at all."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import stradask as sd

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 6))
SLOPES = X @ [1.0, -0.5, 0, 0, 0.3, 0]
COUNTS = RNG.poisson(np.exp(SLOPES)).astype(float)
CLASSES = (np.c_[SLOPES, -SLOPES, 0 * SLOPES] + RNG.gumbel(size=(120, 3))).argmax(axis=1)
TARGETS = {
    "two classes": (sd.SparseLogisticRegression(0.01), CLASSES == 1),
    "classes": (sd.SparseLogisticRegression(0.01), CLASSES),
    "groups": (sd.GroupLogisticRegression(groups=[0, 0, 1, 1, 2, 2], alpha=0.01), CLASSES),
    "counts": (sd.SparseGLM("poisson", alpha=0.01), COUNTS),
    "sizes": (sd.SparseGLM("gamma", alpha=0.01), COUNTS + 0.1),
    "ridge of counts": (sd.PoissonRegressor(), COUNTS),
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", TARGETS)
def test_a_start_that_is_worse_than_no_columns_is_left(name, fit_intercept):
    """Coefficients 300 times too large: exponentials overflow, or probabilities have no curvature."""
    model, y = TARGETS[name]
    model = clone(model).set_params(tol=1e-8, warm_start=True, fit_intercept=fit_intercept)
    rows = X + 50 * fit_intercept
    warm, cold = clone(model).fit(rows, y).fit(300 * rows, y), clone(model).fit(300 * rows, y)
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array])
@pytest.mark.parametrize("value", [0.0, 7.3])
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (sd.Lasso(0.05), SLOPES),
        (sd.MultiTaskLasso(alpha=0.05), np.c_[SLOPES, SLOPES]),
        (sd.SparseGLM("huber", alpha=0.05), SLOPES),
        (sd.SparseGLM(penalty="mcp", alpha=0.05), SLOPES),
        (sd.SparseLogisticRegression(0.02), CLASSES),
        (sd.GroupLasso(groups=2, alpha=0.05), SLOPES),
    ],
)
def test_a_column_that_is_constant_now_has_no_coefficient(model, y, value, form):
    constant = X.copy()
    constant[:, 0] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warm = clone(model).set_params(warm_start=True).fit(form(X), y).fit(form(constant), y)
    assert not np.atleast_2d(warm.coef_)[:, 0].any()


def test_targets_of_rows_without_weight_are_not_looked_at():
    weights = np.arange(120) > 0
    y = np.where(weights, COUNTS, -5.0)
    model = sd.SparseGLM("poisson", alpha=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coef = model.fit(X, y, sample_weight=weights).coef_
    np.testing.assert_allclose(coef, model.fit(X[1:], COUNTS[1:]).coef_, atol=1e-4)


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_more_columns_without_penalty_than_rows(form, warm_start):
    """The residual is zero, by coefficients that are not large, though columns are far from zero."""
    rows = RNG.standard_normal((12, 60)) + 1e3 * RNG.standard_normal(60)
    y = RNG.standard_normal(12)
    factor = np.arange(60) % 3 != 0
    model = sd.Lasso(0.1, penalty_factor=factor, tol=1e-6, warm_start=warm_start).fit(form(rows), y)
    for alpha in (0.2, 0.1) if warm_start else ():
        model.set_params(alpha=alpha).fit(form(rows), y)
    np.testing.assert_allclose(model.predict(form(rows)), y, atol=1e-6)
    assert np.abs(model.coef_).max() < 1
    assert model.dual_gap_ < 1e-6


def test_a_warm_start_keeps_the_intercept_of_columns_without_penalty():
    rows = sparse.csc_array(X + 5.0)
    model = sd.ElasticNet(0.05, penalty_factor=[0, 1, 1, 1, 1, 1], tol=1e-8, warm_start=True)
    warm = model.fit(rows, SLOPES).set_params(alpha=0.02).fit(rows, SLOPES)
    assert np.mean(SLOPES - warm.predict(rows)) == pytest.approx(0, abs=1e-9)


def test_three_classes_with_little_penalty_take_few_passes():
    """The same shift of all classes changes nothing but the penalty, which descent brings down slowly."""
    model = sd.SparseLogisticRegression(1e-5, tol=1e-6).fit(X, CLASSES)
    assert model.n_iter_ <= 10
    middle = np.sort(model.coef_, axis=0)[1]
    np.testing.assert_array_equal(middle, 0)


def test_positive_coefficients_without_penalty_of_three_classes():
    """A model of the same likelihood that scipy's bounded minimiser finds."""
    from scipy.optimize import minimize

    def loss(b):
        f = X @ b.reshape(3, 6).T
        return (
            float(np.mean(np.logaddexp.reduce(f, axis=1) - f[np.arange(120), CLASSES])) + 0.01 * b[1::2].sum()
        )

    factor = np.arange(6) % 2
    model = sd.SparseLogisticRegression(
        0.01, penalty_factor=factor, positive=True, fit_intercept=False, tol=1e-6
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, CLASSES)
    assert model.coef_.min() >= 0
    start = np.ascontiguousarray(model.coef_).ravel()
    best = minimize(loss, start, bounds=[(0, None)] * 18, method="L-BFGS-B", options={"ftol": 1e-15})
    assert loss(start) <= best.fun + 2e-6


def test_constant_sparse_columns_have_a_scale():
    rows = X.copy()
    rows[:, 1] = -11.36923042
    weights = np.random.default_rng(1).random(120) * 3
    model = sd.Lasso(0.05, standardize=True, tol=1e-8)
    coef = model.fit(sparse.csc_array(rows), SLOPES, sample_weight=weights).coef_
    np.testing.assert_allclose(coef, model.fit(rows, SLOPES, sample_weight=weights).coef_, atol=1e-6)
    assert coef[1] == 0


@pytest.mark.parametrize("form", [np.asarray, sparse.csc_array, lambda X: X.astype(np.float32)])
def test_free_positive_columns_that_are_equal_have_no_slope_but_rounding(form):
    """Of two equal columns at or above zero one has the coefficient, and the other a slope of rounding."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 4))
        X[:, 1] = X[:, 0]
        y = X @ [1.0, 1, 1, 0] + rng.standard_normal(30)
        model = sd.Lasso(0.1, penalty_factor=[0, 0, 1, 1], positive=True, tol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.fit(form(X), y)
        slopes = (X - X.mean(axis=0)).T @ (y - X @ model.coef_) / 30
        assert (slopes < np.array([0, 0, 0.1, 0.1]) + 1e-5).all()


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_free_columns_that_know_y_leave_nothing_to_fit(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 30)).astype(np.float32)
    y = np.round(np.exp(X[:, :3].sum(axis=1).clip(-3, 3)))
    model = sd.SparseGLM(loss, alpha=0.1, penalty_factor=[0] * 25 + [1] * 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y)
    assert model.n_iter_ == 1
    assert not model.coef_[25:].any()
    np.testing.assert_allclose(model.predict(X), y, atol=1e-4)


def test_blocks_of_columns_that_depend_on_each_other_reach_the_tolerance():
    """Each block is near its optimum when a sweep visits it, and all of them together are far."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((68, 77)) @ (np.eye(77) + 0.5)
    Y = X[:, :20] @ rng.standard_normal((20, 3)) + rng.standard_normal((68, 3))
    model = sd.MultiTaskElasticNet(l1_ratio=0.1, tol=1e-6)
    model.set_params(alpha=model.alpha_max(X, Y) / 5000).fit(X, Y)
    assert model.stopped_by_ == "duality gap"
    assert model.n_iter_ < 30


def test_figures_of_a_stopped_fit_are_of_its_penalty():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 400))
    y = X[:, :5].sum(axis=1) + rng.standard_normal(60)
    model = sd.SparseGLM(penalty="mcp", alpha=0.1).fit(X, y, callback=lambda info: info.round == 2)
    assert model.stopped_by_ == "stopped"
    assert len(model.history_["round"]) == model.n_iter_ == 2
    size = np.abs(model.coef_[model.coef_ != 0])
    residual = y - model.predict(X)
    charge = np.where(size < 0.3, 0.1 * size - size**2 / 6, 3 * 0.1**2 / 2).sum()
    np.testing.assert_allclose(model.objective_, residual @ residual / 120 + charge, rtol=1e-9)
    slopes = X.T @ residual / 60
    wanted = np.sign(model.coef_) * np.maximum(0.1 - np.abs(model.coef_) / 3, 0)
    short = np.where(model.coef_ == 0, np.maximum(np.abs(slopes) - 0.1, 0), np.abs(slopes - wanted))
    np.testing.assert_allclose(model.kkt_violation_, short.max(), rtol=1e-6)
    assert model.kkt_violation_ > 0.01


@pytest.mark.parametrize("l1_ratio", [0.0, 0.3])
def test_groups_of_classes_with_little_penalty_take_few_passes(l1_ratio):
    """A bound of the curvature of classes that are nearly separable leads nowhere: their own Hessian does."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 40)) * 10.0 ** rng.uniform(-3, 3, 40)
    y = (X / X.std(axis=0))[:, :3].argmax(axis=1)
    model = sd.GroupLogisticRegression(4, l1_ratio=l1_ratio, tol=1e-6)
    model.set_params(alpha=model.alpha_max(X, y) / 300).fit(X, y)
    assert model.stopped_by_ == "duality gap"
    assert model.n_iter_ < 15
    p, shares = model.predict_proba(X), y[:, None] == np.arange(3)
    slopes = (
        X.T @ (shares - p) / 40
    )  # those of a group are as long as the penalty is steep, where it is not 0
    for group in range(0, 40, 4):
        b, slope = model.coef_.T[group : group + 4], slopes[group : group + 4]
        rest = np.sign(slope) * np.maximum(np.abs(slope) - model.alpha * l1_ratio, 0)
        if b.any():
            steep = model.alpha * (1 - l1_ratio) * 2 * b / np.linalg.norm(b)
            rest = np.where(b == 0, rest, slope - model.alpha * l1_ratio * np.sign(b)) - steep
            assert np.linalg.norm(rest) < 0.03 * model.alpha
        else:
            assert np.linalg.norm(rest) < 2.03 * model.alpha * (1 - l1_ratio)
