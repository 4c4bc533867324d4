"""Seconds of minimisers leave out those in which numba compiles."""

import time

import numba
import numpy as np
import pytest

from stradask.algorithms.optimize.downpour import minimize_downpour
from stradask.algorithms.optimize.methods.lbfgs import Trace, minimize_lbfgs
from stradask.algorithms.optimize.minimize import minimize
from stradask.algorithms.optimize.watch import Watch
from stradask.scheduler import run_replicas


class Compiles:
    """A least squares loss that compiles something anew in its `at`-th call, and how long that took."""

    def __init__(self, at):
        self.at, self.calls, self.seconds = at, 0, 0.0

    def __call__(self, rows, w):
        self.calls += 1
        if self.calls == self.at:
            began = time.perf_counter()
            numba.njit(lambda x: np.sort(x * x).sum())(np.arange(3.0))
            self.seconds = time.perf_counter() - began
        missed = rows @ w - 1
        return float(missed @ missed) / 2, rows.T @ missed


ROWS = np.random.default_rng(0).standard_normal((40, 3))


def leaves_out(wall, seconds, compiling):
    """A minimisation of three numbers takes far less than the compiler, whose own start is not its work."""
    assert compiling > 0.05
    assert seconds < wall - 0.8 * compiling


@pytest.mark.parametrize("at", [1, 3])
def test_seconds_of_lbfgs(at):
    loss, began = Compiles(at), time.perf_counter()
    found = minimize_lbfgs(lambda x: loss(ROWS, x), np.zeros(3))
    leaves_out(time.perf_counter() - began, found.history["seconds"][-1], loss.seconds)
    assert (np.diff(found.history["seconds"]) >= 0).all()


def test_seconds_of_several_minimisations_in_one_trace():
    trace, began = Trace(), time.perf_counter()
    losses = [Compiles(2), Compiles(2)]
    for loss in losses:
        minimize_lbfgs(lambda x, loss=loss: loss(ROWS, x), np.zeros(3), history=trace)
    seconds = trace.as_dict()["seconds"]
    assert (np.diff(seconds) >= 0).all()
    leaves_out(time.perf_counter() - began, seconds[-1], sum(loss.seconds for loss in losses))


def test_seconds_of_minimize():
    loss, began = Compiles(4), time.perf_counter()
    found = minimize(loss, np.zeros(3), [ROWS[:20], ROWS[20:]])
    leaves_out(time.perf_counter() - began, found.history["seconds"][-1], loss.seconds)


@pytest.mark.parametrize("at", [1, 40])
def test_seconds_of_downpour_and_of_its_watch(at):
    loss, began = Compiles(at), time.perf_counter()
    with Watch(20, label="fit") as watch:
        found = minimize_downpour(
            loss, np.zeros(3), [ROWS], learning_rate=0.1, warm_steps=2, batch_size=10, max_epochs=30,
            random_state=0, callback=watch,
        )  # fmt: skip
    wall = time.perf_counter() - began
    leaves_out(wall, watch.history.as_dict()["seconds"].sum(), loss.seconds)
    leaves_out(wall, found.history["seconds"][-1], loss.seconds)


def test_seconds_of_a_table():
    def work(table, task):
        loss = Compiles(1)
        loss(ROWS, np.zeros(3))
        return table.seconds, loss.seconds

    began = time.perf_counter()
    [(seconds, compiling)] = run_replicas(work, [0], np.zeros((1, 2))).results
    leaves_out(time.perf_counter() - began, seconds, compiling)


def test_the_display_says_that_it_compiles(capfd):
    loss = Compiles(2)
    minimize(loss, np.zeros(3), [ROWS], verbose=1)
    assert "minimize: compiling" in capfd.readouterr().err
