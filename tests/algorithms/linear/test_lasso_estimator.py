"""Lasso and elastic net against scikit-learn, and against optimality conditions computed in plain numpy."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lasso_problems import FORMS, centred, gap, primal, problem
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet as TheirElasticNet
from sklearn.linear_model import Lasso as TheirLasso
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.preprocessing import StandardScaler

import stradask as sd
from stradask.errors import DataError

TIGHT = 1e-12


def assert_optimal(X, y, model, *, factor=1.0, weights=None, rtol=1e-5):
    """Hold the subgradient conditions, in units of the largest slope of the empty model."""
    b = np.asarray(model.coef_, float)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, float)
    w = w / w.sum()
    residual = y - X @ b - model.intercept_
    if model.fit_intercept:
        assert abs(w @ residual) <= rtol * np.abs(y).max()
    f = factor * np.ones(len(b))
    slope = X.T @ (w * residual) - model.alpha * (1 - model.l1_ratio) * f * b
    edge = model.alpha * model.l1_ratio * f
    start = y - (w @ y if model.fit_intercept else 0)
    eps = rtol * max(np.abs(X.T @ (w * start)).max(), 1e-300)
    on = b != 0
    assert (np.abs(slope - edge * np.sign(b))[on] <= eps).all()
    upper = slope if model.positive else np.abs(slope)
    assert (upper[~on] <= edge[~on] + eps).all()
    if model.positive:
        assert (b >= 0).all()


@pytest.mark.parametrize(
    ("form", "weighted", "l1_ratio", "positive", "fit_intercept"),
    [  # each pair of levels
        ("fortran", True, 0.3, True, False),
        ("fortran", False, 1.0, False, True),
        ("csc", True, 0.3, False, True),
        ("csc", True, 1.0, True, True),
        ("csc", False, 0.3, False, False),
        ("csc", False, 1.0, True, False),
    ],
)
def test_objective_and_coefficients_are_scikit_learns(form, weighted, l1_ratio, positive, fit_intercept):
    X, y = problem(density=0.4 if form == "csc" else 1.0)
    weights = np.random.default_rng(1).uniform(0, 3, len(y)) if weighted else None
    options = {"alpha": 0.1, "l1_ratio": l1_ratio, "positive": positive, "fit_intercept": fit_intercept}
    ours = sd.ElasticNet(tol=TIGHT, **options).fit(FORMS[form](X), y, weights)
    theirs = TheirElasticNet(tol=TIGHT, max_iter=100_000, **options).fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-6)
    options.pop("positive")
    assert primal(X, y, ours.coef_, weights=weights, **options) <= primal(
        X, y, theirs.coef_, weights=weights, **options
    ) * (1 + 1e-9)
    assert_optimal(X, y, ours, weights=weights)


@given(
    n=st.integers(1, 40),
    p=st.integers(1, 60),
    seed=st.integers(0, 10_000),
    density=st.sampled_from([0.1, 0.5, 1.0]),
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from([np.float32, np.float64]),
    relative_alpha=st.sampled_from([0.9, 0.3, 0.03]),
    l1_ratio=st.sampled_from([0.5, 0.95, 1.0]),
    weighted=st.booleans(),
    fit_intercept=st.booleans(),
    positive=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_grid_of_problems(
    n, p, seed, density, form, dtype, relative_alpha, l1_ratio, weighted, fit_intercept, positive
):
    X, y = problem(n, p, seed=seed, density=density)
    X = X.astype(dtype).astype(float)
    weights = np.random.default_rng(seed).integers(1, 4, n).astype(float) if weighted else None
    Xc, yc, w = centred(X, y, weights, fit_intercept)
    alpha = relative_alpha * max(np.abs(Xc.T @ (w * yc)).max(), 1e-3) / l1_ratio
    options = {"alpha": alpha, "l1_ratio": l1_ratio, "fit_intercept": fit_intercept, "positive": positive}
    tol = 1e-7 if dtype == np.float32 else 1e-10
    ours = sd.ElasticNet(tol=tol, **options).fit(FORMS[form](X.astype(dtype)), y, weights)
    assert ours.coef_.dtype == dtype
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = TheirElasticNet(tol=1e-13, max_iter=20_000, **options).fit(X, y, weights)
    zero = max(primal(X, y, np.zeros(p), alpha=alpha, weights=weights, fit_intercept=fit_intercept), 1e-20)
    options.pop("positive")
    mine, best = (
        primal(X, y, np.asarray(m.coef_, float), weights=weights, **options) for m in (ours, theirs)
    )
    slack = 1e-6 if dtype == np.float32 else 2 * tol
    assert mine <= best + slack * zero
    assert (
        gap(X, y, np.asarray(ours.coef_, float), weights=weights, positive=positive, **options)
        <= slack * zero
    )
    np.testing.assert_allclose(
        ours.predict(FORMS[form](X.astype(dtype))),
        theirs.predict(X),
        atol=2e-2 * np.sqrt(zero) if dtype == np.float32 else 1e-3 * np.sqrt(zero),
    )


def test_shapes_of_the_attributes_are_scikit_learns():
    X, y = problem()
    for target in (y, y[:, None], np.column_stack([y, -y, y**2])):
        ours, theirs = sd.Lasso(0.1, tol=1e-9).fit(X, target), TheirLasso(0.1, tol=1e-9).fit(X, target)
        for name in ("coef_", "intercept_", "dual_gap_", "sparse_coef_"):
            assert np.shape(getattr(ours, name)) == np.shape(getattr(theirs, name)), name
        assert type(ours.n_iter_) is type(theirs.n_iter_)
        assert np.shape(ours.n_iter_) == np.shape(theirs.n_iter_)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)
        assert ours.score(X, target) == pytest.approx(theirs.score(X, target), abs=1e-6)
    assert sd.Lasso(0.1, fit_intercept=False).fit(X, y).intercept_ == 0.0


def test_targets_are_solved_on_their_own():
    X, y = problem()
    Y = np.column_stack([y, X[:, 0], -3 * y])
    together = sd.Lasso(0.05, tol=1e-9).fit(X, Y)
    for k in range(3):
        alone = sd.Lasso(0.05, tol=1e-9).fit(X, Y[:, k])
        np.testing.assert_array_equal(together.coef_[k], alone.coef_)
        assert together.dual_gap_[k] == alone.dual_gap_
        assert together.n_iter_[k] == alone.n_iter_
    history = together.history_
    assert [int((history["target"] == k).sum()) for k in range(3)] == together.n_iter_
    assert (np.diff(history["round"]) == 1).all()


# --- what scikit-learn does not have ----------------------------------------------------------------
@pytest.mark.parametrize("form", ["fortran", "csc"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_penalty_factors(form, fit_intercept, l1_ratio):
    X, y = problem(80, 40, density=0.5 if form == "csc" else 1.0)
    factor = np.random.default_rng(3).uniform(0.2, 3, 40)
    factor[:3] = 0
    model = sd.ElasticNet(
        0.3, l1_ratio=l1_ratio, penalty_factor=factor, fit_intercept=fit_intercept, tol=TIGHT
    ).fit(FORMS[form](X), y)
    assert_optimal(X, y, model, factor=factor)
    assert (model.coef_[:3] != 0).all()
    assert (model.coef_ == 0).any()


def test_columns_without_penalty_are_regressed_out():
    """Frisch, Waugh, Lovell: the others are the Lasso of what the free columns leave."""
    X, y = problem(80, 40)
    factor = np.ones(40)
    factor[:3] = 0
    model = sd.Lasso(0.2, penalty_factor=factor, tol=TIGHT).fit(X, y)
    free = np.column_stack([X[:, :3], np.ones(80)])
    rest = np.column_stack([X[:, 3:], y])
    rest -= free @ np.linalg.lstsq(free, rest, rcond=None)[0]
    theirs = TheirLasso(0.2, fit_intercept=False, tol=TIGHT, max_iter=100_000).fit(rest[:, :-1], rest[:, -1])
    np.testing.assert_allclose(model.coef_[3:], theirs.coef_, atol=1e-6)


@pytest.mark.parametrize("form", ["fortran", "csc"])
@pytest.mark.parametrize("weighted", [False, True])
def test_columns_far_from_zero_have_the_coefficients_of_centred_ones(form, weighted):
    X, y = problem(60, 8)
    w = np.random.default_rng(1).random(60) if weighted else None
    near = sd.Lasso(0.02, tol=1e-10).fit(X, y, w)
    far = sd.Lasso(0.02, tol=1e-8).fit(FORMS[form](X + 1e7), y, w)
    assert np.abs(near.coef_).max() > 0.1
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-3)


@pytest.mark.parametrize("form", ["fortran", "csc"])
@pytest.mark.parametrize("positive", [True, False])
def test_the_squared_penalty_alone_is_ridge_regression(form, positive):
    X, y = problem(40, 60, density=0.5)
    model = sd.ElasticNet(0.1, l1_ratio=0, positive=positive, tol=1e-10).fit(FORMS[form](X), y)
    theirs = Ridge(0.1 * 40, positive=positive, tol=1e-14).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5)
    assert model.intercept_ == pytest.approx(theirs.intercept_, abs=1e-5)


def test_no_penalty_anywhere_is_least_squares():
    X, y = problem(80, 10)
    theirs = LinearRegression().fit(X, y)
    free = sd.Lasso(1.0, penalty_factor=np.zeros(10), tol=TIGHT).fit(X, y)
    np.testing.assert_allclose(free.coef_, theirs.coef_, rtol=1e-5)
    with pytest.warns(UserWarning, match="alpha=0"):
        unpenalised = sd.Lasso(0.0, tol=TIGHT).fit(X, y)
    np.testing.assert_allclose(unpenalised.coef_, theirs.coef_, rtol=1e-5)
    np.testing.assert_allclose(unpenalised.intercept_, theirs.intercept_, rtol=1e-5)


@pytest.mark.parametrize("form", ["fortran", "csc"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_standardize_is_a_fit_to_scaled_columns(form, weighted, l1_ratio):
    X, y = problem(80, 40, density=0.5 if form == "csc" else 1.0)
    weights = np.random.default_rng(1).uniform(0.5, 3, len(y)) if weighted else None
    model = sd.ElasticNet(0.2, l1_ratio=l1_ratio, standardize=True, tol=TIGHT).fit(FORMS[form](X), y, weights)
    scaler = StandardScaler().fit(X, sample_weight=weights)
    theirs = TheirElasticNet(0.2, l1_ratio=l1_ratio, tol=TIGHT, max_iter=100_000)
    theirs.fit(scaler.transform(X), y, weights)
    np.testing.assert_allclose(model.coef_ * scaler.scale_, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict(X), theirs.predict(scaler.transform(X)), atol=1e-5)


@pytest.mark.parametrize("form", ["fortran", "csc"])
def test_standardize_without_intercept_takes_the_root_mean_square(form):
    X, y = problem(80, 40, density=0.5)
    X[:, :20] += 1
    X[:, 7] = 0
    scale = np.sqrt((X**2).mean(axis=0))
    scale[7] = 1
    model = sd.Lasso(0.2, standardize=True, fit_intercept=False, tol=TIGHT).fit(FORMS[form](X), y)
    theirs = TheirLasso(0.2, fit_intercept=False, tol=TIGHT, max_iter=100_000).fit(X / scale, y)
    np.testing.assert_allclose(model.coef_ * scale, theirs.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("form", "fit_intercept"),
    [
        ("fortran", False),
        ("csr", True),
        pytest.param("fortran", True, marks=pytest.mark.slow),
        pytest.param("csr", False, marks=pytest.mark.slow),
    ],
)
def test_the_dynamic_schedule_finds_the_same_model(form, fit_intercept):
    X, y = problem(density=0.5 if form == "csr" else 1.0)
    X = X if fit_intercept else X - X.mean(axis=0)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    options = {"l1_ratio": 0.8, "fit_intercept": fit_intercept, "tol": 1e-7, "standardize": True}
    ours = sd.ElasticNet(0.2, schedule="dynamic", random_state=0, **options).fit(FORMS[form](X), y, weights)
    reference = sd.ElasticNet(0.2, **options).fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, reference.coef_, atol=1e-2)
    zero = primal(X, y, np.zeros(30), alpha=0.2, weights=weights, fit_intercept=fit_intercept)
    assert 0 <= ours.dual_gap_ <= 1e-7 * zero
    history = ours.history_
    assert np.nanmin(history["objective"]) == pytest.approx(reference.history_["objective"][-1], rel=1e-5)
    assert ours.n_iter_ <= len(history["round"])
    again = sd.ElasticNet(0.2, schedule="dynamic", random_state=0, n_jobs=2, **options)
    np.testing.assert_array_equal(again.fit(FORMS[form](X), y, weights).coef_, ours.coef_)


def test_the_dynamic_schedule_says_what_it_cannot():
    X, y = problem()
    with pytest.raises(DataError, match="the dynamic schedule needs a penalty on every column, but column 2"):
        sd.Lasso(0.1, schedule="dynamic", penalty_factor=np.r_[1, 1, 0, np.ones(27)]).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 rounds"):
        sd.Lasso(0.001, schedule="dynamic", max_iter=1, tol=1e-9, random_state=0).fit(X, y)
    warm = sd.Lasso(0.1, schedule="dynamic", tol=1e-6, random_state=0, warm_start=True).fit(X, y)
    cold = warm.n_iter_
    assert warm.fit(X, y).n_iter_ < cold


# --- gap, convergence, rounds -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tol", "l1_ratio", "fit_intercept", "positive"),
    [  # each pair of levels
        (1e-2, 0.5, False, False),
        (1e-2, 1.0, True, True),
        (1e-5, 0.5, True, True),
        (1e-5, 1.0, False, False),
        (1e-9, 0.5, False, True),
        (1e-9, 1.0, True, False),
    ],
)
def test_the_gap_is_the_gap(tol, l1_ratio, fit_intercept, positive):
    X, y = problem(60, 200)
    options = {"alpha": 0.05, "l1_ratio": l1_ratio, "fit_intercept": fit_intercept}
    model = sd.ElasticNet(tol=tol, positive=positive, **options).fit(X, y)
    zero = primal(X, y, np.zeros(200), **options)
    measured = gap(X, y, model.coef_, positive=positive, **options)
    assert 0 <= model.dual_gap_ <= tol * zero
    assert measured <= model.dual_gap_ + 1e-13 * zero


def test_the_gap_bounds_the_distance_to_the_minimum():
    X, y = problem(60, 200)
    best = primal(X, y, sd.Lasso(0.05, tol=1e-12).fit(X, y).coef_, alpha=0.05)
    for tol in (0.1, 1e-2, 1e-4):
        model = sd.Lasso(0.05, tol=tol).fit(X, y)
        assert primal(X, y, model.coef_, alpha=0.05) - best <= model.dual_gap_ * (1 + 1e-9)


def test_too_few_rounds_are_told_with_gap_target_and_remedy():
    X, y = problem(60, 200)
    with pytest.warns(ConvergenceWarning, match=r"gap .*tol=1e-12.*max_iter=1\b.*raise max_iter") as caught:
        model = sd.Lasso(0.01, tol=1e-12, max_iter=1).fit(X, y)
    zero = primal(X, y, np.zeros(200), alpha=0.01)
    assert f"{model.dual_gap_ / zero:.1e}" in str(caught[0].message)
    assert model.n_iter_ == 2  # the least: one that works, one that measures
    with pytest.warns(ConvergenceWarning, match="target 1") as caught:
        sd.Lasso(0.01, tol=1e-12, max_iter=1).fit(X, np.column_stack([np.zeros(60), y]))
    assert len(caught) == 1


def test_the_alpha_at_which_everything_is_zero():
    X, y = problem()
    peak = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / len(y)
    for l1_ratio in (0.5, 1.0):
        edge = sd.ElasticNet(l1_ratio=l1_ratio).alpha_max(X, y)
        assert edge == pytest.approx(peak / l1_ratio, rel=1e-12)
        above = sd.ElasticNet(edge * (1 + 1e-9), l1_ratio=l1_ratio).fit(X, y)
        below = sd.ElasticNet(edge * (1 - 1e-6), l1_ratio=l1_ratio, tol=1e-14).fit(X, y)
        assert (above.coef_ == 0).all()
        assert above.intercept_ == pytest.approx(y.mean())
        assert above.dual_gap_ <= 1e-12 * y.var()
        assert (below.coef_ != 0).sum() == 1


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("positive", [True, False])
def test_alpha_max_with_everything(standardize, positive):
    X, y = problem(density=0.5)
    factor = np.random.default_rng(5).uniform(0.5, 2, 30)
    factor[:2] = 0
    weights = np.arange(60.0)
    model = sd.Lasso(penalty_factor=factor, standardize=standardize, positive=positive, tol=1e-13)
    edge = model.alpha_max(sparse.csr_array(X), y, weights)
    assert not hasattr(model, "n_features_in_")
    above = model.set_params(alpha=edge * (1 + 1e-9)).fit(X, y, weights).coef_.copy()
    below = model.set_params(alpha=edge * (1 - 1e-5)).fit(X, y, weights).coef_
    assert (above[2:] == 0).all()
    assert (below[2:] != 0).sum() == 1


def test_alpha_max_of_several_targets_and_of_ridge():
    X, y = problem()
    both = sd.Lasso().alpha_max(X, np.column_stack([y, 2 * y]))
    np.testing.assert_allclose(both, [sd.Lasso().alpha_max(X, y), 2 * sd.Lasso().alpha_max(X, y)])
    assert sd.ElasticNet(l1_ratio=0).alpha_max(X, y) == np.inf


def test_callback_sees_rounds_and_may_stop():
    X, y = problem(100, 400)
    seen = []

    def watch(info):
        seen.append((info.round, info.snapshot().predict(X[:2]).shape))
        return info.round == 2

    model = sd.Lasso(0.01, tol=1e-12).fit(X, y, callback=watch)
    assert seen == [(1, (2,)), (2, (2,))]
    assert model.n_iter_ == 2
    assert len(model.history_["objective"]) == 2
    assert model.coef_.any()


def test_a_callback_that_stops_leaves_the_targets_that_were_not_reached():
    X, y = problem(100, 400)
    model = sd.Lasso(0.01, tol=1e-12).fit(
        X, np.column_stack([y, y + 7]), callback=lambda info: info.round == 2
    )
    assert model.coef_[0].any()
    assert not model.coef_[1].any()
    assert model.n_iter_ == [2, 0]
    np.testing.assert_array_equal(np.isnan(model.dual_gap_), [False, True])
    assert model.intercept_[1] == pytest.approx(y.mean() + 7)
    assert model.history_["target"].tolist() == [0, 0]


def test_history_falls_to_the_objective():
    X, y = problem(60, 200)
    model = sd.Lasso(0.05, tol=1e-10).fit(X, y)
    history = model.history_
    assert history["round"].tolist() == list(range(1, model.n_iter_ + 1))
    assert len({len(column) for column in history.values()}) == 1
    assert history["objective"][-1] == pytest.approx(primal(X, y, model.coef_, alpha=0.05), rel=1e-9)
    assert (history["updates"] > 0).any()
