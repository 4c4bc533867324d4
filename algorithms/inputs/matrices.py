"""Checks of input matrices and model parameters: compiled kernels rely on them."""

import inspect
from collections.abc import Mapping
from contextlib import contextmanager
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ...datasets._files import too_empty
from ...errors import DataError, in_brief, shortened
from ...scheduler.threads import effective_n_jobs, run_tasks
from .indices import index_dtype, narrow_csr, sound
from .pieces import is_dask
from .texts import REMEDY, reworded, text_in

_INT32_MAX = np.iinfo(np.int32).max
_PRIOR_RANGE = (1e-30, 1e10)  # stays within float32, also when multiplied by counts
_FEW_SQUARES = 1_000_000  # that no kernel and no threads are needed for


def check_counts(estimator, X, *, reset=True, need_tokens=None):
    """Check a matrix of counts; return it as a CSR array of int32.

    Accepts any sparse format, ndarray, DataFrame or nested list, with sound indices; booleans count as 0 and
    1, and floats must hold integers. The result has sorted indices without duplicates (which are summed) and
    no stored zeros; its index arrays are int32 if that suffices. It may share memory with `X`, which is never
    changed: a matrix that is in this form is not copied. Another type of value costs 5 bytes a non-zero on
    the way, another format or order up to 20.

    `estimator` is an estimator, whose `n_features_in_` and `feature_names_in_` are set (with `reset`) or
    compared after all other checks, or a name for messages. `need_tokens` (by default as `reset`): whether a
    count must be above zero. A `DataError` names the first offending value with its row and column.

    Examples
    --------
    >>> from stradask.algorithms.inputs.matrices import check_counts
    >>> check_counts("LDA", [[0, 2], [1, 0]]).data
    array([2, 1], dtype=int32)
    >>> try:
    ...     check_counts("LDA", [[0, 2], [0.5, 0]])
    ... except ValueError as error:
    ...     print(str(error)[:49])
    X holds the fractional value 0.5 at row 1, column
    """
    name = estimator if isinstance(estimator, str) else type(estimator).__name__
    counts = _summed(_as_int32(_numeric_csr(X, name), name), name)
    if (reset if need_tokens is None else need_tokens) and counts.nnz == 0:
        raise DataError(f"X holds no count above zero; {name} needs at least one")
    if reset:
        check_words_used(counts.shape[1], counts.nnz)
    if not isinstance(estimator, str):
        with _as_data_errors():
            validate_data(estimator, named(X), reset=reset, skip_check_array=True)
    return counts


def check_words_used(n_columns, n_entries):
    """Refuse counts of far more columns than entries: a model of them takes memory for every column."""
    if too_empty(n_columns, n_entries):
        raise DataError(
            f"X has {n_columns:,} columns, with {n_entries:,} entries in all: correct the number of words "
            "that its file states, or leave out columns without entries"
        )


def check_matrix(estimator, X, *, order="F"):
    """Check a matrix of features: `check_columns`, or `check_blocks` for a Dask collection."""
    if not is_dask(X):
        return check_columns(estimator, X, order=order)
    from .dask_arrays import check_blocks

    return check_blocks(X, estimator if isinstance(estimator, str) else type(estimator).__name__)


def check_vector(value, n_samples):
    """Compute a Dask vector of targets or weights; anything else is passed on."""
    if not is_dask(value):
        return value
    from .dask_arrays import check_length

    value = value.compute()
    check_length(value, n_samples)
    return value


def named(X):
    """Return an object with the column names of X: scikit-learn does not read Dask DataFrames."""
    return X._meta if hasattr(X, "_meta") and hasattr(X, "columns") else X


