"""Keywords with a switch: the chain against enumeration, the words of topics, and bits."""

import itertools
import warnings

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse, stats
from scipy.special import betaln, gammaln

import stradask as sd
from stradask.algorithms.topics.blocks import document_rows
from stradask.algorithms.topics.blocks.draws import unpack
from stradask.algorithms.topics.blocks.program import TopicProgram
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.keywords import KeywordGibbs
from stradask.errors import DataError, ModelFileError
from stradask.scheduler.engine import run


def place_of(doc, word):
    return tuple(np.asarray(doc).ravel().tolist()), tuple(np.asarray(word).ravel().tolist())


class Kept:
    """Counts of every fourth sweep."""

    def __init__(self):
        self.found, self.joint = [], {}

    def take(self, sweep, collect):
        if sweep % 4 == 0:
            gathered = collect()
            words = np.hstack([gathered.words.toarray(), gathered.extra["keywords"].toarray()[:, 1:]])
            place = place_of(gathered.documents.toarray(), words)
            self.found.append(place)
            self.joint[place] = gathered.joint

    def arrays(self):
        return {}


@pytest.mark.parametrize("frequent", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_chain_is_that_of_the_enumeration(frequent):
    X, alpha, beta = np.array([[2, 1, 0], [0, 1, 2]]), np.array([0.6, 0.3]), np.array([0.4, 0.3, 0.5])
    weights, switch = np.array([[0.0, 0.0], [0.0, 0.7], [0.0, 0.2]]), (1.5, 0.8)  # of topic 1
    tokens = [(d, w) for d in range(2) for w in range(3) for _ in range(X[d, w])]
    own = [range(3) if weights[w].any() else range(2) for _, w in tokens]  # column 2: keywords of topic 1
    expected: dict = {}
    prior: dict = {}  # as guided LDA has it, with the switch of its own prior
    log_joint: dict = {}
    for z in itertools.product(*own):
        doc, word = np.zeros((2, 3), int), np.zeros((3, 3), int)
        for (d, w), c in zip(tokens, z, strict=True):
            doc[d, c] += 1
            word[w, c] += 1
        both = np.column_stack([doc[:, 0], doc[:, 1] + doc[:, 2]])
        log_p = (gammaln(both + alpha) - gammaln(alpha)).sum()
        log_p += 2 * gammaln(alpha.sum()) - gammaln(both.sum(axis=1) + alpha.sum()).sum()
        for c in (0, 1):
            log_p += (gammaln(word[:, c] + beta) - gammaln(beta)).sum()
            log_p += gammaln(beta.sum()) - gammaln(word[:, c].sum() + beta.sum())
        key = weights[1:, 1]
        log_p += (gammaln(word[1:, 2] + key) - gammaln(key)).sum()
        log_p += gammaln(key.sum()) - gammaln(word[:, 2].sum() + key.sum())
        n_on, n_off = word[:, 2].sum(), word[:, 1].sum()
        place = place_of(both, word)
        with_prior = log_p + betaln(n_on + key.sum(), n_off + beta.sum())
        log_p += betaln(n_on + switch[0], n_off + switch[1]) - betaln(*switch)
        expected[place] = expected.get(place, 0.0) + np.exp(log_p)
        prior[place] = prior.get(place, 0.0) + np.exp(with_prior)
        log_joint[place] = log_p / len(tokens)
    corpus = corpus_of_matrix(sparse.csr_array(X.astype(np.int32)), 1, copies=False)
    sampler = KeywordGibbs(sparse.csr_array(weights), switch)
    background = sparse.csr_array((3, 3), dtype=np.int32) if frequent else None
    program = TopicProgram(
        corpus, sampler.n_columns, alpha, beta, 0, sampler=sampler, seeds=sampler.seeds, exact=True,
        in_process=True, background=background,
    )  # fmt: skip
    kept = Kept()
    run(program, program.schedule, max_rounds=5_000, draws=kept)
    if not frequent:
        for place, value in kept.joint.items():
            assert value == pytest.approx(log_joint[place], abs=1e-9)
    names = list(expected)
    p = np.array([expected[name] for name in names]) / sum(expected.values())
    count = np.array([kept.found.count(name) for name in names])
    assert count.sum() == len(kept.found)
    often = p * len(kept.found) > 20
    z = (count - p * len(kept.found))[often] / np.sqrt(p * (1 - p) * len(kept.found))[often]
    assert np.abs(z).max() < 5.5
    assert (z**2).mean() < 2.5
    assert stats.entropy(count / count.sum() + 1e-12, p) < 0.15
    other = np.array([prior[name] for name in names])
    assert stats.entropy(p, other) > 0.02  # the prior of the switch matters here
    rare = stats.entropy(count / count.sum() + 1e-12, other)
    assert rare > stats.entropy(count / count.sum() + 1e-12, p) + 0.01


def corpus(n=120):
    """Documents of three topics of four words each, and common words."""
    rng = np.random.default_rng(0)
    topics = np.hstack([np.kron(np.eye(3), np.full(4, 0.2)), np.full((3, 2), 0.1)])
    return sparse.csr_array(np.array([rng.multinomial(30, s @ topics) for s in rng.dirichlet([0.3] * 3, n)]))


def model(**options):
    return sd.KeyATM(3, **({"random_state": 0, "max_iter": 60} | options))


def test_topics_have_the_words_of_their_keywords():
    X, seeds = corpus(), {2: [0, 1], 0: [4, 5]}
    key = model().fit(X, seed_words=seeds)
    assert set(key.topic_word_[2].argsort()[-4:]) == {0, 1, 2, 3}
    assert set(key.topic_word_[0].argsort()[-4:]) == {4, 5, 6, 7}
    assert key.switch_[1] == 0
    assert (key.switch_[[0, 2]] > 0.1).all()
    # The expected words of a topic: the mixture of its two distributions.
    on = key.keyword_counts_.toarray()[:, 2]
    total = key.doc_topic_counts_.sum(axis=0)[2]
    weight = np.where(np.arange(14) < 2, 0.1, 0.0)
    counts = sparse.csr_array(X).sum(axis=0)
    assert (on <= counts).all()
    assert on.sum() + 1 == pytest.approx(key.switch_[2] * (total + 2))
    regular = (1 - key.switch_[2]) / (total - on.sum() + 0.14)
    off = (key.topic_word_[2] - key.switch_[2] * (on + weight) / (on.sum() + 0.2)) / regular - 0.01
    np.testing.assert_allclose(off, np.round(off), atol=1e-6)
    assert off.sum() == pytest.approx(total - on.sum())
    shares = model().fit_transform(X, seed_words=seeds)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.abs(shares - key.transform(X)).mean() < 0.05


def test_bits_on_threads_on_a_cluster_and_from_a_checkpoint(tmp_path):
    X, given = corpus(), {"seed_words": {2: [0, 1], 0: [4, 5]}}
    options = {"n_groups": 4, "max_iter": 20}
    key = model(**options).fit(X, **given)
    workers = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(2, **workers) as cluster, Client(cluster):
        far = model(engine="dask", **options).fit(X, **given)
    model(checkpoint=tmp_path / "c", **options).fit(X, **given, callback=lambda info: info.round == 12)
    resumed = model(checkpoint=tmp_path / "c", **options).fit(X, **given)
    for other in (model(n_jobs=2, **options).fit(X, **given), far, resumed):
        assert (other.keyword_counts_ != key.keyword_counts_).nnz == 0
        np.testing.assert_array_equal(other.components_, key.components_)


@pytest.mark.parametrize("name", ["_FAST_ROWS", pytest.param("DENSE_TOPICS", marks=pytest.mark.slow)])
def test_documents_in_any_form_give_the_same_bits(name, monkeypatch):
    # Short documents; lists of more topics.
    X, given = corpus(40), {"seed_words": {2: [0, 1], 0: [4, 5]}}
    dense = model(max_iter=12, n_draws=2).fit(X, **given)
    monkeypatch.setattr(document_rows, name, 0)
    monkeypatch.setattr(document_rows, "are_short", lambda *_: name == "_FAST_ROWS")
    other = model(max_iter=12, n_draws=2).fit(X, **given)
    assert (other.keyword_counts_ != dense.keyword_counts_).nnz == 0
    assert (other.doc_topic_counts_ != dense.doc_topic_counts_).nnz == 0
    assert other.log_likelihood_[-1] == pytest.approx(dense.log_likelihood_[-1], rel=1e-12)
    for one, two in zip(dense.draws_, other.draws_, strict=True):
        assert all(np.array_equal(array, two[place]) for place, array in one.items())


def generated(seed):
    """Documents from the prior: counts, words of topics, shares of documents; each topic has two keywords."""
    rng = np.random.default_rng([5, seed])
    phi, keys = rng.dirichlet([0.5] * 8, 2), np.zeros((2, 8))
    keys[0, :2], keys[1, 2:4] = rng.dirichlet([0.8, 0.8], 2)
    on = rng.beta(8.0, 6.0, (2, 1))
    topics = (1 - on) * phi + on * keys
    shares = rng.dirichlet([0.6, 0.6], 40)
    return np.array([rng.multinomial(25, share @ topics) for share in shares]), topics, shares


def fitted_to_generated(seed, **options):
    priors = {"keyword_prior": 0.8, "doc_topic_prior": 0.6, "topic_word_prior": 0.5}
    own = sd.KeyATM(2, **priors, switch_prior=(8, 6), exact=True, random_state=seed, **options)
    return own.fit(generated(seed)[0], seed_words={0: [0, 1], 1: [2, 3]})


def test_intervals_are_quantiles_of_what_the_draws_say(tmp_path):
    key = fitted_to_generated(0, max_iter=80, n_draws=20)
    found, rng = key.topic_word_interval(words=np.arange(8)), np.random.default_rng(0)
    drawn = []
    for draw in key.draws_:
        off, on = (unpack(draw, kind, (8, 2)).toarray() for kind in ("words", "keywords"))
        phi = np.array([rng.dirichlet(own + 0.5, 3_000) for own in off.T])
        for k, words in enumerate(([0, 1], [2, 3])):
            switch = rng.beta(on[:, k].sum() + 8, off[:, k].sum() + 6, (3_000, 1))
            phi[k] *= 1 - switch
            phi[k][:, words] += switch * rng.dirichlet(on[words, k] + 0.8, 3_000)
        drawn.append(phi)
    drawn = np.concatenate(drawn, axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95], axis=1)
    width = high - low
    assert np.abs((found.low - low) / width).max() < 0.02
    assert np.abs((found.high - high) / width).max() < 0.02
    np.testing.assert_allclose(found.mean, drawn.mean(axis=1), atol=0.02 * width.max())
    assert key.number_measures()["griffiths"] < 0
    assert key.doc_topic_interval().mean.shape == (40, 2)
    assert key.topics_by_group(np.arange(40) % 2, level=0.9).low.shape == (2, 2)
    key.save(tmp_path / "m.npz")
    again = sd.load(tmp_path / "m.npz")
    np.testing.assert_array_equal(again.topic_word_interval(words=np.arange(8)).low, found.low)
    X = generated(0)[0]
    X[0, 0] += 3  # a document of another length
    again.fit(X, seed_words={0: [0, 1], 1: [2, 3]}, vocabulary=list("abcdefgh"))
    again.explore(X=X, path=tmp_path / "page.html", groups=np.arange(40) % 2)
    assert '"kind":"of the posterior"' in (tmp_path / "page.html").read_text(encoding="utf-8")
    key.keyword_weights_ = key.keyword_weights_[:4]
    key.save(tmp_path / "wrong.npz")
    with pytest.raises((DataError, ModelFileError), match="keyword_weights_"):
        sd.load(tmp_path / "wrong.npz")


