"""More than two classes by groups of columns."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp, softmax
from sklearn.model_selection import KFold

import stradask as sd
from stradask.errors import DataError

N, P, SIZE = 150, 24, 4
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, P))
TRUE = np.zeros((P, 3))
TRUE[:8] = RNG.standard_normal((8, 3))
Y = np.array([RNG.choice(3, p=p) for p in softmax(X @ TRUE + [1, 0, -1], axis=1)])
SHARES = np.eye(3)[Y]
WEIGHTS = RNG.uniform(0.5, 2, N)
OFFSET = 0.3 * RNG.standard_normal((N, 3))


def judge(B, intercept, alpha, ratio, size, weights, offset):
    """Objective, largest violation of the optimality conditions, and slopes of the intercepts, by numpy."""
    w = weights / weights.sum()
    f = X @ B + intercept + offset
    value = w @ (logsumexp(f, axis=1) - (SHARES * f).sum(axis=1))
    residual = w[:, None] * (softmax(f, axis=1) - SHARES)
    slopes, worst = -X.T @ residual, 0.0
    l1, norm = ratio * alpha, (1 - ratio) * np.sqrt(size) * alpha
    for first in range(0, P, size):
        b, g = B[first : first + size], slopes[first : first + size]
        length = np.linalg.norm(b)
        value += norm * length + l1 * np.abs(b).sum()
        rest = np.sign(g) * np.maximum(np.abs(g) - l1, 0)
        if length:
            rest = np.where(b != 0, g - norm * b / length - l1 * np.sign(b), rest)
        worst = max(worst, np.linalg.norm(rest) - (0 if length else norm))
    return value, worst, np.abs(residual.sum(axis=0)).max()


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("groups", "ratio"), [(None, 0.0), (SIZE, 0.0), (SIZE, 0.5)])
def test_the_optimality_conditions_hold(groups, ratio, fit_intercept):
    model = sd.GroupLogisticRegression(
        groups, alpha=0.03, l1_ratio=ratio, fit_intercept=fit_intercept, tol=1e-10, max_iter=1000
    ).fit(X, Y, WEIGHTS, offset=OFFSET)
    value, worst, free = judge(model.coef_.T, model.intercept_, 0.03, ratio, groups or 1, WEIGHTS, OFFSET)
    assert model.stopped_by_ == "duality gap"
    assert 0 < np.count_nonzero(model.coef_.any(axis=0)) < P
    assert abs(value - model.objective_) < 1e-12
    assert worst < 1e-7
    assert not fit_intercept or free < 1e-7


def test_the_gap_bounds_the_distance_from_the_minimum():
    best = sd.GroupLogisticRegression(SIZE, alpha=0.02, tol=1e-12, max_iter=1000).fit(X, Y).objective_
    for tol in (0.3, 1e-2, 1e-4):
        rough = sd.GroupLogisticRegression(SIZE, alpha=0.02, tol=tol).fit(X, Y)
        assert rough.objective_ - best <= rough.dual_gap_


def test_two_classes_are_the_logistic_loss():
    """Coefficients of two classes are b / 2 and -b / 2, of the norm |b| / sqrt(2)."""
    two = (Y > 0).astype(float)
    several = sd.SparseGLM("multinomial", alpha=0.03, tol=1e-11, max_iter=1000).fit(
        X, np.eye(2)[Y.clip(max=1)]
    )
    single = sd.SparseGLM("logistic", alpha=0.03 / np.sqrt(2), tol=1e-12).fit(X, two)
    np.testing.assert_allclose(several.coef_[1] - several.coef_[0], single.coef_, atol=1e-7)
    np.testing.assert_allclose(several.intercept_[1] - several.intercept_[0], single.intercept_, atol=1e-7)
    np.testing.assert_allclose(several.predict(X)[:, 1], single.predict(X), atol=1e-7)


def test_sparse_columns_have_the_model_of_dense_ones():
    model = sd.GroupLogisticRegression(SIZE, alpha=0.03, tol=1e-11, max_iter=1000)
    coef = model.fit(X, Y).coef_
    np.testing.assert_allclose(model.fit(sparse.csr_array(X), Y).coef_, coef, atol=1e-6)


def test_free_and_excluded_groups():
    factors = np.ones(P // SIZE)
    factors[0], factors[1] = 0, np.inf
    model = sd.GroupLogisticRegression(SIZE, alpha=0.05, penalty_factor=factors, tol=1e-9, max_iter=1000)
    f = model.fit(X, Y).decision_function(X)
    assert not model.coef_[:, SIZE : 2 * SIZE].any()
    assert np.abs(X[:, :SIZE].T @ (softmax(f, axis=1) - SHARES)).max() / N < 1e-6


def test_labels_probabilities_and_paths():
    model = sd.GroupLogisticRegression(SIZE, alpha=0.03).fit(X, np.array(["c", "a", "b"])[Y])
    assert model.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(model.predict_proba(X), softmax(model.decision_function(X), axis=1))
    model.set_params(alpha=1.001 * model.alpha_max(X, Y))
    assert not model.fit(X, Y).coef_.any()
    alphas, coefs, intercepts, gaps = model.path(X, Y, alphas=4, eps=0.01)
    assert coefs.shape == (3, P, 4)
    assert intercepts.shape == (3, 4)
    assert not coefs[..., 0].any()
    assert model.path(X, Y > 0, alphas=4)[1].shape == (P, 4)
    least = sd.GroupLogisticRegression(SIZE, alpha=alphas[-1], tol=1e-10, max_iter=1000).fit(X, Y).objective_
    assert least <= _objective(coefs[..., -1], intercepts[:, -1], alphas[-1]) <= least + gaps[-1]


def _objective(coef, intercept, alpha):
    return judge(coef.T, intercept, alpha, 0.0, SIZE, np.ones(N), np.zeros((N, 3)))[0]


def test_folds_without_a_class_keep_the_numbers_of_the_classes():
    """Rows sorted by label: the rows of a fold have one or two of the classes."""
    order = np.argsort(Y, kind="stable")
    search = sd.SparseGLMCV(sd.GroupLogisticRegression(SIZE, tol=1e-8), alphas=[0.1, 0.03], cv=KFold(3))
    search.fit(X[order], Y[order])
    train, test = next(iter(KFold(3).split(X)))
    held = sd.GroupLogisticRegression(SIZE, alpha=0.1, tol=1e-8).fit(X[order][train], Y[order][train])
    assert len(held.classes_) == 3
    loss = -np.log(held.predict_proba(X[order][test])[np.arange(len(test)), Y[order][test]]).mean()
    assert abs(search.scores_[0, 0] + loss) < 1e-4


def test_a_class_of_one_row_ends_by_the_gap():
    """Steps of a bound of the curvature are short for it, and the gap rests for many passes."""
    rows = np.random.default_rng(3).standard_normal((60, 6))
    y = np.r_[np.zeros(29), np.ones(30), 2].astype(int)
    model = sd.GroupLogisticRegression(2, alpha=0.0035, tol=1e-4).fit(rows, y)
    assert model.stopped_by_ == "duality gap"
    best = sd.GroupLogisticRegression(2, alpha=0.0035, tol=1e-6, max_iter=2000).fit(rows, y)
    assert best.stopped_by_ == "duality gap"
    assert 0 <= model.objective_ - best.objective_ <= model.dual_gap_


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (sd.SparseGLM("multinomial"), Y, "a column a class"),
        (sd.SparseGLM("multinomial"), 2 * SHARES, "sum to 1"),
        (sd.SparseGLM("multinomial"), np.column_stack([SHARES, np.zeros(N)]), "class in column 3"),
    ],
)
def test_bad_input_is_refused(model, y, message):
    with pytest.raises(DataError, match=message):
        model.fit(X, y)


def test_columns_of_workers_take_two_classes():
    array = pytest.importorskip("dask.array")
    with pytest.raises(DataError, match="columns of workers takes the losses"):
        sd.GroupLogisticRegression(SIZE).fit(array.from_array(X, chunks=(N, SIZE)), Y)
