"""Fitting the Dirichlet priors of a topic model to its counts."""

import numpy as np
from scipy import sparse
from scipy.special import digamma, gammaln

_SMALLEST = 1e-6  # a share without tokens shrinks towards zero, where the fixed point has no gradient


def fit_doc_topic_prior(doc_topic, alpha, n_steps=5, labels=None):
    """Raise the likelihood of document-topic counts in alpha, one weight a topic.

    Minka's fixed point for the Dirichlet-multinomial::

        alpha_k <- alpha_k sum_d [psi(C_dk + alpha_k) - psi(alpha_k)] / sum_d [psi(L_d + A) - psi(A)]

    Only non-zero counts enter the upper sum; documents without tokens enter neither. With `labels`, CSR of
    n_documents x n_components, a document's alpha is m_dk alpha_k: each term is then weighted by m_dk, and
    topics that no document with words may have keep their alpha.

    References: T. Minka, "Estimating a Dirichlet distribution", 2000; Wallach, Mimno, McCallum, "Rethinking
    LDA: why priors matter", NIPS 2009.
    """
    if labels is not None:
        return _fit_labelled(doc_topic, alpha, n_steps, labels)
    lengths = tally_values(np.asarray(doc_topic.sum(axis=1)).ravel())
    return fit_tallied_doc_topic_prior(tally(doc_topic), lengths, alpha, n_steps)


def fit_tallied_doc_topic_prior(counts, lengths, alpha, n_steps=5):
    """As `fit_doc_topic_prior`, from how often each topic's counts (`tally`) and each length occur."""
    (topics, counts, times), (lengths, documents) = counts, lengths
    documents = np.where(lengths > 0, documents, 0)
    for _ in range(n_steps):
        terms = times * (digamma(counts + alpha[topics]) - digamma(alpha)[topics])
        upper = np.bincount(topics, weights=terms, minlength=len(alpha))
        lower = (documents * (digamma(lengths + alpha.sum()) - digamma(alpha.sum()))).sum()
        if lower <= 0:  # alpha is so large that the counts no longer tell
            break
        alpha = np.maximum(alpha * upper / lower, _SMALLEST)
    return alpha


def tally(counts):
    """Count how often each count of each topic occurs in a CSR matrix.

    Returns topics, their counts, and how often: in order, no pair twice.
    """
    width = int(counts.data.max(initial=0)) + 1
    pairs, times = np.unique(counts.indices.astype(np.int64) * width + counts.data, return_counts=True)
    return pairs // width, pairs % width, times


def tally_values(values):
    """Count how often each value occurs; two int64 arrays, values in order."""
    found, times = np.unique(np.asarray(values, np.int64), return_counts=True)
    return found, times


def merged(tallies):
    """Add up tallies of either kind."""
    *names, times = (np.concatenate(part) for part in zip(*tallies, strict=True))
    different, place = np.unique(np.stack(names), axis=1, return_inverse=True)
    added = np.zeros(different.shape[1], np.int64)
    np.add.at(added, place.ravel(), times)
    return (*different, added)


def _fit_labelled(doc_topic, alpha, n_steps, labels):
    """The same with an alpha of its own for each document, ``m_dk alpha_k``."""
    lengths = np.asarray(doc_topic.sum(axis=1)).ravel()
    doc_topic = doc_topic.sorted_indices()
    weights = sparse.csr_array(labels.multiply(doc_topic > 0)).sorted_indices().data  # entry by entry
    topics = doc_topic.indices
    for _ in range(n_steps):
        own = weights * alpha[topics]
        terms = weights * (digamma(doc_topic.data + own) - digamma(own))
        upper = np.bincount(topics, weights=terms, minlength=len(alpha))
        sums = labels @ alpha
        lower = labels.T @ (digamma(lengths + sums) - digamma(sums))
        known = lower > 0
        alpha = np.where(known, np.maximum(alpha * upper / np.where(known, lower, 1), _SMALLEST), alpha)
    return alpha


def fit_topic_word_prior(word_topic, beta, n_steps=5, seeds=None):
    """Raise the likelihood of word-topic counts in one common beta.

    The same fixed point with beta equal for all words; `word_topic` is a CSR matrix of shape
    (n_features, n_components), `beta` a positive float. `seeds`, of that shape, is what seed words add to it:
    the bounds of the fixed point hold with it too.
    """
    n_words = word_topic.shape[0]
    totals = np.asarray(word_topic.sum(axis=0)).ravel()
    if seeds is None:
        return fit_tallied_topic_word_prior(tally_values(word_topic.data), totals, n_words, beta, n_steps)
    held, more = _seeded_counts(word_topic, seeds)
    more_sums = np.asarray(seeds.sum(axis=0)).ravel()
    for _ in range(n_steps):
        upper = (digamma(word_topic.data + beta) - digamma(beta)).sum()
        upper += (digamma(held + beta + more) - digamma(beta + more)).sum()
        upper -= (digamma(held + beta) - digamma(beta)).sum()
        sums = n_words * beta + more_sums
        lower = n_words * (digamma(totals + sums) - digamma(sums)).sum()
        if lower <= 0:
            break
        beta = max(beta * upper / lower, _SMALLEST)
    return beta


def seeded_word_part(word_topic, beta, seeds):
    """Sum over words and topics of lnG(C_wk + beta + seed_wk) - lnG(beta + seed_wk)."""
    held, more = _seeded_counts(word_topic, seeds)
    total = (gammaln(word_topic.data + beta) - gammaln(beta)).sum()
    total += (gammaln(held + beta + more) - gammaln(beta + more) - gammaln(held + beta) + gammaln(beta)).sum()
    return float(total)


def _seeded_counts(word_topic, seeds):
    """The counts of words and topics that have a seed, and what the seed adds, side by side."""
    both = sparse.csr_array(seeds.multiply(word_topic > 0)).sorted_indices()
    return sparse.csr_array(word_topic.multiply(both > 0)).sorted_indices().data, both.data


def fit_tallied_topic_word_prior(counts, totals, n_words, beta, n_steps=5):
    """As `fit_topic_word_prior`, from how often each count (`tally_values`) occurs, and the topic totals."""
    counts, times = counts
    for _ in range(n_steps):
        upper = (times * (digamma(counts + beta) - digamma(beta))).sum()
        lower = n_words * (digamma(totals + n_words * beta) - digamma(n_words * beta)).sum()
        if lower <= 0:
            break
        beta = max(beta * upper / lower, _SMALLEST)
    return beta
