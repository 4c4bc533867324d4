"""Densities that are C functions: bits of the same density compiled by numba, threads, refusals."""

import ctypes
import math
import pickle
import shutil
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

import stradask as sd
from stradask.algorithms.bayes.adapters.pointer import DroppedErrors, _watched_errors
from stradask.errors import DataError

SIGNATURE = "float64(CPointer(float64), CPointer(float64), int64)"
SETTINGS = {"sampler": "nuts", "n_samples": 500, "n_warmup": 300, "random_state": 0}


@numba.cfunc(SIGNATURE)
def funnel_free(q, g, d):
    """A correlated normal density: the first number is standard, each later one normal about that before."""
    total, before = 0.0, 0.0
    for i in range(d):
        rest = q[i] - before
        total -= 0.5 * rest * rest
        g[i] = -rest
        if i:
            g[i - 1] += rest
        before = q[i]
    return total


@numba.cfunc("float64(CPointer(float64), CPointer(float64))")
def two_arguments(q, g):
    return 0.0


CALLED, SINGLE = (
    ctypes.CFUNCTYPE(kind, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_double), ctypes.c_int64)
    for kind in (ctypes.c_double, ctypes.c_float)
)


@numba.njit
def same_of_numba(q, data, g):
    total, before = 0.0, 0.0
    for i in range(len(q)):
        rest = q[i] - before
        total -= 0.5 * rest * rest
        g[i] -= rest
        if i:
            g[i - 1] += rest
        before = q[i]
    return total


def test_draws_are_those_of_the_density_that_numba_compiles():
    start = [0.1, 0.2, 0.3]
    by_pointer = sd.sample(sd.from_pointer(funnel_free, start), **SETTINGS)
    by_numba = sd.sample(same_of_numba, None, np.zeros(1), start, **SETTINGS)
    np.testing.assert_array_equal(by_pointer.draws, by_numba.draws)
    threads = sd.sample(sd.from_pointer(funnel_free, start), n_jobs=2, **SETTINGS)
    np.testing.assert_array_equal(by_pointer.draws, threads.draws)


def test_moments_and_names():
    names = ["a", "b", "c"]
    posterior = sd.sample(sd.from_pointer(funnel_free.address, np.zeros(3), names=names), random_state=0)
    assert posterior.names == names
    sds = [posterior[name].std() for name in names]
    np.testing.assert_allclose(sds, np.sqrt([1, 2, 3]), rtol=0.05)


def test_a_function_of_a_c_compiler(tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = "#include <stdint.h>\ndouble f(const double *q, double *g, int64_t d) {\n"
    source += "double s = 0; for (int64_t i = 0; i < d; i++)"
    source += "{ g[i] = -4 * q[i]; s -= 2 * q[i] * q[i]; } return s; }"
    (tmp_path / "f.c").write_text(source)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", tmp_path / "f.so", tmp_path / "f.c"], check=True
    )
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    posterior = sd.sample(sd.from_pointer(library.f, np.zeros(2)), random_state=0)
    np.testing.assert_allclose(posterior.sd()["theta"], 0.5, rtol=0.05)


def test_nothing_passes_through_python():
    """While a thread samples, another runs Python code all the time: it would not if the GIL were held."""
    density = sd.from_pointer(spinning, np.zeros(2)).model()
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1

    other = threading.Thread(target=count)
    from stradask.kernels.bayes.chain import evaluate_all

    evaluate_all(density.address, np.zeros((1, 2)), density.data, density.meta)  # compiled before
    other.start()
    try:
        before = counted[0]
        evaluate_all(density.address, np.zeros((300, 2)), density.data, density.meta)
        assert counted[0] > before + 1000
    finally:
        done.set()
        other.join()


@numba.cfunc(SIGNATURE)
def spinning(q, g, d):
    """A normal density after a long loop."""
    total = 0.0
    for i in range(300_000):
        total += math.sin(q[0] + i) * 1e-30
    g[0], g[1] = -q[0], -q[1]
    return total - 0.5 * (q[0] ** 2 + q[1] ** 2)


