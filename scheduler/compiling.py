"""How long numba has been compiling: a time that is no part of the rounds in which it happens to fall."""

import sys
import threading
import time
from contextlib import contextmanager


class CompileClock:
    """Adds up the seconds in which at least one thread compiles; code that is read from disk takes none.

    Parameters
    ----------
    changed : callable, optional
        ``changed(is_compiling)`` is called where compiling begins and where it ends.
    """

    def __init__(self, changed=None):
        self._changed = changed
        self._lock = threading.Lock()
        self._depth, self._began, self._total = 0, 0.0, 0.0

    @property
    def seconds(self):
        """Seconds so far, those of a compilation that is going on included."""
        with self._lock:
            return self._total + (time.perf_counter() - self._began if self._depth else 0.0)

    def on_start(self, event):
        """Take note of numba's event; what a function calls is compiled within its own."""
        with self._lock:
            self._depth += 1
            outermost = self._depth == 1
            if outermost:
                self._began = time.perf_counter()
        if outermost and self._changed is not None:
            self._changed(True)

    def on_end(self, event):
        """Take note of numba's event."""
        with self._lock:
            self._depth -= 1
            outermost = self._depth == 0
            if outermost:
                self._total += time.perf_counter() - self._began
        if outermost and self._changed is not None:
            self._changed(False)


@contextmanager
def compile_clock(changed=None):
    """Give a `CompileClock` that runs inside of the block; it stands still where numba is not in use."""
    clock = CompileClock(changed)
    if sys.modules.get("numba") is None:
        yield clock
        return
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event):
            clock.on_start(event)

        def on_end(self, event):
            clock.on_end(event)

    with event.install_listener("numba:compile", Listener()):
        yield clock