@pytest.mark.slow
def test_90_per_cent_intervals_cover_90_per_cent_of_what_was_drawn_from_the_prior():
    covers = []
    for seed in range(64):
        _, topics, shares = generated(seed)
        key = fitted_to_generated(seed, max_iter=2_000, n_draws=60)
        found = key.topic_word_interval(words=np.arange(8)), key.doc_topic_interval()
        covers.append(
            [
                ((own.low <= true) & (true <= own.high)).mean()
                for own, true in zip(found, (topics, shares), strict=True)
            ]
        )
    error = np.std(covers, axis=0) / 8
    assert (np.abs(np.mean(covers, axis=0) - 0.9) < 4 * error + 0.01).all(), np.mean(covers, axis=0)
    assert (error < 0.02).all(), error


@pytest.mark.parametrize(
    ("options", "seeds", "message"),
    [
        ({}, None, "needs seed_words"),
        ({}, {}, "no keyword"),
        ({}, {0: {0: 0}}, "no keyword"),
        ({}, {3: [0]}, "topic 3"),
        ({"switch_prior": (1.0,)}, {0: [0]}, "switch_prior"),
        ({"switch_prior": (1.0, -1.0)}, {0: [0]}, "switch_prior"),
        ({"keyword_prior": 0.0}, {0: [0]}, "keyword_prior"),
    ],
)
def test_wrong_keywords_are_refused(options, seeds, message):
    with pytest.raises((DataError, ValueError), match=message):
        model(**options).fit(corpus(), seed_words=seeds)


