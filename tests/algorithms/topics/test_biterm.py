"""The biterm topic model: its chain against enumeration; models of short texts in groups and on a cluster."""

import itertools

import numpy as np
import pytest
from scipy import sparse, stats

import stradask as sd
from stradask.algorithms.topics import biterm as biterms
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.mixture import BitermProgram
from stradask.errors import CheckpointMismatch, DataError, ModelFileError

_X = np.array([[2, 1, 0], [0, 1, 1], [1, 0, 0]], np.int32)
_ALPHA, _BETA = np.array([0.4, 0.9, 0.5]), np.array([0.3, 0.1, 0.7])
_PAIRS = [(0, 0), (0, 1), (0, 1), (1, 2)]  # of the tokens 0 0 1 and 1 2


def log_joint(labels, alpha, beta, pairs=_PAIRS):
    """log p(w, z) biterm after biterm, word after word."""
    total, biterms, words = 0.0, np.zeros(len(alpha)), np.zeros((len(alpha), len(beta)))
    for pair, k in zip(pairs, labels, strict=True):
        total += np.log((biterms[k] + alpha[k]) / (biterms.sum() + alpha.sum()))
        biterms[k] += 1
        for w in pair:
            total += np.log((words[k, w] + beta[w]) / (words[k].sum() + beta.sum()))
            words[k, w] += 1
    return total


