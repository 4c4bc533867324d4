"""Topics with a response: the chain against enumeration, coefficients against scipy, and bits."""

import itertools

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse, stats
from scipy.optimize import minimize
from scipy.special import gammaln, log_softmax, xlogy

import stradask as sd
from stradask.algorithms.topics.blocks import document_rows
from stradask.algorithms.topics.blocks.program import TopicProgram
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix, with_rows
from stradask.algorithms.topics.samplers import supervised
from stradask.algorithms.topics.samplers.supervised import (
    Coefficients,
    Response,
    ResponseGibbs,
    fitted,
)
from stradask.errors import CheckpointMismatch, DataError, ModelFileError
from stradask.kernels.lda.models import responses as kernels
from stradask.scheduler.engine import run

_FAMILIES = {"number": kernels.NORMAL, "count": kernels.POISSON, "class": kernels.CLASSES}


def log_response(kind, predictors, y, variance):
    """Log of p(y | predictors) as scipy has it."""
    if kind == "number":
        return stats.norm.logpdf(y, predictors[0], np.sqrt(variance))
    if kind == "count":
        return stats.poisson.logpmf(int(y), np.exp(predictors[0]))
    return log_softmax(predictors)[int(y)]


class Frozen(ResponseGibbs):
    """Coefficients stay as they are."""

    def fits_after(self, swept):
        return False


class Kept:
    """Counts of every fourth sweep."""

    def __init__(self):
        self.found = []

    def take(self, sweep, collect):
        if sweep % 4 == 0:
            gathered = collect()
            self.found.append(place_of(gathered.documents.toarray(), gathered.words.toarray()))

    def arrays(self):
        return {}


def place_of(doc, word):
    return tuple(np.asarray(doc).ravel().tolist()), tuple(np.asarray(word).ravel().tolist())


_TARGETS = {"number": [1.5, -0.7], "count": [4.0, 0.0], "class": [2.0, 0.0]}
_ETA = {
    "number": [[1.4], [-1.1]],
    "count": [[1.2], [-0.9]],
    "class": [[-0.5, 0.2, 1.6], [0.9, 0.1, -1.3]],
}


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        pytest.param("number", "rows", marks=pytest.mark.slow),
        pytest.param("count", "rows", marks=pytest.mark.slow),
        ("class", "rows"),
        pytest.param("class", "predictors", marks=pytest.mark.slow),
        pytest.param("class", "lists", marks=pytest.mark.slow),
        pytest.param("number", "lists", marks=pytest.mark.slow),
    ],
)
def test_the_chain_is_that_of_the_enumeration(kind, form, monkeypatch):
    if form == "lists":  # as of many topics
        monkeypatch.setattr(document_rows, "DENSE_TOPICS", 0)
    if form == "predictors":  # as where exponentials may not be finite
        monkeypatch.setattr(supervised, "_WIDEST", 0.0)
    X, alpha, beta = np.array([[2, 1, 0], [0, 1, 2]]), np.array([0.6, 0.3]), np.array([0.4, 0.3, 0.5])
    y, eta, variance = np.array(_TARGETS[kind]), np.array(_ETA[kind]), 0.5
    intercepts = np.linspace(0.3, -0.2, eta.shape[1])
    tokens = [(d, w) for d in range(2) for w in range(3) for _ in range(X[d, w])]
    expected: dict = {}
    plain: dict = {}  # without responses
    for z in itertools.product(range(2), repeat=len(tokens)):
        doc, word = np.zeros((2, 2), int), np.zeros((3, 2), int)
        for (d, w), k in zip(tokens, z, strict=True):
            doc[d, k] += 1
            word[w, k] += 1
        log_p = (gammaln(doc + alpha) - gammaln(alpha)).sum()
        log_p += (gammaln(word + beta[:, None]) - gammaln(beta[:, None])).sum()
        log_p -= gammaln(word.sum(axis=0) + beta.sum()).sum()
        place = place_of(doc, word)
        plain[place] = plain.get(place, 0.0) + np.exp(log_p)
        for row, own in zip(doc, y, strict=True):
            log_p += log_response(kind, intercepts + row @ eta / row.sum(), own, variance)
        expected[place] = expected.get(place, 0.0) + np.exp(log_p)
    corpus = corpus_of_matrix(sparse.csr_array(X.astype(np.int32)), 1, copies=False)
    response = Response(_FAMILIES[kind], eta.shape[1], 1.0)
    corpus, sampler = with_rows(corpus, "response", y[:, None]), Frozen(response, y, 0)
    program = TopicProgram(corpus, 2, alpha, beta, 0, sampler=sampler, exact=True, in_process=True)
    program.sampler.coefficients = Coefficients(eta, intercepts, variance)
    kept = Kept()
    run(program, program.schedule, max_rounds=24_000 if form == "lists" else 6_000, draws=kept)
    names = list(expected)
    p = np.array([expected[name] for name in names]) / sum(expected.values())
    count = np.array([kept.found.count(name) for name in names])
    assert count.sum() == len(kept.found)
    often = p * len(kept.found) > 20
    z = (count - p * len(kept.found))[often] / np.sqrt(p * (1 - p) * len(kept.found))[often]
    assert np.abs(z).max() < 5.5
    assert (z**2).mean() < 2.5
    other = np.array([plain[name] for name in names])
    assert stats.entropy(count / count.sum() + 1e-12, p) < 0.02
    assert stats.entropy(count / count.sum() + 1e-12, other) > 0.1


