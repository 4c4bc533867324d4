"""LightLDA on a GPU: the moves of the CPU bit for bit, on the emulator and, where there is one, on a GPU."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from cuda_devices import KINDS, device_of, emulated
from cuda_emulator import EmulatedDevice, sanitized
from lda_chains import Chain, Tokens
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import stradask as sd
from stradask.algorithms._streams import Purpose
from stradask.algorithms.topics.blocks.groups import MOST_OF_A_WORD
from stradask.algorithms.topics.samplers.light_cuda import (
    LightCudaState,
    number_of_groups,
    number_of_sections,
    plan_for,
    plans_of,
)
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import CheckpointMismatch, DataError, DeviceError, ModelFileError
from stradask.kernels.cuda.device import standing_in
from stradask.kernels.lda import light as lda_light
from stradask.scheduler.engine import run
from stradask.scheduler.program import Task

FOLDERS = [Path(__file__).parent, Path(__file__).parents[3] / "problems"]  # of what the script imports


@pytest.fixture(params=KINDS)
def device(request):
    return device_of(request.param)


def _corpus(n_documents=40, n_words=120, mean_length=50, seed=0):
    X, *_ = make_lda_corpus(n_documents, n_words, 5, mean_length=mean_length, random_state=seed)
    return X.tocsr()


def _priors(n_topics, n_words, skewed=False):
    alpha = np.linspace(0.02, 0.3, n_topics) if skewed else np.full(n_topics, 0.1)
    return alpha, np.linspace(0.01, 0.05, n_words) if skewed else np.full(n_words, 0.01)


def _after(state, sweeps):
    run(state, state.schedule, max_rounds=sweeps)
    return state


def _settle(totals, changes):
    if len(changes):
        totals += changes
        changes[:] = 0


def _on_the_cpu(state, there, sweeps):
    """Move the tokens of a state of the CPU as a GPU does, by the functions of `kernels.lda_light`."""
    lists, G, layout = state.documents, there.n_groups, there._there.layout
    live = G == 1
    corpus = (state.word_start, state.token_doc, state.topics)
    documents = (lists.entries, lists.line_start, lists.n_lines, lists.shift, state.lengths)
    for round_ in range(sweeps):
        beta, beta_sum = state.priors.beta_of(round_)
        alpha = (state.alpha, state.alpha.sum(), state.aliases, state.limits)
        model = (*alpha, beta, beta_sum, state.n_steps, state.seed, Purpose.LIGHT_SWEEP.value, round_)
        changes = np.zeros(0 if live else state.n_topics, np.int64)
        words = (state.row_of_word, state.rows, state.totals, changes)
        for s in range(there.n_sections):
            for first, last in itertools.pairwise(layout.parts[s]):
                part = (there.common_words, first, last)
                lda_light.sweep_common(*part, *corpus, *documents, *words, *model, G * there.n_sections)
                _settle(state.totals, changes)
            for step in range(G):
                for g in range(s * G, (s + 1) * G):
                    part = (there.group_words[(g + step) % G], state.bounds[g], state.bounds[g + 1])
                    lda_light.sweep(*part, *corpus, *documents, *words, *model, g)
                _settle(state.totals, changes)
            lists.tidy(*layout.cuts[s : s + 2])
    return state


def _same(state, expected):
    assert (state.topics == expected.topics).all()
    assert (state.totals == expected.totals).all()
    assert (state.totals == np.bincount(state.topics, minlength=state.n_topics)).all()
    assert (state.doc_topic_counts() != expected.doc_topic_counts()).nnz == 0
    assert (state.word_topic_counts() != expected.word_topic_counts()).nnz == 0
    assert state.joint_log_likelihood() == pytest.approx(expected.joint_log_likelihood(), rel=1e-12)


@pytest.mark.parametrize(
    ("n_topics", "skewed", "n_groups", "n_sections"),
    [
        (3, False, 2, 1),
        (20, True, 7, 1),
        (500, False, 7, 1),
        *(
            pytest.param(n_topics, skewed, n, 1, marks=pytest.mark.slow)
            for n_topics, skewed, n in (
                (3, False, 1),
                (3, False, 7),
                (20, True, 1),
                (20, True, 2),
                (500, False, 1),
                (500, False, 2),
            )
        ),
        (20, True, 1, 4),
        pytest.param(500, False, 2, 3, marks=pytest.mark.slow),
        (20, True, 7, 12),  # some sections have no document
        pytest.param(70_000, True, 7, 1, marks=pytest.mark.slow),
        pytest.param(2**20, False, 4, 2, marks=pytest.mark.slow),
    ],
)
def test_topics_are_those_of_the_cpu(n_topics, skewed, n_groups, n_sections, device):
    X = _corpus()
    model = (X, n_topics, *_priors(n_topics, X.shape[1], skewed), 12345)
    options = {"annealed": 0 if skewed else 2}
    groups = {"n_groups": n_groups, "n_sections": n_sections}
    state = _after(LightCudaState(*model, device=device, **groups, **options), 3)
    assert len(state.common_words) > 0 or n_groups < 7
    expected = Tokens(*model, n_groups=n_groups * n_sections, **options)
    _same(state, _on_the_cpu(expected, state, 3))


@pytest.mark.slow
@pytest.mark.parametrize("n_topics", [100, 1000, 10_000])
def test_a_hundred_thousand_tokens_are_moved_as_on_the_cpu(n_topics, device):
    """In as many groups as the corpus has for a GPU."""
    X = _corpus(1000, 3000, mean_length=100, seed=1)
    model = (X, n_topics, *_priors(n_topics, X.shape[1], True), 7)
    state = _after(LightCudaState(*model, device=device), 1)
    assert state.n_groups > 40
    assert len(state.common_words) > 10
    _same(state, _on_the_cpu(Tokens(*model, n_groups=state.n_groups), state, 1))


@emulated
@pytest.mark.parametrize("lazy", [0b001, 0b010, 0b100, 0b101])
def test_sections_that_take_turns_are_as_those_that_stay(lazy, monkeypatch):
    """Whichever of the streams of kernels, of copies in and of copies out is late."""
    X = _corpus()
    model = (X, 60, *_priors(60, X.shape[1], True), 9)
    whole = _after(LightCudaState(*model, n_groups=2, n_sections=5, device=EmulatedDevice()), 2)
    monkeypatch.setattr("stradask.algorithms.topics.samplers.light_cuda.plan_for", lambda *a: a[-1][1])
    state = LightCudaState(*model, n_groups=2, n_sections=5, device=EmulatedDevice(lazy=lazy))
    assert (whole._there.chunks.resident, state._there.chunks.resident) == (True, False)
    assert len(state._there.chunks) == 5
    _same(_after(state, 2), whole)
    again = LightCudaState(*model, n_groups=2, n_sections=5, device=EmulatedDevice(lazy=lazy))
    again.restore({name: np.array(array) for name, array in state.arrays().items()})
    _same(again, whole)
    for each in (whole, again):
        each.update({}, Task(2, 0, 0, 0))
    assert (again.topics == whole.topics).all()


@emulated
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
    expected = Chain(*model, sampler="light", exact=True)
    for round_ in range(3):
        expected.sweep(round_)
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


@emulated
def test_lists_that_are_not_of_the_topics_are_refused():
    X = _corpus()
    model = (X, 60, *_priors(60, X.shape[1], True), 5)
    state = LightCudaState(*model, n_groups=3, device=EmulatedDevice())
    kept = {name: np.array(array) for name, array in state.arrays().items()}
    shift = state.list_layout.shift
    held = np.flatnonzero(kept["entries"])
    harms = {
        "another topic": lambda e: e.__setitem__(held[3], e[held[3]] ^ (1 << shift)),
        "a count more": lambda e: e.__setitem__(held[3], e[held[3]] + 1),
        "no topic": lambda e: e.__setitem__(held[3], 60 << shift | 1),
    }
    for harm in harms.values():
        entries = kept["entries"].copy()
        harm(entries)
        with pytest.raises(ModelFileError, match="the checkpoint's lists do not fit its topics"):
            state.restore(kept | {"entries": entries})
    for name in ("entries", "n_lines"):
        with pytest.raises(ModelFileError, match="the checkpoint's lists do not fit its topics"):
            state.restore(kept | {name: kept[name][:-1]})
        with pytest.raises(ModelFileError, match=f"lacks the array '{name}'"):
            state.restore({other: array for other, array in kept.items() if other != name})
    state.restore(kept)


def test_it_begins_from_given_topics(device):
    X = _corpus()
    model = (X, 60, *_priors(60, X.shape[1]), 5)
    donor, state = (LightCudaState(*model, n_groups=3, device=device) for _ in range(2))
    _after(donor, 2)
    state.begin_from(donor.topics)
    assert (state._there.topics() == donor.topics).all()
    assert (state.word_topic_counts() != donor.word_topic_counts()).nnz == 0


def test_priors_are_fitted_and_told_to_the_device(device):
    X = _corpus(20, 60)
    alpha, beta = _priors(8, X.shape[1])
    state = LightCudaState(X, 8, alpha, beta, 3, n_groups=2, fits_priors=True, device=device)
    _after(state, 21)
    assert np.ptp(state.alpha) > 0
    assert (device.get(state._there.alpha[0]) == state.alpha).all()
    assert (device.get(state._there.beta[0]) == state.beta).all()
    assert state.beta[0] != beta[0]


def test_too_little_memory_is_told_before_any_work(monkeypatch, device):
    X = _corpus()
    monkeypatch.setattr(device, "free_memory", lambda: 2**28 + 1000)
    with pytest.raises(
        DeviceError,
        match=r"has 1,000 bytes .*; 60 topics of this corpus take [\d,]+ even in 1 chunks: .*'cpu'",
    ):
        LightCudaState(X, 60, *_priors(60, X.shape[1]), 5, device=device)


def test_a_word_of_more_tokens_than_a_warp_can_step_over_is_refused_before_any_work():
    assert np.iinfo(np.int32).max == MOST_OF_A_WORD + 31
    X, device = sparse.csr_array(np.array([[2**30, 1], [2**30 - 31, 1]])), EmulatedDevice()
    with pytest.raises(
        DataError,
        match=r"word 0 of X has 2,147,483,617 tokens: counts of a word go up to 2,147,483,616; leave",
    ):
        LightCudaState(X, 5, *_priors(5, 2), 1, device=device)
    assert device.launches == []
    assert device.free_memory() == device.memory


@emulated
@pytest.mark.parametrize(("n_groups", "n_sections"), [(1, 1), (7, 1), (2, 5), (7, 3)])
def test_what_a_plan_says_is_what_is_taken(n_groups, n_sections):
    X = _corpus(400, 300)
    lengths, frequency = (np.asarray(X.sum(axis=axis, dtype=np.int64)).ravel() for axis in (1, 0))
    plans = plans_of(lengths, frequency, 30, n_groups, n_sections)
    for plan in plans[:n_sections]:
        device = EmulatedDevice(memory=2**28 + plan.n_bytes)
        device.zone = 0
        assert plan_for(device.memory, "", 30, n_sections, plans) == plan
        state = LightCudaState(
            X, 30, *_priors(30, 300), 5, device=device, n_groups=n_groups, n_sections=n_sections
        )
        assert state._there.chunks.resident == plan.resident
        held = device.memory - device.free_memory()
        assert 0.75 * plan.n_bytes < held <= plan.n_bytes
    with pytest.raises(DeviceError, match=f"even in {n_sections} chunks"):
        plan_for(2**28 + plans[-1].n_bytes - 1, "", 30, n_sections, plans)


@pytest.mark.parametrize(
    ("lengths", "groups"),
    [
        ([300] * 300_000, 1024),
        ([100] * 100, 17),
        ([10_000, *[10] * 1000], 2),
        ([2**25, *[2**15] * 3072], 1),
        ([5], 1),
        ([0], 1),
    ],
)
def test_number_of_groups(lengths, groups):
    assert number_of_groups(np.array(lengths)) == groups


def test_a_section_has_work_for_a_gpu():
    assert [number_of_sections(np.array([n])) for n in (0, 2**26 - 1, 2**26, 10**8, 10**9)] == [
        1,
        1,
        2,
        2,
        29,
    ]


# Through the estimator ------------------------------------------------------------------------------------


def _lda(n_components=5, **options):
    given = {"sampler": "light", "device": "cuda", "random_state": 0, "max_iter": 3} | options
    return sd.LatentDirichletAllocation(n_components, **given)


@pytest.mark.slow
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
    other = Tokens(*model, n_groups=2)
    state = LightCudaState(*model, n_groups=5, device=device)
    assert (state.order != other.order).any()
    state.begin_from_tokens(other.words, other.docs, other.topics)
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
from test_light_cuda import _after, _corpus, _priors
from stradask.algorithms.topics.samplers.light_cuda import LightCudaState
from stradask.kernels.lda import light_chunks
light_chunks.PARTS = 2  # a thread sanitizer keeps something of every thread of a launch
X, device = _corpus(20, 60), EmulatedDevice(sanitize=sys.argv[1])
state = LightCudaState(X, 40, *_priors(40, 60), 1, n_groups=7, n_sections=1, device=device)
assert len(state.common_words) > 0
_after(state, 1)
if sys.argv[1] == "address":
    state.joint_log_likelihood()
print("ended", (state.topics == np.load(sys.argv[2])).all(), file=sys.stderr)
"""


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("which", ["address", "thread"])
def test_a_sanitizer_has_nothing_against_it(which, tmp_path, monkeypatch):
    monkeypatch.setattr("stradask.kernels.lda.light_chunks.PARTS", 2)
    options = {"n_groups": 7, "n_sections": 1, "device": EmulatedDevice()}
    state = LightCudaState(_corpus(20, 60), 40, *_priors(40, 60), 1, **options)
    np.save(tmp_path / "topics.npy", _after(state, 1).topics)
    said = sanitized(
        which,
        SANITIZED,
        which,
        tmp_path / "topics.npy",
        folders=FOLDERS,
    )
    if said is None:
        pytest.skip(f"the C++ compiler has no {which} sanitizer")
    assert said == "ended True\n"
