"""The loop of a fit: rounds, history, progress, callbacks, rules that stop it, divergence, and Ctrl-C."""

import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import InterruptedFitWarning
from .history import History
from .program import Program
from .progress import Progress

_here = threading.local()


@dataclass(frozen=True)
class Round:
    """What a callback gets after each round.

    Attributes
    ----------
    round : int
        Rounds done so far, those before this fit included; 1 after the first.
    total : int
        Rounds done when the fit will have run to its end.
    objective : float
        Value after this round, NaN if it was not measured.
    seconds : float
        Wall time of this round, without the time in which numba compiled.
    updates : int
        Updates made in this round.
    history : History
        All rounds so far, this one included.
    snapshot : callable
        ``snapshot()`` gives the model as it is now, for instance a fitted estimator that can predict; it
        costs what reading the model off the state costs. None where the fit offers none.
    gap : float
        How far the fit is from its end, see `Outcome`; NaN if it is not known.
    """

    round: int
    total: int
    objective: float
    seconds: float
    updates: int
    history: History
    snapshot: Callable | None = None
    gap: float = math.nan


class Monitor:
    """Follows a fit round by round: history, progress bar, callback and Ctrl-C; a context manager.

    The first Ctrl-C is held back until the round is recorded (see `iterate`), unless `holds_interrupt` is
    False.

    Attributes
    ----------
    history : History
    ended : str
        Why the fit has to end, ``"callback"`` or ``"interrupted"`` or what a stopping rule said; else "".
    """

    def __init__(
        self,
        total,
        *,
        label,
        unit,
        verbose=0,
        callback=None,
        history=None,
        start=0,
        came_to=None,
        holds_interrupt=True,
    ):
        self.history, self.ended = History() if history is None else history, ""
        self._total, self._label, self._done = total, label, start
        self._callback, self._came_to, self._holds_interrupt = callback, came_to, holds_interrupt
        self._progress = Progress(total, label=label, unit=unit, verbose=verbose, start=start)

    @property
    def has_callback(self):
        """Whether the user wants to be called."""
        return self._callback is not None

    @property
    def compile_seconds(self):
        """Seconds in which numba has compiled since the fit began."""
        return self._progress.compile_seconds

    def _now(self):
        """Seconds by a clock that stands still while numba compiles."""
        return time.perf_counter() - self._progress.compile_seconds

    def __enter__(self):
        with ExitStack() as stack:
            holding = deferred_interrupt() if self._holds_interrupt else nullcontext(lambda: False)
            self._interrupted = stack.enter_context(holding)
            stack.enter_context(self._progress)
            self._last = self._now()
            self._entered = stack.pop_all()
        return self

    def __exit__(self, *exc_info):
        self._entered.__exit__(*exc_info)  # SIGINT has its old handler again, whatever fails or is pressed
        if self.ended == "interrupted":
            so_far = f"{self._done} of {self._total} rounds; the model so far is kept"
            warnings.warn(
                f"{self._label} was interrupted after {self._came_to() if self._came_to else so_far}",
                InterruptedFitWarning,
                stacklevel=4,
            )

    def record(
        self,
        figures,
        *,
        gap=math.nan,
        shown=None,
        own=None,
        snapshot=None,
        on_round=None,
        stop=None,
        done=False,
    ):
        """Take in a round's figures for the history; return why the fit has to end, or None.

        Its ``seconds`` are by default those since the round before, without those of compiling.
        """
        now = self._now()
        seconds, self._last = figures.pop("seconds", now - self._last), now
        self._done += 1
        self.history.record(round=self._done, seconds=seconds, **figures)
        self.history.figures = {} if own is None else own
        objective, updates = figures.get("objective", math.nan), figures.get("updates", 0)
        if self._progress.is_shown:
            self._progress.advance(updates=updates, objective=objective, gap=gap, **(shown or {}))
        info = Round(self._done, self._total, objective, seconds, updates, self.history, snapshot, gap)
        if on_round is not None:
            on_round(info)
        enough = None if self._callback is None and stop is None else _why_stop(info, self._callback, stop)
        enough = enough or _as_reason(done)
        if self._interrupted():
            enough = "interrupted"
        self.ended = enough or self.ended
        report_round(self._label, info, figures, self.ended)
        return enough

    def record_past(self, rounds):
        """Take in the figures of rounds that are over, of equal shares of the time; return if Ctrl-C came."""
        now = self._now()
        seconds, self._last = (now - self._last) / max(len(rounds), 1), now
        for figures in rounds:
            self._done += 1
            self.history.record(round=self._done, seconds=seconds, **figures)
        self.ended = "interrupted" if self._interrupted() else self.ended
        return bool(self.ended)