@pytest.mark.parametrize("kind", ["number", "count", "class"])
def test_coefficients_are_the_mode_given_the_topics(kind):
    rng = np.random.default_rng(1)
    counts = rng.poisson(2.0, (80, 3))
    counts[5] = 0
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    slope = shares @ [1.0, -1.0, 0.5]
    y = {"number": slope + 0.3 * rng.standard_normal(80), "count": rng.poisson(np.exp(slope)).astype(float)}
    y = y.get(kind, np.digitize(slope + 0.5 * rng.standard_normal(80), [-0.2, 0.4]).astype(float))
    width, precision = (3 if kind == "class" else 1), 0.25
    response = Response(_FAMILIES[kind], width, precision)
    found = fitted(sparse.csr_array(counts), y, response, Coefficients.at_start(3, response))
    variance = found.variance

    def minus_log_posterior(w):
        matrix = w.reshape(4, width)
        m = shares @ matrix[:3] + matrix[3]
        total = -sum(log_response(kind, own, target, variance) for own, target in zip(m, y, strict=True))
        return total + precision * (matrix[:3] ** 2).sum() / 2

    best = minimize(minus_log_posterior, np.zeros(4 * width), tol=1e-10).fun
    own = minus_log_posterior(np.vstack([found.eta, found.intercepts]).ravel())
    assert own < best + 1e-4 * abs(best)
    if kind == "number":
        away = y - shares @ found.eta[:, 0] - found.intercepts[0]
        assert variance == pytest.approx((away @ away + 0.01) / 83, rel=0.01)


