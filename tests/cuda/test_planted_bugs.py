"""Mistakes that a GPU lets pass in silence, planted in kernels: the harness catches each of them."""

from pathlib import Path

import numpy as np
import pytest
from cuda_devices import emulated
from cuda_emulator import EmulatedDevice, sanitized

from stradask.errors import DeviceError

pytestmark = emulated
HERE = Path(__file__).parent
SEEDS = range(8)


@pytest.fixture(params=["", "-DEMU_UCONTEXT"], ids=["own switch", "ucontext"])
def flags(request):
    return [request.param] if request.param else []


def _run(name, block=32, seed=0, flags=(), grid=1, more=(), kind=np.int32, **options):
    """What a kernel leaves in an array of 256 zeros."""
    device = EmulatedDevice(seed, flags=flags, folder=HERE)
    out = device.zeros(256, kind)
    device.kernels("bugs.cu").launch(name, grid, block, (out, *more), **options)
    return device.get(out)


CAUGHT = {
    "shfl_in_branch": (32, r"(?s)deadlock.*__shfl_xor_sync, line \d+.*__syncthreads"),
    "shfl_after_return": (
        32,
        r"thread \(16,0,0\).*__shfl_down_sync.*reads lane 20, which is not taking part",
    ),
    "not_in_mask": (32, r"lane 16 is not in its own mask 0x0000ffff"),
    "different_masks": (32, r"(?s)deadlock.*lanes 0x00000008 wait at __any_sync"),
    "barrier_in_branch": (64, r"barrier in divergent code"),
    "spin_forever": (64, r"livelock, threads only spin"),
    "asserts": (32, r"assertion failed, line \d+: threadIdx.x < 5"),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_the_launch_ends_with_a_report(name, flags):
    block, message = CAUGHT[name]
    with pytest.raises(DeviceError, match=message):
        _run(name, block, flags=flags)


def test_a_barrier_that_some_warps_miss(flags):
    with pytest.raises(DeviceError, match=r"(?s)deadlock.*__ballot_sync"):
        _run("barrier_in_loop", 64, flags=flags, more=(np.int32(1),))


@pytest.mark.parametrize("offset", [250, 256, -40])
def test_a_write_outside_of_an_array(offset):
    with pytest.raises(DeviceError, match="wrote outside of its argument o"):
        _run("out_of_bounds", more=(np.int32(offset),))


def test_a_write_past_the_shared_memory(flags):
    with pytest.raises(DeviceError, match="wrote past its 100 bytes of dynamic shared memory, at byte 100"):
        _run("dyn_overrun", flags=flags, kind=np.float32, shared=100)


def test_shared_memory_begins_with_nonsense():
    assert np.isnan(_run("uninit_shared", kind=np.float32)).sum() == 31


RACES = {"missing_syncwarp": 32, "shfl_is_no_fence": 32, "missing_syncthreads": 64}


@pytest.mark.parametrize("name", ["missing_syncwarp", "missing_syncthreads"])
def test_orders_of_lanes_show_a_missing_barrier(name):
    assert len({_run(name, RACES[name], seed).tobytes() for seed in SEEDS}) > 1


def test_orders_of_blocks_show_a_race_of_blocks():
    assert len({_run("block_order", 32, seed, grid=7)[0] for seed in SEEDS}) > 1


SOUND = {"with_syncwarp": 32, "atomic_ok": 64, "two_halves": 32, "barrier_after_exit": 64}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_kernel_gives_one_result_in_any_order(name, flags):
    assert len({_run(name, SOUND[name], seed, flags).tobytes() for seed in SEEDS}) == 1


def test_a_group_of_lanes_that_happen_to_be_active(flags):
    for seed in SEEDS:
        out = _run("opportunistic", 96, seed, flags)
        assert out[0] == 32
        assert sorted(out[1:33]) == list(range(0, 96, 3))


@pytest.mark.parametrize("seed", [0, 5])
def test_a_lock_is_passed_on(seed):
    device = EmulatedDevice(seed, folder=HERE)
    lock, out = device.zeros(1, np.int32), device.zeros(1, np.int32)
    device.kernels("bugs.cu").launch("spin_lock", 3, 96, (lock, out))
    assert (lock[0], out[0]) == (0, 3 * 96)


def test_a_launch_after_a_failed_one():
    device = EmulatedDevice(folder=HERE)
    out = device.zeros(32, np.int32)
    kernels = device.kernels("bugs.cu")
    with pytest.raises(DeviceError):
        kernels.launch("not_in_mask", 1, 32, (out,))
    kernels.launch("with_syncwarp", 1, 32, (out,))
    assert out.tolist() == list(range(32))[::-1]


# Sanitizers: a process for each, with its runtime before everything else ------------------------------------

SCRIPT = """
import sys
import numpy as np
from cuda_emulator import EmulatedDevice
device = EmulatedDevice(sanitize=sys.argv[1], folder="")
for run in sys.argv[2:]:
    name, block, *more = run.split(",")
    print("kernel", name, file=sys.stderr, flush=True)
    out = device.zeros(256, np.int32)
    device.kernels("bugs.cu").launch(name, 1, int(block), (out, *map(np.int32, map(int, more))))
    print("ended", name, file=sys.stderr, flush=True)
"""


def _sanitized(which, *runs):
    """What a sanitizer says of each of some kernels."""
    said = sanitized(which, SCRIPT, which, *runs)
    if said is None:
        pytest.skip(f"the C++ compiler has no {which} sanitizer")
    parts = said.split("kernel ")[1:]
    assert len(parts) == len(runs), said
    return parts


def test_the_address_sanitizer_sees_a_write_outside():
    sound, wrong = _sanitized("address", "with_syncwarp,32", "out_of_bounds,32,256")
    assert sound == "with_syncwarp\nended with_syncwarp\n"
    assert "AddressSanitizer: heap-buffer-overflow" in wrong
    assert "ended" not in wrong


@pytest.mark.slow
def test_the_thread_sanitizer_sees_races():
    races = [f"{name},{block}" for name, block in RACES.items()] + ["race_add,64"]
    sound, *wrong = _sanitized("thread", "with_syncwarp,32", *races)
    assert sound == "with_syncwarp\nended with_syncwarp\n"
    for text in wrong:
        assert "ThreadSanitizer: data race" in text
