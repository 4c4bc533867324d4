"""Topic shares of new documents, against the enumerated posterior."""

import itertools
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms.topics.inference import FixedTopics, topic_shares
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError

BETA = 0.1
COUNTS = {
    2: np.array([[9, 1], [0, 6], [3, 4], [1, 0], [0, 1]]),
    3: np.array([[9, 1, 0], [0, 6, 2], [3, 4, 9], [1, 0, 5], [0, 1, 1]]),
}
CASES = {
    "two topics": ([0.4, 0.4], [2, 2, 0, 1, 1]),
    "three topics": ([0.3, 0.9, 0.1], [1, 2, 2, 1, 0]),
    "a repeated word": ([0.2, 0.2, 0.2], [0, 0, 6, 0, 0]),
    "two modes": ([0.05, 0.05], [0, 0, 7, 0, 0]),
    "one token": ([0.3, 0.9, 0.1], [0, 0, 0, 1, 0]),
}


def _topics(alpha, counts=None):
    counts = COUNTS[len(alpha)] if counts is None else counts
    return FixedTopics(sparse.csr_array(counts, dtype=np.int32), np.array(alpha), np.full(len(counts), BETA))


def _rows(*documents):
    return sparse.csr_array(np.array(documents, np.int32))


def _shares(topics, X, n_sweeps, seed=0):
    return topic_shares(topics, X, n_sweeps=n_sweeps, random_state=seed, n_jobs=1)


def _posterior_mean(alpha, document):
    """E[theta | w] by its definition: the sum over every assignment."""
    alpha, n_topics = np.array(alpha), len(alpha)
    components = COUNTS[n_topics].T + BETA
    phi = components / components.sum(axis=1, keepdims=True)
    words = np.repeat(np.arange(phi.shape[1]), document)
    mean, mass = np.zeros(n_topics), 0.0
    for z in itertools.product(range(n_topics), repeat=len(words)):
        counts = np.bincount(z, minlength=n_topics)
        p = np.exp(gammaln(counts + alpha).sum()) * phi[list(z), words].prod()
        mean, mass = mean + p * (counts + alpha) / (len(words) + alpha.sum()), mass + p
    return mean / mass


@pytest.mark.parametrize("case", CASES)
def test_shares_are_the_enumerated_posterior_mean(case):
    alpha, document = CASES[case]
    expected, topics, X = _posterior_mean(alpha, document), _topics(alpha), _rows(document)
    answers = np.array([_shares(topics, X, 4000, seed)[0] for seed in range(60)])
    error = answers.std(axis=0) / np.sqrt(len(answers))
    assert error.max() < 0.004
    assert (abs(answers.mean(axis=0) - expected) < 4 * error + 1e-6).all()


@pytest.mark.parametrize("document", [[15, 20, 20, 10, 5], [0, 40, 100, 0, 20], [1, 0, 2, 0, 0]], ids=str)
def test_shares_of_two_topics_follow_from_a_polynomial(document):
    """The coefficients of prod_n (phi_0 x + phi_1) sum over all assignments of equal counts."""
    alpha, coefficients = np.array([0.3, 0.6]), np.ones(1)
    components = COUNTS[2].T + BETA
    phi = components / components.sum(axis=1, keepdims=True)
    for word in np.repeat(np.arange(5), document):
        coefficients = np.convolve(coefficients, phi[::-1, word])
    first = np.arange(len(coefficients))
    log_p = np.log(coefficients) + gammaln(first + alpha[0]) + gammaln(first[::-1] + alpha[1])
    p = np.exp(log_p - log_p.max())
    expected = (p @ first / p.sum() + alpha[0]) / (len(first) - 1 + alpha.sum())
    answers = np.array([_shares(_topics(alpha), _rows(document), 2000, seed)[0, 0] for seed in range(40)])
    error = answers.std() / np.sqrt(len(answers))
    assert error < 0.001
    assert abs(answers.mean() - expected) < 4 * error


def test_the_error_falls_with_the_root_of_the_sweeps():
    alpha, document = CASES["three topics"]
    expected, topics, X = _posterior_mean(alpha, document), _topics(alpha), _rows(document)
    errors = []
    for n_sweeps in (100, 6400):
        answers = np.array([_shares(topics, X, n_sweeps, seed)[0] for seed in range(60)])
        errors.append(np.sqrt(((answers - expected) ** 2).mean()))
    assert errors[1] < errors[0] / 5  # an eighth, but for the noise


@pytest.fixture(scope="module")
def corpus():
    X = make_lda_corpus(400, n_features=500, n_components=8, mean_length=100, random_state=0)[0]
    return sparse.csr_array(X)


@pytest.fixture(scope="module")
def model(corpus):
    return sd.LatentDirichletAllocation(8, max_iter=40, exact=True, random_state=0).fit(corpus[:300])


