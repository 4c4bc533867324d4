"""Topic shares from the sweeps of a fit: against enumeration, the truth, `transform`, and one another."""

import itertools

import numpy as np
import pytest
from early_auto import make_early
from scipy import sparse
from scipy.special import gammaln

import stradask as sd
from stradask.errors import CheckpointMismatch

SAMPLERS = ["gibbs", "warp", "light", "saber"]
ALPHA, BETA = np.array([0.3, 1.2]), np.array([0.3, 0.1, 0.7])
TINY = np.array([[1, 2, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1]])


def _enumerated_means():
    """E[theta_d | w] by its definition: the sum over every assignment of topics to all tokens."""
    docs, words = (np.repeat(index, TINY[TINY > 0]) for index in np.nonzero(TINY))
    z = np.array(list(itertools.product(range(2), repeat=len(docs))))
    counts = np.stack([[(z[:, docs == d] == k).sum(axis=1) for k in range(2)] for d in range(len(TINY))])
    joint = gammaln(counts + ALPHA[:, None]).sum(axis=(0, 1))
    for k in range(2):
        own = np.stack([(z[:, words == w] == k).sum(axis=1) for w in range(3)])
        joint += gammaln(own + BETA[:, None]).sum(axis=0) - gammaln(own.sum(axis=0) + BETA.sum())
    posterior = np.exp(joint - joint.max())
    means = counts @ (posterior / posterior.sum())
    return (means + ALPHA) / (TINY.sum(axis=1)[:, None] + ALPHA.sum())


@pytest.mark.parametrize("sampler", ["gibbs", "light"])
def test_shares_are_the_enumerated_posterior_means(sampler):
    priors = {"doc_topic_prior": ALPHA, "topic_word_prior": BETA}
    model = sd.LatentDirichletAllocation(2, sampler=sampler, exact=True, max_iter=200, **priors)
    found = np.array([model.set_params(random_state=seed).fit_transform(TINY) for seed in range(16)])
    error = found.std(axis=0) / np.sqrt(len(found))
    expected = _enumerated_means()
    assert abs(expected - ALPHA / ALPHA.sum()).max() > 4 * error.max()  # the prior alone would not do
    assert (abs(found.mean(axis=0) - expected) < 4.5 * error + 1e-7).all()


@pytest.fixture(scope="module")
def corpus():
    """Documents of 60 words, and some without, whose topics are distinct and have thousands of tokens."""
    rng = np.random.default_rng(0)
    topics, shares = rng.dirichlet(np.full(40, 0.2), 4), rng.dirichlet(np.full(4, 0.3), 1500)
    X = rng.multinomial(60, shares @ topics)
    X[::100] = 0
    return sparse.csr_array(X)


def _apart(p, q):
    return float(abs(p - q).sum(axis=1).mean() / 2)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_where_words_tell_the_topics_shares_are_those_of_transform(corpus, sampler):
    """Measured 0.028 to 0.055, and 0.05 to 0.07 of the last sweep alone; it falls as the chain goes on."""
    apart = []
    for max_iter in (40, 240):
        model = sd.LatentDirichletAllocation(4, sampler=sampler, max_iter=max_iter, random_state=0)
        shares = model.fit_transform(corpus)
        np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(shares[::100], 0.25, rtol=1e-6)  # documents without words: the prior
        apart.append(_apart(shares[:200], model.transform(corpus[:200], n_sweeps=400)))
    assert apart[1] < 0.04
    assert apart[1] < 0.75 * apart[0]


OPTIONS = {"max_iter": 6, "random_state": 3, "n_groups": 3}


@pytest.fixture
def auto_for_little(monkeypatch):
    """Let "auto" take warp and then Gibbs sampling also where little is to be swept."""
    make_early(monkeypatch, gibbs_topics=2, annealed=2, most=4)
    monkeypatch.setattr("stradask.algorithms.topics.blocks.groups._LEAST_TOKENS", 1000)


@pytest.mark.usefixtures("auto_for_little")
@pytest.mark.parametrize("sampler", [*SAMPLERS, "auto"])
def test_shares_are_the_same_bits_on_threads_and_on_disk(corpus, sampler, tmp_path):
    model = sd.LatentDirichletAllocation(4, sampler=sampler, **OPTIONS)
    shares = model.fit_transform(corpus)
    ran = ["warp", "gibbs"] if sampler == "auto" else [sampler]
    assert [part["name"] for part in model.sampler_] == ran
    last = model.doc_topic_
    np.testing.assert_array_equal(last, model.fit(corpus).doc_topic_)  # the same chain, averaged or not
    np.testing.assert_array_equal(shares, model.set_params(n_jobs=2).fit_transform(corpus))
    np.testing.assert_array_equal(shares, model.set_params(memmap_folder=tmp_path).fit_transform(corpus))
    assert _apart(shares, last) > 0.01


