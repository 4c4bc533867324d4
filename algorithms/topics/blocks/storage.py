"""Arrays that grow with the corpus: in memory, or in memory-mapped files."""

import mmap
import os
import tempfile
import threading
import weakref
from typing import Any

import numpy as np

from ....errors import DataError, shortened

_BLOCK = 2**20  # bytes of zeros written at a time


class Storage:
    """Makes arrays of zeros, in memory or, with a folder, each in a file of its own.

    A file has no name (on Windows it goes with its last user): nothing is left of it when the array is gone,
    however the process ends. The system moves parts between memory and disk as they are needed. Room on
    the disk is taken at once: where none is found later, in the middle of a kernel, the process ends.
    """

    called = "memmap_folder"  # of what the folder is, for errors

    def __init__(self, folder=None, called=called):
        self.called = called
        if folder is not None and not os.path.isdir(folder):
            raise DataError(
                f"{called}={shortened(os.fspath(folder), 200)} is no folder: make it first, or pass another"
            )
        self.folder = None if folder is None else os.fspath(folder)

    def zeros(self, shape, dtype):
        """Make an array."""
        n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if self.folder is None or not n_bytes:
            return np.zeros(shape, dtype)
        try:
            with tempfile.TemporaryFile(dir=self.folder, prefix="stradask-") as file:
                _reserve(file, n_bytes)
                array = np.memmap(file, dtype, "r+", shape=shape)
        except OSError as error:
            raise OSError(
                error.errno,
                f"{error.strerror}, could not take {n_bytes:,} bytes in {self.called}: make room, or pass "
                "another folder",
                self.folder,
            ) from error
        return np.asarray(array)  # kernels are compiled for plain arrays

    def put(self, array):
        """Copy an array into a file; where there are none, return it as it is."""
        if self.folder is None:
            return array
        there = self.zeros(array.shape, array.dtype)
        there[...] = array
        release(there)
        return there


class Pool(Storage):
    """Puts many arrays into few files; of one file each, shards' would be more than a process may have open.

    Files grow with what was asked for, so that their number grows with its logarithm and at most a quarter of
    their room is not used. A file goes when none of its arrays is left. Threads may ask at the same time.
    """

    def __init__(self, folder, called=Storage.called):
        super().__init__(folder, called)
        self.lock, self._taken = threading.Lock(), 0
        self._newest: Any = None  # a weak reference: the file may go while the pool is there
        self._used = 0  # bytes of it
        self.n_bytes_kept = 0  # of its arrays, those that stay in memory

    def zeros(self, shape, dtype):
        """Make an array, at the beginning of a page."""
        n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        if not n_bytes:
            return np.zeros(shape, dtype)
        needed = _whole_pages(n_bytes)
        with self.lock:
            file = self._newest and self._newest()
            if file is None or self._used + needed > len(file):
                file = super().zeros(max(needed, _BLOCK, _whole_pages(self._taken // 4)), np.uint8)
                self._newest, self._used = weakref.ref(file), 0
            own = file[self._used : self._used + n_bytes]
            self._used, self._taken = self._used + needed, self._taken + needed
        return own.view(dtype).reshape(shape)


def _whole_pages(n_bytes):
    return -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def arrays_of(*holders):
    """List the arrays that are values of dicts, or attributes of other objects; each once."""
    values = [v for h in holders for v in (h if isinstance(h, dict) else vars(h)).values()]
    return list({id(value): value for value in values if isinstance(value, np.ndarray)}.values())


def fetch(array):
    """Ask the system to read an array of `Storage` from its file, without waiting for it."""
    _advise(array, "MADV_WILLNEED")


def release(array):
    """Release the memory of an array of `Storage` in a file; the file keeps its contents."""
    _advise(array, "MADV_DONTNEED")  # what was written stays: the mapping is shared with the file


def _advise(array, advice):
    """Tell the system of the pages of an array, which may be a part of its file."""
    whole = array
    while isinstance(whole, np.ndarray) and isinstance(whole.base, np.ndarray):
        whole = whole.base
    file = getattr(whole, "base", None)
    if isinstance(file, mmap.mmap) and hasattr(mmap, advice) and array.nbytes:
        first = array.ctypes.data - whole.ctypes.data
        begin = first - first % mmap.PAGESIZE
        file.madvise(getattr(mmap, advice), begin, first + array.nbytes - begin)


def _reserve(file, n_bytes):
    """Take room on the disk for zeros."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, n_bytes)
        return
    for start in range(0, n_bytes, _BLOCK):
        file.write(bytes(min(_BLOCK, n_bytes - start)))
    file.flush()
