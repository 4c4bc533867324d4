"""LightLDA on a GPU: the moves of the CPU bit for bit, on the emulator, in any order of lanes and blocks."""

import numpy as np
import pytest
from cuda_emulator import MISSING, EmulatedDevice

from stradask.algorithms.topics.light import LightState
from stradask.algorithms.topics.light_cuda import LightCudaState, number_of_groups
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError
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
    return state


@pytest.mark.parametrize("n_groups", [1, 2, 7])
@pytest.mark.parametrize(("n_topics", "skewed"), [(3, False), (20, True), (500, False), (70_000, True)])
def test_topics_are_those_of_the_cpu(n_topics, skewed, n_groups):
    X = _corpus()
    model = (X, n_topics, *_priors(n_topics, X.shape[1], skewed), 12345)
    expected = _after(LightState(*model, n_groups=n_groups, live=n_groups == 1), 3)
    for seed in (0, 3):
        state = LightCudaState(*model, n_groups=n_groups, device=EmulatedDevice(seed))
        _after(state, 3)
        state._to_host()
        assert (state.topics == expected.topics).all()
        assert (state.totals == expected.totals).all()
        assert (state.doc_topic_counts() != expected.doc_topic_counts()).nnz == 0
