"""Hold out part of the tokens of every document, or part of the ratings.

Whole documents are held out by scikit-learn's `train_test_split`, which takes sparse matrices.
"""

from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from .._typing import Matrix, RandomState
from ..errors import DataError, shortened
from ._common import check_generator, check_number, rank_in_rows

_NO_FRACTION = 1e-6  # of a rating, below which a share is whole


def split_tokens(
    X: Matrix, *, test_size: float = 0.5, random_state: RandomState | np.random.Generator | None = 0
) -> tuple[Matrix, Matrix]:
    """Divide the tokens of every document at random into an observed and a held-out part.

    Of a document of n tokens exactly ``floor(test_size * n)`` are held out, drawn without
    replacement, every subset of that size being equally likely. So a topic model can be judged by
    document completion: mixtures are fitted to the observed part and the held-out part is
    predicted. A document of one token keeps it (unless `test_size` is 1).

    Tokens are not written out one by one: the counts of a document's words follow the multivariate
    hypergeometric distribution, and are drawn word after word, for all documents at once. Memory
    beyond the result is 8 bytes a non-zero and some 50 bytes a document.

    Parameters
    ----------
    X : sparse matrix of shape (n_documents, n_features)
        Word counts: whole numbers of at least 0, less than a thousand million in a document.
    test_size : float, default=0.5
        Share of each document's tokens to hold out, from 0 to 1.
    random_state : int, Generator, RandomState or None, default=0
        Seed, for the same split again.

    Returns
    -------
    observed, held_out : CSR matrices of the shape and dtype of X
        Counts that add up to X; sorted indices, no duplicates, no stored zeros.

    Raises
    ------
    DataError
        If X is not sparse or not made of counts, or if a parameter is out of its range.

    References
    ----------
    H. Wallach, I. Murray, R. Salakhutdinov, D. Mimno, "Evaluation methods for topic models",
    ICML 2009 (document completion).

    Examples
    --------
    >>> from stradask.datasets import make_lda_corpus, split_tokens
    >>> X, _, _ = make_lda_corpus(100, 200, 5, random_state=0)
    >>> observed, held_out = split_tokens(X)
    >>> bool((observed + held_out != X).nnz == 0)
    True
    """
    check_number("test_size", test_size, 0, 1)
    X = _counts(X)
    rng = check_generator(random_state)
    held_out = X.copy()
    held_out.data = _draw_without_replacement(rng, X, test_size).astype(X.dtype)
    observed = X.copy()
    observed.data = X.data - held_out.data
    for part in (observed, held_out):
        part.eliminate_zeros()
    return observed, held_out


