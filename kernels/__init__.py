"""Compiled inner loops: arrays and scalars in, arrays out. They trust their indices.

numba caches machine code on disk, next to the source or in the user's cache folder, and recompiles when the
file that defines a function has changed. But the code contains inlined functions of other files, which may
change alone, by an edit or an upgrade. So the caches of this package carry a stamp of all files that go into
them.

If neither folder can be written, importing a cached function fails; then code is kept for this process alone.

A process forks only while none of its threads compiles or looks up compiled code, or after a minute's wait.

All this is set up when numba is first imported, which is left to the files that need it: those that drive a
GPU do not.
"""

import atexit
import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
_PATIENCE = 60.0  # seconds for which a fork waits for a lock of the compiler
_IMPORT = re.compile(r"^from (\.+)([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def _imports(path, text):
    """Yield the files of this package that a file of it imports by relative imports."""
    for dots, module, names in _IMPORT.findall(text):
        folder = path.parents[len(dots) - 1].joinpath(*module.split("."))
        named = [folder / f"{name}.py" for name in re.findall(r"\w+", names)]
        for file in [folder.with_suffix(".py"), *named]:
            if _FOLDER in file.parents and file.exists():
                yield file


@functools.cache
def _stamp(path):
    """Hash a file of this package with all files that it imports, directly or not."""
    texts, coming = {}, {path}
    while coming:
        texts |= {file: file.read_text("utf-8") for file in coming}
        coming = {file for path in coming for file in _imports(path, texts[path])} - texts.keys()
    hashed = sorted((str(file.relative_to(_FOLDER)), text) for file, text in texts.items())
    return hashlib.sha256(repr(hashed).encode()).hexdigest()


class _Stamped:
    """Mixin of numba's cache locators: for functions of this package alone, with their stamp."""

    @classmethod
    def from_function(cls, py_func, py_file):
        own = _FOLDER in Path(py_file).resolve().parents
        return super().from_function(py_func, py_file) if own else None

    def get_source_stamp(self):
        return _stamp(Path(self._py_file).resolve())


def _probe():
    """A function to decorate: numba looks for a cache folder when it decorates."""


def _arrange():
    """Put the stamped locators before numba's own, and try whether a cache folder can be written."""
    import numba
    from numba.core import caching

    # numba's first three places: the folder that the user names, the one next to the source, and the user's
    # own. The list is not a part of numba's interface: a version without it keeps code by its own rule alone.
    places = getattr(caching.CacheImpl, "_locator_classes", [])
    places[:0] = [type(place.__name__, (_Stamped, place), {}) for place in places[:3]]
    if hasattr(os, "register_at_fork"):
        _fork_unlocked()
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


def _fork_unlocked():
    """Fork between calls of LLVM only: a child would wait forever for a lock held by a thread it lacks.

    That thread may itself wait for the forking one: after a time limit the process forks anyway.
    """
    from llvmlite.binding import ffi
    from numba.core import compiler_lock

    # A compiler's thread takes the first and then the second. They too are no part of an interface.
    owners = getattr(compiler_lock, "global_compiler_lock", None), getattr(ffi.lib, "_lock", None)
    locks = [lock for lock in (getattr(owner, "_lock", None) for owner in owners) if lock is not None]
    held = threading.local()  # several threads may fork

    def take():
        held.locks = []
        for lock in locks:
            if lock.acquire(timeout=_PATIENCE):
                held.locks.append(lock)

    def give():
        while held.locks:
            held.locks.pop().release()

    os.register_at_fork(before=take, after_in_parent=give, after_in_child=give)


class _AfterNumba:
    """An import finder that finds nothing, but runs `_arrange` at the end of numba's import."""

    def find_spec(self, name, path=None, target=None):
        if name != "numba":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_and_arrange(module):
                try:
                    execute(module)
                except BaseException:  # Ctrl-C, say: watch the next import again
                    sys.meta_path.insert(0, self)
                    raise
                _arrange()

            spec.loader.exec_module = execute_and_arrange
        return spec


if sys.modules.get("numba") is not None:
    _arrange()
else:
    sys.meta_path.insert(0, _AfterNumba())
