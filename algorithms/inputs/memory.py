"""Amounts of memory as parameters."""

import math
import os
import re
import sys
from numbers import Real
from typing import Any

from ...errors import DataError, shortened

# A number, of bytes a second or with a unit.
_RATE = r"(\d+(?:\.\d+)?(?:e\d+)?)(?: ?((?:[kMGT]i?)?)(B|bit)/s)?"


def memory_in_bytes(memory_limit, name="memory_limit"):
    """Read a parameter `memory_limit`, or of another name: bytes, or a number with a unit.

    Examples
    --------
    >>> from stradask.algorithms.inputs.memory import memory_in_bytes
    >>> memory_in_bytes("2GB")
    2000000000
    """
    from dask.utils import parse_bytes

    is_number = isinstance(memory_limit, Real) and not isinstance(memory_limit, bool)
    try:
        if not is_number and not re.search(r"\d", memory_limit):  # Dask reads "" as 1
            raise ValueError("no number")
        n_bytes = int(memory_limit if is_number else parse_bytes(memory_limit))
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(
            f"{name}={shortened(memory_limit)} is no amount of memory: give '2GB' or bytes"
        ) from error
    if n_bytes < 1:
        raise DataError(f"{name}={shortened(memory_limit)}: give an amount above zero")
    return n_bytes


def rate_in_bytes(rate, name):
    """Read a parameter that is a rate: bytes a second, or text with a unit.

    Examples
    --------
    >>> from stradask.algorithms.inputs.memory import rate_in_bytes
    >>> rate_in_bytes("500MB/s", "disk"), rate_in_bytes("10Gbit/s", "network")
    (500000000.0, 1250000000.0)
    """
    from dask.utils import parse_bytes

    value: Any = rate if isinstance(rate, Real) and not isinstance(rate, bool) else math.nan
    if isinstance(rate, str) and (units := re.fullmatch(_RATE, rate.strip())):
        number, times, unit = units.groups("")
        value = float(number) * parse_bytes(f"{times}B") / (8 if unit == "bit" else 1)
    if not 0 < value <= sys.float_info.max:
        raise DataError(
            f"{name}={shortened(rate)} is no rate above zero: give '500MB/s', '10Gbit/s' or bytes a second"
        )
    return float(value)


def machine_memory():
    """Return the bytes of this machine's memory; infinity where the system does not say."""
    names: Any = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return float("inf")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse_beyond(memory_limit, needed, what, remedy):
    """Raise a DataError if `needed` bytes are above a `memory_limit`; None is the memory of this machine."""
    if memory_limit is None:
        most, limit = machine_memory(), "this machine has"
    else:
        most, limit = memory_in_bytes(memory_limit), f"memory_limit={shortened(memory_limit)} is"
    if needed > most:
        raise DataError(f"{what} {needed / 1e9:,.3g} GB, and {limit} {most / 1e9:,.3g} GB: {remedy}")