def _numeric_csr(X, name):
    """Return X as a CSR array of finite numbers with sound indices, sharing memory if possible."""
    check_plain("X", X)
    if sparse.issparse(X):
        X = sound(X)
    with _as_data_errors(X, _ZERO, name):
        X = check_array(X, accept_sparse=True, dtype="numeric", estimator=name, input_name="X")
        if X.dtype == object:  # of a list, whose type scikit-learn leaves as numpy finds it
            X = check_array(X, dtype=np.float64, estimator=name, input_name="X")
        if not sparse.issparse(X):
            X = _nonzeros(X)
    if X.format == "coo":  # also what a DataFrame of sparse columns gives
        # The conversion sums duplicates in the type of the data, where bytes would wrap round.
        counts = _checked_int32(X, name).astype(np.int64)
        X = sparse.coo_array((counts, (X.row, X.col)), shape=X.shape)
    return sparse.csr_array(X)


def check_plain(name, values):
    """Refuse masked values, times and Dask futures, of which numpy would make numbers, or nothing useful."""
    if type(values).__module__.startswith("distributed."):
        what = f"{name} is a {type(values).__name__} of Dask's"
        raise DataError(
            f"{what}: make an array of it with dask.array.from_delayed, or fetch it with result()"
        )
    if type(values).__module__.startswith("dask.bag"):
        raise DataError(
            f"{name} is a Bag of Dask's: make an array with dask.array.from_delayed; if it holds texts, "
            f"{REMEDY}"
        )
    if np.ma.is_masked(values):
        raise DataError(f"{name} is a masked array with hidden values: fill them, or drop their rows")
    if getattr(getattr(values, "dtype", None), "kind", "") in ("m", "M"):
        raise DataError(f"{name} holds times ({values.dtype}): make numbers of them, such as days since one")


def check_text(name, values):
    """Refuse text that ends with NUL, which arrays of text drop: "a" and "a" with a NUL would become one."""
    if hasattr(values, "to_numpy"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray):
        values = values.ravel() if values.dtype.kind == "O" else ()
    for value in values if isinstance(values, (list, tuple, np.ndarray)) else ():
        for text in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(text, str) and text.endswith("\0"):
                raise DataError(
                    f"{name} holds the text {shortened(text)}, which ends with a NUL character: arrays of "
                    "text drop it, so that different texts become one; strip it, or put another there"
                )


