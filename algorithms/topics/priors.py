"""Fitting the Dirichlet priors of a topic model to its counts."""

import numpy as np
from scipy.special import digamma

_SMALLEST = 1e-6  # a share nobody uses shrinks towards zero, where the fixed point has no gradient


def fit_doc_topic_prior(doc_topic, alpha, n_steps=5):
    """Raise the likelihood of document-topic counts in alpha, one weight a topic.

    Minka's fixed point for the Dirichlet-multinomial::

        alpha_k <- alpha_k sum_d [psi(C_dk + alpha_k) - psi(alpha_k)] / sum_d [psi(L_d + A) - psi(A)]

    Only non-zero counts enter the upper sum; documents without tokens enter neither.

    Parameters
    ----------
    doc_topic : CSR matrix of shape (n_documents, n_components)
        Topic counts.
    alpha : ndarray of shape (n_components,)
    n_steps : int, default=5

    Returns
    -------
    ndarray of shape (n_components,)

    References
    ----------
    T. Minka, "Estimating a Dirichlet distribution", 2000; Wallach, Mimno, McCallum, "Rethinking
    LDA: why priors matter", NIPS 2009.
    """
    lengths = np.asarray(doc_topic.sum(axis=1)).ravel()
    lengths = lengths[lengths > 0]
    for _ in range(n_steps):
        terms = digamma(doc_topic.data + alpha[doc_topic.indices]) - digamma(alpha)[doc_topic.indices]
        upper = np.bincount(doc_topic.indices, weights=terms, minlength=len(alpha))
        lower = (digamma(lengths + alpha.sum()) - digamma(alpha.sum())).sum()
        if lower <= 0:  # alpha is so large that the counts no longer tell
            break
        alpha = np.maximum(alpha * upper / lower, _SMALLEST)
    return alpha


def fit_topic_word_prior(word_topic, beta, n_steps=5):
    """Raise the likelihood of word-topic counts in one common beta.

    The same fixed point with beta equal for all words; `word_topic` is a CSR matrix of shape
    (n_features, n_components), `beta` a positive float.
    """
    n_words = word_topic.shape[0]
    totals = np.asarray(word_topic.sum(axis=0)).ravel()
    for _ in range(n_steps):
        upper = (digamma(word_topic.data + beta) - digamma(beta)).sum()
        lower = n_words * (digamma(totals + n_words * beta) - digamma(n_words * beta)).sum()
        if lower <= 0:
            break
        beta = max(beta * upper / lower, _SMALLEST)
    return beta
