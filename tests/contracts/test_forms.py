"""X in any form of NumPy, SciPy, pandas and pyarrow gives the model of the array, and is never changed."""

import functools
import importlib.util
import warnings

import numpy as np
import pandas as pd
import pytest
from contract_cases import CASES, COLUMNS, assert_close, cases
from scipy import sparse
from sklearn.base import clone

from stradask.errors import DataError


def read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def unsorted(X):
    X = sparse.csr_array(X)
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        X.indices[a:b], X.data[a:b] = X.indices[a:b][::-1].copy(), X.data[a:b][::-1].copy()
    X.has_sorted_indices = False
    return X


def repeated(X):
    """Each entry in two halves, the second ones in another order."""
    X = sparse.coo_array(X)
    twice = [np.concatenate([part, part[::-1]]) for part in (X.row, X.col)]
    ones = np.ones_like(X.data)
    return sparse.coo_array((np.concatenate([X.data - ones, ones]), tuple(twice)), shape=X.shape)


def long_indices(X):
    X = sparse.csr_array(X)
    X.indptr, X.indices = X.indptr.astype(np.int64), X.indices.astype(np.int64)
    return X


def stored_zeros(X):
    n, d = X.shape
    return sparse.csr_array((X.ravel(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d)), shape=X.shape)


DENSE = {
    "list": lambda X: X.tolist(),
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(np.repeat(X, 2, 0), 3, 1)[::2, ::3],
    "read-only": read_only,
    "float32": lambda X: X.astype(np.float32),
    "longdouble": lambda X: X.astype(np.longdouble),
    "big-endian": lambda X: X.astype(">f8"),
    "object": lambda X: X.astype(object),
    "subclass": lambda X: X.view(type("Sub", (np.ndarray,), {})),
    "masked, nothing hidden": lambda X: np.ma.array(X, mask=False),
}
FRAMES = {
    "frame": lambda frame: frame,
    "frame of float32": lambda frame: frame.astype("float32"),
    "nullable frame": lambda frame: frame.convert_dtypes(),
    "frame of sparse columns": lambda frame: frame.astype(pd.SparseDtype("float64", 0.0)),
}
if importlib.util.find_spec("pyarrow"):
    import pyarrow as pa

    FRAMES["pyarrow frame"] = lambda frame: frame.astype(pd.ArrowDtype(pa.float64()))
    FRAMES["pyarrow table"] = pa.Table.from_pandas
SPARSE = {
    "csr": sparse.csr_matrix,
    "csc": sparse.csc_array,
    "coo, repeated entries": repeated,
    "lil": sparse.lil_array,
    "dok": sparse.dok_array,
    "unsorted": unsorted,
    "int64 indices": long_indices,
    "csr of float32": lambda X: sparse.csr_array(X.astype(np.float32)),
    "stored zeros": stored_zeros,
}
TIGHT = {"tol": 1e-12, "max_iter": 1000}  # fits of sparse and dense columns end elsewhere within `tol`


@pytest.mark.parametrize("case", cases("forms", lambda case: case.has_columns))
def test_a_form_gives_the_plain_model_or_is_refused(case):
    """Each model reads all forms, and is fitted to a third of them: the next model to the next third."""
    X, new = case.given.X, case.make()
    if "tol" in new.get_params() and case.scales in ("", "penalty"):
        new.set_params(**{name: value for name, value in TIGHT.items() if name in new.get_params()})
    plain, frame = case.fit(model=clone(new)), pd.DataFrame(X, columns=COLUMNS[case.data])
    forms = {name: functools.partial(form, X) for name, form in (DENSE | SPARSE).items()}
    forms |= {name: functools.partial(form, frame) for name, form in FRAMES.items()}
    for turn, (name, form) in enumerate(forms.items(), CASES.index(case)):
        given = case.given._replace(X=form())
        before, tol = contents(given.X), 1e-3 if "32" in name else 1e-8
        if new.__sklearn_tags__().input_tags.sparse or not (name in SPARSE or "sparse" in name):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*feature names")
                if turn % 3 == 0:
                    model = case.fit(given, model=clone(new))
                    assert_close(case.answer(model), case.answer(plain), f"fitted to {name}", tol)
                assert_close(case.answer(plain, given), case.answer(plain), f"read as {name}", tol)
        else:
            with pytest.raises((TypeError, ValueError), match=r"[Ss]parse"):
                case.fit(given)
        for was, now in zip(before, contents(given.X), strict=True):
            np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("case", cases("forms", lambda case: case.data == "ratings"))
def test_ratings_come_in_any_sparse_form(case):
    """A stored zero is a rating, and two of one cell are refused."""
    ratings = case.given.X.toarray()
    for name in SPARSE.keys() - {"stored zeros", "coo, repeated entries"}:
        given = case.given._replace(X=SPARSE[name](ratings))
        before = contents(given.X)
        assert_close(
            case.answer(case.fit(given)), case.answer(case.fitted), name, 1e-3 if "32" in name else 1e-8
        )
        for was, now in zip(before, contents(given.X), strict=True):
            np.testing.assert_array_equal(was, now)
    with pytest.raises(DataError, match="several ratings of one item by one user"):
        case.fit(case.given._replace(X=repeated(ratings)))


def contents(X):
    """Copies of the arrays in X."""
    if sparse.issparse(X):
        names = ("data", "indices", "indptr", "row", "col", "rows")
        return [np.array(getattr(X, name), copy=True) for name in names if hasattr(X, name)]
    return [np.array(X, copy=True)]
