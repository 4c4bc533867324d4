"""The hierarchical prior of topics' shares: its draws and its chain against sums and integrals, and bits."""

import itertools
import signal

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse, stats
from scipy.special import gammaln

import stradask as sd
from stradask.algorithms.topics import priors
from stradask.algorithms.topics.blocks.program import TopicProgram
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers import merging
from stradask.algorithms.topics.samplers.hierarchical import Concentrations, HierarchicalGibbs, draw_shares
from stradask.errors import DataError, InterruptedFitWarning
from stradask.scheduler.engine import run

_COUNTS = np.array([[5, 1], [0, 3], [2, 2], [9, 0]])


def log_documents(counts, alpha, share):
    """Log of the documents' likelihood, their shares integrated out; `alpha` and `share` are grids."""
    total = 0.0
    for row in counts:
        total = total + gammaln(alpha) - gammaln(alpha + row.sum())
        for n, pi in zip(row, (share, 1 - share), strict=True):
            total = total + gammaln(alpha * pi + n) - gammaln(alpha * pi)
    return total


def log_share(share, gamma):
    """Log density of Dirichlet(gamma / 2, gamma / 2)."""
    half = gamma / 2
    return gammaln(gamma) - 2 * gammaln(half) + (half - 1) * (np.log(share) + np.log1p(-share))


def logit_grid(n=200):
    """Shares, and the logarithms of their weights."""
    u = np.linspace(-18, 18, n)
    share = 1 / (1 + np.exp(-u))
    return share, np.log(share) + np.log1p(-share)


def drawn(n, **options):
    counts = priors.tally(sparse.csr_array(_COUNTS))
    lengths = priors.tally_values(_COUNTS.sum(axis=1))
    rng = np.random.default_rng(0)
    alpha, gamma = np.array([0.5, 0.5]), 1.0
    found = np.empty((n, 3))
    for i in range(n):
        alpha, gamma = draw_shares(counts, lengths, alpha, Concentrations(gamma, **options), rng)
        found[i] = alpha[0] / alpha.sum(), alpha.sum(), gamma
    return found


def close(values, weights, found):
    """Whether the mean of a chain is that of a weighted grid, within its Monte Carlo error."""
    expected = (values * weights).sum()
    batches = found.reshape(50, -1).mean(axis=1)
    error = batches.std(ddof=1) / np.sqrt(50)
    assert abs(found.mean() - expected) < 4.5 * error + 1e-3, (found.mean(), expected, error)
    return error


def test_shares_are_drawn_from_their_posterior():
    found = drawn(20_000, draws_alpha=False, draws_gamma=False)
    share, log_weight = logit_grid()
    log_p = log_documents(_COUNTS, 1.0, share) + log_share(share, 1.0) + log_weight
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    for power in (1, 2, 3):
        assert close(share**power, weights, found[:, 0] ** power) < 0.01
    np.testing.assert_allclose(found[:, 1], 1)


def test_concentrations_are_drawn_from_their_posterior():
    found = drawn(25_000, draws_alpha=True, draws_gamma=True)
    share, log_weight = logit_grid(120)
    alpha, gamma = np.exp(np.linspace(-7, 4, 90)), np.exp(np.linspace(-9, 4, 90))
    log_p = (log_documents(_COUNTS, alpha[:, None], share) - alpha[:, None] + np.log(alpha[:, None]))[:, None]
    log_p = (
        log_p
        + (log_share(share, gamma[:, None]) - gamma[:, None] + np.log(gamma[:, None]) + log_weight)[None]
    )
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    for column, values in enumerate((share[None, None], alpha[:, None, None], gamma[None, :, None])):
        assert close(values, weights, found[:, column]) < 0.05
        assert close(np.log(values), weights, np.log(found[:, column])) < 0.1


