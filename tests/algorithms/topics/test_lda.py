"""LatentDirichletAllocation as a user meets it."""

import numpy as np
import pytest
from lda_chains import Chain, groups_of
from lda_problems import dense_counts, joint_by_definition, made_corpus, small_lda
from scipy import sparse
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms.topics import priors
from stradask.algorithms.topics.blocks import document_rows
from stradask.algorithms.topics.blocks.program import TopicProgram
from stradask.algorithms.topics.evaluation import document_completion
from stradask.errors import DataError
from stradask.scheduler.program import Program


@pytest.fixture(scope="module")
def corpus():
    return made_corpus(300, n_features=400, n_components=5, mean_length=60, random_state=0)[0]


# Determinism ------------------------------------------------------------------------------------
@pytest.mark.parametrize("n_components", [7, 300], ids=["dense rows", "lists"])
def test_the_model_is_bitwise_the_same_for_any_number_of_threads(n_components):
    X, *_ = made_corpus(1500, n_features=800, n_components=8, mean_length=100, random_state=1)
    models = [small_lda(n_components, max_iter=6, n_jobs=n_jobs).fit(X) for n_jobs in (1, 2, 4)]
    assert groups_of(X, 7) > 1, "one group proves nothing"
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].components_, other.components_)
        np.testing.assert_array_equal(models[0].doc_topic_, other.doc_topic_)
        np.testing.assert_array_equal(models[0].log_likelihood_, other.log_likelihood_)
    np.testing.assert_array_equal(models[0].transform(X[:40]), models[1].transform(X[:40]))


def test_another_seed_gives_another_model(corpus):
    assert (
        dense_counts(small_lda().fit(corpus)) != dense_counts(small_lda(random_state=1).fit(corpus))
    ).any()


# What is counted --------------------------------------------------------------------------------
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("n_components", [1, 2, 40, 257, 700])
def test_every_token_has_exactly_one_topic(corpus, n_components, exact):
    empty = sparse.csr_array((1, corpus.shape[1]), dtype=np.int32)
    corpus = sparse.csr_array(sparse.vstack([empty, corpus[:100], empty, empty, corpus[100:], empty]))
    lda = small_lda(n_components, max_iter=4, exact=exact).fit(corpus)
    np.testing.assert_array_equal(lda.word_topic_counts_.sum(axis=1), corpus.sum(axis=0))
    np.testing.assert_array_equal(lda.doc_topic_counts_.sum(axis=1), corpus.sum(axis=1))
    np.testing.assert_array_equal(lda.word_topic_counts_.sum(axis=0), lda.doc_topic_counts_.sum(axis=0))
    assert lda.word_topic_counts_.data.min() > 0
    np.testing.assert_allclose(lda.topic_word_.sum(axis=1), 1)
    np.testing.assert_allclose(lda.doc_topic_.sum(axis=1), 1)


@pytest.mark.parametrize("n_components", [7, 300], ids=["dense rows", "lists"])
@pytest.mark.parametrize("background", [False, True])
def test_counts_agree_with_the_assignments_after_grouped_sweeps(corpus, n_components, background):
    """Groups share nothing but the totals, and those come together again after each step."""
    sizes = (n_components, np.full(n_components, 0.1), np.full(corpus.shape[1], 0.01))
    before = None
    if background:
        before = Chain(corpus, *sizes, 5).word_topic_counts()
    state = Chain(corpus, *sizes, 1, background=before, n_groups=4)
    for round_ in range(3):
        counts = state.sweep(round_).word_topic_counts()
        np.testing.assert_array_equal(counts.sum(axis=1), corpus.sum(axis=0))
        np.testing.assert_array_equal(state.doc_topic_counts().sum(axis=1), corpus.sum(axis=1))
        held = counts + before if background else counts
        np.testing.assert_array_equal(state.totals, held.sum(axis=0))
        kept = 0
        for block, value in enumerate(state.blocks):
            words = state.program.words.ids[state.program.words.of(block)][: len(value.rows)]
            np.testing.assert_array_equal(value.rows, held.tocsr()[words].toarray())
            kept += len(words)
        assert kept > 10
    done = state.run(3, n_jobs=2)
    assert done.n_rounds == 3
    assert done.history.as_dict()["updates"].tolist() == [corpus.sum()] * 3
    assert (done.fetched.words != counts).nnz == 0


def test_no_random_stream_is_used_twice(corpus, monkeypatch):
    names = []
    sweep = document_rows.DenseDocuments.sweep
    monkeypatch.setattr(
        document_rows.DenseDocuments,
        "sweep",
        lambda self, place, words, mode: (names.append(mode[1:]), sweep(self, place, words, mode)),
    )
    # On threads a kernel takes the tasks, with the same streams (`test_gibbs_steps`).
    monkeypatch.setattr(TopicProgram, "run_steps", Program.run_steps)
    Chain(corpus, 5, np.ones(5), np.ones(corpus.shape[1]), 1, n_groups=4).run(3)
    assert len(names) == 3 * 4 * 4
    lda = small_lda(max_iter=4, warm_start=True).fit(corpus)
    lda.fit(corpus).partial_fit(corpus).partial_fit(corpus)
    fits = names[3 * 4 * 4 :]
    first, second = fits[:4], fits[4:]  # a second fit of the same seed is the same fit
    assert len(second) == 5 + 4 + 4 + 4
    assert set(first) <= set(second)
    assert len(set(names[: 3 * 4 * 4])) == 3 * 4 * 4
    assert len(set(second)) == len(second)