class Rounds:
    """Reports rounds to a `Monitor`: one by one, or all of a fit that is over, to which nobody listens.

    ``figures(objective)`` are those of a round. `snapshot`: None, or called with objective, gap and round.
    `unit`: of the gaps.
    """

    def __init__(self, monitor, figures, snapshot, unit=1.0):
        self._monitor, self._figures, self._snapshot, self._unit = monitor, figures, snapshot, unit

    def __call__(self, number, objective, gap):
        """Report a round; return whether the fit has to end."""
        snapshot = self._snapshot and partial(self._snapshot, objective, gap, number)
        return bool(self._monitor.record(self._figures(objective), gap=gap / self._unit, snapshot=snapshot))

    def past(self, rows):
        """Record rows of number, objective and gap; return whether the user wants an end."""
        return self._monitor.record_past([self._figures(row[1]) for row in rows])


def report_rounds(history, rounds, *, label, verbose=0, callback=None):
    """Record rounds that are over, and show them to progress bar and callback as if they were under way.

    `rounds`: arguments of `Monitor.record`, a dict for each. Returns whether the callback ended the fit; the
    history then ends there.
    """
    if callback is None and not verbose:
        for number, options in enumerate(rounds, 1):
            history.record(round=number, **options["figures"])
        return False
    shown = {"label": label, "unit": "update", "verbose": verbose, "callback": callback}
    with Monitor(len(rounds), history=history, **shown) as monitor:
        for options in rounds:
            if monitor.record(**options):
                break
    return bool(monitor.ended)


def listeners():
    """What the loops of this thread report their rounds to, the newest last: sessions on a cluster."""
    return vars(_here).setdefault("listeners", [])


def report_round(label, info, figures, reason):
    """Report a round to the newest listener, if there is one."""
    if found := listeners():
        found[-1].round(label, info, figures, reason)


def iterate(
    step,
    n_rounds,
    *,
    history,
    label="fit",
    unit="update",
    verbose=0,
    callback=None,
    on_round=None,
    stop=None,
    snapshot=None,
    start=0,
    came_to=None,
):
    """Run rounds until they are done, or a rule or the user stops them; return their number and the reason.

    The reason is ``"finished"``, ``"converged"`` (or what `stop` said), ``"callback"`` or ``"interrupted"``.
    Ctrl-C ends the loop after the running round, so that the state is never half a round old; an
    `InterruptedFitWarning` says how far the fit came. A second Ctrl-C raises KeyboardInterrupt at once. This
    holds in the main thread, the only one that Python lets handle signals, and where the program has not set
    SIGINT to be ignored or to kill.

    Parameters
    ----------
    step : callable
        ``step(r)`` does round number r, counted from 0, and returns a dict of figures for the history
        (``objective``, ``updates``, ...; ``seconds`` instead of the measured wall time) or None. A true
        ``done`` ends the loop; if it is a str, that is the reason. A ``gap`` goes to bar and callbacks;
        ``shown``, a dict of numbers, to the bar alone; ``own``, another, is `History.figures`.
    n_rounds : int
        Rounds to do now, with r = start, ..., start + n_rounds - 1.
    callback : callable, optional
        ``callback(info)`` is called after each round with a `Round`; if it returns True, the loop ends.
    on_round : callable, optional
        As `callback`, before it, its value ignored: for checkpoints.
    stop : callable, optional
        ``stop(history)`` returns False to go on, True or a reason (a non-empty str) to stop.
    came_to : callable, optional
        ``came_to()`` returns how far the fit came, for the warning, where users do not count rounds.

    Examples
    --------
    >>> from stradask.scheduler.loop import iterate, small_change
    >>> from stradask.scheduler.history import History
    >>> history = History()
    >>> iterate(lambda r: {"objective": 1 + 0.5**r}, 100, history=history, stop=small_change(1e-3))
    (11, 'converged')
    >>> len(history)
    11
    """
    total = start + n_rounds
    monitor = Monitor(
        total,
        label=label,
        unit=unit,
        verbose=verbose,
        callback=callback,
        history=history,
        start=start,
        came_to=came_to,
    )
    n_done = 0
    with monitor:
        for r in range(start, total):
            began, compiled = time.perf_counter(), monitor.compile_seconds
            figures = dict(step(r) or {})
            compiled = monitor.compile_seconds - compiled
            figures.setdefault("seconds", time.perf_counter() - began - compiled)
            of_round = {
                name: figures.pop(name) for name in ("done", "gap", "shown", "own") if name in figures
            }
            n_done += 1
            if monitor.record(figures, **of_round, snapshot=snapshot, on_round=on_round, stop=stop):
                break
    return n_done, monitor.ended or "finished"


def _why_stop(info, callback, stop):
    """Ask the callback and the stopping rule, both in every round; return a reason or None."""
    asked = callback(info) if callback is not None else False
    verdict = stop(info.history) if stop is not None else False
    if (
        isinstance(asked, (bool, np.bool_)) and asked
    ):  # not any truthy value: a callback may return what it did
        return "callback"
    return _as_reason(verdict)


