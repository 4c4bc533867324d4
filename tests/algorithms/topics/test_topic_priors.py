"""What is known of topics beforehand: seed words, labels of documents, topics to begin from."""

import itertools

import numpy as np
import pandas as pd
import pytest
from early_auto import make_early
from lda_chains import Chain, groups_of
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import gammaln
from sklearn.model_selection import cross_val_score

import stradask as sd
from stradask.algorithms.topics import priors
from stradask.algorithms.topics.evaluation import document_completion
from stradask.datasets.generators import make_lda_corpus
from stradask.datasets.split import split_tokens
from stradask.errors import CheckpointMismatch, DataError, ModelFileError

# A fitted model -----------------------------------------------------------------------------------


def _corpus(n_documents=300, **options):
    options = {"n_features": 400, "n_components": 5, "mean_length": 60, "random_state": 0, **options}
    X, topics, shares = make_lda_corpus(n_documents, n_common_words=3, **options)
    return sparse.csr_array(X), topics, shares


@pytest.fixture(scope="module")
def corpus():
    return _corpus()


def _lda(n_components=5, **options):
    return sd.LatentDirichletAllocation(n_components, **{"max_iter": 12, "random_state": 0, **options})


def _some_labels(n_documents, n_components, seed=0):
    """Weights of about a third of the topics."""
    rng = np.random.default_rng(seed)
    labels = rng.gamma(2, size=(n_documents, n_components)) * (rng.random((n_documents, n_components)) < 0.3)
    labels[np.arange(n_documents), rng.integers(n_components, size=n_documents)] = 1.0
    return labels


SOME_SEEDS = {0: {5: 2.0, 7: 30.0}, 3: [5, 9, 11], 4: {}}


def _dense_seeds(n_components, n_features=400):
    seeds = np.zeros((n_components, n_features))
    seeds[0, [5, 7]] = 2.0, 30.0
    seeds[3, [5, 9, 11]] = 1.0
    return seeds


def _joint_by_definition(model, X, seeds, labels, background=0):
    """log p(w, z) per token in the plainest form."""
    doc, word = model.doc_topic_counts_.toarray(), model.word_topic_counts_.toarray()
    beta = model.topic_word_prior_[:, None] + seeds.T + background
    alpha = labels * model.doc_topic_prior_
    word = word - background
    free = alpha > 0
    assert (doc[~free] == 0).all()
    safe = np.where(free, alpha, 1)
    total = (gammaln(alpha.sum(axis=1)) - gammaln(doc.sum(axis=1) + alpha.sum(axis=1))).sum()
    total += np.where(free, gammaln(doc + safe) - gammaln(safe), 0).sum()
    total += (gammaln(beta.sum(axis=0)) - gammaln(word.sum(axis=0) + beta.sum(axis=0))).sum()
    total += (gammaln(word + beta) - gammaln(beta)).sum()
    return total / X.sum()


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("n_components", [6, 300], ids=["dense rows", "lists"])
@pytest.mark.parametrize("labelled", [False, True])
def test_the_reported_log_likelihood_is_that_of_the_definition(corpus, n_components, labelled, optimize):
    X, *_ = corpus
    seeds = _dense_seeds(n_components)
    labels = _some_labels(X.shape[0], n_components) if labelled else np.ones((X.shape[0], n_components))
    known = {"seed_words": SOME_SEEDS, "doc_labels": labels if labelled else None}
    lda = _lda(n_components, optimize_priors=optimize, max_iter=30 if optimize else 12).fit(X, **known)
    assert lda.log_likelihood_[-1] == pytest.approx(_joint_by_definition(lda, X, seeds, labels), rel=1e-11)
    np.testing.assert_array_equal(lda.seed_prior_.toarray(), seeds.T)
    if optimize:
        assert np.ptp(lda.doc_topic_prior_) > 0
        return
    before = lda.word_topic_counts_.toarray()
    lda.partial_fit(X, doc_labels=known["doc_labels"])
    expected = _joint_by_definition(lda, X, seeds, labels, background=before)
    assert lda.log_likelihood_[-1] == pytest.approx(expected, rel=1e-11)
    np.testing.assert_array_equal(lda.word_topic_counts_.sum(axis=1), 2 * X.sum(axis=0))


