"""SaberLDA's CUDA kernels against a plain reference and the CPU's form, bit for bit; then the estimator."""

from pathlib import Path

import numpy as np
import pytest
import saber_reference
from cuda_devices import KINDS, NO_GPU, device_of, emulated
from cuda_emulator import EmulatedDevice, EmulatedKernels, sanitized
from lda_chains import Tokens
from scipy import sparse

import stradask as sd
from stradask.algorithms._streams import Purpose
from stradask.algorithms.topics.samplers.light_cuda import LightCudaState
from stradask.algorithms.topics.samplers.saber import MOST_TOPICS, SaberState, topic_weights
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError, DeviceError
from stradask.kernels.cuda import launch
from stradask.kernels.cuda.device import standing_in
from stradask.kernels.lda.saber_chunks import _cuts, choose_chunks
from stradask.scheduler.engine import run

SEED = 2**50 + 7


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def _corpus(n_tokens, n_words=400, seed=0):
    X = make_lda_corpus(
        n_tokens // 80, n_features=n_words, n_components=10, mean_length=80, random_state=seed
    )[0]
    return sparse.csr_array(X)


def _priors(n_topics, n_words, beta):
    rng = np.random.default_rng(1)
    return rng.gamma(1, size=n_topics).clip(0.01) * 0.2, beta * rng.gamma(5, size=n_words)


def _state(X, n_topics, beta=0.01, device=None, **options):
    model = (X, n_topics, *_priors(n_topics, X.shape[1], beta), SEED)
    return SaberState(*model, n_groups=2, device=device, **options)


def _swept(state, n_sweeps=1):
    run(state, state.schedule, max_rounds=n_sweeps)
    return state


def _by_reference(state):
    weights = topic_weights(state.alpha, state.totals, state.beta.sum())
    place = (state.topics, state.word_start, state.token_doc[: state.n_tokens])
    per_beta = (1 / state.beta).astype(np.float32)
    return saber_reference.sweep(
        *place, *weights[:2], weights[3], per_beta, SEED, Purpose.SABER_SWEEP.value, 0
    )


def _in_chunks(monkeypatch, *numbers):
    monkeypatch.setattr("stradask.kernels.lda.saber_chunks._CHUNKS", numbers)


# --- a sweep ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_topics", "beta", "parts"),
    [
        (100, 0.01, ["document", "list", "tree", "shared", "again"]),
        (100, 1e-7, ["without"]),
        (1000, 0.01, ["document", "list", "shared", "again"]),
        pytest.param(10_000, 0.01, ["document", "list", "shared"], marks=pytest.mark.slow),
    ],
)
def test_a_sweep_is_the_references_bit_for_bit(kind, n_topics, beta, parts):
    X = _corpus(5000)
    expected, tally = _by_reference(_state(X, n_topics, beta))
    assert all(tally[part] for part in parts), tally
    assert (_swept(_state(X, n_topics, beta)).topics == expected).all()
    for seed in (0, 1, 2):
        state = _swept(_state(X, n_topics, beta, device=device_of(kind, seed=seed)))
        assert (state.topics == expected).all()
        assert (state.totals == np.bincount(expected, minlength=n_topics)).all()


