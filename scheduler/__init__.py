"""Programs, schedules, sessions and the engine that ties them; knows no algorithm."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dynamic import DynamicSchedule
    from .engine import run
    from .program import Outcome, Program, Task
    from .replicas import run_replicas
    from .rotation import RotationSchedule, balance
    from .static import StaticSchedule
    from .table import ParameterTable
    from .table_places import SimulatedClock
    from .table_state import Adagrad

# Where each public name lives; loaded when first used, so that the package stays light.
_PLACES = {
    "Adagrad": ".table_state",
    "DynamicSchedule": ".dynamic",
    "Outcome": ".program",
    "ParameterTable": ".table",
    "Program": ".program",
    "RotationSchedule": ".rotation",
    "SimulatedClock": ".table_places",
    "StaticSchedule": ".static",
    "Task": ".program",
    "balance": ".rotation",
    "run": ".engine",
    "run_replicas": ".replicas",
}

__all__ = [
    "Adagrad",
    "DynamicSchedule",
    "Outcome",
    "ParameterTable",
    "Program",
    "RotationSchedule",
    "SimulatedClock",
    "StaticSchedule",
    "Task",
    "balance",
    "run",
    "run_replicas",
]


def __getattr__(name):
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
