"""Surveys of shards: packed words and numbers come back, and take few bytes where the client keeps them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from stradask.algorithms.topics.blocks.packing import pack_numbers, pack_words, unpack_numbers, unpack_words
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix, survey
from stradask.datasets import save_uci_bow
from stradask.datasets.document_files import cut_files, document_files

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**62))


@given(st.lists(NUMBERS))
def test_numbers_come_back(numbers):
    packed = pack_numbers(np.array(numbers, np.int64))
    assert unpack_numbers(packed).tolist() == numbers
    assert packed[0].nbytes == len(numbers)
    assert len(packed[1]) == sum(number > 254 for number in numbers)


@given(st.sets(st.integers(0, 10**6)))
def test_words_come_back(words):
    assert unpack_words(pack_words(np.array(sorted(words), np.int64))).tolist() == sorted(words)


@pytest.fixture(scope="module")
def X():
    """Words of Zipf's law, and some that do not occur."""
    rng = np.random.default_rng(0)
    weights = 1 / (np.arange(20_000) + 2.7)
    tokens = rng.choice(20_000, size=200_000, p=weights / weights.sum())
    tokens = tokens[(tokens < 300) | (tokens >= 900)]
    rows = np.sort(rng.integers(2_000, size=len(tokens)))
    shape = (2_000, 20_000)
    return sparse.csr_array(sparse.coo_array((np.ones(len(tokens), np.int32), (rows, tokens)), shape=shape))


def test_offsets_are_the_tokens_of_earlier_shards(X):
    corpus = corpus_of_matrix(X, 5)
    before = np.zeros(X.shape[1], np.int64)
    for shard, rows in zip(corpus.shards, corpus.rows, strict=True):
        tokens = np.asarray(X[rows].sum(axis=0)).ravel()
        words = unpack_words(shard["words"])
        np.testing.assert_array_equal(words, np.flatnonzero(tokens))
        np.testing.assert_array_equal(unpack_numbers(shard["offsets"]), before[words])
        before += tokens
    np.testing.assert_array_equal(corpus.frequency, before)


def test_a_distinct_word_of_a_shard_takes_few_bytes(X, tmp_path):
    save_uci_bow(X, tmp_path / "docword.txt")
    found, _, _ = survey(cut_files(document_files(tmp_path / "docword.txt"), 4), "local", n_features=20_000)
    n_words = sum(len(part["words"][0]) for part in found)
    held = sum(array.nbytes for part in found for name in ("words", "tokens") for array in part[name])
    assert n_words > 20_000
    assert held < 2.5 * n_words
    offsets = sum(array.nbytes for shard in corpus_of_matrix(X, 4).shards for array in shard["offsets"])
    assert offsets < 2 * n_words
