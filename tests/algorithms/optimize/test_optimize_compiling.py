"""Seconds of minimisers leave out those in which numba compiles."""

import itertools
import time

import numpy as np
import pytest
from numba.core import event

from stradask.algorithms.optimize.downpour import minimize_downpour
from stradask.algorithms.optimize.methods import lbfgs
from stradask.algorithms.optimize.methods.lbfgs import minimize_lbfgs
from stradask.algorithms.optimize.minimize import minimize
from stradask.algorithms.optimize.watch import Watch
from stradask.scheduler import compiling, loop, progress, run_replicas
from stradask.scheduler.table import table

COMPILING = 1000.0  # seconds, by a clock that an event of numba puts forward


class Clock:
    """Stands for the module time, whose real seconds are none beside those of compiling."""

    def __init__(self):
        self.compiled = 0.0

    def perf_counter(self):
        return time.perf_counter() + self.compiled

    def monotonic(self):
        return time.monotonic() + self.compiled


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    for module in (compiling, lbfgs, loop, progress, table):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def compiles(clock):
    """Make a least squares loss in whose `at`-th call numba compiles something."""

    def make(at):
        calls = itertools.count(1)

        def loss(rows, w):
            if next(calls) == at:
                with event.trigger_event("numba:compile"):
                    clock.compiled += COMPILING
            missed = rows @ w - 1
            return float(missed @ missed) / 2, rows.T @ missed

        return loss

    return make


ROWS = np.random.default_rng(0).standard_normal((40, 3))


@pytest.mark.parametrize("at", [1, 3])
def test_seconds_of_lbfgs(compiles, at):
    loss = compiles(at)
    seconds = minimize_lbfgs(lambda x: loss(ROWS, x), np.zeros(3)).history["seconds"]
    assert (np.diff(seconds) >= 0).all()
    assert seconds[-1] < COMPILING / 2


def test_seconds_of_several_minimisations_in_one_trace(compiles):
    trace = lbfgs.Trace()
    for loss in (compiles(2), compiles(2)):
        minimize_lbfgs(lambda x, loss=loss: loss(ROWS, x), np.zeros(3), history=trace)
    seconds = trace.as_dict()["seconds"]
    assert (np.diff(seconds) >= 0).all()
    assert seconds[-1] < COMPILING / 2


def test_seconds_of_minimize(compiles):
    found = minimize(compiles(4), np.zeros(3), [ROWS[:20], ROWS[20:]])
    assert found.history["seconds"][-1] < COMPILING / 2


@pytest.mark.parametrize("at", [1, 40])
def test_seconds_of_downpour_and_of_its_watch(compiles, at):
    with Watch(20, label="fit") as watch:
        found = minimize_downpour(
            compiles(at), np.zeros(3), [ROWS], learning_rate=0.1, warm_steps=2, batch_size=10, max_epochs=30,
            random_state=0, callback=watch,
        )  # fmt: skip
    assert watch.history.as_dict()["seconds"].sum() < COMPILING / 2
    assert found.history["seconds"][-1] < COMPILING / 2


def test_seconds_of_a_table(compiles):
    def work(table, task):
        compiles(1)(ROWS, np.zeros(3))
        return table.seconds

    assert run_replicas(work, [0], np.zeros((1, 2))).results[0] < COMPILING / 2


def test_the_display_says_that_it_compiles(compiles, capfd):
    minimize(compiles(2), np.zeros(3), [ROWS], verbose=1)
    assert "minimize: compiling" in capfd.readouterr().err
