"""What the sparse linear models refuse, in which words, and what they take although it looks odd."""

import warnings

import numpy as np
import pytest
from linear_inputs import MODELS, RNG, X, Y
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso as TheirLasso
from sklearn.utils._param_validation import InvalidParameterError

import stradask as sd
from stradask.errors import DataError

FORMS = {"dense": np.asfortranarray, "csr": sparse.csr_array}


@pytest.fixture(params=MODELS)
def case(request):
    cls, y = MODELS[request.param]
    return cls(0.05), y


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


def edited(value, row=7, column=3, dtype=np.float64):
    changed = X.astype(dtype)
    changed[row, column] = value
    return changed


# --- values of X ------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 99_999, 149_999, 150_000, 299_999])
@pytest.mark.parametrize("model", [sd.Lasso(n_jobs=2), sd.LogisticRegression(n_jobs=2)])
@pytest.mark.parametrize("whole", [np.array, sparse.csr_array])
def test_nan_is_found_anywhere_in_a_long_matrix(model, row, whole):
    """Which is looked at in quarters, by two threads."""
    rows = np.ones((300_000, 4), np.float32)
    rows[row, 3] = np.nan
    with pytest.raises(DataError, match=f"X contains NaN in row {row}, column 3"):
        model.fit(whole(rows), np.arange(300_000) % 2)


@pytest.mark.parametrize(("value", "dtype"), [(1e300, np.float64), (1e30, np.float32)])
def test_values_whose_squares_overflow_are_refused(case, form, value, dtype):
    model, y = case
    kind = "1e\\+300 .*float64" if dtype == np.float64 else "1e\\+30 .*float32"
    with pytest.raises(DataError, match=rf"X holds {kind}: scale"):
        model.fit(form(edited(value, dtype=dtype)), y)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-30])
def test_columns_of_tiny_scale_are_too_costly_to_use(case, form, scale):
    model, y = case
    scales = np.array([1.0, 1, 1, scale, 1, 1])
    coef = model.set_params(tol=1e-10).fit(form(X * scales), y).coef_.ravel()
    without = model.fit(form(np.delete(X, 3, axis=1)), y).coef_.ravel()
    np.testing.assert_allclose(np.delete(coef, 3), without, atol=1e-6)
    assert coef[3] == 0


@pytest.mark.parametrize("scale", [1e6, 1e9, 1e30, 1e150])
def test_columns_of_huge_scale_are_as_good_as_free(case, form, scale):
    """So much so that beyond the precision of float64 their gap cannot be closed: then a warning says it.

    A slope of such a column has a rounding error of 1e-16 of its norm, which is to be small beside alpha.
    """
    model, y = case
    scales = np.array([1.0, 1, 1, scale, 1, 1])
    model.set_params(tol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if scale > 1e6:
            warnings.filterwarnings("ignore", ".*bring the columns to one scale", ConvergenceWarning)
        coef = model.fit(form(X * scales), y).coef_ * scales
    reference = model.set_params(penalty_factor=[1, 1, 1, 0, 1, 1]).fit(X, y).coef_
    np.testing.assert_allclose(coef, reference, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e100])
def test_targets_of_extreme_scale_do_no_harm(form, scale):
    plain = sd.Lasso(0.05, tol=1e-10).fit(form(X), Y)
    scaled = sd.Lasso(0.05 * scale, tol=1e-10).fit(form(X), Y * scale)
    np.testing.assert_allclose(scaled.coef_ / scale, plain.coef_, rtol=1e-7, atol=1e-9)
    assert scaled.intercept_ / scale == pytest.approx(plain.intercept_, abs=1e-9)


def test_targets_whose_squares_overflow_are_refused():
    with pytest.raises(DataError, match=r"y holds 1e\+300 in row 2, above 1e\+150.*scale y"):
        sd.Lasso().fit(X, np.where(np.arange(40) == 2, 1e300, Y))


def test_huge_weights_are_only_ratios(case):
    model, y = case
    weights = RNG.uniform(1, 2, 40)
    reference = model.fit(X, y, weights).coef_.copy()
    for scale in (1e-300, 1e300):
        np.testing.assert_allclose(model.fit(X, y, weights * scale).coef_, reference, rtol=1e-9)