def check_takes(name, function, *arguments, shown=None, **by_name):
    """Refuse a user's function that cannot be called with these arguments, if its signature shows it.

    `shown`: the arguments as the message has them.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled ones may not tell
        return
    try:
        signature.bind(*arguments, **by_name)
    except TypeError as error:
        form = f"{name}({shown or ', '.join([*arguments, *(f'{key}=...' for key in by_name)])})"
        raise DataError(
            f"{name} is called as {form}, and the one given is not made for that: {error}"
        ) from None


def _nonzeros(X):
    """Return the non-zero entries of a dense array in COO."""
    rows, columns = np.nonzero(X)
    values = X[rows, columns]
    if values.dtype == np.float16:  # which scipy does not have
        values = values.astype(np.float32)
    values = values.astype(values.dtype.newbyteorder("="), copy=False)  # nor other orders of bytes
    return sparse.coo_array((values, (rows, columns)), shape=X.shape)


_IMPUTE = "impute it, for instance with sklearn.impute.SimpleImputer, or drop the row or column"
_NOT_FINITE = "Input X contains NaN", "Input X contains infinity"  # as scikit-learn's messages begin
_ZERO = "an entry must be a count: set it to 0, for instance with numpy.nan_to_num, or drop the row"


@contextmanager
def _as_data_errors(X=None, remedy=_IMPUTE, name=""):
    """Raise scikit-learn's ValueErrors as DataError, and name texts in X; its other TypeErrors pass.

    Where `name`, the estimator's, is given, an error says in which row and column X is not finite.
    """
    try:
        yield
    except DataError:  # which names its own remedy
        raise
    except (ValueError, TypeError) as error:
        text = text_in(X)
        if isinstance(error, TypeError) and not text:
            raise
        if name and not text and str(error).startswith(_NOT_FINITE):
            options = {"accept_sparse": ("csr", "csc"), "dtype": (np.float64, np.float32), "allow_nd": True}
            values = check_array(X, ensure_all_finite=False, **options)
            wrong = ~np.isfinite(values.data if sparse.issparse(values) else values)
            value, where = _first(values, wrong, getattr(X, "columns", None))
            text = _not_finite(value, where, name, remedy)
        raise DataError(text or reworded(str(error), remedy)) from error


def _not_finite(value, where, name, remedy=_IMPUTE):
    what = "NaN" if np.isnan(value) else "infinity"
    return f"X contains {what} in {where}: {name} takes finite numbers only; {remedy}"


def _as_int32(X, name):
    return _with_data(X, _checked_int32(X, name))


def _checked_int32(X, name):
    """Check that every stored value of a CSR or COO array is a count that fits into int32; return them."""
    data = X.data
    if data.dtype.kind == "b" or not len(data):
        return data.astype(np.int32)
    if data.min() < 0:
        value, place = _first(X, data < 0)
        raise DataError(f"Negative values in data: X holds {value} at {place}; {name} takes counts")
    if data.max() > _INT32_MAX:
        value, place = _first(X, data > _INT32_MAX)
        raise DataError(
            f"X holds {value} at {place}; a count may be at most {_INT32_MAX}: "
            "split the row or scale the counts down"
        )
    counts = data.astype(np.int32, copy=False)
    if data.dtype.kind == "f" and (counts != data).any():
        value, place = _first(X, counts != data)
        raise DataError(
            f"X holds the fractional value {value} at {place}; {name} takes integer counts: "
            "pass counts as CountVectorizer makes them, not tf-idf or frequencies"
        )
    return counts


def _first(X, wrong, names=None):
    """Return the first value marked wrong, of all or of the stored ones, and its position in words."""
    if isinstance(X, np.ndarray):
        row, *columns = np.argwhere(wrong)[0].tolist()
        value = X[row, *columns]
    else:
        at = np.flatnonzero(wrong)[0]
        value = X.data[at]
        if X.format == "coo":
            row, column = X.row[at], X.col[at]
        else:
            row, column = np.searchsorted(X.indptr, at, side="right") - 1, X.indices[at]
            row, column = (column, row) if X.format == "csc" else (row, column)
        columns = [column]
    where = f"row {row}, " + (f"column {columns[0]}" if len(columns) == 1 else f"entry {columns}")
    return value.item(), where + ("" if names is None else f" ({shortened(names[columns[0]])})")


def _with_data(X, data):
    return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)


def _summed(counts, name):
    """Sort the indices, sum duplicates and drop zeros, in arrays not shared with the caller's X."""
    if not counts.has_canonical_format:
        # At most 2^31 values of less than 2^31 fall on one place, so that int64 holds the sum.
        counts = _with_data(counts.copy(), counts.data.astype(np.int64))
        counts.sum_duplicates()
        counts = _as_int32(counts, name)
    if not counts.data.all():
        counts = counts.copy()
        counts.eliminate_zeros()
    if counts.indices.dtype == index_dtype(counts.nnz, counts.shape[1]):
        return counts
    return narrow_csr(counts.data, counts.indices, counts.indptr, counts.shape[1])


def check_width(X, n_features):
    """Compare a parameter `n_features`, or None, with the columns of a matrix."""
    if n_features is not None and X.shape[1] != n_features:
        raise DataError(
            f"n_features={shortened(n_features)}, but X has {X.shape[1]} columns; leave n_features out"
        )


