"""What the command line writes: results on stdout, notes on stderr, tables, and checks of output files."""

import contextlib
import json
import math
import os
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._urls import file_name, is_file, is_url, open_file, write_atomic
from ..errors import DataError


def say(args, text):
    """Tell something on the way, on stderr."""
    if not getattr(args, "quiet", False):
        print(text, file=sys.stderr, flush=True)


def bars(args):
    """Return whether readers and downloads draw bars; in a log they would be noise."""
    return int(not args.quiet and sys.stderr.isatty())


def show(args, document, text):
    """Print a result."""
    print(json.dumps(_plain(document), allow_nan=False, default=str) if args.json else text)


def _plain(value):
    """A value of JSON: numbers of NumPy become Python's, and what is not finite null, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


# Tables -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Columns with a name for each row; `kind` is what a row is, `header` names the columns of `arrays`."""

    kind: str
    names: list
    header: list
    arrays: dict


def put_out(args, table, size):
    """Write a table to the file of ``--out``, or print it."""
    if args.out is not None:
        with write_atomic(args.out) as file:
            WRITERS[ending(args.out)](file, table)
        shape = list(next(iter(table.arrays.values())).shape)
        show(args, {"out": str(args.out), "shape": shape}, f"{size} in {args.out}")
    elif args.json:
        lists = {name: array.tolist() for name, array in table.arrays.items()}
        whole = all(name.isdecimal() and str(int(name)) == name for name in table.names)
        show(args, {f"{table.kind}s": list(map(int, table.names)) if whole else table.names} | lists, "")
    else:
        _write_csv(sys.stdout, table)


def _write_csv(file, table):
    import csv

    rows = csv.writer(file, lineterminator="\n")
    rows.writerow([table.kind, *table.header])
    columns = [array if array.ndim == 2 else array[:, None] for array in table.arrays.values()]
    for name, *parts in zip(table.names, *columns, strict=True):
        rows.writerow([name, *(_cell(value) for part in parts for value in part.tolist())])


def _cell(value):
    return f"{value:.6g}" if isinstance(value, float) else value


def _write_csv_bytes(file, table):
    import io

    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    _write_csv(text, table)
    text.detach()  # or the wrapper would close the file


def _write_npy(file, table):
    import numpy as np

    np.save(file, next(iter(table.arrays.values())), allow_pickle=False)


def _write_npz(file, table):
    import numpy as np

    arrays: dict[str, Any] = {f"{table.kind}s": np.array(table.names), **table.arrays}
    np.savez(file, **arrays)


WRITERS = {".npz": _write_npz, ".npy": _write_npy, ".csv": _write_csv_bytes}


# Files --------------------------------------------------------------------------------------------


def check_output(option, path, *, inputs=(), is_ours=None):
    """Refuse, before any work, an output file that cannot or should not be written.

    `inputs` are files that this command reads; an existing file may be replaced where ``is_ours(path)``.
    """
    if is_url(path):
        if is_file(path) and is_ours is not None and not is_ours(path):
            raise DataError(
                f"{option}: {path} is there and was not written by this command; give another name"
            )
        return
    path = Path(path)
    folder = path.parent
    if path.is_dir():
        raise DataError(f"{option}: {path} is a folder; give the name of a file")
    if not folder.is_dir():
        raise DataError(f"{option}: the folder {folder} does not exist; make it first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise DataError(f"{option}: cannot write into {folder.resolve()} ({error.strerror})") from error
    if not path.exists():
        return
    for name in inputs:
        if os.path.exists(name) and os.path.samefile(path, name):
            raise DataError(f"{option}: {path} is what is read; give another name")
    if is_ours is not None and not is_ours(path):
        raise DataError(f"{option}: {path} is there and was not written by this command; give another name")


def ending(path):
    """The ending of a path or URL, such as ".npz"."""
    return os.path.splitext(file_name(path))[1]


def is_model_file(path):
    """Tell whether a file looks like a model that `stradask fit --save` wrote."""
    with (
        contextlib.suppress(OSError, zipfile.BadZipFile),
        open_file(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        return "header.npy" in archive.namelist()
    return False
