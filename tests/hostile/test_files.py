"""Files that are damaged, foreign or made to harm: readers say what is wrong, and in bounded memory."""

import bz2
import functools
import gzip
import lzma
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import stradask as sd
from stradask.cli.formats import read_frame, read_npz_matrix
from stradask.cli.inputs import read_targets
from stradask.datasets import (
    describe_file,
    iter_uci_bow,
    read_idx,
    read_ratings,
    read_svmlight,
    read_texts,
    read_uci_bow,
)
from stradask.datasets.bag_of_words import read_vocabulary
from stradask.datasets.document_files import cut_files, read_pieces
from stradask.datasets.parquet import ParquetTable
from stradask.datasets.row_files import line_parts
from stradask.errors import DataError, ModelFileError

DOCWORD = b"3\n4\n6\n1 1 2\n1 3 1\n2 2 5\n2 4 1\n3 1 12\n3 4 7\n"
SVMLIGHT = b"+1 1:0.5 3:2\n-1 2:1  # a comment\n1 qid:3 1:1e-3 4:-7.25\n"
RATINGS = b"user,item,rating,at\n7,1,3.5,100\n7,2,1.0,101\n9,1,5.0,102\n10,3,2.5,103\n"
QUOTED = b'7,"an ant",3.5\n"8 ",bee,1\n9,"a ""b""",5\n'
VOCABULARY = "ant\nbee\nkühn\nwasp\n".encode()
IDX = bytes([0, 0, 0x08, 2]) + struct.pack(">2I", 3, 4) + bytes(range(12))


def shards(path):
    return [read_pieces(piece)[0] for piece in cut_files([str(path)], 2)]


def under(suffix, read):
    """A reader that tells the format of a file by its name."""

    def read_named(path):
        named = path.with_name(path.name + suffix)
        named.write_bytes(path.read_bytes())
        return read(str(named))

    return read_named


def rows(path):
    X, _ = line_parts([path])[0].read(9)
    if not X.shape[0]:  # of one part no fault
        raise DataError(f"{path} holds no row")
    return X


READERS = {
    "docword": (read_uci_bow, DOCWORD),
    "docword in chunks": (lambda path: list(iter_uci_bow(path, 2)), DOCWORD),
    "docword in shards": (shards, DOCWORD),
    "vocabulary": (lambda path: read_vocabulary(path, 4, "counts"), VOCABULARY),
    "svmlight": (read_svmlight, SVMLIGHT),
    "svmlight, several labels": (functools.partial(read_svmlight, multilabel=True), SVMLIGHT),
    "ratings": (read_ratings, RATINGS),
    "ratings, quoted": (read_ratings, QUOTED),
    "idx": (read_idx, IDX),
    "texts": (read_texts, b"A good room\nand quiet\n"),
    "texts, json": (under(".jsonl", lambda path: read_texts(path, "a")), b'{"a": "good"}\n{"a": "quiet"}\n'),
    "table": (under(".csv", lambda path: read_targets(f"{path}:y").X), b"x,k,y\n1,a,2\n2,b,3\n1.5,a,3\n"),
    "table, json": (
        under(".jsonl", lambda path: read_targets(f"{path}:y").X),
        b'{"x": 1, "y": 2}\n{"x": 2, "y": 3}\n',
    ),
    "frame": (under(".csv", lambda path: read_frame(path).frame.size), b"x,k,y\n1,a,2\n2,b,3\n1.5,a,3\n"),
    "rows": (under(".svm", rows), SVMLIGHT),
    "any": (describe_file, DOCWORD + SVMLIGHT),
}
PACKED = {"plain": bytes, "gzip": gzip.compress, "xz": lzma.compress, "bzip2": bz2.compress}


def sound(found):
    """Whether what a reader returned can be worked with."""
    for part in found if isinstance(found, (tuple, list)) else [found]:
        if sparse.issparse(part):
            part.check_format(full_check=True)
            assert np.isfinite(part.data).all()