def check_columns(estimator, X, *, order="F"):
    """Check a matrix of features for solvers that read columns; return a Fortran-ordered or CSC array.

    With ``order="A"`` a dense one that is not Fortran-ordered is C-ordered.

    `estimator` is an estimator or a name, for messages. float32 and float64 are kept, anything else becomes
    float64. A CSC array has sorted indices without duplicates (which are summed). The result may share memory
    with `X`, which may be read-only or on disk and is never changed: only C order and other formats are
    copied, once. A `DataError` names row and column of the first NaN, infinity, or value whose square
    overflows.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.inputs.matrices import check_columns
    >>> check_columns("Lasso", np.ones((2, 3), np.float32)).flags.f_contiguous
    True
    >>> try:
    ...     check_columns("Lasso", [[0, 2], [float("nan"), 0]])
    ... except ValueError as error:
    ...     print(str(error)[:39])
    X contains NaN in row 1, column 0: Lass
    """
    name = estimator if isinstance(estimator, str) else type(estimator).__name__
    columns = real(X, name, sparse_format="csc", order=order)
    if not isinstance(columns, np.ndarray):
        columns = sparse.csc_array(columns)
        if not columns.has_canonical_format:
            columns = columns.copy()
            columns.sum_duplicates()
    check_squares(columns, getattr(X, "columns", None), name, n_jobs=getattr(estimator, "n_jobs", None))
    return columns


def check_rows(estimator, X):
    """Check new data of a fitted model: dense in any order, CSR or CSC, never copied for its order.

    Columns and their names are compared with those of the fit. Returns float32 or float64.
    """
    rows = real(X, type(estimator).__name__, sparse_format=("csr", "csc"), order=None, finite=True)
    with _as_data_errors():
        validate_data(estimator, named(X), reset=False, skip_check_array=True)
    return rows


def check_dense(X, name):
    """Check dense rows of floating-point numbers, of any number of axes; return an ndarray of their type."""
    check_plain("X", X)
    if sparse.issparse(X):
        raise DataError(f"X is sparse, and {name} takes dense rows; pass X.toarray()")
    with _as_data_errors(X, name=name):
        rows = check_array(X, dtype="numeric", order="C", allow_nd=True, estimator=name, input_name="X")
    check_floats(rows, name)
    return rows


def check_floats(X, name):
    """Refuse an array that holds no floating-point numbers."""
    if X.dtype.kind != "f":
        raise DataError(
            f"X holds {X.dtype}, and {name} takes floating-point numbers: pass X.astype('float32'), "
            "quantities scaled to about 1; numbers of tokens or categories as they are, for a module that "
            "begins with x.long() before its nn.Embedding (float32 is exact up to 16,777,216)"
        )


def real(X, name, *, sparse_format, order, finite=False):
    """Return X in float32 or float64, dense or in one of the sparse formats, sharing memory if possible."""
    check_plain("X", X)
    if sparse.issparse(X):
        X = sound(X)
        plain = X.dtype in (np.float64, np.float32) and all(X.shape)
        if plain and isinstance(sparse_format, str) and not finite:
            return X.asformat(sparse_format)  # all that scikit-learn does, at length for small data
    plain = type(X) is np.ndarray and X.dtype in (np.float64, np.float32) and X.ndim == 2 and X.size > 0
    if plain and (not finite or np.isfinite(X).all()):
        return np.asarray(X, order=order)  # likewise
    with _as_data_errors(X, name=name):
        return check_array(
            X,
            accept_sparse=sparse_format,
            dtype=[np.float64, np.float32],
            order=order,
            ensure_all_finite=finite,
            estimator=name,
            input_name="X",
        )