def rating_split(
    R: Matrix,
    *,
    test_size: float = 0.2,
    n_test: int | None = None,
    by: str = "user",
    times: Any = None,
    random_state: RandomState | np.random.Generator | None = 0,
) -> tuple[Matrix, Matrix]:
    """Hold out part of the ratings: of every user's, or of all, at random or the last ones.

    Of n ratings exactly ``floor(test_size * n)`` are held out, every subset of that size being equally
    likely; so by users one with a single rating keeps it (unless `test_size` is 1). With `times` those
    given last are held out instead; ``n_test=1, times=T`` leaves each user's last one out. Memory beyond the
    result is about 40 bytes a rating.

    Parameters
    ----------
    R : sparse matrix of shape (n_users, n_items)
        Ratings; every stored entry is one, also a stored zero.
    test_size : float, default=0.2
        Share of the ratings to hold out, from 0 to 1.
    n_test : int, default=None
        How many ratings to hold out instead: of each user, where those with no more than that keep all, or,
        with ``by="rating"``, of all ratings.
    by : {"user", "rating"}, default="user"
        Whether n are the ratings of each user, or all ratings.
    times : sparse matrix with the stored entries of R, default=None
        When each rating was given, for instance by ``read_ratings(path, value_column=4)``; of equal times it
        is drawn which is later.
    random_state : int, Generator, RandomState or None, default=0
        Seed, for the same split again.

    Returns
    -------
    observed, held_out : CSR matrices of the shape and dtype of R
        Each rating is stored in one of the two; sorted indices, no duplicates.

    Raises
    ------
    DataError
        If R is not sparse or has two ratings of one item by one user, if a parameter is out of its range, and
        if nothing would be held out though `test_size` is above 0.

    Examples
    --------
    >>> from stradask.datasets import make_ratings
    >>> from stradask.datasets.split import rating_split
    >>> R, _ = make_ratings(100, 50, random_state=0)
    >>> observed, held_out = rating_split(R)
    >>> observed.nnz + held_out.nnz == R.nnz
    True
    """
    check_number("test_size", test_size, 0, 1)
    given, R = R, _sorted_rows("R", R)
    if R.nnz != given.nnz or not R.has_canonical_format:  # the former: COO adds them up on conversion
        raise DataError(
            "R has several ratings of one item by one user; keep one, or add them: R.sum_duplicates()"
        )
    if by not in ("user", "rating"):
        raise DataError(f"by={shortened(by)}: give 'user' or 'rating'")
    rng = check_generator(random_state)
    lengths = np.diff(R.indptr)
    users = np.repeat(np.arange(R.shape[0]), lengths)
    groups, ends = users, R.indptr
    if by == "rating":
        groups, ends, lengths = np.zeros(R.nnz, np.int64), np.array([0, R.nnz]), np.array([R.nnz])
    held = _held(test_size, lengths) if n_test is None else _so_many(n_test, by, lengths)
    keys = rng.random(R.nnz)
    if times is not None:
        latest_first = np.lexsort((keys, -_times_of(times, R)))
        keys[latest_first] = np.arange(R.nnz)
    if not held.any() and (n_test is not None or test_size > 0):
        _refuse_nothing_held(R.nnz, test_size, n_test, by, lengths)
    out = rank_in_rows(keys, groups, ends) < held[groups]
    return tuple(_stored(R, users, chosen) for chosen in (~out, out))


def share_split(R, test_size, random_state):
    """Hold out ``floor(test_size * n)`` of all n ratings, and of each user's as many, rounded down or up.

    Who has one more than rounded down is drawn, in proportion to what rounding takes away; a user keeps at
    least one rating. Fewer are held out where that leaves no other choice. Returns what `rating_split` does.
    """
    rng, R = check_generator(random_state), _sorted_rows("R", R)
    lengths = np.diff(R.indptr)
    held = np.minimum(_held(test_size, lengths), np.maximum(lengths - 1, 0))
    fractions = np.where(lengths - held > 1, test_size * lengths - held, 0.0)
    fractions[fractions < _NO_FRACTION] = 0
    more = min(int(_held(test_size, R.nnz) - held.sum()), int(np.count_nonzero(fractions)))
    if more > 0:
        held += _drawn(rng, fractions, more)
    if not held.any():
        if lengths.max(initial=0) == 1:
            raise DataError("each user has one rating, which stays to learn from: give users with more")
        _refuse_nothing_held(R.nnz, test_size, None, "share", lengths)
    users = np.repeat(np.arange(R.shape[0]), lengths)
    out = rank_in_rows(rng.random(R.nnz), users, R.indptr) < held[users]
    return tuple(_stored(R, users, chosen) for chosen in (~out, out))


def _drawn(rng, weights, n):
    """Draw n rows, each with a probability in proportion to its weight, of at most 1; a 1 for each."""
    chances = weights / weights.sum() * n
    for _ in range(100):  # what is above 1 goes to the others
        chances = np.minimum(chances * (n / chances.sum()), 1)
    order = rng.permutation(len(weights))
    ends = np.cumsum(chances[order])
    ends = np.floor(np.minimum(ends * (n / ends[-1]), n) + rng.random())  # systematic sampling
    drawn = np.empty(len(weights), np.int64)
    drawn[order] = np.diff(ends, prepend=0)
    return drawn


def _so_many(n_test, by, lengths):
    if not isinstance(n_test, Integral) or isinstance(n_test, bool) or n_test < 1:
        raise DataError(f"n_test={shortened(n_test)}: give a whole number of at least 1, or None")
    if by == "rating" and n_test >= lengths[0]:
        raise DataError(f"n_test={int(n_test)} of {lengths[0]} ratings leaves none to learn from: give fewer")
    return np.where(lengths > n_test, int(n_test), 0)