def test_seed_words_stand_in_everything_that_is_read(corpus):
    X, *_ = corpus
    lda = _lda().fit(X[:200], seed_words=SOME_SEEDS)
    components = lda.word_topic_counts_.toarray().T + 0.01 + _dense_seeds(5)
    np.testing.assert_allclose(lda.components_, components, rtol=1e-14)
    phi = components / components.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(lda.topic_word_, phi, rtol=1e-13)
    observed, held_out = split_tokens(X[200:], random_state=0)
    assert lda.score(X[200:]) == pytest.approx(
        document_completion(phi, observed, held_out, lda.doc_topic_prior_), rel=1e-6
    )
    best = lda.topics(n_words=7)
    np.testing.assert_allclose(np.sort(phi, axis=1)[:, :-8:-1], best.probabilities, rtol=1e-13)
    np.testing.assert_allclose(np.take_along_axis(phi, best.indices, axis=1), best.probabilities, rtol=1e-13)
    assert best.shares.sum() == pytest.approx(1)
    roots = np.sqrt(phi)
    np.testing.assert_allclose(
        lda.topic_distances("hellinger"), np.sqrt(np.clip(1 - roots @ roots.T, 0, 1)), atol=1e-6
    )


def test_transform_and_log_probability_know_seed_words(corpus):
    """A short document against all assignments of its tokens, with the `topic_word_` of the fit."""
    X, *_ = corpus
    lda = _lda(3, topic_word_prior=0.5).fit(X[:20], seed_words={0: {7: 4.0}, 2: {11: 500.0}})
    frequent = np.asarray(X[:20].sum(axis=0)).argmax()
    assert frequent not in (7, 11)
    document = np.zeros(400, int)
    document[[7, 11, frequent]] = 2, 1, 1
    words = np.repeat(np.arange(400), document)
    phi, alpha = lda.topic_word_, lda.doc_topic_prior_
    total, shares = 0.0, np.zeros(3)
    for z in itertools.product(range(3), repeat=len(words)):
        counts = np.bincount(z, minlength=3)
        weight = np.exp((gammaln(counts + alpha) - gammaln(alpha)).sum()) * phi[list(z), words].prod()
        total += weight
        shares += weight * (counts + alpha)
    theta = lda.transform([document], n_sweeps=4000)[0]
    np.testing.assert_allclose(theta, shares / total / (len(words) + alpha.sum()), atol=0.01)
    total *= np.exp(gammaln(alpha.sum()) - gammaln(len(words) + alpha.sum()))
    found = lda.log_probability([document], n_particles=2000)[0]
    assert found == pytest.approx(np.log(total), abs=0.03)
    unseen = np.flatnonzero(np.asarray(X[:20].sum(axis=0)).ravel() == 0)[0]
    lda.fit(X[:20], seed_words={1: {unseen: 50.0}})  # of a word that no document holds the seed is known
    assert lda.transform(np.eye(400, dtype=int)[[unseen]])[0].argmax() == 1


@pytest.mark.parametrize("n_components", [10, 300], ids=["dense rows", "lists"])
def test_seed_words_say_which_topic_is_which(n_components):
    X, truth, _ = _corpus(1000, n_features=1000, n_components=10, mean_length=80)
    truth = truth if truth.shape[1] == 1000 else truth.T
    truth = truth[np.random.default_rng(0).permutation(10)]
    exclusive = truth * np.log(truth / truth.mean(axis=0))
    seeds = {k: np.argsort(-exclusive[k])[:4].tolist() for k in range(10)}
    guided = _lda(n_components, max_iter=40).fit(X, seed_words=seeds)
    nearest = (np.sqrt(truth) @ np.sqrt(guided.topic_word_.T)).argmax(axis=1)
    assert nearest.tolist() == list(range(10))
    free = _lda(n_components, max_iter=40).fit(X)
    assert (np.sqrt(truth) @ np.sqrt(free.topic_word_.T)).argmax(axis=1).tolist() != list(range(10))


