"""A topic model that grows: old counts that are forgotten, new words, new topics, and a corpus in parts."""

import numpy as np
import pytest
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.growing import YoungPriors, check_forget, forgotten
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError


def lda(n_components=5, **options):
    own = {"random_state": 0, "max_iter": 40}
    return sd.LatentDirichletAllocation(n_components, **(own | options))


@pytest.fixture(scope="module")
def corpus():
    X, *_ = make_lda_corpus(1200, n_features=400, n_components=20, random_state=1)
    return sparse.csr_array(X)


def in_parts(X, passes=2, size=200, **options):
    model = lda(20)
    for _ in range(passes):
        for first in range(0, X.shape[0], size):
            model.partial_fit(X[first : first + size], **options)
    return model


def test_two_passes_in_parts_come_within_10_per_cent_of_one_fit(corpus):
    known, new = corpus[:1000], corpus[1000:]
    whole = lda(20, max_iter=200).fit(known).perplexity(new)
    grown = in_parts(known, forget="auto")
    assert grown.perplexity(new) < 1.1 * whole
    assert in_parts(known).perplexity(new) > grown.perplexity(new)
    assert grown.n_batch_iter_ == 10


def test_forgotten_counts_are_binomial_and_repeat():
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.integers(0, 50, (200, 40)).astype(np.int32))
    left, whole = forgotten(counts, 0.3, 7)
    assert whole is left
    assert (left != forgotten(counts, 0.3, 7)[0]).nnz == 0
    assert (left != forgotten(counts, 0.3, 8)[0]).nnz > 0
    assert (left.toarray() <= counts.toarray()).all()
    n = counts.sum()
    assert left.sum() == pytest.approx(0.7 * n, abs=5 * np.sqrt(0.21 * n))
    z = (left.toarray() - 0.7 * counts.toarray()) / np.sqrt(np.maximum(0.21 * counts.toarray(), 1e-9))
    assert z[counts.toarray() > 0].std() == pytest.approx(1, abs=0.03)
    assert forgotten(counts, 0.0, 7)[0] is counts
    assert left.data.all()


def test_mean_counts_fall_by_the_part_and_are_rounded_without_bias():
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.choice([0.0, 0.1, 0.25, 1.6, 40.3], (300, 100)))
    left, whole = forgotten(counts, 0.3, 7)
    for value in (0.1, 0.25, 1.6, 40.3):
        there = counts.toarray() == value
        error = 4 / np.sqrt(there.sum())  # the standard deviations are below 1
        assert left.toarray()[there].mean() == pytest.approx(0.7 * value, abs=0.25 * error)
        assert whole.toarray()[there].mean() == pytest.approx(0.7 * value, abs=error)
    assert left.data.min() >= 0.25
    np.testing.assert_allclose(left.toarray()[counts.toarray() > 1], 0.7 * counts.data[counts.data > 1])
    assert (np.abs(whole.toarray() - left.toarray()) < 1).all()
    assert whole.dtype == np.int32
    np.testing.assert_array_equal(forgotten(counts, 0.0, 7)[0].toarray(), counts.toarray())


def test_parts_leave_mean_counts_which_go_on_and_are_saved(corpus, tmp_path):
    model, X = lda(max_iter=20), corpus[:150]
    seen = []

    def look(info):
        if info.round in (13, 14, 15, 16, 17, 18, 19, 20):
            seen.append(info.snapshot().word_topic_counts_)

    model.partial_fit(X, forget="auto", callback=look)
    np.testing.assert_allclose(model.word_topic_counts_.toarray(), sum(seen).toarray() / 8)
    assert model.word_topic_counts_.sum() == pytest.approx(X.sum())
    model.partial_fit(X, forget="auto")
    model.save(tmp_path / "model.npz")
    again = sd.load(tmp_path / "model.npz")
    for other in (model, again):
        before = other.word_topic_counts_.sum()
        other.partial_fit(X)
        assert other.word_topic_counts_.sum() == pytest.approx(before + X.sum(), rel=0.02)
    np.testing.assert_array_equal(again.topic_word_, model.topic_word_)
    assert lda(max_iter=20, warm_start=True).fit(X).fit(X).word_topic_counts_.dtype.kind == "i"
    model.warm_start = True
    assert model.fit(X).word_topic_counts_.sum() == X.sum()


def test_a_call_without_forget_is_what_it_was(corpus):
    one, other = lda().fit(corpus[:200]), lda().fit(corpus[:200])
    one.partial_fit(corpus[200:300])
    other.partial_fit(corpus[200:300], forget=0.0, grow=0)
    assert (one.word_topic_counts_ != other.word_topic_counts_).nnz == 0
    assert one.word_topic_counts_.sum() == corpus[:300].sum()


def test_the_memory_of_a_stream_is_bounded(corpus):
    model, part = lda(), corpus[:100]
    for _ in range(20):
        model.partial_fit(part, forget=0.5)
    assert model.word_topic_counts_.sum() == pytest.approx(2 * part.sum(), rel=0.1)
    # The document counts are those of the last call, whole.
    assert model.doc_topic_counts_.sum() == part.sum()