def _refuse_nothing_held(n_ratings, test_size, n_test, by, lengths):
    asked = f"test_size={test_size:g}" if n_test is None else f"n_test={int(n_test)}"
    most = int(lengths.max(initial=0))
    if not n_ratings:
        raise DataError("R holds no rating: there is none to hold out")
    if n_test is not None:
        remedy = (
            f"give n_test below {most}, or " * (most > 1) + "by='rating', where n_test counts all ratings"
        )
    else:
        remedy = "give a larger test_size" + (", or by='rating'" if by == "user" else "")
    whose = f"the user with most ratings has {most}" if by == "user" else f"there are {n_ratings:,} ratings"
    raise DataError(f"{asked} holds out nothing, as {whose}: {remedy}")


def _times_of(times, R):
    """The times in the order of the ratings."""
    times = _sorted_rows("times", times)
    same = times.shape == R.shape and times.nnz == R.nnz and np.array_equal(times.indptr, R.indptr)
    if not (same and np.array_equal(times.indices, R.indices)):
        raise DataError("times must have a stored entry for each rating of R, and no other")
    if times.dtype.kind not in "uif" or not np.isfinite(times.data).all():
        raise DataError("times must be finite numbers")
    return times.data.astype(np.float64)


def _draw_without_replacement(rng, X, test_size):
    """How many tokens of each stored count of X are held out (int64)."""
    counts = X.data.astype(np.int64)
    begin = X.indptr[:-1].astype(np.int64)
    words = np.diff(X.indptr)
    running = np.concatenate([[0], np.cumsum(counts)])
    left = running[X.indptr[1:]] - running[X.indptr[:-1]]  # tokens not yet decided on, by document
    if left.size and left.max() >= 10**9:  # numpy's limit
        raise DataError(
            f"X has {left.max()} tokens in row {left.argmax()}, more than the 999,999,999 that can be "
            "divided; split the row into several"
        )
    wanted = _held(test_size, left)
    # Longest documents first, so that those with a word number `step` are the first ones.
    order = np.argsort(-words, kind="stable")
    begin, left, wanted = begin[order], left[order], wanted[order]
    active = np.searchsorted(-words[order], -np.arange(words.max(initial=0)), side="left")
    for step, n in enumerate(active):
        at = begin[:n] + step
        here = counts[at]
        left[:n] -= here
        counts[at] = rng.hypergeometric(here, left[:n], wanted[:n])
        wanted[:n] -= counts[at]
    return counts


def _held(test_size, lengths):
    # Rounding first keeps 0.29 * 100 = 28.999999999999996 from losing a token.
    return np.floor(np.round(test_size * lengths, 6)).astype(np.int64)


def _sorted_rows(name, X):
    """X as CSR with sorted indices; the caller's matrix is left as it is."""
    sparse_one = sparse.issparse(X)
    if not sparse_one:
        raise DataError(
            f"{name} must be a scipy sparse matrix, got {type(X).__name__}; try scipy.sparse.csr_array"
        )
    if X.ndim != 2:
        raise DataError(f"{name} must have two dimensions, got {X.ndim}")
    X = X.tocsr()
    return X if X.has_sorted_indices else X.sorted_indices()


def _counts(X):
    """X as canonical CSR without stored zeros, checked to hold counts."""
    X = _sorted_rows("X", X)
    if not X.has_canonical_format or not X.data.all():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    if X.dtype.kind not in "uif":
        raise DataError(f"X must hold whole numbers, got dtype {X.dtype}; try X.astype('int32')")
    bad = X.data < 0
    if X.dtype.kind == "f":
        bad |= ~(np.isfinite(X.data) & (X.data == np.floor(X.data)))
    if bad.any():
        entry = int(np.argmax(bad))
        row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
        raise DataError(
            f"X must hold counts (whole numbers of at least 0), got {X.data[entry]} in row {row}, "
            f"column {X.indices[entry]}; give raw counts, not weights such as tf-idf"
        )
    return X


def _stored(R, rows, chosen):
    """Return a matrix of the chosen entries of R, with stored zeros."""
    index = R.indptr.dtype
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[chosen], minlength=R.shape[0]))])
    parts = (R.data[chosen], R.indices[chosen], indptr.astype(index))
    kind = sparse.csr_array if isinstance(R, sparse.sparray) else sparse.csr_matrix
    return kind(parts, shape=R.shape)
