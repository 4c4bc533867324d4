"""Small corpora of known topics, and models for them."""

from scipy import sparse
from scipy.special import gammaln

import stradask as sd
from stradask.datasets.generators import make_lda_corpus


def made_corpus(*args, **options):
    X, *truth = make_lda_corpus(*args, **{"n_common_words": 3, **options})
    return sparse.csr_array(X), *truth


def small_lda(n_components=5, **options):
    return sd.LatentDirichletAllocation(n_components, **{"max_iter": 20, "random_state": 0, **options})


def dense_counts(model):
    return model.word_topic_counts_.toarray()


def joint_by_definition(model, X):
    """log p(w, z) per token in the plainest form."""
    alpha, beta = model.doc_topic_prior_, model.topic_word_prior_
    doc, word = model.doc_topic_counts_.toarray(), model.word_topic_counts_.toarray()
    total = len(doc) * gammaln(alpha.sum()) - gammaln(doc.sum(axis=1) + alpha.sum()).sum()
    total += (gammaln(doc + alpha) - gammaln(alpha)).sum()
    total += len(alpha) * gammaln(beta.sum()) - gammaln(word.sum(axis=0) + beta.sum()).sum()
    total += (gammaln(word + beta[:, None]) - gammaln(beta[:, None])).sum()
    return total / X.sum()