def test_lists_are_averaged_as_rows_are(corpus):
    """Above 256 topics documents have lists; the average of one sweep is that sweep."""
    model = sd.LatentDirichletAllocation(260, sampler="gibbs", max_iter=1, random_state=0)
    np.testing.assert_allclose(model.fit_transform(corpus[:300]), model.doc_topic_, rtol=1e-6)
    assert abs(model.set_params(max_iter=3).fit_transform(corpus[:300]) - model.doc_topic_).max() > 0.01


@pytest.mark.parametrize("sampler", ["gibbs", "saber", "light"])
def test_the_average_of_one_sweep_is_that_sweep(corpus, sampler):
    model = sd.LatentDirichletAllocation(4, sampler=sampler, max_iter=1, random_state=0)
    np.testing.assert_allclose(model.fit_transform(corpus), model.doc_topic_, rtol=1e-6)


def test_later_sweeps_have_the_weight_of_the_cube(corpus):
    model = sd.LatentDirichletAllocation(4, sampler="gibbs", exact=True, max_iter=5, random_state=0)
    seen, lengths = [], corpus.sum(axis=1)[:, None]
    shares = model.fit_transform(
        corpus, callback=lambda info: seen.append(info.snapshot().doc_topic_counts_.toarray())
    )
    mean = np.average(seen, axis=0, weights=np.arange(1, 6) ** 3)
    np.testing.assert_allclose(shares, (mean + 0.1) / (lengths + 0.4), rtol=1e-5)


def test_labelled_documents_have_shares_of_their_labels(corpus):
    labels = np.random.default_rng(1).integers(0, 3, (corpus.shape[0], 4))
    labels[labels.sum(axis=1) == 0] = 1
    model = sd.LatentDirichletAllocation(4, max_iter=1, random_state=0)
    shares = model.fit_transform(corpus, doc_labels=labels)
    expected = model.doc_topic_counts_ + labels * 0.1
    np.testing.assert_allclose(shares, expected / expected.sum(axis=1, keepdims=True), rtol=1e-6)
    assert not shares[labels == 0].any()


@pytest.mark.usefixtures("auto_for_little")
@pytest.mark.parametrize("stops", [2, 5])
@pytest.mark.parametrize("sampler", ["gibbs", "warp", "saber", "auto"])
def test_a_checkpoint_keeps_the_averages(corpus, sampler, stops, tmp_path):
    model = sd.LatentDirichletAllocation(4, sampler=sampler, **OPTIONS)
    expected = model.set_params(checkpoint=tmp_path / "whole").fit_transform(corpus)
    model.set_params(checkpoint=tmp_path / "parts")
    model.fit_transform(corpus, callback=lambda info: info.round == stops)
    np.testing.assert_array_equal(model.fit_transform(corpus), expected)
    with pytest.raises(CheckpointMismatch):
        model.fit(corpus)


def test_annealed_sweeps_are_averaged_too(corpus):
    """So a fit of any length has shares of its chain."""
    model, seen = sd.LatentDirichletAllocation(4, max_iter=40, random_state=0), []

    def watch(info):
        seen.append(info.snapshot().doc_topic_counts_.toarray())
        return info.round == 2

    shares = model.fit_transform(corpus, callback=watch)
    mean = np.average(seen, axis=0, weights=[1, 8])
    lengths = corpus.sum(axis=1)[:, None]
    np.testing.assert_allclose(shares, (mean + 0.1) / (lengths + 0.4), rtol=1e-5)


@pytest.mark.usefixtures("auto_for_little")
@pytest.mark.parametrize("sampler", ["gibbs", "warp", "auto"])
def test_shares_are_the_same_bits_on_a_cluster(corpus, sampler, address):
    model = sd.LatentDirichletAllocation(4, sampler=sampler, **OPTIONS)
    expected = model.fit_transform(corpus)
    np.testing.assert_array_equal(model.set_params(engine=address).fit_transform(corpus), expected)
