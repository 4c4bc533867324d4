"""The time that numba spends compiling, which does not count for the rounds in which it happens."""

import os
import sys
import threading
import time
from contextlib import contextmanager


class _Compilations:
    """All compilations of this process, by numba's events.

    One listener stays for good: to make and register one for each clock took longer than a step of a small
    fit.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._hears = False
        self._depth, self._began, self._total = 0, 0.0, 0.0
        self._callbacks = []

    def hear(self):
        """Register with numba, once it is imported."""
        if self._hears or sys.modules.get("numba") is None:
            return
        from numba.core import event

        compilations = self

        class Listener(event.Listener):
            def on_start(self, event):
                compilations.change(1)

            def on_end(self, event):
                compilations.change(-1)

        with self._lock:
            if not self._hears:
                event.register("numba:compile", Listener())
                self._hears = True

    def change(self, by):
        """Take in the beginning or end of a compilation; callees are compiled within that of their caller."""
        with self._lock:
            if by < 0 and not self._depth:  # it began before there was a listener
                return
            before, self._depth = self._depth, self._depth + by
            outermost = 0 in (before, self._depth)
            if outermost and self._depth:
                self._began = time.perf_counter()
            elif outermost:
                self._total += time.perf_counter() - self._began
            callbacks = list(self._callbacks) if outermost else []
        for callback in callbacks:
            callback(by > 0)

    @property
    def seconds(self):
        """Seconds so far in which at least one thread compiled; cached code takes none."""
        with self._lock:
            return self._total + (time.perf_counter() - self._began if self._depth else 0.0)

    @contextmanager
    def calling(self, callback):
        """Call ``callback(is_compiling)`` when compiling begins and ends, inside the block."""
        with self._lock:
            self._callbacks.append(callback)
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)

    def forget_threads(self):
        """In a forked child, take a new lock, and drop compilations of threads that are gone."""
        self._lock, self._depth = threading.Lock(), 0


_COMPILATIONS = _Compilations()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_COMPILATIONS.forget_threads)


class CompileClock:
    """Seconds of compiling between `start` and `stop`; 0 where numba is not imported."""

    _to: float | None  # None while it runs

    def __init__(self):
        self._from, self._to = 0.0, 0.0

    @property
    def seconds(self):
        """Seconds so far, including a compilation that is running."""
        return (_COMPILATIONS.seconds if self._to is None else self._to) - self._from

    def start(self):
        """Begin at 0; return the clock."""
        _COMPILATIONS.hear()
        self._from, self._to = _COMPILATIONS.seconds, None
        return self

    def stop(self):
        """Keep the seconds as they are."""
        self._to = _COMPILATIONS.seconds


@contextmanager
def compile_clock(changed=None):
    """Give a `CompileClock` that runs inside the block; ``changed(is_compiling)`` is called meanwhile."""
    clock = CompileClock().start()
    try:
        if changed is None:
            yield clock
        else:
            with _COMPILATIONS.calling(changed):
                yield clock
    finally:
        clock.stop()