def test_the_chain_is_that_of_the_enumeration():
    X, alpha, beta = np.array([[2, 1, 0], [0, 1, 2]]), 0.8, np.array([0.4, 0.3, 0.5])
    tokens = [(d, w) for d in range(2) for w in range(3) for _ in range(X[d, w])]
    share, log_weight = logit_grid()

    def kind(doc, word):  # names of topics do not count
        one = tuple(map(tuple, np.vstack([doc, word]).T.tolist()))
        return tuple(sorted(one))

    expected: dict = {}
    equal: dict = {}  # if shares were equal, and not drawn
    for z in itertools.product(range(2), repeat=len(tokens)):
        doc, word = np.zeros((2, 2), int), np.zeros((3, 2), int)
        for (d, w), k in zip(tokens, z, strict=True):
            doc[d, k] += 1
            word[w, k] += 1
        log_p = log_documents(doc, alpha, share) + log_share(share, 1.0) + log_weight
        words = (gammaln(word + beta[:, None]) - gammaln(beta[:, None])).sum()
        words -= gammaln(word.sum(axis=0) + beta.sum()).sum()
        place = kind(doc, word)
        expected[place] = expected.get(place, 0.0) + np.exp(np.logaddexp.reduce(log_p) + words)
        equal[place] = equal.get(place, 0.0) + np.exp(log_documents(doc, alpha, 0.5) + words)

    class Kept:
        def __init__(self):
            self.found = []

        def take(self, sweep, collect):
            if sweep % 4 == 0:
                gathered = collect()
                self.found.append(kind(gathered.documents.toarray(), gathered.words.toarray()))

        def arrays(self):
            return {}

    corpus = corpus_of_matrix(sparse.csr_array(X.astype(np.int32)), 1, copies=False)
    sampler = HierarchicalGibbs(Concentrations(1.0, False, False))
    options = {"sampler": sampler, "exact": True, "in_process": True}
    program = TopicProgram(corpus, 2, np.full(2, alpha / 2), beta, 0, **options)
    kept = Kept()
    run(program, program.schedule, max_rounds=10_000, draws=kept)
    names = list(expected)
    p = np.array([expected[name] for name in names]) / sum(expected.values())
    count = np.array([kept.found.count(name) for name in names])
    assert count.sum() == len(kept.found)
    often = p * len(kept.found) > 20
    z = (count - p * len(kept.found))[often] / np.sqrt(p * (1 - p) * len(kept.found))[often]
    # Draws four sweeps apart are still a little alike.
    assert np.abs(z).max() < 5.5
    assert (z**2).mean() < 2.5
    assert stats.entropy(count / count.sum() + 1e-12, p) < 0.01
    assert stats.entropy(count / count.sum() + 1e-12, [equal[name] for name in names]) > 0.03


def model(n_components=20, **options):
    return sd.HDPTopicModel(n_components, **({"random_state": 0, "max_iter": 165} | options))


@pytest.fixture(scope="module")
def corpus():
    rng = np.random.default_rng(0)
    topics = np.kron(np.eye(4), np.full(6, 1 / 6))
    return sparse.csr_array(
        np.array([rng.multinomial(40, rng.dirichlet([0.5] * 4) @ topics) for _ in range(200)])
    )


def test_the_topics_of_a_corpus_are_found_whatever_the_truncation(corpus):
    for truncation in (20, 60):
        fitted = model(truncation, max_iter=200).fit(corpus)
        tokens = np.sort(np.asarray(fitted.word_topic_counts_.sum(axis=0)).ravel())[::-1]
        assert fitted.n_topics_ == len(tokens) == 4
        assert fitted.n_topics_interval_[0] <= 4 <= fitted.n_topics_interval_[1] <= 6
        assert tokens[3] > 0.2 * corpus.sum()
        assert 1.4 < fitted.doc_topic_prior_.sum() < 3  # alpha was 2
        assert fitted.transform(corpus[:3]).shape == (3, fitted.n_topics_)
    four = sd.LatentDirichletAllocation(4, random_state=0).fit(corpus)
    assert fitted.perplexity(corpus) < 1.03 * four.perplexity(corpus)


def log_joint(words, documents, alpha, beta):
    """log p(words, topics) given alpha, of dense counts."""
    total = (gammaln(words + beta[:, None]) - gammaln(beta[:, None])).sum()
    total += (gammaln(beta.sum()) - gammaln(words.sum(axis=0) + beta.sum())).sum()
    return total + (gammaln(documents + alpha) - gammaln(alpha)).sum()


def test_gains_of_merging_are_differences_of_the_joint_probability():
    rng = np.random.default_rng(0)
    documents, words = rng.poisson(0.6, (40, 5)), rng.poisson(0.4, (30, 5))
    alpha, beta = rng.gamma(0.5, size=5), rng.gamma(0.3, size=30)
    pairs = np.array([[i, j] for j in range(5) for i in range(j)])
    gains = merging.gains_of_documents(sparse.csc_array(documents), alpha, pairs)
    parts = [sparse.csr_array(words[:11]), sparse.csr_array(words[11:])]
    gains = gains + merging.gains_of_words(parts, beta, pairs)
    gains -= merging._joined(words.sum(axis=0), beta.sum(), *pairs.T)
    before = log_joint(words, documents, alpha, beta)
    for pair, gain in zip(pairs, gains, strict=True):
        names = np.arange(5)
        names[pair[1]] = pair[0]
        kept = np.delete(np.arange(5), pair[1])
        after = [merging.Merging.added(counts, names)[..., kept] for counts in (words, documents, alpha)]
        # The topic that is no more has no words: its part of the words is 1.
        assert gain == pytest.approx(log_joint(*after, beta) - before, abs=1e-9)


