"""Files of rows as X of a fit and of a fitted model: npy, with y as an array or in files, and svmlight.

They become Dask arrays whose blocks a worker, or a thread, reads.
"""

import numpy as np
from scipy import sparse

from ...datasets._files import changed, too_empty
from ...datasets.row_files import LinesSurvey, files_of, line_parts, npy_parts, npy_ranges, row_format
from ...errors import DataError, shortened
from .pieces import gathered
from .reduced import reduced
from .streamed import share_of_parts
from .tables import engine_of


def rows_of_files(estimator, X, y, sample_weight=None):
    """Make Dask arrays of the files that X names, and y and sample_weight where these are in files."""
    vars(estimator).pop("zero_based_", None)
    engine = engine_of(estimator)
    share = share_of_parts(engine)
    if row_format(X) == "npy":
        rows = _npy(X, share)
        return rows, _vector(y, "y", rows), _vector(sample_weight, "sample_weight", rows)
    parts = line_parts(files_of(X), share)
    surveys = _surveyed(parts, engine)
    if not sum(survey.n_rows for survey in surveys):
        raise DataError(f"{shortened(X, 200)} holds no row")
    based = any(survey.least == 0 for survey in surveys)
    vars(estimator)["zero_based_"] = based  # new files may lack the column 0, which tells
    width = max(max(survey.most for survey in surveys) + based, 1)
    if too_empty(width, n_entries := sum(survey.n_entries for survey in surveys)):
        raise DataError(
            f"{shortened(X, 200)}: an index says that there are {width} columns, with {n_entries} entries in "
            "all; correct it"
        )
    rows = _lines(parts, surveys, width, based)
    if y is None:
        labels = [_delayed(_labels)(part) for part in parts]
        sizes = [(survey.n_rows,) for survey in surveys]
        y = _joined(labels, sizes, np.float64, np.empty(0))
    elif isinstance(y, str):
        raise DataError(f"y={shortened(y)}: svmlight files hold their labels; pass y=None, or an array")
    return rows, y, sample_weight


def new_rows(model, X):
    """Make a Dask array of files for a fitted model."""
    if row_format(X) == "npy":
        return _npy(X)
    parts = line_parts(files_of(X))
    surveys = _surveyed(parts, engine_of(model))
    based = any(survey.least == 0 for survey in surveys)
    fitted = vars(model).get("zero_based_")
    if based and fitted is False:
        raise DataError(
            f"{shortened(X, 200)} has an entry of index 0, but the files of the fit count columns from 1: "
            "write it by dump_svmlight_file(..., zero_based=False)"
        )
    based = based if fitted is None else fitted
    width = max(survey.most for survey in surveys) + based
    if width > model.n_features_in_:
        raise DataError(
            f"{shortened(X, 200)} has {width} columns, but the model was fitted to {model.n_features_in_}"
        )
    return _lines(parts, surveys, model.n_features_in_, based)


def scored_files(model, X, y, sample_weight=None):
    """X as a Dask array, and targets and weights, read here, of a `score`."""
    rows, engine = new_rows(model, X), engine_of(model)
    if row_format(X) == "npy":
        y, sample_weight = (
            _vector(value, name, rows) for value, name in ((y, "y"), (sample_weight, "sample_weight"))
        )
    elif y is None:
        parts = line_parts(files_of(X))
        y = np.concatenate(reduced(_labels_of, _joined_lists, [(part,) for part in parts], engine))
    elif isinstance(y, str):
        raise DataError(f"y={shortened(y)}: svmlight files hold their labels; pass y=None, or an array")
    return rows, gathered(y, engine), gathered(sample_weight, engine)


def _labels_of(part):
    return [_labels(part)]


def _surveyed(parts, engine):
    return reduced(_survey, _joined_lists, [(part,) for part in parts], engine)


def _survey(part):
    return [LinesSurvey.of(part)]


def _joined_lists(lists):
    return [survey for own in lists for survey in own]


def _vector(value, name, rows):
    """A vector of y or weights, which may be in npy files: then it is read in the chunks of the rows."""
    if not isinstance(value, str) and row_format(value) is None:
        return value
    if row_format(value) != "npy":
        raise DataError(
            f"{name}={shortened(value)}: give an array, or names of npy files with a number for each row"
        )
    edges = [0, *np.cumsum(rows.chunks[0]).tolist()]
    ranges, dtype, n = npy_ranges(files_of(value), edges)
    if rows.shape[0] != n:
        raise DataError(f"X has {rows.shape[0]} rows, but the files of {name} have {n} numbers")
    blocks, shapes = [_delayed(_read_all)(own) for own in ranges], [(size,) for size in rows.chunks[0]]
    return _joined(blocks, shapes, dtype, np.empty(0, dtype))


def _npy(X, share=1.0):
    parts = npy_parts(files_of(X), 2, share)
    dtype = np.dtype(parts[0].dtype)
    blocks, shapes = [_delayed(_read)(part) for part in parts], [part.shape for part in parts]
    return _joined(blocks, shapes, dtype, np.empty((0, 0), dtype))


def _lines(parts, surveys, width, zero_based):
    pairs = zip(parts, surveys, strict=True)
    blocks = [_delayed(_rows)(part, width, zero_based, survey) for part, survey in pairs]
    shapes = [(survey.n_rows, width) for survey in surveys]
    return _joined(blocks, shapes, np.float64, sparse.csr_array((0, 0)))


def _joined(blocks, shapes, dtype, meta):
    import dask.array as da

    made = [
        da.from_delayed(block, shape, dtype=dtype, meta=meta)
        for block, shape in zip(blocks, shapes, strict=True)
        if shape[0]
    ]
    return da.concatenate(made, allow_unknown_chunksizes=True)


def _delayed(function):
    from dask.delayed import delayed

    return delayed(function, pure=True)


def _read(part):
    return part.read()


def _read_all(parts):
    return np.concatenate([part.read() for part in parts])


def _rows(part, width, zero_based, survey):
    X, _ = part.read(width, zero_based)
    if (X.shape[0], X.nnz) != (survey.n_rows, survey.n_entries):
        raise changed(part.path)
    return X


def _labels(part):
    return part.read()[1]
