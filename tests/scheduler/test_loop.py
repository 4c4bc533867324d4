"""The loop of a fit: order of calls, stopping, and Ctrl-C with real signals."""

import math
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from stradask.algorithms.optimize.watch import Watch
from stradask.errors import InterruptedFitWarning
from stradask.scheduler.history import History
from stradask.scheduler.loop import deferred_interrupt, iterate, small_change, unmasked_interrupt


def test_rounds_are_counted_from_start_and_recorded():
    history, seen = History(), []

    def step(r):
        seen.append(r)
        return {"objective": -float(r), "updates": 10} if r % 2 else None

    assert iterate(step, 3, history=history, start=5) == (3, "finished")
    assert seen == [5, 6, 7]
    columns = history.as_dict()
    assert columns["round"].tolist() == [6, 7, 8]
    assert columns["updates"].tolist() == [10, 0, 10]
    assert columns["objective"][[0, 2]].tolist() == [-5.0, -7.0]
    assert math.isnan(columns["objective"][1])
    assert (columns["seconds"] >= 0).all()


def test_no_rounds_call_nothing():
    assert iterate(pytest.fail, 0, history=History(), callback=pytest.fail, on_round=pytest.fail) == (
        0,
        "finished",
    )


def test_a_step_may_tell_its_own_seconds():
    history = History()
    iterate(lambda r: {"seconds": 42.0}, 1, history=history)
    assert history.as_dict()["seconds"].tolist() == [42.0]


def test_callbacks_see_the_round_and_may_stop():
    calls, history = [], History()

    def on_round(info):
        calls.append(("on_round", info.round))

    def callback(info):
        calls.append(("callback", info.round, info.total, info.objective, info.updates, len(info.history)))
        return info.round == 2

    done = iterate(
        lambda r: {"objective": 0.5, "updates": 3}, 9, history=history, callback=callback, on_round=on_round
    )
    assert done == (2, "callback")
    assert calls == [
        ("on_round", 1),
        ("callback", 1, 9, 0.5, 3, 1),
        ("on_round", 2),
        ("callback", 2, 9, 0.5, 3, 2),
    ]


def test_only_true_stops_not_whatever_a_callback_happens_to_return():
    assert iterate(lambda r: None, 3, history=History(), callback=lambda info: "text") == (3, "finished")


@pytest.mark.parametrize(
    ("verdict", "reason"), [(True, "converged"), ("gap below tol", "gap below tol"), (False, "finished")]
)
def test_a_stopping_rule_reads_the_history(verdict, reason):
    n_done, why = iterate(
        lambda r: None, 4, history=History(), stop=lambda history: verdict if len(history) == 2 else False
    )
    assert (n_done, why) == (4 if verdict is False else 2, reason)


def test_small_change():
    def rounds(objectives, tol):
        return iterate(
            lambda r: {"objective": objectives[r]}, len(objectives), history=History(), stop=small_change(tol)
        )

    nan = math.nan
    assert rounds([-8.0, -4.0, -4.0, -4.0], 1e-3) == (3, "converged")
    assert rounds([-8.0, nan, -8.001, -1.0], 1e-3) == (3, "converged")
    assert rounds([-8.0, -8.1, -8.2], 1e-3) == (3, "finished")
    assert rounds([-8.0, nan, nan, -9.0], 1e-3) == (4, "finished")
    assert rounds([-8.0, -8.0], None) == (2, "finished")
    assert rounds([0.0, 0.0, 1.0], 0.0) == (2, "converged")


def test_an_error_in_a_step_passes_and_the_handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError):
        iterate(lambda r: 1 / 0, 3, history=History())
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_the_loop_after_the_round():
    before = signal.getsignal(signal.SIGINT)
    history, whole = History(), []

    def step(r):
        if r == 4:
            signal.raise_signal(signal.SIGINT)
        whole.append(r)  # what stands after the signal in a round still happens

    with pytest.warns(
        InterruptedFitWarning, match=r"^LDA was interrupted after 5 of 10 rounds; .* kept$"
    ) as caught:
        assert iterate(step, 8, history=history, start=2, label="LDA") == (3, "interrupted")
    assert whole == [2, 3, 4]
    assert len(history) == 3
    assert len(caught) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_the_handler_is_put_back_reaches_the_old_one(monkeypatch):
    before, put = signal.getsignal(signal.SIGINT), signal.signal

    def press_first(number, handler):
        if handler is before:
            signal.raise_signal(signal.SIGINT)
        return put(number, handler)

    monkeypatch.setattr(signal, "signal", press_first)
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():
        signal.raise_signal(signal.SIGINT)  # which is held back
    assert signal.getsignal(signal.SIGINT) is before