@pytest.fixture(scope="module")
def new(model, corpus):
    """Documents of words that the model knows."""
    known = np.diff(model.word_topic_counts_.indptr) > 0
    X = sparse.csr_array(corpus[300:] * known)
    X.eliminate_zeros()
    return X


def test_two_hundred_sweeps_are_within_two_hundredths_of_a_long_chain(model, new):
    """Total variation: measured 0.018 here, with room for processors whose chains take other ways."""
    found = model.transform(new, n_sweeps=200)
    reference = topic_shares(FixedTopics.of(model), new, n_sweeps=2000, random_state=1, n_jobs=1)
    assert abs(found - reference).sum(axis=1).mean() / 2 < 0.024


@pytest.mark.parametrize("tol", [0.05, 0.02])
def test_sweeps_end_when_the_error_is_what_was_asked_for(model, new, tol):
    """Measured 0.91 and 1.06 of the tolerance; documents of few topics have noisy estimates."""
    found = model.transform(new, tol=tol)
    reference = topic_shares(FixedTopics.of(model), new, n_sweeps=6000, random_state=1, n_jobs=1)
    error = abs(found - reference).sum(axis=1).mean() / 2
    assert tol / 3 < error < 1.5 * tol


def test_documents_end_by_themselves_and_the_cap_ends_the_others(model, new):
    loose, longer = (model.transform(new, tol=0.05, n_sweeps=n) for n in (40, 60))
    ended = (loose == longer).all(axis=1)
    assert 0.2 < ended.mean() < 0.95
    first = int(np.flatnonzero(ended)[0])
    np.testing.assert_array_equal(model.transform(new[[first]], tol=0.05, n_sweeps=10_000)[0], loose[first])
    strict = model.transform(new, tol=1e-9, n_sweeps=40)
    assert (strict != loose)[ended].any(axis=1).mean() > 0.5
    np.testing.assert_array_equal(strict[~ended], loose[~ended])  # the cap ended both


def test_documents_of_two_modes_end_too_soon_without_a_bias():
    """Where both chains are in one mode they agree: errors are a few times the tolerance, here 0.045."""
    alpha, document = CASES["two modes"]
    expected, topics, X = _posterior_mean(alpha, document), _topics(alpha), _rows(document)
    found = np.array(
        [
            topic_shares(topics, X, n_sweeps=20_000, random_state=seed, n_jobs=1, tol=0.02)[0]
            for seed in range(60)
        ]
    )
    assert abs(found.mean(axis=0) - expected).max() < 0.03
    assert abs(found - expected).sum(axis=1).mean() / 2 < 0.08


@pytest.mark.parametrize("tol", [0, 1, -0.1, np.nan, True, "small"])
def test_a_tolerance_that_cannot_be_is_refused(model, new, tol):
    with pytest.raises(DataError, match="tol must be a number between 0 and 1, or None"):
        model.transform(new, tol=tol)


def test_shares_depend_on_the_document_and_the_seed_alone(model, new):
    theta = model.transform(new)
    np.testing.assert_array_equal(theta[::-1], model.transform(new[::-1]))
    np.testing.assert_array_equal(theta[29:71], model.transform(new[29:71]))
    np.testing.assert_array_equal(theta[50], model.transform(new[[50]].toarray())[0])
    again = pickle.loads(pickle.dumps(model)).set_params(n_jobs=2)
    np.testing.assert_array_equal(theta, again.transform(new))
    assert (theta != again.set_params(random_state=1).transform(new)).all(axis=1).all()


SCRIPT = """
import sys
import numpy as np
from scipy import sparse
from stradask.algorithms.topics.inference import FixedTopics, topic_shares
rng = np.random.default_rng(0)
topics = FixedTopics(sparse.csr_array(rng.poisson(1.0, (60, 300))), np.full(300, 0.1), np.full(60, 0.1))
X = sparse.csr_array(rng.poisson(1.0, (9, 60)).astype(np.int32))
sys.stdout.write(topic_shares(topics, X, n_sweeps=20, random_state=0, n_jobs=1).tobytes().hex())
"""


