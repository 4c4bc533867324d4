"""Annealed sweeps are those of a larger prior, and nothing of them is left afterwards."""

import numpy as np
import pytest
from early_auto import make_early
from lda_chains import Chain
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics import fitting
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers import choose
from stradask.algorithms.topics.samplers.annealing import annealed_prior, annealed_sweeps, first_beta
from stradask.errors import ModelFileError
from stradask.scheduler.engine import run

N_TOPICS, N_WORDS = 70, 400


@pytest.fixture(scope="module")
def corpus():
    X, *_ = sd.datasets.make_lda_corpus(1200, N_WORDS, 20, mean_length=100, random_state=3)
    return sparse.csr_array(X)


def make(corpus, sampler, beta=0.01, annealed=0, **options):
    priors = np.full(N_TOPICS, 0.1), np.broadcast_to(np.asarray(beta, float), N_WORDS).copy()
    options |= {"annealed": annealed}
    return Chain(corpus, N_TOPICS, *priors, 5, sampler=sampler, **options)


def test_the_prior_falls_from_a_tenth_to_what_was_asked_for():
    beta = np.array([0.01, 0.001, 0.1, 0.5])
    path = np.array([annealed_prior(beta, sweep, 50, 0.1) for sweep in range(60)])
    np.testing.assert_allclose(path[:31], np.tile([0.1, 0.1, 0.1, 0.5], (31, 1)), rtol=1e-15)
    np.testing.assert_array_equal(path[50:], np.tile(beta, (10, 1)))
    falling = path[30:51, :2]
    ratios = falling[1:] / falling[:-1]
    np.testing.assert_allclose(ratios, np.tile(beta[:2] / 0.1, (20, 1)) ** (1 / 20), rtol=1e-12)
    np.testing.assert_array_equal(path[:, 2:], np.tile(beta[2:], (60, 1)))


def test_a_prior_adds_a_part_of_the_tokens_that_topics_have(corpus):
    n_tokens = int(corpus.sum())
    for n_topics in (2, 70, 300, 5000):
        first = first_beta(n_tokens, n_topics, N_WORDS)
        assert first == 0.1 or N_WORDS * first == pytest.approx(0.3 * n_tokens / n_topics)
        assert N_WORDS * first <= 0.3 * n_tokens / n_topics * (1 + 1e-12)
    assert first < 0.1
    beta = np.full(N_WORDS, 2 * first)
    np.testing.assert_array_equal(annealed_prior(beta, 0, 50, first), beta)


@pytest.mark.parametrize(("passes", "expected"), [(None, 80), (1, 150), (2, 75), (4, 38)])
def test_how_many_sweeps_are_annealed(passes, expected):
    assert annealed_sweeps(passes) == expected


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light", "saber", "auto"])
def test_a_shorter_fit_is_the_beginning_of_a_longer_one(corpus, sampler, monkeypatch):
    monkeypatch.setattr(choose, "GIBBS_TOPICS", 0)  # so that "auto" begins with warp
    seen = []

    def watch(info):
        if info.round in (1, 7):
            seen.append(info.snapshot().word_topic_counts_)

    for max_iter in (7, 90):
        lda = sd.LatentDirichletAllocation(N_TOPICS, sampler=sampler, max_iter=max_iter, random_state=0)
        lda.fit(corpus, callback=lambda info: watch(info) or info.round == 7)
    assert len(seen) == 4
    for shorter, longer in zip(seen[:2], seen[2:], strict=True):
        assert (shorter != longer).nnz == 0


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light"])
def test_annealed_sweeps_are_those_of_the_larger_prior(corpus, sampler):
    annealed, larger = make(corpus, sampler, annealed=10), make(corpus, sampler, beta=0.1)
    assert annealed.annealed == 10
    larger.begin_from(annealed.topics)  # long documents begin in another way
    for round_ in range(6):
        annealed.sweep(round_)
        larger.sweep(round_)
    np.testing.assert_array_equal(annealed.topics, larger.topics)
    annealed.sweep(7)  # on its way down
    larger.sweep(7)
    assert not np.array_equal(annealed.topics, larger.topics)
    # the likelihood is that of the prior asked for
    plain = make(corpus, sampler)
    plain.begin_from(annealed.topics)
    assert annealed.joint_log_likelihood() == pytest.approx(plain.joint_log_likelihood(), rel=1e-12)


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light"])
def test_nothing_is_left_of_annealing_afterwards(corpus, sampler):
    annealed, plain = make(corpus, sampler, annealed=10), make(corpus, sampler)
    for round_ in range(10):
        annealed.sweep(round_)
    plain.restore(annealed.saved() | {"annealed": np.array(0)})
    annealed.sweep(10)
    plain.sweep(10)
    np.testing.assert_array_equal(annealed.topics, plain.topics)


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light"])
def test_a_checkpoint_within_annealing_goes_on_with_it(corpus, sampler):
    first, second = make(corpus, sampler, annealed=10), make(corpus, sampler, annealed=25)
    for round_ in range(7):
        first.sweep(round_)
    second.restore(first.saved())
    first.sweep(7)
    second.sweep(7)
    np.testing.assert_array_equal(first.topics, second.topics)
    for damaged in (np.int64(-1), np.float64(3), np.arange(3)):
        with pytest.raises(ModelFileError, match="do not fit"):
            second.program.restore(first.program.arrays() | {"annealed": np.asarray(damaged)})