def test_lists_longer_than_a_warp_keeps_are_the_references_too(kind):
    """From topics at random, of which the documents have up to so many lines of 32."""
    X = make_lda_corpus(9, n_features=100, n_components=5, mean_length=300, random_state=0)[0]
    topics = np.random.default_rng(0).integers(0, 700, int(X.sum())).astype(np.uint16)

    def begun(device=None):
        state = _state(sparse.csr_array(X), 700, device=device)
        state.begin_from(topics.copy())
        return state

    lines = -(-np.diff(begun().doc_topic_counts().indptr) // 32)
    assert lines.min() <= 4 < lines.max() - 4
    expected, _ = _by_reference(begun())
    assert (_swept(begun()).topics == expected).all()
    for seed in (1, 2):
        assert (_swept(begun(device_of(kind, seed=seed))).topics == expected).all()


@pytest.mark.parametrize("n_topics", [20, 300])
def test_of_the_smallest_priors_nothing_is_flushed(kind, n_topics):
    """A GPU takes floats below 2^-126 for 0, and the emulator does; the CPU does not."""
    X, rng = _corpus(2500), np.random.default_rng(0)
    alpha, beta = np.where(rng.random(n_topics) < 0.5, 1e-12, 0.1), np.where(rng.random(400) < 0.5, 1e-12, 1)
    for priors in ((alpha, beta), (np.full_like(alpha, 1e-12), np.full_like(beta, 1e-12))):
        here, there = (
            _swept(SaberState(X, n_topics, *priors, SEED, n_groups=2, device=device), 2)
            for device in (None, device_of(kind, seed=4))
        )
        assert (here.topics == there.topics).all()


@pytest.mark.parametrize(
    ("n_topics", "lazy"),
    [
        pytest.param(1, 0b001, marks=pytest.mark.slow),
        (2, 0b010),
        pytest.param(33, 0b100, marks=pytest.mark.slow),
        (1025, 0b101),
    ],
)
def test_sweeps_go_on_from_each_other_in_any_chunks(kind, n_topics, lazy, monkeypatch):
    """Resident or taking turns, whichever queue is late: counts of all chunks are of the sweep before."""
    X = _corpus(2500)
    X = sparse.csr_array(
        sparse.vstack([X[:0], sparse.csr_array((1, 400), dtype=np.int32), X])
    )  # an empty one
    expected = _swept(_state(X, n_topics), 3)
    device = device_of(kind, seed=5, lazy=lazy)
    for n_chunks, resident in ((1, True), (3, True), (3, False)):
        _in_chunks(monkeypatch, n_chunks)
        if not resident:  # shared arrays, and of the chunks only two
            monkeypatch.setattr("stradask.kernels.lda.saber_chunks.choose_chunks", _taking_turns)
        state = _swept(_state(X, n_topics, device=device), 3)
        assert (state._there.sampler.n_chunks, state._there.sampler.chunks.resident) == (n_chunks, resident)
        assert (state.topics == expected.topics).all()
        assert (state.totals == expected.totals).all()


def _taking_turns(*args):
    return choose_chunks(*args)._replace(resident=False)


def test_topics_that_do_not_fit_shared_memory_are_kept_outside(kind):
    """The second variant of the source, and lists and counts made in several windows of topics."""
    X, n_topics = _corpus(1500), 3000
    device = device_of(kind, seed=3)
    before, device.shared_memory = device.shared_memory, 12 * 1024
    try:
        state = _state(X, n_topics, device=device)
        assert state._there.sampler._window < n_topics
        assert state._there.sampler._count_window < n_topics
        assert (_swept(state, 2).topics == _swept(_state(X, n_topics), 2).topics).all()
    finally:
        device.shared_memory = before


@pytest.mark.slow
@pytest.mark.parametrize("shared", [227 * 1024, 64 * 1024])
def test_as_many_topics_as_there_can_be(kind, shared):
    """Their weights in shared memory, and outside; one word has so many tokens that it grows a tree."""
    X = sparse.lil_array(_corpus(1000))
    X[0, 0] = MOST_TOPICS // 4
    device = device_of(kind, seed=6)
    before, device.shared_memory = device.shared_memory, min(shared, device.shared_memory)
    try:
        state = _state(sparse.csr_array(X), MOST_TOPICS, device=device)
        assert len(state._there.sampler.layout.frequent) == 1
        assert (_swept(state, 2).topics == _swept(_state(sparse.csr_array(X), MOST_TOPICS), 2).topics).all()
    finally:
        device.shared_memory = before


@emulated
def test_a_missing_barrier_is_seen():
    """Without the barrier that keeps a block from the next item, some order of warps gives other topics."""
    X, n_topics = _corpus(2500), 100
    expected = _swept(_state(X, n_topics)).topics
    text = (launch.FOLDER / "lda/saber.cu").read_text()
    harm = "__syncthreads();  // the item before is done"
    assert harm in text
    found = 0
    for seed in range(1, 5):
        device = _Altered(seed=seed, change=(harm, ""))
        try:
            found += bool((_swept(_state(X, n_topics, device=device)).topics != expected).any())
        except DeviceError:
            found += 1
    assert found


class _Altered(EmulatedDevice):
    """The emulated GPU with a change in the source."""

    def __init__(self, *, change, **options):
        super().__init__(**options)
        self.change = change

    def built(self, file, text):
        return EmulatedKernels(text.replace(*self.change), self)


@emulated
@pytest.mark.slow
@pytest.mark.parametrize("which", ["address", "thread"])
def test_a_sanitizer_finds_nothing(which):
    script = """
import sys
from cuda_emulator import EmulatedDevice
from test_saber_cuda import _corpus, _state, _swept
X = _corpus(1000)
for n_topics in (100, 1000):
    here, there = [
        _swept(_state(X, n_topics, 1e-5, device=device), 2)
        for device in (None, EmulatedDevice(sanitize=sys.argv[1], seed=2))
    ]
    assert (here.topics == there.topics).all()
    assert abs(there.joint_log_likelihood() / here.joint_log_likelihood() - 1) < 1e-10
    assert (here.word_topic_counts() != there.word_topic_counts()).nnz == 0
print("all ran", file=sys.stderr)
"""
    said = sanitized(which, script, which, folders=[Path(__file__).parents[1] / "problems"])
    if said is None:
        pytest.skip(f"the compiler has no {which} sanitizer")
    assert said.strip() == "all ran"


@pytest.mark.slow
@pytest.mark.parametrize("n_topics", [100, 1000, 10_000])
def test_a_hundred_thousand_tokens_are_the_references(kind, n_topics):
    X = _corpus(100_000, n_words=3000)
    state = _swept(_state(X, n_topics, device=device_of(kind, seed=1)))
    before = _state(X, n_topics)
    expected, tally = _by_reference(before)
    assert tally["list"] * tally["shared"] * tally["again"] > 0
    assert (state.topics == expected).all()
    assert (_swept(before).topics == expected).all()


# --- room -------------------------------------------------------------------------------------------------


@emulated
def test_a_corpus_larger_than_the_device_takes_turns(monkeypatch):
    X, n_topics = _corpus(20_000), 4
    lengths, frequency = (np.asarray(X.sum(axis=axis)).ravel().astype(np.int64) for axis in (1, 0))
    chosen = [
        choose_chunks(EmulatedDevice(memory=memory), lengths, frequency, n_topics)
        for memory in (10**8, 200_000, 110_000)
    ]
    sizes = [(len(plan.cuts) - 1, plan.resident) for plan in chosen]
    assert sizes[0] == (1, True)
    assert sizes[-1][0] > 2
    assert not sizes[-1][1]
    for cuts, _, _ in chosen:
        assert cuts[0] == 0
        assert cuts[-1] == len(lengths)
        assert (np.diff(cuts) > 0).all()
    with pytest.raises(DeviceError, match=r"4 topics .* even in [\d,]+ chunks.*set device='cpu'"):
        choose_chunks(EmulatedDevice(memory=15_000), lengths, frequency, n_topics)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([0, 0, 9, 1, 1, 1], [0, 3, 6]),  # not one chunk of the two empty documents
        ([5, 0, 5, 0, 0], [0, 2, 5]),
        ([7], [0, 1]),
        ([1] * 12, [0, 3, 6, 9, 12]),
    ],
)
def test_no_chunk_is_without_tokens(lengths, expected):
    cuts = _cuts(np.cumsum(lengths), 4)
    assert (np.add.reduceat(lengths, cuts[:-1]) > 0).all()
    assert cuts[[0, -1]].tolist() == [0, len(lengths)]
    assert len(cuts) <= 5
    assert cuts.tolist() == expected


