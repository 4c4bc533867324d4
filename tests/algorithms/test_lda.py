"""LatentDirichletAllocation as a user meets it."""

import os
import signal

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import gammaln
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import stradask as sd
from stradask.algorithms.topics import document_rows, gibbs, priors
from stradask.algorithms.topics.evaluation import document_completion
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import CheckpointMismatch, DataError, InterruptedFitWarning, ModelFileError
from stradask.scheduler.engine import run


@pytest.fixture(scope="module")
def corpus():
    return _corpus(300, n_features=400, n_components=5, mean_length=60, random_state=0)[0]


def _corpus(*args, **options):
    X, *truth = make_lda_corpus(*args, **{"n_common_words": 3, **options})
    return sparse.csr_array(X), *truth


def _lda(n_components=5, **options):
    return sd.LatentDirichletAllocation(n_components, **{"max_iter": 20, "random_state": 0, **options})


def _counts(model):
    return model.word_topic_counts_.toarray()


# Determinism ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [7, 300], ids=["dense rows", "lists"])
def test_the_model_is_bitwise_the_same_for_any_number_of_threads(n_components):
    X, *_ = _corpus(1500, n_features=800, n_components=8, mean_length=100, random_state=1)
    models = [_lda(n_components, max_iter=6, n_jobs=n_jobs).fit(X) for n_jobs in (1, 2, 4)]
    assert len(gibbs.GibbsState(X, 7, np.ones(7), np.ones(800), 0).group_words) > 1, (
        "one group proves nothing"
    )
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].components_, other.components_)
        np.testing.assert_array_equal(models[0].doc_topic_, other.doc_topic_)
        np.testing.assert_array_equal(models[0].log_likelihood_, other.log_likelihood_)
    np.testing.assert_array_equal(models[0].transform(X[:40]), models[1].transform(X[:40]))


def test_another_seed_gives_another_model(corpus):
    assert (_counts(_lda().fit(corpus)) != _counts(_lda(random_state=1).fit(corpus))).any()


# What is counted --------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("n_components", [1, 2, 40, 257, 700])
def test_every_token_has_exactly_one_topic(corpus, n_components, exact):
    empty = sparse.csr_array((1, corpus.shape[1]), dtype=np.int32)
    corpus = sparse.csr_array(sparse.vstack([empty, corpus[:100], empty, empty, corpus[100:], empty]))
    lda = _lda(n_components, max_iter=4, exact=exact).fit(corpus)
    np.testing.assert_array_equal(lda.word_topic_counts_.sum(axis=1), corpus.sum(axis=0))
    np.testing.assert_array_equal(lda.doc_topic_counts_.sum(axis=1), corpus.sum(axis=1))
    np.testing.assert_array_equal(lda.word_topic_counts_.sum(axis=0), lda.doc_topic_counts_.sum(axis=0))
    assert lda.word_topic_counts_.data.min() > 0
    np.testing.assert_allclose(lda.topic_word_.sum(axis=1), 1)
    np.testing.assert_allclose(lda.doc_topic_.sum(axis=1), 1)


def _joint_by_definition(model, X):
    """log p(w, z) per token in the plainest form."""
    alpha, beta = model.doc_topic_prior_, model.topic_word_prior_
    doc, word = model.doc_topic_counts_.toarray(), model.word_topic_counts_.toarray()
    total = len(doc) * gammaln(alpha.sum()) - gammaln(doc.sum(axis=1) + alpha.sum()).sum()
    total += (gammaln(doc + alpha) - gammaln(alpha)).sum()
    total += len(alpha) * gammaln(beta.sum()) - gammaln(word.sum(axis=0) + beta.sum()).sum()
    total += (gammaln(word + beta[:, None]) - gammaln(beta[:, None])).sum()
    return total / X.sum()


