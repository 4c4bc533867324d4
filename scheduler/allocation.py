"""Memory of workers: what large temporaries free is kept for the next ones."""

import ctypes
import functools
import os

_TRIM, _MMAP = -1, -3  # glibc's M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_KEPT, _MAPPED = 2**28, 2**25  # bytes; the latter is the most that glibc takes


@functools.cache
def keep_freed_memory():
    """Let this process keep up to 256 MB of freed memory, if a nanny of Dask's has set the limit to 64 KB.

    With the nanny's setting every large temporary is mapped, faulted in and unmapped anew: networks took
    twice the CPU time. It is for glibc, once for a process, and lasts as long as that. ``dask.config``
    ``stradask.keep-freed-memory`` (default True) switches it off. Returns whether anything was set.

    Examples
    --------
    >>> from stradask.scheduler.allocation import keep_freed_memory
    >>> keep_freed_memory()  # not a worker of a nanny's
    False
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        return False
    import dask

    if not dask.config.get("stradask.keep-freed-memory", True):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another system, or another C library
        return False
    return bool(mallopt(_TRIM, _KEPT) and mallopt(_MMAP, _MAPPED))
