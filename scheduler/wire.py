"""Number formats of what travels: fewer bytes for activations, gradients and factors."""

import itertools

import numpy as np

FORMATS = ("float32", "float16", "bfloat16", "log8")
WIDE_FORMATS = ("float32", "bfloat16", "log8")  # that hold gradients, which may be very small
_ENCODED = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "log8": np.uint8}
_BLOCK, _STEPS = 256, 8  # numbers that share a largest exponent; steps between two powers of two
_LEVELS = 127  # of a magnitude, zero apart
_BAD = np.int16(-(2**15))  # marks a block with NaN or infinity
_AT_ONCE = 2**16  # numbers, which stay in the cache

# The nearest power of 2 ** (1 / 8) by the first 8 bits of a mantissa, and the mantissas of these powers.
_NEAREST = np.rint(np.log2(1 + (np.arange(256) + 0.5) / 256) * _STEPS).astype(np.int16)
_MANTISSAS = np.exp2(np.arange(_STEPS) / _STEPS).astype(np.float32).view(np.uint32) & np.uint32(0x7FFFFF)
_MOST = 255 * _STEPS - 1  # the largest power that is finite


class Wire:
    """Encodes arrays of floats for their way to another place, and decodes them there.

    Parameters
    ----------
    name : {"float32", "float16", "bfloat16", "log8"} or None
        None leaves arrays as they are. "float16" has 11 bits of precision from 6e-5 to 65,504, fewer below
        and infinity above. "bfloat16" has 8 bits and the range of float32. "log8"
        is a sign and a power of ``2 ** (1/8)``: relative errors up to 4.6 %, over a range of 2 ** 15.75 below
        the largest of 256 neighbours; what is smaller becomes 0. Decoded numbers are encoded again without
        loss.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.wire import Wire
    >>> values = np.array([1.0, -0.3, 1e-9, 0.0], np.float32)
    >>> for name in ("float32", "float16", "bfloat16", "log8"):
    ...     wire = Wire(name)
    ...     print(wire.decode(wire.encode(values), np.float32).tolist())
    [1.0, -0.30000001192092896, 9.999999717180685e-10, 0.0]
    [1.0, -0.300048828125, 0.0, 0.0]
    [1.0, -0.30078125, 9.968061931431293e-10, 0.0]
    [1.0, -0.2973017692565918, 0.0, 0.0]
    """

    def __init__(self, name=None):
        self.name = name

    def encode(self, array):
        """Return the array as it travels."""
        if self.name is None or not array.size:
            return array
        with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite
            values = np.ascontiguousarray(array, np.float32)
        if self.name == "float32":
            return values
        if self.name == "float16":
            with np.errstate(over="ignore"):
                return values.astype(np.float16)
        return _bfloat16(values) if self.name == "bfloat16" else _log8(values)

    def decode(self, packed, dtype):
        """Return the array of a type, which may be changed."""
        if self.name is None or not packed.size:
            return packed
        if self.name == "bfloat16":
            packed = (packed.astype(np.uint32) << np.uint32(16)).view(np.float32)
        elif self.name == "log8":
            packed = _from_log8(packed)
        return packed.astype(dtype, copy=self.name == "float32")

    def rounded(self, array):
        """Return the array as who gets it will see it."""
        return self.decode(self.encode(array), array.dtype)

    def from_bytes(self, packed, array):
        """Fill an array from the bytes of its encoded form; without a name they are those of the array."""
        encoded = packed.view(_ENCODED.get(self.name, array.dtype))
        array[:] = self.decode(encoded, array.dtype).reshape(array.shape)


def _bfloat16(values):
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    found = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    found = found.astype(np.uint16)
    found[np.isnan(values)] = 0x7FC0
    return found


def _log8(values):
    """Return bytes: number of axes, shape, the largest exponent of each block, and a byte for each number."""
    n_blocks = -(-values.size // _BLOCK)
    head = np.array([values.ndim, *values.shape], np.int64).view(np.uint8)
    found = np.empty(len(head) + 2 * n_blocks + values.size, np.uint8)
    found[: len(head)] = head
    tops = found[len(head) : len(head) + 2 * n_blocks].view(np.int16)
    codes, flat = found[len(head) + 2 * n_blocks :], values.ravel().view(np.uint32)
    for first, last in _portions(values.size):
        bits = flat[first:last]
        exponents = ((bits >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int16)
        powers = _NEAREST[(bits >> np.uint32(15)) & np.uint32(0xFF)]
        powers += exponents * np.int16(_STEPS)
        powers[exponents == 0] = 0  # zeros, and numbers below 1e-38
        np.minimum(powers, np.int16(_MOST), out=powers)
        at = np.arange(0, len(bits), _BLOCK)
        most = np.maximum.reduceat(powers, at)
        bad = np.maximum.reduceat(exponents, at) == 0xFF
        tops[first // _BLOCK : first // _BLOCK + len(at)] = np.where(bad, _BAD, most)
        powers -= np.repeat(most, _BLOCK)[: len(bits)] - np.int16(_LEVELS)
        np.maximum(powers, 0, out=powers)
        signs = (bits >> np.uint32(24)) & np.uint32(0x80)
        codes[first:last] = powers.astype(np.uint8) | signs.astype(np.uint8)
    return found


def _from_log8(packed):
    packed = np.ascontiguousarray(packed)
    n_axes = int(packed[:8].copy().view(np.int64)[0])
    start = 8 * (1 + n_axes)
    shape = packed[8:start].copy().view(np.int64).tolist()
    size = int(np.prod(shape))
    n_blocks = -(-size // _BLOCK)
    tops = packed[start : start + 2 * n_blocks].copy().view(np.int16)
    codes, found = packed[start + 2 * n_blocks :], np.empty(size, np.float32)
    for first, last in _portions(size):
        own = codes[first:last]
        of_block = np.repeat(tops[first // _BLOCK : -(-last // _BLOCK)], _BLOCK)[: last - first]
        powers = (own & np.uint8(0x7F)).astype(np.int16)
        is_zero = powers == 0
        powers += of_block - np.int16(_LEVELS)
        is_zero |= powers < _STEPS
        bits = (powers >> np.int16(3)).astype(np.uint32) << np.uint32(23)
        bits |= _MANTISSAS[powers & np.int16(_STEPS - 1)]
        bits[is_zero] = 0
        bits |= (own & np.uint8(0x80)).astype(np.uint32) << np.uint32(24)
        values = bits.view(np.float32)
        if (of_block == _BAD).any():
            values[of_block == _BAD] = np.nan
        found[first:last] = values
    return found.reshape(shape)


def _portions(size):
    return itertools.pairwise([*range(0, size, _AT_ONCE), size])
