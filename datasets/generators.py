"""Synthetic data whose truth is known.

Text drawn from a topic model, sparse regression and classification with correlated columns; ratings
are in `generated_ratings`. Each function returns the data and what they were drawn from, never
makes a sparse matrix dense, and gives the same numbers for the same seed and version of numpy.
"""

from typing import Any

import numpy as np
from scipy import sparse

from .._typing import Array, Matrix, RandomState
from ..errors import DataError, shortened
from ._common import (
    check_generator,
    check_number,
    check_sizes,
    compressed,
    distinct_draws,
    float_array,
    shares,
)

# Tokens of the documents that are drawn together; the result does not depend on it.
_BATCH_TOKENS = 1 << 21


# ---------------------------------------------------------------------------------- text


def make_lda_corpus(
    n_documents: int = 1000,
    n_features: int = 5000,
    n_components: int = 10,
    *,
    mean_length: float = 100.0,
    length_sigma: float = 0.6,
    doc_topic_prior: Any = 0.1,
    zipf_exponent: float = 1.05,
    n_common_words: float = 60.0,
    word_spread: float = 0.06,
    random_state: RandomState | np.random.Generator | None = None,
) -> tuple[Matrix, Array, Array]:
    r"""Draw a corpus from latent Dirichlet allocation, with a vocabulary as that of real text.

    Word frequencies follow the Zipf-Mandelbrot law :math:`p_r \propto (r + 2.7)^{-s}` over ranks
    `r`. Topic `k` multiplies them by independent gamma variables of mean 1 and of shape
    :math:`a_r = a + 6 \exp(-r / c)`: the first words (about `n_common_words`, c) are common to all
    topics, as stop words are, and a rarer word belongs to few of them. Ranks are shuffled over the
    columns. Each document has a log-normal number of tokens and a Dirichlet mixture of topics;
    each token takes a topic from the mixture and a word from the topic.

    Documents are drawn in batches of some two million tokens, whose working memory is about 100 MB;
    besides, the peak is about twice the result (8 bytes a non-zero) and the truth (float64).
    Fifty million tokens over 50,000 words take some 15 s.

    Parameters
    ----------
    n_documents, n_features, n_components : int, default=1000, 5000, 10
        Numbers of documents, words and topics.
    mean_length : float, default=100
        Mean number of tokens in a document, from 1 to a million. Lengths are rounded, and at
        least 1.
    length_sigma : float, default=0.6
        Standard deviation of the logarithm of the length, from 0 (all documents equally long)
        to 3.
    doc_topic_prior : float or array-like of shape (n_components,), default=0.1
        Parameter of the Dirichlet distribution of the mixtures.
    zipf_exponent : float, default=1.05
        Exponent `s` of the word frequencies; 0 makes all words equally frequent.
    n_common_words : float, default=60
        How many of the most frequent words (by order of magnitude) all topics share.
    word_spread : float, default=0.06
        Shape `a` for rare words: the smaller, the fewer topics a rare word belongs to.
    random_state : int, Generator, RandomState or None, default=None
        Seed, for the same corpus again.

    Returns
    -------
    X : csr_matrix of int32, shape (n_documents, n_features)
        Word counts; sorted indices, no duplicates, no stored zeros.
    topic_word : ndarray of shape (n_components, n_features)
        Probability of each word in each topic.
    doc_topic : ndarray of shape (n_documents, n_components)
        Probability of each topic in each document.

    Raises
    ------
    DataError
        If a parameter is out of its range.

    References
    ----------
    D. Blei, A. Ng, M. Jordan, "Latent Dirichlet allocation", JMLR 3, 2003.

    Examples
    --------
    >>> from stradask.datasets import make_lda_corpus
    >>> X, topic_word, doc_topic = make_lda_corpus(200, 500, 5, random_state=0)
    >>> X.shape, topic_word.shape, doc_topic.shape
    ((200, 500), (5, 500), (200, 5))
    """
    check_sizes(n_documents=n_documents, n_features=n_features, n_components=n_components)
    check_number("mean_length", mean_length, 1, 1e6)
    check_number("length_sigma", length_sigma, 0, 3)
    check_number("zipf_exponent", zipf_exponent, 0)
    check_number("n_common_words", n_common_words, 0, exclusive=True)
    check_number("word_spread", word_spread, 0, exclusive=True)
    prior = _dirichlet_parameter("doc_topic_prior", doc_topic_prior, n_components)
    rng = check_generator(random_state)

    topic_word = _zipf_topics(rng, n_components, n_features, zipf_exponent, n_common_words, word_spread)
    doc_topic = rng.dirichlet(prior, size=n_documents)
    normal = rng.standard_normal(n_documents)
    lengths = mean_length * np.exp(length_sigma * normal - length_sigma**2 / 2)
    lengths = np.maximum(np.rint(lengths), 1).astype(np.int64)
    # A stream for each topic, read in the order of the documents, makes batches invisible.
    streams = rng.spawn(n_components)
    batches = np.cumsum(lengths) // _BATCH_TOKENS
    breaks = np.flatnonzero(np.diff(batches)) + 1
    parts = [
        _draw_words(rng, streams, batch_lengths, mixtures, topic_word)
        for batch_lengths, mixtures in zip(
            np.split(lengths, breaks), np.split(doc_topic, breaks), strict=True
        )
    ]
    indices, data, row_sizes = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    indptr = np.concatenate([[0], np.cumsum(row_sizes)])
    return (
        compressed(sparse.csr_matrix, data, indices, indptr, (n_documents, n_features)),
        topic_word,
        doc_topic,
    )


