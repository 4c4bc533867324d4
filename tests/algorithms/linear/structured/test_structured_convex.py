"""Convex losses and penalties of the generic solver, against other solvers and conditions."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn import linear_model

import stradask as sd
from stradask.algorithms.linear.predictions import linear_predictor

RNG = np.random.default_rng(0)
N, P = 80, 24
X = RNG.standard_normal((N, P)) + 0.5 * RNG.standard_normal((N, 1)) + 2.0
TRUTH = np.zeros(P)
TRUTH[:6] = [1.5, -1.0, 0.5, 0.0, 2.0, -0.5]
F = (X - 2.0) @ TRUTH
Y = F + RNG.standard_normal(N) + 1.0
COUNTS = RNG.poisson(np.exp(0.3 * F)).astype(float)
LABELS = (Y > 1).astype(float)
WEIGHTS = RNG.uniform(0.2, 2, N)
GROUPS = np.arange(P) // 4
TARGETS = {
    "squared": Y, "logistic": LABELS, "poisson": COUNTS, "gamma": COUNTS + 0.5, "tweedie": COUNTS, "huber": Y,
}  # fmt: skip
MEANS = {"logistic": lambda f: 1 / (1 + np.exp(-f)), "squared": lambda f: f, "poisson": np.exp}


def value(loss, y, f):
    """Losses of rows, written again."""
    r = np.abs(y - f)
    return {
        "squared": lambda: (y - f) ** 2 / 2,
        "logistic": lambda: np.log1p(np.exp(f)) - y * f,
        "poisson": lambda: np.exp(f) - y * f,
        "gamma": lambda: y * np.exp(-f) + f,
        "tweedie": lambda: 2 * np.exp(f / 2) + 2 * y * np.exp(-f / 2),
        "huber": lambda: np.where(r <= 1.35, r**2 / 2, 1.35 * (r - 1.35 / 2)),
    }[loss]()


def least(loss, y, *, l1, l2, weights, offset):
    """The least objective with l1 and squared penalties, by L-BFGS-B on positive and negative parts."""

    def objective(z):
        b = z[:P] - z[P : 2 * P]
        f = X @ b + z[-1] + offset
        return np.average(value(loss, y, f), weights=weights) + l1 * z[: 2 * P].sum() + l2 / 2 * b @ b

    bounds = [(0, None)] * (2 * P) + [(None, None)]
    options = {"maxiter": 3000, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-9}
    return minimize(objective, np.zeros(2 * P + 1), method="L-BFGS-B", bounds=bounds, options=options).fun


@pytest.mark.parametrize("loss", TARGETS)
def test_the_objective_is_the_least_one_and_its_gap_bounds_it(loss):
    y, offset = TARGETS[loss], 0.1 * X[:, 5]
    model = sd.SparseGLM(loss, "elastic-net", alpha=0.05, l1_ratio=0.8, tol=1e-10)
    model.fit(X, y, WEIGHTS, offset=offset)
    f = linear_predictor(model, model.predict, X, offset)
    b = model.coef_
    own = np.average(value(loss, y, f), weights=WEIGHTS) + 0.05 * (0.8 * np.abs(b).sum() + 0.1 * b @ b)
    assert model.objective_ == pytest.approx(own, rel=1e-12)
    assert own <= least(loss, y, l1=0.04, l2=0.01, weights=WEIGHTS, offset=offset) + 1e-8
    assert model.stopped_by_ == ("kkt violation" if loss == "tweedie" else "duality gap")
    loose = sd.SparseGLM(loss, "elastic-net", alpha=0.05, l1_ratio=0.8, tol=3e-2)
    loose.fit(X, y, WEIGHTS, offset=offset)
    if loss != "tweedie":
        assert loose.dual_gap_ >= loose.objective_ - own - 1e-12
        assert model.dual_gap_ <= 1e-8


def violations(model, y, loss, groups, *, l1, lam, weights=None):
    """Distances of the slopes of groups from the subdifferentials, and the slope of the intercept."""
    weights = np.full(N, 1 / N) if weights is None else weights / weights.sum()
    u = weights * (MEANS[loss](X @ model.coef_ + model.intercept_) - y)
    out = []
    for g, strength in zip(np.unique(groups), lam, strict=True):
        b, v = model.coef_[groups == g], -(X.T @ u)[groups == g]
        v = np.where(b == 0, np.sign(v) * np.maximum(np.abs(v) - l1, 0), v - l1 * np.sign(b))
        size = np.linalg.norm(b)
        out.append(np.linalg.norm(v - strength * b / size) if size else max(np.linalg.norm(v) - strength, 0))
    return np.array(out), abs(u.sum())


@pytest.mark.parametrize("ratio", [0.0, 0.4])
@pytest.mark.parametrize("loss", MEANS)
def test_groups_satisfy_the_optimality_conditions(loss, ratio):
    alpha, y = 0.06, TARGETS[loss]
    if loss == "logistic":
        model = sd.GroupLogisticRegression(GROUPS, alpha=alpha, l1_ratio=ratio, tol=1e-13)
    else:
        model = sd.GroupLasso(GROUPS, alpha=alpha, l1_ratio=ratio, loss=loss, tol=1e-13)
    model.fit(X, y, WEIGHTS)
    assert model.dual_gap_ < 1e-10
    model.coef_, model.intercept_ = np.ravel(model.coef_), np.ravel(model.intercept_)[0]
    lam = np.full(6, alpha * (1 - ratio) * 2.0)
    worst, free = violations(model, y, loss, GROUPS, l1=alpha * ratio, lam=lam, weights=WEIGHTS)
    assert worst.max() < 1e-6
    assert free < 1e-9
    there = np.array([model.coef_[g == GROUPS].any() for g in range(6)])
    assert there.any()
    assert not there.all()


def test_factors_leave_groups_free_and_exclude_them():
    factors = np.array([1.0, 0.0, 2.0, np.inf, 1.0, 1.0])
    model = sd.GroupLasso(GROUPS, alpha=0.5, penalty_factor=factors, tol=1e-12).fit(X, Y)
    assert not model.coef_[GROUPS == 3].any()
    lam = np.where(np.isfinite(factors), 0.5 * factors, 1e300)
    worst, _ = violations(model, Y, "squared", GROUPS, l1=0, lam=lam)
    assert worst.max() < 1e-6
    free = sd.GroupLasso(GROUPS, alpha=1e3, penalty_factor=factors, tol=1e-12).fit(X, Y)
    kept = GROUPS == 1
    expected = np.linalg.lstsq(np.column_stack([X[:, kept], np.ones(N)]), Y, rcond=None)[0]
    np.testing.assert_allclose(np.append(free.coef_[kept], free.intercept_), expected, atol=1e-9)
    assert not free.coef_[~kept].any()


def test_labels_lists_and_sizes_name_the_same_groups():
    order = RNG.permutation(P)
    labels = np.array(list("fedcba"))[GROUPS]
    lists = [np.flatnonzero(g == GROUPS).tolist() for g in range(6)]
    models = [sd.GroupLasso(groups, alpha=0.1, tol=1e-12).fit(X, Y).coef_ for groups in (4, labels, lists)]
    np.testing.assert_allclose(models[1], models[0], atol=1e-8)
    np.testing.assert_allclose(models[2], models[0], atol=1e-8)
    shuffled = sd.GroupLasso(GROUPS[order], alpha=0.1, tol=1e-12).fit(X[:, order], Y).coef_
    np.testing.assert_allclose(shuffled, models[0][order], atol=1e-8)


def test_overlapping_groups_are_copies():
    lists = [[0, 1, 2, 3], [2, 3, 4, 5], *([j] for j in range(6, P))]
    model = sd.GroupLasso(lists, alpha=0.1, overlap=True, tol=1e-12).fit(X, Y)
    copies = np.concatenate(lists)
    labels = np.repeat(np.arange(len(lists)), [len(part) for part in lists])
    by_hand = sd.GroupLasso(labels, alpha=0.1, tol=1e-12).fit(X[:, copies], Y)
    np.testing.assert_allclose(model.group_coef_, by_hand.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict(X), by_hand.predict(X[:, copies]), atol=1e-7)


@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_several_targets_are_those_of_scikit_learn(ratio):
    targets = np.column_stack([Y, -Y + RNG.standard_normal(N), RNG.standard_normal(N)])
    ours = sd.MultiTaskElasticNet(0.3, l1_ratio=ratio, tol=1e-14).fit(X, targets)
    theirs = linear_model.MultiTaskElasticNet(alpha=0.3, l1_ratio=ratio, tol=1e-14, max_iter=100_000)
    theirs.fit(X, targets)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-6)
    if ratio == 1:
        np.testing.assert_array_equal(sd.MultiTaskLasso(0.3, tol=1e-14).fit(X, targets).coef_, ours.coef_)


@pytest.mark.parametrize(("quantile", "alpha"), [(0.5, 0.02), (0.9, 0.1), (0.2, 0.1)])
def test_quantiles_reach_the_objective_of_the_linear_program(quantile, alpha):
    ours = sd.QuantileRegressor(quantile, alpha=alpha, tol=1e-6).fit(X, Y)
    theirs = linear_model.QuantileRegressor(quantile=quantile, alpha=alpha).fit(X, Y)

    def exact(coef, intercept):
        r = Y - X @ coef - intercept
        return np.mean(np.maximum(quantile * r, (quantile - 1) * r)) + alpha * np.abs(coef).sum()

    best = exact(theirs.coef_, theirs.intercept_)
    assert ours.objective_ == pytest.approx(exact(ours.coef_, ours.intercept_), rel=1e-12)
    assert -1e-9 <= ours.objective_ - best <= ours.dual_gap_ + 1e-12
    assert ours.dual_gap_ < 2e-6


def test_exposure_is_an_offset_and_weights_are_those_of_rates():
    years = RNG.uniform(1, 4, N)
    model = sd.SparsePoissonRegressor(0.05, tol=1e-12)
    coef = model.fit(X, COUNTS, exposure=years).coef_
    np.testing.assert_allclose(model.predict(X[:3], exposure=years[:3]), model.predict(X[:3]) * years[:3])
    np.testing.assert_array_equal(model.fit(X, COUNTS, offset=np.log(years)).coef_, coef)
    rates = model.fit(X, COUNTS / years, years).coef_
    np.testing.assert_allclose(
        sd.SparsePoissonRegressor(0.05, tol=1e-12).fit(X, COUNTS / years, years).coef_, rates
    )


@pytest.mark.parametrize("loss", ["squared", "poisson", "huber"])
def test_sparse_and_single_precision_matrices_give_the_same(loss):
    thin = np.where(RNG.random(X.shape) < 0.4, X, 0)
    dense = sd.SparseGLM(loss, alpha=0.05, groups=4, tol=1e-12).fit(thin, TARGETS[loss])
    for form in (sparse.csr_array, sparse.csc_matrix):
        model = sd.SparseGLM(loss, alpha=0.05, groups=4, tol=1e-12).fit(form(thin), TARGETS[loss])
        np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-6)
        np.testing.assert_allclose(model.predict(form(thin)), dense.predict(thin), atol=1e-6)
    single = sd.SparseGLM(loss, alpha=0.05, groups=4, tol=1e-8).fit(thin.astype(np.float32), TARGETS[loss])
    np.testing.assert_allclose(single.coef_, dense.coef_, atol=1e-3)


def test_bounds_hold():
    model = sd.SparseGLM(alpha=0.05, positive=True, tol=1e-13).fit(X, Y)
    theirs = linear_model.Lasso(alpha=0.05, positive=True, tol=1e-13, max_iter=100_000).fit(X, Y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-6)
    low, high = np.where(np.arange(P) % 2, -0.3, 0.0), np.full(P, 0.8)
    model = sd.SparseGLM("logistic", alpha=0.01, bounds=(low, high), tol=1e-12).fit(X, LABELS)
    b, u = model.coef_, (1 / (1 + np.exp(-linear_predictor(model, model.predict, X))) - LABELS) / N
    v = -X.T @ u - 0.01 * np.sign(b)
    assert ((b >= low) & (b <= high)).all()
    assert (b == 0.8).any()
    np.testing.assert_allclose(v[(b > low) & (b < high) & (b != 0)], 0, atol=1e-7)
    assert (v[b == 0.8] >= -1e-9).all()
    assert (v[(b == low) & (b < 0)] <= 1e-9).all()
    assert model.dual_gap_ < 1e-10
    groups = sd.GroupLasso(4, alpha=0.05, positive=True, tol=1e-12).fit(X, Y)
    assert groups.coef_.min() >= 0
    assert groups.dual_gap_ < 1e-9


def test_paths_are_single_fits_and_begin_at_alpha_max():
    model = sd.GroupLasso(4, l1_ratio=0.3, tol=1e-12)
    alphas, coefs, intercepts, gaps = model.path(X, Y, alphas=5, eps=0.01)
    assert alphas[0] == pytest.approx(model.alpha_max(X, Y))
    assert not np.any(coefs[:, 0])
    assert np.any(sd.GroupLasso(4, l1_ratio=0.3, alpha=0.999 * alphas[0], tol=1e-12).fit(X, Y).coef_)
    single = sd.GroupLasso(4, l1_ratio=0.3, alpha=alphas[3], tol=1e-12).fit(X, Y)
    np.testing.assert_allclose(coefs[:, 3], single.coef_, atol=1e-6)
    assert intercepts[3] == pytest.approx(single.intercept_, abs=1e-5)
    assert gaps.max() < 1e-9
    assert sd.SparseGLM().alpha_max(X, Y) == pytest.approx(sd.Lasso().alpha_max(X, Y))


def test_collinear_and_constant_columns_are_no_trouble():
    wide = np.column_stack([X, X[:, :3], np.ones(N), np.zeros(N)])
    model = sd.GroupLasso(np.arange(wide.shape[1]) // 5, alpha=0.1, tol=1e-10).fit(wide, Y)
    assert model.stopped_by_ == "duality gap"
    assert model.dual_gap_ < 1e-9
    far = sd.SparseGLM(alpha=0.1, tol=1e-10).fit(X + 1e6, Y)
    np.testing.assert_allclose(far.coef_, sd.SparseGLM(alpha=0.1, tol=1e-10).fit(X, Y).coef_, atol=1e-6)
