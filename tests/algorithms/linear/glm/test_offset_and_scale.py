"""`offset` and `standardize` over rows: gradients of the objectives, and fits to scaled columns."""

import dask.array as da
import numpy as np
import pytest
from far_problems import two_workers
from scipy import sparse
from scipy.special import expit, softmax
from sklearn import linear_model

import stradask as sd
from stradask.algorithms.linear import scales
from stradask.algorithms.linear.glm import row_places
from stradask.errors import DataError

FORMS = {"dense": np.asarray, "columns": np.asfortranarray, "sparse": sparse.csr_array}
MODELS = {
    "ridge": lambda **options: sd.Ridge(0.7, tol=1e-12, **options),
    "classes of two": lambda **options: sd.LogisticRegression(1 / 0.7, tol=1e-12, **options),
    "classes": lambda **options: sd.LogisticRegression(1 / 0.7, tol=1e-12, **options),
    "counts": lambda **options: sd.PoissonRegressor(0.7, tol=1e-12, **options),
}
SHAPES = [(80, 5), (50, 120), (5000, 30)]


def problem(kind, n, p, *, dense=False, dtype=np.float64):
    """X with columns of several scales, y with an offset, the offset and weights."""
    rng = np.random.default_rng(n * p + len(kind))
    X = rng.standard_normal((n, p)) * np.exp(rng.uniform(-1, 1, p))
    X = (X + 2 if dense else X * (rng.random((n, p)) < 0.4)).astype(dtype)
    weights = rng.integers(0, 4, n).astype(float)
    offset = rng.standard_normal((n, 3) if kind == "classes" else n)
    signal = (X @ rng.standard_normal(p) / np.sqrt(p) / X.std())[:, None] + offset.reshape(n, -1)
    if kind == "ridge":
        return X, signal[:, 0] + rng.standard_normal(n), offset, weights
    if kind == "counts":
        return X, rng.poisson(np.exp(np.clip(signal[:, 0], -5, 3))).astype(float), offset, weights
    if kind == "classes":
        return X, (signal + rng.gumbel(size=signal.shape)).argmax(axis=1), offset, weights
    return X, (signal[:, 0] + rng.logistic(size=n) > 0).astype(int), offset, weights


def deviations(X, weights, centre):
    """Standard deviations of columns, or root mean squares."""
    X = X.astype(np.float64)
    means = np.average(X, axis=0, weights=weights) if centre else 0.0
    return np.sqrt(np.average((X - means) ** 2, axis=0, weights=weights))


def slopes(kind, model, X, y, offset, weights, units):
    """The gradient of the documented objective, in the units of the penalty, with that at zero."""
    coef, intercept = np.atleast_2d(model.coef_).astype(float), np.atleast_1d(model.intercept_).astype(float)

    def at(coef, intercept):
        f = X @ coef.T + intercept + offset.reshape(len(X), -1)
        if kind == "ridge":
            residual, strength = f - y[:, None], 0.7
        elif kind == "counts":
            residual, strength = (np.exp(f) - y[:, None]) / weights.sum(), 0.7
        elif kind == "classes":
            residual, strength = softmax(f, axis=1) - np.eye(3)[y], 0.7
        else:
            residual, strength = expit(f) - y[:, None], 0.7
        residual = weights[:, None] * residual
        g = (X / units).T @ residual + strength * (coef * units).T
        return np.vstack([g, residual.sum(axis=0)] if model.fit_intercept else [g])

    return at(coef, intercept), at(np.zeros_like(coef), intercept)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("with_intercept", [True, False])
def test_slopes_of_the_objective_vanish(kind, form, shape, with_intercept):
    X, y, offset, weights = problem(kind, *shape, dense=form != "sparse")
    model = MODELS[kind](standardize=True, fit_intercept=with_intercept)
    model.fit(FORMS[form](X), y, weights, offset=offset)
    units = deviations(X, weights, with_intercept)
    left, first = slopes(kind, model, X, y, offset, weights, units)
    assert np.abs(left).max() <= 3e-5 * np.abs(first).max()


