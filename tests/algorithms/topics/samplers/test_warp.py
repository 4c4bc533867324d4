"""WarpLDA's order: a pass against its definition, the chain against enumeration, and the switch to Gibbs."""

import itertools

import numba as nb
import numpy as np
import pytest
from early_auto import make_early
from lda_chains import Chain
from scipy import sparse
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers import choose
from stradask.errors import DataError, ModelFileError
from stradask.kernels.lda.alias import alias_tables, tables_of
from stradask.kernels.lda.warp import document_pass, word_pass, work_for
from stradask.kernels.random import hash32, philox4x32
from stradask.scheduler.engine import run

SEED = np.uint64(5)


def _state(X, n_topics, alpha=0.3, beta=0.4, **options):
    alpha = np.broadcast_to(np.asarray(alpha, float), n_topics).copy()
    beta = np.broadcast_to(np.asarray(beta, float), X.shape[1]).copy()
    counts = sparse.csr_array(X.astype(np.int32))
    return Chain(counts, n_topics, alpha, beta, 5, sampler="warp", n_groups=1, **options)


@pytest.fixture(scope="module")
def corpus():
    return sd.datasets.make_lda_corpus(1200, n_features=500, n_components=10, random_state=0)[0]


# --- one pass, by its definition ----------------------------------------------------------------------------


def _uniforms(n, key):
    golden = np.uint32(0x9E3779B9)
    with np.errstate(over="ignore"):
        return np.array([hash32(np.uint32(np.uint32(i) * golden) ^ key) for i in range(n)], np.uint64)


def _accepted(current, proposed, prior, totals, beta_sum, key):
    """The conditional's own factor, own count left out of the topic that a token has."""
    counts = np.bincount(current, minlength=len(totals))
    out = current.copy()
    for i, (s, t, bits) in enumerate(zip(current, proposed, _uniforms(len(current), key), strict=True)):
        stay = (counts[s] - 1 + prior[s]) / (totals[s] - 1 + beta_sum)
        go = (counts[t] + prior[t]) / (totals[t] + beta_sum)
        if bits / 2**32 * stay < go:
            out[i] = t
    return out


def test_a_document_pass_is_what_its_docstring_says():
    X = np.random.default_rng(0).poisson(3.0, (12, 7))
    alpha = np.array([0.1, 0.9, 0.3, 0.3, 2.0])
    (shard,) = _state(X, 5, alpha).states
    documents = shard.documents
    pairs, doc_start, position = shard.topics, documents.doc_start, documents.position
    pairs[:] = np.random.default_rng(1).integers(0, 5, pairs.shape)
    totals, before, counted = np.bincount(pairs[:, 0], minlength=5), pairs.copy(), np.zeros(5, np.int64)
    prior = (alpha.astype(np.float32), alpha.sum(), *tables_of(alpha), 7 * 0.4)
    place = (0, 12, doc_start, position, documents.names, pairs, pairs.reshape(-1), totals)
    room = work_for(5, np.diff(doc_start).max(), pairs.dtype)
    distinct = document_pass(*place, *prior, counted, room, SEED, 6, 3)
    assert (counted == np.bincount(pairs[:, 0], minlength=5)).all()
    assert distinct == sum(len(set(before[position[slice(*doc_start[d : d + 2])], 0])) for d in range(12))
    for d in range(12):
        tokens = position[slice(*doc_start[d : d + 2])]
        key = philox4x32(*(np.uint32(v) for v in (d, 0, 3, 6, 5, 0)))[0]
        expected = _accepted(*before[tokens].T, alpha, totals, 7 * 0.4, np.uint32(key))
        assert (pairs[tokens, 0] == expected).all()


