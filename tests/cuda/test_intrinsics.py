"""The emulator's intrinsics against their description in numpy, under several orders of lanes."""

from pathlib import Path

import numpy as np
import pytest
from cuda_devices import compiled, device_of, emulated

pytestmark = emulated
HERE = Path(__file__).parent
LANES = np.arange(32)


@pytest.fixture(
    params=[*((seed, "emulator") for seed in range(3)), pytest.param((1, "compiled"), marks=compiled)]
)
def device(request):
    seed, kind = request.param
    return device_of(kind, seed=seed, folder=HERE)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _run(device, name, grid, block, *arguments, file="intrinsics.cu"):
    """Launch with copies of the arrays, and return what became of them."""
    there = [device.put(a) if isinstance(a, np.ndarray) else a for a in arguments]
    device.kernels(file).launch(name, grid, block, tuple(there))
    return [device.get(a) for a in there if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_shuffles(device, rng, width):
    first = LANES // width * width
    for _ in range(20):
        values = rng.integers(-99, 99, 32).astype(np.int32)
        sources, steps, mask = rng.integers(0, 64, 32), rng.integers(0, 33, 32), rng.integers(0, 32)
        given = np.concatenate([sources, steps, [mask]]).astype(np.int32)
        *_, out = _run(device, "shuffles", 1, 32, values, given, np.int32(width), np.zeros(128, np.int32))
        up, down, across = LANES - steps, LANES + steps, LANES ^ mask
        up = np.where(up < first, LANES, up)
        down = np.where(down >= first + width, LANES, down)
        across = np.where(across >= first + width, LANES, across)
        assert (out.reshape(4, 32) == values[np.stack([first + sources % width, up, down, across])]).all()


def test_votes_matches_and_reductions_of_half_warps(device, rng):
    for turn in range(20):
        values = rng.integers(0, 8, 32).astype(np.int32)
        if turn % 3 == 0:
            values[3] = -1
        _, out, signed = _run(
            device, "votes", 1, 32, values, np.zeros(192, np.uint32), np.zeros(256, np.int32)
        )
        out, signed = out.reshape(6, 32), signed.reshape(8, 32)
        odd = (1 << LANES[values % 2 != 0]).sum()
        for lane in LANES:
            half = lane // 16 == LANES // 16
            mask, own = (1 << LANES[half]).sum(), values[half]
            same = len(set((own >= 0).tolist())) == 1
            assert out[:, lane].tolist() == [
                odd,
                odd & mask,
                (own > 6).any() + 2 * (own >= 0).all(),
                (1 << LANES[half & (values == values[lane])]).sum(),
                mask if same else 0,
                same,
            ]
            assert signed[:, lane].tolist() == [
                own.sum(),
                own.min() - 4,
                own.max() - 4,
                np.bitwise_xor.reduce(own),
                (values & 1).sum(),
                (values > 6).any() + 2 * (values >= 0).all(),
                values[5],
                int(4 * (values[lane + 3 if lane < 29 else lane] + 0.25)),
            ]


def test_arithmetic_on_bits(device, rng):
    n = 500
    a, b = rng.integers(0, 2**32, (2, n), dtype=np.uint32)
    a[0] = 0
    *_, out = _run(device, "scalars", -(-n // 64), 64, a, b, np.zeros((n, 8), np.uint32), np.int32(n))
    for x, y, found in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        assert found == [
            x * y >> 32,
            x.bit_count(),
            32 - x.bit_length(),
            (x & -x).bit_length(),
            int(f"{x:032b}"[::-1], 2),
            ((y << 32 | x) << (x & 31) >> 32) & 0xFFFFFFFF,
            min(x, y),
            x * y & 0xFFFFFFFF,
        ]


def test_atomics(device):
    kinds = [(4, np.int32), (4, np.uint32), (1, np.uint64), (1, np.float32), (1, np.float64)]
    found = _run(device, "atomics", (1, 2), (8, 4, 2), *(np.zeros(n, kind) for n, kind in kinds))
    numbers = np.concatenate([np.arange(64), 1000 + np.arange(64)])
    assert found[0].tolist() == [numbers.sum(), numbers.max(), -numbers.max(), 7]
    assert found[1].tolist() == [128, 128 % 7, 0xFFFFFFFF, 9]
    assert [a.item() for a in found[2:]] == [128 << 33, 64, 32]


def test_the_smallest_numbers_are_flushed(device):
    """As CuPy compiles; before and after a launch the process has them."""
    least = np.finfo(np.float32).tiny
    values = np.array([4 * least, 2 * least, least, -least, least / 2, 1e-45, 0, 3], np.float32)
    expected = [2 * least, least, 0, 0, 0, 0, 0, 1.5]
    assert _run(device, "halves", 1, 8, values, np.zeros(8, np.float32))[1].tolist() == expected
    assert (values[4:6] * np.float32(1) > 0).all()