@pytest.mark.parametrize("n_components", [7, 300], ids=["dense rows", "lists"])
@pytest.mark.parametrize("background", [False, True])
def test_counts_agree_with_the_assignments_after_grouped_sweeps(corpus, n_components, background):
    """Groups share nothing but the totals, and those come together again after each step."""
    sizes = (n_components, np.full(n_components, 0.1), np.full(corpus.shape[1], 0.01))
    before = None
    if background:
        before = gibbs.GibbsState(corpus, *sizes, 5).word_topic_counts()
    state = gibbs.GibbsState(corpus, *sizes, 1, background=before, n_groups=4)

    def check(info):
        counts = state.word_topic_counts()
        np.testing.assert_array_equal(counts.sum(axis=1), corpus.sum(axis=0))
        np.testing.assert_array_equal(state.doc_topic_counts().sum(axis=1), corpus.sum(axis=1))
        held = counts + before if background else counts
        np.testing.assert_array_equal(state.totals, held.sum(axis=0))
        kept = np.flatnonzero(state.row_of_word >= 0)
        assert len(kept) > 10
        np.testing.assert_array_equal(state.rows, held.tocsr()[kept].toarray())

    done = run(state, state.schedule, max_rounds=3, n_jobs=2, callback=check)
    assert done.n_rounds == 3
    assert done.history.as_dict()["updates"].tolist() == [corpus.sum()] * 3


def test_no_random_stream_is_used_twice(corpus, monkeypatch):
    names = []
    sweep = document_rows.DenseRows.sweep
    monkeypatch.setattr(
        document_rows.DenseRows,
        "sweep",
        lambda self, place, words, mode: (names.append(mode[1:]), sweep(self, place, words, mode)),
    )
    state = gibbs.GibbsState(corpus, 5, np.ones(5), np.ones(corpus.shape[1]), 1, n_groups=4)
    run(state, state.schedule, max_rounds=3)
    assert len(names) == 3 * 4 * 4
    lda = _lda(max_iter=4, warm_start=True).fit(corpus)
    lda.fit(corpus).partial_fit(corpus).partial_fit(corpus)
    fits = names[3 * 4 * 4 :]
    first, second = fits[:4], fits[4:]  # a second fit of the same seed is the same fit
    assert len(second) == 5 + 4 + 4 + 4
    assert set(first) <= set(second)
    assert len(set(names[: 3 * 4 * 4])) == 3 * 4 * 4
    assert len(set(second)) == len(second)


def test_grouped_and_exact_sweeps_reach_the_same_likelihood():
    X, *_ = _corpus(1200, n_features=800, n_components=8, mean_length=100, random_state=1)
    reached = {}
    for exact in (False, True):
        chains = [_lda(8, max_iter=60, exact=exact, random_state=seed).fit(X) for seed in range(5)]
        reached[exact] = max(lda.log_likelihood_[-1] for lda in chains)  # a chain can stick
    assert len(gibbs.GibbsState(X, 8, np.ones(8), np.ones(800), 0).group_words) > 1
    assert reached[False] == pytest.approx(reached[True], rel=2e-3)


@pytest.mark.parametrize("n_components", [6, 300])
def test_the_reported_log_likelihood_is_that_of_the_definition(corpus, n_components):
    alpha = np.random.default_rng(0).gamma(1, size=n_components) + 0.01
    beta = np.random.default_rng(1).gamma(1, size=corpus.shape[1]) + 0.01
    lda = _lda(n_components, doc_topic_prior=alpha, topic_word_prior=beta).fit(corpus)
    assert lda.log_likelihood_[-1] == pytest.approx(_joint_by_definition(lda, corpus), rel=1e-12)


def test_sparse_and_dense_rows_reach_the_same_likelihood(corpus, monkeypatch):
    dense = np.mean([_lda(random_state=s, max_iter=60).fit(corpus).log_likelihood_[-1] for s in range(5)])
    monkeypatch.setattr(document_rows, "DENSE_TOPICS", 0)
    lists = np.mean([_lda(random_state=s, max_iter=60).fit(corpus).log_likelihood_[-1] for s in range(5)])
    assert dense == pytest.approx(lists, rel=3e-3)


