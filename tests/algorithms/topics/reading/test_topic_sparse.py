"""Inference with many topics: the sums over non-zero counts, against enumeration and the dense kernels."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms.topics import inference, model
from stradask.algorithms.topics.inference import FixedTopics, topic_shares
from stradask.errors import DataError

BETA = np.array([0.1, 0.3, 0.1, 0.5, 0.1])
COUNTS = np.array([[9, 1, 0], [0, 6, 2], [3, 4, 9], [1, 0, 5], [0, 1, 0]])
CASES = {
    "plain": ([0.3, 0.9, 0.1], [1, 2, 2, 1, 0]),
    "a repeated word": ([0.2, 0.2, 0.2], [0, 0, 6, 0, 0]),
    "two modes": ([0.05, 0.05, 0.05], [0, 0, 5, 0, 2]),
    "one token": ([0.3, 0.9, 0.1], [0, 0, 0, 1, 0]),
    # Topics without counts of the words: what comes from the priors alone.
    "strong priors": ([5.0, 2.0, 9.0], [2, 0, 0, 0, 3]),
}


@pytest.fixture
def always(monkeypatch):
    """Take the kernels for many topics for any number of them."""
    monkeypatch.setattr(inference, "SPARSE_TOPICS", 0)
    monkeypatch.setattr(model, "SPARSE_TOPICS", 0)


def _topics(alpha, counts=COUNTS, beta=BETA):
    return FixedTopics(sparse.csr_array(counts.astype(np.int32)), np.array(alpha, float), beta)


def _posterior_mean(alpha, document):
    """E[theta | w] by its definition: the sum over every assignment."""
    phi = (COUNTS + BETA[:, None]) / (COUNTS.sum(axis=0) + BETA.sum())
    words, alpha = np.repeat(np.arange(5), document), np.array(alpha)
    mean, mass = np.zeros(3), 0.0
    for z in itertools.product(range(3), repeat=len(words)):
        counts = np.bincount(z, minlength=3)
        p = np.exp(gammaln(counts + alpha).sum()) * phi[words, list(z)].prod()
        mean, mass = mean + p * (counts + alpha) / (len(words) + alpha.sum()), mass + p
    return mean / mass


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", CASES)
def test_shares_are_the_enumerated_posterior_mean(case):
    alpha, document = CASES[case]
    X = sparse.csr_array(np.array([document], np.int32))
    answers = np.array(
        [topic_shares(_topics(alpha), X, n_sweeps=4000, random_state=s, n_jobs=1)[0] for s in range(60)]
    )
    error = answers.std(axis=0) / np.sqrt(len(answers))
    assert error.max() < 0.004
    assert (abs(answers.mean(axis=0) - _posterior_mean(alpha, document)) < 4 * error + 1e-6).all()
    np.testing.assert_allclose(answers.sum(axis=1), 1, rtol=1e-6)


@pytest.fixture(scope="module")
def corpus():
    X = sd.datasets.make_lda_corpus(400, n_features=500, n_components=8, mean_length=60, random_state=0)[0]
    return sparse.csr_array(X)


@pytest.fixture(scope="module")
def fitted(corpus):
    return sd.LatentDirichletAllocation(300, doc_topic_prior=0.02, max_iter=20, random_state=0).fit(corpus)


def test_a_document_has_the_shares_that_dense_rows_give(fitted, corpus, monkeypatch):
    X = corpus[:20]
    dense = [topic_shares(FixedTopics.of(fitted), X, n_sweeps=2000, random_state=s, n_jobs=1) for s in (1, 2)]
    monkeypatch.setattr(inference, "SPARSE_TOPICS", 0)
    many = topic_shares(FixedTopics.of(fitted), X, n_sweeps=2000, random_state=1, n_jobs=1)
    noise, found = (abs(dense[0] - other).sum(axis=1).mean() / 2 for other in (dense[1], many))
    assert found < 2 * noise + 0.005


@pytest.mark.usefixtures("always")
def test_shares_depend_on_the_document_and_the_seed_alone(fitted, corpus):
    X = corpus[:60]
    theta = fitted.transform(X)
    np.testing.assert_array_equal(theta[::-1], fitted.transform(X[::-1]))
    np.testing.assert_array_equal(theta[29:41], fitted.transform(X[29:41]))
    fitted.n_jobs = 2
    np.testing.assert_array_equal(theta, fitted.transform(X))
    fitted.n_jobs = None


@pytest.mark.usefixtures("always")
def test_documents_beyond_one_lot_of_random_numbers_and_without_words():
    """With alpha towards infinity the tokens are independent, and the shares are the prior's."""
    X = sparse.csr_array(np.array([[3000, 4000, 0, 5000, 1], [0, 0, 0, 0, 0]], np.int32))
    theta = topic_shares(_topics([2e8, 5e8, 3e8]), X, n_sweeps=10, random_state=0, n_jobs=1)
    np.testing.assert_allclose(theta, [[0.2, 0.5, 0.3]] * 2, atol=1e-4)


def test_document_completion_is_that_of_dense_rows(fitted, corpus, monkeypatch):
    test = sparse.csr_array(corpus[100:200])
    dense = fitted.score(test)
    monkeypatch.setattr(model, "SPARSE_TOPICS", 0)
    assert fitted.score(test) == pytest.approx(dense, rel=1e-6)
    fitted.n_jobs = 3
    assert fitted.score(test) == pytest.approx(dense, rel=1e-6)
    fitted.n_jobs = None


