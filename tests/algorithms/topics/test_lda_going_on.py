"""Topic models that go on, stop, are saved, and are given what they may or may not take."""

import os
import signal

import numpy as np
import pytest
from lda_chains import Chain
from lda_problems import joint_by_definition, made_corpus, small_lda
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import stradask as sd
from stradask.errors import CheckpointMismatch, DataError, InterruptedFitWarning, ModelFileError
from stradask.scheduler.stores.saved import check_same_form


@pytest.fixture(scope="module")
def corpus():
    return made_corpus(300, n_features=400, n_components=5, mean_length=60, random_state=0)[0]


# Going on ---------------------------------------------------------------------------------------
def test_partial_fit_keeps_old_counts_and_learns_from_both():
    X, *_ = made_corpus(900, n_features=500, n_components=6, mean_length=60, random_state=5)
    first, second, test = X[:400], X[400:800], X[800:]
    lda = small_lda(6, max_iter=60).partial_fit(first)
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
    X, *_ = made_corpus(120, n_features=60, n_components=3, mean_length=30, random_state=0)
    old = small_lda(3).fit(X[:60])
    both = small_lda(3).fit(X[:60]).partial_fit(X[60:])
    joint_old = joint_by_definition(old, X[:60]) * X[:60].sum()
    stacked = sparse.vstack([old.doc_topic_counts_, both.doc_topic_counts_]).tocsr()
    conditional = both.log_likelihood_[-1] * X[60:].sum()
    both.doc_topic_counts_ = stacked
    assert conditional == pytest.approx(joint_by_definition(both, X) * X.sum() - joint_old, rel=1e-9)


def test_warm_start_keeps_the_topics_of_the_last_fit(corpus):
    """Topic for topic, not only as good: without the last counts the names of topics would be lost."""
    lda = small_lda(max_iter=100, warm_start=True).fit(corpus)
    last = lda.topic_word_
    warm = lda.set_params(max_iter=2, random_state=7).fit(corpus).topic_word_
    distance = 0.5 * np.abs(last[:, None] - warm[None]).sum(axis=2)
    assert (distance.argmin(axis=1) == np.arange(5)).all()
    assert distance.diagonal().max() < 0.3
    assert lda.n_iter_ == 2
    with pytest.raises(DataError, match="warm_start"):
        lda.set_params(n_components=9).fit(corpus)
    with pytest.raises(DataError, match="checkpoint"):
        small_lda(warm_start=True, checkpoint="somewhere").fit(corpus)


def test_batches_draw_from_streams_of_their_own():
    """One word, one topic drawn for each batch: with one stream for all, every batch would say the same."""
    lda = small_lda(2, max_iter=3, doc_topic_prior=1.0, topic_word_prior=1.0)
    for _ in range(60):
        lda.partial_fit([[1]])
    assert lda.n_batch_iter_ == 60
    assert lda.word_topic_counts_.sum() == 60
    assert len(lda.word_topic_counts_.data) == 2


def test_fitted_priors_stay_in_later_batches_and_warm_fits(corpus):
    lda = small_lda(max_iter=80, optimize_priors=True, warm_start=True).fit(corpus)
    alpha, beta = lda.doc_topic_prior_, lda.topic_word_prior_
    lda.set_params(max_iter=3).partial_fit(corpus[:5])
    np.testing.assert_array_equal(lda.doc_topic_prior_, alpha)
    np.testing.assert_array_equal(lda.topic_word_prior_, beta)
    np.testing.assert_array_equal(lda.fit(corpus).doc_topic_prior_, alpha)


def test_counts_that_would_overflow_are_refused_at_the_door():
    lda = small_lda(2, max_iter=1).fit(np.array([[3, 1], [1, 2]]))
    lda.word_topic_counts_.data[0] = 2**31 - 2
    with pytest.raises(DataError, match="2,147,483,616"):
        lda.partial_fit(np.array([[3, 1]]))
    with pytest.raises(DataError, match="at least one"):
        lda.partial_fit(np.array([[0, 0]]))


