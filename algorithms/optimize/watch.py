"""Callbacks, progress and interruption of a minimiser."""

import math

from ...scheduler.loop import Monitor


class Watch(Monitor):
    """Callback of the minimisers, one call a step; a context manager around all that a fit minimises.

    `callback`, the user's, gets a `Round`; ``snapshot(x, history)`` makes the model of its ``snapshot()``.
    `unit` is what the objective is multiplied by in history and bar; ``traffic()`` counts the bytes sent
    so far.

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
        super().__init__(
            total,
            label=label,
            unit="pass",
            verbose=verbose,
            callback=callback,
            came_to=lambda: f"{len(self.history)} steps; the model so far is kept",
        )
        self._snapshot, self._unit = snapshot, unit
        self._traffic, self._sent = traffic or int, 0

    def __enter__(self):
        super().__enter__()
        self._sent = self._traffic()
        return self

    def __call__(self, result):
        """Record a step, which has `x`, `fun` and perhaps `decrement` as attributes; True ends the fit."""
        before, self._sent = self._sent, self._traffic()
        figures = {"objective": self._unit * float(result.fun), "bytes_sent": self._sent - before}
        snapshot = self._snapshot and (lambda: self._snapshot(result.x, self.history))
        gap = self._unit * getattr(result, "decrement", math.nan)
        self.record(figures, gap=gap, snapshot=snapshot)
        return bool(self.ended)