def test_the_gain_without_a_topic_is_a_sum_over_the_topics_of_its_tokens():
    rng = np.random.default_rng(0)
    n_topics, alpha, beta = 4, rng.gamma(1, 0.5, 4), rng.gamma(0.5, size=9)
    docs, words, topics = rng.integers(0, 6, 150), np.sort(rng.integers(0, 9, 150)), rng.integers(0, 4, 150)
    topics[topics == 3] *= rng.random((topics == 3).sum()) < 0.2  # a topic of few tokens
    of_docs, of_words = np.zeros((6, n_topics), int), np.zeros((9, n_topics), int)
    np.add.at(of_docs, (docs, topics), 1)
    np.add.at(of_words, (words, topics), 1)
    totals = of_words.sum(axis=0)

    def weights(d, w, old=None):
        own = 0 if old is None else np.eye(n_topics)[old]
        by_words = (of_words[w] - own + beta[w]) / (totals - own + beta.sum())
        return (of_docs[d] - own + alpha) * by_words

    expected, moves = np.zeros(n_topics), np.zeros((n_topics, n_topics), int)
    for d, w, k in zip(docs, words, topics, strict=True):
        others = np.delete(weights(d, w), k)
        moves[k, np.delete(np.arange(n_topics), k)[others.argmax()]] += 1
        expected[k] += np.log(others.sum()) - stats.entropy(weights(d, w, k))
    for k in range(n_topics):
        rest = np.delete(np.arange(n_topics), k)
        without = log_joint(of_words[:, rest], of_docs[:, rest], alpha[rest], beta)
        expected[k] += without - log_joint(of_words, of_docs, alpha, beta)

    judge = merging.Merging(n_topics, merges=True)
    start, rows = np.searchsorted(words, np.arange(10)), [sparse.csr_array(of_words[:5]), of_words[5:]]
    own = judge.of_words(merging.MergeOrders(judges=True), [rows[0], sparse.csr_array(rows[1])], beta)[
        "word_own"
    ]
    parts = []
    for half in (docs < 3, docs >= 3):  # two shards
        begin = np.concatenate([[0], np.cumsum(half)])[start]
        counts = sparse.csr_array(of_docs), sparse.csr_array(of_words)
        tokens = (begin, docs[half], topics[half], *counts, totals, alpha, beta, beta.sum())
        parts.append(judge.of_tokens(*tokens))
    tally = priors.tally(sparse.csr_array(of_docs))
    gains, moved = merging.gains_without(totals, alpha, tally, beta.sum(), own, parts)
    np.testing.assert_allclose(gains, expected, atol=1e-9)
    np.testing.assert_array_equal(moved, moves)


def test_leftovers_join_others_that_stay():
    gains, totals = np.array([5.0, 4.0, -3.0, 2.0, -9.0, 1.0]), np.array([9, 8, 7, 6, 5, 0])
    moves = np.array([[0, 6, 0, 0, 0, 0], [8, 0, 0, 0, 0, 0], [0] * 6, [9, 0, 2, 0, 3, 0], [0] * 6, [0] * 6])
    names = np.arange(6)
    merging.join_leftovers(names, gains, moves, totals)
    assert names.tolist() == [1, 1, 2, 4, 4, 5]  # 1 stays, as 0 joined it; 3 joins one that lasts; 5 is empty


def test_the_share_that_is_integrated_out_is_an_integral():
    alpha, tables, weight = np.array([0.3, 0.2]), np.array([7, 4]), 0.4
    (gain,) = merging.gains_of_shares(tables, alpha, weight, np.array([0]), np.array([1]))

    def part(a, b):  # integral of share^a (1 - share)^b over its prior
        return stats.beta(weight, weight).expect(lambda share: share**a * (1 - share) ** b)

    as_given = 0.6**7 * 0.4**4
    assert gain == pytest.approx(np.log(part(11, 0)) - np.log(part(7, 4) / as_given), rel=1e-6)


def same(a, b):
    assert (a.word_topic_counts_ != b.word_topic_counts_).nnz == 0
    np.testing.assert_array_equal(a.doc_topic_prior_, b.doc_topic_prior_)
    np.testing.assert_array_equal(a.log_likelihood_, b.log_likelihood_)
    assert a.gamma_ == b.gamma_


