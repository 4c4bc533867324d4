"""LightLDA on a GPU: the moves of the CPU bit for bit, on the emulator and, where there is one, on a GPU."""

import itertools

import numpy as np
import pytest
from cuda_emulator import MISSING, EmulatedDevice, sanitized
from scipy.optimize import linear_sum_assignment

import stradask as sd
from stradask.algorithms.topics.light import _SWEEP, LightState
from stradask.algorithms.topics.light_cuda import LightCudaState, number_of_groups
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import CheckpointMismatch, DataError
from stradask.kernels import lda_light
from stradask.kernels.device import cuda_device, standing_in, why_no_device
from stradask.scheduler.engine import run
from stradask.scheduler.program import Task

NO_GPU = why_no_device()


@pytest.fixture(
    params=[
        pytest.param("emulator", marks=pytest.mark.skipif(MISSING is not None, reason=str(MISSING))),
        pytest.param(
            "gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=str(NO_GPU))]
        ),
    ]
)
def device(request):
    return cuda_device() if request.param == "gpu" else EmulatedDevice()


def _corpus(n_documents=40, n_words=120, mean_length=50, seed=0):
    X, *_ = make_lda_corpus(n_documents, n_words, 5, mean_length=mean_length, random_state=seed)
    return X.tocsr()


def _priors(n_topics, n_words, skewed=False):
    alpha = np.linspace(0.02, 0.3, n_topics) if skewed else np.full(n_topics, 0.1)
    return alpha, np.linspace(0.01, 0.05, n_words) if skewed else np.full(n_words, 0.01)


def _after(state, sweeps):
    run(state, state.schedule, max_rounds=sweeps)
    state._to_host()
    return state


def _settle(totals, changes):
    if len(changes):
        totals += changes
        changes[:] = 0


def _on_the_cpu(state, common_words, group_words, parts, sweeps):
    """Move the tokens of a state of the CPU as a GPU does, by the functions of `kernels.lda_light`."""
    n_groups, lists = len(group_words), state.documents
    live = n_groups == 1
    corpus = (state.word_start, state.token_doc, state.topics)
    documents = (lists.entries, lists.line_start, lists.n_lines, lists.shift, state.lengths)
    for round_ in range(sweeps):
        beta, _, beta_sum = state.beta_of(round_)
        alpha = (state.alpha, state.alpha.sum(), state._aliases, state._limits)
        model = (*alpha, beta, beta_sum, state.n_steps, state.seed, _SWEEP, round_)
        changes = np.zeros(0 if live else state.n_topics, np.int64)
        words = (state.row_of_word, state.rows, state.totals, changes)
        for first, last in itertools.pairwise(parts):
            part = (common_words, first, last)
            lda_light.sweep_common(*part, *corpus, *documents, *words, *model, n_groups)
            _settle(state.totals, changes)
        for step in range(n_groups):
            for g in range(n_groups):
                part = (group_words[(g + step) % n_groups], state.bounds[g], state.bounds[g + 1])
                lda_light.sweep(*part, *corpus, *documents, *words, *model, g)
            _settle(state.totals, changes)
        lists.tidy(0, len(state.lengths))
    return state


@pytest.mark.parametrize(
    ("n_topics", "skewed", "n_groups"),
    [
        *(
            (n_topics, skewed, n)
            for n_topics, skewed in ((3, False), (20, True), (500, False))
            for n in (1, 2, 7)
        ),
        (70_000, True, 7),
        (2**20, False, 7),
    ],
)
def test_topics_are_those_of_the_cpu(n_topics, skewed, n_groups, device):
    X = _corpus()
    model = (X, n_topics, *_priors(n_topics, X.shape[1], skewed), 12345)
    options = {"n_groups": n_groups, "annealed": 0 if skewed else 2}
    state = _after(LightCudaState(*model, device=device, **options), 3)
    assert len(state.common_words) > 0 or n_groups < 7
    expected = LightState(*model, **options)
    _on_the_cpu(expected, state.common_words, state.group_words, state.parts, 3)
    assert (state.topics == expected.topics).all()
    assert (state.totals == expected.totals).all()
    assert (state.totals == np.bincount(state.topics, minlength=n_topics)).all()
    assert (state.doc_topic_counts() != expected.doc_topic_counts()).nnz == 0
    assert state.joint_log_likelihood() == pytest.approx(expected.joint_log_likelihood(), rel=1e-12)
    assert _tables(state) == _counts(state)


