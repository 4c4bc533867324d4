"""Measures from which a number of topics is chosen: how much topics overlap, and how well they fit."""

import numpy as np
from scipy.special import gammaln, logsumexp

from ..blocks.draws import unpack

_DEPENDENT = 1e-13  # ratio of eigenvalues that rounding makes of 0
_WORDS = 4096  # at a time: no matrix of topics x words is made


def overlaps(probabilities, n_words):
    """Sums over words of p_k p_j, and of p_k log p_j, for all pairs of topics.

    ``probabilities(words)`` gives those of some words, words x topics.
    """
    products = logarithms = 0.0
    for first in range(0, n_words, _WORDS):
        part = probabilities(np.arange(first, min(first + _WORDS, n_words)))
        products = products + part.T @ part
        logarithms = logarithms + part.T @ np.log(part)
    return products, logarithms


def cao_juan(products):
    """Mean cosine of pairs of topics."""
    length = np.sqrt(products.diagonal())
    pairs = np.triu_indices(len(products), k=1)
    return float((products / np.outer(length, length))[pairs].mean()) if len(pairs[0]) else np.nan


def deveaud(logarithms):
    """Mean over pairs of topics of ``(KL(p_j, p_k) + KL(p_k, p_j)) / 2``."""
    own = logarithms.diagonal()
    divergence = own[:, None] - logarithms  # KL(p_j, p_k)
    pairs = np.triu_indices(len(own), k=1)
    return float((divergence + divergence.T)[pairs].mean() / 2) if len(pairs[0]) else np.nan


def arun(products, shares, lengths):
    """Symmetric Kullback-Leibler divergence of two descriptions of how topics share what is said.

    They are the singular values of topics x words, and the tokens of topics by the documents' shares, each
    in order and divided by its sum. Topics that are linearly dependent, as two without tokens are, make it
    infinite.
    """
    values = np.linalg.eigvalsh(products)[::-1]
    if values[-1] <= _DEPENDENT * values[0]:
        return np.inf
    values = np.sqrt(values)
    tokens = np.sort(lengths @ shares)[::-1]
    one, other = values / values.sum(), tokens / tokens.sum()
    return float(((one - other) * (np.log(one) - np.log(other))).sum())


def griffiths(found):
    """Logarithm of the harmonic mean of p(w | z) over draws, from the logarithms."""
    return float(np.log(len(found)) - logsumexp(-np.array(found)))


def log_words(draw, shape, seeds=None, kind="words"):
    """log p(w | z) of a draw, the topics' words integrated out; of its tokens of one kind."""
    counts = unpack(draw, kind, shape)
    beta = np.broadcast_to(draw["beta"], shape[0])
    rows = np.repeat(np.arange(shape[0]), np.diff(counts.indptr))
    prior, sums = beta[rows], np.full(shape[1], beta.sum())
    if seeds is not None:
        prior = prior + np.asarray(seeds[rows, counts.indices]).ravel()
        sums = sums + np.asarray(seeds.sum(axis=0)).ravel()
    totals = np.asarray(counts.sum(axis=0)).ravel()
    totals, sums = totals[totals > 0], sums[totals > 0]
    words = (gammaln(counts.data + prior) - gammaln(prior)).sum()
    return float(words + (gammaln(sums) - gammaln(totals + sums)).sum())