def test_bits_are_the_same_on_threads_a_cluster_and_after_a_kill(corpus, tmp_path):
    whole = model(n_groups=3, max_iter=172).fit(corpus)
    same(model(n_groups=3, max_iter=172, n_jobs=2).fit(corpus), whole)

    def killed(info):
        if info.round == 161:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        model(n_groups=3, max_iter=172, checkpoint=tmp_path).fit(corpus, callback=killed)
    same(model(n_groups=3, max_iter=172, checkpoint=tmp_path).fit(corpus), whole)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        same(model(n_groups=3, max_iter=172, engine="dask").fit(corpus), whole)


def test_many_topics_take_lists_of_documents(corpus):
    fitted = model(300).fit(corpus)
    assert fitted.n_topics_ == 4
    assert fitted.word_topic_counts_.sum() == corpus.sum()
    assert (fitted.doc_topic_counts_.sum(axis=1) == corpus.sum(axis=1)).all()


def test_shares_of_the_fit_are_of_the_topics_that_are_left(corpus):
    fitted = model()
    shares = fitted.fit_transform(corpus)
    assert shares.shape == (200, fitted.n_topics_)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.abs(shares - fitted.transform(corpus)).sum(axis=1).mean() / 2 < 0.2


def test_a_truncation_that_is_reached_is_said(corpus):
    with pytest.warns(UserWarning, match="no number that was found: the limit of 3 topics is reached"):
        model(3).fit(corpus)
    with pytest.warns(
        UserWarning, match="ended after 9 sweeps, before leftovers were told from topics"
    ) as caught:
        model(max_iter=9).fit(corpus)
    assert caught[0].filename == __file__
    for wrong in ({"alpha": 0}, {"gamma": -1.0}, {"n_components": 0}):
        with pytest.raises((DataError, ValueError)):
            model(**wrong).fit(corpus)


def test_an_interrupted_fit_is_named_and_keeps_no_draws(corpus):
    def ctrl_c(info):
        if info.round == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match="^HDP was interrupted after 3 of"):
        fitted = model(20).fit(corpus, callback=ctrl_c)
    with pytest.raises(DataError, match="HDPTopicModel keeps no draws"):
        fitted.topic_word_interval()


def test_lda_finds_the_number_as_this_model_does(corpus, tmp_path):
    options = {"max_iter": 165, "random_state": 0}
    lda = sd.LatentDirichletAllocation("auto", **options).fit(corpus, vocabulary=[f"w{i}" for i in range(24)])
    same(lda, sd.HDPTopicModel(100, **options).fit(corpus))
    assert lda.n_components == "auto"
    assert lda.n_topics_ == lda.topic_word_.shape[0] == lda.transform(corpus[:2]).shape[1]
    lda.save(tmp_path / "model.npz")
    same(sd.load(tmp_path / "model.npz"), lda)
    found = lda.n_topics_
    lda.partial_fit(corpus[:20], vocabulary=[f"w{i}" for i in range(24)])
    assert lda.n_topics_ == lda.topic_word_.shape[0] == found
    lda.partial_fit(corpus[:20], grow=2)
    assert lda.n_topics_ == lda.topic_word_.shape[0] == found + 2
    shares = sd.LatentDirichletAllocation("auto", **options).fit_transform(corpus)
    assert shares.shape == (200, found)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    fixed = lda.set_params(n_components=3).fit(corpus)
    assert not hasattr(fixed, "n_topics_")
    assert fixed.topic_word_.shape == (3, 24)


@pytest.mark.parametrize(
    ("options", "given", "named"),
    [
        ({"sampler": "warp"}, {}, "sampler='warp'"),
        ({"doc_topic_prior": 0.5}, {}, "doc_topic_prior=0.5"),
        ({"optimize_priors": True}, {}, "optimize_priors=True"),
        ({"n_draws": 5}, {}, "n_draws=5"),
        ({"tol": 0.01}, {}, "tol=0.01"),
        ({"warm_start": True}, {}, "warm_start=True"),
        ({}, {"seed_words": {0: [1]}}, "seed_words=..."),
        ({}, {"topics": np.ones((2, 24))}, "topics=..."),
    ],
)
def test_what_does_not_go_with_a_number_that_is_found_is_refused(corpus, options, given, named):
    with pytest.raises(DataError, match=f"n_components='auto'.*{named}"):
        sd.LatentDirichletAllocation("auto", **options).fit(corpus, **given)
    with pytest.raises(ValueError, match="n_components"):
        sd.LatentDirichletAllocation("many").fit(corpus)


@pytest.mark.parametrize("option", ["adds", "forget"])  # of steps inside, which took them before
@pytest.mark.parametrize("make", [sd.HDPTopicModel, sd.KeyATM, sd.LatentDirichletAllocation])
def test_fit_transform_takes_the_arguments_of_fit_alone(make, option):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
        make(2, max_iter=1).fit_transform(np.eye(3, dtype=int), **{option: 0.5})