def _zipf_topics(rng, n_components, n_features, exponent, n_common, spread):
    rank = np.arange(n_features)
    frequency = (rank + 2.7) ** -exponent
    shape = spread + 6 * np.exp(-rank / n_common)
    topics = rng.standard_gamma(shape, size=(n_components, n_features)) * (frequency / shape)
    topics /= topics.sum(axis=1, keepdims=True)
    return topics[:, rng.permutation(n_features)]


def _draw_words(rng, streams, lengths, doc_topic, topic_word):
    """Words, their counts and numbers of different words of some documents, sorted by both."""
    n_features = topic_word.shape[1]
    topic_tokens = rng.multinomial(lengths, doc_topic)
    keys = np.empty(lengths.sum(), dtype=np.int64)  # document x n_features + word, one a token
    documents = np.arange(len(lengths)) * n_features
    filled = 0
    for stream, words, tokens in zip(streams, topic_word, topic_tokens.T, strict=True):
        cumulative = np.cumsum(words)
        uniform = stream.random(tokens.sum()) * cumulative[-1]
        part = keys[filled : filled + len(uniform)]
        part[:] = np.repeat(documents, tokens)
        part += np.searchsorted(cumulative, uniform, side="right")
        filled += len(uniform)
    keys.sort()
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(first, append=len(keys)).astype(np.int32)
    row, word = np.divmod(keys[first], n_features)
    return word.astype(np.int32), counts, np.bincount(row, minlength=len(lengths))


def _dirichlet_parameter(name, value, size):
    vector = float_array(name, value)
    if vector.shape not in ((), (size,)) or (vector < 1e-6).any() or (vector > 1e6).any():
        raise DataError(f"{name} must be a number from 1e-6 to 1e6 or {size} of them; got {shortened(value)}")
    return np.broadcast_to(vector, (size,))


# -------------------------------------------------------------- regression, classification