def test_the_chain_draws_from_the_posterior_of_the_enumeration():
    program = BitermProgram(corpus_of_matrix(sparse.csr_array(_X), 1), _ALPHA, _BETA, 3)
    states = list(itertools.product(range(3), repeat=4))
    log_p = np.array([log_joint(z, _ALPHA, _BETA) for z in states])
    expected = np.exp(log_p) / np.exp(log_p).sum()
    state = program.load(program.shards[0])
    program.sync(state, program.publish())
    found, n, gap = np.zeros(len(states)), 5_000, 5

    class Task:
        round = 0

    for draw in range(n):
        for sweep in range(gap):
            Task.round = draw * gap + sweep
            program.update(state, Task)
        found[state["topics"].astype(int) @ [27, 9, 3, 1]] += 1
    often = expected * n >= 5
    observed = np.append(found[often], found[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum()) * n
    assert stats.chisquare(observed, wanted).pvalue > 1e-4
    other = np.exp([log_joint(z, _ALPHA, 2 * _BETA) for z in states])  # the test sees another prior
    other = other / other.sum() * n
    assert stats.chisquare(observed, np.append(other[often], other[~often].sum())).pvalue < 1e-4


def test_shares_of_texts_are_those_of_their_pairs():
    fitted = sd.BitermTopicModel(
        3, doc_topic_prior=_ALPHA, topic_word_prior=_BETA, max_iter=30, random_state=0
    ).fit(_X)
    counts, biterms = fitted.word_topic_counts_.toarray(), fitted.topic_biterm_counts_
    assert counts.sum() == 8
    assert counts.sum(axis=1).tolist() == [4, 3, 1]
    assert biterms.sum() == 4

    def of_unit(*words):
        weights, held = biterms + _ALPHA, counts.astype(float)
        for w in words:
            weights = weights * (held[w] + _BETA[w]) / (held.sum(axis=0) + _BETA.sum())
            held[w] += 1
        return weights / weights.sum()

    new = np.array([[2, 0, 1], [0, 1, 0], [0, 0, 0]])
    both = np.mean([of_unit(0, 0), of_unit(0, 2), of_unit(0, 2)], axis=0)
    np.testing.assert_allclose(fitted.transform(new), [both, of_unit(1), fitted.theta_])
    np.testing.assert_allclose(fitted.theta_, (biterms + _ALPHA) / (4 + _ALPHA.sum()))
    np.testing.assert_allclose(fitted.doc_topic_counts_.sum(axis=1), [3, 2, 1], rtol=1e-6)
    np.testing.assert_allclose(fitted.doc_topic_[2], of_unit(0), rtol=1e-5)
    observed, held_out = sd.datasets.split_tokens(sparse.csr_array(_X), random_state=0)
    expected = (held_out.toarray() * np.log(fitted.transform(observed) @ fitted.topic_word_)).sum()
    assert fitted.score(_X) == pytest.approx(expected / held_out.sum(), rel=1e-6)


def short_texts(n=600, n_topics=4, seed=0):
    """Texts of four to eight words, most of which are of one of two topics of the text."""
    rng = np.random.default_rng(seed)
    topics, labels = rng.dirichlet(np.full(60, 0.05), n_topics), rng.integers(0, n_topics, n)
    shares = 0.85 * np.eye(n_topics)[labels] + 0.15 / n_topics
    lengths = rng.integers(4, 9, n)
    X = [rng.multinomial(length, share @ topics) for length, share in zip(lengths, shares, strict=True)]
    return sparse.csr_array(np.array(X, np.int32)), labels


def biterm(n_components=4, **options):
    return sd.BitermTopicModel(n_components, **({"random_state": 0, "max_iter": 30} | options))


def gsdmm(n_components=4, **options):
    return sd.GSDMM(n_components, **({"random_state": 0, "max_iter": 30} | options))


def same(a, b):
    assert (a.word_topic_counts_ != b.word_topic_counts_).nnz == 0
    np.testing.assert_array_equal(a.log_likelihood_, b.log_likelihood_)


def test_topics_of_short_texts_are_found_also_in_groups():
    from sklearn.metrics import normalized_mutual_info_score

    X, labels = short_texts()
    for options in ({}, {"n_groups": 4}):
        fitted = biterm(max_iter=60, **options).fit(X)
        assert normalized_mutual_info_score(labels, fitted.doc_topic_.argmax(axis=1)) > 0.75
        mixture = gsdmm(max_iter=60, **options).fit(X)
        assert normalized_mutual_info_score(labels, mixture.labels_) > 0.75
        assert mixture.word_topic_counts_.sum() == X.sum()


@pytest.mark.parametrize("make", [biterm, gsdmm])
def test_threads_checkpoints_and_files_give_the_same_bits(make, tmp_path):
    X, _ = short_texts(150)
    whole = make(max_iter=17, n_groups=3).fit(X)
    same(make(max_iter=17, n_groups=3, n_jobs=2).fit(X), whole)

    def killed(info):
        if info.round == 13:
            raise RuntimeError("killed")

    for name, n_groups in (("one", 1), ("three", 3)):
        folder = tmp_path / name
        with pytest.raises(RuntimeError, match="killed"):
            make(max_iter=17, n_groups=n_groups, checkpoint=folder).fit(X, callback=killed)
        again = make(max_iter=17, n_groups=n_groups, checkpoint=folder).fit(X)
        same(again, make(max_iter=17, n_groups=n_groups).fit(X))
        with pytest.raises(CheckpointMismatch):
            make(max_iter=17, n_groups=n_groups, checkpoint=folder, topic_word_prior=0.2).fit(X)
    sd.datasets.save_uci_bow(X, tmp_path / "docword.x.txt")
    of_files = make(max_iter=17, n_groups=1).fit(tmp_path / "docword.x.txt")
    same(of_files, make(max_iter=17, n_groups=1).fit(X))
    assert of_files.doc_topic_counts_ is None
    np.testing.assert_allclose(
        of_files.transform(tmp_path / "docword.x.txt").compute(), of_files.transform(X)
    )


def test_models_are_saved_checked_and_read(tmp_path):
    X, labels = short_texts(100)
    X = sparse.vstack([X, sparse.csr_array((1, 60), dtype=np.int32)], format="csr")
    fitted, path = biterm().fit(X, vocabulary=[f"w{i}" for i in range(60)]), tmp_path / "model.npz"
    fitted.save(path)
    again = sd.load(path)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    assert again.topics(n_words=3) == fitted.topics(n_words=3)
    again.theta_ = -again.theta_
    again.save(path)
    with pytest.raises(ModelFileError, match="theta_"):
        sd.load(path)
    assert fitted.coherence(X).shape == (4,)
    assert fitted.topics_by_group([*labels, 0]).shares.shape == (4, 4)
    assert np.isfinite(list(fitted.number_measures().values())).all()
    assert fitted.representative_documents(n_documents=2, min_tokens=0)[0].shape == (4, 2)
    assert fitted.stability(X, n_seeds=1).found.shape == (4,)
    tokens = fitted.topics_of_tokens(X[:3], all_probabilities=True)
    expected = fitted.transform(X[:1])[0] * fitted.topic_word_[:, X.indices[0]]
    np.testing.assert_allclose(tokens.probabilities[0], (expected / expected.sum()).max(), rtol=1e-6)
    assert fitted.explore(X=X, path=tmp_path / "page.html")
    np.testing.assert_allclose(fitted.doc_topic_[-1], fitted.theta_, rtol=1e-6)


def test_what_has_no_pairs_is_refused():
    with pytest.raises(DataError, match="no document of two words"):
        biterm().fit(np.eye(3, dtype=int))
    with pytest.raises(DataError, match="cut the documents"):
        biterm().fit([[70_000, 10_000]])
    with pytest.raises(DataError, match=r"word 1 of X is in pairs 4.1e\+09 times"):
        biterm().fit([[1, 64_000]])
    with pytest.raises(DataError, match="cut the documents"):
        biterm().fit([[1, 2], [2, 1]]).transform([[2**31 - 1, 2**31 - 1]])
    array = pytest.importorskip("dask.array")  # before any pair is made, as of files
    for X, message in ((np.eye(3, dtype=int), "no document of two words"), ([[70_000, 10_000]], "cut the")):
        with pytest.raises(DataError, match=message):
            biterm().fit(array.from_array(np.array(X)))
    with pytest.raises(AttributeError, match=r"take score\(X\)"):
        biterm().fit([[1, 2], [2, 1]]).log_probability([[1, 1]])


def test_new_documents_are_taken_by_parts_and_wrapped_counts_are_seen(monkeypatch):
    X, _ = short_texts(50)
    X = sparse.vstack([X, sparse.csr_array((2, 60), dtype=np.int32), X[:3]], format="csr")
    fitted = biterm(max_iter=3).fit(X)
    whole = fitted.transform(X)
    monkeypatch.setattr(biterms, "_PAIRS_AT_ONCE", 7)
    np.testing.assert_array_equal(fitted.transform(X), whole)
    program = BitermProgram(corpus_of_matrix(X, 2), np.ones(4), np.ones(60), 3)
    words = np.zeros(240, np.int32)
    totals = np.full(4, 2**31)
    joined = {"drawn": 1, "units": (totals // 2,), "words": (words,), "totals": (totals,)}
    with pytest.raises(DataError, match="leave so common a word out"):
        program.hear((joined,))


def test_a_cluster_gives_the_bits_of_threads(tmp_path):
    distributed = pytest.importorskip("distributed")
    array = pytest.importorskip("dask.array")
    X, _ = short_texts(80)
    parts = array.from_array(X.toarray(), chunks=(40, -1))
    with distributed.Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None):
        for make in (biterm, gsdmm):
            here = make(max_iter=6, n_groups=2).fit(X)
            same(make(max_iter=6, n_groups=2, engine="dask").fit(X), here)
            of_dask = make(max_iter=6).fit(parts)
            same(of_dask, make(max_iter=6, engine="local").fit(parts))
            assert of_dask.worker_history_
            shares = of_dask.transform(parts)
            np.testing.assert_allclose(shares.compute(), of_dask.transform(X))
            assert make(max_iter=6).fit_transform(parts).shape == (80, 4)
