"""New documents on a GPU: the CPU's answers to rounding, since the chains draw the same topics."""

import numpy as np
import pytest
from cuda_devices import KINDS, NO_GPU, device_of, emulated
from cuda_emulator import EmulatedDevice, sanitized
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.inference import FixedTopics, completion, topic_shares
from stradask.datasets.generators import make_lda_corpus
from stradask.datasets.split import split_tokens
from stradask.errors import DataError, DeviceError
from stradask.kernels.cuda.device import standing_in
from stradask.kernels.lda import inference as topic_inference
from stradask.kernels.lda.inference_cuda import FixedTopicsOnDevice


@pytest.fixture(params=KINDS)
def device(request):
    return device_of(request.param, seed=3)


def _topics(n_topics, n_words=60, seed=0):
    """Topics of a skewed prior; some words have no counts, and are no part of what a model knows."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.3, (n_words, n_topics)) * rng.integers(1, 50, (n_words, 1))
    counts[:, 0] += 1
    counts[::7] = 0
    alpha, beta = rng.gamma(1, size=n_topics).clip(0.01) * 0.2, rng.gamma(2, size=n_words) * 0.05
    return FixedTopics(sparse.csr_array(counts.astype(np.int32)), alpha, beta)


def _documents(n_words=60, n_documents=6, seed=1):
    """Documents of different lengths, one empty and one with a word 40 times; no word without counts."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.4, (n_documents, n_words)) * (rng.random((n_documents, n_words)) < 0.5)
    X[2] = 0
    X[1, 5] = 40
    X[:, ::7] = 0
    return sparse.csr_array(X.astype(np.int32))


def _shares(topics, X, device=None, n_sweeps=14, seed=5, tol=None):
    options = {"n_sweeps": n_sweeps, "random_state": seed, "n_jobs": 1, "tol": tol}
    return topic_shares(topics, X, device=device, **options)


@pytest.mark.parametrize("n_topics", [1, 2, 16, 17, 300])
def test_shares_are_those_of_the_cpu(device, n_topics):
    topics, X = _topics(n_topics), _documents()
    expected = _shares(topics, X)
    found = _shares(topics, X, device)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    if n_topics > 1:  # other draws would be farther away than that
        assert abs(_shares(topics, X, seed=6) - expected).max() > 1e-3


def test_documents_end_after_as_many_sweeps_as_on_the_cpu(device):
    topics, X = _topics(17), _documents()
    found = [_shares(topics, X, at, 30, tol=0.03) for at in (None, device)]
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)
    ended = (_shares(topics, X, None, 40, tol=0.03) == found[0]).all(axis=1)
    assert ended.any()
    assert not ended.all()


@pytest.mark.parametrize("n_topics", [40, 600])
def test_chains_may_lie_outside_of_shared_memory(device, n_topics):
    """The second variant of the source, and lots of one document after the other."""
    topics, X = _topics(n_topics), _documents(n_documents=4)
    before, device.shared_memory = device.shared_memory, 1600
    try:
        there = FixedTopicsOnDevice(device, *topics.parts)
        assert there._chain_bytes > device.shared_memory - 1024
        np.testing.assert_allclose(_shares(topics, X, device), _shares(topics, X), rtol=1e-4, atol=1e-6)
    finally:
        device.shared_memory = before


def test_documents_beyond_one_lot_of_random_numbers(device):
    """4096 uniforms are made at a time on the CPU."""
    topics, X = _topics(2, 8), sparse.csr_array([[0, 120, 90, 0, 0, 7, 1, 0]], dtype=np.int32)
    np.testing.assert_allclose(_shares(topics, X, device, 22), _shares(topics, X, None, 22), rtol=1e-4)


def test_what_draws_fuses_no_product_with_a_sum():
    """A GPU fuses none; a draw in a million differed while the CPU might."""
    assert not topic_inference.fold_in.targetoptions.get("fastmath")


@pytest.mark.slow
def test_millions_of_draws_are_those_of_the_cpu(device):
    X, words, _ = make_lda_corpus(100, 2000, 30, mean_length=333, random_state=1)
    counts = np.random.default_rng(0).poisson(np.repeat(words, 7, axis=0).T * 5000).astype(np.int32)
    counts[:, 0] += 1
    topics = FixedTopics(sparse.csr_array(counts), np.full(210, 0.1), np.full(2000, 0.01))
    found, expected = (_shares(topics, X, at, 50) for at in (device, None))
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_keys_are_those_of_the_cpu(device):
    X = _documents()
    keys = device.empty(X.shape[0], np.uint64)
    corpus = [device.put(part) for part in (X.indptr.astype(np.int64), X.indices, X.data)]
    kernels = device.kernels("lda/inference.cu", IN_SHARED=1)
    kernels.launch("content_keys", 1, 256, (*corpus, np.int32(X.shape[0]), keys))
    assert (device.get(keys) == topic_inference.content_keys(X.indptr, X.indices, X.data)).all()


