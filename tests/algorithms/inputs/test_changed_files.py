"""Parquet files that change, differ, or hold nothing: what a fit makes of them, and what it refuses."""

import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.inputs import tables
from stradask.datasets import ParquetTable
from stradask.datasets.parquet import parts_of, read_footer, read_part
from stradask.errors import DataError

pd = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
RNG = np.random.default_rng(0)
N = 300
FRAME = pd.DataFrame({"city": np.repeat(["Oslo", "Rome", "Bern"], N // 3), "age": RNG.normal(size=N)})
FRAME["y"] = FRAME.age + (FRAME.city == "Rome") + 0.1 * RNG.normal(size=N)


@pytest.fixture
def folder(tmp_path):
    """A folder of three files, of which each holds one city."""
    for k in range(3):
        FRAME[k * 100 : (k + 1) * 100].to_parquet(tmp_path / f"{k}.parquet", row_group_size=40)
    return tmp_path


def expected():
    X = np.column_stack([*((FRAME.city == city) for city in ("Bern", "Oslo", "Rome")), FRAME.age])
    return sd.Ridge(tol=1e-10).fit(X.astype(float), FRAME.y).coef_


def test_a_file_that_was_replaced_by_one_of_the_same_size_is_refused(folder):
    path = folder / "0.parquet"
    (part,) = parts_of([read_footer(str(path))], 3)
    assert read_part(part, ["age"]).num_rows == 100
    other = FRAME[:100].assign(age=-FRAME.age[:100])
    size = path.stat().st_size
    other.to_parquet(path, row_group_size=40)
    assert path.stat().st_size == size
    with pytest.raises(DataError, match=r"0.parquet.* has changed since the fit began"):
        read_part(part, ["age"])
    with open(path, "r+b") as file:
        file.truncate(size // 2)
    with pytest.raises(DataError, match=r"0.parquet.*cannot be read as Parquet"):
        read_part(part, ["age"])
    path.unlink()
    with pytest.raises(DataError, match=r"0.parquet.*no such file"):
        read_part(part, ["age"])


def test_cut_bytes_within_a_file_are_refused_by_its_name(folder):
    path = folder / "1.parquet"
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"1.parquet.*cannot be read as Parquet"):
        sd.Ridge().fit(str(folder), "y")


def test_columns_in_another_order_unseen_categories_and_empty_groups_do_not_matter(folder):
    FRAME[100:200][["y", "age", "city"]].to_parquet(folder / "1.parquet", row_group_size=30)
    schema = pyarrow.Schema.from_pandas(FRAME, preserve_index=False)
    with parquet.ParquetWriter(folder / "1a.parquet", schema) as writer:
        writer.write_table(schema.empty_table())
    with parquet.ParquetWriter(folder / "2.parquet", schema) as writer:
        writer.write_table(schema.empty_table())
        writer.write_table(pyarrow.Table.from_pandas(FRAME[200:], preserve_index=False))
    model = sd.Ridge(tol=1e-10).fit(str(folder), "y")
    assert model.vocabulary_.tolist() == ["city=Bern", "city=Oslo", "city=Rome", "age"]
    np.testing.assert_allclose(np.sort(model.coef_), np.sort(expected()), atol=1e-8)


def test_a_file_without_the_target_is_named(folder):
    FRAME[100:200][["city", "age"]].to_parquet(folder / "1.parquet")
    with pytest.raises(DataError, match=r"1.parquet' has no column 'y'"):
        sd.Ridge().fit(str(folder), "y")


def test_given_categories_are_looked_for_until_all_were_found(folder, monkeypatch):
    seen, held_of = [], tables._held_of

    def counted(part, given):
        seen.append(part.path)
        return held_of(part, given)

    monkeypatch.setattr(tables, "_held_of", counted)
    fit = sd.Ridge(tol=1e-10).fit
    assert fit(ParquetTable(str(folder), categories={"city": ["Oslo"]}), "y").coef_.shape == (2,)
    assert len(seen) == 1
    seen.clear()
    np.testing.assert_allclose(
        np.sort(fit(ParquetTable(str(folder), categories={"city": ["Rome", "Oslo", "Bern"]}), "y").coef_),
        np.sort(expected()),
        atol=1e-8,
    )
    assert len(seen) == 3
    with pytest.warns(UserWarning, match="no row has 'Paris'; 200 rows have other values"):
        fit(ParquetTable(str(folder), categories={"city": ["Oslo", "Paris"]}), "y")
