import threading

import numba as nb
import numpy as np
import pytest

from stradask.kernels import one_form


def _kernel():
    @one_form.njit(nb.float64(nb.float64[::1], nb.int64))
    def total(x, n):
        """Add up."""
        out = 0.0
        for i in range(n):
            out += x[i]
        return out

    return total


def test_it_is_compiled_at_the_first_call_for_its_signature_alone():
    total = _kernel()
    assert (total.__name__, total.__doc__, total.compiled.signatures) == ("total", "Add up.", [])
    assert total(np.ones(3), 2) == 2.0
    assert total(np.ones(3), True) == 1.0
    for wrong in (np.ones(3, np.float32), np.ones((3, 3)), np.ones(6)[::2]):
        with pytest.raises(TypeError, match="No matching definition"):
            total(wrong, 2)
    assert total.compiled.signatures == [(nb.float64[::1], nb.int64)]


def test_threads_may_make_the_first_call_together():
    total, together, results = _kernel(), threading.Barrier(4), []

    def call():
        together.wait()
        results.append(total(np.ones(3), 3))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3.0] * 4
    assert len(total.compiled.signatures) == 1
