"""What travels between processes of a session: checks, counts of bytes, and packing."""

import pickle
from dataclasses import dataclass

import numpy as np
from distributed.protocol.pickle import dumps
from scipy import sparse

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_SPARSE = ("csr", "csc", "coo", "bsr", "dia")


def payload_bytes(value):
    """Count the bytes of the arrays in a message or a partial result.

    That is arrays, plain values, scipy sparse matrices, and tuples, lists and dicts of them; TypeError for
    anything else, which would be pickled and differ from machine to machine.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.scheduler.sessions.payloads import payload_bytes
    >>> payload_bytes({"slope": np.zeros(10), "size": 10})
    80
    """
    kind = type(value)
    if kind in _PLAIN:
        return 0
    if isinstance(value, np.generic) or kind is np.ndarray:
        if value.dtype.hasobject:
            raise TypeError("an array of dtype object does not travel: give it a dtype of numbers or text")
        return value.nbytes
    if kind in (tuple, list):
        return sum(map(payload_bytes, value))
    if kind is dict:
        return sum(map(payload_bytes, value)) + sum(map(payload_bytes, value.values()))
    if sparse.issparse(value) and getattr(value, "format", "") in _SPARSE:
        return sum(part.nbytes for part in vars(value).values() if isinstance(part, np.ndarray))
    raise TypeError(
        f"{kind.__module__}.{kind.__qualname__} does not travel: messages and partial results are arrays, "
        "plain values, scipy sparse matrices (csr, csc, coo, bsr, dia), and tuples, lists and dicts of them"
    )


@dataclass(frozen=True)
class Frames:
    """A packed object: the frames of its pickle and of its arrays' buffers, which are not copied."""

    frames: list

    @classmethod
    def of(cls, value):
        """Pack any object that pickles; classes of ``__main__`` and notebooks go by value."""
        buffers: list[pickle.PickleBuffer] = []
        head = dumps(value, buffer_callback=buffers.append)
        return cls([np.frombuffer(frame, np.uint8) for frame in (head, *(b.raw() for b in buffers))])

    def open(self):
        """Unpack; buffers that are read-only or misaligned are copied, for the kernels."""
        head, *buffers = self.frames
        return pickle.loads(head, buffers=[_usable(frame) for frame in buffers])


def _usable(frame):
    if isinstance(frame, bytes):
        return bytearray(frame)
    return frame if frame.ctypes.data % 16 == 0 else frame.copy()
