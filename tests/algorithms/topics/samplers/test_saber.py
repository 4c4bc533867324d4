"""SaberLDA's sampler on the CPU: its draws, a sweep against a plain one, and the chain by enumeration."""

import itertools

import numpy as np
import pytest
import saber_reference
from scipy import sparse, stats
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms.topics.samplers.saber import SaberState, check_fits, common_tree, topic_weights
from stradask.errors import CheckpointMismatch, DataError, ModelFileError
from stradask.kernels.lda.saber import grow_tree, sample_words
from stradask.scheduler.engine import run

SEED = 2**40 + 5


def _state(X, n_topics, alpha=0.3, beta=0.4, **options):
    alpha = np.broadcast_to(np.asarray(alpha, float), n_topics).copy()
    beta = np.broadcast_to(np.asarray(beta, float), X.shape[1]).copy()
    return SaberState(sparse.csr_array(X.astype(np.int32)), n_topics, alpha, beta, SEED, **options)


def _swept(state, n_sweeps=1, n_jobs=1):
    run(state, state.schedule, max_rounds=n_sweeps, n_jobs=n_jobs)
    return state


@pytest.fixture(scope="module")
def corpus():
    return sd.datasets.make_lda_corpus(1200, n_features=500, n_components=10, random_state=0)[0]


# --- one draw, by its definition ----------------------------------------------------------------------------


def _conditionals(state):
    """p(z = k | all others), tokens x topics: the definition, in double precision."""
    words = np.repeat(np.arange(len(state.beta)), np.diff(state.word_start))
    docs, old = state.token_doc[: state.n_tokens].astype(int), state.topics.astype(int)
    eye = np.eye(state.n_topics)
    in_doc, in_word = np.zeros((docs.max() + 1, state.n_topics)), np.zeros((len(state.beta), state.n_topics))
    np.add.at(in_doc, (docs, old), 1)
    np.add.at(in_word, (words, old), 1)
    p = (in_doc[docs] - eye[old] + state.alpha) * (in_word[words] - eye[old] + state.beta[words, None])
    p /= in_word.sum(axis=0) - eye[old] + state.beta.sum()
    return p / p.sum(axis=1, keepdims=True)


def _redrawn(state, n, *, go_on):
    """Topics after each of n sweeps, from the same topics or each from those before; one group."""
    topics, out = state.topics.copy(), np.empty((n, state.n_tokens), np.int64)
    per_beta, beta_sum = (1 / state.beta).astype(np.float32), state.beta.sum()
    for r in range(n):
        if go_on or r == 0:
            state._list_documents(0)
            weights = topic_weights(state.alpha, np.bincount(topics, minlength=state.n_topics), beta_sum)
            tree = common_tree(*weights[:2])
        drawn, counted = topics.copy(), np.zeros(state.n_topics, np.int64)
        place = (0, len(state.beta), state.word_start, state.token_doc, drawn)
        lists = (state.entries, state.line_start, state.n_lines)
        sample_words(*place, *lists, *weights, *tree, per_beta, counted, state.seed, 11, r)
        assert (counted == np.bincount(drawn, minlength=state.n_topics)).all()
        out[r] = drawn
        if go_on:
            state.begin_from(drawn)
            topics = drawn
    return out