@pytest.mark.parametrize("solver", ["newton", "newton-cg", "sketch", "lbfgs"])
@pytest.mark.parametrize("kind", ["classes of two", "counts"])
def test_every_solver(kind, solver):
    X, y, offset, weights = problem(kind, 9000, 40)
    model = MODELS[kind](solver=solver, standardize=True).fit(sparse.csr_array(X), y, weights, offset=offset)
    left, first = slopes(kind, model, X, y, offset, weights, deviations(X, weights, True))
    assert np.abs(left).max() <= 3e-5 * np.abs(first).max()


@pytest.mark.parametrize("kind", ["classes of two", "classes", "counts"])
def test_in_the_space_of_the_rows(kind):
    X, y, offset, weights = problem(kind, 300, 3000)
    kept = np.random.default_rng(0).random(X.shape) < 0.05
    X = np.where(np.arange(3000) % 300 == np.arange(300)[:, None], X + 1, X * kept)
    weights = np.ones(300)
    model = MODELS[kind](standardize=True).fit(sparse.csr_array(X), y, offset=offset)
    left, first = slopes(kind, model, X, y, offset, weights, deviations(X, weights, True))
    assert np.abs(left).max() <= 3e-5 * np.abs(first).max()


@pytest.mark.parametrize("form", FORMS)
def test_ridge_is_a_fit_to_scaled_columns(form):
    X, y, offset, weights = problem("ridge", 60, 90)
    Y, offsets = np.column_stack([y, y + X[:, 0]]), np.column_stack([offset, -offset])
    units = deviations(X, weights, True)
    model = sd.Ridge(0.7, standardize=True, tol=1e-13).fit(FORMS[form](X), Y, weights, offset=offsets)
    expected = linear_model.Ridge(0.7).fit(X / units, Y - offsets, weights)
    np.testing.assert_allclose(model.coef_, expected.coef_ / units, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        model.predict(FORMS[form](X), offset=offsets), expected.predict(X / units) + offsets, rtol=1e-8
    )


@pytest.mark.parametrize("shape", [(400, 30), (60, 90)])
@pytest.mark.parametrize("solver", ["auto", "proximal-newton"])
def test_l1_of_scaled_columns(shape, solver):
    X, y, _, weights = problem("classes of two", *shape)
    units = deviations(X, weights, True)
    model = sd.LogisticRegression(0.1, l1_ratio=0.5, standardize=True, solver=solver, tol=1e-10)
    model.fit(sparse.csr_array(X), y, weights)
    options = {"C": 0.1, "l1_ratio": 0.5, "solver": "saga", "tol": 1e-9, "max_iter": 20_000}
    expected = linear_model.LogisticRegression(**options).fit(X / units, y, weights)
    np.testing.assert_allclose(model.coef_ * units, expected.coef_, atol=1e-5)


@pytest.mark.parametrize("shape", [(400, 30), (60, 90)])
def test_l1_with_an_offset_is_that_of_the_sparse_class(shape):
    X, y, offset, weights = problem("classes of two", *shape)
    C = 0.1
    model = sd.LogisticRegression(C, l1_ratio=1.0, tol=1e-10).fit(X, y, weights, offset=offset)
    alpha = 1 / (C * weights.sum())
    expected = sd.SparseLogisticRegression(alpha, tol=1e-10).fit(X, y, weights, offset=offset)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_float32(kind):
    X, y, offset, weights = problem(kind, 2000, 12, dense=True, dtype=np.float32)
    model = MODELS[kind](standardize=True).fit(X, y, weights, offset=offset)
    assert model.coef_.dtype == np.float32
    double = MODELS[kind](standardize=True).fit(X.astype(float), y, weights, offset=offset)
    np.testing.assert_allclose(model.coef_, double.coef_, rtol=2e-2, atol=2e-3 * np.abs(double.coef_).max())