def test_words_are_named_by_column_by_vocabulary_and_by_feature_names(corpus):
    X, *_ = corpus
    names = [f"word{w}" for w in range(400)]
    expected = _lda().fit(X, seed_words=_dense_seeds(5)).components_
    named = {0: {"word5": 2.0, "word7": 30.0}, np.int64(3): ["word5", 9, "word11"]}
    ways = [
        _lda().fit(X, seed_words=named, vocabulary=names),
        _lda().fit(X, seed_words=named, vocabulary={name: w for w, name in enumerate(names)}),
        _lda().fit(pd.DataFrame(X.toarray(), columns=names), seed_words=named),
        _lda().fit(X, seed_words=sparse.csc_matrix(_dense_seeds(5))),
        _lda().fit(X, seed_words=SOME_SEEDS),
    ]
    for lda in ways:
        np.testing.assert_array_equal(lda.components_, expected)
    assert ways[0].vocabulary_ == names
    assert ways[0].topics()[0][0] in names
    assert (_lda().fit(X).components_ != expected).any()
    assert _lda().fit(X, seed_words={0: []}).seed_prior_ is None


@pytest.mark.parametrize("n_components", [5, 300])
def test_no_token_has_a_topic_that_its_document_is_not_labelled_with(corpus, n_components):
    X, *_ = corpus
    X = sparse.csr_array(sparse.vstack([sparse.csr_array((1, 400), dtype=np.int32), X]))
    labels = _some_labels(X.shape[0], n_components)
    lda = _lda(n_components).fit(X, doc_labels=sparse.coo_array(labels))
    counts = lda.doc_topic_counts_.toarray()
    assert counts[labels == 0].sum() == 0
    np.testing.assert_array_equal(counts.sum(axis=1), np.asarray(X.sum(axis=1)).ravel())
    np.testing.assert_array_equal(lda.word_topic_counts_.sum(axis=1), X.sum(axis=0))
    assert (counts > 0).sum() > 1.2 * len(counts)  # and the labels are used
    weights = counts + labels * lda.doc_topic_prior_
    np.testing.assert_allclose(lda.doc_topic_, weights / weights.sum(axis=1, keepdims=True), rtol=1e-13)
    found = lda.representative_documents(2, n_documents=3, min_tokens=0)
    np.testing.assert_allclose(found.shares, np.sort(lda.doc_topic_[:, 2])[:-4:-1], rtol=1e-12)
    np.testing.assert_allclose(found.shares, lda.doc_topic_[found.indices, 2], rtol=1e-12)


def test_labels_find_the_topics_that_they_name():
    X, truth, shares = _corpus(600, mean_length=100)
    truth = truth if truth.shape[1] == 400 else truth.T
    shares = shares if shares.shape[1] == 5 else shares.T
    labels = (shares > 0.05) | (shares == shares.max(axis=1, keepdims=True))
    lda = _lda(max_iter=40).fit(X, doc_labels=labels)
    nearest = (np.sqrt(truth) @ np.sqrt(lda.topic_word_.T)).argmax(axis=1)
    assert nearest.tolist() == list(range(5))


def test_labels_of_ones_are_no_labels(corpus):
    """Other draws of the same posterior."""
    X, *_ = corpus
    options = {"max_iter": 60, "exact": True}  # else only the plain ones would be annealed
    plain = np.mean([_lda(random_state=s, **options).fit(X).log_likelihood_[-1] for s in range(4)])
    ones = np.ones((X.shape[0], 5))
    labelled = [_lda(random_state=s, **options).fit(X, doc_labels=ones) for s in range(4)]
    assert np.mean([lda.log_likelihood_[-1] for lda in labelled]) == pytest.approx(plain, rel=3e-3)


