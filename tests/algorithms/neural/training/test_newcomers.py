"""Places of a network move to workers that join, with all that they hold."""

import time

import numpy as np
import pytest

from stradask.algorithms.neural.training.optimizers import Adam
from stradask.algorithms.neural.training.program import Training
from stradask.algorithms.neural.training.stage import DenseStage
from stradask.scheduler import run
from stradask.scheduler.schedules.pipeline import Layout, PipelineSchedule
from stradask.scheduler.workers import open_session


def train(engine, callback=None):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6), np.float32)
    layout = Layout((2, 1), 4, 3)
    stages = [DenseStage((6, 9), "tanh", begins=True), DenseStage((9, 2), "tanh", 1, ends=True)]
    rows = X, (X[:, 0] > 0).astype(np.int64)
    program = Training(stages, layout, rows, loss="softmax", optimizer=Adam(0.01), seed=1)
    run(program, PipelineSchedule(layout), max_rounds=12, engine=engine, callback=callback)
    return program


@pytest.mark.cluster
def test_places_move_to_a_worker_that_joins():
    import distributed

    homes = []
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        session = open_session(cluster.scheduler_address)

        def join(info):
            homes.append(list(session.shard_at))
            if info.round == 2:
                cluster.scale(2)
                client.wait_for_workers(2, timeout=60)
            end = time.monotonic() + 60
            while info.round == 5 and not session.moves.ready and len(session.threads) < 2:
                assert time.monotonic() < end
                time.sleep(0.01)

        found = train(session, join)
    assert len(set(homes[0])) == 1
    assert sorted(map(homes[-1].count, set(homes[-1]))) == [1, 2]
    assert homes[-1] == homes[-2]  # a third place needs no third worker
    for one, other in zip(found.held, train("local").held, strict=True):
        np.testing.assert_array_equal(one["params"], other["params"])
        np.testing.assert_array_equal(one["slots"], other["slots"])
