"""Reading a topic model: rankings and coherence, by plain means."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from topic_models import check_distances, few, larger_model, model, models

import stradask as sd
from stradask.algorithms.topics.reading import coherence, distances, top_words
from stradask.errors import DataError


@pytest.fixture(scope="module")
def random_model():
    return larger_model()


# Rankings -----------------------------------------------------------------------------------------
def relevance(phi, shares, weight):
    return weight * np.log(phi) + (1 - weight) * np.log(phi / (shares @ phi))


def frex(phi, weight):
    scores = np.empty_like(phi)
    # What differs by rounding only is the same number.
    exclusivity = np.array([[float(f"{value:.9e}") for value in row] for row in phi / phi.sum(axis=0)])
    for k in range(len(phi)):
        for w in range(phi.shape[1]):
            frequent = np.mean([phi[k, v] <= phi[k, w] * (1 + 1e-12) for v in range(phi.shape[1])])
            exclusive = np.mean([exclusivity[k, v] <= exclusivity[k, w] for v in range(phi.shape[1])])
            scores[k, w] = 1 / (weight / exclusive + (1 - weight) / frequent)
    return scores


def expected_scores(lda, rank_by, weight):
    tokens = lda.word_topic_counts_.toarray().sum(axis=0)
    phi, tokens = lda.topic_word_[tokens > 0], tokens[tokens > 0]
    if rank_by == "probability":
        return phi
    return relevance(phi, tokens / tokens.sum(), weight) if rank_by == "relevance" else frex(phi, weight)


def check_ranking(lda, n_words, rank_by, weight):
    topics = lda.topics(n_words=n_words, rank_by=rank_by, relevance_weight=weight, frex_weight=weight)
    scores = expected_scores(lda, rank_by, weight)
    n_listed = min(n_words, scores.shape[1])
    used = topics.shares > 0
    assert topics.indices[used].shape == (len(scores), n_listed)
    assert (topics.indices[~used] == -1).all()
    assert topics.rank_by == rank_by
    indices, weights = topics.indices[used], topics.weights[used]
    # The listed words have the scores they are listed with, and these are the largest there are.
    np.testing.assert_allclose(weights, np.take_along_axis(scores, indices, axis=1), 1e-9, 1e-12)
    np.testing.assert_allclose(weights, -np.sort(-scores, axis=1)[:, :n_listed], 1e-9, 1e-12)
    phi = np.take_along_axis(lda.topic_word_[used], indices, axis=1)
    np.testing.assert_allclose(topics.probabilities[used], phi)
    for row in indices:
        assert len(set(row)) == n_listed
    named = iter(indices.tolist())
    assert [list(map(int, words)) for words in topics] == [next(named) if u else [] for u in used]


@few
@given(
    models(), st.integers(1, 10), st.sampled_from(top_words.RANKINGS), st.sampled_from([0.0, 0.3, 0.6, 1.0])
)
def test_the_best_words_are_those_of_the_dense_formula(lda, n_words, rank_by, weight):
    check_ranking(lda, n_words, rank_by, weight)


@pytest.mark.parametrize("rank_by", top_words.RANKINGS)
@pytest.mark.parametrize("cells", [1, 200, 1 << 20], ids=["single columns", "blocks", "one block"])
def test_rankings_do_not_depend_on_the_blocks(random_model, rank_by, cells, monkeypatch):
    monkeypatch.setattr(top_words, "_CELLS", cells)
    check_ranking(random_model, 8, rank_by, 0.4)


@few
@given(models(), st.integers(1, 10))
def test_equal_probabilities_are_listed_by_index(lda, n_words):
    best = np.argsort(-lda.components_, axis=1, kind="stable")[:, :n_words]
    topics = lda.topics(n_words=n_words)
    np.testing.assert_array_equal(topics.indices, np.where(topics.shares[:, None] > 0, best, -1))


@pytest.mark.parametrize("rank_by", top_words.RANKINGS)
def test_counts_that_are_stored_in_parts_are_added_up(random_model, rank_by):
    whole = random_model.topics(rank_by=rank_by)
    parts = random_model.word_topic_counts_
    lda = model(parts.toarray(), beta=random_model.topic_word_prior_)
    twice = np.repeat(parts.indices, 2), np.append(0, 2 * parts.indptr[1:])
    halves = np.column_stack([parts.data // 2, parts.data - parts.data // 2]).ravel()
    lda.word_topic_counts_ = sparse.csr_array((halves, *twice), shape=parts.shape)
    np.testing.assert_array_equal(lda.topics(rank_by=rank_by).indices, whole.indices)
    for metric in distances.METRICS:
        check_distances(lda, metric)


def test_relevance_of_one_is_probability_and_of_zero_is_lift():
    lda = model([[90, 90], [10, 0], [0, 8], [1, 3]])
    assert lda.topics(n_words=2, rank_by="relevance", relevance_weight=1).indices.tolist() == [[0, 1], [0, 2]]
    assert lda.topics(n_words=1, rank_by="relevance", relevance_weight=0).indices.tolist() == [[1], [2]]


def test_frex_by_hand():
    """Two topics of equal size: in the first, exclusivity orders b c a d, frequency a b d c from above."""
    counts = np.array([[50, 50], [30, 2], [8, 1], [12, 47]])
    found = model(counts, beta=1e-9).topics(["a", "b", "c", "d"], 4, rank_by="frex")
    by_hand = {"a": 2 / (1 / 0.5 + 1), "b": 2 / (1 / 1 + 1 / 0.75), "c": 2 / (1 / 0.75 + 1 / 0.25)}
    by_hand["d"] = 2 / (1 / 0.25 + 1 / 0.5)
    assert list(found[0]) == ["b", "a", "c", "d"]
    np.testing.assert_allclose(found.weights[0], [by_hand[word] for word in found[0]])


def test_frex_of_a_single_topic_ranks_by_frequency():
    """All words are equally exclusive, which rounding may not undo."""
    counts = np.random.default_rng(0).permutation(200)[:, None]
    found = model(counts, beta=0.37).topics(n_words=200, rank_by="frex")
    np.testing.assert_array_equal(found.indices[0], np.argsort(-counts[:, 0]))


def test_topics_without_tokens_and_large_n_words():
    lda = model([[3, 0], [0, 0], [1, 0]], beta=[0.1, 0.3, 0.2])
    for rank_by in top_words.RANKINGS:
        topics = lda.topics(["a", "b", "c"], n_words=50, rank_by=rank_by)
        assert [sorted(words) for words in topics] == [["a", "b", "c"], []]
        assert str(topics).endswith("(no tokens)")
        assert topics.indices[1].tolist() == [-1] * 3
        assert np.isnan([topics.weights[1], topics.probabilities[1]]).all()


def test_topics_without_tokens_are_left_out_of_every_measure_and_picture(tmp_path):
    """A model with two more topics, which have no tokens, reads as the model without them."""
    pytest.importorskip("matplotlib")
    counts = np.array([[0, 0, 9], [0, 0, 8], [7, 0, 0], [6, 0, 0], [2, 0, 3], [4, 1, 2]])
    X = np.array([[0, 0, 7, 6, 2, 4], [9, 8, 0, 0, 3, 2], [0, 0, 0, 0, 0, 1]])
    plain, padded = (model(own, beta=0.1) for own in (counts, np.insert(counts, [0, 2], 0, axis=1)))
    used, unused = [1, 2, 4], [0, 3]
    for lda, n in ((plain, 3), (padded, 5)):
        documents = np.zeros((3, n), int)
        documents[np.arange(3), [[0, 2, 1], [1, 4, 2]][n == 5]] = X.sum(axis=1)
        lda.doc_topic_counts_ = sparse.csr_array(documents)
    for options in (
        {"X": X},
        {"X": X, "measure": "umass"},
        {"texts": [["0", "1"], ["1", "4", "5", "2", "3"]], "measure": "c_v"},
    ):
        found = padded.coherence(n_words=3, vocabulary=list("012345"), **options)
        assert np.isnan(found[unused]).all()
        expected = plain.coherence(n_words=3, vocabulary=list("012345"), **options)
        np.testing.assert_array_equal(found[used], expected)
    assert padded.topic_diversity(2) == plain.topic_diversity(2)
    frex = padded.topics(rank_by="frex")
    np.testing.assert_array_equal(frex.weights[used], plain.topics(rank_by="frex").weights)
    np.testing.assert_allclose(
        [padded.number_measures()[name] for name in ("cao_juan", "deveaud")],
        [plain.number_measures()[name] for name in ("cao_juan", "deveaud")],
    )
    assert np.isfinite(padded.number_measures()["arun"])
    apart = padded.topic_distances()
    np.testing.assert_array_equal(apart[np.ix_(used, used)], plain.topic_distances())
    assert np.isnan(apart[0, 1:]).all()
    assert not apart.diagonal().any()
    best = padded.representative_documents(n_documents=1, min_tokens=1)
    assert best.indices.ravel().tolist() == [-1, 0, 2, -1, 1]
    assert np.isnan(best.shares[unused]).all()
    again = sd.align([padded, padded])
    np.testing.assert_array_equal(again.found, [np.nan, 1, 1, np.nan, 1])
    assert str(again).count("no tokens") == 2
    assert len(padded.plot_topics().texts) == 3
    with pytest.raises(DataError, match="topic 3 has no tokens"):
        padded.plot_topics(topics=[1, 3])
    path = tmp_path / "topics.html"
    padded.explore(path=path, names=["a", "b", "c"])
    page = path.read_text(encoding="utf-8")
    topics = json.loads(page.split('id="data">')[1].split("</script>")[0])["topics"]
    assert [(topic["words"], topic["documents"], topic["near"]) for topic in (topics[k] for k in unused)] == [
        ([], [], [])
    ] * 2


@few
@given(
    arrays(np.int64, st.tuples(st.just(2), st.integers(1, 12)), elements=st.integers(0, 3)), st.integers(1, 6)
)
def test_only_words_that_may_be_best_are_read_of_those_without_counts(values, n_words):
    """Words that fewer than n others equal or exceed in two values, by the definition."""
    first, second = values
    expected = [
        w
        for w in range(len(first))
        if sum(
            first[v] >= first[w]
            and second[v] >= second[w]
            and (first[v] > first[w] or second[v] > second[w] or v < w)
            for v in range(len(first))
        )
        < n_words
    ]
    assert sorted(top_words._leaders_of_two(first, second, n_words)) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_words": 0}, "n_words=0"),
        ({"n_words": True}, "n_words=True"),
        ({"rank_by": "lift"}, "rank_by='lift'"),
        ({"rank_by": ["frex"]}, "rank_by="),
        ({"rank_by": "relevance", "relevance_weight": 1.1}, "relevance_weight=1.1"),
        ({"rank_by": "relevance", "relevance_weight": float("nan")}, "relevance_weight=nan"),
        ({"rank_by": "frex", "frex_weight": -0.1}, "frex_weight=-0.1"),
        ({"rank_by": "frex", "frex_weight": "0.5"}, "frex_weight='0.5'"),
        ({"vocabulary": ["a"]}, "vocabulary has 1 words"),
    ],
)
def test_topics_refuse(arguments, message):
    with pytest.raises(DataError, match=message):
        model([[1, 0], [0, 1]]).topics(**arguments)


# Coherence ----------------------------------------------------------------------------------------
def c_v_by_loops(words, present):
    """The definition of Röder et al., boolean documents, word by word."""
    n = len(present)

    def probability(*chosen):
        return sum(all(row[w] for w in chosen) for row in present) / n

    def npmi(i, j):
        p_i, p_j, p = probability(i), probability(j), probability(i, j)
        if p_i == 0 or p_j == 0:
            return 0.0
        return 1.0 if p == 1 else np.log((p + 1e-12) / (p_i * p_j)) / -np.log(p + 1e-12)

    vectors = [[npmi(i, j) for j in words] for i in words]
    total = [sum(column) for column in zip(*vectors, strict=True)]
    values = []
    for vector in vectors:
        product = sum(a * b for a, b in zip(vector, total, strict=True))
        length = np.sqrt(sum(a * a for a in vector)) * np.sqrt(sum(b * b for b in total))
        values.append(product / length if length else 0.0)
    return np.mean(values)


@few
@given(
    models(),
    arrays(np.int64, st.tuples(st.integers(1, 7), st.just(9)), elements=st.sampled_from([0, 0, 1, 3])),
    st.integers(2, 6),
)
def test_c_v_is_that_of_the_definition(lda, documents, n_words):
    documents = documents[:, : lda.n_features_in_]
    if lda.n_features_in_ < 2 or not documents.any():
        return
    top = lda.topics(n_words=n_words).indices
    expected = [np.nan if -1 in words else c_v_by_loops(words, documents > 0) for words in top]
    np.testing.assert_allclose(lda.coherence(documents, "c_v", n_words), expected, rtol=1e-9, atol=1e-12)


def test_coherence_by_hand():
    """Four documents; a in 1 2, b in 1 2 3, c in 4. p(a) = 1/2, p(b) = 3/4, p(c) = 1/4, p(ab) = 1/2."""
    X = np.array([[1, 2, 0], [1, 1, 0], [0, 1, 0], [0, 0, 5]])
    lda = model([[9], [8], [7]])
    ab = np.log(0.5 / (0.5 * 0.75)) / np.log(2)
    assert lda.coherence(X, "npmi", 2)[0] == pytest.approx(ab)
    assert lda.coherence(X, "npmi", 3)[0] == pytest.approx((ab - 2) / 3)
    umass = [np.log(3 / 2), np.log(1 / 2), np.log(1 / 3)]
    assert lda.coherence(X, "umass", 3)[0] == pytest.approx(np.mean(umass))
    # Vectors (1, ab) and (ab, 1): their sum has equal parts.
    cosine_ab = (1 + ab) / np.sqrt(2 * (1 + ab**2))
    assert lda.coherence(X, "c_v", 2)[0] == pytest.approx(cosine_ab)


def test_coherence_at_its_limits():
    lda = model([[9], [8]])
    assert lda.coherence([[1, 1], [2, 2]], "npmi", 2) == [1]
    assert lda.coherence([[1, 1], [2, 2]], "c_v", 2) == [pytest.approx(1)]
    assert lda.coherence([[1, 0], [0, 2]], "npmi", 2) == [-1]
    assert lda.coherence([[0, 1], [0, 2]], "c_v", 2) == [pytest.approx(0.5)]  # one word counts as zero
    assert lda.coherence([[0, 1]], "npmi", 2) == [-1]
    assert np.isnan(lda.coherence([[0, 1]], "umass", 2)).all()


def test_only_the_words_of_a_topic_are_paired():
    """Marks of one word and topic are gone before the next: topics give alone what they give together."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, size=(50, 30))
    lda = model(rng.poisson(1.0, size=(30, 12)))
    for measure in coherence.MEASURES:
        together = lda.coherence(X, measure, 5)
        alone = [model(column[:, None]).coherence(X, measure, 5)[0] for column in _columns(lda)]
        np.testing.assert_array_equal(together, alone)


