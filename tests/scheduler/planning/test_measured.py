"""The measured link: a clock that goes on by known times, and workers."""

import numpy as np
import pytest

from stradask.scheduler.planning import measure_link, measured
from stradask.scheduler.planning.measured import _SIZES, _Trips


def test_known_times_are_found(monkeypatch):
    """Each hop takes 5 ms, 1 ms of it computing, and 40 ms with the large block: 4 MB in 35 ms."""
    note, now = _Trips.update, {"seconds": 0.0, "computing": 0.0}

    def hop(self, state, task):
        now["seconds"] += 0.005 if task.blocks == 0 else 0.040
        now["computing"] += 0.001
        note(self, state, task)

    class Clock:
        perf_counter = staticmethod(lambda: now["seconds"])
        process_time = staticmethod(lambda: now["computing"])

    monkeypatch.setattr(_Trips, "update", hop)
    monkeypatch.setattr(measured, "time", Clock)
    link = measure_link("local")
    assert link.latency == pytest.approx(0.005)
    assert link.bandwidth == pytest.approx((_SIZES[1] - _SIZES[0]) / 0.035)
    assert link.cpu == pytest.approx(0.001)


@pytest.mark.cluster
def test_workers_have_a_link(address):
    link = measure_link(address)
    assert 0 < link.cpu <= link.latency < 1
    assert np.isfinite(link.bandwidth)
    assert link.bandwidth > 1e6
