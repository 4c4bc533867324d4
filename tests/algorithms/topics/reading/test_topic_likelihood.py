"""Estimates of the probability of whole documents, against enumeration and closed forms."""

import copy
import itertools
import os
import signal
import threading

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln, logsumexp

import stradask as sd
from stradask.algorithms.topics.inference import FixedTopics, log_probabilities
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError
from stradask.kernels.lda.documents.likelihood import _choose_by_weight

BETA = 0.1
# Topics that share words, of unequal sizes, so that no term of the formula is the same for all.
COUNTS = {
    2: np.array([[9, 1], [0, 6], [3, 4], [1, 0], [0, 1]]),
    3: np.array([[9, 1, 0], [0, 6, 2], [3, 4, 9], [1, 0, 5], [0, 1, 1]]),
}
ALPHA = {2: [0.4, 0.4], 3: [0.3, 0.9, 0.1]}
DOCUMENTS = {2: [2, 2, 0, 1, 1], 3: [1, 2, 1, 1, 0]}


def _topics(n_topics, alpha=None):
    counts = sparse.csr_array(COUNTS[n_topics].astype(np.int32))
    alpha = np.asarray(ALPHA[n_topics] if alpha is None else alpha, float)
    return FixedTopics(counts, alpha, np.full(len(COUNTS[n_topics]), BETA))


def _phi(n_topics):
    components = COUNTS[n_topics].T + BETA
    return components / components.sum(axis=1, keepdims=True)


def _rows(*documents):
    return sparse.csr_array(np.array(documents, np.int32))


def _estimate(topics, X, method="left-to-right", n_particles=20, n_moves=None, temperatures=100, seed=0):
    return log_probabilities(
        topics, X, method=method, n_particles=n_particles, n_moves=n_moves, temperatures=temperatures,
        random_state=seed, n_jobs=1,
    )  # fmt: skip


def _enumerated(n_topics):
    """log p(w) by its definition: the sum over every assignment."""
    phi, alpha = _phi(n_topics), np.array(ALPHA[n_topics])
    words = np.repeat(np.arange(phi.shape[1]), DOCUMENTS[n_topics])
    terms = []
    for z in itertools.product(range(n_topics), repeat=len(words)):
        counts = np.bincount(z, minlength=n_topics)
        prior = gammaln(alpha.sum()) - gammaln(alpha.sum() + len(words))
        prior += (gammaln(counts + alpha) - gammaln(alpha)).sum()
        terms.append(prior + np.log(phi[list(z), words]).sum())
    return logsumexp(terms)


def _ratios(n_topics, n_seeds, **options):
    """Estimates of p(w) over the exact value, one a seed."""
    topics, X = _topics(n_topics), _rows(DOCUMENTS[n_topics])
    logs = np.array([_estimate(topics, X, seed=seed, **options)[0] for seed in range(n_seeds)])
    return np.exp(logs - _enumerated(n_topics))


@pytest.mark.parametrize("n_topics", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"n_particles": 1},
        {"n_particles": 2, "n_moves": 0},
        {"n_particles": 4, "n_moves": 1},
        {"n_particles": 4},
        {"n_particles": 20},
        {"method": "annealed", "n_particles": 4, "temperatures": 32},
        {"method": "annealed", "n_particles": 100, "temperatures": [0.1, 0.4, 1.0]},
    ],
    ids=str,
)
def test_the_mean_of_the_estimates_is_the_probability(n_topics, options):
    """Within four standard errors, which are below two per cent."""
    ratios = _ratios(n_topics, 6000, **options)
    error = ratios.std() / np.sqrt(len(ratios))
    assert error < 0.02
    assert abs(ratios.mean() - 1) < 4 * error


@pytest.mark.parametrize("method", ["left-to-right", "annealed"])
def test_the_spread_falls_with_more_particles(method):
    few, many = (_ratios(3, 400, method=method, n_particles=n, temperatures=8) for n in (2, 32))
    assert many.std() < 0.4 * few.std()  # a quarter, but for the noise of both


def test_the_spread_falls_with_more_temperatures():
    few, many = (_ratios(3, 400, method="annealed", n_particles=2, temperatures=n) for n in (2, 64))
    assert many.std() < 0.4 * few.std()