def test_young_priors_are_smoother_and_old_ones_are_not():
    alpha, beta = np.full(3, 0.1), np.full(4, 0.01)
    young, total = YoungPriors.of_model(alpha, beta, 10, 10).beta_of(0)
    assert (young > 0.05).all()
    assert total == pytest.approx(young.sum())
    old, _ = YoungPriors.of_model(alpha, beta, 10, 100_000).beta_of(5)
    np.testing.assert_array_equal(old, beta)
    assert check_forget("auto", 10, 10**6)[0] < 1e-4  # a large fit is kept
    for wrong in (1, -0.1, "some", True, np.nan):
        with pytest.raises(DataError, match="forget"):
            check_forget(wrong, 1, 1)


def subjects(seed=0):
    """Documents of two subjects, each of words of its own: 4 topics and then 2."""
    rng = np.random.default_rng(seed)
    first, second = np.kron(np.eye(4), np.full(5, 0.2)), np.kron(np.eye(2), np.full(5, 0.2))
    old = np.array([rng.multinomial(40, rng.dirichlet([0.2] * 4) @ first) for _ in range(300)])
    new = np.array([rng.multinomial(40, rng.dirichlet([0.2] * 2) @ second) for _ in range(150)])
    return old, new


def test_new_topics_take_a_new_subject_and_old_ones_keep_their_words():
    old, new = subjects()
    model = lda(4).fit(old, vocabulary=[f"old{i}" for i in range(20)])
    before = model.topic_word_
    model.partial_fit(new, vocabulary=[f"new{i}" for i in range(10)], grow=2)
    assert model.n_components == 6
    assert model.topic_word_.shape == (6, 30)
    words = model.topics(n_words=5)
    assert all(word.startswith("old") for k in range(4) for word in words[k])
    assert all(word.startswith("new") for k in (4, 5) for word in words[k])
    assert (np.abs(model.topic_word_[:4, :20] - before).sum(axis=1) / 2 < 0.02).all()
    assert model.doc_topic_[:, 4:].sum(axis=1).mean() > 0.9
    model.partial_fit(np.hstack([np.zeros((10, 20), int), new[:10]]))  # and goes on
    assert model.transform(np.zeros((1, 30), int)).shape == (1, 6)


def test_words_are_matched_by_name(tmp_path):
    old, _ = subjects()
    names = np.array([f"w{i}" for i in range(20)])
    straight, shuffled = lda(4).fit(old, vocabulary=names), lda(4).fit(old, vocabulary=names)
    order = np.random.default_rng(0).permutation(20)
    straight.partial_fit(old[:50], vocabulary=names)
    shuffled.partial_fit(old[:50, order], vocabulary=names[order])
    assert (straight.word_topic_counts_ != shuffled.word_topic_counts_).nnz == 0
    path = tmp_path / "model.npz"
    straight.partial_fit(old[:50, :2], vocabulary=["other", "w3"], grow=1).save(path)
    again = sd.load(path)
    assert list(again.vocabulary_) == [*names, "other"]
    np.testing.assert_array_equal(again.topic_word_, straight.topic_word_)
    assert straight.word_topic_counts_[[20]].sum() == old[:50, 0].sum()


def test_growth_with_seed_words_goes_on():
    old, new = subjects()
    model = lda(4).fit(old, seed_words={0: [3, 4]}, vocabulary=[f"old{i}" for i in range(20)])
    model.partial_fit(new, vocabulary=[f"new{i}" for i in range(10)], grow=1)
    assert model.seed_prior_.shape == (30, 5)
    assert model.seed_prior_.sum() == 2


def test_what_cannot_grow_is_refused_and_changes_nothing():
    old, new = subjects()
    model = lda(4).fit(old)
    kept = dict(vars(model))
    with pytest.raises(DataError, match="vocabulary"):
        model.partial_fit(new, vocabulary=[f"new{i}" for i in range(10)])
    with pytest.raises(DataError, match="the word 'new' twice"):
        lda(4).fit(old, vocabulary=list(map(str, range(20)))).partial_fit([[1, 1]], vocabulary=["new"] * 2)
    with pytest.raises(DataError, match="matrix only"):
        lda(4).fit(old, vocabulary=[f"old{i}" for i in range(20)]).partial_fit("a.txt", vocabulary=["old1"])
    for grow in (-1, 1.5, True):
        with pytest.raises(DataError, match="grow"):
            model.partial_fit(old, grow=grow)
    with pytest.raises(DataError, match="grow=2 in the first call"):
        lda(4).partial_fit(old, grow=2)
    with pytest.raises(DataError, match="forget"):
        lda(4).partial_fit(old, forget=2)  # in the first call, too
    with pytest.raises(DataError, match="holds the fractional value"):
        model.partial_fit(old / 3, grow=1)
    assert model.n_components == 4
    assert vars(model).keys() == kept.keys()
    vector = lda(4, doc_topic_prior=[0.1] * 4, topic_word_prior=np.linspace(0.1, 0.2, 20))
    vector.fit(old, vocabulary=[f"old{i}" for i in range(20)])
    with pytest.raises(DataError, match="doc_topic_prior"):
        vector.partial_fit(old, grow=1)
    with pytest.raises(DataError, match="topic_word_prior"):
        vector.partial_fit(new, vocabulary=[f"new{i}" for i in range(10)])


def test_forgetting_is_the_same_on_threads_and_groups(corpus):
    def grown(n_jobs):
        model = lda(8, n_groups=4, n_jobs=n_jobs).fit(corpus[:300])
        return model.partial_fit(corpus[300:500], forget="auto").partial_fit(
            corpus[500:700], forget=0.3, grow=2
        )

    one, two = grown(1), grown(2)
    assert (one.word_topic_counts_ != two.word_topic_counts_).nnz == 0