def test_a_bar_that_is_interrupted_leaves_no_handler_behind(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    watch = Watch(3, label="fit")

    def interrupted(*exc_info):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(watch._progress), "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt), watch:
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_in_compiled_code_is_no_system_error():
    def masked(cause):
        try:
            raise cause
        except type(cause) as error:
            inner = SystemError("<function _numba_unpickle> returned a result with an exception set")
            inner.__cause__ = error
        raise SystemError("CPUDispatcher(<function f>) returned a result with an exception set") from inner

    with pytest.raises(KeyboardInterrupt), unmasked_interrupt():
        masked(KeyboardInterrupt())
    with pytest.raises(SystemError), unmasked_interrupt():
        masked(ValueError())


@pytest.mark.parametrize("where", ["callback", "on_round", "stop"])
def test_ctrl_c_between_two_steps_ends_the_loop_too(where):
    def press(_):
        signal.raise_signal(signal.SIGINT)
        return False

    with pytest.warns(InterruptedFitWarning, match="after 1 of 3"):
        assert iterate(lambda r: None, 3, history=History(), **{where: press}) == (1, "interrupted")


def test_ctrl_c_in_the_last_round_is_not_swallowed():
    with pytest.warns(InterruptedFitWarning, match="after 1 of 1"):
        done = iterate(lambda r: signal.raise_signal(signal.SIGINT), 1, history=History())
    assert done == (1, "interrupted")


def test_a_second_ctrl_c_raises_at_once():
    before = signal.getsignal(signal.SIGINT)
    reached = []

    def step(r):
        signal.raise_signal(signal.SIGINT)
        reached.append("first")
        signal.raise_signal(signal.SIGINT)
        reached.append("second")

    with pytest.raises(KeyboardInterrupt):
        iterate(step, 3, history=History())
    assert reached == ["first"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_goes_to_the_handler_of_the_program():
    pressed = []

    def mine(signum, frame):
        pressed.append(signum)

    before = signal.signal(signal.SIGINT, mine)
    try:

        def step(r):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

        with pytest.warns(InterruptedFitWarning):
            iterate(step, 3, history=History())
        assert pressed == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_sigint_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = iterate(lambda r: signal.raise_signal(signal.SIGINT), 3, history=History())
        assert done == (3, "finished")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_loops_may_be_nested():
    def outer(r):
        assert iterate(lambda r: None, 2, history=History()) == (2, "finished")
        signal.raise_signal(signal.SIGINT)

    with pytest.warns(InterruptedFitWarning, match="after 1 of 3"):
        assert iterate(outer, 3, history=History()) == (1, "interrupted")


def test_in_another_thread_the_loop_goes_on_and_the_main_thread_is_interrupted():
    before = signal.getsignal(signal.SIGINT)
    answers = []

    def step(r):
        if r == 1:
            os.kill(os.getpid(), signal.SIGINT)

    def fit():
        with warnings.catch_warnings(record=True) as caught:
            answers.append(iterate(step, 50, history=History()))
        answers.append(caught)

    thread = threading.Thread(target=fit)

    def start_and_wait():
        thread.start()
        threading.Event().wait(60)

    with pytest.raises(KeyboardInterrupt):
        start_and_wait()
    thread.join(60)
    assert answers == [(50, "finished"), []]
    assert signal.getsignal(signal.SIGINT) is before


SCRIPT = """
import signal, sys, time
from stradask.scheduler.loop import iterate
from stradask.scheduler.history import History

def step(r):
    print("round", r, flush=True)
    time.sleep(0.02)

print("done", iterate(step, 100_000, history=History(), label="LDA", verbose=1), flush=True)
"""


def test_a_process_that_gets_a_real_ctrl_c_goes_on_after_the_fit(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(3):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert out.splitlines()[-1].startswith("done (")
    assert out.endswith("'interrupted')\n")
    assert "InterruptedFitWarning: LDA was interrupted after" in err
    assert "Traceback" not in err
