"""Draws that a fit keeps, and intervals from them: calibration by simulation, and the same bits anywhere."""

import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse, stats
from scipy.optimize import brentq

import stradask as sd
from stradask.algorithms.topics.blocks.draws import sweeps_of_draws, unpack
from stradask.algorithms.topics.blocks.packing import PARTS, pack_counts
from stradask.algorithms.topics.reading.uncertainty import mixture_quantiles
from stradask.errors import CheckpointMismatch, DataError, ModelFileError

_K, _WORDS, _DOCUMENTS, _LENGTH = 3, 12, 40, 25
_SEEDS = np.kron(np.eye(_K), np.full((1, _WORDS // _K), 2.0))  # so that topics keep their names
_ALPHA, _BETA = 0.4, 0.3


def generated(seed):
    """Parameters from their prior, and documents from these: counts, topics, shares, topics of tokens."""
    rng = np.random.default_rng([11, seed])
    topics = np.array([rng.dirichlet(_BETA + own) for own in _SEEDS])
    shares = rng.dirichlet([_ALPHA] * _K, size=_DOCUMENTS)
    X, held = np.zeros((_DOCUMENTS, _WORDS), int), np.zeros((_DOCUMENTS, _K), int)
    for d, share in enumerate(shares):
        held[d] = rng.multinomial(_LENGTH, share)
        for k, n in enumerate(held[d]):
            X[d] += rng.multinomial(n, topics[k])
    return sparse.csr_array(X), topics, shares, held


def lda(**options):
    own = {"doc_topic_prior": _ALPHA, "topic_word_prior": _BETA, "random_state": 0, "max_iter": 60}
    return sd.LatentDirichletAllocation(_K, **(own | {"n_draws": 20} | options))


@pytest.fixture(scope="module")
def fitted():
    return lda(exact=True).fit(generated(0)[0], seed_words=_SEEDS)


def covered(seed, max_iter):
    X, topics, shares, held = generated(seed)
    groups = np.arange(_DOCUMENTS) % 4
    model = lda(exact=True, max_iter=max_iter, n_draws=39, random_state=seed).fit(X, seed_words=_SEEDS)
    words, documents = model.topic_word_interval(words=np.arange(_WORDS)), model.doc_topic_interval()
    by_group = model.topics_by_group(groups, level=0.9)
    of_groups = np.array([held[groups == g].sum(axis=0) / held[groups == g].sum() for g in range(4)])
    found = ((words, topics), (documents, shares), (by_group, of_groups))
    return [((true >= own.low) & (true <= own.high)).mean() for own, true in found]


@pytest.mark.parametrize(("n_sets", "max_iter"), [(16, 500), pytest.param(100, 800, marks=pytest.mark.slow)])
def test_90_per_cent_intervals_cover_90_per_cent_of_what_was_drawn_from_the_prior(n_sets, max_iter):
    covers = np.array([covered(seed, max_iter) for seed in range(n_sets)])
    error = covers.std(axis=0) / np.sqrt(n_sets)
    # Shares of groups have ties, which count as covered. A chain's draws are not quite independent.
    assert (covers.mean(axis=0) > 0.9 - 4 * error - 0.01).all()
    assert (covers.mean(axis=0)[:2] < 0.9 + 4 * error[:2]).all()
    assert (error < 0.05).all()


def test_quantiles_of_mixtures_are_those_of_their_distribution_function():
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2.0, 3.0, (2, 7, 30))
    a[:, 0], a[:, 1] = 0.01, [0.01, 500, 3, 3, 3, 3, 3]
    for probability in (0.05, 0.5, 0.95):
        for j, found in enumerate(mixture_quantiles(a, b, probability)):
            expected = brentq(
                lambda x, j=j, p=probability: stats.beta.cdf(x, a[:, j], b[:, j]).mean() - p, 0, 1, xtol=1e-14
            )
            assert found == pytest.approx(expected, abs=2e-9)


def test_intervals_of_documents_are_those_of_each_mixture(fitted):
    counts = np.array([unpack(draw, "documents", (_DOCUMENTS, _K)).toarray() for draw in fitted.draws_])
    found = fitted.doc_topic_interval(0.8, documents=[3, 17])
    for place, d in enumerate([3, 17]):
        a = counts[:, d] + _ALPHA
        b = a.sum(axis=1, keepdims=True) - a
        np.testing.assert_allclose(found.low[place], mixture_quantiles(a, b, 0.1), atol=2e-9)
        np.testing.assert_allclose(found.high[place], mixture_quantiles(a, b, 0.9), atol=2e-9)
        np.testing.assert_allclose(found.mean[place], (a / (a + b)).mean(axis=0))


def test_the_last_draw_is_the_model(fitted):
    last = fitted.draws_[-1]
    assert [int(draw["sweep"]) for draw in fitted.draws_] == sweeps_of_draws(20, 60, "gibbs")
    assert (unpack(last, "words", (_WORDS, _K)) != fitted.word_topic_counts_).nnz == 0
    assert (unpack(last, "documents", (_DOCUMENTS, _K)) != fitted.doc_topic_counts_).nnz == 0


def test_labelled_documents_have_zero_where_they_have_no_label():
    X = generated(1)[0]
    labels = np.ones((_DOCUMENTS, _K))
    labels[:, 2], labels[0] = 0, [0, 1, 0]
    found = lda().fit(X, doc_labels=labels).doc_topic_interval()
    assert (found.high[:, 2] == 0).all()
    assert (found.low[0], found.high[0]) == (pytest.approx([0, 1, 0]), pytest.approx([0, 1, 0]))
    assert ((found.low[1:, :2] < found.mean[1:, :2]) & (found.mean[1:, :2] < found.high[1:, :2])).all()


def test_packed_counts_come_back():
    counts = sparse.random(50, 300, 0.2, "csr", random_state=0, data_rvs=lambda n: np.arange(1, n + 1))
    counts = sparse.csr_array(counts.astype(np.int32))
    draw = {f"words_{name}": array for name, array in zip(PARTS, pack_counts(counts), strict=True)}
    assert (unpack(draw, "words", counts.shape) != counts).nnz == 0


def same(a, b):
    assert len(a.draws_) == len(b.draws_) > 0
    for one, other in zip(a.draws_, b.draws_, strict=True):
        assert one.keys() == other.keys()
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])


