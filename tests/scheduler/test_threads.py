"""The pool of threads: order, limits, failures, nesting, forks."""

import os
import subprocess
import sys
import threading

import joblib
import pytest

from stradask.errors import DataError
from stradask.scheduler import threads
from stradask.scheduler.threads import effective_n_jobs, run_tasks, single_threaded_blas


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 3, 200])
def test_results_are_in_the_order_of_the_tasks(n_jobs):
    tasks = [(divmod, (i, 7)) for i in range(50)] + [lambda: "last"]
    assert run_tasks(tasks, n_jobs) == [divmod(i, 7) for i in range(50)] + ["last"]


def test_no_tasks():
    assert run_tasks([], 4) == []
    assert run_tasks(iter(()), -1) == []


def test_two_jobs_run_at_the_same_time_and_not_three():
    together = threading.Barrier(2)
    lock, running, most = threading.Lock(), 0, 0

    def task(i):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if i < 2:
            together.wait(60)  # a single thread would wait for ever
        with lock:
            running -= 1

    run_tasks([(task, (i,)) for i in range(40)], 2)
    assert most == 2


def watched_pool(monkeypatch, on_submit):
    """Have `on_submit` called with 1, 2, ... when the pool is asked for helpers."""

    class Watched:
        n_asked = 0

        def submit(self, work):
            self.n_asked += 1
            on_submit(self.n_asked)
            return pool.submit(work)

    pool, watched = threads._get_pool(), Watched()
    monkeypatch.setattr(threads, "_get_pool", lambda: watched)
    return watched


@pytest.mark.parametrize(("n_tasks", "n_jobs", "n_helpers"), [(9, 2, 1), (9, 5, 4), (3, 200, 2), (1, 8, 0)])
def test_helpers_are_one_fewer_than_jobs_or_tasks(monkeypatch, n_tasks, n_jobs, n_helpers):
    watched = watched_pool(monkeypatch, lambda n_asked: None)
    run_tasks([int] * n_tasks, n_jobs)
    assert watched.n_asked == n_helpers


def test_one_job_stays_in_the_calling_thread():
    assert set(run_tasks([threading.get_ident] * 5, 1)) == {threading.get_ident()}


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_a_failure_starts_nothing_more(n_jobs):
    started = []

    def task(i):
        started.append(i)
        if i == 2:
            raise ZeroDivisionError(i)

    with pytest.raises(ZeroDivisionError):
        run_tasks([(task, (i,)) for i in range(10_000)], n_jobs)
    assert len(started) < 10_000


def test_the_first_failure_in_the_order_of_tasks_is_raised_after_all_have_ended():
    both, second_failed = threading.Barrier(2), threading.Event()
    ended = []

    def first():
        both.wait(60)
        second_failed.wait(60)
        ended.append("first")
        raise KeyError("first")

    def second():
        both.wait(60)
        second_failed.set()
        raise IndexError("second")

    with pytest.raises(KeyError, match="first"):
        run_tasks([first, second], 2)
    assert ended == ["first"]


def test_an_interrupt_between_two_tasks_stops_the_helpers(monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    started = []

    def task(i):
        started.append(i)
        begun.set()
        go_on.wait(60)

    def interrupt(n_asked):
        if n_asked == 2:
            begun.wait(60)
            go_on.set()
            raise KeyboardInterrupt

    watched_pool(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_tasks([(task, (i,)) for i in range(100_000)], 3)
    assert 0 < len(started) < 100_000


def test_nested_calls_do_not_wait_for_each_other():
    def nested(depth):
        return 1 if depth == 0 else sum(run_tasks([(nested, (depth - 1,))] * 4, 64))

    assert nested(4) == 4**4


def test_many_callers_at_once():
    answers = []

    def call(i):
        answers.append(run_tasks([(pow, (i, 2))] * 20, 8) == [i * i] * 20)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(30)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert answers == [True] * 30


FORK = """
import os, signal, sys, threading
from stradask.scheduler.threads import run_tasks, single_threaded_blas

barrier = threading.Barrier(2)
run_tasks([lambda: barrier.wait(60)] * 2, 2)     # the pool has a thread now
child = os.fork()
if child == 0:
    signal.alarm(250)
    again = threading.Barrier(2)                 # passed only if the child has a thread of its own
    run_tasks([lambda: again.wait(200)] * 2, 2)
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_gets_a_pool_of_its_own():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 7, done.stderr


def test_effective_n_jobs_counts_as_joblib(monkeypatch):
    assert effective_n_jobs(None) == 1
    assert effective_n_jobs(5) == 5
    assert effective_n_jobs(-1) == joblib.cpu_count()
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    assert [effective_n_jobs(n) for n in (-1, -2, -8, -9, -100)] == [8, 7, 1, 1, 1]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity masks here")
def test_all_cores_are_those_of_the_affinity_mask():
    code = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from stradask.scheduler.threads import effective_n_jobs
print(effective_n_jobs(-1))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize("n_jobs", [0, 1.0, "2", True, [1]])
def test_other_n_jobs_are_errors(n_jobs):
    with pytest.raises(DataError, match="n_jobs must be None or an integer other than 0"):
        effective_n_jobs(n_jobs)


def test_blas_has_one_thread_while_any_block_runs():
    import numpy as np
    from threadpoolctl import threadpool_info

    def most():
        return max(
            (pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1
        )

    before = most()
    np.ones((2, 2)) @ np.ones((2, 2))
    first, second = single_threaded_blas(), single_threaded_blas()
    first.__enter__()
    second.__enter__()
    assert most() == 1
    first.__exit__(None, None, None)
    assert most() == 1
    second.__exit__(None, None, None)
    assert most() == before