def _columns(lda):
    return lda.word_topic_counts_.toarray().T


def test_coherence_refuses():
    lda = model([[1, 0], [0, 1]])
    with pytest.raises(DataError, match="measure='c_uci'"):
        lda.coherence([[1, 1]], "c_uci")
    with pytest.raises(DataError, match="n_words=1"):
        lda.coherence([[1, 1]], n_words=1)
    with pytest.raises(DataError, match="n_words=10 of 1"):
        model([[1]]).coherence([[1]])
    with pytest.raises(DataError, match="no count above zero"):
        lda.coherence([[0, 0]])
    with pytest.raises(DataError, match="3 features"):
        lda.coherence([[1, 1, 1]])


def test_diversity():
    lda = model([[5, 5, 0], [4, 0, 0], [0, 4, 0], [0, 0, 9], [0, 0, 8]])
    assert lda.topic_diversity(n_words=1) == pytest.approx(2 / 3)
    assert lda.topic_diversity(n_words=2) == pytest.approx(5 / 6)
    assert lda.topic_diversity() == pytest.approx(5 / 15)
    assert model([[1], [2]]).topic_diversity() == 1
    with pytest.raises(DataError, match="n_words=0"):
        lda.topic_diversity(0)


@pytest.mark.parametrize("cls", [sd.LatentDirichletAllocation, sd.GSDMM])
def test_models_that_return_frames_are_read_as_others(cls, tmp_path):
    X = np.repeat([[9, 9, 0, 0], [0, 0, 9, 9]], 20, axis=0)
    plain = cls(2, max_iter=20, random_state=0).fit(X)
    framed = cls(2, max_iter=20, random_state=0).set_output(transform="pandas").fit(X)
    found = [model.representative_documents(X=X, min_tokens=1) for model in (plain, framed)]
    assert str(found[0]) == str(found[1])
    framed.explore(X=X, path=tmp_path / "topics.html")
    if cls is sd.GSDMM:
        assert (framed.predict(X) == plain.predict(X)).all()