@pytest.mark.parametrize("kind", ["ridge", "classes of two", "classes", "counts"])
def test_an_offset_of_counts_is_an_exposure(kind):
    """A constant offset is a part of the intercept; of counts, an offset also one of weights and rates."""
    X, y, offset, weights = problem(kind, 300, 6)
    plain = MODELS[kind]().fit(X, y, weights)
    moved = MODELS[kind]().fit(X, y, weights, offset=np.full_like(offset, 2.5))
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-5, atol=1e-7)
    if kind != "classes":  # whose intercepts sum to zero
        np.testing.assert_allclose(moved.intercept_, np.asarray(plain.intercept_) - 2.5, rtol=1e-5)
    if kind == "counts":
        exposed = MODELS[kind]().fit(X, y, weights, offset=offset)
        rows, total = weights * np.exp(offset), weights.sum()
        rates = sd.PoissonRegressor(0.7 * total / rows.sum(), tol=1e-12).fit(X, y * np.exp(-offset), rows)
        np.testing.assert_allclose(exposed.coef_, rates.coef_, rtol=1e-5)
        np.testing.assert_allclose(exposed.predict(X, offset=offset), np.exp(offset) * rates.predict(X))


def test_exposures_are_an_offset():
    X, y, offset, weights = problem("counts", 300, 6)
    times, half = np.exp(offset / 2), offset / 2
    expected = sd.PoissonRegressor().fit(X, y, weights, offset=2 * half)
    model = sd.PoissonRegressor().fit(X, y, weights, offset=half, exposure=times)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)
    means = expected.predict(X, offset=offset)
    np.testing.assert_allclose(model.predict(X, offset=half, exposure=times), means, rtol=1e-9)
    np.testing.assert_allclose(model.predict(X, exposure=times), means / times, rtol=1e-9)
    score = model.score(X, y, weights, offset=half, exposure=times)
    assert score == pytest.approx(expected.score(X, y, weights, offset=offset))
    lazy = sd.PoissonRegressor().fit(da.from_array(X, 100), y, weights, exposure=times)
    alone = sd.PoissonRegressor().fit(X, y, weights, exposure=da.from_array(times, 100))
    np.testing.assert_allclose(lazy.coef_, alone.coef_, rtol=1e-5)
    with pytest.raises(DataError, match="exposure is 0 in row 4"):
        model.fit(X, y, exposure=np.where(np.arange(300) == 4, 0, times))
    with pytest.raises(DataError, match="exposure has the shape"):
        model.fit(X, y, exposure=times[:-1])


@pytest.mark.parametrize("order", ["C", "F", "csr", "csc"])
@pytest.mark.parametrize("centre", [True, False])
def test_scales_of_columns(order, centre, monkeypatch):
    monkeypatch.setattr(scales, "_BLOCK", 100)
    X, _, _, weights = problem("ridge", 70, 9)
    X[:, 3], X[:, 4] = 0.1, X[:, 4] + 1e6
    forms = {"csr": sparse.csr_array, "csc": sparse.csc_array}
    form = forms[order](X) if order in forms else np.asarray(X, order=order)
    expected = deviations(X, weights, centre)
    if centre:
        expected[3] = 1
    np.testing.assert_allclose(scales.column_scales(form, weights, centre=centre), expected, rtol=1e-8)


@pytest.fixture(scope="module")
def client():
    with two_workers() as client:
        yield client


@pytest.mark.cluster
@pytest.mark.parametrize("form", [np.asarray, lambda X: sparse.csr_array(X).astype(float)])
@pytest.mark.parametrize("kind", MODELS)
def test_on_a_cluster(client, kind, form, monkeypatch):
    monkeypatch.setattr(row_places, "_LEAST_ENTRIES", 300)
    X, y, offset, weights = problem(kind, 400, 8)
    near = MODELS[kind](standardize=True).fit(form(X), y, weights, offset=offset)
    far = MODELS[kind](standardize=True, engine="dask").fit(form(X), y, weights, offset=offset)
    blocks = da.from_array(X, (150, -1))
    lazy = MODELS[kind](standardize=True).fit(blocks, da.from_array(y, 150), weights, offset=offset)
    alone = MODELS[kind](standardize=True).fit(blocks, da.from_array(y, 150), da.from_array(weights, 150))
    here = MODELS[kind](standardize=True).fit(X, y, weights)
    for model, expected in ((far, near), (lazy, near), (alone, here)):
        assert np.abs(model.coef_ - expected.coef_).max() <= 1e-5 * np.abs(expected.coef_).max()
    predicted = lazy.predict(blocks, offset=offset)
    assert isinstance(predicted, da.Array)
    np.testing.assert_allclose(predicted.compute(), lazy.predict(X, offset=offset))
    if hasattr(lazy, "predict_proba"):
        probabilities = lazy.predict_proba(blocks, offset=da.from_array(offset))
        assert isinstance(probabilities, da.Array)
        np.testing.assert_allclose(probabilities.compute(), lazy.predict_proba(X, offset=offset))