@emulated
def test_what_is_chosen_has_room():
    X = _corpus(20_000)
    device = EmulatedDevice(memory=110_000)
    state = _swept(_state(X, 4, device=device), 2)
    assert not state._there.sampler.chunks.resident
    assert state.joint_log_likelihood() == pytest.approx(
        _swept(_state(X, 4), 2).joint_log_likelihood(), 1e-10
    )
    assert (state.topics == _swept(_state(X, 4), 2).topics).all()


# --- the estimator ----------------------------------------------------------------------------------------


def _lda(n_components, **options):
    given = {"sampler": "saber", "max_iter": 12, "random_state": 0, **options}
    return sd.LatentDirichletAllocation(n_components, **given)


@pytest.fixture(scope="module")
def corpus():
    return make_lda_corpus(70, n_features=150, n_components=4, mean_length=40, random_state=0)[0]


def _same(first, second):
    assert (first.word_topic_counts_ != second.word_topic_counts_).nnz == 0
    assert (first.doc_topic_counts_ != second.doc_topic_counts_).nnz == 0
    np.testing.assert_array_equal(first.doc_topic_prior_, second.doc_topic_prior_)
    np.testing.assert_array_equal(first.topic_word_prior_, second.topic_word_prior_)
    np.testing.assert_allclose(first.log_likelihood_, second.log_likelihood_, rtol=1e-10)


