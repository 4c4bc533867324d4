"""Files of rows as DATA of linear models: folders, patterns and URLs that the fit, or the workers, read.

DATA is ``'clicks/*.parquet:churned'``, ``s3://bucket/clicks:churned`` (a folder of Parquet files),
``'X-*.npy'`` with ``--target 'y-*.npy'``, or ``'rows-*.svm'``. One file is read in this process, unless the
fit goes to a cluster; Parquet by the readers of tables.
"""

import contextlib
import re
from dataclasses import dataclass
from typing import Any

from .._urls import file_name, file_size, is_folder, is_url
from ..errors import DataError, shortened
from .tables import check_named

ROWS = ("targets", "classes", "dense targets", "dense classes")  # kinds of data that have rows of numbers
_NAMED = re.compile(
    r"(.+?\.(?:parquet|pq|npy|(?:svm|svmlight|libsvm)(?:\.(?:gz|xz|bz2))?))(?::(.*))?",
    re.IGNORECASE | re.DOTALL,
)
_SIGNS = re.compile(r"[*?\[]")


class ReadLater:
    """Files that a fit reads: their sizes. A subclass has their names, `files`, and DATA, `source`."""

    source: Any
    files: Any

    def describe(self):
        """Sizes, fit for JSON."""
        return {"source": self.source, "files": len(self.files), "bytes": sum(map(file_size, self.files))}

    def in_words(self):
        """Sizes, in words."""
        sizes = self.describe()
        return f"{sizes['files']:,} file{'s' * (sizes['files'] > 1)} of {sizes['bytes']:,} bytes"


@dataclass(frozen=True)
class RowFiles(ReadLater):
    """Files of rows that the fit reads: `X` and `y` as it takes them, and the names of all files."""

    X: Any
    y: Any
    source: str
    files: list

    vocabulary = encoding = classes = names = None  # the model finds them where it reads

    @property
    def has_targets(self):
        """Whether the targets are known: those of svmlight files are in them."""
        from ..datasets.row_files import row_format

        return self.y is not None or row_format(self.X) == "svmlight"

    @property
    def arguments(self):
        """What `fit` is given."""
        return self.X, self.y

    def scored(self, estimator):
        """Rows that are read when they are computed, and targets, for a score."""
        from ..algorithms.inputs.tables import scored_rows
        from .inputs import Labelled

        X, y, _ = scored_rows(estimator, self.X, self.y)
        return Labelled(X, y, self.source)


def parts_of(source, cluster=False):
    """Divide DATA into names of files and a column, or None; None where DATA is not files of rows.

    With `cluster` one file of Parquet or npy is read there, too.
    """
    source = str(source)
    found = _NAMED.fullmatch(source)
    if found is not None:
        path, column = found.groups()
        parquet = path.lower().endswith(("parquet", "pq"))
        several = _SIGNS.search(path.partition("://")[2] if is_url(path) else path) is not None
        one = path.lower().endswith((".npy", ".pq")) or (cluster and parquet)
        return (path, column or None) if several or one else None
    for path, column in ((source, None), source.rpartition(":")[::2]):
        if path and _is_folder(path):
            return path, column or None
    return None


def _is_folder(path):
    if path.lower().startswith(("http://", "https://")) and "." in file_name(path.rstrip("/")):
        return False  # to ask would read the whole file
    try:
        return is_folder(path)
    except (DataError, OSError):  # no file system of that name: another reader says what is wrong
        return False


def of_files(source, args, *, fitting):
    """`RowFiles` that DATA names, or None."""
    cluster = getattr(args, "cluster", None) is not None
    found = parts_of(source, cluster)
    if found is None:
        return None
    path, column = found
    target = getattr(args, "target", None)
    if column is not None and target is not None:
        raise DataError(f"--target: {source} names a column already; leave one of the two out")
    for option in ("vocab", "impute", "test_size"):
        if getattr(args, option, None):
            raise DataError(
                f"--{option.replace('_', '-')}: {shortened(path)} is read where the model is fitted; leave "
                "it out, or give one CSV file"
            )
    target = column if target is None else target
    if _is_folder(path) or path.lower().endswith(("parquet", "pq")):
        return _of_parquet(path, target, source, args, fitting)
    from ..datasets.row_files import files_of, row_format

    for option in ("drop", "categories"):
        if getattr(args, option, None):
            raise DataError(f"--{option}: the columns of {shortened(path)} have no names; leave it out")
    files = files_of(path)
    if row_format(path) == "npy":
        if fitting and target is None:
            raise DataError(f"--target: say which npy file has the targets of {shortened(path)}")
        if target is not None and row_format(target) != "npy":
            raise DataError(
                f"--target: {shortened(target)} is no npy file with a number for each row of {path}"
            )
    elif target is not None:
        raise DataError(f"--target: svmlight files hold their labels; leave {shortened(target)} out")
    return RowFiles(path, target, str(source), files)


def _of_parquet(path, target, source, args, fitting):
    from ..datasets.parquet import ParquetTable, read_footer

    files = ParquetTable(path).files()
    drop, categories = (list(getattr(args, name, None) or ()) for name in ("drop", "categories"))
    if not fitting:
        return RowFiles(path, target, str(source), files)
    names = list(read_footer(files[0]).types)
    if target is None:
        raise DataError(
            f"say which column of {shortened(path)} is the target, as {path}:COLUMN or by --target; it has "
            f"{shortened(names, 150)}"
        )
    check_named(files[0], names, target, drop, categories)
    kept = [name for name in names if name not in (target, *drop)] if drop else None
    return RowFiles(ParquetTable(path, kept, categories or None), target, str(source), files)


@contextlib.contextmanager
def on_cluster(args, read):
    """Have the scheduler of ``--cluster`` compute what is read from files after the fit, too."""
    if getattr(args, "cluster", None) is None or not isinstance(read, RowFiles):
        yield
        return
    from distributed import Client

    with Client(args.cluster):
        yield
