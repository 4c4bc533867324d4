"""Compiled inner loops: arrays and scalars in, arrays out. They trust their indices.

numba keeps machine code on disk, beside the source or in the user's cache folder. Where neither can be
written, importing a cached function fails, so then the code is kept for this process only.
"""

import atexit
import shutil
import tempfile
import warnings

import numba


def _probe():
    """Stand for any kernel of this folder: numba looks for a place when it decorates."""


try:
    numba.njit(cache=True)(_probe)
except RuntimeError as error:
    numba.config.CACHE_DIR = tempfile.mkdtemp(prefix="stradask-")
    atexit.register(shutil.rmtree, numba.config.CACHE_DIR, ignore_errors=True)
    warnings.warn(
        f"compiled kernels cannot be kept on disk ({error}), so every process compiles them again; set "
        "NUMBA_CACHE_DIR to a folder that can be written",
        stacklevel=2,
    )