@pytest.mark.parametrize(
    ("n_topics", "alpha", "beta"),
    [
        (3, 0.3, 0.4),
        (3, [0.1, 0.9, 2.0], 1e-6),  # a token alone is drawn again and again: topic by topic in the end
        (40, 0.3, 0.4),  # rare words have lists
        (40, 0.01, 1e-4),
        (1100, 0.01, 0.05),  # three levels of a tree
    ],
)
def test_draws_are_from_the_conditional(n_topics, alpha, beta):
    X = np.random.default_rng(0).poisson(1.5, (6, 7))
    X[:, 0] += 20
    X[5] = 0
    X[5, 6] = 1
    state = _state(X, n_topics, alpha, beta * np.linspace(0.5, 2, 7))
    state.begin_from(
        np.random.default_rng(1).integers(0, min(n_topics, 60), state.n_tokens).astype(np.uint16)
    )
    expected, n = _conditionals(state), 4000
    redrawn, p = _redrawn(state, n, go_on=False), []
    drawn = [np.bincount(topics, minlength=n_topics) for topics in redrawn.T]
    for seen, wanted in zip(drawn, expected, strict=True):
        large = wanted * n >= 8
        seen, wanted = (np.append(v[large], v[~large].sum()) for v in (seen, wanted))
        kept = wanted * n >= 2
        assert not seen[~kept].sum() > 15
        seen, wanted = seen[kept], wanted[kept]
        if len(seen) > 1:
            p.append(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)
    assert min(p) > 1e-3 / len(p)
    assert stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("n_topics", "beta"), [(2, 0.4), (33, 1e-5), (100, 0.01), (1000, 0.01), (1500, 1e-7)]
)
def test_a_sweep_is_the_plain_one_bit_for_bit(n_topics, beta):
    rng = np.random.default_rng(0)
    X = rng.poisson(
        np.where(rng.random((30, 40)) < 0.3, 2.5, 0.1) * np.append(8 + n_topics // 60, np.ones(39))
    )
    alpha = rng.gamma(1, size=n_topics).clip(0.01) * 0.2
    state = _state(X, n_topics, alpha, beta * rng.gamma(5, size=40), n_groups=3)
    weights = topic_weights(state.alpha, state.totals, state.beta.sum())
    place = (state.topics, state.word_start, state.token_doc[: state.n_tokens])
    per_beta = (1 / state.beta).astype(np.float32)
    expected, tally = saber_reference.sweep(*place, *weights[:2], weights[3], per_beta, SEED, 11, 0)
    assert (expected != state.topics).any()
    assert (_swept(state, n_jobs=2).topics == expected).all()
    parts = {"document", "tree", "again"} | ({"list", "shared"} if n_topics >= 100 else set())
    assert all(tally[part] for part in parts), tally


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1024, 1025, 32768])
def test_a_tree_holds_prefix_sums_of_its_leaves(n):
    rng = np.random.default_rng(0)
    alpha, weights = rng.random(n).astype(np.float32), rng.random(n).astype(np.float32)
    groups, tops = common_tree(alpha, weights)
    tree = saber_reference.Tree(alpha * weights)
    assert (groups == tree.groups.ravel()[: len(groups)]).all()
    assert (tops == tree.tops).all()
    assert tops[-1] == pytest.approx((alpha.astype(float) * weights).sum(), rel=1e-6)
    assert grow_tree(alpha, weights, groups, tops) == tops[-1]


# --- the chain, by enumeration -----------------------------------------------------------------------------


def _posterior(state):
    """Every assignment of the tokens, in the state's order, and its probability."""
    words = np.repeat(np.arange(len(state.beta)), np.diff(state.word_start))
    docs = state.token_doc[: state.n_tokens]
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


def _total_variation(X, n_topics, beta):
    state = _state(X, n_topics, beta=beta)
    z, posterior = _posterior(state)
    visited = _redrawn(state, 5_000, go_on=True)  # more would only make the distance smaller
    codes = visited @ (n_topics ** np.arange(state.n_tokens)[::-1])
    sampled = np.bincount(codes, minlength=len(z)) / len(codes)
    # Cells that names of topics do not change: which tokens agree.
    same = (z[:, :, None] == z[:, None, :]).reshape(len(z), -1)
    cells = np.unique(same, axis=0, return_inverse=True)[1]
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
    assert _total_variation(np.array(X), n_topics, beta) < 0.5


# --- the estimator -----------------------------------------------------------------------------------------


def _lda(n_components, **options):
    return sd.LatentDirichletAllocation(
        n_components, **{"sampler": "saber", "max_iter": 20, "random_state": 0, **options}
    )


def test_the_topics_of_a_generated_corpus_are_found(corpus):
    """Documents that neither saw are predicted about as well as after Gibbs sampling."""
    X, test = corpus[:1000], corpus[1000:]
    gibbs = sd.LatentDirichletAllocation(10, sampler="gibbs", max_iter=100, random_state=0).fit(X)
    saber = _lda(10, max_iter=100).fit(X)
    assert saber.sampler_ == [{"name": "saber", "sweep": 1, "topics_per_document": None}]
    assert saber.perplexity(test) < 1.02 * gibbs.perplexity(test)
    assert saber.log_likelihood_[-1] > saber.log_likelihood_[0] + 0.1


@pytest.mark.parametrize("n_components", [1, 7, 300])
def test_the_same_model_on_any_number_of_threads(corpus, n_components):
    fits = [_lda(n_components, max_iter=4, n_jobs=n).fit(corpus) for n in (1, 3)]
    assert len(_state(corpus, 7).shards) > 1, "one group proves nothing"
    assert (fits[0].word_topic_counts_ != fits[1].word_topic_counts_).nnz == 0
    assert (fits[0].doc_topic_counts_ != fits[1].doc_topic_counts_).nnz == 0
    assert (fits[0].log_likelihood_ == fits[1].log_likelihood_).all()