@pytest.mark.parametrize("method", ["left-to-right", "annealed"])
def test_documents_of_no_word_and_of_one_word(method):
    """One token has ``sum_k alpha_k phi_kw / sum(alpha)``; left-to-right needs no luck for it."""
    single = np.eye(5, dtype=np.int32)
    found = _estimate(_topics(3), _rows(np.zeros(5), *single), method, n_particles=5000, temperatures=40)
    alpha = np.array(ALPHA[3])
    expected = np.log(alpha @ _phi(3) / alpha.sum())
    assert found[0] == 0
    np.testing.assert_allclose(found[1:], expected, rtol=1e-6 if method == "left-to-right" else 0.03)


@pytest.mark.parametrize("method", ["left-to-right", "annealed"])
def test_one_topic_leaves_nothing_to_estimate(method):
    topics = FixedTopics(sparse.csr_array([[5], [0], [2]], dtype=np.int32), np.array([0.7]), np.full(3, BETA))
    found = _estimate(topics, _rows([70, 3, 20]), method, n_particles=2, temperatures=7)
    assert found[0] == pytest.approx([70, 3, 20] @ np.log(np.array([5.1, 0.1, 2.1]) / 7.3), rel=1e-6)


def test_long_documents_under_a_prior_that_fixes_the_shares():
    """With alpha towards infinity the tokens are independent: p(w) = prod_n sum_k m_k phi_kw."""
    shares = np.array([0.2, 0.5, 0.3])
    document = np.array([400, 300, 100, 700, 50])
    found = _estimate(_topics(3, 1e9 * shares), _rows(document), n_particles=3, n_moves=4)
    assert found[0] == pytest.approx(document @ np.log(shares @ _phi(3)), rel=1e-6)


def _by_polynomial(document):
    """log p(w) of two topics: the coefficients of prod_n (phi_0 x + phi_1) sum over all z of equal counts."""
    phi, alpha, coefficients = _phi(2), np.array(ALPHA[2]), np.ones(1)
    for word in np.repeat(np.arange(5), document):
        coefficients = np.convolve(coefficients, phi[::-1, word])
    first = np.arange(len(coefficients))
    counts = np.column_stack([first, first[::-1]])
    prior = gammaln(alpha.sum()) - gammaln(alpha.sum() + len(first) - 1)
    prior += (gammaln(counts + alpha) - gammaln(alpha)).sum(axis=1)
    return logsumexp(prior + np.log(coefficients))


def test_the_polynomial_is_the_enumeration():
    assert _by_polynomial(DOCUMENTS[2]) == pytest.approx(_enumerated(2), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "spread"),
    [({"n_particles": 50}, 0.25), ({"method": "annealed", "n_particles": 50, "temperatures": 50}, 0.6)],
    ids=str,
)
def test_documents_of_two_topics_and_seventy_tokens(options, spread):
    document = np.array([15, 20, 20, 10, 5])
    topics, X, exact = _topics(2), _rows(document), _by_polynomial(document)
    ratios = np.exp([_estimate(topics, X, seed=seed, **options)[0] - exact for seed in range(300)])
    assert ratios.std() < spread
    assert abs(ratios.mean() - 1) < 4 * ratios.std() / np.sqrt(300)


@pytest.fixture(scope="module")
def corpus():
    X = make_lda_corpus(240, n_features=150, n_components=8, mean_length=40, random_state=0)[0]
    return sparse.csr_array(X)


@pytest.fixture(scope="module")
def model(corpus):
    return sd.LatentDirichletAllocation(8, max_iter=20, exact=True, random_state=0).fit(corpus)


def test_both_methods_agree_on_documents_beyond_enumeration(model, corpus):
    documents = corpus[np.flatnonzero(corpus.sum(axis=1) < 40)[:20]]
    one = model.log_probability(documents, n_particles=200)
    other = model.log_probability(documents, method="annealed", n_particles=50, temperatures=200)
    assert abs(one - other).max() < 1
    assert abs((one - other).mean()) < 0.1


