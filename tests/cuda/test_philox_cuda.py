"""Philox in CUDA is that of the CPU bit for bit: on the emulator, and on a GPU where there is one."""

from pathlib import Path

import numba as nb
import numpy as np
import pytest
from cuda_devices import KINDS, device_of

from stradask.kernels import random
from stradask.kernels.cuda import launch

HERE = Path(__file__).parent
# Known answers of the Random123 distribution (kat_vectors, philox4x32 10): counter, key, words.
KNOWN = """
00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1
"""


@nb.njit
def _blocks(counters):
    out = np.empty((len(counters), 4), np.uint32)
    for i in range(len(counters)):
        c = counters[i]
        r0, r1, r2, r3 = random.philox4x32(c[0], c[1], c[2], c[3], c[4], c[5])
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = r0, r1, r2, r3
    return out


@nb.njit
def _hashes(numbers):
    out = np.empty_like(numbers)
    for i in range(len(numbers)):
        out[i] = random.hash32(numbers[i])
    return out


@pytest.fixture(params=KINDS)
def run(request):
    """Launch a kernel of streams.cu over rows of uint32, one result array a row."""
    device = device_of(request.param, seed=1, folder=HERE)
    text = launch.source("streams.cu", HERE)
    kernels = (
        launch.CudaKernels(text, device.number) if request.param == "gpu" else device.kernels("streams.cu")
    )

    def run(name, rows, shape, dtype):
        out = device.zeros(shape, dtype)
        kernels.launch(name, -(-len(rows) // 64), 64, (device.put(rows), out, np.int32(len(rows))))
        return device.get(out)

    return run


@pytest.fixture
def rows():
    return np.random.default_rng(0).integers(0, 2**32, (1000, 6), dtype=np.uint32)


def test_blocks(run, rows):
    known = np.array(
        [[int(word, 16) for word in line.split()] for line in KNOWN.split("\n")[1:-1]], np.uint32
    )
    rows[:3] = known[:, :6]
    found = run("blocks_of_philox", rows, (1000, 4), np.uint32)
    assert (found[:3] == known[:, 6:]).all()
    assert (found == _blocks(rows)).all()


def test_uniforms(run):
    expected = np.empty(64, np.float32)
    random.fill_uniform(expected, 5, np.uint64(0x299F31D0_A4093822), 2, 3, 4)
    counters = np.array([[5 + b, 4, 3, 2, 0xA4093822, 0x299F31D0] for b in range(16)], np.uint32)
    words = run("blocks_of_philox", counters, (16, 4), np.uint32)
    assert (run("units", words.T.ravel(), 64, np.float32) == expected).all()


def test_hashes(run, rows):
    numbers = np.append(rows.ravel(), np.array([0, 1, 2**32 - 1], np.uint32))
    assert (run("hashes", numbers, len(numbers), np.uint32) == _hashes(numbers)).all()