# --- columns that say nothing -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("case", "form", "fit_intercept", "standardize", "value"),
    [  # each pair of levels
        ("Lasso", "dense", True, True, 0.1),
        ("Lasso", "dense", False, False, 0.0),
        ("Lasso", "csr", True, False, 1e8),
        ("Lasso", "csr", False, True, 0.1),
        ("ElasticNet", "dense", True, False, 0.1),
        ("ElasticNet", "dense", False, True, 1e8),
        ("ElasticNet", "csr", True, True, 0.0),
        ("SparseLogisticRegression", "dense", True, True, 1e8),
        ("SparseLogisticRegression", "csr", False, True, 0.0),
        ("SparseLogisticRegression", "csr", True, False, 0.1),
    ],
    indirect=["case", "form"],
)
def test_constant_columns(case, form, fit_intercept, standardize, value):
    model, y = case
    model.set_params(fit_intercept=fit_intercept, standardize=standardize, tol=1e-9)
    wide = np.column_stack([X[:, :3], np.full(40, value), X[:, 3:]])
    coef = model.fit(form(wide), y).coef_.ravel()
    if fit_intercept or value == 0:
        assert coef[3] == 0
        np.testing.assert_allclose(np.delete(coef, 3), model.fit(form(X), y).coef_.ravel(), atol=1e-6)
    else:
        assert np.isfinite(coef).all()


def test_constant_columns_without_penalty_get_nothing(case, form):
    model, y = case
    wide = np.column_stack([X, np.ones(40), np.zeros(40)])
    model.set_params(penalty_factor=[1, 1, 1, 1, 1, 1, 0, 0], tol=1e-9)
    coef = model.fit(form(wide), y).coef_.ravel()
    np.testing.assert_allclose(
        coef[:6], model.set_params(penalty_factor=None).fit(X, y).coef_.ravel(), atol=1e-6
    )


def test_a_matrix_of_zeros(case, form):
    model, y = case
    model.fit(form(np.zeros((40, 3))), y)
    assert (model.coef_ == 0).all()
    assert model.alpha_max(form(np.zeros((40, 3))), y) == 0
    assert model.dual_gap_ == 0 or isinstance(model, sd.SparseLogisticRegression)


def test_duplicate_columns_share(case, form):
    model, y = case
    model.set_params(tol=1e-12)
    single = model.fit(form(X), y).coef_.ravel().copy()
    double = model.fit(form(np.column_stack([X, X[:, 0]])), y).coef_.ravel()
    if isinstance(model, sd.ElasticNet) and model.l1_ratio < 1:
        assert double[0] == pytest.approx(double[6], abs=1e-5)
    else:
        np.testing.assert_allclose(double[0] + double[6], single[0], atol=1e-5)


def test_duplicate_columns_without_penalty(case):
    model, y = case
    doubled = np.column_stack([X, X[:, 0]])
    use = "decision_function" if isinstance(model, sd.SparseLogisticRegression) else "predict"
    both = getattr(model.set_params(penalty_factor=[0, 1, 1, 1, 1, 1, 0], tol=1e-9).fit(doubled, y), use)(
        doubled
    )
    one = getattr(model.set_params(penalty_factor=[0, 1, 1, 1, 1, 1]).fit(X, y), use)(X)
    np.testing.assert_allclose(both, one, atol=1e-5)


def test_more_features_than_samples(case, form):
    model, _ = case
    wide = RNG.standard_normal((12, 300))
    y = wide[:, 0] if not isinstance(model, sd.SparseLogisticRegression) else (wide[:, 0] > 0).astype(int)
    model.set_params(tol=1e-9).fit(form(wide), y)
    assert (
        0
        < (model.coef_ != 0).sum()
        <= (300 if isinstance(model, sd.ElasticNet) and model.l1_ratio < 1 else 12)
    )


