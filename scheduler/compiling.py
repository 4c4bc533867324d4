"""The time that numba spends compiling, which does not count for the rounds in which it happens."""

import sys
import threading
import time
from contextlib import contextmanager


class CompileClock:
    """Adds up the seconds in which at least one thread compiles; cached code takes none.

    ``changed(is_compiling)`` is called when compiling begins and ends.
    """

    def __init__(self, changed=None):
        self._changed = changed
        self._lock = threading.Lock()
        self._depth, self._began, self._total = 0, 0.0, 0.0

    @property
    def seconds(self):
        """Seconds so far, including a compilation that is running."""
        with self._lock:
            return self._total + (time.perf_counter() - self._began if self._depth else 0.0)

    def on_start(self, event):
        """Handle numba's event; callees are compiled within their caller's compilation."""
        with self._lock:
            self._depth += 1
            outermost = self._depth == 1
            if outermost:
                self._began = time.perf_counter()
        if outermost and self._changed is not None:
            self._changed(True)

    def on_end(self, event):
        """Handle numba's event."""
        with self._lock:
            self._depth -= 1
            outermost = self._depth == 0
            if outermost:
                self._total += time.perf_counter() - self._began
        if outermost and self._changed is not None:
            self._changed(False)


@contextmanager
def compile_clock(changed=None):
    """Give a `CompileClock` that runs inside the block; 0 where numba is not imported."""
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