# Recovery ---------------------------------------------------------------------------------------


def _distance_to_truth(n_documents):
    """Mean total variation of matched topics, for the likeliest of three chains (a chain can stick)."""
    spread = {"n_common_words": 0.1, "word_spread": 0.02}
    X, truth, _ = _corpus(
        n_documents, n_features=500, n_components=6, mean_length=60, random_state=3, **spread
    )
    chains = [_lda(6, max_iter=100, random_state=seed).fit(X) for seed in range(3)]
    found = max(chains, key=lambda lda: lda.log_likelihood_[-1]).topic_word_
    distance = 0.5 * np.abs(found[:, None] - truth[None]).sum(axis=2)
    return distance[linear_sum_assignment(distance)].mean()


def test_known_topics_are_found_and_more_tokens_find_them_better():
    few, many = _distance_to_truth(150), _distance_to_truth(1000)
    assert many < 0.05
    assert many < few / 2


# Transform --------------------------------------------------------------------------------------


def test_transform_does_not_depend_on_the_company_of_a_document(corpus):
    lda = _lda().fit(corpus)
    theta = lda.transform(corpus)
    np.testing.assert_array_equal(theta, lda.transform(corpus))
    np.testing.assert_array_equal(theta[50:60], lda.transform(corpus[50:60]))
    np.testing.assert_array_equal(theta[::-1], lda.transform(corpus[::-1]))


def test_a_document_without_words_gets_the_priors_mean(corpus):
    lda = _lda(3, doc_topic_prior=[1.0, 2.0, 5.0]).fit(corpus)
    np.testing.assert_allclose(lda.transform(np.zeros((1, corpus.shape[1]), int)), [[0.125, 0.25, 0.625]])


def test_words_unseen_in_training_do_no_harm(corpus):
    X = sparse.hstack([corpus, sparse.csr_array((corpus.shape[0], 3), dtype=np.int32)]).tocsr()
    lda = _lda().fit(X)
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
    X, truth, _ = _corpus(1200, n_features=500, n_components=6, mean_length=80, random_state=5)
    train, test = X[:1000], X[1000:]
    lda = _lda(6, max_iter=100).fit(train)
    unigram = np.exp(
        -(test.sum(axis=0) * np.log((train.sum(axis=0) + 0.01) / train.sum())).sum() / test.sum()
    )
    best = sd.LatentDirichletAllocation(6, max_iter=1).fit(train)
    best.word_topic_counts_ = sparse.csr_array(np.round(truth.T * 1e7).astype(np.int32))
    assert best.perplexity(test) < lda.perplexity(test) < 0.9 * unigram
    assert lda.score(test) == pytest.approx(-np.log(lda.perplexity(test)))


@pytest.mark.parametrize("measure", ["npmi", "umass"])
def test_coherence_is_that_of_the_definition(corpus, measure):
    lda = _lda(4).fit(corpus)
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
    lda = _lda(3).fit(corpus)
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
    plain, fitted = _lda(max_iter=60).fit(corpus), _lda(max_iter=60, optimize_priors=True).fit(corpus)
    assert fitted.log_likelihood_[-1] > plain.log_likelihood_[-1]
    assert fitted.doc_topic_prior_.std() > 0
    with pytest.raises(DataError, match="optimize_priors"):
        _lda(optimize_priors=True, topic_word_prior=np.linspace(0.1, 1, corpus.shape[1])).fit(corpus)


# Going on ---------------------------------------------------------------------------------------