def test_grouped_and_exact_sweeps_reach_the_same_likelihood():
    X, *_ = made_corpus(1200, n_features=800, n_components=8, mean_length=100, random_state=1)
    reached = {}
    for exact in (False, True):
        chains = [small_lda(8, max_iter=60, exact=exact, random_state=seed).fit(X) for seed in range(5)]
        reached[exact] = max(lda.log_likelihood_[-1] for lda in chains)  # a chain can stick
    assert groups_of(X, 8) > 1
    assert reached[False] == pytest.approx(reached[True], rel=2e-3)


@pytest.mark.parametrize("n_components", [6, 300])
def test_the_reported_log_likelihood_is_that_of_the_definition(corpus, n_components):
    alpha = np.random.default_rng(0).gamma(1, size=n_components) + 0.01
    beta = np.random.default_rng(1).gamma(1, size=corpus.shape[1]) + 0.01
    lda = small_lda(n_components, doc_topic_prior=alpha, topic_word_prior=beta).fit(corpus)
    assert lda.log_likelihood_[-1] == pytest.approx(joint_by_definition(lda, corpus), rel=1e-12)


def test_sparse_and_dense_rows_reach_the_same_likelihood(corpus, monkeypatch):
    dense = np.mean(
        [small_lda(random_state=s, max_iter=60).fit(corpus).log_likelihood_[-1] for s in range(5)]
    )
    monkeypatch.setattr(document_rows, "DENSE_TOPICS", 0)
    lists = np.mean(
        [small_lda(random_state=s, max_iter=60).fit(corpus).log_likelihood_[-1] for s in range(5)]
    )
    assert dense == pytest.approx(lists, rel=3e-3)


# Recovery ---------------------------------------------------------------------------------------
def _distance_to_truth(n_documents):
    """Mean total variation of matched topics, for the likeliest of three chains (a chain can stick)."""
    spread = {"n_common_words": 0.1, "word_spread": 0.02}
    X, truth, _ = made_corpus(
        n_documents, n_features=500, n_components=6, mean_length=60, random_state=3, **spread
    )
    chains = [small_lda(6, max_iter=100, random_state=seed).fit(X) for seed in range(3)]
    found = max(chains, key=lambda lda: lda.log_likelihood_[-1]).topic_word_
    distance = 0.5 * np.abs(found[:, None] - truth[None]).sum(axis=2)
    return distance[linear_sum_assignment(distance)].mean()


def test_known_topics_are_found_and_more_tokens_find_them_better():
    few, many = _distance_to_truth(150), _distance_to_truth(1000)
    assert many < 0.05
    assert many < few / 2


def test_a_document_without_words_gets_the_priors_mean(corpus):
    lda = small_lda(3, doc_topic_prior=[1.0, 2.0, 5.0]).fit(corpus)
    np.testing.assert_allclose(lda.transform(np.zeros((1, corpus.shape[1]), int)), [[0.125, 0.25, 0.625]])


def test_words_unseen_in_training_do_no_harm(corpus):
    X = sparse.hstack([corpus, sparse.csr_array((corpus.shape[0], 3), dtype=np.int32)]).tocsr()
    lda = small_lda().fit(X)
    new = np.zeros((1, X.shape[1]), int)
    new[0, -1] = 4
    with pytest.warns(UserWarning, match="4 tokens of X, of 1 word"):
        assert np.isfinite(lda.transform(new)).all()
    assert np.isfinite(lda.perplexity(np.vstack([new, new])))


# Evaluation -------------------------------------------------------------------------------------
def test_document_completion_is_that_of_the_definition():
    rng = np.random.default_rng(0)
    phi, alpha = rng.dirichlet(np.full(30, 0.2), size=4), rng.gamma(1, size=4)
    observed, held_out = rng.poisson(0.4, (7, 30)), rng.poisson(0.4, (7, 30))
    total = 0.0
    for seen, unseen in zip(observed, held_out, strict=True):
        theta = np.full(4, 0.25)
        for _ in range(20):
            part = theta[:, None] * phi
            theta = alpha + (part / part.sum(axis=0) * seen).sum(axis=1)
            theta /= theta.sum()
        total += (unseen * np.log(theta @ phi)).sum()
    found = document_completion(phi, sparse.csr_array(observed), sparse.csr_array(held_out), alpha)
    assert found == pytest.approx(total / held_out.sum(), rel=1e-6)


