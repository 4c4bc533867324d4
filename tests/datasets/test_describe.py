"""Formats are told apart by content, whatever the name and the compression."""

import gzip
import json
import lzma
import struct

import numpy as np
import pytest

from stradask.datasets import describe_file
from stradask.errors import DataError

FILES = {
    "uci-bow": b"2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n",
    "svmlight": b"# a comment\n+1 1:0.5 3:2\n-1 2:1\n1 1:1\n",
    "ratings": b"user,item,rating\n1,1,4\n1,2,5\n2,2,3\n",
    "idx": struct.pack(">BBBBII", 0, 0, 0x08, 2, 2, 3) + bytes(range(6)),
}
EXPECTED = {
    "uci-bow": {"shape": [2, 3], "dtype": "int32", "nnz": 3, "density": 0.5, "tokens": 8},
    "svmlight": {"shape": [3, 3], "dtype": "float64", "nnz": 4, "density": 4 / 9, "labels": 2},
    "ratings": {
        "shape": [2, 2],
        "dtype": "float64",
        "nnz": 3,
        "density": 0.75,
        "lowest": 3.0,
        "highest": 5.0,
        "mean": 4.0,
    },
    "idx": {"shape": [2, 3], "dtype": "uint8"},
}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
@pytest.mark.parametrize("found", FILES)
def test_describes_each_format(tmp_path, found, compress):
    path = tmp_path / "data"
    path.write_bytes(compress(FILES[found]))
    description = describe_file(path)
    common = {"path": str(path), "format": found, "bytes": path.stat().st_size}
    assert description == common | EXPECTED[found]
    assert json.loads(json.dumps(description)) == description


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1::2::5::978300760\n", "ratings"),
        ("196\t242\t3\t881250949\n", "ratings"),
        ("1;2;5\n", "ratings"),
        ("2 qid:1 1:0.5\n", "svmlight"),
        ("1 " + " ".join(f"{i}:1" for i in range(1, 40_000)) + "\n", "svmlight"),
        ("\n0\r\n0\r\n0\r\n", "uci-bow"),
    ],
)
def test_variants_are_recognised(tmp_path, text, found):
    from stradask.datasets.describe import detect_format

    path = tmp_path / "data"
    path.write_text(text, newline="")
    assert detect_format(path) == found


@pytest.mark.parametrize(
    "data", [b"some words\n", b"1 2 3\n", b"\n", np.arange(9.0).tobytes(), b"PK\x03\x04"]
)
def test_others_are_refused(tmp_path, data):
    path = tmp_path / "data"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"data: (not UCI bag of words|not an idx file|a zip archive)"):
        describe_file(path)


def test_broken_files_are_named(tmp_path):
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(FILES["uci-bow"])[:-3])
    with pytest.raises(DataError, match=r"data\.gz, after line \d: "):
        describe_file(path)


PROSE = "I loved it, really, all of it; the ending too. " * 100


@pytest.mark.parametrize("text", [PROSE, "was für ein Buch, herrlich, ja\n" * 40, "a\tb\tc d\n" * 9])
def test_text_is_named_with_a_remedy_and_shown_in_short(tmp_path, text):
    import stradask as sd

    path = tmp_path / "reviews.txt"
    path.write_text(text, encoding="utf-8")
    for call in (describe_file, sd.LatentDirichletAllocation(2).fit):
        with pytest.raises(DataError, match=r"but text, .*stradask\.text_counts") as caught:
            call(str(path))
        assert str(caught.value).count("\n") == 0
        assert len(str(caught.value).replace(str(path), "")) < 350


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("user,item,stars\nann,a book,5\n", "ratings"),
        ('"ann";"a book";"5"\n', "ratings"),
        ("# the words of a corpus, counted for a test\n1 1:2 3:1\n", "svmlight"),
    ],
)
def test_names_and_comments_are_no_text(tmp_path, text, found):
    from stradask.datasets.describe import detect_format

    path = tmp_path / "data"
    path.write_text(text)
    assert detect_format(path) == found
