"""Fits that go on from a fitted topic model, over shards: warm starts, new documents, with the local bits."""

import logging

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

import stradask as sd
from stradask.algorithms.topics.corpus import documents
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.choose import program_of
from stradask.datasets import save_uci_bow
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError, ModelFileError
from stradask.scheduler.engine import run


@pytest.fixture(scope="module")
def X():
    X, *_ = make_lda_corpus(200, n_features=120, n_components=5, random_state=0)
    X = sparse.csr_array(X).tolil()
    X[:, [7, 119]] = 0
    X[:100, [20, 21]] = 0  # new words in the second half
    return sparse.csr_array(X)


@pytest.fixture(scope="module")
def client():
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": False}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster, Client(cluster) as client:
        yield client


def lda(K=6, **options):
    options = {"sampler": "gibbs", "n_groups": 4, "max_iter": 6, "random_state": 3} | options
    return sd.LatentDirichletAllocation(K, **options)


def same(a, b):
    for name in ("word_topic_counts_", "doc_topic_counts_"):
        assert (getattr(a, name) != getattr(b, name)).nnz == 0
    np.testing.assert_array_equal(a.doc_topic_prior_, b.doc_topic_prior_)
    np.testing.assert_allclose(a.log_likelihood_, b.log_likelihood_, rtol=1e-11)
    assert a.n_batch_iter_ == b.n_batch_iter_


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


LABELS = 1.0 * (np.arange(6) != np.arange(200)[:, None] % 6)
CASES = [
    (300, {"n_groups": 3, "doc_topic_prior": np.linspace(0.05, 2, 300)}, {}),
    slow(6, {}, {}),
    slow(6, {"optimize_priors": True, "max_iter": 20}, {}),
    slow(6, {}, {"seed_words": {0: [1, 20], 3: {40: 7.5}}, "doc_labels": LABELS}),
]


@pytest.mark.parametrize(("K", "options", "known"), CASES)
def test_a_warm_start_has_the_bits_of_a_local_one(client, X, K, options, known):
    options = options | {"warm_start": True}
    local, distant = (lda(K, engine=e, **options).fit(X, **known) for e in ("local", "dask"))
    cold = local.word_topic_counts_
    for model in (local, distant):
        model.set_params(random_state=4).fit(X[::-1] if not known else X, **known)
    same(local, distant)
    assert (local.word_topic_counts_ != cold).nnz > 0


@pytest.mark.parametrize("sampler", [slow("light"), "warp"])
def test_any_sampler_starts_warm(client, X, sampler):
    """From the topics of the last fit: their order stays, which that of a new fit would not."""
    model = lda(engine="dask", sampler=sampler, max_iter=25).fit(X)
    before = model.topic_word_
    model.set_params(warm_start=True, random_state=9, max_iter=3).fit(X)
    assert np.diag(np.corrcoef(before, model.topic_word_)[:6, 6:]).min() > 0.8
    if sampler != "warp":
        local = lda(sampler=sampler, max_iter=25).fit(X)
        same(local.set_params(warm_start=True, random_state=9, max_iter=3).fit(X), model)


@pytest.mark.parametrize(("K", "options", "known"), CASES)
def test_new_documents_have_the_bits_of_a_local_fit(client, X, K, options, known):
    local, distant = lda(K, **options), lda(K, engine="dask", **options)
    labels = known.get("doc_labels")
    for part in (slice(100), slice(100, 200), slice(30)):
        its = {} if labels is None else {"doc_labels": labels[part]}
        for model in (local, distant):
            if part == slice(100) and "seed_words" in known:
                model.fit(X[part], **known | its)
            else:
                model.partial_fit(X[part], **its)
        same(local, distant)
    assert local.word_topic_counts_.sum() == X.sum() + X[:30].sum()


def test_refits_to_documents_in_files_and_with_dask(client, X, tmp_path):
    """One group, so that the documents are those of a matrix."""
    for number, rows in enumerate((X[:100], X[100:])):
        save_uci_bow(rows, tmp_path / f"docword.{number}.txt")
        dump_svmlight_file(rows, np.zeros(100), str(tmp_path / f"{number}.svm"), zero_based=False)
    exact = {"exact": True, "n_groups": None, "warm_start": True}
    matrix = lda(**exact).fit(X[:100]).fit(X[100:]).partial_fit(X[:100])
    for names in ("docword.{}.txt", "{}.svm"):
        first, second = (tmp_path / names.format(number) for number in (0, 1))
        files = lda(**exact).fit(first, n_features=120).fit(second).partial_fit(first)
        assert files.doc_topic_counts_ is None
        assert (files.word_topic_counts_ != matrix.word_topic_counts_).nnz == 0
        np.testing.assert_allclose(files.log_likelihood_, matrix.log_likelihood_, rtol=1e-11)
        shares = files.transform([second, first])
        expected = np.vstack([files.transform(X[:100]), files.transform(X[100:])])
        np.testing.assert_array_equal(shares.compute(), expected)
        assert files.score(second) == pytest.approx(files.score(X[100:]), rel=1e-12)
    first, second = ([dask.delayed(rows)] for rows in (X[:100], X[100:]))
    distant = lda(engine="dask", **exact).partial_fit(first).fit(second).partial_fit(first)
    assert (distant.word_topic_counts_ != matrix.word_topic_counts_).nnz == 0


