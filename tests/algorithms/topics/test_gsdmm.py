"""The mixture with one topic a text: its chain against enumeration, and what is kept, read and refused."""

import itertools

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import gammaln, logsumexp, softmax

import stradask as sd
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.mixture import MixtureProgram
from stradask.errors import CheckpointMismatch, DataError

_X = np.array([[2, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 3]], np.int32)
_ALPHA, _BETA = np.array([0.4, 0.9, 0.5]), np.array([0.3, 0.1, 0.7])


def log_joint(X, labels, alpha, beta):
    """log p(w, z) word after word, document after document."""
    total, documents, words = 0.0, np.zeros(len(alpha)), np.zeros((len(alpha), len(beta)))
    for row, k in zip(X, labels, strict=True):
        total += np.log((documents[k] + alpha[k]) / (documents.sum() + alpha.sum()))
        documents[k] += 1
        for w in np.repeat(np.arange(len(beta)), row):
            total += np.log((words[k, w] + beta[w]) / (words[k].sum() + beta.sum()))
            words[k, w] += 1
    return total


def test_the_chain_draws_from_the_posterior_of_the_enumeration():
    program = MixtureProgram(corpus_of_matrix(sparse.csr_array(_X), 1), _ALPHA, _BETA, 3)
    states = list(itertools.product(range(3), repeat=4))
    log_p = np.array([log_joint(_X, z, _ALPHA, _BETA) for z in states])
    expected = np.exp(log_p - log_p.max())
    expected /= expected.sum()
    state = program.load(program.shards[0])
    program.sync(state, program.publish())
    found, n, gap = np.zeros(len(states)), 5_000, 5  # sweeps between two draws, which are then independent

    class Task:
        round = 0

    for draw in range(n):
        for sweep in range(gap):
            Task.round = draw * gap + sweep
            program.update(state, Task)
        found[state["topics"] @ [27, 9, 3, 1]] += 1
    often = expected * n >= 5
    observed = np.append(found[often], found[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum()) * n
    assert stats.chisquare(observed, wanted).pvalue > 1e-4
    # The test sees a prior that is off by half.
    other = np.array([log_joint(_X, z, 1.5 * _ALPHA, _BETA) for z in states])
    other = np.exp(other - other.max()) / np.exp(other - other.max()).sum() * n
    assert stats.chisquare(observed, np.append(other[often], other[~often].sum())).pvalue < 1e-4


def test_the_likelihood_is_its_definition():
    program = MixtureProgram(corpus_of_matrix(sparse.csr_array(_X), 1), _ALPHA, _BETA, 0)
    for labels in ([0, 1, 2, 0], [1, 1, 1, 1]):
        state = program.load(program.shards[0])
        state["topics"][:] = labels
        program.sync(state, program.publish())
        assert program.measure(state) * _X.sum() == pytest.approx(log_joint(_X, labels, _ALPHA, _BETA))


def model(n_components=3, **options):
    return sd.GSDMM(n_components, **({"random_state": 0, "max_iter": 30} | options))


def test_probabilities_of_documents_are_ratios_of_the_joint_likelihood():
    fitted = model(doc_topic_prior=_ALPHA, topic_word_prior=_BETA)
    shares = fitted.fit_transform(_X)
    labels = fitted.labels_
    for d in range(4):
        log_p = np.array([log_joint(_X, [*labels[:d], k, *labels[d + 1 :]], _ALPHA, _BETA) for k in range(3)])
        np.testing.assert_allclose(shares[d], np.exp(log_p - np.logaddexp.reduce(log_p)))
    new = np.array([[1, 2, 1], [0, 0, 0], [40, 90, 300]])
    before = log_joint(_X, labels, _ALPHA, _BETA)
    for row, share, log_p in zip(new, fitted.transform(new), fitted.log_probability(new), strict=True):
        each = [log_joint(np.vstack([_X, row]), [*labels, k], _ALPHA, _BETA) - before for k in range(3)]
        np.testing.assert_allclose(share, np.exp(each - np.logaddexp.reduce(each)), atol=1e-12)
        assert log_p == pytest.approx(np.logaddexp.reduce(each))
    assert fitted.predict(new[[0, 2]]).tolist() == fitted.transform(new)[[0, 2]].argmax(axis=1).tolist()


def test_the_score_is_that_of_the_observed_words_topics():
    fitted = model(doc_topic_prior=_ALPHA, topic_word_prior=_BETA).fit(_X)
    X = np.array([[4, 3, 5], [2, 0, 2]])
    observed, held_out = sd.datasets.split_tokens(sparse.csr_array(X), random_state=0)
    phi = fitted.topic_word_
    expected = (held_out.toarray() * np.log(fitted.transform(observed) @ phi)).sum() / held_out.sum()
    assert fitted.score(X) == pytest.approx(expected, rel=1e-6)
    assert fitted.perplexity(X) == pytest.approx(np.exp(-expected), rel=1e-6)


def short_texts(n=600, n_topics=4, seed=0):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(60, 0.05), n_topics)
    labels = rng.integers(0, n_topics, n)
    return sparse.csr_array(np.array([rng.multinomial(6, topics[k]) for k in labels], np.int32)), labels


