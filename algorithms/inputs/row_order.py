"""Check of the matrix of features for solvers that read rows."""

import numpy as np
from scipy import sparse

from .matrices import check_squares, real


def check_row_matrix(estimator, X):
    """Check a matrix of features for a solver that reads rows; return a C-ordered array or CSR array.

    float32 and float64 are kept, anything else becomes float64. A CSR array has sorted indices without
    duplicates (which are summed). `X` is never changed; only Fortran order (that of most DataFrames) and
    other formats are copied, once. A `DataError` names row and column of the first NaN, infinity, or value
    whose square overflows.
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