def test_keywords_that_no_document_has_are_named():
    X = np.array([[2, 1, 0], [0, 3, 0]])
    key, given = sd.KeyATM(2, max_iter=2, random_state=0), {"seed_words": {0: [0], 1: [1, 2]}}
    with pytest.warns(UserWarning, match="1 of the keywords, columns '2':") as caught:
        key.fit(X, **given)
    assert [warning.filename for warning in caught] == [__file__]
    words = ["sun", "moon", "mars"]
    with pytest.warns(UserWarning, match="1 of the keywords, 'mars':"):
        key.fit_transform(X, seed_words={0: ["sun", "mars"]}, vocabulary=words)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        key.fit(X, seed_words={0: ["sun"], 1: {"moon": 1.0, "mars": 0.0}}, vocabulary=words)


def test_shares_are_of_tokens_and_files_are_transformed(tmp_path):
    rng = np.random.default_rng(0)
    own = rng.multinomial(20, [0.5, 0.5], 20)  # nearly all tokens are keywords
    X = np.block(
        [[own, np.zeros((20, 4), int)], [np.zeros((20, 2), int), rng.multinomial(20, [0.25] * 4, 20)]]
    )
    options = {"max_iter": 20, "random_state": 0}
    found = sd.KeyATM(2, **options).fit(X, seed_words={0: [0, 1]})
    tokens = found.doc_topic_counts_.sum(axis=0)
    np.testing.assert_allclose(found.topics().shares, tokens / tokens.sum(), atol=1e-12)
    rows, columns = np.nonzero(X)
    lines = [f"{d + 1} {w + 1} {X[d, w]}" for d, w in zip(rows, columns, strict=True)]
    path = tmp_path / "docword.txt"
    path.write_text("\n".join(["40", "6", str(len(rows)), *lines]) + "\n")
    shares = sd.KeyATM(2, **options).fit_transform(path, seed_words={0: [0, 1]})
    np.testing.assert_array_equal(shares.compute(), found.transform(X))
