"""The progress bar of every fit."""

import os
import sys
import time
from contextlib import ExitStack
from typing import Any

from .compiling import compile_clock

_LINE_EVERY = 30.0  # seconds between two lines where stderr is not a terminal
_SMOOTHING = 0.3  # weight of the newest round in the displayed rate
_BAR = "{desc}: {n_fmt}/{total_fmt} |{bar}| {elapsed}"


class Progress:
    """Show how far a loop has come: rounds, objective, rate and time left.

    On a terminal this is one tqdm bar on stderr. Where stderr is a file or a pipe (logs of a batch job), a
    line is written after the first round, then at most every 30 seconds, and at the end. A stderr that is
    missing, closed or broken ends the display, never the loop. The display says when numba compiles; these
    seconds count neither for the rate nor for the time left.

    `unit` is the name of one update, in the singular; with ``verbose=0`` nothing is shown.

    Examples
    --------
    >>> from stradask.scheduler.progress import Progress
    >>> with Progress(3, label="LDA", unit="token", verbose=0) as progress:
    ...     for objective in (-9.0, -8.5, -8.25):
    ...         progress.advance(objective=objective, updates=1_000_000)
    """

    def __init__(self, total, *, label, unit, verbose, start=0):
        self.total = total
        self.label = label
        self.unit = unit
        self.done = start
        self._start = start
        self._verbose = verbose
        self._rate = None
        self._figures = {}
        self._has_said = False  # that it compiles
        self._written = None  # rounds done when the last line was written
        self._bar: Any = None
        self._stream: Any = None
        self._ending = ExitStack()
        self._compiled = 0.0  # seconds of compiling until the last round

    def __enter__(self):
        self._began = self._last = time.perf_counter()
        self._clock = self._ending.enter_context(compile_clock(self._compiling))
        self._next_line = self._began
        if self._verbose and sys.stderr is not None and not sys.stderr.closed:
            self._stream = sys.stderr
            self._guarded(self._open)
        return self

    def __exit__(self, *exc_info):
        self._ending.close()
        self._guarded(self._close)

    @property
    def is_shown(self):
        """Whether there is a display."""
        return self._stream is not None

    @property
    def compile_seconds(self):
        """Seconds of compiling since the display was opened."""
        return self._clock.seconds

    def _compiling(self, is_compiling):
        self._guarded(self._show_compiling, is_compiling)

    def _show_compiling(self, is_compiling):
        if self._bar is not None:
            self._bar.set_description_str(f"{self.label}, compiling" if is_compiling else self.label)
        elif is_compiling and not self._has_said:
            self._has_said = True
            print(f"{self.label}: compiling (once: the machine code is kept)", file=self._stream, flush=True)

    def advance(self, n=1, *, updates=0, **figures):
        """Count `n` more rounds and their `updates`; show `figures` after the bar.

        A figure that is NaN leaves the value before. With a ``gap`` no time left is shown: the loop ends when
        the gap is small enough, and `total` is only its limit.
        """
        now = time.perf_counter()
        self.done += n
        compiled, self._compiled = self._compiled, self._clock.seconds
        if self._bar is not None:  # by which tqdm tells the time left
            self._bar.start_t += self._compiled - compiled
            self._bar.last_print_t += self._compiled - compiled
        if updates:
            rate = updates / max(now - self._last - (self._compiled - compiled), 1e-9)
            self._rate = rate if self._rate is None else self._rate + _SMOOTHING * (rate - self._rate)
        self._last = now
        self._figures.update({k: v for k, v in figures.items() if v == v})  # NaN is unequal to itself
        if self._stream is not None:
            self._guarded(self._show, n, self._postfix())

    def _guarded(self, action, *args):
        """Run `action` while there is a stream to write to; give up a stream that fails."""
        if self._stream is None:
            return
        try:
            action(*args)
        except (OSError, ValueError):  # a broken pipe, a closed file
            self._stream = None

    def _open(self):
        in_notebook = type(self._stream).__module__.startswith("ipykernel")  # says that it is no terminal
        if not (in_notebook or self._stream.isatty()):
            return
        from .._bar import Bar

        self._bar = Bar(
            total=self.total,
            initial=self._start,
            desc=self.label,
            file=self._stream,
            **_width(self._stream),
            bar_format=_BAR + "<{remaining}{postfix}",
        )

    def _show(self, n, postfix):
        if self._bar is not None:
            if self._ends_by_gap:
                self._bar.bar_format = _BAR + "{postfix}"
            self._bar.set_postfix_str(postfix, refresh=False)
            self._bar.update(n)
        elif self._last >= self._next_line:
            self._write_line()

    def _close(self):
        if self._bar is not None:
            self._bar.bar_format = _BAR + "{postfix}"  # a loop that has ended has no time left
            self._bar.refresh()
            self._bar.close()
        elif self._written != self.done:
            self._write_line(ended=True)

    def _write_line(self, ended=False):
        from tqdm import tqdm

        elapsed = self._last - self._began
        here = self.done - self._start
        parts = [f"{self.label}: {self.done}/{self.total}", tqdm.format_interval(elapsed)]
        if here > 0 and self.done < self.total and not (self._ends_by_gap or ended):
            working = max(elapsed - self._compiled, 0.0)
            parts.append(f"{tqdm.format_interval(working / here * (self.total - self.done))} left")
        print(", ".join([*parts, *filter(None, [self._postfix()])]), file=self._stream, flush=True)
        self._written = self.done
        self._next_line = self._last + _LINE_EVERY

    @property
    def _ends_by_gap(self):
        return "gap" in self._figures

    def _postfix(self):
        from tqdm import tqdm

        parts = [f"{name} {value:.{2 if name == 'gap' else 6}g}" for name, value in self._figures.items()]
        if self._rate is not None:
            parts.append(f"{tqdm.format_sizeof(self._rate)} {self.unit}s/s")
        return ", ".join(parts)


def _width(stream):
    """Follow the terminal's width; some pseudo-terminals (of containers) report 0, or nothing."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    return {"dynamic_ncols": True} if columns else {"ncols": 80}