@pytest.mark.parametrize("alpha", [0.5, [0.1, 0.4, 1.5]], ids=["one alpha", "vector"])
def test_proposals_are_other_tokens_topics_or_the_prior(alpha):
    """Of a document of five tokens whose topics cannot move, over many passes."""
    state = _state(np.array([[5]]), 3, alpha)
    topics = np.array([0, 0, 1, 2, 2])
    (shard,), pairs = state.states, state.states[0].topics
    prior = (state.alpha.astype(np.float32), state.alpha.sum(), *tables_of(state.alpha), 0.4)
    drawn = np.zeros((5, 3))
    n = 20_000
    for r in range(n):
        pairs[:] = topics[:, None]  # the proposal is the topic itself: nothing moves
        documents = shard.documents
        tokens = (documents.doc_start, documents.position, documents.names, pairs, pairs.reshape(-1))
        counted, room = np.zeros(3, np.int64), work_for(3, 5, pairs.dtype)
        document_pass(0, 1, *tokens, np.full(3, 9), *prior, counted, room, SEED, 6, r)
        drawn[np.arange(5), pairs[:, 1]] += 1
    others = np.bincount(topics, minlength=3) - np.eye(3)[topics]
    expected = (others + state.alpha) / (4 + state.alpha.sum())
    assert (abs(drawn / n - expected) < 5 * np.sqrt(expected * (1 - expected) / n)).all()


@pytest.mark.parametrize("weights", [[1.0], [1, 1, 1], [0, 3, 1e-9, 5], [7, 0, 0, 0, 1]])
def test_alias_tables_hold_the_distribution(weights):
    weights = np.array(weights, float)
    aliases, limits = np.empty(len(weights), np.int64), np.empty(len(weights), np.uint32)
    alias_tables(weights, aliases, limits)
    kept = np.where(limits == 2**32 - 1, 1.0, limits / 2**32)
    found = kept + np.bincount(aliases, weights=1 - kept, minlength=len(weights))
    np.testing.assert_allclose(found / len(weights), weights / weights.sum(), atol=1e-9)


# --- the chain, by enumeration -----------------------------------------------------------------------------


@nb.njit
def _chain(n, word_start, doc_start, position, pairs, totals, alpha, alpha_sum, beta, codes, room):
    """Code of the topics (word by word) after each of n sweeps of one shard."""
    n_topics, n_words, n_docs = len(totals), len(word_start) - 1, len(doc_start) - 1
    aliases, limits = np.empty(0, np.int64), np.empty(0, np.uint32)
    names, words = np.arange(n_docs), np.arange(n_words).astype(np.int32)
    starts, narrow = word_start.reshape(-1, 1), beta.astype(np.float32)
    zero = np.int64(0)  # no literals, for which numba would compile the kernels once more
    first = np.zeros(1, np.int64)
    for r in range(n):
        counted = np.zeros(n_topics, np.int64)
        document_pass(
            zero, n_docs, doc_start, position, names, pairs, pairs.reshape(-1), totals, alpha, alpha_sum,
            aliases, limits, beta.sum(), counted, room, SEED, np.int64(6), r,
        )  # fmt: skip
        totals, counted = counted, np.zeros(n_topics, np.int64)
        prior = (narrow, beta.sum(), aliases, limits)
        word_pass(words, starts, first, pairs, totals, *prior, counted, room, SEED, np.int64(5), r)
        totals = counted
        code = 0
        for i in range(len(pairs)):
            code = code * n_topics + pairs[i, 0]
        codes[r] = code


def _posterior(state):
    """Every assignment of the tokens, in the state's order, and its probability."""
    words, docs = state.words, state.token_doc[: state.n_tokens]
    z = np.array(list(itertools.product(range(state.n_topics), repeat=state.n_tokens)))
    joint = np.zeros(len(z))
    for k in range(state.n_topics):
        joint -= gammaln((z == k).sum(axis=1) + state.beta.sum())
        for d in range(len(state.lengths)):
            joint += gammaln((z[:, docs == d] == k).sum(axis=1) + state.alpha[k])
        for w in range(len(state.beta)):
            joint += gammaln((z[:, words == w] == k).sum(axis=1) + state.beta[w])
    p = np.exp(joint - joint.max())
    return z, p / p.sum()


