"""Recognise the format of a data file by its content."""

import re
from typing import Any

from .._typing import FileName
from .._urls import file_size
from ..errors import DataError, shortened
from ._files import Reader, check_no_text, is_text
from .bag_of_words import read_uci_bow
from .images import read_idx
from .ratings import read_ratings
from .svmlight import read_svmlight

_SVMLIGHT_LINE = re.compile(rb"\s*[-+.0-9eE,]+(?:\s+qid:\S+)?(?:\s+[0-9]+:\S+)+\s*(?:#.*)?")

_NUMBER = re.compile(rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_FORMATS = "UCI bag of words, svmlight, ratings or idx"


def describe_file(path: FileName, *, verbose: int = 0) -> dict[str, Any]:
    r"""Recognise the format of a data file by its content, read it, and say what it holds.

    Parameters
    ----------
    path : str, path-like or URL
        A file in one of the formats that this package reads; plain, gzip, xz or bzip2.
    verbose : int, default=0
        Show a progress bar over the bytes of the file.

    Returns
    -------
    description : dict
        Always ``path``, ``format`` (``"uci-bow"``, ``"svmlight"``, ``"ratings"`` or ``"idx"``), ``bytes``
        (of the file), ``shape`` and ``dtype``; for sparse data ``nnz`` (stored values) and ``density``; for
        counts ``tokens`` (their sum); for svmlight ``labels`` (how many distinct ones); for ratings
        ``lowest``, ``highest`` and ``mean``. Values are plain Python, fit for json.

    Raises
    ------
    DataError
        The format is none of these, or the file is broken.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stradask.datasets import describe_file
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "counts"
    >>> _ = path.write_text("2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n")
    >>> description = describe_file(path)
    >>> description["format"], description["shape"], description["tokens"]
    ('uci-bow', [2, 3], 8)
    >>> folder.cleanup()
    """
    found = detect_format(path)
    description = {"path": str(path), "format": found, "bytes": file_size(path)}
    if found == "idx":
        values = read_idx(path, verbose=verbose)
        return description | {"shape": list(values.shape), "dtype": values.dtype.name}
    if found == "uci-bow":
        X = read_uci_bow(path, verbose=verbose)
        return description | _of_matrix(X) | {"tokens": int(X.sum(dtype="int64"))}
    if found == "svmlight":
        X, y = read_svmlight(path, verbose=verbose)
        return description | _of_matrix(X) | {"labels": len(set(y.tolist()))}
    X = read_ratings(path, verbose=verbose).matrix
    rated = {"lowest": float(X.data.min()), "highest": float(X.data.max()), "mean": float(X.data.mean())}
    return description | _of_matrix(X) | rated


def _of_matrix(X):
    cells = X.shape[0] * X.shape[1]
    return {
        "shape": list(X.shape),
        "dtype": X.dtype.name,
        "nnz": int(X.nnz),
        "density": X.nnz / cells if cells else 0.0,
    }


def detect_format(path, *, texts=False):
    """Return the name of the format of a file, by its first lines; with `texts` it may be "text"."""
    with Reader(path) as reader:
        if reader.read(2) == b"\0\0":
            return "idx"
    with Reader(path) as reader:
        _, start = next(reader.blocks(), (1, b""))
    lines = [line for line in start.split(b"\n") if line.strip() and not line.lstrip().startswith(b"#")]
    if len(lines) >= 3 and all(re.fullmatch(rb"\s*[0-9]+\s*", line) for line in lines[:3]):
        return "uci-bow"
    if lines and _SVMLIGHT_LINE.fullmatch(lines[0]):
        return "svmlight"
    if any(map(_may_be_rating, lines[:10])):
        return "ratings"
    if texts and is_text(start):
        return "text"
    check_no_text(path, start, _FORMATS)
    raise DataError(f"{path}: not {_FORMATS}; it starts with {shortened(start, 40)}")


def _may_be_rating(line):
    """Whether a line has a number in its third field or a later one; commas in prose do not make ratings."""
    fields = max((line.split(separator) for separator in (b"::", b"\t", b",", b";")), key=len)
    return any(_NUMBER.fullmatch(field.strip(b" \r\"'")) for field in fields[2:])
