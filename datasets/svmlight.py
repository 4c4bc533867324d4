"""The svmlight / LIBSVM format, read by scikit-learn behind our checks.

scikit-learn's reader is quick and right on well-formed files; on others its message names no line. When
it fails, or lets a value through that is not finite, the file is gone through once more, line by line,
for the first line at fault.
"""

import io
import math
from numbers import Integral
from typing import Any

import numpy as np

from .._typing import DTypeLike, FileName, Matrix
from ..errors import DataError, in_brief, shortened
from ._common import type_of
from ._files import Reader, too_empty

_LARGEST_INDEX = 2**31 - 2  # what scikit-learn's reader takes


def read_svmlight(
    path: FileName,
    *,
    n_features: int | None = None,
    dtype: DTypeLike = np.float64,
    multilabel: bool = False,
    zero_based: bool | str = "auto",
    verbose: int = 0,
) -> tuple[Matrix, Any]:
    r"""Read a data set in the svmlight / LIBSVM format.

    A line is ``label index:value index:value ...``; what follows ``#`` is a comment, and ``qid:`` is passed
    over. Plain, gzip, xz and bzip2 files are recognised by what they hold.

    Parameters
    ----------
    path : str, path-like or URL
        The file.
    n_features : int, default=None
        Columns of `X`; one more than the largest index when None. Give it for a test set, which may lack
        the last columns of its training set.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the values of `X`.
    multilabel : bool, default=False
        Whether a line has several labels with commas between them.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. ``"auto"``: from 1 unless the index 0 occurs.
    verbose : int, default=0
        Show a progress bar over the bytes of the file.

    Returns
    -------
    X : csr_matrix of shape (n_samples, n_features)
        The values.
    y : ndarray of shape (n_samples,), or list of tuples of float when `multilabel`
        The labels.

    Raises
    ------
    DataError
        The file cannot be read, holds no sample, or a line of it is not what the format says.

    See Also
    --------
    sklearn.datasets.load_svmlight_file : The reader behind this one.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stradask.datasets import read_svmlight
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "toy.svm"
    >>> _ = path.write_text("+1 1:0.5 3:2\n-1 2:1  # a comment\n")
    >>> X, y = read_svmlight(path)
    >>> X.toarray()
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]])
    >>> y
    array([ 1., -1.])
    >>> folder.cleanup()
    """
    _check_parameters(n_features, dtype, multilabel, zero_based)
    options = {"n_features": n_features, "multilabel": multilabel, "zero_based": zero_based}
    with _LinesOfNumbers(path, verbose=verbose) as reader:
        X, y = load_lines(
            reader, path, lambda: _raise_at_first_bad_line(path, **options), dtype=np.dtype(dtype), **options
        )
    if n_features is None and too_empty(X.shape[1], X.nnz):
        raise DataError(
            f"{path}: an index says that there are {X.shape[1]} columns, with {X.nnz} entries in all; "
            "correct it, or give n_features if that is right"
        )
    if X.shape[0] == 0:
        raise DataError(f"{path}, line {reader.line}: the file ends and holds no sample")
    return X, y


def load_lines(file, name, raise_at_fault, *, dtype=np.float64, multilabel=False, **options):
    """Read lines by scikit-learn as X and y; `raise_at_fault` raises an error at the first line at fault.

    If it finds none, the error names `name`.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        X, y = load_svmlight_file(file, dtype=dtype, multilabel=multilabel, **options)
    except DataError:
        raise
    except (ValueError, OverflowError) as error:
        raise_at_fault()
        raise DataError(f"{name}: {in_brief(error)}") from None
    labels = np.concatenate([np.empty(0), *y]) if multilabel else y
    if not np.isfinite(X.data).all() or not np.isfinite(labels).all():
        raise_at_fault()
        raise DataError(
            f"{name}: a label or value is not finite as {np.dtype(dtype)}; scale it, or give a wider dtype"
        )
    return X, y


class _LinesOfNumbers(Reader):
    """Lines of which scikit-learn reads no number that holds an underscore."""

    def __iter__(self):
        for first, block in self.blocks():
            if b"_" in block:
                for line, text in enumerate(io.BytesIO(block), first):
                    if b"_" in text.split(b"#", 1)[0]:
                        raise self.error(
                            line, f"{_shown(text.rstrip())} holds an underscore, as no number does"
                        )
            yield from io.BytesIO(block)


def _check_parameters(n_features, dtype, multilabel, zero_based):
    if n_features is not None and (not isinstance(n_features, Integral) or n_features < 1):
        raise DataError(f"n_features={shortened(n_features)}: give None or a whole number from 1 on")
    if type_of(dtype) not in (np.float32, np.float64):
        raise DataError(f"dtype={shortened(dtype)}: give numpy.float64 or numpy.float32")
    if not isinstance(multilabel, bool):
        raise DataError(f"multilabel={shortened(multilabel)}: give True or False")
    if not (isinstance(zero_based, bool) or zero_based == "auto"):
        raise DataError(f"zero_based={shortened(zero_based)}: give True, False or 'auto'")


def _raise_at_first_bad_line(path, n_features, multilabel, zero_based):
    """Raise a DataError at the first line at fault; return where every line is sound."""
    lowest, beyond = 1, []  # the lines that may hold an index past n_features, were they counted from 0
    with Reader(path) as reader:
        for line, text in enumerate(reader, start=1):
            try:
                indices = parse_line(text, multilabel, zero_based)
            except ValueError as error:
                raise reader.error(line, str(error)) from None
            if indices:
                lowest = min(lowest, indices[0])
                if n_features is not None and indices[-1] >= n_features:
                    beyond.append((line, indices[-1]))
        offset = 1 if zero_based is False or (zero_based == "auto" and lowest > 0) else 0
        for line, index in beyond:
            if index - offset >= n_features:
                raise reader.error(
                    line, f"index {index} is beyond n_features={n_features}; give a larger n_features"
                )


def parse_line(text, multilabel, zero_based):
    """Return the indices of a line, or raise ValueError with what is wrong with it."""
    fields = text.split(b"#", 1)[0].split()
    if not fields:
        return []
    if not (multilabel and b":" in fields[0]):
        for label in fields[0].split(b",") if multilabel else fields[:1]:
            _parse_number(label, "the label")
        fields = fields[1:]
    if fields and fields[0].startswith(b"qid"):
        fields = fields[1:]
    indices: list[int] = []
    for field in fields:
        index, colon, value = field.partition(b":")
        if not colon or not index.removeprefix(b"-").isdigit():
            raise ValueError(f"{_shown(field)} is not of the form index:value")
        indices.append(_checked_index(int(index), indices, zero_based))
        _parse_number(value, f"the value of index {int(index)}")
    return indices


def _checked_index(index, before, zero_based):
    if index < 0 or index > _LARGEST_INDEX:
        raise ValueError(f"index {index} is out of range; indices are not negative and below 2**31 - 1")
    if index == 0 and zero_based is False:
        raise ValueError("index 0, and zero_based=False says that indices count from 1; give zero_based=True")
    if before and index <= before[-1]:
        raise ValueError(f"index {index} after index {before[-1]}; the indices of a line must rise")
    return index


def _parse_number(text, meaning):
    try:
        if b"_" in text:  # Python would take 1_0 for ten
            raise ValueError
        number = float(text)
    except ValueError:
        raise ValueError(f"{meaning} must be a number, not {_shown(text)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{meaning} is {_shown(text)}; only finite numbers can be used")


def _shown(text):
    return repr(text.decode("utf-8", "backslashreplace"))
