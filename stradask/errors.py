"""Errors that stradask raises.

They stand outside the folders of the package, because every folder (also `datasets`, which
imports no other) raises them.
"""

import difflib
import os

LONGEST_NAME = 255  # of a file, in most file systems


class StradaskError(Exception):
    """Base of every error that stradask defines."""


class DataError(StradaskError, ValueError):
    """An input that cannot be used; the message names the argument, the value and the remedy."""


class CheckpointMismatch(StradaskError):
    """A checkpoint belongs to other parameters or other data than the fit that found it.

    Attributes
    ----------
    there : dict
        What differs, by name, as the checkpoint has it.
    """

    def __init__(self, message="", there=None):
        super().__init__(message)
        self.there = there or {}


class ModelFileError(StradaskError):
    """A model file that is truncated, foreign, or of a newer format."""


class DeviceError(StradaskError, RuntimeError):
    """A GPU that is missing, cannot be used or has too little memory; the message has the remedy."""


class WorkerLost(StradaskError):
    """A worker, or the way to it, is gone; the engine opens its session anew and repeats the round."""


class InterruptedFitWarning(UserWarning):
    """A fit was stopped with Ctrl-C between two rounds; the model so far is kept."""


class PosteriorWarning(UserWarning):
    """The diagnostics of a posterior say not to use its draws; the message quotes the lines marked bad."""


def shortened(value, most=80):
    """Show a value of the caller's in a message, in at most `most` characters.

    Long arrays and lists are shown by their shape or length and their first values.
    """
    shape = getattr(value, "shape", None)
    if isinstance(value, (list, tuple)) and len(value) > 6:
        text = f"{len(value)} values: {', '.join(shortened(part, 20) for part in value[:3])}, ..."
    elif isinstance(shape, tuple) and shape and hasattr(value, "ravel"):
        first = ", ".join(shortened(part, 20) for part in value.ravel()[:3].tolist())
        text = f"an array of shape {shape}: {first}, ..."
    else:  # the part that is left out is not made into text first
        text = repr(value[:most]) if isinstance(value, (str, bytes)) else " ".join(repr(value).split())
        if isinstance(value, (str, bytes)) and len(value) > most:
            text += "..."
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(names, near=None, most=8):
    """Name columns in a message, `most` of them; ask for the one that is closest to the name `near`."""
    names = [str(name) for name in names]
    said = ", ".join(shortened(name, 30) for name in names[:most])
    said += f", ... ({len(names):,} in all)" if len(names) > most else ""
    closest = difflib.get_close_matches(str(near), names, 1) if near is not None else []
    return said + (f"; did you mean {shortened(closest[0], 40)}?" if closest else "")


def in_brief(text, most=140):
    """Return what another library says, or a path: of a long one, which quotes the caller, the two ends."""
    text = " ".join(str(text).split())
    return text if len(text) <= most else f"{text[: most // 2]}...{text[3 - most // 2 :]}"


def check_path(path):
    """Refuse a text that can be no file's name, which the operating system would show in whole."""
    longest = max(map(len, os.fsencode(path).split(os.fsencode(os.sep))))
    if longest > LONGEST_NAME:
        raise DataError(
            f"{shortened(str(path))} is no path: a part of it has {longest} bytes, and a name of a file "
            f"or folder at most {LONGEST_NAME}"
        )


def not_utf8(path, error, first=1):
    """Make the error for a file whose bytes a UnicodeDecodeError names, with what converts the file.

    `first` is the number of the first line of these bytes, None if it is not known.
    """
    data = error.object
    encoding = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "WINDOWS-1252"
    line = "" if first is None else f", line {data[: error.start].count(bytes([10])) + first}"
    around = data[max(0, error.start - 10) : error.start + 10].decode("latin-1")
    return DataError(
        f"{path}{line}: not UTF-8 text (near {shortened(around)}); convert it, for instance "
        f"iconv -f {encoding} -t UTF-8 OLD > NEW, or save it as CSV UTF-8"
    )
