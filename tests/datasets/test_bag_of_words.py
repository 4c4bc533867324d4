"""UCI bag of words: against a strict parser written apart, bad files of every kind, writing."""

import bz2
import gzip
import lzma
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from stradask.datasets import _files, bag_of_words, read_uci_bow, save_uci_bow
from stradask.errors import DataError

TOY = "2\n3\n3\n1 1 2\n1 3 1\n2 2 5\n"
TOY_COUNTS = [[2, 0, 1], [0, 5, 0]]


def write(folder, text, name="docword.toy.txt"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def strict(text):
    """Read the format slowly: (dense counts, None), or (None, number of the first bad line)."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    header = []
    for i in range(3):
        if i >= len(lines) or not lines[i].strip().isdigit():
            return None, i + 1
        header.append(int(lines[i]))
    n_documents, n_words, n_entries = header
    counts, seen = np.zeros((n_documents, n_words), np.int64), 0
    for number, line in enumerate(lines[3:], start=4):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 3 or not all(field.isdigit() for field in fields):
            return None, number
        document, word, count = map(int, fields)
        if not (1 <= document <= n_documents and 1 <= word <= n_words and 1 <= count < 2**31):
            return None, number
        if seen == n_entries:
            return None, number
        counts[document - 1, word - 1] += count
        seen += 1
    return (counts, None) if seen == n_entries else (None, len(lines))


good_line = st.builds(
    "{}{sep}{}{sep}{}".format,
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 300),
    sep=st.sampled_from([" ", " ", "\t", "  "]),
)
odd_line = st.sampled_from(
    ["", "  ", "1 1", "1 1 1 1", "0 1 1", "1 0 1", "1 1 0", "5 1 1", "1 6 1", "1 1 2.5", "1 1 -2", "+1 1 1"]
) | st.sampled_from(
    ["a b c", "1 1 99999999999", "1 1 1 ", " 1 1 1", "1  1 \n1 2 3", "1 1 1e3", "1 1 " + "9" * 4000]
)


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.one_of(good_line, good_line, good_line, odd_line), max_size=25),
    surplus=st.sampled_from([0, 0, 0, 1, -1]),
    block=st.sampled_from([3, 16, 64, 1 << 20]),
    ending=st.sampled_from(["\n", "\r\n"]),
    closed=st.booleans(),
)
def test_reads_as_the_strict_parser_and_names_the_same_line(
    tmp_path_factory, lines, surplus, block, ending, closed
):
    body = "\n".join(lines)
    n_entries = max(0, sum(bool(line.strip()) for line in body.split("\n")) + surplus)
    text = f"4\n5\n{n_entries}\n{body}" + ("\n" if closed else "")
    path = write(tmp_path_factory.mktemp("bow"), text.replace("\n", ending))
    expected, bad_line = strict(text)
    with mock.patch.object(_files, "BLOCK", block):
        if bad_line is None:
            X = read_uci_bow(path)
            np.testing.assert_array_equal(X.toarray(), expected)
            assert X.has_canonical_format
            assert X.dtype == np.int32
        else:
            with pytest.raises(DataError, match=rf"docword\.toy\.txt, line {bad_line}: "):
                read_uci_bow(path)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("x\n3\n3\n1 1 2\n", 1, "number of documents"),
        ("2\n-3\n3\n1 1 2\n", 2, "number of words.*'-3'"),
        ("2\n3\n1.5\n1 1 2\n", 3, "number of entries.*'1.5'"),
        ("2 3 3\n1 1 2\n1 1 2\n", 1, "stand here alone"),
        ("2\n3\n", 3, "the file ends where the number of entries"),
        ("2\n", 2, "the file ends where the number of words"),
        ("2\n3\n1\n0 1 2\n", 4, "document 0"),
        ("2\n3\n1\n1 0 2\n", 4, "word 0"),
        ("2\n3\n1\n1 1 0\n", 4, "count 0"),
        ("2\n3\n2\n1 1 2\n3 1 2\n", 5, "document '3' is beyond the 2 that line 1 states"),
        ("2\n3\n1\n1 4 2\n", 4, "word '4' is beyond the 3 that line 2 states"),
        ("2\n3\n1\n1 1 -2\n", 4, "the count must be a whole number from 1 on, not '-2'"),
        ("2\n3\n1\n1 1 2.0\n", 4, "the count must be a whole number"),
        ("2\n3\n1\n1 one 2\n", 4, "the word must be a whole number.*'one'"),
        ("2\n3\n1\n1 1\n", 4, "2 columns"),
        ("2\n3\n1\n1 1 1 1\n", 4, "4 columns"),
        ("2\n3\n1\n1 1 2\n\n1 2 2\n", 6, "an entry more than the 1 that line 3 states"),
        ("2\n3\n3\n1 1 2\n1 2 2\n", 5, "the file ends after 2 entries and line 3 states 3"),
        ("2\n3\n1\n1 1 3000000000\n", 4, "does not fit dtype, which holds up to 2147483647"),
        ("2\n3\n99999999999999999\n1 1 1\n", 3, "do not fit in the memory"),
        (b"2\n3\n1\n1 \xff 1\n", 4, "xff"),
        ("2\n3\n1\n1 1 " + "9" * 5000, 4, "does not fit dtype"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path, text, line, words):
    path = write(tmp_path, text)
    with pytest.raises(DataError, match=rf"docword\.toy\.txt, line {line}: .*{words}"):
        read_uci_bow(path)


def test_the_toy_file(tmp_path):
    X = read_uci_bow(write(tmp_path, TOY))
    assert isinstance(X, sparse.csr_matrix)
    np.testing.assert_array_equal(X.toarray(), TOY_COUNTS)
    np.testing.assert_array_equal(read_uci_bow(write(tmp_path, "\ufeff" + TOY)).toarray(), TOY_COUNTS)


def test_an_empty_corpus_and_empty_documents(tmp_path):
    assert read_uci_bow(write(tmp_path, "0\n0\n0\n")).shape == (0, 0)
    X = read_uci_bow(write(tmp_path, "5\n4\n1\n3 2 7\n"))
    assert X.shape == (5, 4)
    assert X.getnnz(axis=1).tolist() == [0, 0, 1, 0, 0]


def test_duplicates_are_added_up_and_may_not_wrap_around(tmp_path):
    path = write(tmp_path, "2\n2\n4\n2 1 3\n1 2 4\n2 1 5\n2 2 1\n")
    np.testing.assert_array_equal(read_uci_bow(path).toarray(), [[0, 4], [8, 1]])
    path = write(tmp_path, "2\n2\n2\n2 1 2147483647\n2 1 1\n")
    with pytest.raises(DataError, match=r"document 2 .* add up to 2147483648.*wider dtype"):
        read_uci_bow(path)
    assert read_uci_bow(path, dtype=np.int64)[1, 0] == 2**31


def test_dtype(tmp_path):
    path = write(tmp_path, "1\n1\n1\n1 1 300\n")
    assert read_uci_bow(path, dtype=np.float32).dtype == np.float32
    with pytest.raises(DataError, match="line 4: count '300' does not fit dtype, which holds up to 255"):
        read_uci_bow(path, dtype=np.uint8)
    with pytest.raises(DataError, match=r"line 4: .*16777216"):  # beyond it float32 skips whole numbers
        read_uci_bow(write(tmp_path, "1\n1\n1\n1 1 16777217\n"), dtype=np.float32)
    for dtype in (np.int64, np.uint64):
        with pytest.raises(DataError, match=r"line 4: count '99999999999999999999' does not fit"):
            read_uci_bow(write(tmp_path, f"1\n1\n1\n1 1 {'9' * 20}\n"), dtype=dtype)
        assert read_uci_bow(write(tmp_path, f"1\n1\n1\n1 1 {2**63 - 2}\n"), dtype=dtype).max() == 2**63 - 2
    path = write(tmp_path, "1\n1\n1\n1 1 300\n")
    for dtype in (bool, complex, str, np.float16):
        with pytest.raises(DataError, match="dtype="):
            read_uci_bow(path, dtype=dtype)


def test_more_words_than_32_bits_count(tmp_path):
    path = write(tmp_path, "2\n3000000000\n2\n1 3000000000 1\n2 5 2\n")
    X = read_uci_bow(path)
    assert X.shape == (2, 3_000_000_000)
    assert X.indices.dtype == np.int64
    assert X.indices.tolist() == [2_999_999_999, 4]


def test_n_features(tmp_path):
    path = write(tmp_path, TOY)
    assert read_uci_bow(path, n_features=7).shape == (2, 7)
    for n_features in (2, -1, 3.5, "3"):
        with pytest.raises(DataError, match="n_features="):
            read_uci_bow(path, n_features=n_features)


@pytest.mark.parametrize(
    ("opener", "suffix"), [(gzip, ".gz"), (lzma, ".xz"), (bz2, ".bz2")], ids=["gzip", "xz", "bzip2"]
)
def test_compressed_files(tmp_path, opener, suffix):
    text = "2000\n50\n2000\n" + "".join(f"{i} {i % 50 + 1} {i * i % 977 + 1}\n" for i in range(1, 2001))
    data = opener.compress(text.encode())
    plain = read_uci_bow(write(tmp_path, text))
    for name in ("docword.toy.txt" + suffix, "misnamed.txt"):
        assert (read_uci_bow(write(tmp_path, data, name)) != plain).nnz == 0
    with pytest.raises(DataError, match=r"cut\.txt.*, after line \d+: .* broken or cut off"):
        read_uci_bow(write(tmp_path, data[: len(data) // 2], "cut.txt" + suffix))
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0xFF
    with pytest.raises(DataError, match=r"damaged\.txt"):
        read_uci_bow(write(tmp_path, bytes(damaged), "damaged.txt" + suffix))
    with pytest.raises(
        DataError, match=r"false\.txt.*: not a (gzip|xz|bzip2) file.*take \.\w+ from its name"
    ):
        read_uci_bow(write(tmp_path, text, "false.txt" + suffix))


def test_a_broken_stream_says_how_far_it_came(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"1 {word} {count}\n" for word, count in rng.integers(1, 10**6, (60_000, 2))]
    data = gzip.compress(("1\n1000000\n60000\n" + "".join(lines)).encode())
    with mock.patch.object(_files, "BLOCK", 1 << 14), pytest.raises(DataError) as raised:
        read_uci_bow(write(tmp_path, data[: len(data) * 3 // 4], "docword.txt.gz"))
    line = int(str(raised.value).partition("after line ")[2].partition(":")[0])
    assert 40_000 < line < 50_000


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(DataError, match=r"absent\.txt: cannot be opened \(No such file"):
        read_uci_bow(tmp_path / "absent.txt")
    with pytest.raises(DataError, match="cannot be opened"):
        read_uci_bow(tmp_path)
    with pytest.raises(DataError, match=r"docword\.toy\.txt: the file is empty"):
        read_uci_bow(write(tmp_path, ""))


def test_vocabulary(tmp_path):
    path = write(tmp_path, TOY)
    X, words = read_uci_bow(path, write(tmp_path, "ant\r\nnew york\r\nnaïve\r\n\r\n", "vocab.toy.txt"))
    assert words == ["ant", "new york", "naïve"]
    assert X.shape == (2, 3)
    for text, message in [
        ("ant\nbee\n", r"vocab\.toy\.txt, line 2: there are 2 words and .*docword.* states 3"),
        ("ant\nbee\ncow\ndog\nelk\n", r"vocab\.toy\.txt, line 4: there are 5 words"),
        ("ant\n\ncow\n", r"vocab\.toy\.txt, line 2: an empty line"),
        (b"ant\nb\xe9\ncow\n", r"vocab\.toy\.txt, line 2: .* is not UTF-8"),
    ]:
        with pytest.raises(DataError, match=message):
            read_uci_bow(path, write(tmp_path, text, "vocab.toy.txt"))


def test_progress_bar_shows_the_file_and_its_bytes(tmp_path, capsys):
    path = write(tmp_path, TOY)
    read_uci_bow(path)
    assert capsys.readouterr().err == ""
    read_uci_bow(path, verbose=1)
    shown = capsys.readouterr().err
    assert "docword.toy.txt: 100%" in shown
    assert f"{len(TOY)}.0/{len(TOY)}.0" in shown


# ---- writing ----

counts = st.integers(0, 3).flatmap(lambda x: st.just(0) if x else st.integers(1, 2**31 - 1))


@settings(max_examples=60, deadline=None)
@given(
    dense=st.integers(0, 5).flatmap(
        lambda width: st.lists(st.lists(counts, min_size=width, max_size=width), min_size=1, max_size=6)
    ),
    suffix=st.sampled_from(["", ".gz", ".xz", ".bz2"]),
    kind=st.sampled_from([sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, np.array]),
    dtype=st.sampled_from([np.int32, np.int64, np.float64]),
    chunk=st.sampled_from([1, 3, 200_000]),
)
def test_what_is_written_is_read_back(tmp_path_factory, dense, suffix, kind, dtype, chunk):
    folder = tmp_path_factory.mktemp("bow")
    X = kind(np.array(dense, dtype))
    words = [f"wörd {i}" for i in range(X.shape[1])]
    path = folder / f"docword.toy.txt{suffix}"
    with mock.patch.object(bag_of_words, "_WRITE_ENTRIES", chunk):
        save_uci_bow(X, path, words)
    back, read_words = read_uci_bow(path, folder / "vocab.toy.txt")
    np.testing.assert_array_equal(back.toarray(), dense)
    assert read_words == words
    assert sorted(p.name for p in folder.iterdir()) == [path.name, "vocab.toy.txt"]


def test_the_written_text(tmp_path):
    path = tmp_path / "docword.toy.txt"
    save_uci_bow(sparse.csr_array(TOY_COUNTS), path)
    assert path.read_text() == TOY


def test_compressed_output_does_not_depend_on_the_clock(tmp_path):
    clock = SimpleNamespace(time=lambda: 1e9)  # of gzip alone: a cluster in this process needs the right one
    with mock.patch("gzip.time", clock):
        save_uci_bow(sparse.csr_array(TOY_COUNTS), tmp_path / "a.gz")
    save_uci_bow(sparse.csr_array(TOY_COUNTS), tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_stored_zeros_and_duplicates_are_written_as_what_they_mean(tmp_path):
    X = sparse.csr_matrix(([2, 0, 3], [1, 0, 1], [0, 3]), shape=(1, 2))
    save_uci_bow(X, tmp_path / "docword.txt")
    assert (tmp_path / "docword.txt").read_text() == "1\n2\n1\n1 2 5\n"
    assert X.nnz == 3  # the matrix given is left as it was


@pytest.mark.parametrize(
    "value",
    [-1.0, 0.5, np.nan, np.inf, -np.inf, 2.0**63],
    ids=["negative", "half", "nan", "inf", "-inf", "huge"],
)
def test_what_is_no_count_is_not_written(tmp_path, value):
    X = sparse.csr_matrix(np.array([[1.0, 0.0, 0.0], [0.0, 2.0, value]]))
    with pytest.raises(DataError, match=r"X\[1, 2\] is"):
        save_uci_bow(X, tmp_path / "docword.txt")
    assert list(tmp_path.iterdir()) == []


def test_arguments_of_writing_are_checked(tmp_path):
    X = sparse.csr_matrix(TOY_COUNTS)
    path = tmp_path / "docword.txt"
    for vocabulary, message in [
        (["ant", "bee"], "vocabulary has 2 words and X 3 columns"),
        (["ant", "bee", ""], r"vocabulary\[2\] is ''"),
        (["ant", "bee\n", "cow"], r"vocabulary\[1\]"),
        (["ant", 5, "cow"], r"vocabulary\[1\] is 5"),
    ]:
        with pytest.raises(DataError, match=message):
            save_uci_bow(X, path, vocabulary)
    with pytest.raises(DataError, match=r"vocabulary_path=.* needs vocabulary"):
        save_uci_bow(X, path, vocabulary_path=tmp_path / "words")
    with pytest.raises(DataError, match="vocabulary_path is needed: 'docword' is not part"):
        save_uci_bow(X, tmp_path / "counts.txt", ["ant", "bee", "cow"])
    with pytest.raises(DataError, match="1 dimensions"):
        save_uci_bow(np.ones(3), path)
    with pytest.raises(DataError, match=r"cannot be written .*No such file"):
        save_uci_bow(X, tmp_path / "absent" / "docword.txt")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, suffix):
    path = Path(tmp_path / f"docword.txt{suffix}")
    save_uci_bow(sparse.csr_matrix(TOY_COUNTS), path)
    before = path.read_bytes()
    with (
        mock.patch.object(bag_of_words, "_format_entries", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        save_uci_bow(sparse.csr_matrix([[1]]), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
