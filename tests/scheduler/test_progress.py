"""The progress bar: on a terminal, in a log, and where stderr is gone."""

import io
import math
import os
import struct

import numpy as np
import pytest

import stradask as sd
from stradask.scheduler import Outcome, Program, StaticSchedule
from stradask.scheduler import progress as progress_module
from stradask.scheduler.engine import run as run_program
from stradask.scheduler.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """A stand-in for the module time."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress_module, "time", clock)
    return clock


@pytest.fixture
def stderr(monkeypatch):
    def put(stream):
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return put


def run(clock, seconds, n=4, **options):
    with Progress(n, label="LDA", unit="token", **{"verbose": 1, **options}) as bar:
        for r in range(n):
            clock.now += seconds
            bar.advance(updates=12_300_000 * seconds, objective=-7.5 - r)


def test_verbose_0_writes_nothing(clock, stderr):
    for stream in (stderr(Terminal()), stderr(io.StringIO())):
        run(clock, 60, verbose=0)
        assert stream.getvalue() == ""


def test_a_log_gets_a_first_a_last_and_few_lines_between(clock, stderr):
    log = stderr(io.StringIO())
    run(clock, 10, n=8)
    assert log.getvalue().splitlines() == [
        "LDA: 1/8, 00:10, 01:10 left, objective -7.5, 12.3M tokens/s",
        "LDA: 4/8, 00:40, 00:40 left, objective -10.5, 12.3M tokens/s",
        "LDA: 7/8, 01:10, 00:10 left, objective -13.5, 12.3M tokens/s",
        "LDA: 8/8, 01:20, objective -14.5, 12.3M tokens/s",
    ]


def test_the_last_line_is_written_once(clock, stderr):
    log = stderr(io.StringIO())
    run(clock, 31, n=2)
    assert [line.split(",")[0] for line in log.getvalue().splitlines()] == ["LDA: 1/2", "LDA: 2/2"]


def test_rounds_done_before_count_for_the_position_and_not_for_the_speed(clock, stderr):
    log = stderr(io.StringIO())
    with Progress(100, label="fit", unit="token", verbose=1, start=90) as bar:
        clock.now += 2
        bar.advance()
    assert log.getvalue() == "fit: 91/100, 00:02, 00:18 left\n"


def test_an_unmeasured_objective_leaves_the_one_before(clock, stderr):
    log = stderr(io.StringIO())
    with Progress(2, label="fit", unit="token", verbose=1) as bar:
        bar.advance(objective=-3.25)
        clock.now += 31
        bar.advance(objective=math.nan)
    assert log.getvalue().splitlines()[-1].endswith("objective -3.25")


def until_the_gap(clock, gaps):
    with Progress(1000, label="Lasso", unit="coordinate", verbose=1) as bar:
        for gap in gaps:
            clock.now += 31
            bar.advance(objective=0.5, gap=gap)


def test_a_log_shows_the_gap_and_then_no_time_left(clock, stderr):
    log = stderr(io.StringIO())
    until_the_gap(clock, [math.nan, 0.0312345, math.nan, 1.23e-7])
    assert log.getvalue().splitlines() == [
        "Lasso: 1/1000, 00:31, 8:36:09 left, objective 0.5",
        "Lasso: 2/1000, 01:02, objective 0.5, gap 0.031",
        "Lasso: 3/1000, 01:33, objective 0.5, gap 0.031",
        "Lasso: 4/1000, 02:04, objective 0.5, gap 1.2e-07",
    ]


def test_a_terminal_shows_the_gap_and_then_no_time_left(clock, stderr):
    terminal = stderr(Terminal())
    until_the_gap(clock, [0.25, 1.23e-7])
    first, *_, last = terminal.getvalue().split("\r")[1:]
    assert "<?" in first  # before the first round
    assert last.startswith("Lasso: 2/1000 |")
    assert last.endswith("objective 0.5, gap 1.2e-07\n")
    assert "<" not in last


class Halves(Program):
    """Its gap is a half after the first round, and known after every second round only."""

    measure_every = 0

    def update(self, state, task):
        return task.round

    def aggregate(self, tasks, partials):
        done = partials[0] + 1
        return Outcome(objective=2.0, gap=0.5**done if done % 2 else math.nan, done=done == 5)


def test_the_gap_of_a_program_reaches_the_bar_and_callbacks(stderr):
    log, gaps = stderr(io.StringIO()), []
    done = run_program(
        Halves(),
        StaticSchedule(1, n_shards=1),
        max_rounds=9,
        verbose=1,
        callback=lambda info: gaps.append(info.gap),
    )
    assert (done.n_rounds, done.reason) == (5, "converged")
    np.testing.assert_array_equal(gaps, [0.5, math.nan, 0.125, math.nan, 0.5**5])
    first, *_, last = log.getvalue().splitlines()
    assert first.startswith("Halves: 1/9, 00:00, objective 2, gap 0.5")
    assert last.startswith("Halves: 5/9, 00:00, objective 2, gap 0.031")


def test_a_lasso_shows_the_gap_that_tol_is_compared_with(stderr):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 300)), rng.standard_normal(50)
    log, gaps = stderr(io.StringIO()), []
    model = sd.Lasso(0.05, tol=1e-6, verbose=1).fit(X, y, callback=lambda info: gaps.append(info.gap))
    assert gaps[-1] <= 1e-6 < min(gap for gap in gaps[:-1] if gap == gap)
    # The objective without columns is what the gap is relative to.
    assert gaps[-1] == pytest.approx(model.dual_gap_ / (((y - y.mean()) ** 2).mean() / 2), rel=1e-6)
    assert f"gap {gaps[-1]:.2g}," in log.getvalue().splitlines()[-1] + ","


def test_a_terminal_gets_a_bar_with_objective_and_rate(clock, stderr, started):
    terminal = stderr(Terminal())
    run(clock, 2)
    last = terminal.getvalue().split("\r")[-1]
    assert last.startswith("LDA: 4/4 |")
    assert "objective -10.5, 12.3M tokens/s" in last
    assert last.endswith("\n")
    assert started == []  # tqdm's watching thread was not started


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals here")
@pytest.mark.parametrize("columns", [0, 200])
def test_a_real_terminal_of_any_width(clock, stderr, columns):
    import fcntl
    import termios

    controller, inside = os.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(inside, "w") as terminal:
        stderr(terminal)
        run(clock, 2)
        shown = os.read(controller, 4096)
        while not shown.endswith(b"\n"):
            shown += os.read(controller, 4096)
    os.close(controller)
    last = shown.decode().rstrip().split("\r")[-1]
    assert last.startswith("LDA: 4/4 |")
    assert last.endswith("objective -10.5, 12.3M tokens/s")
    assert len(last) in ((columns - 1, columns) if columns else (80,))  # newer tqdm leaves the last one free


class Broken(Terminal):
    """Fails from some write on, as a pipe whose reader has gone."""

    def __init__(self, n_good, terminal):
        super().__init__()
        self.n_good, self.terminal = n_good, terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.n_good -= 1
        if self.n_good < 0:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("n_good", [0, 1, 2, 3])
def test_a_broken_pipe_does_not_end_the_loop(clock, stderr, terminal, n_good):
    stream = stderr(Broken(n_good, terminal))
    run(clock, 40, n=20)
    assert stream.n_good == -1  # it did break, and was not written to again


@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_closed_stderr_does_not_end_the_loop(clock, stderr, kind, when):
    stream = stderr(kind())
    if when == "before":
        stream.close()
    with Progress(2, label="fit", unit="token", verbose=1) as bar:
        stream.close()
        clock.now += 40
        bar.advance()
        bar.advance()
    assert bar.done == 2


def test_no_stderr_at_all(clock, stderr):
    stderr(None)
    run(clock, 40)


def test_an_error_in_the_loop_passes(clock, stderr):
    terminal = stderr(Terminal())
    with pytest.raises(ZeroDivisionError), Progress(2, label="fit", unit="token", verbose=1):
        _ = 1 / 0
    assert terminal.getvalue().endswith("\n")


# Compiling --------------------------------------------------------------------------------------------


def _compiled(compiling=lambda: None):
    """A function at whose compiling, in its first call, `compiling` is called."""
    import numba as nb
    from numba.extending import overload

    def slow():
        raise NotImplementedError

    @overload(slow)
    def compile_slowly():
        compiling()
        return lambda: 1

    return nb.njit(lambda: slow())


@pytest.mark.parametrize("terminal", [False, True])
def test_compiling_is_told_and_is_no_part_of_the_rounds(stderr, clock, monkeypatch, terminal):
    from stradask.scheduler import compiling, loop
    from stradask.scheduler.history import History
    from stradask.scheduler.loop import iterate

    stream = stderr(Terminal() if terminal else io.StringIO())
    for module in (compiling, loop):
        monkeypatch.setattr(module, "time", clock)
    function, history = _compiled(lambda: clock.pass_by(2.0)), History()

    def step(r):
        function()
        clock.pass_by(0.05)
        return {"updates": 10}

    iterate(step, 5, history=history, label="LDA", unit="token", verbose=1)
    np.testing.assert_allclose(history.as_dict()["seconds"], 0.05, rtol=1e-9)
    text = stream.getvalue()
    if terminal:
        assert "LDA, compiling: 0/5" in text
        assert text.rpartition("\r")[2].strip().startswith("LDA: 5/5")
    else:
        lines = text.splitlines()
        assert lines[0] == "LDA: compiling (once: the machine code is kept)"
        assert lines[1].startswith("LDA: 1/5")
        assert ", 00:00 left, " in lines[1]
        assert len([line for line in lines if "compiling" in line]) == 1


def test_code_that_is_there_is_not_said_to_compile(stderr):
    function = _compiled()
    function()
    log = stderr(io.StringIO())
    with Progress(2, label="LDA", unit="token", verbose=1) as bar:
        function()
        bar.advance(updates=1)
        assert bar.compile_seconds == 0
    assert "compiling" not in log.getvalue()
