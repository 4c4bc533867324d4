"""Chunks that stay on a device or take turns: every one is worked on whole, whichever queue is late."""

import inspect
from typing import NamedTuple

import numpy as np
import pytest
from cuda_emulator import EmulatedDevice

from stradask.kernels.cuda import chunks as chunks_on_device
from stradask.kernels.cuda.chunks import Chunks


class Part(NamedTuple):
    """Numbers that stand, and numbers that work changes."""

    fixed: np.ndarray
    held: np.ndarray


def _parts(n_chunks):
    sizes = [3 + (5 * c) % 7 for c in range(n_chunks)]
    return [Part(np.arange(n) + 100 * c, np.full(n, c, np.float32)) for c, n in enumerate(sizes)]


def _worked(chunks, stream, n_rounds=3):
    """Work on all chunks, each round in its own way; give what is left in them."""
    sums = []
    for r in range(n_rounds):
        for c, part in chunks.visits():

            def work(part=part, r=r, c=c):
                part.held[...] = 2 * part.held + part.fixed + r

            stream.queue(work)
        for _, part in chunks.visits(keep=False):

            def add(part=part):
                sums.append(float(part.held.sum()))

            stream.queue(add)
    stream.synchronize()
    return [chunks.get(c, "held").tolist() for c in range(len(chunks))], sums


def _expected(n_chunks, n_rounds=3):
    parts, sums = _parts(n_chunks), []
    for r in range(n_rounds):
        for part in parts:
            part.held[...] = 2 * part.held + part.fixed + r
        sums += [float(part.held.sum()) for part in parts]
    return [part.held.tolist() for part in parts], sums


def _made(kind, n_chunks, resident, lazy):
    device = EmulatedDevice(lazy=lazy)
    stream = device.stream()
    return kind(device, _parts(n_chunks), resident, stream, written=("held",)), stream


@pytest.mark.parametrize("lazy", range(8))
@pytest.mark.parametrize("n_chunks", [1, 2, 3, 6])
def test_every_chunk_is_worked_on_whole(n_chunks, lazy):
    for resident in (True, False):
        chunks, stream = _made(Chunks, n_chunks, resident, lazy)
        assert _worked(chunks, stream) == _expected(n_chunks)
        chunks.put(n_chunks - 1, "held", np.full_like(_parts(n_chunks)[-1].held, 7))
        (*_, (_, last)) = chunks.visits(keep=False)
        seen = []
        stream.queue(lambda: seen.append(last.held.tolist()))  # noqa: B023
        stream.synchronize()
        assert set(seen[0]) == {7.0}


WAITS = [
    "self._compute.wait(self._in)",
    "self._in.wait(self._out)",
    "self._out.wait(self._compute)",
    "self._out.synchronize()",
]


@pytest.mark.parametrize("wait", WAITS)
def test_a_missing_wait_is_seen(wait):
    text = inspect.getsource(chunks_on_device)
    assert text.count(wait) == 1
    altered = {"__name__": "stradask.kernels.altered"}
    exec(text.replace(wait, "pass"), altered)
    found = []
    for lazy in range(8):
        chunks, stream = _made(altered["Chunks"], 6, False, lazy)
        found.append(_worked(chunks, stream) == _expected(6))
    assert not all(found)


def test_two_chunks_lie_there_at_a_time():
    for resident, room in ((True, 6), (False, 2)):
        device = EmulatedDevice()
        device.zone = 0
        parts = [Part(np.zeros(1000, np.int64), np.zeros(1000, np.float32)) for _ in range(6)]
        chunks = Chunks(device, parts, resident, device.stream(), written=("held",))
        assert len(chunks) == 6
        assert device.memory - device.free_memory() == room * 12_000