@pytest.mark.parametrize("n_components", [4, pytest.param(300, marks=pytest.mark.slow)])
def test_the_model_is_that_of_the_cpu(kind, corpus, n_components):
    X, test = corpus, corpus[:2]
    options = {"max_iter": 24, "optimize_priors": True}
    with standing_in(device_of(kind, seed=2)):
        there = _lda(n_components, device="cuda", **options).fit(X)
        here = _lda(n_components, **options).fit(X)
        _same(there, here)
        assert there.doc_topic_prior_.std() > 0
        shares = there.transform(test, n_sweeps=10)
        np.testing.assert_allclose(shares, here.transform(test, n_sweeps=10), rtol=1e-4, atol=1e-6)
        assert there.perplexity(test) == pytest.approx(here.perplexity(test), rel=1e-4)


def test_known_topics_are_found(kind):
    """End to end, from a corpus whose topics are known."""
    spread = {"n_common_words": 0.1, "word_spread": 0.02, "mean_length": 40, "random_state": 3}
    X, truth, _ = make_lda_corpus(120, n_features=60, n_components=3, **spread)
    with standing_in(device_of(kind, seed=4)):
        lda = _lda(3, device="cuda", max_iter=25).fit(X)
    distance = 0.5 * np.abs(lda.topic_word_[:, None] - truth[None]).sum(axis=2)
    assert sorted(distance.argmin(axis=1)) == [0, 1, 2]
    assert distance.min(axis=1).max() < 0.15


def test_a_checkpoint_goes_on_on_anotherdevice_of(kind, corpus, tmp_path):
    whole = _lda(5).fit(corpus)
    with standing_in(device_of(kind)):
        cut = _lda(5, device="cuda", checkpoint=tmp_path).fit(corpus, callback=lambda info: info.round == 5)
        assert cut.n_iter_ == 5
        again = _lda(5, device="cuda", checkpoint=tmp_path, max_iter=9).fit(corpus)
        assert again.n_iter_ == 9
    _same(_lda(5, checkpoint=tmp_path).fit(corpus), whole)


@emulated
def test_auto_takes_a_gpu_if_there_is_one(corpus):
    device = EmulatedDevice()
    with standing_in(device):
        _lda(3, device="auto", max_iter=2).fit(corpus)
        assert device.launches.count("sample") == 2
        _lda(3, device="auto", sampler="gibbs", max_iter=2).fit(corpus)
        _lda(3, max_iter=2).fit(corpus)
    assert device.launches.count("sample") == 2


@pytest.mark.skipif(NO_GPU is None, reason="there is a GPU")
def test_without_a_gpu(corpus):
    _same(_lda(3, device="auto", max_iter=2).fit(corpus), _lda(3, max_iter=2).fit(corpus))
    with pytest.raises(DeviceError, match=r"device='cpu'|pip install"):
        _lda(3, device="cuda").fit(corpus)


def test_light_begins_on_a_device_where_it_is_told_to(kind):
    """Its groups there are others, and so is the place of each token."""
    X = make_lda_corpus(30, n_features=40, n_components=3, mean_length=30, random_state=1)[0]
    priors = (np.full(3, 0.1), np.full(40, 0.01))
    with standing_in(device_of(kind)) as device:
        state = LightCudaState(X, 3, *priors, 0, device=device, n_groups=4)
        before = Tokens(X, 3, *priors, 1)
        assert (state.order != before.order).any()
        state.begin_from_tokens(before.words, before.docs, before.topics)
        assert (state.word_topic_counts() != before.word_topic_counts()).nnz == 0
        assert (state.doc_topic_counts() != before.doc_topic_counts()).nnz == 0
        lda = _lda(3, sampler="light", device="cuda", max_iter=2, warm_start=True).fit(X).fit(X)
    assert lda.sampler_[0]["name"] == "light"
    assert lda.word_topic_counts_.sum() == X.sum()


def test_other_samplers_do_not_run_there(corpus):
    with pytest.raises(DataError, match="device='cuda' with sampler='gibbs'"):
        _lda(3, device="cuda", sampler="gibbs").fit(corpus)
    with pytest.raises(ValueError, match="device"):
        _lda(3, device="tpu").fit(corpus)
