"""Memory of workers: what large temporaries free is kept for the next ones."""

import asyncio
import contextlib
import ctypes
import functools
import gc
import math
import mmap
import os
from typing import NamedTuple

_TRIM, _MMAP = -1, -3  # glibc's M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_KEPT, _MAPPED = 2**28, 2**25  # bytes; the latter is the most that glibc takes
_SHARE = 1 / 16  # of a worker's memory limit, which is kept at most
_RESERVE, _USABLE = 2**27, 0.9  # bytes, and a share of what is free, for messages and temporaries


@functools.cache
def keep_freed_memory():
    """Let this process keep freed memory, if a nanny of Dask's has set glibc to give back all but 64 KB.

    Up to 256 MB are kept, or a sixteenth of the worker's memory limit.

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
    import distributed

    try:
        limit = distributed.get_worker().memory_manager.memory_limit
    except ValueError:  # this process has none
        limit = None
    mallopt = _of_glibc("mallopt")
    return mallopt is not None and bool(mallopt(_TRIM, _kept(limit)) and mallopt(_MMAP, _MAPPED))


def _kept(limit):
    return int(min(_KEPT, _SHARE * limit)) if limit else _KEPT


def return_freed_memory():
    """Return the memory that was freed to the system, where the C library keeps it for the next ones."""
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


def release_code():
    """Release pages of the code of shared libraries, which are read again where they are used.

    A process counts them as its own: 100 MB and more, of which most are LLVM's and others' that a fit only
    begins with. They are never written to. On Linux alone.
    """
    if (madvise := _of_glibc("madvise")) is None:
        return
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions, *_, path = line.split(maxsplit=5)
            if permissions == "r-xp" and path.startswith("/"):
                first, end = (int(address, 16) for address in span.split("-"))
                madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_DONTNEED)


def _give_back():
    gc.collect()
    return_freed_memory()


class WorkerMemory(NamedTuple):
    """Bytes of a Dask worker."""

    limit: float  # infinite without one
    used: int
    n_threads: int
    enforced: bool  # whether a nanny ends the worker near its limit


async def worker_memory(prepare, dask_worker):
    """Return the `WorkerMemory` of a worker after `prepare`, during which the worker answers others.

    Code that only imports and compilers run, 70 MB and more, is released before; a second `prepare` reads
    what runs again.
    """
    await asyncio.to_thread(prepare)
    release_code()
    await asyncio.to_thread(prepare)
    _give_back()
    limit = dask_worker.memory_manager.memory_limit
    used, nanny = dask_worker.monitor.get_process_memory(), dask_worker.nanny is not None
    return WorkerMemory(limit or math.inf, used, dask_worker.state.nthreads, nanny)


def free_memory(prepare, dask_worker):
    """Return the bytes that each thread of a Dask worker may still take; None where nothing limits them.

    A nanny ends a worker whose process has 95 % of the limit (``distributed.worker.memory.terminate``): what
    the process has after `prepare`, when it has given back all it freed, is taken off, and what it may keep
    of what it frees, and a reserve for messages and temporaries. Without a nanny it is the limit.
    """
    limit, n_threads = dask_worker.memory_manager.memory_limit, dask_worker.state.nthreads
    if not limit:
        return None
    if dask_worker.nanny is None:
        return limit / n_threads
    import dask

    prepare()
    _give_back()
    most = limit * (dask.config.get("distributed.worker.memory.terminate", 0.95) or 1.0) - _RESERVE
    if keep_freed_memory():
        most -= _kept(limit)
    return _USABLE * max(most - dask_worker.monitor.get_process_memory(), 0) / n_threads


@functools.cache
def _of_glibc(name):
    """Return a function of glibc, or None on another system or with another C library."""
    try:
        return getattr(ctypes.CDLL("libc.so.6"), name)
    except (OSError, AttributeError):
        return None
