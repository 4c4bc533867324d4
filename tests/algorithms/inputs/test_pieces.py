"""Pieces hold every row once, lazy blocks are checked where they are read, and hashes see changes."""

import numpy as np
import pytest
from scipy import sparse

from stradask.algorithms.inputs.pieces import (
    check_same,
    checksum,
    computed,
    cut_at_chunks,
    cut_evenly,
    delayed_blocks,
    is_array,
    is_dask,
    is_frame,
    is_lazy,
    located,
    partition,
    read_block,
)
from stradask.errors import DataError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

X = np.arange(35.0).reshape(7, 5)


@pytest.mark.parametrize("n_pieces", [1, 2, 3, 7])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_equal_pieces_hold_every_row_once(form, n_pieces):
    spans = cut_evenly(form(X), n_pieces)
    assert [span.number for span in spans] == list(range(n_pieces))
    assert [span.first for span in spans[1:]] == [span.last for span in spans[:-1]]
    sizes = [span.last - span.first for span in spans]
    assert sum(sizes) == 7
    assert max(sizes) - min(sizes) <= 1
    for span in spans:
        block = span.block.toarray() if sparse.issparse(span.block) else span.block
        np.testing.assert_array_equal(block, X[span.first : span.last])


@pytest.mark.parametrize("axis", [0, 1])
def test_chunks_are_whole_along_the_other_axis_and_empty_ones_are_left_out(axis):
    chunks = [(3, 4), (2, 3)]
    chunks[axis] = (2, 0, X.shape[axis] - 2)
    spans = cut_at_chunks(da.from_array(X, chunks=tuple(chunks)), axis)
    assert [span[:3] for span in spans] == [(0, 0, 2), (2, 2, X.shape[axis])]
    np.testing.assert_array_equal(np.concatenate([computed(span.block) for span in spans], axis), X)


def test_delayed_blocks_of_arrays_vectors_and_bags():
    rows = da.from_array(X, chunks=(3, 5))
    np.testing.assert_array_equal(np.concatenate(dask.compute(*delayed_blocks(rows, "X"))), X)
    vector = da.from_array(X[:, 0], chunks=3)
    np.testing.assert_array_equal(np.concatenate(dask.compute(*delayed_blocks(vector, "y"))), X[:, 0])
    bag = pytest.importorskip("dask.bag").from_sequence(range(4), npartitions=2)
    assert dask.compute(*delayed_blocks(bag, "X")) == ([0, 1], [2, 3])
    with pytest.raises(
        DataError, match=r"^data has the chunks .* rows are to stay whole; call data\.rechunk"
    ):
        delayed_blocks(da.from_array(X, chunks=(3, 2)), "data")


def test_kinds_of_lazy_input():
    frame = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    array, delayed = da.from_array(X), dask.delayed(X)
    table = frame.from_pandas(pandas.DataFrame(X), npartitions=2)
    assert [is_array(v) for v in (array, delayed, table, X)] == [True, False, False, False]
    assert [is_frame(v) for v in (array, delayed, table, X)] == [False, False, True, False]
    assert [is_dask(v) and is_lazy(v) for v in (array, delayed, table, X)] == [True, True, True, False]
    assert computed(X) is X


def test_a_wrong_block_is_refused_with_its_place():
    np.testing.assert_array_equal(read_block(da.from_array(X), (7, 5)), X)
    np.testing.assert_array_equal(read_block(dask.delayed(X)), X)
    wanted = r"^in partition 3 of X, which begins at row 21: it has the shape \(7, 5\), but X says \(7, 6\)"
    with pytest.raises(DataError, match=wanted), located(partition(3, 21, "X")):
        read_block(dask.delayed(X), (7, 6))
    wanted = r"^in partition 0, which begins at row 0: a block of X is a list: "
    with pytest.raises(DataError, match=wanted), located(partition(0, 0)):
        read_block(dask.delayed(X.tolist()))


def test_hashes_see_values_shapes_types_and_places():
    variants = [
        X,
        X.T,
        X.astype(np.float32),
        X.reshape(5, 7),
        X + np.eye(7, 5),
        sparse.csr_array(X),
        {"X": X, "y": X[:, 0]},
        {"X": X[:, 0], "y": X},
        [X, X[:, 0].astype(object)],
    ]
    assert len({checksum(variant) for variant in variants}) == len(variants)
    assert checksum(sparse.csc_array(X)) == checksum(sparse.csr_array(X))
    check_same(checksum(X), checksum(X.copy()), "shard 0 has changed")
    with pytest.raises(DataError, match=r"^shard 0 has changed: leave files as they are"):
        check_same(checksum(X), checksum(X + 1), "shard 0 has changed")
