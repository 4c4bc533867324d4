"""Programs, schedules, sessions and the engine that ties them; knows no algorithm."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import run
    from .planning.placement import place_graph
    from .planning.plan import plan_pipeline
    from .program import Outcome, Program, Task
    from .schedules.dynamic import DynamicSchedule
    from .schedules.rotation import RotationSchedule, balance
    from .schedules.static import StaticSchedule
    from .table.places import SimulatedClock
    from .table.replicas import run_replicas
    from .table.state import Adagrad
    from .table.table import ParameterTable

# Where each public name lives; loaded when first used, so that the package stays light.
_PLACES = {
    "Adagrad": ".table.state",
    "DynamicSchedule": ".schedules.dynamic",
    "Outcome": ".program",
    "ParameterTable": ".table.table",
    "Program": ".program",
    "RotationSchedule": ".schedules.rotation",
    "SimulatedClock": ".table.places",
    "StaticSchedule": ".schedules.static",
    "Task": ".program",
    "balance": ".schedules.rotation",
    "place_graph": ".planning.placement",
    "plan_pipeline": ".planning.plan",
    "run": ".engine",
    "run_replicas": ".table.replicas",
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
    "place_graph",
    "plan_pipeline",
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