@pytest.mark.parametrize("n_components", [5, 300], ids=["dense rows", "lists"])
def test_a_fit_goes_on_from_its_checkpoint_bitwise(tmp_path, corpus, n_components):
    options = {"max_iter": 30, "optimize_priors": True}
    whole = small_lda(n_components, **options).fit(corpus)
    path = tmp_path / "fit"
    small_lda(n_components, checkpoint=path, **options).fit(corpus, callback=lambda info: info.round == 23)
    resumed = small_lda(n_components, checkpoint=path, **options)
    rounds = []
    resumed.fit(corpus, callback=lambda info: rounds.append(info.round))
    assert rounds == list(range(24, 31))
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.log_likelihood_, whole.log_likelihood_)
    assert resumed.n_iter_ == len(resumed.history_["round"]) == 30


def test_a_checkpoint_lets_max_iter_grow_and_a_converged_fit_rest(tmp_path, corpus):
    # exact: else the sweeps that are annealed would follow from the smaller max_iter
    options = {"optimize_priors": True, "exact": True}
    whole = small_lda(max_iter=45, **options).fit(corpus)
    small_lda(max_iter=25, checkpoint=tmp_path / "grown", **options).fit(corpus)
    grown = small_lda(max_iter=45, checkpoint=tmp_path / "grown", **options).fit(corpus)
    np.testing.assert_array_equal(grown.components_, whole.components_)
    np.testing.assert_array_equal(grown.log_likelihood_, whole.log_likelihood_)
    settled = small_lda(max_iter=400, tol=1e-2, checkpoint=tmp_path / "settled").fit(corpus)
    again = small_lda(max_iter=400, tol=1e-2, checkpoint=tmp_path / "settled").fit(corpus)
    assert settled.n_iter_ == again.n_iter_ < 400
    np.testing.assert_array_equal(settled.components_, again.components_)


def test_a_stopped_fit_goes_on_from_its_very_last_sweep(tmp_path, corpus):
    small_lda(max_iter=30, checkpoint=tmp_path).fit(corpus, callback=lambda info: np.bool_(info.round == 7))
    rounds = []
    small_lda(max_iter=9, checkpoint=tmp_path).fit(corpus, callback=lambda info: rounds.append(info.round))
    assert rounds == [8, 9]
    with pytest.raises(DataError, match="URL"):
        small_lda(checkpoint="s3://bucket/fit").fit(corpus)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path, corpus):
    path = tmp_path / "fit"
    small_lda(max_iter=10, checkpoint=path).fit(corpus)
    with pytest.raises(CheckpointMismatch, match="doc_topic_prior"):
        small_lda(max_iter=10, checkpoint=path, doc_topic_prior=0.3).fit(corpus)
    with pytest.raises(CheckpointMismatch, match="X"):
        small_lda(max_iter=10, checkpoint=path).fit(corpus[:100])
    for own, other in ((3, 2), (2, 3)):
        grouped = small_lda(max_iter=4, n_groups=own, checkpoint=tmp_path / f"of-{own}").fit(corpus)
        with pytest.raises(CheckpointMismatch, match=f"set n_groups={own} to go on"):
            grouped.set_params(n_groups=other).fit(corpus)
        assert grouped.set_params(n_groups=own, max_iter=5).fit(corpus).n_iter_ == 5


@pytest.mark.parametrize("n_components", [5, 300])
def test_a_checkpoint_that_would_lead_kernels_astray_is_refused(corpus, n_components):
    state = Chain(corpus, n_components, np.ones(n_components), np.ones(corpus.shape[1]), 0).sweep(0)
    good = state.saved()
    names = ["topics"] if n_components == 5 else ["topics", "entries", "n_lines"]
    for name in (f"shard-0/{name}" for name in names):
        bad = {**good, name: good[name].copy()}
        bad[name][3] = np.iinfo(bad[name].dtype).max
        with pytest.raises(ModelFileError):
            state.restore(bad)
        with pytest.raises(ModelFileError):
            check_same_form(name, good[name][:-1], good[name])  # as sessions do before
    state.restore(good)


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
        lda = small_lda(max_iter=50, exact=True).fit(corpus, callback=press)
    assert lda.n_iter_ == 4
    assert lda.word_topic_counts_.sum() == corpus.sum()
    assert np.isfinite(lda.log_likelihood_[-1])
    same = small_lda(max_iter=4, exact=True).fit(corpus)
    np.testing.assert_array_equal(lda.components_, same.components_)


