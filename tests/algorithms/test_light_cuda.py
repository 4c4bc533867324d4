"""LightLDA on a GPU: the moves of the CPU bit for bit, on the emulator, in any order of lanes and blocks."""

import numpy as np
import pytest
from cuda_emulator import MISSING, EmulatedDevice

from stradask.algorithms.topics.light import _SWEEP, LightState
from stradask.algorithms.topics.light_cuda import LightCudaState, number_of_groups
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError
from stradask.kernels import lda_light
from stradask.scheduler.engine import run

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


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


def _on_the_cpu(state, common_words, group_words, sweeps):
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
        lda_light.sweep_common(common_words, *corpus, *documents, *words, *model, n_groups)
        for step in range(n_groups):
            state.totals += changes if len(changes) else 0
            changes[:] = 0
            for g in range(n_groups):
                part = (group_words[(g + step) % n_groups], state.bounds[g], state.bounds[g + 1])
                lda_light.sweep(*part, *corpus, *documents, *words, *model, g)
        state.totals += changes if len(changes) else 0
        lists.tidy(0, len(state.lengths))
    return state


@pytest.mark.parametrize("n_groups", [1, 2, 7])
@pytest.mark.parametrize(("n_topics", "skewed"), [(3, False), (20, True), (500, False), (70_000, True)])
def test_topics_are_those_of_the_cpu(n_topics, skewed, n_groups):
    X = _corpus()
    model = (X, n_topics, *_priors(n_topics, X.shape[1], skewed), 12345)
    state = _after(LightCudaState(*model, n_groups=n_groups, device=EmulatedDevice()), 3)
    assert len(state.common_words) > 0 or n_groups < 7
    expected = LightState(*model, n_groups=n_groups)
    _on_the_cpu(expected, state.common_words, state.group_words, 3)
    assert (state.topics == expected.topics).all()
    assert (state.totals == expected.totals).all()
    assert (state.totals == np.bincount(state.topics, minlength=n_topics)).all()
    assert (state.doc_topic_counts() != expected.doc_topic_counts()).nnz == 0
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


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_order_of_lanes_and_blocks_gives_the_same_topics(seed):
    X = _corpus()
    model = (X, 300, *_priors(300, X.shape[1], True), 6)
    topics = [
        _after(LightCudaState(*model, n_groups=7, device=EmulatedDevice(s)), 2).topics for s in (0, seed)
    ]
    assert (topics[0] == topics[1]).all()