def test_short_texts_of_four_topics_fall_into_four_groups_of_twenty():
    from sklearn.metrics import normalized_mutual_info_score

    X, labels = short_texts()
    fitted = model(20, max_iter=60).fit(X)
    assert normalized_mutual_info_score(labels, fitted.labels_) > 0.85
    large = np.sort(fitted.topic_document_counts_)[::-1]
    assert large[:4].sum() > 0.95 * len(labels)
    assert (fitted.doc_topic_counts_.toarray().argmax(axis=1) == fitted.labels_).all()
    assert fitted.word_topic_counts_.sum() == X.sum()


def test_a_killed_fit_goes_on_bitwise(tmp_path):
    X, _ = short_texts(200)
    whole = model(max_iter=37).fit(X)

    def killed(info):
        if info.round == 33:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        model(max_iter=37, checkpoint=tmp_path).fit(X, callback=killed)
    again = model(max_iter=37, checkpoint=tmp_path).fit(X)
    np.testing.assert_array_equal(again.labels_, whole.labels_)
    np.testing.assert_array_equal(again.log_likelihood_, whole.log_likelihood_)
    with pytest.raises(CheckpointMismatch):
        model(max_iter=37, checkpoint=tmp_path, topic_word_prior=0.2).fit(X)


def test_a_model_is_read_as_others_are(tmp_path):
    X, labels = short_texts(200)
    words = [f"w{i}" for i in range(60)]
    fitted = model(6).fit(X, vocabulary=words)
    assert fitted.coherence(X).shape == (6,)
    assert fitted.topics_by_group(labels).shares.shape == (4, 6)
    assert np.isfinite(fitted.number_measures()["cao_juan"])
    assert np.isfinite(fitted.number_measures()["arun"])  # two topics without documents are left out
    indices, _ = fitted.representative_documents(n_documents=2, min_tokens=0)
    assert indices.shape == (6, 2)
    assert fitted.stability(X, n_seeds=1).found.shape == (6,)
    tokens = fitted.topics_of_tokens(X[:3], all_probabilities=True)
    np.testing.assert_allclose(tokens.probabilities[0], fitted.transform(X[:1]).max())
    assert fitted.explore(X=X, path=tmp_path / "page.html")
    np.testing.assert_allclose(fitted.doc_topic_.argmax(axis=1), fitted.labels_)


def test_documents_without_words_and_snapshots():
    X, _ = short_texts(100)
    X = sparse.vstack([X, sparse.csr_array((1, 60), dtype=np.int32)], format="csr")
    seen = []
    fitted = model(5, max_iter=10).fit(X, callback=lambda info: seen.append(info.snapshot().labels_))
    np.testing.assert_array_equal(seen[-1], fitted.labels_)
    assert fitted.topic_document_counts_.sum() == 100
    assert np.isfinite(fitted.doc_topic_).all()


