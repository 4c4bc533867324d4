"""The idx format of MNIST and its kin: images, labels, any array of numbers.

Two zero bytes, one byte for the type, one for the number of axes, the length of each axis as a 32-bit
big-endian number, and then the values, big-endian, the last axis fastest.
"""

import math

import numpy as np

from .._typing import Array, FileName
from ..errors import DataError, shortened
from ._files import BLOCK, Reader

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: FileName, *, verbose: int = 0) -> Array:
    """Read an array in the idx format.

    Plain, gzip, xz and bzip2 files are recognised by what they hold.

    Parameters
    ----------
    path : str, path-like or URL
        The file, such as ``train-images-idx3-ubyte.gz``.
    verbose : int, default=0
        Show a progress bar over the bytes of the file.

    Returns
    -------
    values : ndarray
        The array in the byte order of this machine: images are (n, height, width) and labels (n,), both
        uint8 in MNIST.

    Raises
    ------
    DataError
        The file cannot be read, is not an idx file, or holds fewer or more values than its header states.

    References
    ----------
    .. [1] Y. LeCun, C. Cortes, C. J. C. Burges, "The MNIST database of handwritten digits", 1998.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from stradask.datasets import read_idx
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "labels-idx1-ubyte"
    >>> _ = path.write_bytes(bytes([0, 0, 0x08, 1, 0, 0, 0, 3, 7, 2, 1]))
    >>> read_idx(path)
    array([7, 2, 1], dtype=uint8)
    >>> folder.cleanup()
    """
    with Reader(path, verbose=verbose) as reader:
        data = _read(reader, 4)
        if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
            raise DataError(
                f"{path}: not an idx file; it starts with {shortened(bytes(data))}, and should with two "
                f"zero bytes, a type ({', '.join(f'0x{code:02x}' for code in _TYPES)}) and the number of axes"
            )
        dtype, n_axes = np.dtype(_TYPES[data[2]]), data[3]
        if not 1 <= n_axes <= 32:
            raise DataError(f"{path}: the header states {n_axes} axes; an idx array has 1 to 32 here")
        start = 4 + 4 * n_axes
        data += _read(reader, start - 4)
        if len(data) < start:
            raise DataError(
                f"{path}: the file ends at byte {len(data)}, inside the header of {start}; download it again"
            )
        shape = tuple(int(length) for length in np.frombuffer(data, ">u4", n_axes, offset=4))
        expected = start + math.prod(shape) * dtype.itemsize
        data += _read(reader, expected - start + 1)
    if len(data) != expected:
        holds = "more" if len(data) > expected else f"{len(data)}"
        raise DataError(
            f"{path}: the header states shape {shape} of {dtype.name}, which makes {expected} bytes, "
            f"and the file holds {holds}; download it again"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _read(reader, size):
    """Read up to so many bytes: a false header takes up no memory."""
    data = bytearray()
    while len(data) < size and (more := reader.read(min(size - len(data), BLOCK))):
        data += more
    return data
