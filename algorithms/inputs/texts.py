"""Texts where numbers are expected: how they are found, and messages in place of scikit-learn's."""

import os
import re

import numpy as np

from ..._numbers import is_number
from ..._urls import is_url
from ...errors import LONGEST_NAME, DataError, shortened

REMEDY = "count their words first with stradask.text_counts"
_FIRST_ROWS = 1000  # are looked through for a text
_TAKE_ROWS = (
    "Ridge, LogisticRegression, PoissonRegressor, GLM, Lasso, ElasticNet, SparseLogisticRegression, "
    "SparseGLM, GroupLasso and GroupLogisticRegression"
)
_TAKE_RATINGS = "MatrixFactorization and the item models"
_READ = "stradask.datasets or pandas"
_PACKED = ("", ".gz", ".bz2", ".xz")
_READERS = (
    ((".npy", ".npz"), "numpy.load"),
    ((".parquet", ".pq"), "pandas.read_parquet"),
    (tuple(f".{kind}{end}" for kind in ("csv", "tsv") for end in _PACKED), "pandas.read_csv"),
    (
        tuple(f".{kind}{end}" for kind in ("svm", "svmlight", "libsvm") for end in _PACKED),
        "stradask.datasets.read_svmlight",
    ),
)


def text_in(X):
    """Message if X holds texts, naming the column of a frame; "" if it holds none that is not a number.

    Called only after X was refused, so that numbers cost nothing.
    """
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        return _text_in_frame(X)
    name = _first_name(getattr(X, "paths", X))  # of a ParquetTable
    if name is not None:
        reader = next((reader for endings, reader in _READERS if name.lower().endswith(endings)), _READ)
        return (
            f"X names a file, {shortened(name, 60)}: {_TAKE_ROWS} fit to npy, svmlight and Parquet files, "
            f"{_TAKE_RATINGS} to files of ratings, topic models to files of counts; read this one, for "
            f"instance with {reader}"
        )
    text = _first_text(X)
    return "" if text is None else f"X holds texts, such as {shortened(text)}: {REMEDY}"


def _first_name(X):
    """The first of the names of files that X consists of, None if it is anything else."""
    parts = X if isinstance(X, (list, tuple)) and len(X) else [X]
    if not all(isinstance(part, (str, os.PathLike)) and _names_file(os.fspath(part)) for part in parts):
        return None
    return os.fspath(parts[0])


def _names_file(name):
    if not isinstance(name, str) or "\n" in name or "\0" in name or len(name) > LONGEST_NAME:
        return False
    base = os.path.basename(name).lower()
    known = any(base.endswith(ending) for endings, _ in _READERS for ending in endings)
    return is_url(name) or (known and not any(sign.isspace() for sign in base)) or os.path.isfile(name)


def _text_in_frame(X):
    for place, name in enumerate(X.columns):
        column = X.iloc[:, place]
        if getattr(column.dtype, "kind", "O") in "biufc":
            continue
        for row, value in enumerate(np.asarray(column, dtype=object)):
            if isinstance(value, (str, bytes)) and not is_number(value):
                return (
                    f"X holds the text {shortened(value)} in row {row} of the column {shortened(name, 40)}: "
                    "encode it, for instance with sklearn.preprocessing.OneHotEncoder, or leave the column "
                    f"out; if these are texts, {REMEDY}"
                )
    return ""


def _first_text(X, depth=0):
    """Find the first str or bytes that is not a number, also in nested lists."""
    if isinstance(X, (str, bytes)):
        return None if is_number(X) else X
    if getattr(getattr(X, "dtype", None), "kind", "O") in "biufcmM":
        return None
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    parts = X.ravel() if isinstance(X, np.ndarray) else X
    if isinstance(parts, (list, tuple, np.ndarray)) and depth < 3:
        for part in parts[:_FIRST_ROWS]:
            text = _first_text(part, depth + 1)
            if text is not None:
                return text
    return None


def check_are_names(X):
    """Refuse texts where file names are expected."""
    parts = [X] if isinstance(X, (str, os.PathLike)) else X
    for part in parts:
        name = os.fspath(part)
        if isinstance(part, str) and not is_url(name) and _reads_like_text(name):
            said = f"X holds texts, such as {shortened(name)}: {REMEDY}"
            raise DataError(f"{said}; there is no file of this name")


def _reads_like_text(name):
    if "\n" in name or len(os.path.basename(name)) > LONGEST_NAME or "\0" in name:
        return True
    if not any(sign.isspace() for sign in name) or os.path.exists(name):
        return False
    folder, base = os.path.split(name)
    return not (folder and os.path.isdir(folder)) and "." not in base.rstrip(". ")


def reworded(message, remedy):
    """Remove misleading parts of a message of scikit-learn or NumPy; show at most 200 characters.

    `remedy` is the advice against NaN and infinity.
    """
    first = message.split("\n")[0]
    if " contains NaN" in first or " contains infinity" in first:
        return f"{first.rstrip('.')}: {remedy}"
    if "inhomogeneous shape" in message:
        return "the rows of X have different lengths: give each row one value for each column"
    message = re.sub(r"array=.*?\.?\n(?=Reshape)", "", message, flags=re.DOTALL)
    return message if len(message) <= 200 else message[:100] + "..." + message[-97:]
