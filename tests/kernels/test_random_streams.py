"""Philox against the published answers, and the streams made of it."""

import numba as nb
import numpy as np
import pytest
from scipy import stats

from stradask.kernels.random import fill_uniform, philox4x32


@nb.njit
def _philox(c, k):
    return philox4x32(c[0], c[1], c[2], c[3], k[0], k[1])


# Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_gives_the_published_answers(counter, key, answer):
    assert _philox(np.array(counter, np.uint32), np.array(key, np.uint32)) == answer


def _stream(n, seed=1, purpose=2, round_=3, index=4, first=0):
    out = np.empty(n, np.float32)
    fill_uniform(out, first, np.uint64(seed), purpose, round_, index)
    return out


def test_draws_are_the_philox_words_cut_to_24_bits():
    seed = 0x299F31D0_A4093822
    out = _stream(8, seed, purpose=0x03707344, round_=0x13198A2E, index=0x85A308D3, first=0x243F6A88)
    words = np.array(KNOWN[2][2], np.uint32)
    np.testing.assert_array_equal(out[::2], (words >> 8).astype(np.float32) / 2**24)


def test_draws_are_uniform_and_below_one():
    out = _stream(400_000)
    assert out.min() >= 0
    assert out.max() < 1
    assert stats.kstest(out, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("name", ["seed", "purpose", "round_", "index"])
def test_every_part_of_the_name_gives_another_stream(name):
    assert (_stream(64) != _stream(64, **{name: 77})).mean() > 0.9


def test_a_stream_can_be_entered_anywhere():
    np.testing.assert_array_equal(_stream(64).reshape(4, 16)[:, 5:9], _stream(16, first=5).reshape(4, 4))
