"""Held-out tokens and ratings: exact sizes, nothing lost, every subset equally likely."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from stradask.datasets.split import rating_split, share_split, split_tokens
from stradask.errors import DataError


def small_counts():
    shape = st.tuples(st.integers(1, 6), st.integers(1, 7))
    return shape.flatmap(
        lambda s: st.lists(
            st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 17]), min_size=s[1], max_size=s[1]),
            min_size=s[0],
            max_size=s[0],
        )
    )


@settings(max_examples=150, deadline=None)
@given(
    rows=small_counts(),
    percent=st.integers(0, 100),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.int32, np.uint16, np.int64, np.float32, np.float64]),
    kind=st.sampled_from([sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array]),
)
def test_tokens_add_up_and_sizes_are_exact(rows, percent, seed, dtype, kind):
    dense = np.array(rows, dtype=dtype)
    parts = split_tokens(kind(dense), test_size=percent / 100, random_state=seed)
    observed, held_out = (part.toarray() for part in parts)
    np.testing.assert_array_equal(observed + held_out, dense)
    for part, values in zip(parts, (observed, held_out), strict=True):
        assert part.format == "csr"
        assert part.dtype == dtype
        assert part.has_canonical_format
        assert (part.data > 0).all()
        assert (values.astype(float) <= dense).all()
        assert isinstance(part, sparse.sparray) == issubclass(kind, sparse.sparray)
    lengths = [int(n) for n in dense.sum(axis=1, dtype=np.int64)]
    assert held_out.sum(axis=1, dtype=np.int64).tolist() == [percent * n // 100 for n in lengths]


def test_every_subset_of_tokens_is_equally_likely():
    # {a, a, a, b, b} with two held out has 10 subsets, of which
    # 3, 6 and 1 hold 2, 1 and 0 of the first word.
    n = 6000
    _, held_out = split_tokens(sparse.csr_matrix(np.tile([3, 2], (n, 1))), test_size=0.4, random_state=1)
    seen = np.bincount(held_out.toarray()[:, 0], minlength=3)
    assert stats.chisquare(seen, n * np.array([1, 6, 3]) / 10).pvalue > 1e-3
    # The same counts are no draw with replacement, (2/5, 3/5) twice:
    assert stats.chisquare(seen, n * np.array([4, 12, 9]) / 25).pvalue < 1e-6


def test_words_late_in_a_long_document_fare_as_the_first_ones():
    words, documents = 9, 4000
    X = sparse.csr_matrix(np.ones((documents, words), dtype=int))
    _, held_out = split_tokens(X, test_size=1 / 3, random_state=2)
    subsets = dict.fromkeys(itertools.combinations(range(words), 3), 0)
    for row in held_out.indices.reshape(documents, 3):
        subsets[tuple(row)] += 1
    assert stats.chisquare(list(subsets.values())).pvalue > 1e-3


def test_documents_of_different_lengths_do_not_mix():
    # The words of each document occur in that document only, so a mix-up shows in the sums.
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 40, 200)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    X = sparse.csr_matrix((rng.integers(1, 9, indptr[-1]), np.arange(indptr[-1]), indptr))
    observed, held_out = split_tokens(X, test_size=0.29, random_state=0)
    assert (observed + held_out != X).nnz == 0
    totals = X.sum(axis=1).A1
    assert held_out.sum(axis=1).A1.tolist() == [29 * int(n) // 100 for n in totals]


def test_share_that_floats_cannot_hold_loses_no_token():
    assert math.floor(0.29 * 100) == 28  # what must not happen
    X = sparse.csr_matrix([[60, 40]])
    assert split_tokens(X, test_size=0.29)[1].sum() == 29


def test_seed_repeats_the_split_and_another_does_not():
    X = sparse.random_array(
        (50, 30), density=0.3, rng=0, data_sampler=lambda size: np.ones(size) * 4, format="csr"
    )
    first, again = split_tokens(X, random_state=5)[0], split_tokens(X, random_state=5)[0]
    assert (first != again).nnz == 0
    assert (first != split_tokens(X, random_state=6)[0]).nnz > 0
    generator = np.random.default_rng(5)
    assert (first != split_tokens(X, random_state=generator)[0]).nnz == 0
    assert (first != split_tokens(X, random_state=generator)[0]).nnz > 0


def test_caller_keeps_a_matrix_with_duplicates_and_zeros_as_it_was():
    parts = (np.array([2, 1, 0, 3]), np.array([1, 1, 0, 0]), np.array([0, 3, 4]))
    X = sparse.csr_matrix(parts, shape=(2, 2), copy=True)
    observed, held_out = split_tokens(X)
    np.testing.assert_array_equal((observed + held_out).toarray(), [[0, 3], [3, 0]])
    for array, before in zip((X.data, X.indices, X.indptr), parts, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((2, 2)), "X must be a scipy sparse matrix, got ndarray"),
        (sparse.csr_matrix([[0.0, 1.5]]), r"got 1\.5 in row 0, column 1; give raw counts"),
        (sparse.csr_matrix([[0.0], [-1.0]]), r"got -1\.0 in row 1, column 0"),
        (sparse.csr_matrix([[0.0], [np.nan]]), "got nan in row 1, column 0"),
        (sparse.csr_matrix([[np.inf]]), "got inf in row 0"),
        (sparse.csr_matrix([[True]]), "dtype bool"),
        (sparse.csr_matrix([[1], [10**9]]), "X has 1000000000 tokens in row 1"),
        (sparse.coo_array(np.ones(3, dtype=int)), "two dimensions"),
    ],
)
def test_tokens_refuse_what_is_no_matrix_of_counts(X, message):
    with pytest.raises(DataError, match=message):
        split_tokens(X)


@pytest.mark.parametrize("split", [split_tokens, rating_split])
@pytest.mark.parametrize("test_size", [-0.1, 1.1, np.nan, "half", True])
def test_share_out_of_range_is_named(split, test_size):
    with pytest.raises(DataError, match="test_size must be"):
        split(sparse.csr_matrix([[1]]), test_size=test_size)


def test_bad_seed_is_named():
    with pytest.raises(DataError, match="random_state must be a whole number at least 0; got -1"):
        split_tokens(sparse.csr_matrix([[1]]), random_state=-1)


@settings(max_examples=80, deadline=None)
@given(rows=small_counts(), percent=st.integers(0, 100), seed=st.integers(0, 2**32 - 1))
def test_ratings_are_divided_user_by_user(rows, percent, seed):
    dense = np.array(rows, dtype=float)
    R = sparse.csr_array(dense)
    R.data[R.data == 17] = 0  # a stored zero is a rating as well
    if percent and not (percent * np.diff(R.indptr) // 100).any():
        with pytest.raises(DataError, match=r"nothing|no rating"):
            rating_split(R, test_size=percent / 100, random_state=seed)
        return
    observed, held_out = rating_split(R, test_size=percent / 100, random_state=seed)
    np.testing.assert_array_equal((observed + held_out).toarray(), R.toarray())
    counts = np.diff(R.indptr)
    assert np.diff(held_out.indptr).tolist() == [percent * int(n) // 100 for n in counts]
    assert (np.diff(observed.indptr) + np.diff(held_out.indptr)).tolist() == counts.tolist()
    assert observed.has_canonical_format
    assert held_out.has_canonical_format


def test_every_subset_of_ratings_is_equally_likely():
    R = sparse.csr_matrix(np.ones((5000, 5)))
    _, held_out = rating_split(R, test_size=0.4, random_state=1)
    pairs = held_out.indices.reshape(-1, 2)
    seen = np.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25).reshape(5, 5)[np.triu_indices(5, 1)]
    assert seen.sum() == 5000
    assert stats.chisquare(seen).pvalue > 1e-3


@pytest.mark.parametrize("kind", [sparse.coo_matrix, sparse.csr_matrix])
def test_ratings_given_twice_are_refused(kind):
    twice = (np.ones(3), (np.array([0, 0, 1]), np.array([1, 1, 0])))
    R = sparse.coo_matrix(twice, shape=(2, 2))
    if kind is sparse.csr_matrix:
        R = sparse.csr_matrix((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    with pytest.raises(DataError, match="several ratings of one item by one user"):
        rating_split(R)


def test_of_all_ratings_exactly_a_share_is_held_out_wherever_it_lies():
    R = sparse.csr_array(np.ones((4000, 3)))
    _, held_out = rating_split(R, test_size=0.25, by="rating", random_state=2)
    assert held_out.nnz == 3000
    found = np.bincount(np.diff(held_out.indptr), minlength=4)
    assert stats.chisquare(found, 4000 * stats.binom(3, 0.25).pmf(range(4))).pvalue > 1e-3


def test_the_last_ratings_are_held_out():
    rng = np.random.default_rng(0)
    table = rng.random((30, 20)) * (rng.random((30, 20)) < 0.3)
    table[29] = np.eye(20)[3]  # a single rating
    R = sparse.csr_array(table)
    times = R.copy()
    times.data = rng.permutation(R.nnz).astype(float)
    observed, held_out = rating_split(R, n_test=1, times=times)
    dense = times.toarray()
    for u in range(30):
        n = len(R[[u]].data)
        assert len(held_out[[u]].data) == (n > 1)
        if n > 1:
            assert dense[u].argmax() == held_out[[u]].indices[0]
    np.testing.assert_array_equal((observed + held_out).toarray(), R.toarray())
    _, held_out = rating_split(R, test_size=0.2, by="rating", times=times.tocoo())
    kept = held_out.toarray() != 0
    assert dense[kept].min() == R.nnz - kept.sum()
    times.data[:] = 5  # all at once: at random
    ties = [rating_split(R, test_size=0.5, times=times, random_state=seed)[1] for seed in (0, 1)]
    assert (ties[0] != ties[1]).nnz > 0


def test_a_share_of_all_ratings_is_held_out_by_users():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 14, 400)
    R = sparse.csr_array(
        (np.zeros(lengths.sum()), np.concatenate([rng.permutation(20)[:n] for n in lengths]),
         np.concatenate([[0], np.cumsum(lengths)])), shape=(400, 20),
    )  # fmt: skip
    total = np.zeros(400)
    for seed in range(200):
        observed, held_out = share_split(R, 0.1, seed)
        assert held_out.nnz == int(0.1 * R.nnz) == R.nnz - observed.nnz
        held = np.diff(held_out.indptr)
        assert ((held >= np.floor(0.1 * lengths)) & (held <= np.ceil(0.1 * lengths))).all()
        assert (lengths[held > 0] > 1).all()
        total += held
    # Users of one length have the share between them, up to four standard errors; the lone ones' share is
    # spread over the others.
    for n in range(2, 14):
        own = total[lengths == n].mean() / 200
        assert 0.1 * n - 0.05 < own < 0.1 * n + 0.08


def test_a_number_of_all_ratings_is_held_out():
    R = sparse.random_array((30, 20), density=0.3, random_state=0, format="csr")
    observed, held_out = rating_split(R, n_test=37, by="rating")
    assert (held_out.nnz, observed.nnz) == (37, R.nnz - 37)
    np.testing.assert_array_equal((observed + held_out).toarray(), R.toarray())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "item"}, "give 'user' or 'rating'"),
        ({"n_test": 0}, "n_test=0: give a whole number"),
        ({"n_test": 2, "by": "rating"}, "n_test=2 of 2 ratings leaves none to learn from"),
        ({"times": sparse.csr_array([[1.0, 0, 3]])}, "a stored entry for each rating"),
        ({"times": sparse.csr_array([[1.0, np.nan, 0]])}, "times must be finite"),
        ({"times": np.ones((1, 3))}, "times must be a scipy sparse matrix"),
        (
            {"n_test": 1000},
            "n_test=1000 holds out nothing, as the user with most ratings has 2: give n_test below 2, or by=",
        ),
        ({}, "test_size=0.2 holds out nothing, .* has 2: give a larger test_size, or by='rating'"),
        ({"by": "rating", "test_size": 0.1}, "as there are 2 ratings: give a larger test_size$"),
    ],
)
def test_splits_that_make_no_sense_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        rating_split(sparse.csr_array([[1.0, 2, 0]]), **options)


def test_a_share_of_single_ratings_cannot_be_held_out():
    with pytest.raises(DataError, match="each user has one rating"):
        share_split(sparse.eye_array(5, format="csr"), 0.4, 0)
    with pytest.raises(DataError, match=r"there are 10 ratings: give a larger test_size$"):
        share_split(sparse.csr_array(np.ones((5, 2))), 0.01, 0)
