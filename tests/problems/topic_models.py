"""Topic models of given counts."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.spatial.distance import cosine, jensenshannon, pdist, squareform

import stradask as sd

few = settings(max_examples=60, deadline=None)


def model(word_topic, doc_topic=None, beta=0.01, alpha=0.1):
    """A fitted model of given counts, dense words x topics and documents x topics."""
    word_topic = np.asarray(word_topic)
    n_features, n_components = word_topic.shape
    doc_topic = word_topic.sum(axis=0, keepdims=True) if doc_topic is None else np.asarray(doc_topic)
    lda = sd.LatentDirichletAllocation(n_components, random_state=0)
    lda.n_features_in_ = n_features
    lda.word_topic_counts_ = sparse.csr_array(word_topic)
    lda.doc_topic_counts_ = sparse.csr_array(doc_topic)
    lda.topic_word_prior_ = np.broadcast_to(np.float64(beta), n_features).copy()
    lda.doc_topic_prior_ = np.broadcast_to(np.float64(alpha), n_components).copy()
    return lda


@st.composite
def models(draw, min_topics=1):
    """Small models with many ties, topics without tokens and words without tokens."""
    n_features, n_components = draw(st.integers(1, 9)), draw(st.integers(min_topics, 5))
    counts = draw(arrays(np.int64, (n_features, n_components), elements=st.sampled_from([0, 0, 0, 1, 2, 7])))
    counts[0, 0] += 1  # a model has a token
    if draw(st.booleans()):
        return model(counts, beta=draw(st.sampled_from([0.01, 0.5, 3.0])))
    return model(
        counts, beta=draw(arrays(np.float64, n_features, elements=st.sampled_from([0.01, 0.1, 2.0])))
    )


PAIRWISE = {
    "jensen-shannon": jensenshannon,
    "hellinger": lambda p, q: np.linalg.norm(np.sqrt(p) - np.sqrt(q)) / np.sqrt(2),
    "cosine": cosine,
}


def check_distances(lda, metric):
    found = lda.topic_distances(metric)
    used = np.asarray(lda.word_topic_counts_.sum(axis=0)).ravel() > 0
    assert np.isnan(found[~(used & used[:, None]) & ~np.eye(len(used), dtype=bool)]).all()
    found = found[np.ix_(used, used)]
    expected = squareform(pdist(lda.topic_word_[used], PAIRWISE[metric])) if used.sum() > 1 else 0.0
    # 1 - x keeps 16 digits of x: roots of what is left have half of them.
    np.testing.assert_allclose(found, expected, atol=3e-8, rtol=1e-7)
    np.testing.assert_array_equal(found, found.T)
    assert (found.diagonal() == 0).all()


def larger_model():
    """Larger than a block of columns after its limit is lowered, with sparse and empty topics."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.05, 8, size=(60, 40)))
    counts[:, 7] = 0
    counts[:5] = 0
    return model(counts, beta=rng.uniform(0.01, 0.3, size=60))
