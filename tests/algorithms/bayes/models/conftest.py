"""Stand-ins for programs that BridgeStan has compiled: called through C, as its libraries are."""

import ctypes
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

_SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_bool,
    ctypes.c_bool,
    *[ctypes.POINTER(ctypes.c_double)] * 3,
    ctypes.POINTER(ctypes.c_char_p),
)


@pytest.fixture
def called_in_c():
    """Adds the C functions of a library to a class with `log_density_gradient`."""
    return _called_in_c


def _called_in_c(kind):
    alive: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
    messages: dict = {}  # by their addresses, until they are freed

    def log_density_gradient(program, propto, jacobian, q, value, gradient, message):
        own = alive[program]
        d = own.param_unc_num()
        InC.inside += 1
        InC.most_inside = max(InC.most_inside, InC.inside)
        try:
            assert propto
            assert jacobian
            point, slope = np.ctypeslib.as_array(q, (d,)).copy(), np.ctypeslib.as_array(gradient, (d,))
            with np.errstate(all="ignore"):  # as in C
                value[0], slope[:] = own.log_density_gradient(point)
        except RuntimeError as error:
            words = ctypes.create_string_buffer(str(error).encode())
            place = ctypes.addressof(words)
            messages[place] = words
            ctypes.cast(message, ctypes.POINTER(ctypes.c_void_p))[0] = place
            return 1
        finally:
            InC.inside -= 1
        return 0

    class InC(kind):
        inside, most_inside, freed = 0, 0, 0
        threads = "true"
        called = staticmethod(_SIGNATURE(log_density_gradient))

        def __init__(self, *args, **given):
            super().__init__(*args, **given)
            self.model = len(alive) + 1000
            while self.model in alive:
                self.model += 1
            alive[self.model] = self
            self.stanlib = SimpleNamespace(
                bs_log_density_gradient=type(self).called, bs_free_error_msg=self.free
            )

        @staticmethod
        def free(message):
            del messages[ctypes.cast(message, ctypes.c_void_p).value]
            InC.freed += 1

        def model_info(self):
            return f"STAN_THREADS={self.threads}"

    return InC