def test_the_model_is_bitwise_the_same_for_any_number_of_threads():
    X, truth, _ = _corpus(1500, n_features=800, n_components=8, mean_length=100)
    assert groups_of(X, 7) > 1
    known = {
        "seed_words": {0: [5, 6], 3: [10]},
        "doc_labels": _some_labels(1500, 8),
        "topics": truth if truth.shape[0] == 8 else truth.T,
    }
    for some in (["seed_words"], ["doc_labels"], ["topics"], list(known)):
        given = {name: known[name] for name in some}
        one, two = (_lda(8, max_iter=3, n_jobs=n_jobs).fit(X, **given) for n_jobs in (1, 3))
        np.testing.assert_array_equal(one.components_, two.components_)
        np.testing.assert_array_equal(one.doc_topic_, two.doc_topic_)
        np.testing.assert_array_equal(one.log_likelihood_, two.log_likelihood_)
        assert one.word_topic_counts_.sum() == X.sum()


# Topics to begin from -----------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "auto"])
def test_a_fit_begins_from_given_topics_and_keeps_their_order(sampler):
    X, truth, _ = _corpus(1500, n_features=800, n_components=70, mean_length=100)
    truth = truth if truth.shape[1] == 800 else truth.T
    truth = truth[np.random.default_rng(0).permutation(70)]
    first = {"max_iter": 1, "sampler": sampler}
    begun, new = _lda(70, **first).fit(X, topics=truth), _lda(70, **first).fit(X)
    assert begun.log_likelihood_[-1] > new.log_likelihood_[-1] + 0.1
    later = _lda(70, max_iter=12, sampler=sampler).fit(X, topics=truth)
    nearest = (np.sqrt(truth) @ np.sqrt(later.topic_word_.T)).argmax(axis=1)
    assert (nearest == np.arange(70)).mean() > 0.9
    assert later.seed_prior_ is None  # given topics are no prior
    assert later.log_likelihood_[-1] > begun.log_likelihood_[-1]


def test_given_topics_may_come_in_any_form_and_scale(corpus):
    X, truth, _ = corpus
    truth = truth if truth.shape[1] == 400 else truth.T
    expected = _lda(max_iter=2).fit(X, topics=truth).components_
    scales = np.array([[2.0], [0.25], [1024], [1], [8]])  # exact in binary
    for form in (truth * scales, sparse.csr_array(truth), sparse.coo_matrix(truth * scales), truth.tolist()):
        np.testing.assert_array_equal(_lda(max_iter=2).fit(X, topics=form).components_, expected)
    other = _lda(8).fit(X[:20])
    other.word_topic_counts_ = sparse.csr_array(other.word_topic_counts_ * (np.arange(8) > 0))
    again = _lda(8, max_iter=1).fit(X, topics=other)  # a topic without tokens begins empty
    table = other.word_topic_counts_.toarray().T
    table[0] = 1
    assert again.word_topic_counts_.sum() == X.sum()
    one = _lda(8, max_iter=1).fit(X, topics=table).topic_word_
    assert np.abs(one[1:] - again.topic_word_[1:]).sum(axis=1).mean() < 1


# What is checked, kept and fitted ---------------------------------------------------------------


