"""Every door takes X in every form that NumPy, SciPy and pandas have, with any values, or says why not.

No form or value may crash, change the input, or give another model than the plain array does.
"""

import contextlib
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

import stradask as sd

N, D = 40, 5
_RNG = np.random.default_rng(0)
COUNTS = _RNG.integers(4, size=(N, D)).astype(np.float64)
COUNTS[:, 0] += 1  # no empty document
Y = COUNTS @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + _RNG.standard_normal(N)

ESTIMATORS = {
    "lda": (lambda: sd.LatentDirichletAllocation(3, max_iter=5, random_state=0), None, "components_"),
    "lasso": (lambda: sd.Lasso(0.1), Y, "coef_"),
    "elastic net": (lambda: sd.ElasticNet(0.1), Y, "coef_"),
    "sparse logistic": (lambda: sd.SparseLogisticRegression(0.05, tol=1e-12), Y > 0, "coef_"),
    "logistic": (lambda: sd.LogisticRegression(tol=1e-8), Y > 0, "coef_"),
    "three classes": (lambda: sd.LogisticRegression(tol=1e-12), np.digitize(Y, [-1, 1]), "coef_"),
    "ridge": (lambda: sd.Ridge(), Y, "coef_"),
    "poisson": (lambda: sd.PoissonRegressor(tol=1e-8), np.abs(Y).round(), "coef_"),
    "mlp": (lambda: sd.MLPRegressor((4,), max_iter=5, random_state=0), Y, "coefs_"),
    "bayesian": (
        lambda: sd.BayesianLogisticRegression(n_samples=50, n_chains=1, random_state=0),
        Y > 0,
        "coef_",
    ),
    "factors": (lambda: sd.MatrixFactorization(2, max_iter=3, random_state=0), None, "item_factors_"),
}


class Path:
    """A path as an estimator, which is all that the tests below know."""

    def __init__(self, path):
        self.path = path

    def fit(self, X, y):
        self.coefs_ = self.path(X, y, alphas=[1.0, 0.1], tol=1e-12)[1]
        return self


MCMC = {"n_samples": 20, "n_warmup": 20, "n_chains": 1, "sampler": "random_walk", "random_state": 0}
# They share code with one above: what takes long is tried on them with fewer forms and values.
COUSINS = {
    "lda, warp": (
        lambda: sd.LatentDirichletAllocation(3, sampler="warp", max_iter=2, random_state=0),
        None,
        "components_",
    ),
    "lasso cv": (lambda: sd.LassoCV(alphas=3, cv=2), Y, "coef_"),
    "elastic net cv": (lambda: sd.ElasticNetCV(alphas=3, cv=2), Y, "coef_"),
    "lasso path": (lambda: Path(sd.lasso_path), Y, "coefs_"),
    "elastic net path": (lambda: Path(sd.enet_path), Y, "coefs_"),
    "sparse logistic cv": (lambda: sd.SparseLogisticRegressionCV(alphas=3, cv=2), Y > 0, "coef_"),
    "mlp of classes": (lambda: sd.MLPClassifier((2,), max_iter=2, random_state=0), Y > 0, "coefs_"),
    "bayesian linear": (lambda: sd.BayesianLinearRegression(**MCMC), Y, "coef_"),
    "bayesian poisson": (lambda: sd.BayesianPoissonRegression(**MCMC), np.abs(Y).round(), "coef_"),
    "implicit factors": (
        lambda: sd.MatrixFactorization(2, implicit=True, max_iter=2, random_state=0),
        None,
        "item_factors_",
    ),
}
ESTIMATORS |= COUSINS
RATINGS = {"factors", "implicit factors"}
DENSE_ONLY = {"bayesian", "bayesian linear", "bayesian poisson"}


def _strided(X):
    wide = np.zeros((2 * N, 3 * D))
    wide[::2, ::3] = X
    return wide[::2, ::3]


