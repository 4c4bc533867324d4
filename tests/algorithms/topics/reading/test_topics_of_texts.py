"""Coherence over windows, topics of tokens, and measures of a number of topics, against definitions."""

import itertools

import numpy as np
import pytest
from lda_problems import small_lda
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks.packing import PARTS, pack_counts
from stradask.algorithms.topics.inference import FixedTopics, token_topics
from stradask.algorithms.topics.reading.coherence import c_npmi, c_v
from stradask.algorithms.topics.reading.coherence_windows import windowed_coherence
from stradask.algorithms.topics.reading.numbers import griffiths, log_words
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError

_WORDS = ["river", "bank", "money", "loan"]


@pytest.fixture(scope="module")
def banks():
    X = np.repeat([[5, 2, 0, 0], [0, 2, 5, 5]], 20, axis=0)
    return sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X, vocabulary=_WORDS)


# Coherence ----------------------------------------------------------------------------------------------


def made_texts(rng, n_words, repeats):
    vocabulary = [f"w{i}" for i in range(n_words)]
    sizes = rng.integers(3, n_words, 60)
    chosen = (rng.integers(0, n_words, n) if repeats else rng.permutation(n_words)[:n] for n in sizes)
    texts = [[vocabulary[i] for i in row] for row in chosen]
    return vocabulary, texts, np.array([rng.choice(n_words, 5, replace=False) for _ in range(3)])


def by_definition(top, vocabulary, texts, measure, size):
    windows = []
    for text in texts:
        windows += [set(text[at : at + size]) for at in range(max(len(text) - size, 0) + 1)]
    values = []
    for row in top:
        words = [vocabulary[w] for w in row]
        p = np.array([[np.mean([a in own and b in own for own in windows]) for a in words] for b in words])
        with np.errstate(divide="ignore", invalid="ignore"):
            npmi = np.log((p + 1e-12) / np.outer(p.diagonal(), p.diagonal())) / -np.log(p + 1e-12)
        npmi = np.where(np.outer(p.diagonal(), p.diagonal()) > 0, npmi, 0)
        if measure == "c_npmi":
            values.append(np.mean([npmi[i, j] for i, j in itertools.combinations(range(len(words)), 2)]))
            continue
        total = npmi.sum(axis=0)
        cosines = [v @ total / (np.linalg.norm(v) * np.linalg.norm(total)) if v.any() else 0 for v in npmi]
        values.append(np.mean(cosines))
    return values


@pytest.mark.parametrize("size", [1, 2, 7, 30, 110])
@pytest.mark.parametrize("measure", ["c_v", "c_npmi"])
def test_windows_are_counted_as_the_definition_says(measure, size):
    vocabulary, texts, top = made_texts(np.random.default_rng(size), 12, repeats=True)
    top = np.vstack([top, [3, 4, 3 + 2, 0, 1]])
    texts = [*texts, ["other"] * 3, [vocabulary[5]], []]
    found = windowed_coherence(top, vocabulary, texts, measure, size)
    np.testing.assert_allclose(found, by_definition(top, vocabulary, texts, measure, size), atol=1e-12)


@pytest.mark.parametrize(
    ("measure", "size", "values"),
    [
        ("c_v", 110, [0.7156809938178201, 0.7178476663126301, 0.7995846196167953]),
        ("c_v", 12, [0.40522061624767336, 0.39684739060084284, 0.3752724874819467]),
        ("c_npmi", 10, [-0.03715655627122525, -0.03688404994085172, -0.04183687531347532]),
    ],
)
def test_coherence_is_that_of_gensim_where_no_word_comes_twice(measure, size, values):
    vocabulary, texts, top = made_texts(np.random.default_rng(3), 40, repeats=False)  # gensim 4.4.0
    np.testing.assert_allclose(windowed_coherence(top, vocabulary, texts, measure, size), values, atol=1e-10)


def test_coherence_over_texts_by_a_model(banks):
    texts = ["The bank of a RIVER", "money, money; a loan", "bank loan"]
    found = banks.coherence(texts=texts, measure="c_v", n_words=2)
    words = [["the", "bank", "of", "river"], ["money", "money", "loan"], ["bank", "loan"]]
    np.testing.assert_array_equal(found, banks.coherence(texts=words, measure="c_v", n_words=2))
    top = banks.topics(n_words=2).indices
    np.testing.assert_allclose(found, by_definition(top, _WORDS, words, "c_v", 110))
    assert banks.coherence([[1, 1, 0, 0]], "c_npmi", n_words=2).shape == (2,)