def make_sparse_regression(
    n_samples: int = 1000,
    n_features: int = 10_000,
    *,
    n_informative: int = 20,
    density: float = 0.01,
    popularity_exponent: float = 0.8,
    block_size: int = 1,
    correlation: float = 0.0,
    snr: float = 10.0,
    random_state: RandomState | np.random.Generator | None = None,
) -> tuple[Matrix, Array, Array]:
    r"""Draw a sparse linear regression with correlated columns and a known support.

    Neighbouring columns form blocks of `block_size`. The columns of a block have their non-zeros
    in the same rows; in row `i` the value of column `j` of block `b` is
    :math:`x_{ij} = \sqrt{\rho} f_{ib} + \sqrt{1 - \rho} e_{ij}` with independent standard normal
    `f` and `e`. So any two columns of a block have correlation :math:`\rho`, over all rows as over
    their common non-zeros, and columns of different blocks have none. How many rows a block fills
    falls as a power of its rank, and blocks are shuffled.

    The target is ``X @ coef`` plus normal noise. Informative columns are drawn in proportion to
    their non-zeros (a column with one entry holds no signal that can be found); their
    coefficients have random signs and absolute values uniform on [0.5, 1.5].

    Memory: about 50 bytes a non-zero at the peak, 12 in the result.

    Parameters
    ----------
    n_samples, n_features : int, default=1000, 10000
        Numbers of rows and columns.
    n_informative : int, default=20
        Number of columns with a coefficient other than 0.
    density : float, default=0.01
        Share of non-zeros, up to 1. Each column has one at least, so it may not be below
        1 / n_samples.
    popularity_exponent : float, default=0.8
        The block of rank r (from 1) fills rows in proportion to r to minus this power, but at
        least one row and at most all; 0 makes all columns equally long.
    block_size : int, default=1
        Columns in a block; the last block may be smaller.
    correlation : float, default=0.0
        Correlation of columns within a block, from 0 to below 1.
    snr : float, default=10.0
        Variance of ``X @ coef`` over the variance of the noise; `numpy.inf` for no noise. With no
        informative column the noise has variance 1.
    random_state : int, Generator, RandomState or None, default=None
        Seed, for the same data again.

    Returns
    -------
    X : csc_matrix of float64, shape (n_samples, n_features)
        Sorted indices, no duplicates.
    y : ndarray of shape (n_samples,)
        Targets.
    coef : ndarray of shape (n_features,)
        True coefficients; the support is ``numpy.flatnonzero(coef)``.

    Raises
    ------
    DataError
        If a parameter is out of its range.

    Examples
    --------
    >>> from stradask.datasets import make_sparse_regression
    >>> X, y, coef = make_sparse_regression(200, 1000, n_informative=5, density=0.02, random_state=0)
    >>> X.nnz, int((coef != 0).sum())
    (4000, 5)
    """
    if snr != np.inf:
        check_number("snr", snr, 0, exclusive=True)
    rng = check_generator(random_state)
    X, informative = _sparse_design(
        rng, n_samples, n_features, n_informative, density, popularity_exponent, block_size, correlation
    )
    coef = np.zeros(n_features)
    coef[informative] = _coefficients(rng, n_informative)
    y = X @ coef
    if snr != np.inf:
        y += rng.normal(scale=y.std() / np.sqrt(snr) if n_informative else 1.0, size=n_samples)
    return X, y, coef


