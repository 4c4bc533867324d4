"""Sparse logistic regression against scikit-learn, and against optimality conditions in plain numpy."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse
from scipy.special import logsumexp, softmax, xlogy
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import stradask as sd
from stradask.errors import DataError

FORMS = {
    "fortran": np.asfortranarray,
    "c": np.ascontiguousarray,
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
}


def problem(n=80, p=20, n_classes=2, *, seed=0, density=1.0):
    """Overlapping classes over columns of different scales and means."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.uniform(0.5, 2.0, p)
    if density < 1:
        X[rng.random((n, p)) > density] = 0
    else:
        X += rng.uniform(-1, 1, p)
    B = np.zeros((n_classes, p))
    B[:, : min(4, p)] = rng.uniform(-1.5, 1.5, (n_classes, min(4, p)))
    y = np.array([rng.choice(n_classes, p=row) for row in softmax(X @ B.T, axis=1)])
    y[:n_classes] = np.arange(n_classes)
    return X, y


def scores_of(X, model, offset=None):
    """Linear predictors of every class, of two classes too."""
    F = X @ np.asarray(model.coef_, float).T + model.intercept_
    F = F if offset is None else F + np.reshape(offset, (len(X), -1))
    return np.column_stack([np.zeros(len(X)), F]) if F.shape[1] == 1 else F


def primal(X, y, model, *, weights=None, offset=None, factor=1.0):
    """The documented objective."""
    F = scores_of(X, model, offset)
    losses = logsumexp(F, axis=1) - F[np.arange(len(y)), y]
    b = np.abs(np.asarray(model.coef_, float))
    penalty = factor * (model.l1_ratio * b + (1 - model.l1_ratio) / 2 * b**2)
    return np.average(losses, weights=weights) + model.alpha * penalty.sum()


def assert_optimal(X, y, model, *, weights=None, offset=None, factor=1.0, rtol=1e-5):
    """Hold the subgradient conditions, in units of the largest slope of the model without columns."""
    w = np.ones(len(y)) if weights is None else np.asarray(weights, float)
    w = w / w.sum()
    F = scores_of(X, model, offset)
    E = np.eye(F.shape[1])[y] - softmax(F, axis=1)
    E = E[:, 1:] if len(model.coef_) == 1 else E
    if model.fit_intercept:
        np.testing.assert_allclose(w @ E, 0, atol=rtol)
    b = np.asarray(model.coef_, float)
    f = factor * np.ones(b.shape[1])
    slope = (X.T @ (w[:, None] * E)).T - model.alpha * (1 - model.l1_ratio) * f * b
    edge = model.alpha * model.l1_ratio * f * np.ones_like(b)
    eps = rtol * max(np.abs(X).max(), 1)
    on = b != 0
    assert (np.abs(slope - edge * np.sign(b))[on] <= eps).all()
    upper = slope if model.positive else np.abs(slope)
    assert (upper[~on] <= edge[~on] + eps).all()
    if model.positive:
        assert (b >= 0).all()


