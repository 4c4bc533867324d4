"""Parquet files and arguments that are refused, by their place."""

import sys
from unittest import mock

import numpy as np
import pytest
from parquet_problems import FRAME, N, pd

import stradask as sd
from stradask.datasets import ParquetTable
from stradask.errors import DataError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def broken(**columns):
    return FRAME[["city", "age", "paid"]].assign(**columns)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (
            broken(age=FRAME.age.where(FRAME.index != 450)),
            r"row group 4: the column 'age' has 1 rows without",
        ),
        (
            broken(city=FRAME.city.where(FRAME.index != 77)),
            r"row group 0: the column 'city' has 1 rows without",
        ),
        (broken(paid=FRAME.paid.where(FRAME.index < 899)), r"row group 8: the column 'paid' has 1 rows"),
        (broken(age=FRAME.age.where(FRAME.index != 450, np.inf)), r"row group 4, row 50 of it: .*infinite"),
        (broken(when=pd.Timestamp("2020-01-01")), r"'when' holds timestamp\[.*: leave it out"),
        (broken(paid=FRAME.city), "y holds the text"),
        (broken(paid=[[1]] * N), r"the column 'paid' holds list<.*; numbers or text are needed"),
    ],
)
def test_bad_values_are_refused_by_file_and_group(store, frame, said):
    url = store(frame, "bad.parquet", row_group_size=100)
    with pytest.raises(DataError, match=said) as caught:
        sd.Ridge().fit(url, y="paid")
    assert said == "y holds the text" or "memory://bucket/bad.parquet" in str(caught.value)


@pytest.mark.parametrize("statistics", [True, False])
def test_nan_is_missing_also_where_footers_do_not_tell(store, statistics):
    table = pyarrow.table({"age": pyarrow.array([1.0, float("nan"), 2.0, 3.0]), "y": [1.0, 2.0, 3.0, 4.0]})
    url = store(table, "a.parquet", row_group_size=1, write_statistics=statistics)
    with pytest.raises(DataError, match="row group 1, row 0 of it: the column 'age' has no value there"):
        sd.Ridge().fit(url, y="y")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"X": "memory://bucket/none-*.parquet"}, "matches no file"),
        ({"X": "memory://bucket/none.parquet"}, "there is no such file"),
        ({"y": None}, "y must be the name of a column"),
        ({"y": np.arange(3.0)}, "y must be the name of a column"),
        ({"y": "Paid"}, "has no column 'Paid' for y; it has"),
        ({"sample_weight": "w"}, "has no column 'w' for sample_weight"),
        ({"columns": ["age", "Age"]}, "has no column 'Age'"),
        ({"columns": ["age", "paid"]}, "the column 'paid' is y and in columns="),
        ({"columns": ["age"], "categories": ["city"]}, "'city' of categories or hashed is not among"),
        ({"categories": ["age"]}, "of categories or hashed holds float64"),
        ({"hashed": {"age": 8}}, "of categories or hashed holds float64"),
        ({"hashed": {"city": 0}}, "a number of buckets, not 0"),
        ({"hashed": {"city": 8}, "categories": ["city"]}, "in categories and in hashed"),
        ({"hashed": ["city"]}, "hashed must be a dict"),
        ({"categories": {"city": []}}, "categories of 'city' must be a list"),
        ({"categories": {"city": "Oslo"}}, "categories of 'city' must be a list"),
        ({"categories": {"zip": [10.0, 11.0]}}, "categories of 'zip' must be a list of texts or whole"),
        ({"columns": "age"}, "columns must be names of columns"),
    ],
)
def test_bad_arguments_are_named(files, arguments, said):
    fitted = {"y": "paid", "sample_weight": None} | {k: v for k, v in arguments.items() if k != "X"}
    y, weight = fitted.pop("y"), fitted.pop("sample_weight")
    with pytest.raises(DataError, match=said):
        sd.Ridge().fit(ParquetTable(arguments.get("X", files), **fitted), y, weight)


def test_files_that_differ_are_refused(store):
    store(FRAME[["age", "paid"]], "part-0.parquet")
    store(FRAME[["paid"]].assign(age="old"), "part-1.parquet")
    with pytest.raises(DataError, match=r"part-1.parquet.: the column .age. holds text, and number in"):
        sd.Ridge().fit("memory://bucket/part-*.parquet", y="paid")


def test_other_files_folders_of_hive_and_no_pyarrow(store, tmp_path):
    (tmp_path / "a.parquet").write_text("1 1:2\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        sd.Ridge().fit(str(tmp_path / "a.parquet"), y="paid")
    store(FRAME[["age", "paid"]], "year=__HIVE_DEFAULT_PARTITION__/a.parquet")
    with pytest.raises(DataError, match="the rows have no value of 'year'"):
        sd.Ridge().fit("memory://bucket/", y="paid")
    with (
        mock.patch.dict(sys.modules, {"pyarrow": None}),
        pytest.raises(DataError, match=r"stradask\[parquet\]"),
    ):
        sd.Ridge().fit(store(FRAME, "b.parquet"), y="paid")


def test_models_that_take_no_files_say_which_do(tmp_path):
    for name, reader in (
        ("people.parquet", "pandas.read_parquet"),
        (tmp_path / "X.npy", "numpy.load"),
        (["a.svm.gz", "b.svm.gz"], "stradask.datasets.read_svmlight"),
        ("s3://bucket/table.csv", "pandas.read_csv"),
    ):
        with pytest.raises(DataError, match=f"X names a file, .*: Ridge, LogisticRegression.* {reader}"):
            sd.RidgeCV().fit(name, FRAME.paid)
    (tmp_path / "X.npy").write_bytes(b"")
    with pytest.raises(DataError, match=r"X.npy: a fit to counts reads files of UCI .* numpy.load"):
        sd.LatentDirichletAllocation().fit(str(tmp_path / "X.npy"))


def test_too_many_values_are_for_hashes(store, monkeypatch):
    from stradask.algorithms.inputs import tables

    monkeypatch.setattr(tables, "LARGEST_VOCABULARY", 2)
    url = store(FRAME[["city", "paid"]], "a.parquet", row_group_size=100)
    with pytest.raises(DataError, match="more than 2 different values, such as 'Köln': give it a number of"):
        sd.Ridge().fit(url, y="paid")