@numba.cfunc(SIGNATURE)
def half(q, g, d):
    """A normal density above -1, NaN below."""
    g[0] = -q[0]
    return -0.5 * q[0] ** 2 if q[0] > -1.0 else math.nan


@numba.cfunc(SIGNATURE)
def wrong_slope(q, g, d):
    g[0] = q[0] + 1.0
    return -0.5 * q[0] ** 2


def test_nan_is_no_density_and_counted():
    with pytest.warns(sd.errors.PosteriorWarning):
        posterior = sd.sample(sd.from_pointer(half, [0.5]), sampler="nuts", random_state=0)
    assert posterior.draws.min() > -1
    assert "undefined" in str(posterior.diagnostics) or "NaN" in str(posterior.diagnostics)


@numba.cfunc(SIGNATURE)
def divides(q, g, d):
    """A normal density that divides by zero in its tail: numba then returns 0, the highest density."""
    g[0] = -q[0]
    return -0.5 * q[0] ** 2 if q[0] > -1.5 else 1.0 / (q[0] - q[0])


@CALLED
def looks_up(q, g, d):
    g[0] = -q[0]
    return -0.5 * q[0] ** 2 if q[0] > -1.5 else {}["a name that is missing"]


@pytest.mark.parametrize(
    ("function", "kind"), [(divides, ZeroDivisionError), (looks_up, KeyError)], ids=["numba", "ctypes"]
)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_that_c_drops_ends_the_run_with_its_traceback(function, kind, n_jobs):
    hook, density = sys.unraisablehook, sd.from_pointer(function, [0.5])
    with pytest.raises(kind) as caught:
        sd.sample(density, sampler="nuts", n_jobs=n_jobs, random_state=0)
    assert "return NaN where there is no density" in "".join(caught.value.__notes__)
    assert sys.unraisablehook is hook
    if function is looks_up:
        assert any(entry.name == "looks_up" for entry in caught.traceback)


def test_runs_that_end_in_any_order_lose_no_error_and_leave_no_hook():
    hook, first, second = sys.unraisablehook, DroppedErrors(), DroppedErrors()
    run, other = _watched_errors(first), _watched_errors(second)
    run.__enter__()
    other.__enter__()
    run.__exit__(None, None, None)
    fails = ctypes.CFUNCTYPE(ctypes.c_double)(lambda: 1 / 0)
    fails()
    other.__exit__(None, None, None)
    assert isinstance(second.first, ZeroDivisionError)
    assert second.flag[0] == 1
    assert first.first is None
    assert sys.unraisablehook is hook


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sd.from_pointer(math.sin, [0.0]), "must be a numba.cfunc"),
        (lambda: sd.from_pointer(same_of_numba, [0.0]), "must be a numba.cfunc"),
        (lambda: sd.from_pointer(0, [0.0]), "has the address 0"),
        (lambda: sd.from_pointer(2**63, [0.0]), "where there is no function"),
        (lambda: sd.from_pointer(CALLED(0), [0.0]), "has the address None"),
        (lambda: sd.from_pointer(two_arguments, [0.0]), r"takes \(LP_c_double, LP_c_double\)"),
        (lambda: sd.from_pointer(SINGLE(lambda q, g, d: 0.0), [0.0]), "returns c_float"),
        (lambda: sd.from_pointer(half, [np.nan]), "start must be a vector of finite numbers"),
        (lambda: sd.from_pointer(half, [0.0], names=["a", "b"]), "names must be"),
        (lambda: sd.sample(sd.from_pointer(wrong_slope, [0.5])), "gradient"),
        (lambda: sd.sample(sd.from_pointer(half, [0.5]), n_shards=2), "take n_shards=1"),
        (lambda: sd.sample(sd.from_pointer(half, [0.5]), engine="dask"), "valid in its own process only"),
        (lambda: sd.sample(sd.from_pointer(half, [0.5]), data=[1.0]), "alone"),
        (lambda: sd.sample(sd.from_pointer(half, [0.5]), checkpoint="x", random_state=0), "has no digest"),
        (lambda: pickle.dumps(sd.from_pointer(half, [0.5])), "valid in its own process only"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(DataError, match=words):
        make()