def _total_variation(X, n_topics, beta=0.4):
    state = _state(X, n_topics, beta=beta)
    z, posterior = _posterior(state)
    codes = np.empty(2_000_000, np.int64)  # chains of other seeds differ by 0.002
    doc_start = np.concatenate([[0], np.cumsum(state.lengths)])
    position = np.argsort(state.token_doc[: state.n_tokens], kind="stable").astype(np.uint32)
    pairs = np.repeat(state.topics[:, None], 2, axis=1)
    place = (state.word_start, doc_start, position, pairs, state.totals)
    alpha = state.alpha.astype(np.float32)
    room = work_for(len(alpha), len(place[3]), place[3].dtype)
    _chain(len(codes), *place, alpha, state.alpha.sum(), state.beta, codes, room)
    sampled = np.bincount(codes, minlength=len(z)) / len(codes)
    # Cells that names of topics do not change: which tokens agree.
    same = [np.unique(row, return_inverse=True)[1] for row in z]
    first = [np.argsort(np.argsort([list(row).index(k) for k in range(max(row) + 1)])) for row in same]
    cells = np.unique([tuple(f[r]) for f, r in zip(first, same, strict=True)], axis=0, return_inverse=True)[1]
    return 0.5 * abs(np.bincount(cells.ravel(), weights=sampled - posterior)).sum()


@pytest.mark.parametrize(
    ("X", "n_topics", "beta"),
    [
        ([[2, 1, 0], [0, 2, 1], [1, 0, 1]], 2, 0.4),
        ([[2, 1, 0], [1, 0, 1], [0, 1, 0]], 3, 0.01),
        ([[3, 0], [1, 2]], 2, 0.4),
        pytest.param([[2, 1, 0], [0, 2, 1], [1, 0, 1]], 2, 0.01, marks=pytest.mark.slow),
        pytest.param([[2, 1, 0], [1, 0, 1], [0, 1, 0]], 3, 0.4, marks=pytest.mark.slow),
        pytest.param([[3, 0], [1, 2]], 2, 0.01, marks=pytest.mark.slow),
    ],
)
def test_the_chain_stays_within_its_stated_distance(X, n_topics, beta):
    """Tokens all of whose counts are stale at once, and few, are the worst there can be."""
    assert _total_variation(np.array(X), n_topics, beta) < (0.25 if beta == 0.4 else 0.1)


def test_the_reported_joint_is_the_enumerated_one():
    state = _state(np.array([[2, 1, 0], [1, 0, 1], [0, 1, 0]]), 3)
    z, posterior = _posterior(state)
    reported = []
    for row in z[[0, 100, 300]]:
        state.begin_from(row)
        reported.append(state.joint_log_likelihood() * state.n_tokens)
    np.testing.assert_allclose(np.diff(reported), np.diff(np.log(posterior[[0, 100, 300]])), rtol=1e-9)


# --- the estimator -----------------------------------------------------------------------------------------


def test_the_topics_of_a_generated_corpus_are_found(corpus):
    """As well as by Gibbs sampling, judged on documents that neither saw."""
    fits = {
        sampler: sd.LatentDirichletAllocation(10, sampler=sampler, max_iter=sweeps, random_state=0)
        for sampler, sweeps in (("gibbs", 100), ("warp", 300))
    }
    scores = {sampler: lda.fit(corpus[:1000]).perplexity(corpus[1000:]) for sampler, lda in fits.items()}
    assert scores["warp"] < 1.02 * scores["gibbs"]


@pytest.mark.parametrize("sampler", ["warp", "auto"])
@pytest.mark.parametrize("n_components", [70, 300])
def test_the_same_model_on_any_number_of_threads(corpus, sampler, n_components):
    lda = sd.LatentDirichletAllocation(n_components, sampler=sampler, max_iter=8, random_state=1)
    counts = [lda.set_params(n_jobs=n).fit(corpus).word_topic_counts_ for n in (1, 3)]
    assert (counts[0] != counts[1]).nnz == 0
    assert counts[0].sum() == corpus.sum()
    assert (lda.doc_topic_counts_.sum(axis=1) == np.asarray(corpus.sum(axis=1)).ravel()).all()


@pytest.mark.parametrize("n_components", [100, 300])
def test_auto_goes_over_to_gibbs_after_its_sweeps_of_warp(corpus, monkeypatch, n_components):
    make_early(monkeypatch, most=9)
    lda = sd.LatentDirichletAllocation(n_components, max_iter=12, random_state=0).fit(corpus)
    first, second = lda.sampler_
    assert first == {"name": "warp", "sweep": 1, "topics_per_document": None}
    assert (second["name"], second["sweep"]) == ("gibbs", 10)
    assert 1 < second["topics_per_document"] < n_components
    seen = lda.history_["updates"]
    assert set(seen[:9]) == {4 * corpus.sum()}
    assert set(seen[9:]) == {corpus.sum()}


