"""Topics of several models matched: by definition, over words, over seeds."""

import itertools
import os
import signal

import numpy as np
import pytest
from lda_problems import made_corpus, small_lda

import stradask as sd
from stradask.errors import DataError


@pytest.fixture(scope="module")
def corpus():
    X, *_ = made_corpus(200, n_features=60, n_components=4, random_state=0)
    return X


@pytest.fixture(scope="module")
def models(corpus):
    return [small_lda(k, max_iter=40, random_state=seed).fit(corpus) for seed, k in enumerate((4, 4, 3))]


def hellinger(p, q):
    return np.sqrt(np.maximum(1 - np.sqrt(p[:, None] * q).sum(axis=2), 0))


def test_matches_are_the_best_of_all_assignments(models):
    found = sd.align(models)
    np.testing.assert_array_equal(found.matches[0], range(4))
    np.testing.assert_allclose(found.distances[0], 0, atol=1e-6)
    apart = hellinger(models[0].topic_word_, models[1].topic_word_)
    best = min(itertools.permutations(range(4)), key=lambda order: apart[range(4), order].sum())
    np.testing.assert_array_equal(found.matches[1], best)
    np.testing.assert_allclose(found.distances[1], apart[range(4), best], atol=1e-7)
    np.testing.assert_allclose(found.nearest[1], apart.min(axis=1), atol=1e-7)


def test_a_topic_without_a_partner_is_none(models):
    found = sd.align(models)
    left = np.flatnonzero(found.matches[2] < 0)
    assert len(left) == 1
    assert np.isnan(found.distances[2, left[0]])
    assert found.found[left[0]] <= 0.5
    assert sorted(found.matches[2][found.matches[2] >= 0]) == [0, 1, 2]
    assert len(str(found).splitlines()) == 5


def test_other_columns_are_matched_by_words(corpus):
    words = [f"w{i}" for i in range(60)]
    order = np.random.default_rng(0).permutation(60)[:50]
    first = small_lda(4, max_iter=40).fit(corpus, vocabulary=words)
    second = small_lda(4, max_iter=40, random_state=1)
    second.fit(corpus[:, order], vocabulary=[words[i] for i in order])
    found = sd.align([first, second])
    p, q = first.topic_word_[:, order], second.topic_word_
    apart = hellinger(p / p.sum(axis=1, keepdims=True), q)
    np.testing.assert_allclose(found.distances[1], apart[range(4), found.matches[1]], atol=1e-7)
    with pytest.raises(DataError, match=r"models\[1\] does not know its words"):
        sd.align([first, small_lda(4).fit(corpus[:, order])])
    with pytest.raises(DataError, match="no word in common"):
        sd.align([first, small_lda(4).fit(corpus, vocabulary=[f"v{i}" for i in range(60)])])


def test_topics_that_generated_the_documents_come_back(corpus):
    lda = small_lda(4, max_iter=60).fit(corpus)
    found = lda.stability(corpus, n_seeds=3)
    assert found.matches.shape == (4, 4)
    assert (found.found == 1).all()
    other = small_lda(4, max_iter=60, random_state=1001).fit(corpus)
    np.testing.assert_array_equal(sd.align([lda, other]).distances[1], found.distances[2])


def test_a_topic_of_noise_does_not_come_back():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.4, (80, 300))
    lda = small_lda(6, max_iter=30).fit(X)
    assert lda.stability(X, n_seeds=2).found.mean() < 0.5


def test_picture(models):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = sd.align(models).plot(names=["a", "b", "c", "d"])
    assert sorted(label.get_text() for label in axes.get_yticklabels()) == ["a", "b", "c", "d"]
    pyplot.close("all")


def test_what_is_refused(corpus, models):
    with pytest.raises(DataError, match="two fitted topic models"):
        sd.align(models[:1])
    with pytest.raises(DataError, match=r"models\[1\] is a LatentDirichletAllocation without topics"):
        sd.align([models[0], small_lda()])
    with pytest.raises(DataError, match="n_seeds must be a number above 0"):
        models[0].stability(corpus, n_seeds=0)
    with pytest.raises(DataError, match="50 columns"):
        models[0].stability(corpus[:, :50], n_seeds=1)


def test_topics_without_tokens_do_not_come_back():
    X = np.repeat([[9, 9, 0, 0], [0, 0, 9, 9]], 20, axis=0)
    lda = small_lda(12, max_iter=200, random_state=0, doc_topic_prior=1e-3, topic_word_prior=1e-3).fit(X)
    unused = lda.word_topic_counts_.sum(axis=0) == 0
    assert 0 < unused.sum() < 12
    found = lda.stability(X, n_seeds=2)
    assert np.isnan(found.found[unused]).all()
    assert (found.matches[:, unused] == -1).all()
    assert np.isnan(found.distances[:, unused]).all()
    assert str(found).count("no tokens") == unused.sum()


def test_a_model_is_not_compared_with_its_own_seed(corpus):
    lda = small_lda(4, max_iter=5, random_state=1000).fit(corpus)
    assert (lda.stability(corpus, n_seeds=1).distances[1] > 1e-3).any()


def test_stability_needs_the_covariates_of_the_fit(corpus):
    covariates = {"late": np.arange(200) % 2}
    dmr = sd.DMRTopicModel(4, max_iter=2, random_state=0).fit(corpus, covariates=covariates)
    with pytest.raises(DataError, match="pass the covariates of the fit"):
        dmr.stability(corpus, n_seeds=1)
    assert dmr.stability(corpus, n_seeds=1, covariates=covariates).matches.shape == (2, 4)


@pytest.mark.skipif(os.name == "nt", reason="no signals to a process of its own")
def test_ctrl_c_ends_all_fits(corpus):
    lda, seen = small_lda(4, max_iter=5).fit(corpus), []

    def press(info):
        seen.append(info.round)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="random_state=1000"):
        lda.stability(corpus, callback=press)
    assert seen == [1]
