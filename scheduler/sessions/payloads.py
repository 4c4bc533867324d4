"""What travels between processes of a session: checks, counts of bytes, packing, and the answers of workers.

An answer has its exception packed: one that does not unpickle would break the connection."""

import pickle
import traceback
from dataclasses import dataclass

import cloudpickle
import numpy as np
from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps
from scipy import sparse

from ..._version import __version__
from ...errors import StradaskError, WorkerLost, in_brief
from .shards import StaleEpoch

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
        """Pack any object that pickles.

        Classes of ``__main__``, of notebooks and of modules that cloudpickle has registered go by value.
        """
        buffers: list[pickle.PickleBuffer] = []
        pack = cloudpickle.dumps if cloudpickle.list_registry_pickle_by_value() else dumps
        head = pack(value, protocol=5, buffer_callback=buffers.append)
        return cls([np.frombuffer(frame, np.uint8) for frame in (head, *(b.raw() for b in buffers))])

    def open(self):
        """Unpack; buffers that are read-only or misaligned are copied, for the kernels."""
        head, *buffers = self.frames
        try:
            return pickle.loads(head, buffers=[_usable(frame) for frame in buffers])
        except (ImportError, AttributeError) as error:
            raise not_imported(error) from error


def not_imported(error):
    """Make the error of a process that lacks the module, or the class in it, of what it was sent."""
    file = getattr(error, "name", None) if isinstance(error, ImportError) else None
    return StradaskError(
        f"{in_brief(error)}: what was sent is of a module that the scheduler and workers cannot import. Call "
        f"client.upload_file({(file or 'my_module') + '.py'!r}) before the fit, or install it there"
    )


def _usable(frame):
    if isinstance(frame, bytes):
        return bytearray(frame)
    return frame if frame.ctypes.data % 16 == 0 else frame.copy()


_SMALL = 10_000  # bytes


def wired(value):
    """Pack an object for Dask's comms, which send large frames uncopied and small ones best in a row."""
    frames = Frames.of(value).frames
    return [to_serialize(frame) if frame.nbytes > _SMALL else frame.tobytes() for frame in frames]


def bytes_of(frame):
    """Count the bytes of a packed object's frame."""
    return len(frame) if isinstance(frame, bytes) else frame.data.nbytes


def answered(function, *args):
    """Call a function; pack what it returns or raises."""
    try:
        value = function(*args)
        return {"ok": [] if value is None else wired(value)}
    except BaseException as error:  # also SystemExit, which would end the worker
        return failure(error)


def failure(error):
    """Pack an exception."""
    if isinstance(error, (StaleEpoch, WorkerLost)):
        return {"lost": str(error)}
    text = "".join(traceback.format_exception(error))
    try:
        pickled = dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    return {"failed": f"{type(error).__name__}: {error}", "traceback": text, "pickled": pickled}


def refused(version):
    """Return the answer to another version; None to the same."""
    if version == __version__:
        return None
    text = f"stradask {__version__} is installed there and {version} here"
    return {"refused": f"{text}: install the same version on both"}


def not_here(epoch):
    """Return the answer to a message of another epoch."""
    return {"lost": f"no session of epoch {epoch} is there"}


def opened(answer, worker):
    """Unpack an answer, or raise its error."""
    if answer is None:  # Dask's answer where there is no such handler
        raise WorkerLost(f"{worker} has no session plugin")
    if "ok" in answer:
        return Frames(answer["ok"]).open() if answer["ok"] else None
    if "lost" in answer:
        raise WorkerLost(f"{worker}: {answer['lost']}")
    if "refused" in answer:
        raise StradaskError(f"{worker}: {answer['refused']}")
    error = StradaskError(answer["failed"])
    if answer["pickled"]:
        try:
            error = pickle.loads(answer["pickled"])
        except Exception as broken:
            error.add_note(f"(it does not unpickle here: {broken})")
    error.add_note(f"on worker {worker}:\n{answer['traceback']}")
    raise error