@pytest.mark.slow
def test_shares_are_the_same_bits_when_compiled_and_when_read_from_the_disk(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    answers = [subprocess.check_output(command, env=environment, text=True, timeout=300) for _ in range(2)]
    assert len(answers[0]) > 100
    assert answers[0] == answers[1]


def test_a_document_without_words_gets_the_priors_mean():
    theta = _shares(_topics([1.0, 2.0, 5.0]), _rows(np.zeros(5), [0, 1, 0, 0, 0], np.zeros(5)), 20)
    np.testing.assert_allclose(theta[[0, 2]], [[0.125, 0.25, 0.625]] * 2, rtol=1e-7)
    assert abs(theta[1] - theta[0]).max() > 0.01


def test_words_that_nobody_used_are_ignored_with_one_warning(corpus):
    X = sparse.hstack([corpus, sparse.csr_array((corpus.shape[0], 3), dtype=np.int32)]).tocsr()
    lda = sd.LatentDirichletAllocation(8, doc_topic_prior=np.arange(1, 9), max_iter=5, random_state=0).fit(X)
    plain, strange = X[:40].tolil(), X[:40].tolil()
    strange[3, -1], strange[3, -3], strange[20, -1] = 4, 1, 2
    plain[7, :], strange[7, :], strange[7, -2] = 0, 0, 5
    strange = strange.tocsr()
    before = strange.copy()
    with pytest.warns(UserWarning, match="12 tokens of X, of 3 words that did not occur in fit") as caught:
        theta = lda.transform(strange)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert (strange != before).nnz == 0
    np.testing.assert_array_equal(theta, lda.transform(plain))
    np.testing.assert_allclose(theta[7], np.arange(1, 9) / 36, rtol=1e-6)


def test_nothing_is_said_where_nothing_is_ignored(model, new):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.transform(new[:2])


def test_a_model_that_goes_on_is_read_anew(corpus, new):
    lda = sd.LatentDirichletAllocation(8, max_iter=5, random_state=0).fit(corpus)
    before = lda.transform(new)
    lda.partial_fit(corpus[:100])
    after = lda.transform(new)
    assert (before != after).all()
    np.testing.assert_array_equal(after, pickle.loads(pickle.dumps(lda)).transform(new))
    lda.doc_topic_prior_ = 5 * lda.doc_topic_prior_
    assert (lda.transform(new).max(axis=1) < after.max(axis=1)).mean() > 0.9


def test_counts_given_by_hand_may_hold_zeros_and_duplicates():
    X = _rows([1, 2, 2, 1, 0])
    clean = sparse.csr_array(np.array([[9, 1, 0], [0, 6, 2], [3, 4, 9], [1, 0, 5], [0, 0, 0]], np.int32))
    entries = np.array([9, 1, 0, 6, 2, 3, 1, 4, 8, 1, 5, 0], np.int32)
    topics = np.array([0, 1, 2, 1, 2, 0, 2, 1, 2, 0, 2, 1], np.int32)
    untidy = sparse.csr_array((entries, topics, np.array([0, 3, 5, 9, 11, 12], np.int32)), shape=(5, 3))
    np.testing.assert_array_equal(untidy.toarray(), clean.toarray())
    prior = np.array([0.3, 0.9, 0.1]), np.full(5, BETA)
    read = FixedTopics(untidy, *prior)
    assert read.unseen.tolist() == [False] * 4 + [True]
    np.testing.assert_array_equal(_shares(read, X, 50), _shares(FixedTopics(clean, *prior), X, 50))
    assert untidy.nnz == 12


@pytest.mark.parametrize("n_topics", [1, 15, 16, 17, 130])
def test_any_number_of_topics(n_topics):
    """A word that one topic alone knows: its share follows, whatever lane it lies in."""
    counts = np.ones((n_topics + 1, n_topics), np.int32) + 10**6 * np.eye(
        n_topics + 1, n_topics, dtype=np.int32
    )
    theta = _shares(
        _topics(np.full(n_topics, 0.1), counts), _rows(*(40 * np.eye(n_topics, n_topics + 1))), 10
    )
    np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.diag(theta), 40.1 / (40 + 0.1 * n_topics), rtol=1e-3)


def test_documents_beyond_one_lot_of_random_numbers():
    """With alpha towards infinity the tokens are independent, and the shares are the prior's."""
    theta = _shares(_topics([2e8, 5e8, 3e8]), _rows([3000, 4000, 0, 5000, 1]), 10)
    np.testing.assert_allclose(theta, [[0.2, 0.5, 0.3]], atol=1e-4)
    theta = _shares(_topics([0.1, 0.1]), _rows([9000, 0, 0, 9000, 0]), 20)
    np.testing.assert_allclose(theta, [[1, 0]], atol=1e-3)


def test_the_smallest_priors_give_numbers():
    lda = sd.LatentDirichletAllocation(3, doc_topic_prior=1e-30, topic_word_prior=1e-30, max_iter=3)
    theta = lda.fit(np.eye(4, dtype=int) * 50).transform([[1, 1, 1, 1], [9, 0, 0, 0]])
    np.testing.assert_allclose(theta.sum(axis=1), 1)


@pytest.mark.parametrize("n_sweeps", [9, 0, -1, 20.5, True, "many"])
def test_a_number_of_sweeps_that_cannot_be_is_refused(model, new, n_sweeps):
    with pytest.raises(DataError, match="n_sweeps must be an integer from 10"):
        model.transform(new, n_sweeps=n_sweeps)
