"""The loss of a worker: the fit goes on until as many as before have work."""

import threading
from types import SimpleNamespace

from stradask.benchmarks.experiments.recovery_workers import OneLoss


def test_a_fit_ends_when_the_newcomer_has_work():
    watch = OneLoss(SimpleNamespace(run=lambda function: {"a": 0, "b": 0}), 2)
    killed = threading.Event()
    watch._kill = lambda pid: (watch.note("kill"), killed.set())
    ended = []
    for number in range(60):
        lost = any(what == "kill" for what, _ in watch.marks)
        watch.places.append({"a"} if lost and number < 40 else {"a", "b"})
        ended.append(watch.epoch(SimpleNamespace(round=number)))
        if not watch.left and not lost:
            assert killed.wait(10)
        if ended[-1]:
            break
    assert watch.n_rounds == 40
    assert watch.whole is not None
