"""idx files: every type, and headers that do not tell the truth."""

import gzip
import struct

import numpy as np
import pytest

from stradask.datasets import read_idx
from stradask.errors import DataError

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx(array, code):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("dtype", CODES)
def test_reads_every_type_and_shape(tmp_path, dtype, compress):
    rng = np.random.default_rng(0)
    for shape in [(7,), (3, 4, 5), (0, 4), (2, 1, 3, 2)]:
        array = rng.integers(0, 100, shape).astype(dtype)
        path = tmp_path / "array"
        path.write_bytes(compress(idx(array, CODES[dtype])))
        read = read_idx(path)
        np.testing.assert_array_equal(read, array)
        assert read.dtype == np.dtype(dtype)
        assert read.flags.writeable


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00\x07\x01\x00\x00\x00\x01\x05", "not an idx file"),
        (b"\x01\x00\x08\x01\x00\x00\x00\x01\x05", "not an idx file"),
        (b"\x00\x00\x08", "not an idx file"),
        (b"\x00\x00\x08\x02\x00\x00\x00\x01", "ends at byte 8, inside the header of 12"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x02\x05", r"shape \(2,\) of uint8, which makes 10 bytes.* 9;"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x02\x05\x06\x07", "makes 10 bytes.* holds more;"),
        (b"\x00\x00\x0e\xff" + b"\xff" * 1020, "255 axes"),
        (b"", "empty"),
    ],
)
def test_headers_are_checked(tmp_path, data, words):
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"(?s)images-idx3-ubyte: .*{words}"):
        read_idx(path)


def test_a_cut_off_archive(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx(np.arange(5000, dtype="i4"), 0x0C))[:-20])
    with pytest.raises(DataError, match=r"labels\.gz, .* broken or cut off"):
        read_idx(path)


@pytest.mark.parametrize("n_axes", [0, 33, 255])
def test_a_header_with_an_absurd_number_of_axes_is_refused(tmp_path, n_axes):
    path = tmp_path / "x.idx"
    path.write_bytes(bytes([0, 0, 8, n_axes]) + b"\0\0\0\1" * n_axes + b"\7")
    with pytest.raises(DataError, match=f"{n_axes} axes"):
        read_idx(path)
