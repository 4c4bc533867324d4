"""Checks of the index arrays of sparse matrices, before compiled code reads them."""

import numpy as np
from scipy import sparse

from ...errors import DataError

_COMPRESSED = {"csr": sparse.csr_array, "csc": sparse.csc_array, "bsr": sparse.bsr_array}


def sound(X):
    """Check the index arrays of a sparse matrix; return it as a CSR, CSC or COO array.

    scipy does not check indices that were assigned to a matrix after it was made, and its compiled
    conversions read and write wherever they point.
    """
    if X.ndim != 2:
        raise DataError(f"X must have two dimensions, rows and columns, but it has {X.ndim}")
    if X.format in _COMPRESSED:
        _check_compressed(X)
        # Made anew, with no remembered flags, no spare room at the end, and this machine's order of bytes.
        values = X.data.astype(X.dtype.newbyteorder("="), copy=False)
        X = _COMPRESSED[X.format]((values, X.indices, X.indptr), shape=X.shape)
        return X.tocoo(copy=False) if X.format == "bsr" else X
    try:
        X = X.tocoo(copy=False)  # LIL, DOK and DIA build index arrays anew
    except ValueError as error:
        raise DataError(str(error)) from error
    for axis, coordinates, size in (("row", X.row, X.shape[0]), ("column", X.col, X.shape[1])):
        if len(coordinates) != len(X.data):
            raise DataError(f"X has {len(coordinates)} {axis} indices for {len(X.data)} values: build X anew")
        _check_indices(coordinates, size, axis)
    return X


def _check_compressed(X):
    """Check the arrays of a CSR, CSC or BSR matrix."""
    height, width = X.blocksize if X.format == "bsr" else (1, 1)
    n_rows, n_columns = X.shape[0] // height, X.shape[1] // width
    major, minor = ("column", "row") if X.format == "csc" else ("row", "column")
    n_major, n_minor = (n_columns, n_rows) if X.format == "csc" else (n_rows, n_columns)
    ends = X.indptr
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or len(ends) != n_major + 1:
        raise DataError(
            f"X.indptr must be a vector of {n_major + 1} integers, one a {major} and one more: build X anew"
        )
    if ends[0] != 0:
        raise DataError(f"X.indptr must begin with 0, got {ends[0]}: build X anew")
    falls = np.flatnonzero(ends[1:] < ends[:-1])
    if len(falls):
        at = falls[0]
        raise DataError(
            f"X.indptr may never fall, but does so from {ends[at]} to {ends[at + 1]} at {major} {at}: "
            "build X anew"
        )
    if X.data.ndim != (3 if X.format == "bsr" else 1):
        raise DataError(f"X.data has the wrong shape {X.data.shape}: build X anew")
    if not ends[-1] <= min(len(X.indices), len(X.data)):
        raise DataError(
            f"X.indptr promises {ends[-1]} stored values, but there are {len(X.data)} values and "
            f"{len(X.indices)} indices: build X anew"
        )
    _check_indices(X.indices[: ends[-1]], n_minor, minor)


def _check_indices(indices, size, axis):
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise DataError(
            f"the {axis} indices of X must be a vector of integers, got {indices.dtype}: build X anew"
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= size):
        wrong = indices[np.flatnonzero((indices < 0) | (indices >= size))[0]]
        raise DataError(f"X has the {axis} index {wrong}, but only the {axis}s 0 to {size - 1}: build X anew")


def narrow_csr(data, indices, indptr, n_columns):
    """Return a CSR array with 32-bit indices if they suffice, else 64-bit.

    scipy takes the wider type of the two arrays, which is that of summed row ends.
    """
    wide = index_dtype(indptr[-1], n_columns)
    parts = (data, indices.astype(wide, copy=False), indptr.astype(wide, copy=False))
    return sparse.csr_array(parts, shape=(len(indptr) - 1, n_columns))


def index_dtype(n_stored, n_columns):
    """The narrowest type that holds every position and column number: int32 or int64."""
    return np.dtype(np.int32 if max(n_stored, n_columns) <= np.iinfo(np.int32).max else np.int64)
