"""Parquet files in memory."""

import itertools

import fsspec
import pytest


@pytest.fixture
def store():
    """Return a function that writes a frame as a Parquet file into a bucket in memory."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    system = fsspec.filesystem("memory")
    system.store.clear()

    def put(frame, name, **options):
        sink = pyarrow.BufferOutputStream()
        table = frame if isinstance(frame, pyarrow.Table) else pyarrow.Table.from_pandas(frame)
        parquet.write_table(table, sink, **options)
        system.pipe_file(f"/bucket/{name}", sink.getvalue().to_pybytes())
        return f"memory://bucket/{name}"

    yield put
    system.store.clear()


@pytest.fixture
def files(store):
    """A pattern that names three files, of several groups of rows."""
    from parquet_problems import CUTS, FRAME

    for k, (a, b) in enumerate(itertools.pairwise(CUTS)):
        store(FRAME[a:b].reset_index(drop=True), f"part-{k}.parquet", row_group_size=200)
    return "memory://bucket/part-*.parquet"