def test_partial_fit_keeps_old_counts_and_learns_from_both():
    X, *_ = _corpus(900, n_features=500, n_components=6, mean_length=60, random_state=5)
    first, second, test = X[:400], X[400:800], X[800:]
    lda = _lda(6, max_iter=60).partial_fit(first)
    alone, before = lda.perplexity(test), lda.word_topic_counts_.copy()
    lda.partial_fit(second)
    assert (lda.word_topic_counts_ - before).toarray().min() >= 0
    assert lda.word_topic_counts_.sum() == X[:800].sum()
    assert lda.doc_topic_.shape == (400, 6)
    assert lda.perplexity(test) < alone
    assert lda.log_likelihood_[-1] > lda.log_likelihood_[0] - 0.05
    with pytest.raises(DataError, match="n_components=4"):
        lda.set_params(n_components=4).partial_fit(second)


def test_likelihood_given_a_background_is_a_difference_of_joints():
    X, *_ = _corpus(120, n_features=60, n_components=3, mean_length=30, random_state=0)
    old = _lda(3).fit(X[:60])
    both = _lda(3).fit(X[:60]).partial_fit(X[60:])
    joint_old = _joint_by_definition(old, X[:60]) * X[:60].sum()
    stacked = sparse.vstack([old.doc_topic_counts_, both.doc_topic_counts_]).tocsr()
    conditional = both.log_likelihood_[-1] * X[60:].sum()
    both.doc_topic_counts_ = stacked
    assert conditional == pytest.approx(_joint_by_definition(both, X) * X.sum() - joint_old, rel=1e-9)


def test_warm_start_keeps_the_topics_of_the_last_fit(corpus):
    """Topic for topic, not only as good: without the last counts the names of topics would be lost."""
    lda = _lda(max_iter=100, warm_start=True).fit(corpus)
    last = lda.topic_word_
    warm = lda.set_params(max_iter=2, random_state=7).fit(corpus).topic_word_
    distance = 0.5 * np.abs(last[:, None] - warm[None]).sum(axis=2)
    assert (distance.argmin(axis=1) == np.arange(5)).all()
    assert distance.diagonal().max() < 0.3
    assert lda.n_iter_ == 2
    with pytest.raises(DataError, match="warm_start"):
        lda.set_params(n_components=9).fit(corpus)
    with pytest.raises(DataError, match="checkpoint"):
        _lda(warm_start=True, checkpoint="somewhere").fit(corpus)


def test_batches_draw_from_streams_of_their_own():
    """One word, one topic drawn for each batch: with one stream for all, every batch would say the same."""
    lda = _lda(2, max_iter=3, doc_topic_prior=1.0, topic_word_prior=1.0)
    for _ in range(60):
        lda.partial_fit([[1]])
    assert lda.n_batch_iter_ == 60
    assert lda.word_topic_counts_.sum() == 60
    assert len(lda.word_topic_counts_.data) == 2


def test_fitted_priors_stay_in_later_batches_and_warm_fits(corpus):
    lda = _lda(max_iter=30, optimize_priors=True, warm_start=True).fit(corpus)
    alpha, beta = lda.doc_topic_prior_, lda.topic_word_prior_
    lda.set_params(max_iter=3).partial_fit(corpus[:5])
    np.testing.assert_array_equal(lda.doc_topic_prior_, alpha)
    np.testing.assert_array_equal(lda.topic_word_prior_, beta)
    np.testing.assert_array_equal(lda.fit(corpus).doc_topic_prior_, alpha)


def test_counts_that_would_overflow_are_refused_at_the_door():
    lda = _lda(2, max_iter=1).fit(np.array([[3, 1], [1, 2]]))
    lda.word_topic_counts_.data[0] = 2**31 - 2
    with pytest.raises(DataError, match="2,147,483,616"):
        lda.partial_fit(np.array([[3, 1]]))
    with pytest.raises(DataError, match="at least one"):
        lda.partial_fit(np.array([[0, 0]]))