def test_auto_anneals_with_warp_alone(corpus, monkeypatch):
    assert choose.annealed_of("both") == 38
    make_early(monkeypatch, most=2)
    priors, annealed = (np.full(N_TOPICS, 0.1), np.full(N_WORDS, 0.01)), choose.annealed_of("both")
    program = choose.program_of("both", corpus_of_matrix(corpus, 2), N_TOPICS, *priors, 5, annealed=annealed)
    assert program.annealed == annealed > 2
    run(program, program.schedule, max_rounds=3)
    assert [program.annealed, program.ran[-1]["name"]] == [0, "gibbs"]


def test_a_prior_that_is_large_already_is_not_annealed(corpus):
    assert make(corpus, "warp", beta=0.1, annealed=10).annealed == 0
    assert make(corpus, "warp", beta=0.09, annealed=10).annealed == 10


def test_estimators_that_are_exact_or_begin_from_something_do_not_anneal(corpus, monkeypatch):
    seen = []
    run = fitting.run
    monkeypatch.setattr(fitting, "run", lambda *a, **kw: seen.append(a[0].annealed) or run(*a, **kw))
    lda = sd.LatentDirichletAllocation(8, sampler="gibbs", max_iter=6, random_state=0).fit(corpus)
    lda.fit(corpus, topics=lda.components_)
    lda.fit(corpus, seed_words={0: [1]})
    lda.fit(corpus, doc_labels=np.ones((1200, 8)))
    lda.set_params(warm_start=True).fit(corpus)
    lda.set_params(warm_start=False, exact=True).fit(corpus)
    assert seen == [80, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("sampler", ["gibbs", "saber"])
def test_a_fitted_beta_waits_for_the_end_of_annealing(corpus, sampler, monkeypatch):
    monkeypatch.setattr("stradask.algorithms.topics.samplers.annealing.ANNEALED_SWEEPS", 30)
    seen = {}

    def watch(info):
        if info.round in (19, 20, 29, 30):
            model = info.snapshot()
            seen[info.round] = np.ptp(model.doc_topic_prior_) > 0, model.topic_word_prior_[0] != 0.01

    options = {"sampler": sampler, "optimize_priors": True, "max_iter": 30, "random_state": 0}
    sd.LatentDirichletAllocation(8, **options).fit(corpus, callback=watch)
    assert seen == {19: (False, False), 20: (True, False), 29: (True, False), 30: (True, True)}


def test_a_fit_that_ends_before_priors_are_fitted_says_so(corpus):
    lda = sd.LatentDirichletAllocation(3, max_iter=19, optimize_priors=True, random_state=0)
    with pytest.warns(UserWarning, match="ended after 19 sweeps, before priors were fitted.*raise max_iter"):
        lda.fit(corpus[:100])
    lda.set_params(max_iter=20).fit(corpus[:100])  # no warning, which would be an error


def test_convergence_waits_for_the_end_of_annealing(corpus):
    lda = sd.LatentDirichletAllocation(8, sampler="gibbs", tol=0.5, max_iter=120, random_state=0).fit(corpus)
    assert 80 < lda.n_iter_ < 120


@pytest.mark.parametrize("anneals", [True, False])
def test_long_documents_begin_with_all_topics_where_sweeps_are_annealed(corpus, anneals):
    state = make(corpus, "gibbs", annealed=10 * anneals)
    documents = sparse.csr_array(corpus)
    lengths = documents.sum(axis=1)
    distinct = np.diff(state.doc_topic_counts().indptr)
    long = lengths >= 200
    assert 10 < long.sum() < len(long) / 2
    assert distinct[~long].max() == 3
    if anneals:  # 200 draws and more of 70 topics leave out (69 / 70)^200 of them, a twentieth
        assert distinct[long].min() > 50
    else:
        assert distinct[long].max() == 3
