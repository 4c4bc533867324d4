"""Ratings: the bulk parser against the row parser and a dictionary, layouts, bad lines."""

import gzip
import lzma
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from stradask.datasets import _files, ratings, read_ratings
from stradask.errors import DataError


def write(folder, text, name="toy.csv"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def as_dict(result):
    matrix = sparse.coo_array(result.matrix)
    users, items = result.users[matrix.row].tolist(), result.items[matrix.col].tolist()
    return dict(zip(zip(users, items, strict=True), matrix.data.tolist(), strict=True))


EXPECTED = {(7, 11): 3.5, (7, 12): 1.0, (9, 11): 5.0}


@pytest.mark.parametrize(
    "text",
    [
        "7,11,3.5\n7,12,1.0\n9,11,5.0\n",
        "user,item,rating\n7,11,3.5\n7,12,1\n9,11,5\n",
        "userId,movieId,rating,timestamp\r\n7,11,3.5,100\r\n7,12,1.0,101\r\n9,11,5.0,102\r\n",
        "7::11::3.5::100\n7::12::1::101\n9::11::5::102",
        "7\t11\t3.5\t100\n7\t12\t1.0\t101\n9\t11\t5.0\t102\n",
        "\n\n7;11;3.5\n\n7;12;1.0\n9;11;5.0\n\n",
        '"7","11","3.5"\n 7 , 12 ,1e0\n9,11,+5\n',
        "\ufeffuser,item,rating\n7,11,3.5\n7,12,1.0\n9,11,5.0\n",
    ],
    ids=["csv", "header", "movielens-csv", "colons", "tabs", "blank-lines", "quotes", "byte-order-mark"],
)
@pytest.mark.parametrize("block", [4, 1 << 20])
def test_layouts(tmp_path, text, block):
    with mock.patch.object(_files, "BLOCK", block):
        result = read_ratings(write(tmp_path, text))
    assert as_dict(result) == EXPECTED
    assert isinstance(result.matrix, sparse.csr_matrix)
    assert result.users.dtype == result.items.dtype == np.int64
    assert result.matrix.dtype == np.float64


def test_compressed_and_another_separator(tmp_path):
    data = b"7 11 3.5\n7 12 1\n9 11 5\n"
    for compress in (gzip.compress, lzma.compress, bytes):
        assert as_dict(read_ratings(write(tmp_path, compress(data)), sep=" ")) == EXPECTED


def test_text_ids_and_mixed_columns(tmp_path):
    result = read_ratings(write(tmp_path, 'ann,11,1\n"b, c",12,2\nzoë,11,3\n'))
    assert result.users.tolist() == ["ann", "b, c", "zoë"]
    assert result.items.tolist() == [11, 12]
    np.testing.assert_array_equal(result.matrix.toarray(), [[1, 0], [0, 2], [3, 0]])


def test_ids_with_leading_zeros_are_text_and_stay_apart(tmp_path):
    result = read_ratings(write(tmp_path, "7,1,1\n07,1,2\n007,1,3\n-7,0,4\n"))
    assert result.users.tolist() == ["-7", "007", "07", "7"]
    assert result.items.tolist() == [0, 1]
    result = read_ratings(write(tmp_path, "-7,0,1\n3,1,2\n"))
    assert result.users.tolist() == [-7, 3]


def test_a_text_id_far_into_the_file_makes_the_whole_column_text(tmp_path):
    lines = [f"{i},{i % 7},{i % 5 + 1}\n" for i in range(400)]
    lines.insert(350, "bob,3,2\n")
    with mock.patch.object(_files, "BLOCK", 256):
        result = read_ratings(write(tmp_path, "".join(lines)))
    assert result.users.tolist() == sorted([str(i) for i in range(400)] + ["bob"])
    assert result.items.tolist() == list(range(7))
    assert as_dict(result)["bob", 3] == 2
    assert all(as_dict(result)[str(i), i % 7] == i % 5 + 1 for i in range(400))


def test_a_rating_of_zero_is_stored(tmp_path):
    result = read_ratings(write(tmp_path, "1,1,0\n1,2,4\n"))
    assert result.matrix.nnz == 2
    assert as_dict(result) == {(1, 1): 0.0, (1, 2): 4.0}


def test_pairs_rated_more_than_once(tmp_path):
    path = write(tmp_path, "2,1,4\n1,1,3\n2,1,5\n1,2,2\n2,1,1\n")
    assert as_dict(read_ratings(path)) == {(1, 1): 3, (1, 2): 2, (2, 1): 1}
    assert as_dict(read_ratings(path, duplicates="sum")) == {(1, 1): 3, (1, 2): 2, (2, 1): 10}
    with pytest.raises(
        DataError, match=r"toy\.csv: user 2 rates item 1 twice \(ratings 1 and 3 of the file\)"
    ):
        read_ratings(path, duplicates="error")
    often = "".join(f"{i % 3},{i % 2},{i}\n" for i in range(600))  # enough for an unstable sort to show
    assert as_dict(read_ratings(write(tmp_path, often))) == {(i % 3, i % 2): i for i in range(600)}
    once = write(tmp_path, "2,1,4\n1,1,3\n")
    assert as_dict(read_ratings(once, duplicates="error")) == {(2, 1): 4, (1, 1): 3}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("1,1,4\n1,2,nan\n", 2, "the rating is 'nan'"),
        ("1,1,4\n1,2,-inf\n", 2, "the rating is '-inf'"),
        ("1,1,4\n1,2,1e999\n", 2, "the rating is '1e999'"),
        ("1,1,4\n1,2,good\n", 2, "the rating must be a number, not 'good'"),
        ("1,1,4\n1,2,\n", 2, "the rating must be a number, not ''"),
        ("1,1,4\n\n1,2\n", 3, "2 columns, and the first line has 3"),
        ("1,1,4\n1,2,3,4\n", 2, "4 columns, and the first line has 3"),
        ("1,1,4\n,2,3\n", 2, "the user is empty"),
        ("1,1,4\n1, ,3\n", 2, "the item is empty"),
        ("1,1,nan\n", 1, "the rating is 'nan'"),
        ("1,1,good\n", 1, "the rating must be a number"),
        ("1,2\n", 1, "2 columns with sep=','"),
        (",".join(map(str, range(11))) + "\n", 1, "11 columns; .* this looks like a table: keep these three"),
        ("one two three\n", 1, "give sep="),
        ("user,item,rating\n", 1, "holds no rating"),
        ("\n\n\n", 3, "holds no rating"),
        (b"1,1,4\n1,\xe9,3\n", 2, "not UTF-8"),
        ('1,1,4\n1,"2,3\n1,5,3\n', 2, "not CSV"),
        ('1,1,4\n1,"2\n3",3\n', 2, "not CSV"),
        ("1::1::4\n1::2\n", 2, "2 columns"),
        ("1\t1\t4\n1\t2\tx\n", 2, "the rating must be a number"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, line, words):
    with pytest.raises(DataError, match=rf"toy\.csv, line {line}: .*{words}"):
        read_ratings(write(tmp_path, text))


def test_header_can_be_told(tmp_path):
    path = write(tmp_path, "a,b,c\nd,e,5\n")
    assert as_dict(read_ratings(path)) == {("d", "e"): 5}
    with pytest.raises(DataError, match="line 1: the rating must be a number, not 'c'"):
        read_ratings(path, header=False)
    assert as_dict(read_ratings(write(tmp_path, "1,1,4\n2,2,5\n"), header=True)) == {(2, 2): 5}


@pytest.mark.parametrize(
    "arguments",
    [{"sep": ""}, {"sep": "\n"}, {"header": "no"}, {"duplicates": "first"}, {"dtype": np.int32}],
)
def test_arguments_are_checked(tmp_path, arguments):
    with pytest.raises(DataError, match=f"{next(iter(arguments))}="):
        read_ratings(write(tmp_path, "1,1,4\n"), **arguments)


def test_broken_and_missing_files(tmp_path):
    with pytest.raises(DataError, match="cannot be opened"):
        read_ratings(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="after line"):
        read_ratings(write(tmp_path, gzip.compress(b"1,1,4\n" * 1000)[:-12]))
    with pytest.raises(DataError, match="the file is empty"):
        read_ratings(write(tmp_path, ""))


ids = st.integers(0, 40) | st.integers(0, 10**17)
rating = st.integers(0, 10**6 - 1)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(ids, ids, rating), min_size=1, max_size=40),
    decimals=st.integers(0, 9),
    sep=st.sampled_from([",", "::", "\t", ";"]),
    stamped=st.booleans(),
    block=st.sampled_from([8, 64, 1 << 20]),
)
def test_bulk_and_row_parsers_agree_to_the_last_bit(tmp_path_factory, rows, decimals, sep, stamped, block):
    """Lines fit for the bulk parser give what Python's own float makes of each field."""

    texts = (
        [f"{value % 10**6}.{str(value * 7919).zfill(9)[:decimals]}" for _, _, value in rows]
        if decimals
        else [str(value) for _, _, value in rows]
    )
    lines = [
        sep.join([str(user), str(item), text] + ["978300760"] * stamped)
        for (user, item, _), text in zip(rows, texts, strict=True)
    ]
    path = write(tmp_path_factory.mktemp("ratings"), "\n".join(lines) + "\n")
    expected = {(user, item): float(text) for (user, item, _), text in zip(rows, texts, strict=True)}
    with mock.patch.object(_files, "BLOCK", block):
        with mock.patch.object(ratings, "_parse_rows", side_effect=AssertionError("not in bulk")):
            result = read_ratings(path)
        with mock.patch.object(ratings, "_parse_block", return_value=None):
            by_rows = read_ratings(path)
    assert as_dict(result) == expected
    assert as_dict(by_rows) == expected
    assert result.users.dtype == by_rows.users.dtype == np.int64


