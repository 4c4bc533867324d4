"""Numbers from 0 on and sparse counts in few bytes, for messages, files and what the coordinator keeps."""

import numpy as np

from ...inputs.indices import narrow_csr

LARGE = 255  # numbers from here on are in an array of their own
PARTS = ("sizes", "topics", "values", "large")  # of packed counts


def pack_numbers(numbers):
    """Write integers from 0 on as bytes, and those above 254 apart: two arrays.

    Most words have few tokens in a shard, and follow soon after another one.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.topics.blocks.packing import pack_numbers, unpack_numbers
    >>> pack_numbers(np.array([3, 300, 0]))
    (array([  3, 255,   0], dtype=uint8), array([300], dtype=uint16))
    >>> unpack_numbers(pack_numbers(np.array([3, 300, 0])))
    array([  3, 300,   0])
    """
    return np.minimum(numbers, LARGE).astype(np.uint8), _narrow(numbers[numbers >= LARGE])


def unpack_numbers(packed, dtype=np.int64):
    """Undo `pack_numbers`."""
    small, large = packed
    numbers = small.astype(dtype)
    numbers[small == LARGE] = large
    return numbers


def pack_words(words):
    """Write words in ascending order as their distances."""
    return pack_numbers(np.diff(words, prepend=-1) - 1)


def unpack_words(packed):
    """Undo `pack_words`; int64."""
    return np.cumsum(unpack_numbers(packed) + 1) - 1


def pack_counts(counts):
    """Return the `PARTS` of a CSR array of counts.

    They have 2 bytes for a count that is not zero up to 256 topics, 3 above, and 1 or 2 a row.
    """
    return _narrow(np.diff(counts.indptr)), _narrow(counts.indices), *pack_numbers(counts.data)


def unpack_counts(packed, n_topics):
    """Undo `pack_counts`."""
    sizes, topics, *numbers = packed
    indptr = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return narrow_csr(unpack_numbers(numbers, np.int32), topics, indptr, n_topics)


def _narrow(values):
    return values.astype(np.min_scalar_type(values.max(initial=0)))