def corpus(n=120, seed=0):
    """Documents of three topics, and a number that their shares tell."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet([0.3] * 3, n)
    topics = np.kron(np.eye(3), np.full(4, 0.25))
    X = np.array([rng.multinomial(30, s @ topics) for s in shares])
    return sparse.csr_array(X), shares @ [3.0, -1.0, 0.0] + 0.1 * rng.standard_normal(n)


def model(**options):
    return sd.SupervisedLDA(3, **({"random_state": 0, "max_iter": 120} | options))


def test_generated_responses_are_predicted_and_the_model_is_saved(tmp_path):
    X, y = corpus(240)
    slda = model(max_iter=200, n_draws=19).fit(X[:160], y[:160])
    assert slda.score(X[160:], y[160:]) > 0.9
    words, documents = slda.topic_word_interval(n_words=4), slda.doc_topic_interval()
    for found in (words, documents, slda.topics_by_group(np.arange(160) % 2, level=0.9)):
        assert (found.low < found.high).mean() > 0.5
    assert ((words.low < 0.25) & (words.high > 0.25)).mean() > 0.6  # as generated
    weights, held = np.arange(80.0), y[160:]
    misses, away = held - slda.predict(X[160:]), held - np.average(held, weights=weights)
    explained = 1 - (weights @ misses**2) / (weights @ away**2)
    assert slda.score(X[160:], held, sample_weight=weights) == pytest.approx(explained)
    for wrong in (weights[:-1], -weights, 0 * weights):
        with pytest.raises(DataError, match="sample_weight"):
            slda.score(X[160:], held, sample_weight=wrong)
    assert slda.sigma_ < 0.35
    order = slda.topic_word_ @ np.repeat([2, 1, 0], 4)  # topics by their words: 3, -1, 0
    own = slda.coef_[np.argsort(-order)] + slda.intercept_
    np.testing.assert_allclose(own, [3, -1, 0], atol=0.35)
    empty = slda.predict(np.zeros((1, 12), int))
    np.testing.assert_allclose(empty, slda.intercept_)
    assert slda.perplexity(X[160:]) < 12
    with pytest.raises(AttributeError, match="predict_proba"):
        slda.predict_proba(X)
    slda.coef_ = slda.coef_[:2]
    slda.save(tmp_path / "wrong.npz")
    with pytest.raises((DataError, ModelFileError), match="coef_"):
        sd.load(tmp_path / "wrong.npz")


def test_classes_and_counts_are_predicted():
    X, y = corpus(240)
    labels = np.array(["low", "mid", "up"])[np.digitize(y, [-0.2, 1.2])]
    slda = model(response="class").fit(X[:160], labels[:160])
    assert slda.classes_.tolist() == ["low", "mid", "up"]
    p = slda.predict_proba(X[160:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert slda.score(X[160:], labels[160:]) > 0.8
    assert (slda.classes_[p.argmax(axis=1)] == slda.predict(X[160:])).all()
    weights = np.arange(80.0)
    right = weights @ (slda.predict(X[160:]) == labels[160:]) / weights.sum()
    assert slda.score(X[160:], labels[160:], weights) == pytest.approx(right)
    counts = np.random.default_rng(0).poisson(np.exp(y))
    slda, held = model(response="count").fit(X[:160], counts[:160]), counts[160:]
    assert slda.score(X[160:], held) > 0.5
    means, mean = slda.predict(X[160:]), np.average(held, weights=weights)
    lost, most = (weights @ (m - xlogy(held, m)) for m in (means, np.full(80, mean)))
    least = weights @ (held - xlogy(held, held))
    assert slda.score(X[160:], held, weights) == pytest.approx(1 - (lost - least) / (most - least))


def test_a_warning_of_new_words_names_the_line_of_the_user():
    X, y = corpus(60)
    X = np.hstack([X.toarray(), np.zeros((60, 1), int)])
    slda, new = model(max_iter=2).fit(X, y), X + (np.arange(13) == 12)
    mixture = sd.GSDMM(3, max_iter=2, random_state=0).fit(X)
    for use in (slda.predict, slda.transform, lambda X: slda.score(X, y), mixture.predict):
        with pytest.warns(UserWarning, match="60 tokens of X, of 1 words") as caught:
            use(new)
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.slow
def test_short_documents_give_the_bits_of_rows_of_counts(monkeypatch):
    X, y = corpus(60)
    rows = model(max_iter=24).fit(X, y)
    monkeypatch.setattr(document_rows, "_FAST_ROWS", 0)
    short = model(max_iter=24).fit(X, y)
    assert (short.doc_topic_counts_ != rows.doc_topic_counts_).nnz == 0
    np.testing.assert_array_equal(short.coef_, rows.coef_)


def test_classes_move_alike_by_exponentials_and_by_predictors(monkeypatch):
    X, y = corpus(120)
    labels = np.digitize(y, [-0.2, 0.8, 1.6])
    fitted_ = model(response="class", max_iter=60).fit(X, labels)
    monkeypatch.setattr(supervised, "_WIDEST", 0.0)
    other = model(response="class", max_iter=60).fit(X, labels)
    np.testing.assert_array_equal(fitted_.doc_topic_counts_.toarray(), other.doc_topic_counts_.toarray())
    np.testing.assert_allclose(fitted_.log_likelihood_, other.log_likelihood_, rtol=1e-10)
    np.testing.assert_allclose(fitted_.coef_, other.coef_, rtol=1e-6)


def test_bits_on_threads_on_a_cluster_and_from_a_checkpoint(tmp_path):
    X, y = corpus()
    options = {"n_groups": 4, "max_iter": 40}
    slda = model(**options).fit(X, y)
    workers = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(2, **workers) as cluster, Client(cluster):
        far = model(engine="dask", **options).fit(X, y)

    def stop(info):
        return info.round == 24

    model(checkpoint=tmp_path / "c", **options).fit(X, y, callback=stop)
    resumed = model(checkpoint=tmp_path / "c", **options).fit(X, y)
    for other in (model(n_jobs=2, **options).fit(X, y), far, resumed):
        assert (other.word_topic_counts_ != slda.word_topic_counts_).nnz == 0
        np.testing.assert_array_equal(other.coef_, slda.coef_)
        assert other.log_likelihood_[-1] == pytest.approx(slda.log_likelihood_[-1], rel=1e-12)
    with pytest.raises(CheckpointMismatch):
        model(checkpoint=tmp_path / "c", **options).fit(X, y + 1 + y**2)


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({}, None, "requires y"),
        ({}, np.zeros(119), "119"),
        ({}, np.ones(120), "says nothing"),
        ({}, np.full(120, 0.1), "says nothing"),
        ({}, np.full(120, "a"), "set response='class'"),
        ({}, np.append(np.ones(119), np.nan), "NaN"),
        ({"response": "count"}, np.full(120, 0.5), "whole"),
        ({"response": "count"}, np.full(120, -1), "counts"),
        ({"response": "class"}, np.zeros(120), "1 class"),
        ({"response": "classes"}, np.zeros(120), "response"),
        ({"prior_scale": 0.0}, np.zeros(120), "prior_scale"),
    ],
)
def test_wrong_responses_are_refused(options, y, message):
    X, _ = corpus()
    with pytest.raises(ValueError, match=message):
        model(**options).fit(X, y)


def test_frames_files_and_dask_arrays_are_fitted_and_predicted(tmp_path, recwarn):
    import dask.array as da
    import pandas as pd

    X, y = corpus(60)
    X, options = X.toarray(), {"max_iter": 20}
    frame = pd.DataFrame(X, columns=[f"w{k}" for k in range(X.shape[1])])
    named = model(**options).set_output(transform="pandas").fit(frame, y)
    plain = model(**options).fit(X, y)
    np.testing.assert_array_equal(named.predict(frame), plain.predict(X))
    rows, columns = np.nonzero(X)
    lines = [f"{d + 1} {w + 1} {X[d, w]}" for d, w in zip(rows, columns, strict=True)]
    path = tmp_path / "docword.txt"
    path.write_text("\n".join([str(len(X)), str(X.shape[1]), str(len(rows)), *lines]) + "\n")
    found = model(**options).fit(path, y)
    np.testing.assert_array_equal(found.coef_, plain.coef_)
    np.testing.assert_array_equal(found.predict(path), plain.predict(X))
    assert found.score(path, y) == plain.score(X, y)
    blocks = da.from_array(X, chunks=(30, X.shape[1]))
    parted = model(**options)
    shares = parted.fit_transform(blocks, y)
    assert parted.score(X, y) > 0.5
    np.testing.assert_allclose(shares.compute(), parted.transform(X))
    np.testing.assert_array_equal(parted.predict(blocks), parted.predict(X))
    with pytest.raises(DataError, match="holds texts"):
        plain.fit(["b c", "a b"], [1, 2])
    assert not recwarn.list


@pytest.mark.parametrize(
    ("labels", "others"), [(["spam", "ham"], [1, 0]), ([1, 0], ["1", "0"]), ([True, False], ["1", "0"])]
)
def test_labels_of_another_kind_are_not_scored(labels, others):
    X, y = np.repeat([[9, 9, 0, 0], [0, 0, 9, 9]], 20, axis=0), np.repeat([0, 1], 20)
    found = sd.SupervisedLDA(2, response="class", max_iter=10, random_state=0).fit(X, np.array(labels)[y])
    assert found.classes_.tolist() == sorted(labels)
    for hold in (np.array, list, lambda v: v.astype(object), pytest.importorskip("pandas").Series):
        assert found.score(X, hold(np.array(labels)[y])) == 1.0
    with pytest.raises(DataError, match="labels of one kind"):
        found.score(X, np.array(others)[y])