def test_what_is_no_mixture_is_refused():
    X, _ = short_texts(20)
    with pytest.raises(DataError, match="fractional"):
        model().fit(X / 3)
    with pytest.raises(DataError, match=r"docword.txt"):
        model().fit("docword.txt")
    with pytest.raises(DataError, match="doc_topic_prior"):
        model(doc_topic_prior=[0.1] * 4).fit(X)
    with pytest.raises(DataError, match="doc_labels"):
        model().fit(X).score(X, doc_labels=np.ones((20, 3)))
    with pytest.raises(DataError, match="vocabulary"):
        model().fit(X, vocabulary=["a"])
    with pytest.raises(DataError, match="word 1 of X has 2,147,483,649 tokens"):
        model().fit([[1, 2**31 - 1], [0, 2]])
    with pytest.raises(DataError, match="GSDMM keeps no draws"):
        model().fit(X).topic_word_interval()


def test_long_documents_do_not_underflow():
    rng = np.random.default_rng(0)
    X = np.array([rng.multinomial(5_000, p) for p in rng.dirichlet(np.full(40, 0.05), 3)[[0, 1, 2, 0, 1, 2]]])
    fitted = model(3, max_iter=20).fit(X)
    assert len(set(fitted.labels_[:3])) == 3
    expected = gammaln(fitted.doc_topic_prior_.sum())  # finite numbers all along
    assert np.isfinite([*fitted.log_probability(X), *fitted.log_likelihood_, expected]).all()


def test_topics_that_the_first_words_of_a_long_text_speak_against_are_not_lost():
    X = np.kron(np.eye(2, dtype=int), np.full((5, 60), 50))
    for beta in (0.1, 1e-20):
        own = sd.GSDMM(2, topic_word_prior=beta, max_iter=20, random_state=0).fit(X)
        counts, documents = own.word_topic_counts_.toarray(), own.topic_document_counts_
        new = np.concatenate([np.full(60, 5), np.full(60, 6)])[None]  # the first 300 words are of one topic
        rising = gammaln(counts + beta + new.T) - gammaln(counts + beta)
        totals = counts.sum(axis=0) + 120 * beta
        log_p = np.log(documents + 0.1) + rising.sum(axis=0) - gammaln(totals + new.sum()) + gammaln(totals)
        np.testing.assert_allclose(own.transform(new)[0], softmax(log_p), atol=1e-9)
        expected = logsumexp(log_p) - np.log(documents.sum() + 0.2)
        np.testing.assert_allclose(own.log_probability(new)[0], expected, rtol=1e-9)


def test_documents_without_words_have_no_topic(tmp_path):
    X = np.repeat([[3, 2, 0, 0], [0, 0, 0, 0], [0, 0, 2, 3]], 4, axis=0)
    model = sd.GSDMM(5, random_state=0)
    shares = model.fit_transform(X)
    empty = X.sum(axis=1) == 0
    assert (model.labels_[empty] == -1).all()
    assert (model.labels_[~empty] >= 0).all()
    assert model.topic_document_counts_.sum() == 8
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X) == -1, empty)
    prior = model.topic_document_counts_ + 0.1
    np.testing.assert_allclose(shares[empty], [prior / prior.sum()] * 4)
    again = sd.load(model.save(f"{tmp_path}/m.npz") and f"{tmp_path}/m.npz")
    np.testing.assert_array_equal(again.labels_, model.labels_)


def test_documents_without_words_have_no_topic_from_files_and_dask(tmp_path):
    array = pytest.importorskip("dask.array")
    X = np.tile([[3, 2, 0, 0], [0, 0, 0, 0], [0, 0, 2, 3]], (8, 1))
    names = [f"{tmp_path}/docword.{part}.txt" for part in "ab"]
    for name, rows in zip(names, (X[:12], X[12:]), strict=True):
        sd.datasets.save_uci_bow(sparse.csr_array(rows), name)
    for documents in (names, array.from_array(X, chunks=(7, -1))):
        model = sd.GSDMM(4, max_iter=20, random_state=0).fit(documents)
        assert (model.labels_[1::3] == -1).all()
        assert np.ptp(model.labels_[::3]) == np.ptp(model.labels_[2::3]) == 0
        assert sorted(model.topic_document_counts_) == [0, 0, 8, 8]
        assert [len(words) for words in model.topics()].count(0) == 2
        assert np.isnan(model.coherence(X, n_words=2)).sum() == 2
