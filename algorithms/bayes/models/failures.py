"""Errors of a user's density: a point outside of its domain, or a fault of the program.

A matrix that is not positive definite, a division by zero or a logarithm of a negative number say that a
point has no density: it is rejected, as in Stan, counted, and the first such error is kept for the
diagnostics. Other errors are faults of the program wherever they happen (a name or an attribute that does
not exist, a wrong type, an index that is out of range): they end the run with their own traceback, as does
Ctrl-C.
"""

import threading
from dataclasses import dataclass

import numpy as np

from ....errors import StradaskError

COUNTS = ("undefined", "failed")  # of evaluations, among the statistics of draws
_DOMAIN = (ArithmeticError, ValueError)  # NumPy's LinAlgError is a ValueError
_NO_DOMAIN = (StradaskError, UnicodeError)
_MOST_NAMES, _MOST_LETTERS = 8, 200  # of a message


@dataclass
class Tally:
    """Evaluations of a density that gave no number: NaN (`undefined`), or an error of the domain (`failed`).

    `first` describes the first error and its place, "" if there was none; `error` has its traceback.
    """

    undefined: int = 0
    failed: int = 0
    first: str = ""
    error: Exception | None = None

    def columns(self, n):
        """Return the counts as statistics of n draws, all at the first of them."""
        columns = {name: np.zeros(n) for name in COUNTS}
        columns["undefined"][0], columns["failed"][0] = self.undefined, self.failed
        return columns


def is_of_the_domain(error):
    """Whether an error may say that a point has no density; others end the run."""
    if isinstance(error, _NO_DOMAIN):
        return False
    # PyTorch's error of this name is a RuntimeError.
    return isinstance(error, _DOMAIN) or any("LinAlgError" in kind.__name__ for kind in type(error).__mro__)


def first_failure(words):
    """Return the first text of an array that is not empty, or ""."""
    return next((str(text) for text in np.ravel(words) if text), "")


def place_words(names, q):
    """Say where a point is, by the names of its parameters."""
    parts = [f"{name} = {value:.6g}" for name, value in zip(names, q, strict=True)]
    return ", ".join(parts[:_MOST_NAMES] + ["..."] * (len(parts) > _MOST_NAMES))


class Failures:
    """Errors of a density, on each thread for itself; a chain is on one thread."""

    def __init__(self, names):
        self._names = names
        self._own = threading.local()
        self._fatal = None  # on any thread: the others need not go on, and raise it too

    def has_ended(self):
        """Whether an error on this thread or another ends the run, and no further evaluation is worth it."""
        own = self._own
        own.fatal = self._fatal if getattr(own, "fatal", None) is None else own.fatal
        return own.fatal is not None

    def note(self, error, q):
        """Keep an error that was raised at q; return -inf, or NaN if the error ends the run."""
        where = place_words(self._names, q)
        if not is_of_the_domain(error):
            if isinstance(error, Exception):
                error.add_note(f"in the log density, at {where}")
            self._own.fatal = self._fatal = error
            return np.nan
        tally = self._tally()
        tally.failed += 1
        if tally.error is None:
            words = " ".join(str(error).split()).rstrip(".")
            words = words if len(words) <= _MOST_LETTERS else words[:_MOST_LETTERS] + "..."
            tally.first, tally.error = f"{type(error).__name__}: {words}, at {where}", error
        return -np.inf

    def note_value(self, value):
        """Count a value that is NaN."""
        if np.isnan(value):
            self._tally().undefined += 1

    def take(self):
        """Return this thread's counts since the last call."""
        tally, self._own.tally = self._tally(), Tally()
        return tally

    def raise_fatal(self):
        """Raise the error that ends the run, if there is one, and forget it."""
        error = getattr(self._own, "fatal", None)
        if error is not None:
            self._own.fatal = self._fatal = None
            raise error

    def _tally(self):
        if not hasattr(self._own, "tally"):
            self._own.tally = Tally()
        return self._own.tally
