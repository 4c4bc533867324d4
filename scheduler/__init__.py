"""Programs, schedules, sessions and the engine that ties them; knows no algorithm."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dynamic import DynamicSchedule
    from .engine import run
    from .program import Outcome, Program, Task
    from .rotation import RotationSchedule, balance
    from .static import StaticSchedule

# Where each public name lives; loaded when first used, so that the package stays light.
_PLACES = {
    "DynamicSchedule": ".dynamic",
    "Outcome": ".program",
    "Program": ".program",
    "RotationSchedule": ".rotation",
    "StaticSchedule": ".static",
    "Task": ".program",
    "balance": ".rotation",
    "run": ".engine",
}

__all__ = [
    "DynamicSchedule",
    "Outcome",
    "Program",
    "RotationSchedule",
    "StaticSchedule",
    "Task",
    "balance",
    "run",
]


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