def outcome(read, path):
    """What reading a file comes to: "read", or the words of our error; anything else is raised."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for words in ("first three are taken as user", "read as Windows-1252", "looks like a code"):
                warnings.filterwarnings("ignore", f"(?s).*{words}")  # damaged
            sound(read(path))
    except DataError as error:
        said = str(error)
    else:
        said = "read"
    assert said == "read" or path.name in said
    return said


# Damage ---------------------------------------------------------------------------------------------------

ODD = [b"\0", b"\xff", b"\n", b"\r", b" ", b"-", b":", b",", b'"', b"::", b"\t", b"nan", b"inf", b"1e999"]
ODD += [b"99999999999999999999", b"2147483648", b"-1", b"0x1", b"1_0", "٣".encode(), b"\xef\xbb\xbf", b"#"]
ODD += [b"PK\x03\x04", b"\x1f\x8b", b"\x80\x04\x95", b"\x93NUMPY", b"1" * 70_000]


@st.composite
def damages(draw):
    """A function of bytes that does one to three harmful things to them."""
    moves = draw(
        st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=3)
    )
    words = draw(st.lists(st.sampled_from(ODD), min_size=3, max_size=3))

    def damage(data):
        for (kind, place, size), word in zip(moves, words, strict=False):
            at = int(place * len(data))
            to = min(len(data), at + 1 + int(size * 8))
            if kind == 0:
                data = data[:at]
            elif kind == 1 and at < len(data):
                data = data[:at] + bytes([data[at] ^ (1 << int(7 * size))]) + data[at + 1 :]
            elif kind == 2:
                data = data[:at] + word + data[at:]
            elif kind == 3:
                data = data[:at] + word + data[to:]
            else:
                data = data[:to] + data[at:]
        return data

    return damage


def check_damage(read, whole, packed, inside, damage, path):
    path.write_bytes(PACKED[packed](damage(whole)) if inside else damage(PACKED[packed](whole)))
    outcome(read, path)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(packed=st.sampled_from(list(PACKED)), inside=st.booleans(), damage=damages())
def test_a_damaged_file_is_read_or_named(tmp_path, name, packed, inside, damage):
    check_damage(*READERS[name], packed, inside, damage, tmp_path / "file")


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=2000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(packed=st.sampled_from(list(PACKED)), inside=st.booleans(), damage=damages())
def test_a_damaged_file_is_read_or_named_at_length(tmp_path, name, packed, inside, damage):
    check_damage(*READERS[name], packed, inside, damage, tmp_path / "file")


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(compressed=st.booleans(), damage=damages())
def test_a_damaged_npz_of_a_matrix_is_read_or_named(tmp_path, compressed, damage):
    path = tmp_path / "matrix.npz"
    sparse.save_npz(path, sparse.eye_array(5, 7, format="csr"), compressed=compressed)
    path.write_bytes(damage(path.read_bytes()))
    outcome(read_npz_matrix, path)


@pytest.mark.parametrize("word", ["nan", "-nan", "inf", "1e999"])
@pytest.mark.parametrize("name", ["svmlight", "rows"])
def test_a_value_that_is_not_finite_is_named_with_its_line(tmp_path, name, word):
    (tmp_path / "file").write_text(f"1 1:0.5\n2 3:{word}\n")
    said = outcome(READERS[name][0], tmp_path / "file")
    assert f"the value of index 3 is '{word}'" in said


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("name", READERS)
def test_a_file_cut_anywhere_is_read_or_named(tmp_path, name, packed):
    read, whole = READERS[name]
    data, path = PACKED[packed](whole), tmp_path / "file"
    said = []
    for cut in range(0, len(data), 1 if packed == "plain" else 3):
        path.write_bytes(data[:cut])
        said.append(outcome(read, path))
    assert said[0] != "read"  # of no bytes
    if packed != "plain":  # its end is missing
        assert "read" not in said[2:]  # of fewer than six bytes it looks like text


@pytest.mark.parametrize("name", READERS)
def test_a_foreign_file_is_named_or_is_what_it_looks_like(tmp_path, name):
    read, _ = READERS[name]
    sparse.save_npz(tmp_path / "m.npz", sparse.eye_array(3, format="csr"))
    np.save(tmp_path / "a.npy", np.array([print], dtype=object), allow_pickle=True)
    others = [whole for _, whole in READERS.values()]
    others += [(tmp_path / "m.npz").read_bytes(), (tmp_path / "a.npy").read_bytes(), sys.executable.encode()]
    others += [b"\x7fELF" + bytes(100), b"<html>\n<body>404</body>\n</html>\n", b"\0" * 50, b"\n" * 50, b"{}"]
    for other in others:
        (tmp_path / "file").write_bytes(other)
        outcome(read, tmp_path / "file")


# Memory -----------------------------------------------------------------------------------------------------

MEASURED = """
import resource, sys
sys.path[:0] = [sys.argv[1]]
import numpy, scipy.sparse, sklearn.datasets
from test_files_readers import READERS, outcome
from pathlib import Path
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
said = outcome(READERS[sys.argv[2]][0], Path(sys.argv[3]))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) // 1024)
print(said)
"""


def measured(tmp_path, name, data):
    """Read a file in a process of its own; returns the MiB that it took beyond imports, and what was said."""
    (tmp_path / "test_files_readers.py").write_bytes(Path(__file__).read_bytes())
    (tmp_path / "trap").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path, name, tmp_path / "trap"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    megabytes, said = done.stdout.split("\n", 1)
    return int(megabytes), said


BOMB = 1 << 27
# Made when they are set: that takes seconds, and only slow tests do it.
TRAPS = {
    "docword, one line": ("docword", lambda: gzip.compress(bytes(BOMB), 1), "unfold to more than"),
    "docword, no end": (
        "docword",
        lambda: gzip.compress(b"9\n9\n9\n" + b"\n" * BOMB, 1),
        "blank bytes",
    ),
    "chunks, no end": (
        "docword in chunks",
        lambda: lzma.compress(b"9\n9\n9\n" + b"\n" * BOMB, preset=0),
        "blank bytes",
    ),
    "vocabulary": ("vocabulary", lambda: gzip.compress(b"a" * BOMB, 1), "unfold to more than"),
    "svmlight": ("svmlight", lambda: gzip.compress(b"# \n" * (BOMB // 3), 1), "unfold to more than"),
    "ratings": ("ratings", lambda: bz2.compress(b"1,2,3" + b" " * BOMB, 1), "blank bytes"),
    "idx": (
        "idx",
        lambda: gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", BOMB) + bytes(BOMB), 1),
        "unfold to more than",
    ),
    "idx, false head": ("idx", lambda: bytes([0, 0, 14, 4]) + b"\xff" * 16, "holds 20"),
    "documents": ("docword", lambda: b"9000000000\n4\n1\n1 1 1\n", "correct lines 1 and 3"),
    "chunks": ("docword in chunks", lambda: b"900000000000\n4\n1\n1 1 1\n", "correct lines 1 and 3"),
    "shards": ("docword in shards", lambda: b"9000000000\n4\n1\n1 1 1\n", "correct lines 1 and 3"),
    "columns": ("svmlight", lambda: b"1 2147483645:1\n-1 1:1\n", "there are 2147483645 columns"),
    "table, cells": (
        "table, json",
        lambda: b"".join(b'{"k%d": 1}\n' % k for k in range(20_000)),
        "have 20,000 different fields",
    ),
    "entries": ("docword", lambda: b"5\n5\n900000000000000\n1 1 1\n", "do not fit in the memory"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="no measure of memory")
@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS)
def test_memory_stays_in_proportion_to_the_file(tmp_path, trap):
    name, data, words = TRAPS[trap]
    megabytes, said = measured(tmp_path, name, data())
    assert words in said
    # What may be unfolded, 13 MiB of the largest of these files, and copies of it where it is one line.
    assert megabytes < 64, (megabytes, said)


def test_limits_of_lines_and_of_what_unfolds(tmp_path, monkeypatch):
    from stradask.datasets import _files

    monkeypatch.setattr(_files, "LONGEST_LINE", 2 * _files.BLOCK)
    path = tmp_path / "file"
    path.write_bytes(DOCWORD + b"1" * (3 * _files.BLOCK))
    with pytest.raises(DataError, match="line 10: longer than 2,097,152 bytes"):
        read_uci_bow(path)
    monkeypatch.setattr(_files, "UNFOLDED", 1000)
    path.write_bytes(gzip.compress(DOCWORD + b"\n" * 900))
    assert read_uci_bow(path).sum() == 28
    path.write_bytes(gzip.compress(DOCWORD + b"\n" * 100_000))
    with pytest.raises(DataError, match="the gzip data unfold to more than"):
        read_uci_bow(path)


def test_a_matrix_that_unfolds_beyond_its_limit_is_refused(tmp_path, monkeypatch):
    from stradask.cli import formats

    monkeypatch.setattr(formats, "_UNFOLDED", 10_000)
    path = tmp_path / "zeros.npz"
    sparse.save_npz(path, sparse.csr_array((np.zeros(10**6), np.zeros(10**6, int), [0, 10**6]), shape=(1, 1)))
    with pytest.raises(DataError, match="it unfolds to 16,"):
        read_npz_matrix(path)
    monkeypatch.undo()
    assert read_npz_matrix(path).nnz == 10**6


SMALL = ["documents", "columns", "table, cells", "idx, false head"]  # traps that are made at once


@pytest.mark.parametrize("trap", SMALL)
def test_sizes_that_a_file_states_are_compared_with_what_it_holds(tmp_path, trap):
    name, data, words = TRAPS[trap]
    (tmp_path / "trap").write_bytes(data())
    assert words in outcome(READERS[name][0], tmp_path / "trap")


@pytest.mark.parametrize(
    "name", ["docword", "docword in chunks", "vocabulary", "svmlight", "ratings", "table"]
)
def test_many_blank_lines_are_refused_and_fewer_are_passed_over(tmp_path, monkeypatch, name):
    monkeypatch.setattr("stradask.datasets._files._BLANK", 1000)
    monkeypatch.setattr("stradask.datasets._files.BLOCK", 1000)
    read, whole = READERS[name]
    (tmp_path / "file").write_bytes(whole + b"\n" * 900)
    assert outcome(read, tmp_path / "file") == "read"
    (tmp_path / "file").write_bytes(gzip.compress(whole + b"\n" * 5000))
    assert "more than 1,000 blank bytes" in outcome(read, tmp_path / "file")


@pytest.mark.parametrize(("shape", "words"), [((10**13, 2), "it is cut off"), ((10**16, 0), "no columns")])
def test_a_npy_file_that_states_another_shape_is_refused(tmp_path, shape, words):
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with pytest.raises(DataError, match=words):
        sd.Ridge().fit(str(path), np.zeros(5))


@pytest.mark.parametrize("shape", [(3 * 10**9, 5), (6, 3 * 10**9)])
def test_a_matrix_with_hardly_an_entry_is_refused(tmp_path, shape):
    sparse.save_npz(tmp_path / "m.npz", sparse.coo_array((np.ones(2), ([0, 5], [0, 3])), shape=shape))
    with pytest.raises(DataError, match="with 2 entries in all"):
        read_npz_matrix(tmp_path / "m.npz")


@pytest.mark.parametrize("read", [str, read_uci_bow])
def test_words_that_no_entry_has_are_not_fitted(tmp_path, read):
    (tmp_path / "docword.txt").write_bytes(b"1\n1000000000\n1\n1 1 1\n")
    X = read(tmp_path / "docword.txt")
    with pytest.raises(DataError, match=r"X has 1,000,000,000 columns, with 1 entries in all"):
        sd.LatentDirichletAllocation(2, max_iter=1).fit(X)


@pytest.mark.parametrize("read", [lambda path: read_targets(f"{path}:a"), lambda path: read_texts(path, "a")])
def test_parquet_of_very_many_equal_cells_does_not_become_text(tmp_path, monkeypatch, read):
    pd = pytest.importorskip("pandas")
    monkeypatch.setattr("stradask.datasets._files._EMPTY", 1000)
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": ["x"] * 2_000_000, "b": "y"}).to_parquet(path)
    with pytest.raises(DataError, match=r"t.parquet holds 2,000,000 (rows|texts) in [0-9,]+ bytes, too many"):
        read(str(path))


@pytest.mark.parametrize("magic", [b"\x28\xb5\x2f\xfd", b"PK\x03\x04"])
def test_archives_that_are_not_read_are_named(tmp_path, magic):
    (tmp_path / "file").write_bytes(magic + bytes(90))
    with pytest.raises(DataError, match=r"(zstd|zip) archive; unpack it, or compress it by gzip"):
        read_svmlight(tmp_path / "file")


def test_a_row_file_of_hardly_an_entry_and_many_columns_is_refused(tmp_path):
    (tmp_path / "x.svm").write_text("1 2147483645:1\n-1 1:1\n")
    with pytest.raises(DataError, match="there are 2147483645 columns, with 2 entries"):
        sd.Ridge().fit(str(tmp_path / "x.svm"), None)


def test_the_encoding_of_a_file_has_the_columns_of_its_model(tmp_path):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"k": ["a", "b"] * 10, "x": range(20)})
    model = sd.Ridge().fit(table[["x"]], table.x)
    path = tmp_path / "t.parquet"
    table.assign(y=table.x).to_parquet(path)
    model = sd.Ridge().fit(ParquetTable(str(path), hashed={"k": 4}), y="y")
    model.table_encoding_["columns"][0]["buckets"] = 2**31 - 1
    model.save(tmp_path / "m.npz")
    with pytest.raises(ModelFileError, match="2147483648 columns, and the model has 5"):
        sd.load(tmp_path / "m.npz").predict(table)
