"""What stands between a minimiser and the user: history, progress bar, callbacks, Ctrl-C."""

import math
import time
import warnings
from contextlib import ExitStack

from ...errors import InterruptedFitWarning
from ...scheduler.history import History
from ...scheduler.loop import Round, deferred_interrupt
from ...scheduler.progress import Progress


class Watch:
    """Callback of the minimisers, one call a step; a context manager around all that a fit minimises.

    Parameters
    ----------
    total : int
        Most steps of the fit.
    label : str
        Before the bar and in warnings.
    verbose : int, default=0
        1 shows a progress bar.
    callback : callable, optional
        The user's: ``callback(info)`` with a `Round`; True ends the fit.
    snapshot : callable, optional
        ``snapshot(x, history)`` makes the model of ``info.snapshot()``.
    unit : float, default=1.0
        What the objective is multiplied by in history and bar.
    traffic : callable, optional
        ``traffic()`` counts the bytes sent so far.

    Attributes
    ----------
    history : History
    ended : str
        "callback" or "interrupted" when one of them ended the fit, else "".

    Examples
    --------
    >>> from scipy.optimize import OptimizeResult
    >>> from stradask.algorithms.optimize.watch import Watch
    >>> with Watch(10, label="fit") as watch:
    ...     watch(OptimizeResult(x=None, fun=2.5))
    False
    >>> watch.history.as_dict()["objective"]
    array([2.5])
    """

    def __init__(self, total, *, label, verbose=0, callback=None, snapshot=None, unit=1.0, traffic=None):
        self.history, self.ended = History(), ""
        self._total, self._label, self._unit = total, label, unit
        self._callback, self._snapshot = callback, snapshot
        self._traffic, self._sent = traffic or int, 0
        self._progress = Progress(total, label=label, unit="pass", verbose=verbose)

    @property
    def has_callback(self):
        """Whether the user wants to be called."""
        return self._callback is not None

    def __enter__(self):
        with ExitStack() as stack:
            self._interrupted = stack.enter_context(deferred_interrupt())
            stack.enter_context(self._progress)
            self._last, self._sent = self._now(), self._traffic()
            self._entered = stack.pop_all()
        return self

    def __exit__(self, *exc_info):
        self._entered.__exit__(*exc_info)  # SIGINT has its old handler again, whatever fails or is pressed
        if self.ended == "interrupted":
            warnings.warn(
                f"{self._label} was interrupted after {len(self.history)} steps; the model so far is kept",
                InterruptedFitWarning,
                stacklevel=4,
            )

    def _now(self):
        """Seconds by a clock that stands still while numba compiles."""
        return time.perf_counter() - self._progress.compile_seconds

    def __call__(self, result):
        """Record a step, which has `x`, `fun` and perhaps `decrement` as attributes; True ends the fit."""
        now = self._now()
        seconds, self._last = now - self._last, now
        objective = self._unit * float(result.fun)
        gap = self._unit * getattr(result, "decrement", math.nan)
        n_done = len(self.history) + 1
        sent = self._traffic()
        self.history.record(round=n_done, seconds=seconds, objective=objective, bytes_sent=sent - self._sent)
        self._sent = sent
        self._progress.advance(objective=objective, gap=gap)
        if self._callback is not None:
            snapshot = self._snapshot and (lambda: self._snapshot(result.x, self.history))
            info = Round(n_done, self._total, objective, seconds, 0, self.history, snapshot, gap)
            if self._callback(info) is True:
                self.ended = "callback"
        if self._interrupted():
            self.ended = "interrupted"
        return bool(self.ended)
