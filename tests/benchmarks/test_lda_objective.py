"""The outside judge of topic models, against direct computations."""

import math

import numpy as np
import pytest
from scipy import sparse

from stradask.benchmarks.objectives import lda as objective_lda
from stradask.errors import DataError


def chain_rule(documents, words, topics, shape, alpha, beta):
    """Log p(w, z) token by token: each from the counts of those before it (Polya's urn)."""
    n_documents, n_words = shape
    doc_topic = np.zeros((n_documents, len(alpha)))
    word_topic = np.zeros((n_words, len(alpha)))
    total = 0.0
    for d, w, k in zip(documents, words, topics, strict=True):
        total += math.log((doc_topic[d, k] + alpha[k]) / (doc_topic[d].sum() + alpha.sum()))
        total += math.log((word_topic[w, k] + beta[w]) / (word_topic[:, k].sum() + beta.sum()))
        doc_topic[d, k] += 1
        word_topic[w, k] += 1
    return total, doc_topic, word_topic


@pytest.fixture
def tokens():
    rng = np.random.default_rng(3)
    return rng.integers(0, 4, 40), rng.integers(0, 7, 40), rng.integers(0, 3, 40)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_joint_log_likelihood_is_the_product_of_predictive_probabilities(tokens, form):
    alpha, beta = np.array([0.1, 0.5, 2.0]), np.linspace(0.01, 0.3, 7)
    expected, doc_topic, word_topic = chain_rule(*tokens, (5, 7), alpha, beta)
    got = objective_lda.joint_log_likelihood(form(doc_topic), form(word_topic), alpha, beta)
    assert got == pytest.approx(expected, rel=1e-12)


def test_joint_log_likelihood_takes_symmetric_priors_as_numbers(tokens):
    expected, doc_topic, word_topic = chain_rule(*tokens, (5, 7), np.full(3, 0.1), np.full(7, 0.01))
    got = objective_lda.joint_log_likelihood(doc_topic, word_topic, 0.1, 0.01)
    assert got == pytest.approx(expected, rel=1e-12)


def test_joint_probabilities_of_all_assignments_and_words_sum_to_one():
    # Two documents of two and one tokens, two topics, two words: 2^3 words times 2^3 topics.
    documents = np.array([0, 0, 1])
    total = 0.0
    for code in range(64):
        bits = np.array([code >> i & 1 for i in range(6)])
        words, topics = bits[:3], bits[3:]
        doc_topic, word_topic = np.zeros((2, 2)), np.zeros((2, 2))
        np.add.at(doc_topic, (documents, topics), 1)
        np.add.at(word_topic, (words, topics), 1)
        total += math.exp(objective_lda.joint_log_likelihood(doc_topic, word_topic, [0.3, 1.1], [0.2, 0.7]))
    assert total == pytest.approx(1, rel=1e-12)


@pytest.fixture
def corpus(monkeypatch):
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.poisson(0.3, (60, 25)) * rng.integers(1, 4, (60, 25)))
    counts = counts[counts.sum(axis=1) > 0]
    monkeypatch.setattr(objective_lda, "load_counts", lambda name, seed: counts)
    return counts


def make_objective(seed=0, *, optimize_priors=False):
    parameters = {"n_components": 3, "doc_topic_prior": 0.1, "topic_word_prior": 0.01}
    parameters["optimize_priors"] = optimize_priors
    return objective_lda.Objective("any", seed=seed, parameters=parameters)


def brute_force_perplexity(topic_word, observed, held_out, alpha):
    total = 0.0
    for seen, unseen in zip(observed.toarray(), held_out.toarray(), strict=True):
        theta = np.full(len(topic_word), 1 / len(topic_word))
        for _ in range(20):
            expected = np.full(len(topic_word), alpha)
            for word in np.flatnonzero(seen):
                share = theta * topic_word[:, word]
                expected += seen[word] * share / share.sum()
            theta = expected / expected.sum()
        for word in np.flatnonzero(unseen):
            total += unseen[word] * math.log(theta @ topic_word[:, word])
    return math.exp(-total / held_out.sum())


def test_held_out_perplexity_is_that_of_plain_loops(corpus):
    objective = make_objective()
    topic_word = np.random.default_rng(1).dirichlet(np.full(objective.train.shape[1], 0.5), 3)
    judged = objective.evaluate({"topic_word": topic_word})
    expected = brute_force_perplexity(topic_word, objective.observed, objective.held_out, 0.1)
    assert judged["held_out_perplexity"] == pytest.approx(expected, rel=1e-4)
    assert judged["joint_log_likelihood"] is None


def test_fitted_priors_judge_their_own_system_and_leave_no_joint_to_compare(corpus):
    objective = make_objective(optimize_priors=True)
    snapshot = snapshot_of(objective)
    prior = np.array([0.5, 0.02, 0.1])
    judged = objective.evaluate(snapshot | {"doc_topic_prior": prior})
    expected = brute_force_perplexity(snapshot["topic_word"], objective.observed, objective.held_out, prior)
    assert judged == {"held_out_perplexity": pytest.approx(expected, rel=1e-4), "joint_log_likelihood": None}
    # a system that fits none is judged by the prior that it was given
    given = make_objective().evaluate(snapshot)
    assert objective.evaluate(snapshot) == given | {"joint_log_likelihood": None}