def _read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def _memory_mapped(X, folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def _unsorted(X):
    X = sparse.csr_matrix(X)
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[a:b], X.data[a:b] = X.indices[a:b][::-1].copy(), X.data[a:b][::-1].copy()
    X.has_sorted_indices = False
    return X


def _repeated(X):
    """Each entry in two halves, the second ones in another order."""
    X = sparse.coo_matrix(X)
    twice = [np.concatenate([part, part[::-1]]) for part in (X.row, X.col)]
    ones = np.ones_like(X.data)
    return sparse.coo_matrix((np.concatenate([X.data - ones, ones]), tuple(twice)), shape=X.shape)


def _long_indices(X):
    X = sparse.csr_matrix(X)
    X.indptr, X.indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
    return X


def _big_endian(X):
    X = sparse.csr_matrix(X)
    X.data = X.data.astype(">f8")
    return X


def _frame(X, dtype=None):
    return pd.DataFrame(X, columns=[f"c{j}" for j in range(D)], dtype=dtype)


DENSE = {
    "fortran": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": _read_only,
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "longdouble": lambda X: X.astype(np.longdouble),
    "big-endian": lambda X: X.astype(">f8"),
    "int64": lambda X: X.astype(np.int64),
    "int8": lambda X: X.astype(np.int8),
    "uint16 big-endian": lambda X: X.astype(">u2"),
    "object": lambda X: X.astype(object),
    "list": lambda X: X.tolist(),
    "frame": _frame,
    "frame of Int64": lambda X: _frame(X.astype(int), "Int64"),
    "frame of Float32": lambda X: _frame(X, "Float32"),
    "frame of mixed types": lambda X: _frame(X).astype({"c0": "int8", "c1": "float32", "c2": "uint64"}),
    "matrix subclass": lambda X: X.view(type("Sub", (np.ndarray,), {})),
}
SPARSE = {
    "csr": sparse.csr_matrix,
    "csr array": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_matrix,
    "coo, repeated entries": _repeated,
    "lil": sparse.lil_matrix,
    "dok": sparse.dok_matrix,
    "bsr": sparse.bsr_matrix,
    "unsorted": _unsorted,
    "int64 indices": _long_indices,
    "csr of int32": lambda X: sparse.csr_matrix(X.astype(np.int32)),
    "csr of float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
    "csr big-endian": _big_endian,
    "stored zeros": lambda X: sparse.csr_matrix(
        (X.ravel(), np.tile(np.arange(D), N), np.arange(0, N * D + 1, D)), shape=(N, D)
    ),
}


def in_form(form, folder):
    return _memory_mapped(COUNTS, folder) if form == "memory-mapped" else (DENSE | SPARSE)[form](COUNTS)


def fitted(name, X):
    make, y, attribute = ESTIMATORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(X) if y is None else make().fit(X, y)
    value = getattr(model, attribute)
    parts = value if isinstance(value, list) else [value]
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in parts])


def parts_of(X):
    """Copies of all arrays in X, to see whether a fit changed them."""
    if sparse.issparse(X):
        kept = ("data", "indices", "indptr", "row", "col", "rows")
        return [np.array(getattr(X, part), copy=True) for part in kept if hasattr(X, part)]
    return [np.array(X, copy=True)]


@pytest.fixture(scope="module")
def plain():
    kept = {}

    def of(name, form):
        if (name, form) not in kept:
            kept[name, form] = fitted(name, COUNTS if form == "dense" else sparse.csr_matrix(COUNTS))
        return kept[name, form]

    return of


# What is not taken, in the words of its error.
REFUSED = {
    **{(name, "sparse"): "needs dense data" for name in DENSE_ONLY},
    **{(name, "frame of sparse columns"): "needs dense data" for name in DENSE_ONLY},
    **{(name, "dense"): "takes ratings as a scipy sparse matrix" for name in RATINGS},
    **{(name, "coo, repeated entries"): "several ratings of one item by one user" for name in RATINGS},
}
# What is another model by definition: draws in another precision, and ratings of zero.
ANOTHER = {(name, "float32") for name in DENSE_ONLY} | {(name, "stored zeros") for name in RATINGS}
FORMS = [*DENSE, "memory-mapped", *SPARSE]
FEW = ["strided", "float32", "big-endian", "frame of Int64", "memory-mapped"]
FEW += ["csr array", "coo, repeated entries", "unsorted", "int64 indices", "stored zeros"]


@pytest.mark.parametrize(
    ("name", "form"), [(name, form) for name in ESTIMATORS for form in (FEW if name in COUSINS else FORMS)]
)
def test_a_form_gives_the_plain_model_or_an_error_of_ours(name, form, plain, tmp_path):
    kind = "sparse" if form in SPARSE else "dense"
    X = in_form(form, tmp_path)
    before = parts_of(X)
    said = REFUSED.get((name, form), REFUSED.get((name, kind)))
    if said:
        with pytest.raises((ValueError, TypeError), match=said):
            fitted(name, X)
    else:
        found = fitted(name, X)
        if (name, form) not in ANOTHER:
            close = 1e-3 if "32" in form else 1e-6
            np.testing.assert_allclose(found, plain(name, kind), atol=close, rtol=close)
        assert np.isfinite(found).all()
    for was, now in zip(before, parts_of(X), strict=True):
        np.testing.assert_array_equal(was, now)


