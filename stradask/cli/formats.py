"""Which format a file of DATA has, and the matrices of SciPy among them."""

import contextlib
import zipfile

from .._urls import file_size, open_file
from ..errors import DataError

_UNFOLDED, _UNFOLDED_TIMES = 1 << 30, 100  # bytes that a matrix in a file may have, and times the file's


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

    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            unfolded = sum(info.file_size for info in archive.infolist())
        if unfolded > max(_UNFOLDED, _UNFOLDED_TIMES * file_size(path)):
            raise ValueError(f"it unfolds to {unfolded:,} bytes; if that is right, save it uncompressed")
        with open_file(path) as file:
            return sparse.load_npz(file)
    except Exception as error:  # damage can surface as almost anything
        raise DataError(
            f"{path}: not a sparse matrix as scipy.sparse.save_npz writes it ({error}); save it so"
        ) from error
