"""Answers of workers, packed: an exception that does not unpickle would break the connection."""

import pickle
import traceback

from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps

from ..._version import __version__
from ...errors import StradaskError, WorkerLost
from .payloads import Frames
from .shards import StaleEpoch

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
