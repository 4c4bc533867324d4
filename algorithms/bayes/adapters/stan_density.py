"""The model of a compiled Stan program, which the compiled sampler calls without Python.

A library that was compiled with STAN_THREADS is called by all threads at a time. Any other has one stack for
the derivatives of a process: its evaluations take turns, by an atomic word, and the one that must wait does
so in Python, asleep.
"""

import ctypes
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....kernels.bayes import stan
from ..models.called import CALLBACK, CalledModel, address_in_c, counter_of_nan, vector_at
from ..models.failures import Failures
from ..models.fingerprint import fingerprint

_WAIT = 50e-6  # seconds: evaluations take microseconds to milliseconds
_FAILED = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.POINTER(ctypes.c_double), ctypes.c_void_p, ctypes.c_int64)


class StanRejection(ValueError):
    """Stan's message on parameters that it refuses, by ``reject()`` or by a check of its functions."""


def _wait(*_):
    time.sleep(_WAIT)
    return 0.0


class Turn:
    """Whose turn it is, for all libraries without threads."""

    def __init__(self):
        self._word = np.zeros(1, np.int64)
        self._waiting = CALLBACK(_wait)
        self.address, self.wait = self._word.ctypes.data, address_in_c(self._waiting)

    def call(self, function, *arguments):
        """Call a function of Python in turn; wherever Ctrl-C comes, the turn ends.

        A context manager would keep the turn if Ctrl-C came between its methods and the block.
        """
        who = threading.get_ident()
        try:
            while not stan.take_turn(self.address, who):
                time.sleep(_WAIT)
            return function(*arguments)
        finally:
            stan.end_turn(self.address, who)


TURN = Turn()


def has_threads(program):
    """Whether a library was compiled for several threads."""
    return "STAN_THREADS=true" in program.model_info()


@dataclass(frozen=True, eq=False)
class StanDensity(CalledModel):
    """The density of some rows, and of the program without rows to a power; see ``kernels.bayes.stan``.

    `functions` are those of the adapter, `rows` a tuple of arrays; None is a model without a density.
    """

    functions: Any = None
    rows: tuple | None = None

    def __post_init__(self):
        super().__post_init__()
        failures = Failures(self.names)

        def failed(q, message, d):
            point, words = vector_at(q, d).copy(), ""
            if message:
                words = ctypes.string_at(message).decode(errors="replace")
                library.bs_free_error_msg(ctypes.cast(message, ctypes.c_char_p))
            return failures.note(StanRejection(words), point)

        kept: list = [_FAILED(failed), counter_of_nan(failures)]
        meta = np.zeros(stan.N_META, np.int64)
        if self.rows is not None:
            rows, none = self.functions.programs(self.rows)
            library = rows.stanlib
            meta[stan.FUNCTION] = address_in_c(library.bs_log_density_gradient)
            meta[[stan.ROWS, stan.NONE]] = rows.model, 0 if none is None else none.model
            meta[[stan.FAILED, stan.UNDEFINED]] = [address_in_c(one) for one in kept]
            if not has_threads(rows):
                meta[[stan.TURN, stan.WAIT]] = TURN.address, TURN.wait
            kept += [rows, none]
        self.__dict__.update(meta=meta, _failures=failures, _kept=kept)

    def values(self, Q):
        """The program's own parameters."""
        return self.functions.constrain(self._points(Q))

    def without_data(self):
        """Return the model without its programs, which hold the data."""
        return replace(self, rows=None)

    def identity(self):
        """All that the density depends on, for digests."""
        own = self.functions
        functions = fingerprint((own.likelihood, own.prior if own.row else None))
        return functions, self.rows, float(self.data[0]), self.names, self.start