@pytest.mark.parametrize("n_components", [10, 100])
def test_small_problems_are_gibbs_from_the_start(corpus, n_components):
    X = corpus if n_components == 10 else corpus[:100]
    lda = sd.LatentDirichletAllocation(n_components, max_iter=4, random_state=0).fit(X)
    assert lda.sampler_ == [{"name": "gibbs", "sweep": 1, "topics_per_document": None}]


@pytest.mark.parametrize(("sampler", "cut"), [("warp", 5), ("auto", 5), ("auto", 13), ("auto", 14)])
def test_a_checkpoint_goes_on_bit_for_bit(corpus, tmp_path, sampler, cut, monkeypatch):
    make_early(monkeypatch, most=13)
    lda = sd.LatentDirichletAllocation(80, sampler=sampler, max_iter=18, random_state=0)
    whole = lda.fit(corpus).word_topic_counts_
    sd.LatentDirichletAllocation(**lda.get_params() | {"checkpoint": tmp_path}).fit(
        corpus, callback=lambda info: info.round == cut
    )
    resumed = sd.LatentDirichletAllocation(**lda.get_params() | {"checkpoint": tmp_path}).fit(corpus)
    assert resumed.sampler_ == lda.sampler_
    assert (resumed.word_topic_counts_ != whole).nnz == 0


def test_a_checkpoint_with_topics_or_proposals_out_of_range_is_refused(corpus):
    for place in (0, 1):
        state = _state(corpus, 20)
        arrays = state.saved()
        arrays["shard-0/topics"][3, place] = 20
        with pytest.raises(ModelFileError, match="do not fit"):
            state.restore(arrays)


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light"])
def test_a_checkpoint_with_other_priors_or_without_an_array_is_refused(corpus, sampler):
    priors = np.full(20, 0.1), np.full(500, 0.01)
    corpus = corpus_of_matrix(sparse.csr_array(corpus), 2)
    state = choose.program_of(sampler, corpus, 20, *priors, 0)
    arrays = state.arrays()
    for name in arrays:
        with pytest.raises(ModelFileError, match=f"lacks the array '{name}'"):
            state.restore({other: array for other, array in arrays.items() if other != name})
    for prior in (np.full(20, np.nan), np.zeros(20), np.full(19, 0.1), np.ones(20, int)):
        with pytest.raises(ModelFileError, match="do not fit"):
            state.restore(arrays | {"alpha": prior})
    state.restore(arrays)


def _auto_state(corpus):
    alpha, beta = np.full(80, 0.1), np.full(corpus.shape[1], 0.01)
    corpus = corpus_of_matrix(sparse.csr_array(corpus), 2)
    return choose.program_of("both", corpus, 80, alpha, beta, 0, in_process=True)


@pytest.mark.parametrize(
    "damage",
    [
        {"ran_sweep": np.array([], np.int64)},
        {"ran_sweep": np.array([2])},
        {"ran_sweep": np.array([1, 9])},
        {"ran_sweep": np.array([1, 10, 11])},
        {"ran_sweep": np.array([[1, 10]])},
        {"ran_sweep": np.array([1.0, 10.0])},
        {"ran_trace": np.full(9, np.nan)},
        {"ran_trace": np.full(9, 0.5)},
        {"ran_trace": np.full(9, 81.0)},
        {"ran_trace": np.full((9, 1), 5.0)},
        {"ran_trace": np.array(["a"] * 9)},
        {"ran_trace": np.array([])},
    ],
    ids=str,
)
def test_a_checkpoint_of_samplers_that_cannot_have_run_is_refused(corpus, damage, monkeypatch):
    make_early(monkeypatch, most=9)
    state = _auto_state(corpus)
    run(state, state.schedule, max_rounds=10, label="LDA")
    arrays = state.arrays()
    assert arrays["ran_sweep"].tolist() == [1, 10]
    assert len(arrays["ran_trace"]) == 9
    with pytest.raises(ModelFileError, match="samplers are not those"):
        _auto_state(corpus).restore(arrays | damage)
    with pytest.raises(ModelFileError, match="lacks the array 'ran_"):
        _auto_state(corpus).restore({name: a for name, a in arrays.items() if name not in damage})
    other = _auto_state(corpus)
    other.restore(arrays)
    assert other.ran == state.ran


