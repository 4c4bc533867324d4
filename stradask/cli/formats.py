"""Which format a file of DATA has; matrices of SciPy, and tables for models by formula."""

import contextlib
import io
import zipfile
from dataclasses import dataclass, replace
from typing import Any

from .._urls import file_size, open_file
from ..errors import DataError, StradaskError, in_brief, not_utf8

_UNFOLDED, _UNFOLDED_TIMES = 1 << 30, 100  # bytes that a matrix in a file may have, and times the file's
_LEAST = 2  # rows to learn from, and to judge by


def kind_of(path, *, texts=False):
    """Return the format of a file: "npz", or one of `stradask.datasets.describe_file`, or "text"."""
    from ..datasets.describe import detect_format

    if _is_zip(path):
        return "npz"
    return detect_format(path, texts=texts)


def _is_zip(path):
    with contextlib.suppress(OSError), open_file(path) as file:
        return zipfile.is_zipfile(file)
    return False


def read_npz_matrix(path):
    """Read a sparse matrix as `scipy.sparse.save_npz` writes it, of at most 1 GiB or 100 times the file.

    No pickle is read.
    """
    from scipy import sparse

    from ..datasets._files import too_empty

    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            unfolded = sum(info.file_size for info in archive.infolist())
        if unfolded > max(_UNFOLDED, _UNFOLDED_TIMES * file_size(path)):
            raise ValueError(f"it unfolds to {unfolded:,} bytes; if that is right, save it uncompressed")
        with open_file(path) as file:
            matrix = sparse.load_npz(file)
        if too_empty(max(matrix.shape), matrix.nnz):
            raise DataError(
                f"{path}: the matrix has the shape {matrix.shape}, with {matrix.nnz:,} entries in all; leave "
                "out rows and columns without entries"
            )
        return matrix
    except DataError:
        raise
    except Exception as error:  # damage can surface as almost anything
        raise DataError(
            f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it ({error}); save it so"
        ) from error


@dataclass(frozen=True)
class Frame:
    """A table as a DataFrame."""

    frame: Any
    source: str

    vocabulary = None
    names = None

    def describe(self):
        """Sizes, fit for JSON."""
        return {"source": self.source, "rows": len(self.frame), "columns": list(map(str, self.frame.columns))}

    def in_words(self):
        """Sizes, in words."""
        columns = in_brief(", ".join(map(str, self.frame.columns)), 200)
        return f"{len(self.frame):,} rows, {len(self.frame.columns)} columns: {columns}"

    def held_out(self, share, seed, option):
        """Divide the rows; return those to learn from and those to judge by."""
        import numpy as np

        n = len(self.frame)
        n_test = round(share * n)
        if min(n_test, n - n_test) < _LEAST:
            raise DataError(f"{option}: of {n} rows {n_test} would be held out; take another share")
        order = np.random.default_rng(seed).permutation(n)
        test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
        return tuple(replace(self, frame=self.frame.iloc[rows]) for rows in (train, test))

    @property
    def arguments(self):
        """What `fit` is given."""
        return (self.frame,)


def read_frame(source, vocab=None, *, verbose=0):
    """Read a `Frame` from a file of csv, tsv or Parquet."""
    if vocab is not None:
        raise DataError("--vocab: the columns of a table have names of their own; leave it out")
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise StradaskError("models by formula need pandas: pip install 'stradask[formula]'") from error
    from ..datasets._files import SUFFIXES, Reader

    name = source.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    try:
        if name.endswith((".parquet", ".pq")):
            return Frame(pd.read_parquet(source), source)
        if name.endswith((".csv", ".tsv")):
            with Reader(source, verbose=verbose) as reader:
                rows = io.BytesIO(b"".join(block for _, block in reader.blocks()))
            return Frame(pd.read_csv(rows, sep="\t" if name.endswith(".tsv") else ","), source)
    except UnicodeDecodeError as error:
        raise not_utf8(source, error, first=None) from None
    except DataError:
        raise
    except (ValueError, OSError) as error:
        raise DataError(f"{source}: {in_brief(str(error), 200)}") from error
    raise DataError(f"{source}: a formula names columns; give a table, csv, tsv or parquet")