@pytest.mark.parametrize("n_groups", [1, 4])
def test_counts_agree_with_the_assignments(corpus, n_groups):
    state = _swept(_state(corpus, 30, n_groups=n_groups), 3)
    words, documents = state.word_topic_counts(), state.doc_topic_counts()
    np.testing.assert_array_equal(words.sum(axis=1), np.asarray(corpus.sum(axis=0)).ravel())
    np.testing.assert_array_equal(documents.sum(axis=1), np.asarray(corpus.sum(axis=1)).ravel())
    np.testing.assert_array_equal(words.sum(axis=0), state.totals)
    np.testing.assert_array_equal(documents.sum(axis=0), state.totals)


def test_groups_change_nothing_but_the_places_of_tokens(corpus):
    """A sweep goes from the counts before it, whatever the groups; tokens are named by their places."""
    lda = [_swept(_state(corpus[:300], 12, 0.1, 0.01, n_groups=g), 40) for g in (1, 4)]
    levels = [state.joint_log_likelihood() for state in lda]
    assert levels[0] == pytest.approx(levels[1], rel=0.01)


def test_a_checkpoint_goes_on_bit_for_bit(corpus, tmp_path):
    options = {"max_iter": 24, "optimize_priors": True}
    whole = _lda(30, **options).fit(corpus)
    _lda(30, checkpoint=tmp_path, **options).fit(corpus, callback=lambda info: info.round == 22)
    resumed = _lda(30, checkpoint=tmp_path, **options).fit(corpus)
    assert (resumed.word_topic_counts_ != whole.word_topic_counts_).nnz == 0
    assert resumed.n_iter_ == 24
    with pytest.raises(CheckpointMismatch, match="sampler"):
        _lda(30, checkpoint=tmp_path, **options, sampler="gibbs").fit(corpus)


def test_a_checkpoint_that_does_not_fit_is_refused(corpus):
    state = _state(corpus, 20)
    arrays = state.arrays()
    for damage in ({"topics": arrays["topics"] + np.uint16(20)}, {"topics": arrays["topics"][:-1]}):
        with pytest.raises(ModelFileError, match="do not fit"):
            state.restore(arrays | damage)
    state.restore(arrays)


def test_priors_and_warm_starts_are_as_with_the_others(corpus, tmp_path):
    fitted = _lda(10, max_iter=60, optimize_priors=True).fit(corpus)
    assert fitted.doc_topic_prior_.std() > 0
    lda = _lda(10, warm_start=True).fit(corpus)
    first = lda.perplexity(corpus)
    assert lda.set_params(max_iter=3).fit(corpus).perplexity(corpus) < 1.03 * first
    assert lda.partial_fit(corpus[:50]).sampler_[0]["name"] == "gibbs"
    stored = _lda(10, memmap_folder=tmp_path, max_iter=5).fit(corpus)
    assert (stored.word_topic_counts_ != _lda(10, max_iter=5).fit(corpus).word_topic_counts_).nnz == 0


def test_empty_documents_and_words_that_never_occur():
    X = np.zeros((5, 9), int)
    X[1, 3] = X[3, 3] = X[3, 7] = 1
    state = _swept(_state(X, 3), 5)
    assert state.totals.sum() == 3
    assert state.doc_topic_counts().sum(axis=1).tolist() == [0, 1, 0, 2, 0]


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        ([[65_536, 1]], {}, "up to 65,535 tokens, and one of X has 65,537"),
        ([[3, 1]], {"n_components": 32_769}, "up to 32,768 topics"),
        ([[3, 1]], {"topic_word_prior": 1e-13}, "topic_word_prior of at least 1e-12"),
        ([[3, 1]], {"doc_topic_prior": [1, 1e-13, 1]}, "doc_topic_prior of at least 1e-12, got 1e-13"),
        ([[3, 1]], {"exact": True}, "exact=True with sampler='saber'"),
    ],
)
def test_what_it_does_not_hold_is_refused_with_a_remedy(X, options, message):
    with pytest.raises(DataError, match=message):
        sd.LatentDirichletAllocation(**{"n_components": 3, "sampler": "saber", **options}).fit(X)
    with pytest.raises(DataError, match="seed_words and doc_labels need Gibbs"):
        _lda(2).fit([[3, 1]], seed_words={0: [1]})


def test_a_word_too_common_for_its_counts_is_refused():
    with pytest.raises(DataError, match=r"word 1 of X has 2,147,483,648 tokens.*leave so common a word out"):
        check_fits(np.array([9]), np.array([3, 2**31]), 5, np.full(5, 0.1), np.full(2, 0.01))


def test_documents_and_topics_as_large_as_it_holds():
    X = np.array([[65_000, 535], [0, 9]])
    lda = _lda(32_768, max_iter=2).fit(X)
    np.testing.assert_array_equal(lda.doc_topic_counts_.sum(axis=1), X.sum(axis=1))
    np.testing.assert_array_equal(lda.word_topic_counts_.sum(axis=1), X.sum(axis=0))
