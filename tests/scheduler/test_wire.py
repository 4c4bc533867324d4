"""Number formats of what travels, against their definitions."""

import numpy as np
import pytest

from stradask.scheduler.wire import FORMATS, Wire

SHAPES = [(1,), (256,), (257,), (3, 5, 7), (70_000,)]


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return (rng.standard_normal(70_000) * np.exp(4 * rng.standard_normal(70_000))).astype(np.float32)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_that_were_decoded_stay(values, name, dtype, shape):
    wire, given = Wire(name), values[: np.prod(shape)].reshape(shape).astype(dtype)
    packed = wire.encode(given)
    found = wire.decode(packed, dtype)
    assert found.shape == shape
    assert found.dtype == dtype
    assert found.flags.writeable
    assert np.array_equal(wire.encode(found), packed)
    assert np.array_equal(wire.rounded(given), found)


def test_bfloat16_is_that_of_torch(values):
    torch = pytest.importorskip("torch")
    given = np.concatenate([values, np.array([0, -0.0, np.inf, -np.inf, 1e-40, 3.4e38], np.float32)])
    own = Wire("bfloat16").rounded(given)
    assert np.array_equal(own, torch.from_numpy(given).bfloat16().float().numpy())
    assert np.isnan(Wire("bfloat16").rounded(np.array([np.nan, -np.nan], np.float32))).all()


def test_float16_is_that_of_numpy(values):
    given = np.concatenate([values, np.array([0, 7e4, -np.inf, 1e-9], np.float32)])
    with np.errstate(over="ignore"):
        assert np.array_equal(Wire("float16").rounded(given), given.astype(np.float16).astype(np.float32))


def test_log8_is_the_nearest_power(values):
    found, exact = Wire("log8").rounded(values), values.astype(np.float64)
    for first in range(0, len(values), 256):
        own, x = found[first : first + 256].astype(np.float64), exact[first : first + 256]
        powers = np.round(np.log2(np.abs(x)) * 8)
        kept = powers > powers.max() - 126
        assert (own[powers < powers.max() - 128] == 0).all()
        assert np.abs(own[kept] / x[kept] - 1).max() < 0.046
        steps = np.log2(np.abs(own[kept])) * 8
        assert np.abs(steps - np.round(steps)).max() < 1e-5
        assert (np.abs(steps - np.log2(np.abs(x[kept])) * 8) < 0.52).all()


def test_log8_knows_what_is_no_number():
    given = np.ones(600, np.float32)
    given[[3, 300]] = np.nan, np.inf
    found = Wire("log8").rounded(given)
    assert np.isnan(found[:512]).all()
    assert (found[512:] == 1).all()
    most = np.array([3.4e38, -3.4e38, 0, 1e-40], np.float32)
    assert np.isfinite(Wire("log8").rounded(most)).all()
    assert (Wire("log8").rounded(most)[2:] == 0).all()
    assert (Wire("log8").rounded(np.zeros(300)) == 0).all()


def test_bytes():
    given = np.ones((64, 1024))
    sizes = [Wire(name).encode(given).nbytes / given.nbytes for name in (None, *FORMATS)]
    assert sizes == pytest.approx([1, 0.5, 0.25, 0.25, 0.126], abs=1e-3)
    empty = np.empty(0, np.float32)
    assert all(Wire(name).decode(Wire(name).encode(empty), np.float64) is empty for name in FORMATS)