def check_squares(X, names, estimator_name, *, n_jobs=None):
    """Check that all values are finite and the sum of their squares does not overflow in their type.

    X is contiguous, CSR or CSC; `names` are of the columns, or None.
    """
    dense = isinstance(X, np.ndarray)
    values = X.ravel(order="K") if dense else X.data
    with np.errstate(over="ignore", invalid="ignore"):
        if len(values) < _FEW_SQUARES:
            total = np.einsum("i,i->", values, values)
        else:
            from ...kernels.linear.column_moments import sum_of_squares

            parts = np.array_split(values, effective_n_jobs(n_jobs))
            total = values.dtype.type(sum(run_tasks([(sum_of_squares, (part,)) for part in parts], n_jobs)))
    if np.isfinite(total):
        return
    most = np.sqrt(np.finfo(values.dtype).max / len(values))
    wrong = ~(np.abs(X if dense else values) <= most)
    if not wrong.any():
        return
    value, where = _first(X, wrong, names)
    if np.isfinite(value):
        raise DataError(
            f"X holds {value:g} in {where}, too large for sums of squares in {values.dtype}: scale the "
            "columns, for instance with sklearn.preprocessing.MaxAbsScaler"
        )
    raise DataError(_not_finite(value, where, estimator_name))


def check_prior(name, value, size, default):
    """Check the parameters of a Dirichlet prior; return a float64 vector of `size`.

    A float stands for all entries, None for `default`. Entries are from 1e-30 to 1e10, the range that kernels
    in single precision can use.
    """
    if value is None:
        value = default
    if isinstance(value, Real) and not isinstance(value, bool):
        value = np.full(size, value, dtype=np.float64)
    try:
        given = np.asarray(value)
    except (ValueError, OverflowError) as error:  # nested to different depths
        raise DataError(f"{name} must be a positive number or {size} of them: {in_brief(error)}") from error
    if given.dtype.kind not in "iuf":
        raise DataError(f"{name} must be a positive number or {size} of them, got {shortened(value)}")
    if given.shape != (size,):
        raise DataError(
            f"{name} has the shape {given.shape}; pass one number for all entries, or a vector of {size}"
        )
    least, most = _PRIOR_RANGE
    wrong = np.flatnonzero(~((given >= least) & (given <= most)))
    if len(wrong):
        raise DataError(
            f"{name} must be positive and finite, from {least:g} to {most:g}, got {given[wrong[0]]} in entry "
            f"{wrong[0]}"
        )
    return given.astype(np.float64)


def check_vocabulary(vocabulary, n_features):
    """Check the words of the columns; return them as a list of `n_features` str.

    A mapping gives the column of each word, as scikit-learn's ``CountVectorizer.vocabulary_``.

    Examples
    --------
    >>> from stradask.algorithms.inputs.matrices import check_vocabulary
    >>> check_vocabulary({"dog": 1, "cat": 0}, 2)
    ['cat', 'dog']
    """
    if isinstance(vocabulary, (str, bytes, set, frozenset)) or not hasattr(vocabulary, "__len__"):
        raise DataError(
            f"vocabulary must be a sequence of {n_features} words, or a mapping from word to column, "
            f"not a {type(vocabulary).__name__}"
        )
    if len(vocabulary) != n_features:
        raise DataError(f"vocabulary has {len(vocabulary)} words, but the model has {n_features} columns")
    if isinstance(vocabulary, Mapping):
        words = _words_of_columns(vocabulary)
    else:
        words = list(vocabulary)
    for column, word in enumerate(words):
        if not isinstance(word, str):
            raise DataError(f"vocabulary must hold str, got {shortened(word)} for column {column}")
    check_text("vocabulary", words)
    return [str(word) for word in words]


def _words_of_columns(vocabulary):
    """Invert a mapping from word to column, if it is one to one."""
    words: dict[int, str] = {}
    for word, value in vocabulary.items():
        column = int(value) if isinstance(value, Integral) else -1
        if not 0 <= column < len(vocabulary):
            raise DataError(
                f"vocabulary maps {shortened(word)} to {shortened(value)}; {len(vocabulary)} words "
                "have the columns "
                f"0 to {len(vocabulary) - 1}"
            )
        if column in words:
            raise DataError(
                f"vocabulary maps both {shortened(words[column])} and {shortened(word)} to column {column}"
            )
        words[column] = word
    return [words[column] for column in range(len(vocabulary))]