# --- alpha ------------------------------------------------------------------------------------------
def test_alpha_zero_warns_once(case):
    model, y = case
    y = np.where(RNG.random(40) < 0.3, 1 - y, y) if isinstance(model, sd.SparseLogisticRegression) else y
    with pytest.warns(UserWarning, match="alpha=0 penalises nothing") as caught:
        model.set_params(alpha=0).fit(X, y)
    assert len(caught) == 1
    assert (model.coef_ != 0).all()


@pytest.mark.parametrize("factor", [1 + 1e-9, 10, 1e100, 1e300])
def test_alpha_above_the_largest_gives_the_zero_model_in_silence(case, form, factor):
    model, y = case
    edge = model.alpha_max(form(X), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(alpha=edge * factor).fit(form(X), y)
    assert (model.coef_ == 0).all()
    share = y.mean()
    expected = np.log(share / (1 - share)) if isinstance(model, sd.SparseLogisticRegression) else share
    assert np.ravel(model.intercept_)[0] == pytest.approx(expected, rel=1e-6)
    assert np.isfinite(model.dual_gap_)


@pytest.mark.parametrize("alpha", [-1.0, np.nan, np.inf, "1", None])
def test_other_alphas_are_refused(case, alpha):
    model, y = case
    with pytest.raises(InvalidParameterError, match="'alpha' parameter"):
        model.set_params(alpha=alpha).fit(X, y)


@pytest.mark.parametrize(
    ("name", "value"),
    [("l1_ratio", 1.5), ("tol", -1.0), ("max_iter", 0), ("n_jobs", 1.5), ("engine", 3), ("positive", "yes")],
)
def test_other_parameters_out_of_range(name, value):
    with pytest.raises(InvalidParameterError, match=f"'{name}' parameter"):
        sd.ElasticNet(**{name: value}).fit(X, Y)


# --- tolerance --------------------------------------------------------------------------------------
@pytest.mark.parametrize("tol", [0.0, 1e-30])
def test_an_unreachable_tol_ends_with_one_warning(case, form, tol):
    model, y = case
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.set_params(tol=tol).fit(form(X), y)
    if model.dual_gap_ > 0:  # it may come out as 0 to the last bit
        (warning,) = caught
        assert warning.category is ConvergenceWarning
        assert f"above tol={tol:g}, and rounding errors allow no further progress" in str(warning.message)
    assert 0 <= model.dual_gap_ < 1e-12
    assert model.n_iter_ < 100


def test_an_unreachable_tol_in_float32_says_float64():
    wide = RNG.standard_normal((50, 200)).astype(np.float32)
    with pytest.warns(ConvergenceWarning, match="pass X in float64|raise max_iter"):
        sd.Lasso(0.01, tol=1e-30).fit(wide, wide[:, 0] + RNG.standard_normal(50))


# --- the shape and kind of X ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [object, np.int8, np.uint64, bool, np.float16, np.longdouble, ">f8", ">f4"])
def test_every_real_type_is_taken(case, kind):
    model, y = case
    odd = np.abs(np.round(X)).astype(kind)
    plain = model.fit(np.asarray(odd, np.float64), y).coef_.copy()
    np.testing.assert_allclose(model.fit(odd, y).coef_, plain, atol=1e-6)
    expected = np.float32 if np.dtype(kind) == np.float32 else np.float64
    assert model.coef_.dtype == expected


def broken(change):
    matrix = sparse.csc_array(X)
    change(matrix)
    return matrix


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.indices.__setitem__(5, 40), "row index 40, but only the rows 0 to 39"),
        (lambda m: m.indices.__setitem__(5, -1), "row index -1"),
        (lambda m: m.indptr.__setitem__(2, 500), "indptr"),
        (lambda m: m.indptr.__setitem__(0, 1), "indptr must begin with 0"),
    ],
)
def test_unsound_indices_never_reach_compiled_code(case, change, message):
    model, y = case
    with pytest.raises(DataError, match=message):
        model.fit(broken(change), y)
    fitted = model.fit(X, y)
    with pytest.raises(DataError, match=message):
        fitted.predict(broken(change))