def _as_reason(verdict):
    return (verdict if isinstance(verdict, str) else "converged") if verdict else None


def small_change(tol):
    """Make a stopping rule: the last two measured objectives differ by at most `tol` times the first."""

    def stop(history):
        if tol is None:
            return False
        recent = history.recent_objectives(2)
        return len(recent) == 2 and abs(recent[0] - recent[1]) <= tol * abs(recent[1])

    return stop


@contextmanager
def deferred_interrupt():
    """Hold back the first SIGINT; give a function that returns whether there was one."""
    pressed = False
    in_main = threading.current_thread() is threading.main_thread()
    before: Any = signal.getsignal(signal.SIGINT) if in_main else None

    def handler(signum, frame):
        nonlocal pressed
        if pressed:
            before(signum, frame)
            return
        pressed = True
        _write_out("\nstopping after this round; Ctrl-C again stops at once\n")

    if not callable(before):  # another thread, or a program that ignores SIGINT or dies of it
        yield lambda: False
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: pressed
    finally:
        pressed = False
        signal.signal(signal.SIGINT, before)  # which first calls `handler` if there was a press just now
        if pressed:
            before(signal.SIGINT, None)


@contextmanager
def unmasked_interrupt():
    """Raise KeyboardInterrupt where it would come out of compiled code as a SystemError.

    numba calls Python to box the results of a kernel; an exception that a signal handler raises there becomes
    the cause of errors about a "result with an exception set".
    """
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            cause = cause.__cause__ or cause.__context__
        raise


def _write_out(text):
    """Write to the terminal past Python's buffers, which a signal handler may find half-way in a write."""
    # An error raised here would surface in the midst of whatever the signal interrupted.
    with suppress(OSError, ValueError):
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(sys.stderr.fileno(), text.encode())


_IN_A_ROW = 3  # measured values that are not finite
_LEAST = 8  # measured values to judge a rise by


def broken_off(program):
    """Make a stopping rule: the objective was finite once, and then was not several times in a row.

    A start outside the domain of the objective, at infinity, does not count. A NaN counts where
    `Program.measure` was called; elsewhere it means that nothing was measured.
    """
    n_seen, was_finite, n_lost = 0, False, 0

    def stop(history):
        nonlocal n_seen, was_finite, n_lost
        for value in _measured(program, history, n_seen):
            finite = math.isfinite(value)
            n_lost = 0 if finite else n_lost + was_finite
            was_finite = was_finite or finite
        n_seen = len(history)
        return "diverged" if n_lost >= _IN_A_ROW else False

    return stop


def _measured(program, history, first=0):
    """Return the measured objectives from a row on; NaN among them are results, and not missing."""
    measures = program.measure_every and type(program).objective is not Program.objective
    return [
        value
        for round_, value in history.objectives_from(first)
        if not math.isnan(value) or (measures and round_ % program.measure_every == 0)
    ]


def check_end(program, history, reason, label):
    """Return the reason of a run's end; if that is ``"diverged"``, with a ConvergenceWarning.

    After all rounds a run has diverged if its last objective is the highest, exceeds the first by the first's
    size, and rose in the last quarter of the rounds at least as much as in the quarter before. A run that
    converges cannot do that: in the end its steps shrink. An objective below zero that is maximised, such as
    a log-likelihood, stays below the limit.
    """
    values, what = _measured(program, history), ""
    if reason == "diverged" or (reason == "finished" and values and not math.isfinite(values[-1])):
        what = "is no finite number any more"
    elif reason == "finished" and not program.may_rise and _rises(values):
        what = f"rose from {values[0]:.3g} to {values[-1]:.3g} and rises still"
    if not what:
        return reason
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"{label} diverged: its objective {what}. Update fewer blocks a round, take blocks that do not "
        "depend on each other (conflicts of DynamicSchedule), or smaller steps",
        ConvergenceWarning,
        stacklevel=3,
    )
    return "diverged"


def _rises(values):
    if len(values) < _LEAST or not all(map(math.isfinite, values)):
        return False
    quarter = len(values) // 4
    first, before, middle, last = values[0], values[-1 - 2 * quarter], values[-1 - quarter], values[-1]
    return last == max(values) and last > first + abs(first) and last - middle >= middle - before > 0


def any_of(*rules):
    """Return a rule that stops a run where one of these does; None among them is no rule."""

    def stop(history):
        verdicts = (rule(history) for rule in rules if rule is not None)
        return next((verdict for verdict in verdicts if verdict), False)

    return stop


def time_over(max_seconds):
    """Return the rule that stops a run after so many seconds from now; None for none."""
    if max_seconds is None:
        return None
    end = time.monotonic() + max_seconds
    return lambda history: "time" if time.monotonic() >= end else False
