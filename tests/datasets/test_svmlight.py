"""svmlight: scikit-learn's reader behind our checks, held against its writer and its own verdicts."""

import bz2
import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from stradask.datasets import read_svmlight
from stradask.datasets.row_files import line_parts
from stradask.errors import DataError


def write(folder, text, name="toy.svm"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("compress", [None, gzip.compress, bz2.compress], ids=["plain", "gzip", "bzip2"])
def test_reads_what_scikit_learn_writes(tmp_path, zero_based, compress):
    dense = sparse.random_array((50, 20), density=0.2, rng=np.random.default_rng(0)).toarray().round(6)
    dense[0, 0] = 1.0  # so that the index 0 occurs
    X = sparse.csr_matrix(dense)
    y = np.arange(50) % 3 - 1.0
    path = tmp_path / "toy.svm"
    dump_svmlight_file(X, y, str(path), zero_based=zero_based, comment="a comment")
    if compress:
        path.write_bytes(compress(path.read_bytes()))
    read, labels = read_svmlight(path, n_features=20)
    np.testing.assert_array_equal(read.toarray(), X.toarray())
    np.testing.assert_array_equal(labels, y)
    assert read_svmlight(path, n_features=25, dtype=np.float32)[0].dtype == np.float32


def test_several_labels_and_query_ids(tmp_path):
    X, y = read_svmlight(write(tmp_path, "1,2 1:3\n1:4\n0 qid:7 2:1\n"), multilabel=True)
    assert y == [(1.0, 2.0), (), (0.0,)]
    np.testing.assert_array_equal(X.toarray(), [[3, 0], [4, 0], [0, 1]])


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("1 1:2\none 1:2\n", 2, "the label must be a number, not 'one'"),
        ("1 1:2\n# comment\n\n1 1:2:3\n", 4, "the value of index 1 must be a number, not '2:3'"),
        ("1 1:2\n1 x:2\n", 2, "'x:2' is not of the form index:value"),
        ("1 1:2\n1 2\n", 2, "'2' is not of the form index:value"),
        ("1 1:2\n1 -1:2\n", 2, "index -1 is out of range"),
        ("1 1:2\n1 3:2 2:1\n", 2, "index 2 after index 3"),
        ("1 1:2\n1 3:2 3:1\n", 2, "index 3 after index 3"),
        ("1 1:2\n1 3:nan\n", 2, "the value of index 3 is 'nan'"),
        ("1 1:2\n-inf 3:1\n", 2, "the label is '-inf'"),
        ("1 1:2\n1 1:1e999\n", 2, "'1e999'"),
        ("1 1:2\n1 99999999999999999999:1\n", 2, "index 99999999999999999999 is out of range"),
        ("1,2 1:2\n", 1, "the label must be a number, not '1,2'"),
        ("# only\n\n# comments\n", 3, "holds no sample"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, line, words):
    with pytest.raises(DataError, match=rf"toy\.svm, line {line}: .*{words}"):
        read_svmlight(write(tmp_path, text))


def test_indices_are_held_against_the_arguments(tmp_path):
    path = write(tmp_path, "1 1:2\n1 4:1\n1 5:1\n")
    assert read_svmlight(path, n_features=5)[0].shape == (3, 5)
    with pytest.raises(DataError, match=r"line 3: index 5 is beyond n_features=4"):
        read_svmlight(path, n_features=4)
    with pytest.raises(DataError, match=r"line 3: index 5 is beyond n_features=5"):
        read_svmlight(path, n_features=5, zero_based=True)
    path = write(tmp_path, "1 1:2\n1 0:1 2:1\n")
    assert read_svmlight(path)[0].shape == (2, 3)
    with pytest.raises(DataError, match=r"line 2: index 0, and zero_based=False"):
        read_svmlight(path, zero_based=False)


def test_values_too_large_for_float32(tmp_path):
    path = write(tmp_path, "1 1:1e300\n")
    assert read_svmlight(path)[0][0, 0] == 1e300
    with pytest.raises(DataError, match="not finite as float32"):
        read_svmlight(path, dtype=np.float32)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_features": 0},
        {"n_features": 2.5},
        {"dtype": np.int32},
        {"multilabel": "yes"},
        {"zero_based": "maybe"},
    ],
)
def test_arguments_are_checked(tmp_path, arguments):
    with pytest.raises(DataError, match=f"{next(iter(arguments))}="):
        read_svmlight(write(tmp_path, "1 1:2\n"), **arguments)


def test_cut_off_and_missing_files(tmp_path):
    data = gzip.compress(b"1 1:2 2:3\n" * 1000)
    with pytest.raises(DataError, match=r"toy\.svm\.gz, after line \d+"):
        read_svmlight(write(tmp_path, data[:-12], "toy.svm.gz"))
    with pytest.raises(DataError, match="cannot be opened"):
        read_svmlight(tmp_path / "absent.svm")


token = st.sampled_from(
    [
        "1",
        "-1",
        "1:2",
        "2:0.5",
        "3:1e-3",
        "0:1",
        "5:nan",
        "x",
        ":",
        "1:",
        ":1",
        "#",
        "qid:3",
        "-2:1",
        "2:3:4",
        ",",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(token, max_size=5), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from([True, False, "auto"]),
)
def test_refuses_what_scikit_learn_refuses_and_what_is_not_finite(
    tmp_path_factory, tokens, multilabel, zero_based
):
    path = write(tmp_path_factory.mktemp("svm"), "\n".join(map(" ".join, tokens)) + "\n")
    arguments = {"multilabel": multilabel, "zero_based": zero_based}
    try:
        X, y = load_svmlight_file(str(path), **arguments)
        sound = X.shape[0] > 0 and np.isfinite(X.data).all()
    except ValueError:
        sound = False
    if sound:
        read, labels = read_svmlight(path, **arguments)
        assert (read != X).nnz == 0
        assert list(labels) == list(y)
    else:
        with pytest.raises(DataError, match=r"toy\.svm, line \d+: "):
            read_svmlight(path, **arguments)


def test_an_index_that_the_reader_cannot_take_is_named_with_its_line(tmp_path):
    path = tmp_path / "x.svm"
    path.write_text("1 3:1\n1 99999999999:1\n")
    with pytest.raises(DataError, match=r"line 2.*99999999999"):
        read_svmlight(path)


@pytest.mark.parametrize("line", ["1 1:1_0", "1_0 1:1", "1 1_0:1"])
def test_numbers_with_underscores_are_none(tmp_path, line):
    path = tmp_path / "x.svm"
    path.write_text(f"1 1:2 # a_comment\n{line}\n")
    with pytest.raises(DataError, match=r"line 2: .* holds an underscore"):
        read_svmlight(path)
    with pytest.raises(DataError, match=r"the line at byte 18: .*_"):
        line_parts([str(path)])[0].read()
    path.write_text("1 1:2 # a_comment\n")
    assert read_svmlight(path)[0].nnz == line_parts([str(path)])[0].read()[0].nnz == 1