def _tables(state):
    """The counts of words without a row, as the device has them."""
    cells, start = state._on_device.get("cells"), state._on_device.get("cell_start")
    word = np.repeat(np.arange(len(start) - 1), np.diff(start))[cells != 0]
    held = cells[cells != 0]
    return sorted(zip(word.tolist(), (held >> 32).tolist(), (held & 0xFFFFFFFF).tolist(), strict=True))


def _counts(state):
    """The same, from the topics of the tokens."""
    counts = state.word_topic_counts().tocoo()
    table = state.row_of_word[counts.row] < 0
    return sorted(zip(*(part[table].tolist() for part in (counts.row, counts.col, counts.data)), strict=True))


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_any_order_of_lanes_and_blocks_gives_the_same_topics():
    X = _corpus()
    model = (X, 300, *_priors(300, X.shape[1], True), 6)
    topics = [
        _after(LightCudaState(*model, n_groups=7, device=EmulatedDevice(seed)), 2).topics for seed in range(4)
    ]
    assert all((topics[0] == others).all() for others in topics[1:])


def test_exact_sweeps_are_those_of_the_cpu(device):
    X = _corpus()
    model = (X, 30, *_priors(30, X.shape[1]), 4)
    state = _after(LightCudaState(*model, exact=True, device=device), 3)
    expected = LightState(*model, exact=True)
    run(expected, expected.schedule, max_rounds=3)
    assert (state.n_groups, len(state.common_words)) == (1, 0)
    assert (state.topics == expected.topics).all()


def test_a_state_goes_on_from_arrays_as_if_it_had_never_stopped(device):
    X = _corpus()
    model = (X, 60, *_priors(60, X.shape[1], True), 5)
    whole = LightCudaState(*model, n_groups=3, device=device)
    for round_ in range(4):
        whole.update({}, Task(round_, 0, 0, 0))
        if round_ == 1:
            kept = {name: np.array(array) for name, array in whole.arrays().items()}
    again = LightCudaState(*model, n_groups=3, device=device)
    again.restore(kept)
    for round_ in (2, 3):
        again.update({}, Task(round_, 0, 0, 0))
    assert (whole.arrays()["topics"] == again.arrays()["topics"]).all()
    assert (whole.arrays()["entries"] == again.arrays()["entries"]).all()


def test_it_begins_from_given_topics(device):
    X = _corpus()
    model = (X, 60, *_priors(60, X.shape[1]), 5)
    donor, state = (LightCudaState(*model, n_groups=3, device=device) for _ in range(2))
    _after(donor, 2)
    state.begin_from(donor.topics)
    assert (state._on_device.get("topics") == donor.topics).all()
    assert _tables(state) == _counts(state)


def test_priors_are_fitted_and_told_to_the_device(device):
    X = _corpus(20, 60)
    alpha, beta = _priors(8, X.shape[1])
    state = LightCudaState(X, 8, alpha, beta, 3, n_groups=2, fits_priors=True, device=device)
    _after(state, 21)
    assert np.ptp(state.alpha) > 0
    assert (device.get(state._on_device._alpha[0]) == state.alpha).all()
    assert (device.get(state._on_device._beta[0]) == state.beta).all()
    assert state.beta[0] != beta[0]


def test_too_little_memory_is_told_before_any_work(monkeypatch, device):
    X = _corpus()
    monkeypatch.setattr(device, "free_memory", lambda: 2**28 + 1000)
    with pytest.raises(
        DataError, match=r"X and its topics take 0\.\d GB on a GPU, and .* has 0\.0 GB to spare"
    ):
        LightCudaState(X, 60, *_priors(60, X.shape[1]), 5, device=device)


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [([300] * 300_000, 1024), ([100] * 100, 17), ([10_000, *[10] * 1000], 2), ([5], 1), ([0], 1)],
)
def test_number_of_groups(lengths, groups):
    assert number_of_groups(np.array(lengths)) == groups


# Through the estimator ------------------------------------------------------------------------------------


def _lda(n_components=5, **options):
    given = {"sampler": "light", "device": "cuda", "random_state": 0, "max_iter": 3} | options
    return sd.LatentDirichletAllocation(n_components, **given)