@pytest.mark.parametrize("kind", MODELS)
def test_the_score_takes_the_offset(kind):
    X, y, offset, _ = problem(kind, 50, 3)
    model = MODELS[kind]().fit(X, y, offset=offset)
    assert model.score(X, y, offset=offset) != model.score(X, y)


def test_downpour_takes_neither():
    X, y, offset, _ = problem("classes of two", 300, 3)
    model = sd.LogisticRegression(solver="downpour", random_state=0)
    with pytest.raises(DataError, match="not an offset: choose another solver"):
        model.fit(X, y, offset=offset)
    with pytest.raises(DataError, match="standardize=True"):
        model.set_params(standardize=True).fit(X, y)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_intercept", [True, False])
def test_ridge_with_a_bound_of_zero(form, with_intercept):
    """Slopes vanish where a coefficient is above 0, and are not negative elsewhere."""
    X, y, offset, weights = problem("ridge", 80, 12, dense=form != "sparse")
    y = y if with_intercept else np.abs(y)
    model = sd.Ridge(0.7, positive=True, standardize=True, fit_intercept=with_intercept, tol=1e-12)
    model.fit(FORMS[form](X), y, weights, offset=offset)
    left, first = slopes("ridge", model, X, y, offset, weights, deviations(X, weights, with_intercept))
    chosen, most = model.coef_ > 0, np.abs(first).max()
    assert 0 < chosen.sum() < 12
    assert (model.coef_ >= 0).all()
    assert np.abs(left[:12][chosen]).max() <= 1e-5 * most
    assert left[:12][~chosen].min() >= -1e-5 * most
    plain = sd.Ridge(3.0, positive=True, tol=1e-12).fit(X, np.c_[y, -y], weights)
    expected = linear_model.Ridge(3.0, positive=True, tol=1e-12).fit(X, np.c_[y, -y], weights)
    np.testing.assert_allclose(plain.coef_, expected.coef_, atol=1e-5)
    with pytest.raises(DataError, match="positive=True takes one alpha"):
        sd.Ridge([1.0, 2.0], positive=True).fit(X, np.c_[y, y])


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    "model", [sd.Ridge(), sd.LogisticRegression(), sd.PoissonRegressor(), sd.GLM("poisson")]
)
def test_scores_refuse_negative_weights_on_dask(model, lazy):
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80) % 2
    model.fit(X, y)
    weights = da.from_array(np.where(np.arange(80) < 9, -1.0, 1.0), 20)
    data = (da.from_array(X, (20, 3)), da.from_array(y, 20)) if lazy else (X, y)
    with pytest.raises(DataError, match="sample_weight must be 0 or above"):
        model.score(*data, sample_weight=weights)
    assert model.score(*data, sample_weight=abs(weights)) == pytest.approx(model.score(X, y))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("exposure", [2.0, np.ones(79), np.ones((80, 2))], ids=["float", "short", "matrix"])
@pytest.mark.parametrize("model", [sd.PoissonRegressor(), sd.GLM("poisson")])
def test_exposures_of_another_shape_are_named(model, exposure, lazy):
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80) % 2
    model.fit(X, y)
    X = da.from_array(X, (20, 3)) if lazy else X
    for read in (model.predict, lambda X, **more: model.score(X, y, **more)):
        with pytest.raises(DataError, match=r"exposure has the shape \(.*\); pass a vector"):
            read(X, exposure=exposure)