def test_fitted_priors_are_where_a_general_optimiser_finds_them(corpus):
    X, *_ = corpus
    seeds, labels = _dense_seeds(5).T, _some_labels(X.shape[0], 5)
    lda = _lda().fit(X, seed_words=seeds.T, doc_labels=labels)
    doc, word = lda.doc_topic_counts_, lda.word_topic_counts_
    counts, held = doc.toarray(), word.toarray()
    free = labels > 0

    def of_alpha(logs):
        own = np.where(free, labels * np.exp(logs), 1)
        sums = (own * free).sum(axis=1)
        total = (gammaln(counts + own) - gammaln(own))[free].sum()
        return -(total + (gammaln(sums) - gammaln(counts.sum(axis=1) + sums)).sum())

    def of_beta(log):
        own = np.exp(log) + seeds
        total = (gammaln(held + own) - gammaln(own)).sum()
        return -(total + (gammaln(own.sum(axis=0)) - gammaln((held + own).sum(axis=0))).sum())

    alpha = priors.fit_doc_topic_prior(doc, np.full(5, 0.1), 2000, labels=sparse.csr_array(labels))
    assert of_alpha(np.log(alpha)) == pytest.approx(minimize(of_alpha, np.zeros(5)).fun, rel=1e-7)
    beta = priors.fit_topic_word_prior(word, 0.01, 500, seeds=sparse.csr_array(seeds))
    assert of_beta(np.log(beta)) == pytest.approx(minimize(of_beta, -3.0).fun, rel=1e-7)
    steps = [priors.fit_topic_word_prior(word, 0.5, n, sparse.csr_array(seeds)) for n in range(6)]
    assert (np.diff([of_beta(np.log(step)) for step in steps]) <= 1e-9).all()
    fewer = labels * [1, 1, 0, 1, 1]  # topic 2 has no document, so nothing can be learnt of it
    fewer[:, 0] += 1
    fewer = sparse.csr_array(fewer)
    without = sparse.csr_array(counts * (fewer.toarray() > 0))
    assert priors.fit_doc_topic_prior(without, alpha, 3, labels=fewer)[2] == alpha[2]


def _known(corpus):
    X, truth, _ = corpus
    return {
        "seed_words": SOME_SEEDS,
        "doc_labels": _some_labels(X.shape[0], 5),
        "topics": truth if truth.shape[0] == 5 else truth.T,
    }


def test_a_fit_goes_on_from_its_checkpoint_and_from_no_other(tmp_path, corpus):
    X, known = corpus[0], _known(corpus)
    whole = _lda(max_iter=24).fit(X, **known)
    _lda(max_iter=10, checkpoint=tmp_path / "fit").fit(X, **known)
    rest = _lda(max_iter=24, checkpoint=tmp_path / "fit").fit(X, **known)
    assert rest.n_iter_ == 24
    np.testing.assert_array_equal(rest.components_, whole.components_)
    np.testing.assert_array_equal(rest.log_likelihood_, whole.log_likelihood_)
    others = {
        "seed_words": {0: [5]},
        "doc_labels": known["doc_labels"] * 2,
        "topics": known["topics"] + np.eye(5, 400),
    }
    for name, other in others.items():
        for value in (other, None):
            with pytest.raises(CheckpointMismatch, match=name):
                _lda(max_iter=24, checkpoint=tmp_path / "fit").fit(X, **known | {name: value})


def test_a_checkpoint_with_forbidden_topics_is_refused(corpus):
    X, *_ = corpus
    labels = sparse.csr_array(_some_labels(X.shape[0], 5))
    state = Chain(X, 5, np.ones(5), np.ones(400), 0, labels=labels)
    arrays = state.saved()
    state.restore(arrays)
    at = np.flatnonzero(labels.toarray()[state.docs[state._places(0)], 4] == 0)[0]
    arrays["shard-0/topics"][at] = 4
    with pytest.raises(ModelFileError, match="do not fit doc_labels"):
        state.restore(arrays)