@pytest.mark.filterwarnings("ignore:n_groups=")
def test_within_a_memory_limit(X, tmp_path):
    path = tmp_path / "docword.txt"
    save_uci_bow(X, path)
    options = {"n_groups": None, "memory_limit": "300kB", "max_iter": 40}
    model = lda(**options).fit(path)
    before = model.topic_word_
    model.set_params(warm_start=True, random_state=9, max_iter=3).fit(path)
    assert np.diag(np.corrcoef(before, model.topic_word_)[:6, 6:]).min() > 0.8
    model.partial_fit(path)
    assert model.word_topic_counts_.sum() == 2 * X.sum()
    with pytest.raises(DataError, match="memory_limit=12,000 bytes, but the words and their counts take"):
        model.set_params(memory_limit=12_000, n_groups=300).partial_fit(path)


def test_a_plan_has_room_for_the_first_topics(X, tmp_path, monkeypatch):
    """They are drawn by Gibbs sampling, whose counts of short documents are more than warp holds."""
    save_uci_bow(X, tmp_path / "docword.txt")
    made, plan = [], documents.plan_for
    monkeypatch.setattr(documents, "plan_for", lambda *args: made.append(plan(*args)) or made[-1])
    model = lda(200, sampler="warp", n_groups=None, memory_limit="350kB", max_iter=1, warm_start=True)
    model.fit(tmp_path / "docword.txt").fit(tmp_path / "docword.txt")
    assert [plan.at_once is None for plan in made] == [True, False]


@pytest.mark.filterwarnings("ignore:n_groups=")
def test_no_more_groups_than_documents(client, X):
    local, distant = (lda(n_groups=10, engine=engine, warm_start=True) for engine in ("local", "dask"))
    for step in ("fit", "fit", "partial_fit"):
        for model in (local, distant):
            getattr(model, step)(X[:3])
        same(local, distant)
    same(*(lda(n_groups=None, engine=e, max_iter=2).fit(np.full((2, 4), 2**14)) for e in ("local", "dask")))


def test_a_background_does_not_enter_what_is_fetched_or_checked(X):
    """Blocks carry it; the model fetched, and totals of a checkpoint, are of the tokens at hand."""
    background = sparse.csr_array(np.random.default_rng(0).integers(0, 9, (120, 6)))
    priors = np.full(6, 0.1), np.full(120, 0.01)
    program = program_of("gibbs", corpus_of_matrix(X, 3), 6, *priors, 1, background=background)
    found = run(program, program.schedule, max_rounds=2).fetched
    np.testing.assert_array_equal(found.words.sum(axis=1), X.sum(axis=0))
    np.testing.assert_array_equal(program.totals, found.words.sum(axis=0) + background.sum(axis=0))
    arrays = program.arrays()
    program.restore(arrays)
    with pytest.raises(ModelFileError, match="do not fit"):
        program.restore(arrays | {"totals": program.totals - background.sum(axis=0)})
    value = program.block(0)
    value.rows[0, 0] += 1 + program.words.frequency[0]
    with pytest.raises(ModelFileError, match="damaged"):
        program.unpack(0, program.pack(0, value))


@pytest.mark.parametrize("engine", ["local", slow("dask")])
def test_what_does_not_go_on_is_refused(client, X, tmp_path, engine):
    path = tmp_path / "docword.txt"
    save_uci_bow(X[:, :110], path)
    model = lda(engine=engine, warm_start=True).fit(X)
    kept = model.word_topic_counts_
    for refit in (model.fit, model.partial_fit):
        with pytest.raises(DataError, match=r"X has 110 columns, but the model was fitted to 120"):
            refit(path)
        with pytest.raises(DataError, match="n_features=110, but the model was fitted to 120 columns"):
            refit(path, n_features=110)
        with pytest.raises(ValueError, match="110 features"):
            refit(X[:, :110])
        model.set_params(n_components=7)
        with pytest.raises(DataError, match="n_components=7, but the model has 6"):
            refit(X)
        model.set_params(n_components=6)
    with pytest.raises(DataError, match="begins from the topics of the last fit"):
        model.fit(X, topics=np.ones((6, 120)))
    with pytest.raises(DataError, match="holds no count above zero"):
        model.partial_fit(X * 0)
    assert model.word_topic_counts_ is kept