field = st.sampled_from(
    [
        "1",
        "2",
        "03",
        "0",
        "x",
        "",
        " 4",
        "-5",
        "3.5",
        ".5",
        "5.",
        "1e2",
        "nan",
        "4.25",
        '"6"',
        "1.2.3",
        "9" * 25,
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(field, min_size=3, max_size=4), min_size=1, max_size=5))
def test_the_bulk_parser_never_gives_another_answer(tmp_path_factory, rows):
    """With the bulk parser or without it: the same ratings, or the same error."""
    path = write(tmp_path_factory.mktemp("ratings"), "1,1,1\n" + "\n".join(map(",".join, rows)) + "\n")

    def outcome():
        try:
            return as_dict(read_ratings(path))
        except DataError as error:
            return str(error)

    with_bulk = outcome()
    with mock.patch.object(ratings, "_parse_block", return_value=None):
        assert outcome() == with_bulk


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("rating,user,item\n5,1,2\n", {}, "must stand in this order"),
        ("userId,rating,movieId\n5,1,2\n", {}, "must stand in this order"),
        ("a,b,1_0\n", {}, "must be a number"),
        ("a,b,1e300\n", {"dtype": np.float32}, "does not fit float32"),
    ],
)
def test_what_would_be_read_as_something_else_is_refused(tmp_path, text, options, message):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_ratings(path, **options)


@pytest.mark.parametrize(
    "text", ["7::11::3.5::100\n9::11::5.0::1020000007\n", '"7",11,3.5,100\n9,11,5,1020000007\n']
)
def test_time_stamps_are_values_as_well(tmp_path, text):
    path = write(tmp_path, text)
    assert as_dict(read_ratings(path, value_column=4)) == {(7, 11): 100, (9, 11): 1020000007}
    with pytest.raises(DataError, match="4 columns, and value_column=5"):
        read_ratings(path, value_column=5)
    with pytest.raises(DataError, match="give a whole number from 3"):
        read_ratings(path, value_column=2)