@pytest.mark.parametrize("prior", [[0.1, 0.2], [0.1, 0.2, 0.0], [0.1, 0.2, np.nan]])
def test_a_fitted_prior_that_is_none_is_refused(corpus, prior):
    objective = make_objective(optimize_priors=True)
    with pytest.raises(DataError, match="doc_topic_prior"):
        objective.evaluate(snapshot_of(objective) | {"doc_topic_prior": np.array(prior)})


def test_optimize_priors_must_be_true_or_false(corpus):
    with pytest.raises(DataError, match="optimize_priors is 1; True or False"):
        make_objective(optimize_priors=1)


def snapshot_of(objective, seed=2):
    """Random assignments of the training tokens, one triple a token."""
    train = objective.train.tocoo()
    documents, words = np.repeat(train.row, train.data), np.repeat(train.col, train.data)
    topics = np.random.default_rng(seed).integers(0, 3, len(words))
    ones = np.ones_like(topics)
    topic_word = np.random.default_rng(seed).dirichlet(np.full(objective.train.shape[1], 0.5), 3)
    return {
        "topic_word": topic_word,
        "doc_topic": np.column_stack([documents, topics, ones]),
        "word_topic": np.column_stack([words, topics, ones]),
    }


def test_joint_log_likelihood_is_taken_from_the_assignments(corpus):
    objective = make_objective()
    snapshot = snapshot_of(objective)
    documents, topics, _ = snapshot["doc_topic"].T
    words = snapshot["word_topic"][:, 0]
    expected, *_ = chain_rule(
        documents,
        words,
        topics,
        objective.train.shape,
        np.full(3, 0.1),
        np.full(objective.train.shape[1], 0.01),
    )
    got = objective.evaluate(snapshot)["joint_log_likelihood"]
    assert got == pytest.approx(expected / len(words), rel=1e-10)


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("doc_topic", lambda a: a[1:], "document-topic counts do not add up"),
        ("word_topic", lambda a: np.vstack([a, [[0, 0, 1]]]), "word-topic counts do not add up"),
        ("topic_word", lambda a: a * 2, "sum to 1"),
        ("topic_word", lambda a: a * [[1], [1], [np.nan]], "sum to 1"),
        ("topic_word", lambda a: a[:2], "shape"),
    ],
)
def test_a_state_that_is_not_of_this_corpus_is_refused(corpus, part, change, said):
    objective = make_objective()
    snapshot = snapshot_of(objective)
    snapshot[part] = change(snapshot[part])
    with pytest.raises(DataError, match=said):
        objective.evaluate(snapshot)


def test_a_state_without_topics_is_refused(corpus):
    with pytest.raises(DataError, match="topic_word"):
        make_objective().evaluate({"something": np.zeros(3)})


def test_the_split_holds_out_a_tenth_and_halves_its_documents(corpus):
    objective = make_objective()
    known = objective.train.shape[1]
    assert objective.train.shape[0] + objective.observed.shape[0] == corpus.shape[0]
    assert objective.observed.shape == (corpus.shape[0] // 10, known)
    assert (objective.train.sum(axis=0) > 0).all()
    seen, unseen = (half.sum(axis=1) for half in (objective.observed, objective.held_out))
    assert set(seen - unseen) <= {0, 1}


def test_words_of_no_training_document_are_dropped(corpus, monkeypatch):
    counts = sparse.lil_array((20, 4), dtype=np.int64)
    counts[:, 0] = 2
    for document in range(20):
        counts[document, 1] = 1
    test_documents = make_objective_documents(counts.tocsr(), monkeypatch)
    counts[test_documents[0], 3] = 5
    monkeypatch.setattr(objective_lda, "load_counts", lambda name, seed: counts.tocsr())
    objective = make_objective()
    assert objective.train.shape[1] == objective.observed.shape[1] == 2
    assert objective.observed.sum() + objective.held_out.sum() == 6


def make_objective_documents(counts, monkeypatch):
    """Numbers of the documents that the split holds out."""
    marked = sparse.lil_array(counts)
    marked[:, 2] = np.arange(1, counts.shape[0] + 1)[:, None]
    monkeypatch.setattr(objective_lda, "load_counts", lambda name, seed: marked.tocsr())
    objective = make_objective()
    both = (objective.observed + objective.held_out).toarray()
    return both[:, 2] - 1


def test_the_seed_fixes_the_split_and_the_fingerprint_tells_splits_apart(corpus):
    first, again, other = make_objective(0), make_objective(0), make_objective(1)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint


def test_a_corpus_too_small_to_split_is_an_error(monkeypatch):
    monkeypatch.setattr(
        objective_lda, "load_counts", lambda name, seed: sparse.csr_array(np.ones((9, 3), int))
    )
    with pytest.raises(DataError, match="9 documents"):
        make_objective()