def test_a_hundred_thousand_topics(corpus):
    """More than dense rows of words and topics could hold here: 60 million entries for what `score` needs."""
    lda = sd.LatentDirichletAllocation(
        100_000, sampler="light", doc_topic_prior=5e-4, max_iter=3, random_state=0
    )
    lda.fit(corpus)
    theta = lda.transform(corpus[:3], n_sweeps=20)
    np.testing.assert_allclose(theta.sum(axis=1), 1)
    assert np.isfinite(lda.score(corpus[:5]))


# --- labels of new documents --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled(corpus):
    """A fit of 8 topics, and labels of the same documents: two or three of them."""
    rng = np.random.default_rng(0)
    labels = rng.random((corpus.shape[0], 8)).argsort(axis=1) < rng.integers(2, 4, (corpus.shape[0], 1))
    lda = sd.LatentDirichletAllocation(8, doc_topic_prior=0.3, max_iter=20, random_state=0)
    return lda.fit(corpus, doc_labels=labels), labels.astype(int)


def test_shares_with_labels_are_those_of_a_model_of_these_topics(labelled, corpus):
    """The posterior with some topics left out is that under the rest of phi, which keep their totals."""
    lda, labels = labelled
    X = corpus[:30]
    found = lda.transform(X, n_sweeps=4000, doc_labels=labels[:30])
    assert (found[labels[:30] == 0] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    for d in range(5):
        own = np.flatnonzero(labels[d])
        words = np.flatnonzero(X[[d]].toarray()[0])
        phi = lda.topic_word_[np.ix_(own, words)]
        # Gibbs sampling over single tokens in the plainest form.
        rng, tokens = np.random.default_rng(d), np.repeat(np.arange(len(words)), X[[d]].toarray()[0][words])
        z, mean = rng.integers(0, len(own), len(tokens)), np.zeros(len(own))
        counts = np.bincount(z, minlength=len(own)).astype(float)
        for sweep in range(600):
            for i, w in enumerate(tokens):
                counts[z[i]] -= 1
                p = ((counts + 0.3) * phi[:, w]).cumsum()
                z[i] = np.searchsorted(p, rng.random() * p[-1], side="right")
                counts[z[i]] += 1
            mean += (counts + 0.3) * (sweep >= 100)
        np.testing.assert_allclose(found[d, own], mean / mean.sum(), atol=0.03)


def test_weights_of_labels_multiply_alpha(labelled):
    lda, _ = labelled
    weights = np.array([[0, 2.0, 0, 6.0, 0, 0, 0, 0]])
    theta = lda.transform(np.zeros((1, 500), int), doc_labels=weights)
    np.testing.assert_allclose(theta, weights / 8, rtol=1e-6)


def test_all_labels_are_no_labels(labelled, corpus):
    lda, labels = labelled
    X, ones = corpus[:50], np.ones((50, 8))
    known = np.diff(lda.word_topic_counts_.indptr)[X.indices] > 0
    assert known.all()
    apart = abs(lda.transform(X, n_sweeps=3000, doc_labels=ones) - lda.transform(X, n_sweeps=3000)).sum(
        axis=1
    )
    assert apart.mean() / 2 < 0.02
    assert lda.score(X, doc_labels=ones) == pytest.approx(lda.score(X), rel=1e-6)
    assert lda.score(X, doc_labels=labels[:50]) > lda.score(X, doc_labels=1 - labels[:50])
    assert lda.perplexity(X, doc_labels=ones) == pytest.approx(lda.perplexity(X), rel=1e-5)


def test_shares_with_labels_do_not_depend_on_company_or_threads(labelled, corpus):
    lda, labels = labelled
    X, labels = corpus[:60], sparse.csr_array(labels[:60])
    theta = lda.transform(X, doc_labels=labels)
    np.testing.assert_array_equal(theta[::-1], lda.transform(X[::-1], doc_labels=labels[::-1]))
    score = lda.score(X, doc_labels=labels)
    lda.n_jobs = 3
    np.testing.assert_array_equal(theta, lda.transform(X, doc_labels=labels))
    assert lda.score(X, doc_labels=labels) == score
    lda.n_jobs = None


def test_fit_transform_keeps_to_the_labels(corpus):
    labels = np.eye(4, dtype=int)[np.arange(corpus.shape[0]) % 4]
    theta = sd.LatentDirichletAllocation(4, max_iter=3, random_state=0).fit_transform(
        corpus, doc_labels=labels
    )
    np.testing.assert_allclose(theta, labels)


@pytest.mark.parametrize("method", ["transform", "score", "perplexity"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ones((3, 8)), r"doc_labels has the shape \(3, 8\)"),
        (np.zeros((2, 8)), "doc_labels allows no topic in row 0"),
        (-np.ones((2, 8)), "doc_labels holds -1.0 at row 0"),
    ],
    ids=["shape", "none", "negative"],
)
def test_labels_that_cannot_be_are_named(labelled, corpus, method, labels, message):
    with pytest.raises(DataError, match=message):
        getattr(labelled[0], method)(corpus[:2], doc_labels=labels)