@pytest.fixture(scope="module")
def groups():
    return np.vstack([generated(seed)[0].toarray() for seed in range(20)])


@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light", pytest.param("saber", marks=pytest.mark.slow)])
def test_a_killed_fit_goes_on_with_its_draws(groups, sampler, tmp_path):
    options = {"n_groups": 3, "sampler": sampler, "max_iter": 48}
    whole = lda(**options).fit(groups)

    def killed(info):
        if info.round == 43:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        lda(**options, checkpoint=tmp_path).fit(groups, callback=killed)
    again = lda(**options, checkpoint=tmp_path).fit(groups)
    same(again, whole)
    same(lda(**options, checkpoint=tmp_path).fit(groups), whole)  # nothing is left to do
    with pytest.raises(CheckpointMismatch):  # draws of a longer fit are spread over other sweeps
        lda(**options | {"max_iter": 60}, checkpoint=tmp_path).fit(groups)


def test_draws_of_a_cluster_and_of_threads_are_the_same(groups):
    whole = lda(n_groups=4).fit(groups)
    same(lda(n_groups=4, n_jobs=2).fit(groups), whole)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        same(lda(n_groups=4, engine="dask").fit(groups), whole)


def test_draws_are_saved_and_checked(fitted, tmp_path):
    path = tmp_path / "model.npz"
    fitted.save(path)
    again = sd.load(path)
    same(again, fitted)
    np.testing.assert_array_equal(again.doc_topic_interval().low, fitted.doc_topic_interval().low)
    damaged = sd.load(path)
    damaged.draws_[3]["words_topics"] = damaged.draws_[3]["words_topics"] + np.uint8(_K)
    damaged.save(path)
    with pytest.raises(ModelFileError, match="draws_"):
        sd.load(path)


def test_what_has_no_draws_says_so(fitted):
    X = generated(0)[0]
    with pytest.raises(DataError, match="n_draws=20"):
        lda(n_draws=0).fit(X).topic_word_interval()
    with pytest.raises(DataError, match="n_draws=20"):
        lda().fit(X).partial_fit(X).doc_topic_interval()
    with pytest.raises(DataError, match="max_iter=81"):
        lda(n_draws=40).fit(X)
    with pytest.raises(DataError, match="n_draws=39"):
        fitted.topics_by_group(np.arange(_DOCUMENTS) % 2, level=0.95)
    for level in (0, 1, "high", True):
        with pytest.raises(DataError, match="level"):
            fitted.topic_word_interval(level)
    with pytest.raises(DataError, match="documents"):
        fitted.doc_topic_interval(documents=[_DOCUMENTS])
    with pytest.raises(DataError, match="no 'whale'"):
        fitted.topic_word_interval(words=["whale"], vocabulary=[f"w{i}" for i in range(_WORDS)])
    with pytest.raises(DataError, match="ended after 3 sweeps"):
        lda().fit(X, callback=lambda info: info.round == 3).topic_word_interval()
    with pytest.warns(UserWarning, match="of n_draws=20"):
        lda().fit(X, callback=lambda info: info.round == 50).topic_word_interval()


def test_words_by_name_and_a_picture(fitted):
    import matplotlib.figure

    words = [f"w{i}" for i in range(_WORDS)]
    found = fitted.topic_word_interval(words=["w3", "w5"], vocabulary=words)
    assert found.indices.tolist() == [[3, 5]] * _K
    assert "w3" in repr(found)
    for labels in (np.arange(_DOCUMENTS) % 2, np.array(["a", "b"])[np.arange(_DOCUMENTS) % 2]):
        table = fitted.topics_by_group(labels, level=0.9)
        assert ((table.low <= table.shares) & (table.shares <= table.high)).all()
        ax = table.plot(ax=matplotlib.figure.Figure().subplots())
        assert len(ax.collections) == _K
