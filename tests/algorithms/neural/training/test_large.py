"""A network that needs three times the memory of a worker, on four workers whose nannies enforce it."""

import itertools
import os

import numpy as np
import pytest

from stradask.algorithms.neural.training.optimizers import SGD
from stradask.algorithms.neural.training.program import Training
from stradask.algorithms.neural.training.stage import DenseStage
from stradask.benchmarks.runs.worker import memory_now, peak_memory, reset_peak_memory
from stradask.scheduler import run
from stradask.scheduler.schedules.pipeline import Layout, PipelineSchedule

LIMIT = 1_600_000_000
WIDTH, EDGES = 5010, (0, 5, 9, 13, 18)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_a_network_of_three_times_a_workers_memory_is_trained_on_four(tmp_path):
    import distributed

    class OnWorkers(Training):
        """Training whose result stays in the checkpoint that workers write."""

        def collect(self, ask):
            """Gather nothing."""

    layout, sizes = Layout((1,) * 4, n_micro=2, n_steps=2), (32, *[WIDTH] * 17, 4)
    stages = [
        DenseStage(sizes[a : b + 1], "tanh", a, begins=not a, ends=b == EDGES[-1])
        for a, b in itertools.pairwise(EDGES)
    ]
    n_parameters = sum(stage.network.n_parameters for stage in stages)
    assert 3 * 4 * n_parameters > 3 * LIMIT  # parameters, gradient and momentum
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((32, sizes[0]), np.float32), rng.integers(0, 4, 32)
    program = OnWorkers(stages, layout, (X, y), loss="softmax", optimizer=SGD(0.01, 0.9), seed=1)
    with (
        distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        before = client.run(os.getpid)
        reset_peak_memory()
        began = memory_now()
        done = run(
            program,
            PipelineSchedule(layout),
            max_rounds=3,
            engine="dask",
            checkpoint=tmp_path.as_uri(),
            checkpoint_every=100,
        )
        grown = peak_memory() - began
        assert client.run(os.getpid) == before  # no nanny has ended a worker
        peaks = client.run(peak_memory)
    assert grown < 100  # MB of this process
    assert 2**20 * max(peaks.values()) < LIMIT
    losses = done.history.as_dict()["objective"]
    assert losses[-1] < losses[0]
    written = sum(path.stat().st_size for path in tmp_path.glob("*/shard-*.npz"))
    assert written > 2 * 4 * n_parameters
