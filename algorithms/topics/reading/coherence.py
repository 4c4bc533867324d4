"""Coherence: how often the words of a topic stand in the same documents."""

import numpy as np
from scipy import sparse

MEASURES = ("npmi", "umass", "c_v", "c_npmi")
_EPSILON = 1e-12  # of C_v and C_NPMI, as in their paper


def coherence(top, X, measure):
    """Coherence of each topic's words, `top`, best first (`TopicModel.coherence`)."""
    of_topic = {"npmi": _npmi, "umass": _umass, "c_v": c_v, "c_npmi": c_npmi}[measure]
    words, place = np.unique(top, return_inverse=True)
    documents = sparse.csc_array(X[:, words])
    values = np.empty(len(top))
    mark = np.zeros(X.shape[0], bool)
    for k, columns in enumerate(place.reshape(top.shape)):
        values[k] = of_topic(_document_counts(documents, columns, mark), X.shape[0])
    return values


def _document_counts(documents, columns, mark):
    """D(i, j) of some columns of a CSC array; `mark` holds False for each document, before and after.

    Nothing is computed for pairs of words of different topics, of which there are far more.
    """
    lists = [documents.indices[documents.indptr[w] : documents.indptr[w + 1]] for w in columns]
    together = np.empty((len(lists), len(lists)))
    for i, own in enumerate(lists):
        mark[own] = True
        for j in range(i, len(lists)):
            together[i, j] = together[j, i] = np.count_nonzero(mark[lists[j]])
        mark[own] = False
    return together


def _umass(together, n):
    """Mean of log((D(i, j) + 1) / D(j)), j before i; pairs whose j is in no document are left out."""
    j, i = np.triu_indices(len(together), k=1)
    alone = together.diagonal()[j]
    j, i, alone = j[alone > 0], i[alone > 0], alone[alone > 0]
    return np.log((together[i, j] + 1) / alone).mean() if len(alone) else np.nan


def _npmi(together, n):
    """Mean of log(p(i, j) / (p(i) p(j))) / -log p(i, j), with the limits -1 at p = 0 and 1 at p = 1."""
    alone = together.diagonal()
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = np.log(together * n / np.outer(alone, alone)) / -np.log(together / n)
    pairs = np.where(together == 0, -1.0, np.where(together == n, 1.0, pairs))
    return pairs[np.triu_indices(len(pairs), k=1)].mean()


def c_v(together, n):
    """Mean cosine between the vector of NPMI of each word with all, itself included, and their sum."""
    npmi = _smoothed_npmi(together, n)
    total = npmi.sum(axis=0)
    lengths = np.linalg.norm(npmi, axis=1) * np.linalg.norm(total)
    return np.divide(npmi @ total, lengths, out=np.zeros(len(npmi)), where=lengths > 0).mean()


def c_npmi(together, n):
    """Mean over pairs of `_smoothed_npmi`."""
    return _smoothed_npmi(together, n)[np.triu_indices(len(together), k=1)].mean()


def _smoothed_npmi(together, n):
    """NPMI of all pairs with 1e-12 added to p(i, j); 0 where a word does not occur."""
    p = together / n
    apart = np.outer(p.diagonal(), p.diagonal())
    ratios = np.divide(p + _EPSILON, apart, out=np.ones(p.shape), where=apart > 0)
    # Where p = 1 this is -1 instead of the limit 1; such words have 0 with all others, so no cosine changes.
    return np.log(ratios) / -np.log(p + _EPSILON)