def test_unsorted_and_duplicate_entries_are_put_in_order(case):
    model, y = case
    coo = sparse.coo_array(X)
    rows, columns = np.r_[coo.row, coo.row][::-1], np.r_[coo.col, coo.col][::-1]
    order = np.argsort(columns, kind="stable")
    halves = np.r_[coo.data, coo.data][::-1][order] / 2
    indptr = np.searchsorted(columns[order], np.arange(7))
    messy = sparse.csc_array((halves, rows[order], indptr), shape=X.shape)
    assert messy.nnz == 2 * X.size
    np.testing.assert_allclose(model.fit(messy, y).coef_, model.fit(sparse.csc_array(X), y).coef_, rtol=1e-9)
    assert messy.nnz == 2 * X.size


def test_single_row_single_column():
    for model in (sd.Lasso(0.1), sd.ElasticNet(0.1)):
        one = model.fit([[3.0]], [2.0])
        assert (one.coef_, one.intercept_) == (0, 2.0)
        np.testing.assert_array_equal(one.predict([[5.0]]), [2.0])
    assert sd.Lasso(0.0001, fit_intercept=False, tol=1e-12).fit([[3.0]], [2.0]).coef_ == pytest.approx(
        2 / 3, abs=1e-4
    )
    pair = sd.SparseLogisticRegression(0.01).fit([[0.0], [1.0]], ["no", "yes"])
    assert pair.predict([[0.0], [1.0]]).tolist() == ["no", "yes"]


def test_a_constant_target():
    for value in (0.0, 0.1, -3e5):
        model = sd.Lasso(1e-6).fit(X, np.full(40, value))
        assert (model.coef_ == 0).all()
        assert model.intercept_ == value
        assert model.dual_gap_ == 0


# --- paths ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphas": []}, "alphas must be a number of penalties or a vector"),
        ({"alphas": [1, -1]}, "alphas must be 0 or above and finite, got -1"),
        ({"alphas": [1, np.nan]}, "alphas must be .* got nan"),
        ({"alphas": [[1, 2]]}, "alphas must be a number"),
        ({"n_alphas": 0}, "a path has 1 to 1,000,000 alphas, got 0"),
        ({"eps": 0}, "eps must be above 0 and at most 1, got 0"),
        ({"coef_init": np.ones(5)}, "coef_init must be a vector of 6 finite numbers"),
        ({"sample_weight": -np.ones(40)}, "sample_weight must be 0 or above"),
        ({"penalty_factor": np.ones(3)}, "penalty_factor has the shape"),
    ],
)
def test_paths_refuse(options, message):
    with pytest.raises(DataError, match=message):
        sd.lasso_path(X, Y, **options)


def test_paths_of_ridge_and_of_several_targets():
    with pytest.raises(DataError, match="as with l1_ratio=0"):
        sd.enet_path(X, Y, l1_ratio=0)
    with pytest.raises(DataError, match=r"y has the shape \(40, 2\).*call it for each column"):
        sd.lasso_path(X, np.column_stack([Y, Y]))
    with pytest.raises(TypeError, match="no l1_ratio"):
        sd.lasso_path(X, Y, l1_ratio=0.5)
    alphas, coefs, _ = sd.lasso_path(X, np.zeros(40), n_alphas=3)
    assert len(alphas) == 3
    assert (coefs == 0).all()


def test_nothing_here_is_a_test_of_scikit_learn():
    """The reference itself agrees with what is asked of ours on plain data."""
    ours = sd.Lasso(0.05, tol=1e-12).fit(X, Y)
    np.testing.assert_allclose(ours.coef_, TheirLasso(0.05, tol=1e-12).fit(X, Y).coef_, atol=1e-8)


@pytest.mark.parametrize("values", [[0, 1], [False, True], [1.0, 2.0, 4.0]])
def test_numbers_as_objects_are_labels_in_fit_and_in_score(values):
    rng = np.random.default_rng(0)
    y = np.array(values)[rng.permutation(60) % len(values)]
    X = np.c_[y, rng.standard_normal(60)]
    plain = sd.LogisticRegression().fit(X, y)
    model = sd.LogisticRegression().fit(X, y.astype(object))
    assert model.score(X, y.astype(object)) == plain.score(X, y) > 0.9
    assert model.classes_.tolist() == plain.classes_.tolist()
