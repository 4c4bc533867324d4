"""The matrix of features for solvers that read it row by row."""

import numpy as np
from scipy import sparse

from ...errors import DataError
from ...scheduler.threads import single_threaded_blas
from .._validation import _real


def check_row_matrix(estimator, X):
    """Check a matrix of features, for a solver that reads it row by row.

    Nothing of `X` is changed. What already lies as below is passed on without a copy; Fortran order (that of
    most DataFrames) and other sparse formats are brought to it once, which is the one copy that a fit makes.

    Parameters
    ----------
    estimator : estimator
        Whose input it is, for the messages.
    X : sparse matrix or array of any format, ndarray, DataFrame or nested list, shape (n_samples, n_features)
        float32 and float64 are kept; anything else becomes float64.

    Returns
    -------
    ndarray in C order, or csr_array
        A CSR array has sorted indices without duplicates (which are summed).

    Raises
    ------
    DataError
        For NaN, infinities and values whose squares overflow in the type of `X`; names row and column of the
        first of them.
    TypeError
        As scikit-learn raises it, for values that are not numbers.

    Examples
    --------
    >>> import stradask as sd
    >>> from stradask.algorithms.linear.row_input import check_row_matrix
    >>> check_row_matrix(sd.Lasso(), [[1, 2], [3, 4]]).flags.c_contiguous
    True
    """
    return row_matrix(type(estimator).__name__, X)


def row_matrix(name, X):
    """See `check_row_matrix`; `name` is the estimator's, for messages."""
    rows = _real(X, name, sparse_format="csr", order="C")
    if not isinstance(rows, np.ndarray):
        rows = sparse.csr_array(rows)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    _check_magnitudes(rows, getattr(X, "columns", None), name)
    return rows


def _check_magnitudes(X, names, estimator_name):
    """Check that the sum of all squares is a number of its own type."""
    values = X.ravel() if isinstance(X, np.ndarray) else X.data
    with np.errstate(over="ignore", invalid="ignore"), single_threaded_blas():
        total = np.dot(values, values)
    if np.isfinite(total):
        return
    most = np.sqrt(np.finfo(values.dtype).max / len(values))
    wrong = np.flatnonzero(~(np.abs(values) <= most))
    if not len(wrong):
        return
    at = wrong[0]
    if isinstance(X, np.ndarray):
        row, column = divmod(at, X.shape[1])
    else:
        row, column = np.searchsorted(X.indptr, at, side="right") - 1, X.indices[at]
    where = f"row {row}, column {column}" + ("" if names is None else f" ({names[column]!r})")
    value = values[at]
    if np.isfinite(value):
        raise DataError(
            f"X holds {value:g} in {where}, too large for sums of squares in {values.dtype}: scale the "
            "columns, for instance with sklearn.preprocessing.MaxAbsScaler"
        )
    what = "NaN" if np.isnan(value) else "infinity"
    raise DataError(
        f"X contains {what} in {where}: {estimator_name} takes finite numbers only; impute it, for instance "
        "with sklearn.impute.SimpleImputer, or drop the row or column"
    )