@pytest.mark.parametrize("together", [np.zeros((3, 3)), np.full((3, 3), 7.0)])
def test_words_that_never_or_always_occur(together):
    assert np.isfinite(c_v(together, 7))
    assert np.isfinite(c_npmi(together, 7))


def test_coherence_refuses_what_it_cannot_know(banks):
    with pytest.raises(DataError, match="give one of them"):
        banks.coherence()
    with pytest.raises(DataError, match="give one of them"):
        banks.coherence([[1, 1, 0, 0]], texts=["bank"])
    with pytest.raises(DataError, match="window"):
        banks.coherence([[1, 1, 0, 0]], window=3)
    with pytest.raises(DataError, match="measure"):
        banks.coherence(texts=["bank"], measure="umass")
    with pytest.raises(DataError, match="vocabulary"):
        small_lda(2).fit([[1, 2], [3, 1]]).coherence(texts=["bank"], measure="c_v", n_words=2)
    with pytest.raises(DataError, match="4 of the topics' 4 most probable words, such as 'river', are in"):
        banks.coherence(texts=["whale"], measure="c_v", n_words=2)
    with pytest.raises(DataError, match="row 1 holds 3"):
        banks.coherence(texts=[["bank"], [3]], measure="c_v", n_words=2)


# Tokens -------------------------------------------------------------------------------------------------


def test_probabilities_of_tokens_are_those_of_the_enumeration():
    rng = np.random.default_rng(0)
    counts = sparse.csr_array(rng.integers(0, 9, (5, 3)))
    alpha, beta = np.array([0.3, 0.8, 0.5]), np.full(5, 0.2)
    X = sparse.csr_array(np.array([[2, 0, 1, 1, 1], [0, 1, 0, 0, 0], [1, 1, 1, 0, 0]], np.int32))
    phi = (counts.toarray() + beta[:, None]) / (counts.toarray().sum(axis=0) + beta.sum())
    best, share, whole = token_topics(
        FixedTopics(counts, alpha, beta), X, n_sweeps=40_000, random_state=1, n_jobs=1, whole=True
    )
    entry = 0
    for d in range(3):
        words = np.repeat(X[[d]].indices, X[[d]].data)
        expected, total = np.zeros((len(words), 3)), 0.0
        for z in itertools.product(range(3), repeat=len(words)):
            weight, held = 1.0, np.zeros(3)
            for w, k in zip(words, z, strict=True):
                weight *= phi[w, k] * (held[k] + alpha[k])
                held[k] += 1
            total += weight
            expected[range(len(words)), z] += weight
        expected /= total
        for w in X[[d]].indices:
            own = expected[np.flatnonzero(words == w)[0]]
            np.testing.assert_allclose(whole[entry], own, atol=0.006)
            assert share[entry] == whole[entry].max() == whole[entry, best[entry]]
            entry += 1
    np.testing.assert_allclose(whole.sum(axis=1), 1)


def test_tokens_of_texts_keep_their_order(banks):
    found = banks.topics_of_tokens(
        ["The bank of the river: bank!", "", "Money in the bank"], all_probabilities=True
    )
    assert found.words == ["the", "bank", "of", "the", "river", "bank", "money", "in", "the", "bank"]
    assert found.documents.tolist() == [0] * 6 + [2] * 4
    assert found.columns.tolist() == [-1, 1, -1, -1, 0, 1, 2, -1, -1, 1]
    first, last = found.of(0), found.of(2)
    assert first[1] == first[5]
    assert first[1][1] == first[4][1] != last[0][1] == last[3][1]
    assert np.isnan(found.all_probabilities[0]).all()
    np.testing.assert_allclose(found.all_probabilities[1].max(), found.probabilities[1])
    assert found.of(1) == []
    listed = banks.topics_of_tokens([["bank", "river"], ["<b>"]])
    assert listed.words == ["bank", "river", "<b>"]
    assert "&lt;b&gt;" in listed._repr_html_()
    assert "<b>" not in listed._repr_html_().replace("<b>0</b>", "").replace("<b>1</b>", "")


def test_tokens_do_not_depend_on_company_or_threads(banks):
    X = np.array([[1, 2, 0, 0], [0, 1, 3, 1], [0, 0, 0, 0], [2, 0, 0, 9]])
    whole, alone = banks.topics_of_tokens(X), banks.topics_of_tokens(X[1:2])
    assert whole.of(1) == alone.of(0)
    assert [word for word, *_ in whole.of(0)] == ["river", "bank"]
    other = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30, n_jobs=2)
    other.fit(np.repeat([[5, 2, 0, 0], [0, 2, 5, 5]], 20, axis=0), vocabulary=_WORDS)
    np.testing.assert_array_equal(other.topics_of_tokens(X).probabilities, whole.probabilities)