def test_perplexity_of_the_truth_beats_the_fit_and_the_fit_beats_knowing_nothing():
    X, truth, _ = made_corpus(1200, n_features=500, n_components=6, mean_length=80, random_state=5)
    train, test = X[:1000], X[1000:]
    lda = small_lda(6, max_iter=100).fit(train)
    unigram = np.exp(
        -(test.sum(axis=0) * np.log((train.sum(axis=0) + 0.01) / train.sum())).sum() / test.sum()
    )
    best = sd.LatentDirichletAllocation(6, max_iter=1).fit(train)
    best.word_topic_counts_ = sparse.csr_array(np.round(truth.T * 1e7).astype(np.int32))
    assert best.perplexity(test) < lda.perplexity(test) < 0.9 * unigram
    assert lda.score(test) == pytest.approx(-np.log(lda.perplexity(test)))


@pytest.mark.parametrize("measure", ["npmi", "umass"])
def test_coherence_is_that_of_the_definition(corpus, measure):
    lda = small_lda(4).fit(corpus)
    top = np.argsort(-lda.topic_word_, axis=1, kind="stable")[:, :6]
    present = corpus.toarray() > 0
    expected = []
    for words in top:
        values = []
        for i, j in ((words[m], words[n]) for m in range(1, 6) for n in range(m)):
            both, first, second = (
                (present[:, i] & present[:, j]).sum(),
                present[:, i].sum(),
                present[:, j].sum(),
            )
            if measure == "umass":
                values.append(np.log((both + 1) / second))
            elif both == 0:
                values.append(-1)
            else:
                p = both / len(present)
                values.append(np.log(p / (first * second / len(present) ** 2)) / -np.log(p))
        expected.append(np.mean(values))
    np.testing.assert_allclose(lda.coherence(corpus, measure, n_words=6), expected)


def test_topics_read_well(corpus):
    lda = small_lda(3).fit(corpus)
    vocabulary = [f"w{i}" for i in range(corpus.shape[1])]
    topics = lda.topics(vocabulary, n_words=4)
    best = np.argsort(-lda.components_, axis=1)[:, :4]
    assert [list(words) for words in topics] == [[f"w{i}" for i in row] for row in best]
    assert topics.shares.sum() == pytest.approx(1)
    assert topics[1][0] in str(topics).splitlines()[2]
    np.testing.assert_allclose(topics.probabilities, np.take_along_axis(lda.topic_word_, best, axis=1))
    for n_words in (0, 2.5):
        with pytest.raises(DataError, match="n_words"):
            lda.topics(vocabulary, n_words=n_words)
    assert [len(words) for words in lda.topics(vocabulary, n_words=10**6)] == [len(vocabulary)] * 3
    with pytest.raises(DataError, match="vocabulary"):
        lda.topics(vocabulary[:-1])


# Priors -----------------------------------------------------------------------------------------
def test_fitted_priors_are_where_a_general_optimiser_finds_them():
    rng = np.random.default_rng(0)
    alpha = np.array([0.2, 0.5, 1.5, 3.0])
    counts = np.array([rng.multinomial(60, rng.dirichlet(alpha)) for _ in range(400)])

    def loss(log_alpha):
        a = np.exp(log_alpha)
        value = len(counts) * gammaln(a.sum()) - gammaln(counts.sum(axis=1) + a.sum()).sum()
        return -(value + (gammaln(counts + a) - gammaln(a)).sum())

    best = np.exp(minimize(loss, np.zeros(4), method="L-BFGS-B").x)
    found = priors.fit_doc_topic_prior(sparse.csr_array(counts), np.ones(4), n_steps=500)
    np.testing.assert_allclose(found, best, rtol=1e-3)
    words = np.array([rng.multinomial(2000, rng.dirichlet(np.full(50, 0.3))) for _ in range(8)]).T

    def loss_beta(log_beta):
        b = np.exp(log_beta[0])
        value = words.shape[1] * gammaln(50 * b) - gammaln(words.sum(axis=0) + 50 * b).sum()
        return -(value + (gammaln(words + b) - gammaln(b)).sum())

    best = np.exp(minimize(loss_beta, [0.0], method="L-BFGS-B").x[0])
    assert priors.fit_topic_word_prior(sparse.csr_array(words), 1.0, n_steps=500) == pytest.approx(
        best, rel=1e-3
    )


def test_optimised_priors_raise_the_likelihood(corpus):
    plain, fitted = (
        small_lda(max_iter=60).fit(corpus),
        small_lda(max_iter=60, optimize_priors=True).fit(corpus),
    )
    assert fitted.log_likelihood_[-1] > plain.log_likelihood_[-1]
    assert fitted.doc_topic_prior_.std() > 0
    with pytest.raises(DataError, match="optimize_priors"):
        small_lda(optimize_priors=True, topic_word_prior=np.linspace(0.1, 1, corpus.shape[1])).fit(corpus)