def test_a_saved_model_gives_the_same_answers(tmp_path, corpus):
    X, known = corpus[0], _known(corpus)
    lda = _lda().fit(X, vocabulary=[f"w{w}" for w in range(400)], **known)
    lda.save(tmp_path / "m")
    again = sd.load(tmp_path / "m")
    for name in ("components_", "doc_topic_", "topic_word_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(lda, name))
    np.testing.assert_array_equal(again.transform(X[:5]), lda.transform(X[:5]))
    assert again.score(X) == lda.score(X)
    assert again.topics() == lda.topics()
    one, two = lda.partial_fit(X), again.partial_fit(X)
    np.testing.assert_array_equal(one.components_, two.components_)
    assert (one.components_ - one.word_topic_counts_.toarray().T)[0, 7] == pytest.approx(30.01)
    assert one.doc_labels_ is None  # the last documents had none
    for name in ("seed_prior_", "doc_labels_"):
        hostile = _lda().fit(X, **known)
        matrix = getattr(hostile, name)
        setattr(hostile, name, sparse.csr_array(matrix.toarray()[:-1]))
        hostile.save(tmp_path / "m")
        with pytest.raises(ModelFileError, match=name):
            sd.load(tmp_path / "m")
        matrix.data[3] = np.nan
        setattr(hostile, name, matrix)
        hostile.save(tmp_path / "m")
        with pytest.raises(ModelFileError, match=name):
            sd.load(tmp_path / "m")


def test_a_later_fit_without_them_forgets_them(corpus):
    X, known = corpus[0], _known(corpus)
    lda = _lda().fit(X, **known)
    expected = _lda().fit(X)
    again = lda.fit(X)
    assert again.seed_prior_ is again.doc_labels_ is None
    np.testing.assert_array_equal(again.components_, expected.components_)
    np.testing.assert_array_equal(again.transform(X[:5]), expected.transform(X[:5]))


def test_a_warm_start_keeps_to_labels_and_refuses_other_topics(corpus):
    X, known = corpus[0], _known(corpus)
    lda = _lda(warm_start=True).fit(X, topics=known["topics"])
    with pytest.raises(DataError, match="leave topics out"):
        lda.fit(X, topics=known["topics"])
    lda.fit(X, doc_labels=known["doc_labels"], seed_words=SOME_SEEDS)
    assert lda.doc_topic_counts_.toarray()[known["doc_labels"] == 0].sum() == 0


def test_labels_are_cut_with_their_documents(corpus):
    X, known = corpus[0], _known(corpus)
    scores = cross_val_score(_lda(max_iter=3), X, cv=3, params={"doc_labels": known["doc_labels"]})
    assert np.isfinite(scores).all()


def test_auto_is_gibbs_where_the_prior_asks_for_it(monkeypatch):
    make_early(monkeypatch)
    X, *_ = _corpus(1500, n_features=800, n_components=8, mean_length=100)
    assert _lda(70, max_iter=2).fit(X).sampler_[0]["name"] == "warp"
    for known in ({"seed_words": {0: [3]}}, {"doc_labels": np.ones((1500, 70))}):
        lda = _lda(70, max_iter=2).fit(X, **known)
        assert [part["name"] for part in lda.sampler_] == ["gibbs"]
        with pytest.raises(DataError, match="sampler='gibbs'"):
            _lda(70, sampler="warp").fit(X, **known)


def _with(matrix, row, column, value):
    out = np.array(matrix, float)
    out[row, column] = value
    return out


BAD = [
    ("seed_words", {5: [1]}, "names topic 5: topics go from 0 to 4"),
    ("seed_words", {-1: [1]}, "names topic -1"),
    ("seed_words", {True: [1]}, "names topic True"),
    ("seed_words", {"a": [1]}, "names topic 'a'"),
    ("seed_words", {0: [400]}, r"seed_words\[0\] holds the column 400: columns go from 0 to 399"),
    ("seed_words", {0: [-1]}, "holds the column -1"),
    ("seed_words", {0: [1.5]}, "holds 1.5: a word is a str"),
    ("seed_words", {0: [[1, 2]]}, r"holds \[1, 2\]: a word is a str"),
    ("seed_words", {0: "cat"}, r"seed_words\[0\]='cat' must be a list"),
    ("seed_words", {0: 3}, r"seed_words\[0\]=3 must be a list"),
    ("seed_words", {0: ["cat"]}, "holds the word 'cat', but the words of the columns are not known"),
    ("seed_words", {0: {3: -1.0}}, "gives 3 the weight -1.0"),
    ("seed_words", {0: {3: np.nan}}, "gives 3 the weight nan"),
    ("seed_words", {0: {3: 1e11}}, "gives 3 the weight"),
    ("seed_words", {0: {3: "much"}}, "gives 3 the weight 'much'"),
    ("seed_words", np.ones((4, 400)), r"seed_words has the shape \(4, 400\); pass \(5, 400\)"),
    ("seed_words", _with(np.zeros((5, 400)), 2, 7, np.nan), "seed_words holds nan at row 2, column 7"),
    (
        "seed_words",
        _with(np.zeros((5, 400)), 2, 7, 1e11),
        "seed_words holds 100000000000.0 at row 2, column 7: .* from 0 to 1e",
    ),
    ("seed_words", ["cat"], "seed_words must be a matrix of numbers"),
    ("doc_labels", np.ones((299, 5)), r"doc_labels has the shape \(299, 5\); pass \(300, 5\)"),
    ("doc_labels", _with(np.ones((300, 5)), 7, slice(None), 0), "doc_labels allows no topic in row 7"),
    ("doc_labels", _with(np.ones((300, 5)), 7, 2, -1), "doc_labels holds -1.0 at row 7, column 2"),
    ("doc_labels", _with(np.ones((300, 5)), 7, 2, np.inf), "doc_labels holds inf at row 7, column 2"),
    ("doc_labels", _with(np.ones((300, 5)), 7, 2, 1e-35), "is 1e-36 at row 7, topic 2"),
    ("doc_labels", [[1], [1, 2]], "doc_labels must be a matrix"),
    ("doc_labels", [0, 1, 2], r"doc_labels has the shape \(3,\)"),
    ("topics", np.ones((5, 399)), r"topics has the shape \(5, 399\); pass \(5, 400\)"),
    ("topics", _with(np.ones((5, 400)), 3, slice(None), 0), "topics has no weight in row 3"),
    ("topics", _with(np.ones((5, 400)), 3, 1, np.nan), "topics holds nan at row 3, column 1"),
    ("topics", sparse.csr_array(_with(np.ones((5, 400)), 3, 1, -2)), "topics holds -2.0 at row 3, column 1"),
    ("topics", np.full((5, 400), "a"), "topics must be a matrix of numbers"),
    ("topics", object(), "topics must be a matrix of numbers"),
    ("topics", sd.LatentDirichletAllocation(5), "fit it first"),
    ("vocabulary", ["a"], "vocabulary has 1 words"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_bad_input_is_named_before_work_starts(corpus, name, value, message):
    lda = _lda(max_iter=2).fit(corpus[0])
    before = dict(vars(lda))
    with pytest.raises(DataError, match=message):
        lda.fit(corpus[0], **{name: value})
    assert vars(lda) == before


def test_indices_that_would_lead_kernels_astray_are_refused(corpus):
    labels = sparse.csr_array(np.ones((300, 5)))
    labels.indices[7] = 900
    with pytest.raises(DataError, match="doc_labels has the column index 900"):
        _lda().fit(corpus[0], doc_labels=labels)


def test_counts_agree_with_the_assignments_after_grouped_sweeps(corpus):
    """Groups share nothing but the totals, and those come together again after each step."""
    X, *_ = corpus
    for n_components in (7, 300):
        sizes = (n_components, np.full(n_components, 0.1), np.full(400, 0.01))
        known = {"seeds": sparse.csr_array(_dense_seeds(n_components).T)}
        for labels in (None, sparse.csr_array(_some_labels(300, n_components))):
            state = Chain(X, *sizes, 1, n_groups=4, labels=labels, **known)
            for round_ in range(3):
                state.sweep(round_)
            counts = state.word_topic_counts()
            np.testing.assert_array_equal(state.totals, counts.sum(axis=0))
            np.testing.assert_array_equal(counts.sum(axis=0), state.doc_topic_counts().sum(axis=0))
            np.testing.assert_array_equal(counts.sum(axis=1), X.sum(axis=0))
            for block, value in enumerate(state.blocks):
                words = state.program.words.ids[state.program.words.of(block)][: len(value.rows)]
                np.testing.assert_array_equal(value.rows, counts[words].toarray())
