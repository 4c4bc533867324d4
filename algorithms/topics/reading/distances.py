"""Distances between topics, from their counts and the prior."""

import numpy as np
from scipy import sparse

from .top_words import topic_totals

METRICS = ("jensen-shannon", "hellinger", "cosine")
_CELLS = 1 << 20  # of a matrix that is dense for a moment


def topic_distances(word_topic, beta, metric):
    """Distances between the word distributions phi of topics (`TopicModel.topic_distances`).

    `word_topic` is CSR, n_features x n_components. The result is symmetric, with zeros on the diagonal.
    """
    counts = sparse.csr_array(word_topic).astype(np.float64)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    of = {"jensen-shannon": _jensen_shannon, "hellinger": _hellinger, "cosine": _cosine}[metric]
    distances = of(counts, beta)
    # Exactly symmetric, as scipy's squareform asks; in place, as the matrix may be large.
    for k in range(len(distances)):
        distances[k, k] = 0
        distances[k + 1 :, k] = distances[k, k + 1 :]
    return distances


def _hellinger(counts, beta):
    """sqrt(1 - sum_w sqrt(phi_kw phi_jw))."""
    roots = counts.copy()
    at = beta[_rows(counts)]
    roots.data = np.sqrt(counts.data + at) - np.sqrt(at)
    products = _products(roots, np.sqrt(beta))
    scale = 1 / np.sqrt(topic_totals(counts) + beta.sum())
    products *= scale * scale[:, None]
    return np.sqrt(np.clip(1 - products, 0, 1, out=products), out=products)


def _cosine(counts, beta):
    """1 - sum_w phi_kw phi_jw / (|phi_k| |phi_j|)."""
    products = _products(counts, beta)
    scale = 1 / np.sqrt(products.diagonal())
    products *= scale * scale[:, None]
    return np.clip(1 - products, 0, 1, out=products)


def _products(columns, base):
    """sum_w (a_wk + b_w)(a_wj + b_w) of a sparse matrix a and a vector b, all pairs of columns."""
    by_column = sparse.csr_array(columns.T)
    once = columns.T @ base
    products = np.empty((columns.shape[1], columns.shape[1]))
    step = max(1, _CELLS // columns.shape[1])
    for start in range(0, len(products), step):
        part = slice(start, start + step)
        products[part] = (by_column[part] @ columns).toarray()
        products[part] += once[part, None] + once + base @ base
    return products


def _jensen_shannon(counts, beta):
    """sqrt(sum_w (h(p_w) + h(q_w)) / 2 - h((p_w + q_w) / 2)), h(x) = x log x, p and q of two topics.

    The words of the last term are those with a count in the one topic, those with a count in the other,
    less those with both; and those with neither, of which only the sums of beta and of beta log beta are
    needed, because there p and q are beta_w times a number each. A row below holds half of what is
    symmetric and the whole of what is seen from its topic, so that row and column add up.
    """
    totals = topic_totals(counts) + beta.sum()
    by_topic = counts.tocsc()
    own = _negative_entropies(counts, beta, totals)
    prior = np.column_stack([beta, beta * np.log(beta)])
    held = (by_topic.T > 0) @ prior  # over the words with a count in the topic
    free = prior.sum(axis=0) - held
    halves = np.empty((len(totals), len(totals)))
    for k, half in enumerate(halves):
        words = by_topic.indices[by_topic.indptr[k] : by_topic.indptr[k + 1]]
        one_sided, both_sided, shared = _mixtures(k, words, counts, beta, totals, prior)
        neither = free[k, :, None] - held.T + shared
        scale = 1 / totals[k] + 1 / totals
        mixed = one_sided - both_sided / 2 + scale * (neither[1] + neither[0] * np.log(scale / 2)) / 2
        half[:] = (own[k] + own) / 4 - mixed / 2
    halves += halves.T
    return np.sqrt(np.clip(halves, 0, np.log(2), out=halves), out=halves)


def _mixtures(k, words, counts, beta, totals, prior):
    """Sum (p + q) log((p + q) / 2) of topic k and of each over the words of k, and over those of both.

    The third is the sum of `prior` over the words of both. A few rows of `counts` at a time.
    """
    one_sided, both_sided = np.zeros((2, len(totals)))
    shared = np.zeros((2, len(totals)))
    step = max(1, _CELLS // len(totals))
    for start in range(0, len(words), step):
        part = words[start : start + step]
        block = counts[part].toarray()
        both = block > 0
        block += beta[part, None]
        block /= totals
        block += block[:, k, None].copy()
        block *= np.log(block / 2)
        one_sided += block.sum(axis=0)
        both_sided += block.sum(axis=0, where=both)
        shared += prior[part].T @ both
    return one_sided, both_sided, shared


def _negative_entropies(counts, beta, totals):
    """sum_w phi_kw log phi_kw of each topic."""
    at = beta[_rows(counts)]
    gain = counts.copy()
    gain.data = (counts.data + at) * np.log(counts.data + at) - at * np.log(at)
    return (topic_totals(gain) + beta @ np.log(beta)) / totals - np.log(totals)


def _rows(matrix):
    """Row of each entry of a CSR array."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