def test_topics_of_a_corpus_are_found(device):
    X, topic_word, _ = make_lda_corpus(
        150, 80, 3, mean_length=40, n_common_words=1, word_spread=0.05, random_state=1
    )
    with standing_in(device):
        lda = _lda(3, max_iter=24).fit(X)
    assert lda.sampler_[0]["name"] == "light"
    assert lda.doc_topic_counts_.sum() == X.sum() == lda.word_topic_counts_.sum()
    likeness = topic_word @ lda.topic_word_.T
    likeness /= np.linalg.norm(topic_word, axis=1)[:, None] * np.linalg.norm(lda.topic_word_, axis=1)
    rows, columns = linear_sum_assignment(-likeness)
    assert likeness[rows, columns].min() > 0.98
    on_cpu = _lda(3, max_iter=24, device="cpu").fit(X)
    assert lda.log_likelihood_[-1] == pytest.approx(on_cpu.log_likelihood_[-1], rel=0.01)


def test_exact_fits_are_those_of_the_cpu(device):
    X = _corpus(15, 40)
    with standing_in(device):
        lda = _lda(exact=True).fit(X)
    assert (lda.components_ == _lda(exact=True, device="cpu").fit(X).components_).all()


def test_a_checkpoint_goes_on_and_is_not_that_of_the_cpu(device, tmp_path):
    X = _corpus(15, 40)
    with standing_in(device):
        cut = _lda(checkpoint=tmp_path, max_iter=12).fit(X, callback=lambda info: info.round == 10)
        assert cut.n_iter_ == 10
        again = _lda(checkpoint=tmp_path, max_iter=12).fit(X)
        assert again.n_iter_ == 12
        assert (again.components_ == _lda(max_iter=12).fit(X).components_).all()
    with pytest.raises(CheckpointMismatch):
        _lda(checkpoint=tmp_path, device="cpu", max_iter=12).fit(X)


def test_topics_at_hand_reach_their_own_tokens(device):
    X = _corpus()
    model = (X, 60, *_priors(60, X.shape[1]), 5)
    other = LightState(*model, n_groups=2)
    state = LightCudaState(*model, n_groups=5, device=device)
    assert (state.order != other.order).any()
    state.begin_from(other.topics_for(state))
    assert (state.doc_topic_counts() != other.doc_topic_counts()).nnz == 0
    assert (state.word_topic_counts() != other.word_topic_counts()).nnz == 0
    with standing_in(device):
        lda = _lda(warm_start=True).fit(X)
        assert lda.fit(X).doc_topic_counts_.sum() == X.sum()


@pytest.mark.parametrize("sampler", ["auto", "gibbs", "warp"])
def test_other_samplers_do_not_run_there(sampler):
    with pytest.raises(DataError, match=r"device='cuda' with sampler=.*: set sampler='saber' or 'light'"):
        _lda(sampler=sampler).fit(_corpus(15, 40))


def test_auto_leaves_light_to_the_cpu():
    device = EmulatedDevice()
    with standing_in(device):
        _lda(device="auto").fit(_corpus(15, 40))
    assert device.launches == []


# Sanitizers -----------------------------------------------------------------------------------------------

SANITIZED = """
import sys
import numpy as np
from cuda_emulator import EmulatedDevice
from stradask.kernels.lda_light_cuda import LightOnDevice
arrays = dict(np.load(sys.argv[2]))
shift, alpha, beta = int(arrays.pop("shift")), arrays.pop("alpha"), arrays.pop("beta")
corpus = LightOnDevice(EmulatedDevice(sanitize=sys.argv[1]), arrays, shift, 7, [0, 11, 20])
corpus.set_alpha(alpha, np.empty(0, np.int64), np.empty(0, np.uint32))
corpus.set_beta(beta, beta.sum())
corpus.sweep(2, 1, 7, 0)
print("ended", (corpus.get("topics") != arrays["topics"]).sum() > 0, file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("which", ["address", "thread"])
def test_a_sanitizer_has_nothing_against_it(which, tmp_path):
    X = _corpus(20, 60)
    alpha, beta = _priors(40, X.shape[1])
    state = LightCudaState(X, 40, alpha, beta, 1, n_groups=7, device=EmulatedDevice())
    assert len(state.common_words) > 0
    np.savez(
        tmp_path / "a.npz", **state._arrays_of_device(), shift=state.documents.shift, alpha=alpha, beta=beta
    )
    said = sanitized(which, SANITIZED, which, tmp_path / "a.npz")
    if said is None:
        pytest.skip(f"the C++ compiler has no {which} sanitizer")
    assert said == "ended True\n"