@pytest.mark.parametrize("fault", ["prior", "callback"])
def test_a_fit_that_fails_changes_nothing(corpus, fault):
    def fail(info):
        raise RuntimeError("from the callback")

    lda = _lda(3, max_iter=2).fit(corpus)
    lda.vocabulary_ = [str(w) for w in range(corpus.shape[1])]
    before = dict(vars(lda))
    if fault == "prior":
        with pytest.raises(DataError, match="topic_word_prior"):
            lda.set_params(topic_word_prior=[1.0, 2.0]).fit(corpus[:, :10])
        before["topic_word_prior"] = [1.0, 2.0]
    else:
        with pytest.raises(RuntimeError, match="from the callback"):
            lda.fit(corpus[:, :10], callback=fail)
    assert vars(lda) == before
    fresh = _lda(topic_word_prior=[1.0])
    with pytest.raises(DataError):
        fresh.fit(corpus)
    with pytest.raises(NotFittedError):
        fresh.transform(corpus)


@pytest.mark.parametrize("n_components", [5, 300], ids=["dense rows", "lists"])
def test_a_fit_goes_on_from_its_checkpoint_bitwise(tmp_path, corpus, n_components):
    options = {"max_iter": 30, "optimize_priors": True}
    whole = _lda(n_components, **options).fit(corpus)
    path = tmp_path / "fit"
    _lda(n_components, checkpoint=path, **options).fit(corpus, callback=lambda info: info.round == 23)
    resumed = _lda(n_components, checkpoint=path, **options)
    rounds = []
    resumed.fit(corpus, callback=lambda info: rounds.append(info.round))
    assert rounds == list(range(24, 31))
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.log_likelihood_, whole.log_likelihood_)
    assert resumed.n_iter_ == len(resumed.history_["round"]) == 30


def test_a_checkpoint_lets_max_iter_grow_and_a_converged_fit_rest(tmp_path, corpus):
    # exact: else the sweeps that are annealed would follow from the smaller max_iter
    options = {"optimize_priors": True, "exact": True}
    whole = _lda(max_iter=45, **options).fit(corpus)
    _lda(max_iter=25, checkpoint=tmp_path / "grown", **options).fit(corpus)
    grown = _lda(max_iter=45, checkpoint=tmp_path / "grown", **options).fit(corpus)
    np.testing.assert_array_equal(grown.components_, whole.components_)
    np.testing.assert_array_equal(grown.log_likelihood_, whole.log_likelihood_)
    settled = _lda(max_iter=400, tol=1e-2, checkpoint=tmp_path / "settled").fit(corpus)
    again = _lda(max_iter=400, tol=1e-2, checkpoint=tmp_path / "settled").fit(corpus)
    assert settled.n_iter_ == again.n_iter_ < 400
    np.testing.assert_array_equal(settled.components_, again.components_)


def test_a_stopped_fit_goes_on_from_its_very_last_sweep(tmp_path, corpus):
    _lda(max_iter=30, checkpoint=tmp_path).fit(corpus, callback=lambda info: np.bool_(info.round == 7))
    rounds = []
    _lda(max_iter=9, checkpoint=tmp_path).fit(corpus, callback=lambda info: rounds.append(info.round))
    assert rounds == [8, 9]
    with pytest.raises(DataError, match="URL"):
        _lda(checkpoint="s3://bucket/fit").fit(corpus)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path, corpus):
    path = tmp_path / "fit"
    _lda(max_iter=10, checkpoint=path).fit(corpus)
    with pytest.raises(CheckpointMismatch, match="doc_topic_prior"):
        _lda(max_iter=10, checkpoint=path, doc_topic_prior=0.3).fit(corpus)
    with pytest.raises(CheckpointMismatch, match="X"):
        _lda(max_iter=10, checkpoint=path).fit(corpus[:100])


@pytest.mark.parametrize("n_components", [5, 300])
def test_a_checkpoint_that_would_lead_kernels_astray_is_refused(corpus, n_components):
    state = gibbs.GibbsState(corpus, n_components, np.ones(n_components), np.ones(corpus.shape[1]), 0)
    run(state, state.schedule, max_rounds=1)
    good = {name: array.copy() for name, array in state.arrays().items()}
    names = ["topics"] if n_components == 5 else ["topics", "entries", "n_lines"]
    for name in names:
        bad = {**good, name: good[name].copy()}
        bad[name][3] = np.iinfo(bad[name].dtype).max
        with pytest.raises(ModelFileError):
            state.restore(bad)
        with pytest.raises(ModelFileError):
            state.restore({**good, name: good[name][:-1]})