# Values that nobody means ----------------------------------------------------------------------------

ODD = [0.0, -0.0, 1.0, 2.0, 3.0, -1.0, 0.5, np.nan, np.inf, -np.inf]
ODD += [1e300, -1e300, 1e160, 5e-324, 1e-300, 1e-160, 2.0**31, 2.0**53 + 2, -(2.0**63), 1e19]
ORDINARY = [0.0, 1.0, 2.0, 3.0]


@st.composite
def problems(draw):
    """X and y of a few rows, most values ordinary, and whether X is sparse."""
    n, d = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    few = draw(st.integers(0, 3))  # odd values
    X = draw(hnp.arrays(np.float64, (n, d), elements=st.sampled_from(ORDINARY)))
    y = draw(hnp.arrays(np.float64, (n,), elements=st.sampled_from(ORDINARY)))
    for _ in range(few if n and d else 0):
        place = draw(st.integers(0, n - 1)), draw(st.integers(0, d))
        value = draw(st.sampled_from(ODD))
        if place[1] < d:
            X[place] = value
        else:
            y[place[0]] = value
    return X, y, draw(st.booleans())


UNHURRIED = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
}


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in COUSINS])
@settings(max_examples=25, **UNHURRIED)
@given(problem=problems())
def test_an_answer_that_is_finite_or_an_error_of_ours(name, problem):
    check_problem(name, *problem)


@pytest.mark.parametrize("name", COUSINS)
@settings(max_examples=8, **UNHURRIED)
@given(problem=problems())
def test_a_cousins_answer_is_finite_or_an_error_of_ours(name, problem):
    check_problem(name, *problem)


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
@settings(max_examples=500, **UNHURRIED)
@given(problem=problems())
def test_an_answer_that_is_finite_or_an_error_of_ours_at_length(name, problem):
    check_problem(name, *problem)


def check_problem(name, X, y, is_sparse):
    make, usual, attribute = ESTIMATORS[name]
    if usual is not None and usual.dtype == bool:
        y = np.where(y > 1, "b", "a") if np.isfinite(y).all() else y
    given_X = sparse.csr_matrix(X) if is_sparse else X.copy()
    given_y = y.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(ValueError, TypeError):
            model = make().fit(given_X) if usual is None else make().fit(given_X, given_y)
            value = getattr(model, attribute)
            for part in value if isinstance(value, list) else [value]:
                assert np.isfinite(part).all()
    np.testing.assert_array_equal(given_X.toarray() if is_sparse else given_X, X)
    np.testing.assert_array_equal(given_y, y)


# What is no matrix of numbers -----------------------------------------------------------------------------


def _categories(X):
    return _frame(X).astype({"c1": "int64"}).astype({"c1": "category"})


def _with_missing(X):
    frame = _frame(X.astype(int), "Int64")
    frame.iloc[3, 2] = pd.NA
    return frame


def _masked(X):
    return np.ma.array(X, mask=np.arange(N * D).reshape(N, D) == 7)