def reference(X, y, alpha, l1_ratio=1.0, weights=None, **options):
    """scikit-learn's model of the same objective, by SAGA or, without intercept, liblinear."""
    total = len(y) if weights is None else np.sum(weights)
    model = LogisticRegression(
        C=1 / (alpha * total), l1_ratio=l1_ratio, solver="saga", tol=1e-10, max_iter=50_000, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # older versions want the name of the penalty
        if "penalty" in LogisticRegression._parameter_constraints and model.get_params()["penalty"] == "l2":
            model.set_params(penalty="elasticnet")
        return model.fit(X, y, weights)


# --- against scikit-learn -------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", ["fortran", "csr"])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_are_scikit_learns(n_classes, form, l1_ratio, fit_intercept):
    X, y = problem(n_classes=n_classes, density=0.5 if form == "csr" else 1.0)
    X = StandardScaler(with_mean=False).fit_transform(X)  # SAGA is slow without
    model = sd.SparseLogisticRegression(0.03, l1_ratio=l1_ratio, fit_intercept=fit_intercept, tol=1e-10)
    model.fit(FORMS[form](X), y)
    theirs = reference(X, y, 0.03, l1_ratio, fit_intercept=fit_intercept)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    np.testing.assert_array_equal(model.classes_, theirs.classes_)
    assert model.intercept_.shape == theirs.intercept_.shape
    assert_optimal(X, y, model)


@given(
    n=st.integers(4, 40),
    p=st.integers(1, 50),
    n_classes=st.sampled_from([2, 2, 3, 4]),
    seed=st.integers(0, 10_000),
    density=st.sampled_from([0.2, 1.0]),
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from([np.float32, np.float64]),
    relative_alpha=st.sampled_from([0.9, 0.3, 0.05]),
    l1_ratio=st.sampled_from([0.5, 1.0]),
    weighted=st.booleans(),
    with_offset=st.booleans(),
    fit_intercept=st.booleans(),
    positive=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_grid_of_problems(
    n, p, n_classes, seed, density, form, dtype, relative_alpha, l1_ratio, weighted, with_offset,
    fit_intercept, positive,
):  # fmt: skip
    X, y = problem(n, p, n_classes, seed=seed, density=density)
    X = X.astype(dtype)
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    offset = rng.standard_normal(n if n_classes == 2 else (n, n_classes)) if with_offset else None
    model = sd.SparseLogisticRegression(
        l1_ratio=l1_ratio,
        fit_intercept=fit_intercept,
        positive=positive,
        tol=1e-6 if dtype == np.float32 else 1e-10,
    )
    edge = model.alpha_max(FORMS[form](X), y, weights, offset=offset)
    model.set_params(alpha=max(relative_alpha * edge, 1e-6)).fit(FORMS[form](X), y, weights, offset=offset)
    assert model.coef_.dtype == dtype
    rtol = 5e-3 if dtype == np.float32 else 1e-4
    assert_optimal(X.astype(float), y, model, weights=weights, offset=offset, rtol=rtol)
    assert 0 <= model.dual_gap_ <= model.tol * np.log(n_classes) * 100


def test_a_smooth_problem_is_what_scipy_finds():
    """With the squared penalty alone a general minimiser is a second solver."""
    X, y = problem(60, 5)
    rng = np.random.default_rng(1)
    weights, offset, factor = rng.uniform(0.5, 2, 60), rng.standard_normal(60), rng.uniform(0.5, 2, 5)
    model = sd.SparseLogisticRegression(0.1, l1_ratio=0.0, penalty_factor=factor, tol=1e-13)
    model.fit(X, y, weights, offset=offset)

    def objective(z):
        f = X @ z[:-1] + z[-1] + offset
        loss = np.average(np.logaddexp(0, np.where(y == 1, -f, f)), weights=weights)
        return loss + 0.05 * factor @ z[:-1] ** 2

    best = optimize.minimize(objective, np.zeros(6), method="BFGS", options={"gtol": 1e-10})
    np.testing.assert_allclose(model.coef_[0], best.x[:-1], atol=1e-5)
    np.testing.assert_allclose(model.intercept_[0], best.x[-1], atol=1e-5)


# --- gap, edges, weights ----------------------------------------------------------------------------


def gap(X, y, model, weights):
    """Binary gap by hand: the dual point is the residual, scaled into the box that the penalty allows."""
    w = np.ones(len(y)) / len(y) if weights is None else weights / np.sum(weights)
    sign = np.where(y == 1, 1.0, -1.0)
    u = 1 / (1 + np.exp(sign * scores_of(X, model)[:, 1]))
    if model.fit_intercept:  # the dual point must sum to zero: shrink the heavier side
        mass = [(w * u)[sign == s].sum() for s in (-1, 1)]
        u = u * np.where(sign == 1, min(mass) / mass[1], min(mass) / mass[0])
    s = min(1.0, model.alpha / np.abs(X.T @ (w * sign * u)).max())
    v = s * u
    return primal(X, y, model, weights=weights) + w @ (xlogy(v, v) + xlogy(1 - v, 1 - v))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_the_gap_is_a_gap(weighted, fit_intercept, tol):
    X, y = problem(60, 150)
    weights = np.random.default_rng(2).uniform(0.5, 2, 60) if weighted else None
    model = sd.SparseLogisticRegression(0.02, fit_intercept=fit_intercept, tol=tol).fit(X, y, weights)
    best = sd.SparseLogisticRegression(0.02, fit_intercept=fit_intercept, tol=1e-12).fit(X, y, weights)
    excess = primal(X, y, model, weights=weights) - primal(X, y, best, weights=weights)
    assert -1e-12 <= excess <= model.dual_gap_ + 1e-12
    assert model.dual_gap_ <= tol * np.log(2)
    # Independent of the solver's: the same up to how each one meets the intercept.
    assert gap(X, y, model, weights) <= 3 * tol * np.log(2) + (1e-3 if tol == 1e-3 else 1e-5)


def test_the_alpha_at_which_everything_is_zero():
    X, y = problem()
    edge = sd.SparseLogisticRegression().alpha_max(X, y)
    assert edge == pytest.approx(np.abs((X - X.mean(axis=0)).T @ y).max() / len(y), rel=1e-9)
    below = sd.SparseLogisticRegression(edge * (1 - 1e-6), tol=1e-13).fit(X, y)
    assert (below.coef_ != 0).sum() == 1
    above = sd.SparseLogisticRegression(edge * (1 + 1e-6)).fit(X, y)
    assert (above.coef_ == 0).all()
    assert above.intercept_[0] == pytest.approx(np.log(y.mean() / (1 - y.mean())))
    X, y = problem(n_classes=4)
    many = sd.SparseLogisticRegression(tol=1e-13)
    edge = many.alpha_max(X, y)
    assert (many.set_params(alpha=edge * (1 + 1e-6)).fit(X, y).coef_ == 0).all()
    np.testing.assert_allclose(many.predict_proba(X[:1])[0], np.bincount(y) / len(y), rtol=1e-6)
    assert many.set_params(alpha=edge * (1 - 1e-4)).fit(X, y).coef_.any()


def test_class_weights_are_weights_of_rows():
    X, y = problem(60, 10, 3)
    labels = np.array(["ape", "bee", "cat"])[y]
    by_class = {"ape": 2.0, "cat": 0.5}
    rows = np.array([2.0, 1.0, 0.5])[y]
    model = sd.SparseLogisticRegression(0.02, tol=1e-11, class_weight=by_class).fit(X, labels)
    plain = sd.SparseLogisticRegression(0.02, tol=1e-11).fit(X, labels, rows)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-8)
    balanced = sd.SparseLogisticRegression(0.02, tol=1e-11, class_weight="balanced")
    weights = np.random.default_rng(0).uniform(0.5, 2, 60)
    masses = np.bincount(y, weights)
    both = sd.SparseLogisticRegression(0.02, tol=1e-11).fit(X, y, weights / masses[y])
    np.testing.assert_allclose(balanced.fit(X, y, weights).coef_, both.coef_, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_offsets_take_part_in_fit_and_prediction(n_classes):
    X, y = problem(80, 10, n_classes)
    shape = 80 if n_classes == 2 else (80, n_classes)
    offset = np.random.default_rng(6).standard_normal(shape)
    model = sd.SparseLogisticRegression(0.02, tol=1e-11).fit(X, y, offset=offset)
    assert_optimal(X, y, model, offset=offset)
    np.testing.assert_allclose(
        model.decision_function(X, offset=offset), model.decision_function(X) + offset, rtol=1e-12
    )
    np.testing.assert_allclose(
        model.predict_proba(X, offset=offset), softmax(scores_of(X, model, offset), axis=1), rtol=1e-9
    )
    constant = sd.SparseLogisticRegression(0.02, tol=1e-12).fit(X, y, offset=np.full(shape, 3.0))
    plain = sd.SparseLogisticRegression(0.02, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(constant.coef_, plain.coef_, atol=1e-6)
    if n_classes == 2:
        np.testing.assert_allclose(constant.intercept_, plain.intercept_ - 3, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", ["fortran", "csc"])
def test_penalty_factors_and_standardize(n_classes, form):
    X, y = problem(90, 15, n_classes, density=0.6 if form == "csc" else 1.0)
    factor = np.random.default_rng(7).uniform(0.5, 2, 15)
    factor[2] = 0
    model = sd.SparseLogisticRegression(0.05, penalty_factor=factor, tol=1e-11).fit(FORMS[form](X), y)
    assert_optimal(X, y, model, factor=factor, rtol=1e-4)
    assert model.coef_[:, 2].any()
    scaler = StandardScaler().fit(X)
    inside = sd.SparseLogisticRegression(0.05, standardize=True, tol=1e-11).fit(FORMS[form](X), y)
    outside = sd.SparseLogisticRegression(0.05, tol=1e-11).fit(scaler.transform(X), y)
    np.testing.assert_allclose(inside.coef_ * scaler.scale_, outside.coef_, atol=1e-5)
    np.testing.assert_allclose(inside.predict_proba(X), outside.predict_proba(scaler.transform(X)), atol=1e-5)


# --- rounds, threads, input -------------------------------------------------------------------------


def test_too_few_rounds_are_told():
    X, y = problem(60, 200)
    with pytest.warns(
        ConvergenceWarning, match=r"SparseLogisticRegression stopped at .* raise max_iter"
    ) as caught:
        sd.SparseLogisticRegression(0.001, tol=1e-12, max_iter=1).fit(X, y)
    assert len(caught) == 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_warm_start(n_classes):
    X, y = problem(100, 200, n_classes)
    model = sd.SparseLogisticRegression(0.01, tol=1e-7, warm_start=True).fit(X, y)
    cold, first = model.n_iter_, model.coef_.copy()
    model.sparsify().fit(X, y)
    assert model.n_iter_ < cold
    np.testing.assert_allclose(model.coef_, first, atol=1e-2)


def test_callback_and_history():
    X, y = problem(100, 200)
    seen = []

    def watch(info):
        seen.append((info.round, info.snapshot().predict(X[:3]).shape))
        return info.round == 2

    model = sd.SparseLogisticRegression(0.01, tol=1e-9).fit(X, y, callback=watch)
    assert seen == [(1, (3,)), (2, (3,))]
    assert model.n_iter_ == len(model.history_["objective"]) == 2
    done = sd.SparseLogisticRegression(0.01, tol=1e-9).fit(X, y)
    assert done.history_["objective"][-1] == pytest.approx(primal(X, y, done), rel=1e-6)
    assert len(done.history_["round"]) == done.n_iter_


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("form", ["fortran", "csc"])
def test_the_same_bits_on_any_number_of_threads(n_classes, form):
    X, y = problem(100, 1500, n_classes, density=0.2 if form == "csc" else 1.0)
    fits = [sd.SparseLogisticRegression(0.02, tol=1e-6, n_jobs=n).fit(FORMS[form](X), y) for n in (1, 2, 4)]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].coef_, other.coef_)
        np.testing.assert_array_equal(fits[0].intercept_, other.intercept_)
        assert fits[0].dual_gap_ == other.dual_gap_


# --- being an estimator -----------------------------------------------------------------------------


def test_probabilities_of_certain_rows_do_not_overflow():
    model = sd.SparseLogisticRegression(0.001).fit([[-1.0], [1.0]] * 5, [0, 1] * 5)
    far = np.array([[-1e5], [1e5]])
    np.testing.assert_allclose(model.predict_proba(far), [[1, 0], [0, 1]], atol=1e-12)
    logs = model.predict_log_proba(far)
    assert np.isfinite(logs).all()
    assert logs[0, 1] < -1000


@pytest.mark.parametrize("n_classes", [2, 3])
def test_save_load_sparsify_pickle(n_classes, tmp_path):
    X, y = problem(n_classes=n_classes)
    model = sd.SparseLogisticRegression(0.05, class_weight="balanced").fit(X, y)
    expected = model.predict_proba(X)
    for form in (model.sparsify, model.densify):
        form().save(tmp_path / "model")
        loaded = sd.load(tmp_path / "model")
        np.testing.assert_allclose(loaded.predict_proba(X), expected, rtol=1e-12)
        np.testing.assert_allclose(loaded.predict_proba(sparse.csr_array(X)), expected, rtol=1e-9)
        assert loaded.sparse_coef_.nnz == (expected.shape[1] > 0) * model.sparse_coef_.nnz
        np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).predict_proba(X), expected, rtol=1e-12)
    model.coef_ = model.coef_[:, 1:]
    model.save(tmp_path / "model")
    with pytest.raises(sd.errors.ModelFileError, match="coef_"):
        sd.load(tmp_path / "model")


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("shift", [-1e3, 1e6])
@pytest.mark.parametrize("form", ["fortran", "csc"])
def test_columns_far_from_zero_have_the_coefficients_of_centred_ones(n_classes, shift, form):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 10))
    z = 2 * X[:, 0] - X[:, 1] + rng.logistic(size=300)
    y = np.digitize(z, [0.0] if n_classes == 2 else [-1.0, 1.0])
    near = sd.SparseLogisticRegression(0.01, tol=1e-9).fit(X, y)
    far = sd.SparseLogisticRegression(0.01, tol=1e-9).fit(FORMS[form](X + shift), y)
    np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-6)
    np.testing.assert_allclose(far.predict_proba(X + shift), near.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_columns_far_from_zero_that_lack_a_few_rows_have_the_dense_models_coefficients(n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 10))
    z = 2 * X[:, 0] - X[:, 1] + rng.logistic(size=300)
    y = np.digitize(z, [0.0] if n_classes == 2 else [-1.0, 1.0])
    X = (X + 1e3) * (rng.random(X.shape) < 0.99)
    dense = sd.SparseLogisticRegression(0.01, tol=1e-9).fit(X, y)
    model = sd.SparseLogisticRegression(0.01, tol=1e-9).fit(sparse.csc_array(X), y)
    np.testing.assert_allclose(model.predict_proba(X), dense.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_path_is_the_fits_to_its_alphas(n_classes):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((90, 30))
    signal = X[:, :3] @ rng.standard_normal((3, n_classes)) + rng.gumbel(size=(90, n_classes))
    y, offset = signal.argmax(axis=1), rng.standard_normal((90, 3) if n_classes == 3 else 90)
    model = sd.SparseLogisticRegression(l1_ratio=0.8, standardize=True, tol=1e-10)
    alphas, coefs, intercepts, gaps = model.path(X, y, alphas=5, eps=0.05, offset=offset)
    assert alphas[0] == model.alpha_max(X, y, offset=offset)
    assert not coefs[..., 0].any()
    np.testing.assert_allclose(alphas, np.geomspace(alphas[0], 0.05 * alphas[0], 5))
    for k, alpha in enumerate(alphas):
        fit = clone(model).set_params(alpha=alpha).fit(X, y, offset=offset)
        assert gaps[k] <= 1e-10
        own = coefs[..., k] if n_classes == 3 else coefs[:, k][None]
        np.testing.assert_allclose(own, fit.coef_, atol=2e-4)
        np.testing.assert_allclose(np.atleast_1d(intercepts[..., k]), fit.intercept_, atol=2e-4)
    given = model.path(X.astype(np.float32), y, alphas=[0.01, 0.1], offset=offset)
    assert given[0].tolist() == [0.1, 0.01]
    assert given[1].dtype == np.float32
    with pytest.raises(DataError, match="eps must be above 0"):
        model.path(X, y, eps=0.0)
