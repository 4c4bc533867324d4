"""Helpers of the demos: time to compile, and curves of a figure against seconds."""

import time
from dataclasses import dataclass, field


def say_compiled(say, compile):
    """Call a function that compiles all that a demo needs, and report its seconds."""
    started = time.perf_counter()
    compile()
    say(f"compiling {time.perf_counter() - started:.1f} s (once: the machine code is kept)")


@dataclass(frozen=True)
class Curve:
    """A figure of a system against its seconds (and steps), one point a fit or a moment of one."""

    name: str
    figure: str  # its key in JSON
    seconds: list
    values: list
    steps: list = field(default_factory=list)

    def as_document(self):
        """Return it in a form for JSON."""
        document = {"seconds": self.seconds, self.figure: self.values}
        return document | ({"steps": self.steps} if self.steps else {})

    def to(self, target):
        """Return seconds and steps of the cheapest point at or below a target, None if there is none."""
        steps = self.steps or [0] * len(self.seconds)
        points = zip(self.seconds, steps, self.values, strict=True)
        return min(((seconds, n) for seconds, n, value in points if value <= target), default=None)