# Stopping ---------------------------------------------------------------------------------------


def test_ctrl_c_stops_after_the_sweep_and_keeps_the_model(corpus):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # `make test &` ignores it
    try:
        _press_ctrl_c(corpus)
    finally:
        signal.signal(signal.SIGINT, before)


def _press_ctrl_c(corpus):
    def press(info):
        if info.round == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match="4 of 50"):
        lda = _lda(max_iter=50, exact=True).fit(corpus, callback=press)
    assert lda.n_iter_ == 4
    assert lda.word_topic_counts_.sum() == corpus.sum()
    assert np.isfinite(lda.log_likelihood_[-1])
    same = _lda(max_iter=4, exact=True).fit(corpus)
    np.testing.assert_array_equal(lda.components_, same.components_)


def test_a_callback_can_look_at_the_model_so_far(corpus):
    seen = []

    def look(info):
        seen.append(info.snapshot())

    lda = _lda(max_iter=6, exact=True).fit(corpus, callback=look)
    for sweeps, model in enumerate(seen, start=1):
        assert model.n_iter_ == len(model.history_["round"]) == sweeps
        assert np.isfinite(model.log_likelihood_[-1])
        shorter = _lda(max_iter=sweeps, exact=True).fit(corpus)
        np.testing.assert_array_equal(model.components_, shorter.components_)
    np.testing.assert_array_equal(seen[-1].transform(corpus[:5]), lda.transform(corpus[:5]))


def test_words_set_beside_a_model_are_used_until_the_next_fit(corpus):
    lda = _lda(2, max_iter=3).fit(corpus)
    lda.vocabulary_ = [f"word{i}" for i in range(corpus.shape[1])]
    assert lda.topics()[0][0].startswith("word")
    assert lda.fit(corpus).topics()[0][0].isdigit()


def test_tol_stops_when_the_likelihood_settles(corpus):
    lda = _lda(max_iter=400, tol=1e-3).fit(corpus)
    assert lda.n_iter_ < 400
    trace = lda.log_likelihood_
    assert abs(trace[-1] - trace[-2]) <= 1e-3 * abs(trace[-2])


def test_history_tells_what_was_done(corpus):
    history = _lda(max_iter=25).fit(corpus).history_
    assert history["round"].tolist() == list(range(1, 26))
    assert (history["updates"] == corpus.sum()).all()
    assert np.flatnonzero(~np.isnan(history["objective"])).tolist() == [9, 19, 24]
    assert history["objective"][24] > history["objective"][9]


# Saving -----------------------------------------------------------------------------------------


def test_a_saved_model_gives_the_same_answers(tmp_path, corpus):
    lda = _lda(doc_topic_prior=np.linspace(0.1, 0.5, 5)).fit(corpus)
    lda.save(tmp_path / "model")
    again = sd.load(tmp_path / "model")
    np.testing.assert_array_equal(again.transform(corpus), lda.transform(corpus))
    np.testing.assert_array_equal(again.components_, lda.components_)
    assert again.perplexity(corpus) == lda.perplexity(corpus)
    assert [list(t) for t in again.topics()] == [list(t) for t in lda.topics()]
    again.set_params(max_iter=3).partial_fit(corpus)


def test_a_model_file_with_counts_out_of_range_is_refused(tmp_path, corpus):
    lda = _lda().fit(corpus)
    lda.save(tmp_path / "model")
    for name, value in [
        ("word_topic_counts_", lda.word_topic_counts_[:-1]),
        ("word_topic_counts_", -lda.word_topic_counts_),
        ("doc_topic_prior_", lda.doc_topic_prior_[:-1]),
        ("topic_word_prior_", np.full(corpus.shape[1], np.nan)),
        ("doc_topic_counts_", lda.doc_topic_counts_[:, :-1]),
    ]:
        bad = sd.load(tmp_path / "model")
        setattr(bad, name, value)
        bad.save(tmp_path / "bad")
        with pytest.raises(ModelFileError, match=name):
            sd.load(tmp_path / "bad")
    lda.word_topic_counts_.indices[0] = 77
    lda.save(tmp_path / "bad")
    with pytest.raises(ModelFileError):
        sd.load(tmp_path / "bad")