NUMBERS = {
    "category of numbers": _categories,
    "frame of sparse columns": lambda X: _frame(X).astype(pd.SparseDtype("float64", 0.0)),
    "masked, nothing hidden": lambda X: np.ma.array(X, mask=False),
}
NO_NUMBERS = {
    "no dimension": lambda X: np.array(3.0),
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[None],
    "complex": lambda X: X + 0j,
    "complex, sparse": lambda X: sparse.csr_matrix(X + 1j),
    "text": lambda X: X.astype(str).astype(object) + "a",
    "times": lambda X: X.astype("datetime64[s]"),
    "records": lambda X: np.zeros(N, [("a", float), ("b", float)]),
    "category of text": lambda X: _frame(X).assign(c1=pd.Categorical(["a", "b"] * (N // 2))),
    "frame of times": lambda X: _frame(X).assign(c1=pd.Timestamp("2020-01-01")),
    "missing": _with_missing,
    "masked": _masked,
    "rows of several lengths": lambda X: [list(row) for row in X[:-1]] + [[1.0]],
    "nothing": lambda X: None,
    "a mapping": lambda X: {"a": 1},
    "a set": lambda X: {1, 2},
    "a generator": lambda X: (row for row in X),
    "a function": lambda X: print,
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "no rows, sparse": lambda X: sparse.csr_matrix((0, D)),
    "no columns, sparse": lambda X: sparse.csr_matrix((N, 0)),
}


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in RATINGS])
@pytest.mark.parametrize("form", NUMBERS)
def test_numbers_in_a_frame_are_taken(name, form, plain):
    said = REFUSED.get((name, form))
    if said:
        with pytest.raises(TypeError, match=said):
            fitted(name, NUMBERS[form](COUNTS))
    else:
        found = fitted(name, NUMBERS[form](COUNTS))
        np.testing.assert_allclose(found, plain(name, "dense"), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("form", NO_NUMBERS)
def test_what_is_no_matrix_of_numbers_is_refused(name, form):
    with pytest.raises((ValueError, TypeError)) as caught:
        fitted(name, NO_NUMBERS[form](COUNTS))
    assert len(str(caught.value)) > 15


@pytest.mark.parametrize("name", [name for name, (_, y, _) in ESTIMATORS.items() if y is not None])
def test_targets_with_hidden_values_are_refused(name):
    make, y, _ = ESTIMATORS[name]
    with pytest.raises(ValueError, match="y is a masked array with hidden values"):
        make().fit(COUNTS, np.ma.array(y, mask=np.arange(N) == 3))


TARGETS = {
    "list": list,
    "read-only": lambda y: _read_only(np.asarray(y)),
    "strided": lambda y: np.repeat(y, 2)[::2],
    "big-endian": lambda y: np.asarray(y).astype(np.asarray(y).dtype.newbyteorder(">")),
    "series": pd.Series,
    "series, other index": lambda y: pd.Series(y, index=np.arange(N)[::-1]),
    "series of a nullable type": lambda y: pd.Series(y).convert_dtypes(),
    "category": lambda y: pd.Series(y).astype("category"),
}


@pytest.mark.parametrize("name", [name for name, (_, y, _) in ESTIMATORS.items() if y is not None])
def test_targets_in_any_form_give_the_plain_model(name, plain, monkeypatch):
    make, y, attribute = ESTIMATORS[name]
    for form, turned in TARGETS.items():
        given = turned(y)
        monkeypatch.setitem(ESTIMATORS, name, (make, given, attribute))
        found = fitted(name, COUNTS)
        np.testing.assert_allclose(found, plain(name, "dense"), atol=1e-6, rtol=1e-6, err_msg=form)
        np.testing.assert_array_equal(np.asarray(given), np.asarray(turned(y)))


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in RATINGS])  # which are sparse
def test_chunks_of_unknown_length_are_taken_or_named(name, plain):
    da = pytest.importorskip("dask.array")
    X = da.from_array(COUNTS, (15, -1))
    unknown = X[da.from_array(np.ones(N, bool), 15)]
    assert np.isnan(unknown.shape[0])
    said = ""
    try:
        found = fitted(name, unknown)
    except (ValueError, TypeError) as error:
        said = str(error)
    if said:
        assert "chunk" in said
    else:
        np.testing.assert_allclose(found, fitted(name, X), atol=1e-6, rtol=1e-6)


# Fitted models ---------------------------------------------------------------------------------------------

METHODS = ("predict", "predict_proba", "decision_function", "transform", "perplexity")
READERS = [name for name in ESTIMATORS if name not in RATINGS and "path" not in name]
MISFITS = NO_NUMBERS | {
    "a column less": lambda X: X[:, :-1],
    "a column more, sparse": lambda X: sparse.csr_matrix(np.hstack([X, X[:, :1]])),
    "not finite": lambda X: np.where(X[5, 0] == X, np.nan, X),
    "infinite, sparse": lambda X: sparse.csr_matrix(np.where(X[5, 0] == X, np.inf, X)),
}


def methods_of(name):
    make, y, _ = ESTIMATORS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(*([COUNTS] if y is None else [COUNTS, y]))
    return [getattr(model, method) for method in METHODS if hasattr(model, method)]


@pytest.mark.parametrize("name", READERS)
def test_a_fitted_model_reads_every_form_or_says_why_not(name, tmp_path):
    for method in methods_of(name):
        expected = method(COUNTS)
        for form in FEW:
            X = in_form(form, tmp_path)
            said = REFUSED.get((name, "sparse" if form in SPARSE else "dense"))
            before = parts_of(X)
            refused = pytest.raises((ValueError, TypeError), match=said) if said else contextlib.nullcontext()
            with warnings.catch_warnings(), refused:
                warnings.simplefilter("ignore")
                np.testing.assert_allclose(method(X), expected, atol=1e-4, rtol=1e-4, err_msg=form)
            for was, now in zip(before, parts_of(X), strict=True):
                np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("name", READERS)
def test_a_fitted_model_refuses_what_it_cannot_read(name):
    for method in methods_of(name):
        for form, turned in MISFITS.items():
            with pytest.raises((ValueError, TypeError)) as caught:
                method(turned(COUNTS))
            assert len(str(caught.value)) > 15, (method.__name__, form)
