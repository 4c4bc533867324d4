"""The matrix of features for solvers that read it row by row."""

import numpy as np
from scipy import sparse

from .matrices import check_squares, real


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
    >>> from stradask.algorithms.inputs.row_order import check_row_matrix
    >>> check_row_matrix(sd.Lasso(), [[1, 2], [3, 4]]).flags.c_contiguous
    True
    """
    return row_matrix(type(estimator).__name__, X, n_jobs=getattr(estimator, "n_jobs", None))


def row_matrix(name, X, *, n_jobs=None):
    """See `check_row_matrix`; `name` is the estimator's, for messages."""
    rows = real(X, name, sparse_format="csr", order="C")
    if not isinstance(rows, np.ndarray):
        rows = sparse.csr_array(rows)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    check_squares(rows, getattr(X, "columns", None), name, n_jobs=n_jobs)
    return rows