def test_a_callback_can_look_at_the_model_so_far(corpus):
    seen = []

    def look(info):
        seen.append(info.snapshot())

    lda = small_lda(max_iter=6, exact=True).fit(corpus, callback=look)
    for sweeps, model in enumerate(seen, start=1):
        assert model.n_iter_ == len(model.history_["round"]) == sweeps
        assert np.isfinite(model.log_likelihood_[-1])
        shorter = small_lda(max_iter=sweeps, exact=True).fit(corpus)
        np.testing.assert_array_equal(model.components_, shorter.components_)
    np.testing.assert_array_equal(seen[-1].transform(corpus[:5]), lda.transform(corpus[:5]))


def test_words_set_beside_a_model_are_used_until_the_next_fit(corpus):
    lda = small_lda(2, max_iter=3).fit(corpus)
    lda.vocabulary_ = [f"word{i}" for i in range(corpus.shape[1])]
    assert lda.topics()[0][0].startswith("word")
    assert lda.fit(corpus).topics()[0][0].isdigit()


def test_tol_stops_when_the_likelihood_settles(corpus):
    lda = small_lda(max_iter=400, tol=1e-3).fit(corpus)
    assert lda.n_iter_ < 400
    trace = lda.log_likelihood_
    assert abs(trace[-1] - trace[-2]) <= 1e-3 * abs(trace[-2])


def test_history_tells_what_was_done(corpus):
    history = small_lda(max_iter=25).fit(corpus).history_
    assert history["round"].tolist() == list(range(1, 26))
    assert (history["updates"] == corpus.sum()).all()
    assert np.flatnonzero(~np.isnan(history["objective"])).tolist() == [9, 19, 24]
    assert history["objective"][24] > history["objective"][9]


def test_a_model_file_with_counts_out_of_range_is_refused(tmp_path, corpus):
    lda = small_lda().fit(corpus)
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
        small_lda(5000, max_iter=1, sampler="gibbs").fit(X)


@pytest.mark.parametrize("n_components", [3, 300])
def test_documents_longer_than_sixteen_bits_count(n_components):
    X = np.array([[70_000, 0, 9], [0, 70_000, 9]])
    lda = small_lda(n_components, max_iter=3).fit(X)
    np.testing.assert_array_equal(lda.doc_topic_counts_.sum(axis=1), X.sum(axis=1))
    for lengths, row in zip(X.sum(axis=1), lda.doc_topic_.dot(np.ones(n_components)), strict=True):
        assert lengths > 2**16
        assert row == pytest.approx(1)


def test_a_pipeline_with_count_vectorizer_can_be_searched():
    texts = ["cat dog pet animal cat", "dog pet cat", "sun sea beach sand", "beach sea sun sun"] * 8
    pipeline = make_pipeline(CountVectorizer(), small_lda(2, max_iter=30))
    search = GridSearchCV(pipeline, {"latentdirichletallocation__n_components": [1, 2]}, cv=2).fit(texts)
    assert search.best_params_ == {"latentdirichletallocation__n_components": 2}
    names = search.best_estimator_[:-1].get_feature_names_out()
    topics = search.best_estimator_[-1].topics(names, n_words=4)
    assert {frozenset(words) & {"cat", "sun"} for words in topics} == {frozenset({"cat"}), frozenset({"sun"})}
    assert list(search.best_estimator_.get_feature_names_out()) == [
        "latentdirichletallocation0",
        "latentdirichletallocation1",
    ]
