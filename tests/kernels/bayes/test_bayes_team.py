"""Threads in one evaluation: whoever does a block, and whoever is lost, the bits are those of one thread."""

import threading
import weakref

import numpy as np
import pytest

from stradask.algorithms.bayes.chains import sampling
from stradask.algorithms.bayes.chains.sampling import Team, team_for
from stradask.algorithms.bayes.models.model import regression
from stradask.kernels.bayes.densities import logistic as bayes_logistic
from stradask.kernels.bayes.team import BLOCKS, LEADER, LINE, ROUND, done_by, publish, take

ROWS = 3 * 7680 + 100  # four blocks in double precision, two in single


@pytest.fixture(scope="module", params=[np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def model(request):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 3)).astype(request.param)
    return regression("bernoulli", X, np.where(rng.random(ROWS) < 0.3, 1.0, -1.0))


def evaluated(model, n):
    Q = np.random.default_rng(1).standard_normal((4, 3))
    G, logps = np.full((4, 3), np.nan), np.full(4, np.nan)
    model.together(n, Q, G, logps, model.data, model.meta)
    return np.column_stack([G, logps])[:n]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_leader_alone_has_the_bits_of_no_team(model, n):
    crew = Team(model, 3)
    for state in (0, -1):  # begun, and closed
        crew._control[ROUND] = state
        np.testing.assert_array_equal(evaluated(crew.model, n), evaluated(model, n))
    assert crew._control[ROUND] == -1


@pytest.mark.parametrize("n", [1, 3, 4])
def test_a_block_that_another_took_and_never_did_is_done_anew(model, n):
    crew = Team(model, 2)
    lost = 1 << 16 | 1 << 2 | 1  # taken in the first evaluation by the helper
    crew._control[ROUND], crew._control[BLOCKS * LINE] = 0, lost
    np.testing.assert_array_equal(evaluated(crew.model, n), evaluated(model, n))
    assert crew._control[BLOCKS * LINE] != lost


def test_helpers_do_what_the_leader_has_not_taken(model):
    """In turns, on one thread: the helper comes first, and all blocks are its own."""
    crew = Team(model, 2)
    crew._control[ROUND] = 0
    meta, data = crew.model.meta, crew.model.data
    control, kind = meta[bayes_logistic.TEAM], np.empty(0, model_type(model))
    X = data.ctypes.data + 8 * meta[bayes_logistic.START]
    coefs = np.random.default_rng(2).standard_normal((3, 4)).astype(kind.dtype)
    bayes_logistic._shared(LEADER, 0, 4, kind, meta)[0][:] = coefs
    number = publish(control, 4)
    bayes_logistic.take_blocks(1, number, 4, kind, X, meta)
    many = bayes_logistic.n_blocks(kind, meta)
    assert [done_by(control, block, number) for block in range(many)] == [1] * many
    assert not take(control, 0, number, LEADER)
    ours, theirs = [], []
    for who, into in ((1, theirs), (LEADER, ours)):
        if who == LEADER:
            number = publish(control, 4)
            bayes_logistic.take_blocks(LEADER, number, 4, kind, X, meta)
        into.extend(bayes_logistic._shared(who, block, 4, kind, meta)[1].copy() for block in range(many))
    np.testing.assert_array_equal(ours, theirs)


def model_type(model):
    return np.float32 if model.density is bayes_logistic.logistic32 else np.float64


def test_a_run_lets_helpers_go_though_it_fails(model):
    crew = Team(model, 3)
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        crew.run(lambda: 1 / 0)
    assert crew._control[ROUND] == -1
    assert evaluated(crew.model, 4).tolist() == evaluated(model, 4).tolist()
    assert crew.run(lambda: evaluated(crew.model, 4).tolist()) == evaluated(model, 4).tolist()
    assert threading.active_count() <= before + 2  # of the pool, which wait


def test_threads_change_no_bit_of_a_run(model, monkeypatch):
    monkeypatch.setattr(sampling, "_LEAST_BLOCKS", 1)
    made = []
    monkeypatch.setattr(sampling, "team_for", lambda *args: made.append(team_for(*args)) or made[-1])
    settings = {"n_samples": 12, "n_warmup": 25, "n_chains": 3, "seed": 3}
    one, two = (sampling.sample_model(model, "nuts", n_jobs=n_jobs, **settings) for n_jobs in (1, 2))
    assert made[0] is None
    assert isinstance(made[1], Team)
    np.testing.assert_array_equal(two.stacked(), one.stacked())
    np.testing.assert_array_equal(two.stacked("gradients"), one.stacked("gradients"))


def test_a_model_keeps_what_it_has_the_addresses_of(model):
    crew = Team(model, 2)
    control = weakref.ref(crew._control)
    alone = crew.model
    del crew
    assert control() is not None
    np.testing.assert_array_equal(evaluated(alone, 4), evaluated(model, 4))


def test_a_team_is_for_many_rows(model):
    assert team_for(model, 2) is None
    assert team_for(model, 1) is None
