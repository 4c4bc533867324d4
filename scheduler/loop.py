"""The loop of a fit: rounds, history, progress, callbacks, stopping and Ctrl-C."""

import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InterruptedFitWarning
from .history import History
from .progress import Progress


@dataclass(frozen=True)
class Round:
    """What a callback is told after each round.

    Attributes
    ----------
    round : int
        Rounds done so far, those before this fit included; 1 after the first.
    total : int
        Rounds done when the fit will have run to its end.
    objective : float
        Value after this round, NaN if it was not measured.
    seconds : float
        Wall time of this round, without that in which numba compiled.
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
    """Run rounds until they are done, or something says that it is enough.

    Ctrl-C ends the loop after the round that is running, so that the state is never half a round
    old; an `InterruptedFitWarning` tells how far the fit came. A second Ctrl-C raises
    KeyboardInterrupt at once, and then the state may be of half a round. This holds where the
    loop runs in the main thread, the only one that Python lets handle signals, and where
    the program has not set SIGINT to be ignored or to kill.

    Parameters
    ----------
    step : callable
        ``step(r)`` does round number r, counted from 0, and returns a dict of figures for the history
        (``objective``, ``updates``, ...; ``seconds`` instead of the measured wall time) or None. A true
        ``done`` among them ends the loop; if it is a str, that is the reason. A ``gap`` is shown and told
        to callbacks; what is ``shown``, a dict of numbers, is for the progress bar alone.
    n_rounds : int
        Rounds to do now; the step is called with r = start, ..., start + n_rounds - 1.
    history : History
        Gets one row a round.
    label, unit, verbose
        See `Progress`.
    callback : callable, optional
        ``callback(info)`` is called after each round with a `Round`; if it returns True, the loop ends.
    on_round : callable, optional
        As `callback`, before it, its value ignored: for checkpoints.
    stop : callable, optional
        ``stop(history)`` returns False to go on, True or a reason (a non-empty str) to stop.
    snapshot : callable, optional
        Handed on to the callbacks, see `Round`.
    start : int, default=0
        Rounds that were done before.
    came_to : callable, optional
        ``came_to()`` says for the warning how far the fit came, and what is kept, where rounds are not what
        its user counts.

    Returns
    -------
    n_done : int
        Rounds done by this call.
    reason : str
        ``"finished"``, ``"converged"`` (or what `stop` said), ``"callback"`` or ``"interrupted"``.

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
    reason = "finished"
    n_done = 0
    with (
        deferred_interrupt() as interrupted,
        Progress(total, label=label, unit=unit, verbose=verbose, start=start) as progress,
    ):
        for r in range(start, total):
            began, compiled = time.perf_counter(), progress.compile_seconds
            figures = dict(step(r) or {})
            compiled = progress.compile_seconds - compiled
            figures.setdefault("seconds", time.perf_counter() - began - compiled)
            done, gap = figures.pop("done", False), figures.pop("gap", math.nan)
            shown = figures.pop("shown", {})
            n_done += 1
            history.record(round=r + 1, **figures)
            objective, updates = figures.get("objective", math.nan), figures.get("updates", 0)
            progress.advance(updates=updates, objective=objective, gap=gap, **shown)
            info = Round(r + 1, total, objective, figures["seconds"], updates, history, snapshot, gap)
            if on_round is not None:
                on_round(info)
            enough = _why_stop(info, callback, stop) or _as_reason(done)
            if interrupted():
                enough = "interrupted"
            if enough:
                reason = enough
                break
    if reason == "interrupted":
        so_far = f"{start + n_done} of {total} rounds; the model so far is kept"
        warnings.warn(
            f"{label} was interrupted after {so_far if came_to is None else came_to()}",
            InterruptedFitWarning,
            stacklevel=3,
        )
    return n_done, reason


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
    """Make a stopping rule: the objective's last change is at most `tol`, relatively.

    Parameters
    ----------
    tol : float or None
        Stop when ``abs(new - old) <= tol * abs(old)`` for the two objectives measured last; None
        never stops.

    Returns
    -------
    callable
        For the parameter `stop` of `iterate`.

    Examples
    --------
    See `iterate`.
    """

    def stop(history):
        if tol is None:
            return False
        recent = history.recent_objectives(2)
        return len(recent) == 2 and abs(recent[0] - recent[1]) <= tol * abs(recent[1])

    return stop


@contextmanager
def deferred_interrupt():
    """Hold back the first SIGINT; give a function that tells whether there was one."""
    pressed = False
    in_main = threading.current_thread() is threading.main_thread()
    before: Any = signal.getsignal(signal.SIGINT) if in_main else None

    def handler(signum, frame):
        nonlocal pressed
        if pressed:
            before(signum, frame)
            return
        pressed = True
        _tell("\nstopping after this round; Ctrl-C again stops at once\n")

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

    numba runs Python functions where it makes the results of a kernel into objects; what a signal handler
    raises there becomes the cause of errors that speak of a "result with an exception set".
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


def _tell(text):
    """Write to the terminal past Python's buffers, which a signal handler may find half-way in a write."""
    # An error raised here would surface in the midst of whatever the signal interrupted.
    with suppress(OSError, ValueError):
        if sys.stderr is not None and sys.stderr.isatty():
            os.write(sys.stderr.fileno(), text.encode())