# Input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"doc_topic_prior": 0.0}, "doc_topic_prior"),
        ({"doc_topic_prior": [0.1, 0.2]}, "doc_topic_prior"),
        ({"doc_topic_prior": 1e40}, "doc_topic_prior"),
        ({"topic_word_prior": 1e-50}, "topic_word_prior"),
        ({"topic_word_prior": [0.1, np.nan]}, "topic_word_prior"),
        ({"n_components": 0}, "n_components"),
        ({"max_iter": 0}, "max_iter"),
        ({"sampler": "magic"}, "sampler"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_parameters_are_named(corpus, options, name):
    with pytest.raises(ValueError, match=name):
        sd.LatentDirichletAllocation(**options).fit(corpus)


def test_a_document_too_long_for_the_packed_lists_is_an_error():
    X = np.zeros((2, 3), np.int32)
    X[0, 0], X[1, 1] = 1 << 20, 1
    with pytest.raises(DataError, match=r"1,048,576 tokens.*split documents"):
        _lda(5000, max_iter=1).fit(X)


@pytest.mark.parametrize("n_components", [3, 300])
def test_documents_longer_than_sixteen_bits_count(n_components):
    X = np.array([[70_000, 0, 9], [0, 70_000, 9]])
    lda = _lda(n_components, max_iter=3).fit(X)
    np.testing.assert_array_equal(lda.doc_topic_counts_.sum(axis=1), X.sum(axis=1))
    for lengths, row in zip(X.sum(axis=1), lda.doc_topic_.dot(np.ones(n_components)), strict=True):
        assert lengths > 2**16
        assert row == pytest.approx(1)


@pytest.mark.parametrize("form", ["csc", "coo", "dense", "float", "int64 indices", "list"])
def test_the_form_of_the_input_does_not_matter(corpus, form):
    X = sparse.csr_array(corpus[:60])
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    forms = {
        "csc": X.tocsc(),
        "coo": X.tocoo(),
        "dense": X.toarray(),
        "float": X.astype(float),
        "int64 indices": wide,
        "list": X.toarray().tolist(),
    }
    np.testing.assert_array_equal(
        _counts(_lda(3, max_iter=5).fit(forms[form])), _counts(_lda(3, max_iter=5).fit(X))
    )


def test_a_pipeline_with_count_vectorizer_can_be_searched():
    texts = ["cat dog pet animal cat", "dog pet cat", "sun sea beach sand", "beach sea sun sun"] * 8
    pipeline = make_pipeline(CountVectorizer(), _lda(2, max_iter=30))
    search = GridSearchCV(pipeline, {"latentdirichletallocation__n_components": [1, 2]}, cv=2).fit(texts)
    assert search.best_params_ == {"latentdirichletallocation__n_components": 2}
    names = search.best_estimator_[:-1].get_feature_names_out()
    topics = search.best_estimator_[-1].topics(names, n_words=4)
    assert {frozenset(words) & {"cat", "sun"} for words in topics} == {frozenset({"cat"}), frozenset({"sun"})}
    assert list(search.best_estimator_.get_feature_names_out()) == [
        "latentdirichletallocation0",
        "latentdirichletallocation1",
    ]


def test_feature_names_become_the_vocabulary(corpus):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(corpus[:50].toarray(), columns=[f"w{i}" for i in range(corpus.shape[1])])
    lda = _lda(3, max_iter=5).fit(frame)
    assert all(word.startswith("w") for words in lda.topics() for word in words)
