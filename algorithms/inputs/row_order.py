"""Check of the matrix of features for solvers that read rows."""

import numpy as np
from scipy import sparse

from .matrices import check_squares, real


def check_row_matrix(estimator, X, *, keeps_order=False):
    """Check a matrix of features for a solver that reads rows; return a C-ordered array or CSR array.

    With `keeps_order` an array may be Fortran-ordered.

    float32 and float64 are kept, anything else becomes float64. A CSR array has sorted indices without
    duplicates (which are summed). `X` is never changed; only Fortran order (that of most DataFrames) and
    other formats are copied, once. A `DataError` names row and column of the first NaN, infinity, or value
    whose square overflows.
    """
    order = "F" if keeps_order and type(X) is np.ndarray and X.flags.f_contiguous else "C"
    return row_matrix(type(estimator).__name__, X, order=order, n_jobs=getattr(estimator, "n_jobs", None))


def row_matrix(name, X, *, order="C", n_jobs=None):
    """See `check_row_matrix`; `name` is the estimator's, for messages."""
    rows = real(X, name, sparse_format="csr", order=order)
    if not isinstance(rows, np.ndarray):
        rows = sparse.csr_array(rows)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    check_squares(rows, getattr(X, "columns", None), name, n_jobs=n_jobs)
    return rows