def test_words_that_were_not_in_the_fit_have_no_topic():
    lda = small_lda(2).fit([[3, 2, 0], [1, 4, 0]])
    with pytest.warns(UserWarning, match="1 tokens"):
        found = lda.topics_of_tokens([[1, 0, 1]], all_probabilities=True)
    assert found.topics[1] == -1
    assert np.isnan(found.probabilities[1])
    assert np.isnan(found.all_probabilities[1]).all()
    assert np.isfinite(found.probabilities[0])


def test_texts_need_words(banks):
    with pytest.raises(DataError, match="vocabulary"):
        small_lda(2).fit([[3, 2], [1, 4]]).topics_of_tokens(["bank"])
    with pytest.raises(DataError, match="n_sweeps"):
        banks.topics_of_tokens(["bank"], n_sweeps=3)
    assert banks.topics_of_tokens("the bank").words == ["the", "bank"]
    assert banks.topics_of_tokens(iter(["the bank"])).words == ["the", "bank"]


# Numbers of topics --------------------------------------------------------------------------------------


def test_measures_are_those_of_their_definitions():
    X, *_ = make_lda_corpus(60, n_features=40, n_components=4, random_state=0)
    lda = sd.LatentDirichletAllocation(4, max_iter=40, n_draws=8, random_state=0).fit(X)
    found, p, theta = lda.number_measures(), lda.topic_word_, lda.doc_topic_
    pairs = list(itertools.combinations(range(4), 2))
    cosines = [p[j] @ p[k] / np.linalg.norm(p[j]) / np.linalg.norm(p[k]) for j, k in pairs]
    assert found["cao_juan"] == pytest.approx(np.mean(cosines))
    both = [((p[j] - p[k]) * np.log(p[j] / p[k])).sum() / 2 for j, k in pairs]
    assert found["deveaud"] == pytest.approx(np.mean(both))
    one = np.linalg.svd(p, compute_uv=False)
    other = np.sort(np.asarray(X.sum(axis=1)).ravel() @ theta)[::-1]
    one, other = one / one.sum(), other / other.sum()
    assert found["arun"] == pytest.approx(((one - other) * np.log(one / other)).sum())
    single = small_lda(1).fit(X).number_measures()
    assert np.isnan(single["cao_juan"])
    assert "griffiths" not in single


def test_griffiths_is_the_harmonic_mean_of_the_probability_of_words():
    rng = np.random.default_rng(0)
    drawn = [sparse.csr_array(rng.integers(0, 4, (3, 2)).astype(np.int32)) for _ in range(5)]
    beta, seeds = np.array([0.3]), sparse.csr_array([[0.5, 0], [0, 0], [0, 1.5]])
    names = [f"words_{name}" for name in PARTS]
    draws = [dict(zip(names, pack_counts(counts), strict=True)) | {"beta": beta} for counts in drawn]

    def probability(counts):  # token after token
        total = 1.0
        for k in range(2):
            prior = 0.3 + seeds.toarray()[:, k]
            n = 0
            for w in range(3):
                for c in range(counts.toarray()[w, k]):
                    total *= (prior[w] + c) / (prior.sum() + n)
                    n += 1
        return total

    expected = np.log(5 / sum(1 / probability(counts) for counts in drawn))
    assert griffiths([log_words(draw, (3, 2), seeds) for draw in draws]) == pytest.approx(expected)


def test_words_of_the_model_that_are_never_cut_from_texts_are_named():
    texts = ["covid-19 vaccine 7 trial", "covid-19 city", "model weights", "model prompt"] * 5
    words = sorted({word for text in texts for word in text.split()})
    X = np.array([[text.split().count(word) for word in words] for text in texts])
    lda = sd.LatentDirichletAllocation(2, random_state=0, max_iter=30).fit(X, vocabulary=words)
    named = "1 of 8 words, such as 'covid-19', are no words as text_counts makes them"
    with pytest.warns(UserWarning, match=named):
        found = lda.topics_of_tokens(texts)
    known = {word for word, topic, _ in found.of(0) if topic >= 0}
    assert known == {"vaccine", "7", "trial"}
    with (
        pytest.warns(UserWarning, match=named),
        pytest.warns(
            UserWarning, match="1 of the topics' 8 most probable words, such as 'covid-19', are in no"
        ),
    ):
        lda.coherence(texts=texts, measure="c_v", n_words=8)
    cut = [text.split() for text in texts]  # without a warning
    assert lda.coherence(texts=cut, measure="c_v", n_words=8).shape == (2,)
    assert lda.topics_of_tokens(cut).of(0)[0][1] >= 0