@pytest.mark.parametrize("n_topics", [1, 5, 33, 700])
def test_completion_is_that_of_the_cpu(device, n_topics):
    topics = _topics(n_topics)
    halves = split_tokens(_documents(), random_state=0)
    expected = completion(topics, *halves, n_jobs=1)
    assert completion(topics, *halves, n_jobs=1, device=device) == pytest.approx(expected, rel=1e-12)


@emulated
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_any_order_of_lanes_and_blocks_gives_the_same_bits(seed):
    topics, X = _topics(20), _documents(n_documents=4)
    first, other = (EmulatedDevice(seed=s) for s in (7, seed))
    np.testing.assert_array_equal(_shares(topics, X, first), _shares(topics, X, other))
    halves = split_tokens(X, random_state=0)
    assert completion(topics, *halves, n_jobs=1, device=first) == completion(
        topics, *halves, n_jobs=1, device=other
    )


@emulated
def test_documents_go_in_lots_where_room_is_scarce():
    topics, X = _topics(20), _documents()
    scarce = EmulatedDevice(memory=55_000)
    np.testing.assert_array_equal(_shares(topics, X, scarce), _shares(topics, X, EmulatedDevice()))
    assert scarce.launches.count("fold_in") > 1
    with pytest.raises(DeviceError, match=r"document 1 of X with 20 topics takes .*set device='cpu'"):
        _shares(topics, _documents()[:2], EmulatedDevice(memory=30_000))
    with pytest.raises(DeviceError, match="no room"):
        completion(topics, X, X, n_jobs=1, device=EmulatedDevice(memory=4000))


# Through the estimator ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    X = make_lda_corpus(60, n_features=80, n_components=4, mean_length=30, random_state=0)[0]
    return sd.LatentDirichletAllocation(4, max_iter=20, random_state=0).fit(X[:50]), X[50:]


@pytest.mark.parametrize("choice", ["cuda", "auto"])
def test_a_fitted_model_infers_and_scores_there(device, fitted, choice):
    """Of any sampler, and with no need to be fitted there."""
    model, new = fitted
    expected, score = model.transform(new, n_sweeps=20), model.score(new)
    try:
        model.set_params(device=choice)
        with standing_in(device):
            np.testing.assert_allclose(model.transform(new, n_sweeps=20), expected, rtol=1e-4, atol=1e-6)
            assert model.score(new) == pytest.approx(score, rel=1e-5)
            assert model.perplexity(new) == pytest.approx(np.exp(-score), rel=1e-4)
            empty = model.transform(sparse.csr_array((2, 80), dtype=np.int32))
            prior = model.doc_topic_prior_ / model.doc_topic_prior_.sum()
            np.testing.assert_allclose(empty, np.tile(prior, (2, 1)))
            with pytest.raises(DataError, match="n_sweeps"):
                model.transform(new, n_sweeps=3)
    finally:
        model.set_params(device="cpu")


@emulated
def test_what_the_cpu_is_left_with(fitted):
    model, new = fitted
    labels = np.ones((new.shape[0], 4))
    labels[:, 0] = 0
    expected = model.transform(new, doc_labels=labels)
    try:
        model.set_params(device="cuda")
        with standing_in(EmulatedDevice()) as device:
            np.testing.assert_array_equal(model.transform(new, doc_labels=labels), expected)
            assert not device.launches
    finally:
        model.set_params(device="cpu")


@pytest.mark.skipif(NO_GPU is None, reason="there is a GPU")
def test_without_a_gpu(fitted):
    model, new = fitted
    expected = model.transform(new)
    try:
        np.testing.assert_array_equal(model.set_params(device="auto").transform(new), expected)
        for use in (model.set_params(device="cuda").transform, model.score):
            with pytest.raises(DeviceError, match=r"device='cpu'|pip install"):
                use(new)
    finally:
        model.set_params(device="cpu")


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("which", ["address", "thread"])
def test_a_sanitizer_finds_nothing(which):
    script = """
import sys
import numpy as np
from cuda_emulator import EmulatedDevice
from test_topic_inference_cuda import _documents, _shares, _topics
from stradask.algorithms.topics.inference import completion
from stradask.datasets.split import split_tokens
for n_topics, shared in ((20, 2**17), (40, 1100)):
    device, topics, X = EmulatedDevice(sanitize=sys.argv[1], seed=2), _topics(n_topics), _documents()
    device.shared_memory = shared
    np.testing.assert_allclose(_shares(topics, X, device), _shares(topics, X), rtol=1e-4, atol=1e-6)
    halves = split_tokens(X, random_state=0)
    there = completion(topics, *halves, n_jobs=1, device=device)
    np.testing.assert_allclose(there, completion(topics, *halves, n_jobs=1), rtol=1e-10)
print("all ran", file=sys.stderr)
"""
    said = sanitized(which, script, which)
    if said is None:
        pytest.skip(f"the compiler has no {which} sanitizer")
    assert said.strip() == "all ran"