@pytest.mark.parametrize("method", ["left-to-right", "annealed"])
def test_an_answer_depends_on_the_document_and_the_seed_alone(model, corpus, method):
    options = {"method": method, "n_particles": 3, "temperatures": 5}
    found = model.log_probability(corpus, **options)
    np.testing.assert_array_equal(found[::-1], model.log_probability(corpus[::-1], **options))
    np.testing.assert_array_equal(found[37:71], model.log_probability(corpus[37:71].toarray(), **options))
    threaded = sd.LatentDirichletAllocation(8, max_iter=20, exact=True, random_state=0, n_jobs=2).fit(corpus)
    np.testing.assert_array_equal(found, threaded.log_probability(corpus, **options))
    other = threaded.set_params(random_state=1).log_probability(corpus, **options)
    assert (found != other).mean() > 0.9


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("log_probability", {}),
        ("log_probability", {"n_moves": 2**24}),
        ("log_probability", {"method": "annealed", "temperatures": 2**20}),
        ("transform", {"n_sweeps": 2**24}),
    ],
    ids=str,
)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_long_document_does_not_keep_ctrl_c_waiting(model, method, options, n_jobs):
    """Each of these would take hours; after the interruption the same model answers as before."""
    lda = copy.copy(model).set_params(n_jobs=n_jobs)
    document = np.full((1, 150), 2, int)
    before = getattr(lda, method)(document)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        getattr(lda, method)(np.vstack([document, np.full((2, 150), 10_000)]), **options)
    timer.join()
    np.testing.assert_array_equal(getattr(lda, method)(document), before)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("stradask-aside")]


def test_particles_beyond_one_lot_of_random_numbers():
    topics, X = _topics(3), _rows(DOCUMENTS[3])
    assert _estimate(topics, X, n_particles=9001)[0] == pytest.approx(_enumerated(3), abs=0.05)


def test_words_that_nobody_used_have_the_probability_of_the_prior(corpus):
    X = sparse.hstack([corpus, sparse.csr_array((corpus.shape[0], 1), dtype=np.int32)]).tocsr()
    lda = sd.LatentDirichletAllocation(4, max_iter=5, random_state=0).fit(X)
    new = np.zeros((1, X.shape[1]), int)
    new[0, -1] = 1
    assert lda.log_probability(new)[0] == pytest.approx(np.log(lda.topic_word_[:, -1].mean()), rel=1e-6)


def test_the_smallest_priors_give_numbers():
    lda = sd.LatentDirichletAllocation(3, doc_topic_prior=1e-30, topic_word_prior=1e-30, max_iter=3)
    lda.fit(np.eye(4, dtype=int) * 50)
    for method in ("left-to-right", "annealed"):
        found = lda.log_probability([[1, 1, 1, 1], [9, 0, 0, 0]], method=method)
        assert np.isfinite(found).all()
        assert (found <= 0).all()


@pytest.mark.parametrize("weights", [[0.5, 0.1, 0.15, 0.25], [1.0, 0, 0, 0], [0, 0, 0, 1.0], [0.25] * 4])
def test_particles_are_drawn_by_their_weights_and_stay_in_place(weights):
    weights, total = np.array(weights), np.zeros(4)
    for u in (np.arange(200) + 0.5) / 200:
        ancestor = np.empty(4, np.int64)
        _choose_by_weight(weights, np.float32(u), ancestor)
        times = np.bincount(ancestor, minlength=4)
        assert (abs(times - 4 * weights) < 1 + 1e-9).all()
        assert (ancestor[times > 0] == np.flatnonzero(times)).all()
        total += times
    np.testing.assert_allclose(total / 200, 4 * weights, atol=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "harmonic"}, "'left-to-right' or 'annealed'"),
        ({"n_particles": 0}, "n_particles must be an integer from 1"),
        ({"n_particles": 2.5}, "n_particles must be an integer"),
        ({"n_particles": True}, "n_particles must be an integer"),
        ({"n_moves": -1}, "n_moves must be an integer from 0"),
        ({"method": "annealed", "temperatures": 0}, "temperatures must be an integer from 1"),
        ({"method": "annealed", "temperatures": []}, "temperatures must be a number of equal steps"),
        ({"method": "annealed", "temperatures": [0.0, 1.0]}, "rising numbers above 0"),
        ({"method": "annealed", "temperatures": [0.5, 0.2, 1.0]}, "rising numbers above 0"),
        ({"method": "annealed", "temperatures": [0.5, float("nan"), 1.0]}, "rising numbers above 0"),
        ({"method": "annealed", "temperatures": [0.5, 0.9]}, "the last is 1"),
        ({"method": "annealed", "temperatures": [[0.5, 1.0]]}, "temperatures must be"),
        ({"method": "annealed", "temperatures": "hot"}, "temperatures must be"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(model, corpus, options, message):
    with pytest.raises(DataError, match=message):
        model.log_probability(corpus[:2], **options)


def test_data_pass_the_same_door_as_in_fit(model):
    with pytest.raises(DataError, match="fractional"):
        model.log_probability(np.full((2, 150), 0.5))
    with pytest.raises(DataError, match="150"):
        model.log_probability(np.ones((2, 3), int))