def make_sparse_classification(
    n_samples: int = 1000,
    n_features: int = 10_000,
    *,
    n_classes: int = 2,
    n_informative: int = 20,
    density: float = 0.01,
    popularity_exponent: float = 0.8,
    block_size: int = 1,
    correlation: float = 0.0,
    log_odds_std: float = 3.0,
    flip_y: float = 0.0,
    random_state: RandomState | np.random.Generator | None = None,
) -> tuple[Matrix, Array, Array]:
    r"""Draw a sparse logistic model with correlated columns and a known support.

    Columns and informative columns are those of `make_sparse_regression`. Labels are drawn from
    the logistic model itself: with two classes :math:`P(y = 1) = 1 / (1 + \exp(-x^T w))`, with
    more :math:`P(y = k) \propto \exp(x^T w_k)`, all classes with the same support. A share of the
    labels is then replaced by labels drawn at random.

    Parameters
    ----------
    n_samples, n_features : int, default=1000, 10000
        Numbers of rows and columns.
    n_classes : int, default=2
        Number of classes.
    n_informative, density, popularity_exponent, block_size, correlation
        As in `make_sparse_regression`.
    log_odds_std : float, default=3.0
        Standard deviation of ``X @ coef`` over the samples (and classes), to which the
        coefficients are scaled: 0 makes labels coin tosses, large values make classes separable.
    flip_y : float, default=0.0
        Share of samples whose label is drawn anew, uniformly over all classes.
    random_state : int, Generator, RandomState or None, default=None
        Seed, for the same data again.

    Returns
    -------
    X : csc_matrix of float64, shape (n_samples, n_features)
        Sorted indices, no duplicates.
    y : ndarray of int64, shape (n_samples,)
        Classes from 0.
    coef : ndarray of shape (n_features,), or (n_classes, n_features) with more than two classes
        True coefficients.

    Raises
    ------
    DataError
        If a parameter is out of its range.

    Examples
    --------
    >>> from stradask.datasets import make_sparse_classification
    >>> X, y, coef = make_sparse_classification(500, 1000, n_classes=3, random_state=0)
    >>> X.shape, coef.shape, sorted(set(y.tolist()))
    ((500, 1000), (3, 1000), [0, 1, 2])
    """
    check_number("n_classes", n_classes, 2, integer=True)
    check_number("log_odds_std", log_odds_std, 0)
    check_number("flip_y", flip_y, 0, 1)
    rng = check_generator(random_state)
    X, informative = _sparse_design(
        rng, n_samples, n_features, n_informative, density, popularity_exponent, block_size, correlation
    )
    n_vectors = 1 if n_classes == 2 else n_classes
    values = _coefficients(rng, (n_informative, n_vectors))
    odds = X[:, informative] @ values
    if odds.std() > 0:  # not so for a single sample, or with no informative column
        scale = log_odds_std / odds.std()
        values *= scale
        odds *= scale
    if n_classes == 2:
        odds = np.hstack([np.zeros_like(odds), odds])
    # The largest of log-odds plus Gumbel noise has the distribution of the logistic model.
    y = np.argmax(odds + rng.gumbel(size=odds.shape), axis=1)
    flipped = rng.random(n_samples) < flip_y
    y[flipped] = rng.integers(n_classes, size=flipped.sum())
    coef = np.zeros((n_vectors, n_features))
    coef[:, informative] = values.T
    return X, y, coef[0] if n_classes == 2 else coef


def _coefficients(rng, size):
    return rng.uniform(0.5, 1.5, size) * rng.choice([-1.0, 1.0], size)


def _sparse_design(rng, n_samples, n_features, n_informative, density, exponent, block_size, correlation):
    """The matrix (CSC) and the informative columns of both sparse linear models."""
    check_sizes(n_samples=n_samples, n_features=n_features, block_size=block_size)
    check_number("n_informative", n_informative, 0, n_features, integer=True)
    check_number("density", density, 1 / n_samples, 1)
    check_number("popularity_exponent", exponent, 0)
    if not check_number("correlation", correlation, 0, 1) < 1:
        raise DataError(
            "correlation must be below 1, or the columns of a block would be copies of each other"
        )

    widths = np.diff(np.append(np.arange(0, n_features, block_size), n_features))
    popularity = np.arange(1.0, len(widths) + 1) ** -exponent
    order = rng.permutation(len(widths))
    lengths = shares(popularity[order], widths, density * n_samples * n_features, n_samples)
    indptr, rows = distinct_draws(rng, lengths, np.ones(n_samples))
    factor = np.sqrt(correlation) * rng.standard_normal(len(rows))
    # Column j is a copy of its block's pattern: where the block begins plus 0, 1, 2, ...
    column_lengths = np.repeat(lengths, widths)
    column_indptr = np.concatenate([[0], np.cumsum(column_lengths)])
    source = np.arange(column_indptr[-1])
    source += np.repeat(np.repeat(indptr[:-1], widths) - column_indptr[:-1], column_lengths)
    data = rng.standard_normal(len(source))
    data *= np.sqrt(1 - correlation)
    data += factor[source]
    X = compressed(sparse.csc_matrix, data, rows[source], column_indptr, (n_samples, n_features))
    weights = column_lengths / column_lengths.sum()
    return X, rng.choice(n_features, size=n_informative, replace=False, p=weights)