def test_warp_keeps_what_partial_fit_and_warm_starts_promise(corpus):
    lda = sd.LatentDirichletAllocation(20, sampler="warp", max_iter=5, random_state=0)
    lda.partial_fit(corpus[:600]).partial_fit(corpus[600:])
    assert lda.word_topic_counts_.sum() == corpus.sum()
    first = sd.LatentDirichletAllocation(20, sampler="warp", max_iter=100, warm_start=True, random_state=0)
    before = first.fit(corpus).log_likelihood_
    after = first.set_params(max_iter=10).fit(corpus).log_likelihood_
    assert after[0] > before[0]


def test_auto_lets_go_of_what_warp_held(corpus, monkeypatch):
    make_early(monkeypatch, most=9)
    for rounds, held in ((9, True), (12, False)):
        state = _auto_state(corpus)
        warp_ = state.samplers[0]
        run(state, state.schedule, max_rounds=rounds, label="LDA")
        assert (warp_.at_hand is not None) == held


def test_priors_are_fitted_by_warp_too(corpus):
    lda = sd.LatentDirichletAllocation(10, sampler="warp", max_iter=160, optimize_priors=True, random_state=0)
    lda.fit(corpus)
    assert np.ptp(lda.doc_topic_prior_) > 0
    assert lda.topic_word_prior_[0] != 0.01


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_exact_and_warp_exclude_each_other(corpus, method):
    with pytest.raises(DataError, match="sampler='gibbs'"):
        getattr(sd.LatentDirichletAllocation(5, sampler="warp", exact=True), method)(corpus)


def test_light_is_a_sampler_like_the_others(corpus, tmp_path):
    lda = sd.LatentDirichletAllocation(80, sampler="light", max_iter=6, random_state=0)
    counts = lda.fit(corpus).word_topic_counts_
    assert lda.sampler_ == [{"name": "light", "sweep": 1, "topics_per_document": None}]
    stopped = sd.LatentDirichletAllocation(**lda.get_params() | {"checkpoint": tmp_path, "n_jobs": 3})
    stopped.fit(corpus, callback=lambda info: info.round == 3)
    assert (stopped.fit(corpus).word_topic_counts_ != counts).nnz == 0


@pytest.mark.parametrize("sampler", ["auto", "warp"])
def test_the_turning_point_of_the_likelihood_is_no_end(corpus, sampler):
    """Under warp it falls before it rises: the least change there is far below a tolerance of 1 %."""
    lda = sd.LatentDirichletAllocation(100, sampler=sampler, max_iter=200, tol=1e-2, random_state=0)
    trace = lda.fit(corpus).log_likelihood_
    assert lda.n_iter_ < 200
    assert lda.sampler_[-1]["name"] == ("gibbs" if sampler == "auto" else "warp")
    assert trace[-1] > trace[0]
    assert abs(trace[-1] - trace[-2]) <= 1e-2 * abs(trace[-2])


def test_a_sampler_that_did_not_run_is_not_told(corpus, monkeypatch):
    make_early(monkeypatch, most=9)
    lda = sd.LatentDirichletAllocation(100, max_iter=12, random_state=0)
    lda.fit(corpus, callback=lambda info: info.round == 9)
    assert [part["name"] for part in lda.sampler_] == ["warp"]


def test_documents_too_long_for_lists_stay_with_warp():
    X = np.ones((200, 600), int)
    X[0, 0] = 2**20
    lda = sd.LatentDirichletAllocation(5000, max_iter=8, random_state=0).fit(X)
    assert [part["name"] for part in lda.sampler_] == ["warp"]
    with pytest.raises(DataError, match="split documents"):
        sd.LatentDirichletAllocation(5000, sampler="gibbs").fit(X)


def test_empty_documents_and_words_that_never_occur():
    X = np.zeros((5, 9), int)
    X[1, 3] = X[3, 3] = X[3, 7] = 1
    lda = sd.LatentDirichletAllocation(3, sampler="warp", max_iter=5, random_state=0).fit(X)
    assert lda.word_topic_counts_.sum() == 3
    np.testing.assert_allclose(lda.doc_topic_[0], 1 / 3)
