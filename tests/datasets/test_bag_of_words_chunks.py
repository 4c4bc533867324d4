"""Word counts read some documents at a time: the same as the whole file."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import stradask as sd
from stradask.datasets import _files, iter_uci_bow, read_uci_bow, save_uci_bow
from stradask.errors import DataError


def _written(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 8), st.integers(1, 40), st.integers(10, 200)
)
def test_chunks_put_together_are_the_file(tmp_path_factory, seed, n_documents, n_words, chunk_size, block):
    rng = np.random.default_rng(seed)
    X = sparse.csr_matrix(rng.poisson(rng.uniform(0, 1.5), (n_documents, n_words)))
    path = tmp_path_factory.mktemp("bow") / "docword.txt"
    save_uci_bow(X, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_files, "BLOCK", block)
        chunks = list(iter_uci_bow(path, chunk_size))
    assert [chunk.shape[0] for chunk in chunks[:-1]] == [chunk_size] * (len(chunks) - 1)
    assert sum(chunk.shape[0] for chunk in chunks) == n_documents
    assert (sparse.vstack(chunks) != X).nnz == 0
    assert all(chunk.has_canonical_format and chunk.dtype == np.int32 for chunk in chunks)


def test_entries_that_come_twice_are_added_up(tmp_path):
    path = _written(tmp_path / "docword.txt", 3, 2, 5, "1 2 1", "1 1 4", "1 2 6", "3 1 1", "3 1 1")
    chunks = list(iter_uci_bow(path, 2))
    assert [chunk.toarray().tolist() for chunk in chunks] == [[[4, 7], [0, 0]], [[2, 0]]]
    assert (sparse.vstack(chunks) != read_uci_bow(path)).nnz == 0


def test_gzip_dtype_and_more_columns(tmp_path):
    path = tmp_path / "docword.txt.gz"
    path.write_bytes(gzip.compress(b"2\n2\n2\n1 1 3\n2 2 4\n"))
    (chunk,) = iter_uci_bow(path, 10, n_features=3, dtype=np.float32)
    assert chunk.dtype == np.float32
    assert chunk.toarray().tolist() == [[3, 0, 0], [0, 4, 0]]


def test_no_documents_no_chunks(tmp_path):
    assert list(iter_uci_bow(_written(tmp_path / "docword.txt", 0, 0, 0))) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((3, 2, 3, "1 1 1", "3 1 1", "2 1 1"), "line 6: document 2 after a later one"),
        ((3, 2, 4, "1 1 1", "3 1 1"), "ends after 2 entries and line 3 states 4"),
        ((3, 2, 1, "1 1 1", "3 1 1"), "line 5: an entry more"),
        ((3, 2, 2, "1 1 1", "4 1 1"), "line 5: document '4' is beyond the 3"),
        ((3, 2, 2, "1 1 1", "2 0 1"), "line 5"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, lines, said):
    path = _written(tmp_path / "docword.txt", *lines)
    with pytest.raises(DataError, match=said):
        list(iter_uci_bow(path, 1))


def test_documents_out_of_order_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "BLOCK", 8)
    path = _written(tmp_path / "docword.txt", 3, 2, 3, "1 1 1", "3 1 1", "2 1 1")
    with pytest.raises(DataError, match="line 6: document 2 after a later one"):
        list(iter_uci_bow(path, 5))


@pytest.mark.parametrize("chunk_size", [0, -1, 2.5, None])
def test_a_chunk_size_that_is_none(tmp_path, chunk_size):
    with pytest.raises(DataError, match="chunk_size"):
        iter_uci_bow(tmp_path / "missing", chunk_size)


def test_a_topic_model_of_a_file_that_is_never_whole_in_memory(tmp_path):
    X, *_ = sd.datasets.make_lda_corpus(300, n_features=100, n_components=4, random_state=0)
    save_uci_bow(X, tmp_path / "docword.txt")
    lda = sd.LatentDirichletAllocation(4, max_iter=40, random_state=0)
    for chunk in iter_uci_bow(tmp_path / "docword.txt", 100):
        lda.partial_fit(chunk)
    whole = sd.LatentDirichletAllocation(4, max_iter=40, random_state=0).fit(X)
    assert lda.n_batch_iter_ == 3
    assert lda.word_topic_counts_.sum() == X.sum()
    assert lda.perplexity(X) < 1.05 * whole.perplexity(X)
