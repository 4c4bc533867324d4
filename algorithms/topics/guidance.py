"""Seed words, labels of documents and topics to begin from: what a caller gives of the topics."""

import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real

import numpy as np
from scipy import sparse

from ...errors import DataError, in_brief, shortened
from ..inputs.indices import sound
from ..inputs.matrices import _PRIOR_RANGE

_LARGEST = 1e100  # sums and products of such numbers are finite
SEED_WEIGHT = 1.0  # of a seed word that comes without a weight


def check_seed_words(seed_words, n_components, n_features, columns):
    """Check seed words; `columns` is the column of each word, if words are known.

    Returns a CSR array of float64, n_features x n_components, which is added to beta; None if it is all zero.
    """
    if seed_words is None:
        return None
    if isinstance(seed_words, Mapping):
        seeds = _of_mapping(seed_words, n_components, n_features, columns)
    else:
        shape = (n_components, n_features)
        axes = "n_components x n_features, or a dict"
        seeds = _nonnegative("seed_words", seed_words, shape, axes, most=_PRIOR_RANGE[1])
    seeds = sparse.csr_array(seeds.T)
    seeds.eliminate_zeros()
    seeds.sort_indices()
    return seeds if seeds.nnz else None


def _of_mapping(seed_words, n_components, n_features, columns):
    topics, words, weights = [], [], []
    for topic, listed in seed_words.items():
        if not isinstance(topic, Integral) or isinstance(topic, bool) or not 0 <= int(topic) < n_components:
            raise DataError(
                f"seed_words names topic {shortened(topic)}: topics go from 0 to {n_components - 1}"
            )
        if isinstance(listed, (str, bytes)) or not isinstance(listed, Iterable):
            raise DataError(
                f"seed_words[{topic}]={shortened(listed)} must be a list of words, or a dict of words to "
                "weights"
            )
        weighed = listed.items() if isinstance(listed, Mapping) else ((word, SEED_WEIGHT) for word in listed)
        for word, weight in weighed:
            topics.append(int(topic))
            words.append(_column(word, topic, n_features, columns))
            weights.append(_weight(weight, word, topic))
    shape = (n_components, n_features)
    return sparse.coo_array((np.array(weights, float), (topics, words)), shape=shape, dtype=float).tocsr()


def _column(word, topic, n_features, columns):
    where = f"seed_words[{topic}]"
    if isinstance(word, str):
        if columns is None:
            raise DataError(
                f"{where} holds the word {shortened(word)}, but the words of the columns are not known: pass "
                "vocabulary (CountVectorizer's vocabulary_, or the list of words), a DataFrame as X, or the "
                "numbers of columns"
            )
        if word not in columns:
            raise DataError(
                f"{where} holds the word {shortened(word)}, which the vocabulary does not have: leave it out"
            )
        return columns[word]
    if not isinstance(word, Integral) or isinstance(word, bool):
        raise DataError(f"{where} holds {shortened(word)}: a word is a str or the number of its column")
    if not 0 <= int(word) < n_features:
        raise DataError(f"{where} holds the column {word}: columns go from 0 to {n_features - 1}")
    return int(word)


def _weight(weight, word, topic):
    most = _PRIOR_RANGE[1]
    if not isinstance(weight, Real) or isinstance(weight, bool) or not 0 <= float(weight) <= most:
        raise DataError(
            f"seed_words[{topic}] gives {shortened(word)} the weight {shortened(weight)}: it must be a "
            f"number from 0 to {most:g}"
        )
    return float(weight)


def check_doc_labels(doc_labels, n_documents, alpha):
    """Check labels, or weights of topics, of documents.

    Returns a CSR array of float64, n_documents x n_components: indices sorted, no zeros stored, no row empty.
    """
    if doc_labels is None:
        return None
    shape = (n_documents, len(alpha))
    labels = _nonnegative("doc_labels", doc_labels, shape, "n_samples x n_components, a row a document of X")
    without = np.flatnonzero(np.diff(labels.indptr) == 0)
    if len(without):
        raise DataError(
            f"doc_labels allows no topic in row {without[0]}: give the document a label, or all of them "
            "where nothing is known"
        )
    own = labels.data * alpha[labels.indices]
    least, most = _PRIOR_RANGE
    wrong = np.flatnonzero((own < least) | (own > most))
    if len(wrong):
        row = np.searchsorted(labels.indptr, wrong[0], side="right") - 1
        topic = labels.indices[wrong[0]]
        raise DataError(
            f"doc_labels times doc_topic_prior is {own[wrong[0]]:g} at row {row}, topic {topic}: it must lie "
            f"between {least:g} and {most:g}"
        )
    return labels


def check_given_topics(topics, n_components, n_features):
    """Check topics to begin from.

    Returns word probabilities, CSR of float64, n_features x n_components: columns sum to 1. Only a topic
    without tokens of a model has a column of zeros.
    """
    if topics is None:
        return None
    fitted = hasattr(topics, "get_params")
    if fitted:
        if not hasattr(topics, "word_topic_counts_"):
            raise DataError(
                f"topics is a {type(topics).__name__} without word_topic_counts_: fit it first, or pass the "
                "topic-word matrix of the model"
            )
        topics = topics.word_topic_counts_.T
    shape = (n_components, n_features)
    found = _nonnegative("topics", topics, shape, "n_components x n_features, columns as in X")
    totals = np.asarray(found.sum(axis=1)).ravel()
    empty = np.flatnonzero(totals == 0)
    if len(empty) and not fitted:
        raise DataError(
            f"topics has no weight in row {empty[0]}: each topic needs a word; for one that nothing is known "
            "of pass equal weights"
        )
    found.data /= np.repeat(totals, np.diff(found.indptr))
    columns = sparse.csr_array(found.T)
    columns.sort_indices()
    return columns


def _nonnegative(name, value, shape, axes, most=_LARGEST):
    """Check a matrix of numbers from 0 to `most`; return it as a CSR array without stored zeros."""
    if not sparse.issparse(value):
        try:
            value = np.asarray(value)
        except ValueError as error:  # nested to different depths
            raise DataError(f"{name} must be a matrix of {axes}: {in_brief(error)}") from error
    if value.dtype.kind not in "biuf":
        raise DataError(f"{name} must be a matrix of numbers, {axes}; got {value.dtype}")
    if value.shape != shape:
        raise DataError(f"{name} has the shape {value.shape}; pass {shape}: {axes}")
    if sparse.issparse(value):
        try:
            value = sound(value)
        except DataError as error:
            raise DataError(re.sub(r"\bX\b", name, str(error))) from error
    else:
        value = value.astype(np.float64)
    found = sparse.coo_array(value)
    wrong = np.flatnonzero(~((found.data >= 0) & (found.data <= most)))
    if len(wrong):
        row, column = found.row[wrong[0]], found.col[wrong[0]]
        raise DataError(
            f"{name} holds {found.data[wrong[0]]} at row {row}, column {column}: entries go from "
            f"0 to {most:g}"
        )
    rows = sparse.csr_array(found.astype(np.float64))
    rows.eliminate_zeros()
    rows.sort_indices()
    return rows
