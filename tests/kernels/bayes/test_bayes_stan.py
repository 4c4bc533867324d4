"""Compiled Stan programs, by stand-ins in C: the prior's power where the program without rows fails."""

import ctypes

import numpy as np
import pytest

from stradask.kernels.bayes import stan

DOUBLES = ctypes.POINTER(ctypes.c_double)
OF_PROGRAM = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int64, ctypes.c_int, ctypes.c_int, DOUBLES, DOUBLES, DOUBLES, ctypes.c_void_p
)
OF_POINT = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
ROWS, NONE = 1, 2
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("power", "prior", "expected"),
    [(0.25, -2.0, -3.5), (1.0, None, -5.0), (0.25, None, -INF), (0.25, -INF, -INF), (0.25, NAN, NAN)],
)
def test_a_program_without_rows_that_has_no_density_leaves_none(power, prior, expected):
    @OF_PROGRAM
    def evaluate(program, propto, jacobian, q, value, gradient, message):
        if program == NONE and prior is None:
            return 1
        value[0] = -5.0 if program == ROWS else prior
        gradient[0] = 8.0 if program == ROWS else 4.0
        return 0

    answers = [OF_POINT(lambda q, other, d, value=value: value) for value in (-INF, NAN)]
    meta = np.zeros(stan.N_META, np.int64)
    meta[stan.FUNCTION] = ctypes.cast(evaluate, ctypes.c_void_p).value
    meta[[stan.ROWS, stan.NONE]] = ROWS, NONE
    meta[[stan.FAILED, stan.UNDEFINED]] = [ctypes.cast(one, ctypes.c_void_p).value for one in answers]
    g = np.zeros(1)
    np.testing.assert_equal(stan.stan(np.zeros(1), g, np.array([power]), meta), expected)
    if prior == -2.0:
        assert g[0] == 5.0
