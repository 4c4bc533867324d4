"""One objective a family: the problem, and the independent code that scores every solver.

An objective is a file ``FAMILY.py`` with one class `Objective`. All have

- ``procedure``: "training" (one long run whose states are judged on the way), "solving" (many short solves
  at finer and finer tolerances) or "sampling" (draws of a posterior);
- ``default_datasets``; ``defaults``, the parameters with their values, the same for all solvers, and
  ``quick_defaults``, where they differ for a quick look; ``max_seconds`` and ``quick_max_seconds``;
- ``__init__(dataset, *, seed, parameters, quick)``: loads the data set, and splits it where that is needed;
- ``describe()``: what goes into the records; ``settings()``: what every solver gets alike;
- ``arrays()`` and ``sample()``: what solvers are given, and a small part of it to warm up on.

For "training": ``work``, the unit of work that solvers count (topic models: "tokens"); ``metrics``, what is
judged, the deciding one first; ``n_states``, how many states of a run are judged; ``evaluate(snapshot)``, the
metrics of a solver's state, None for one that it does not allow.

For "solving": ``problems()``, a list of `Problem`; ``evaluate(problem, arrays)``, a dict with the ``gap``.

For "sampling": the same, the dict with errors and effective draws, or with ``refused``.
"""

import importlib
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import DataError, shortened


@dataclass(frozen=True)
class Metric:
    """A figure by which solvers are compared."""

    key: str
    label: str
    lower_is_better: bool


@dataclass(frozen=True)
class Problem:
    """One thing to be solved on a data set.

    `call` is the method of the solvers (not asked of one that lacks it), `arguments` what it is given besides
    ``tolerance``. `targets` fall; they are gaps, for which a solver's tolerances are searched, or with
    ``measure="tolerance"`` tolerances to ask for, where libraries mean the same by them and no one figure
    judges the result. `patience` is how many times the usual seconds a call may take.
    """

    name: str
    call: str
    arguments: dict = field(repr=False)
    targets: tuple[float, ...]
    measure: str = "gap"
    patience: float = 1.0


def families():
    """Names of the families that have an objective, as users type them."""
    return sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("[a-z]*.py"))


def find_objective(family):
    """Return the class `Objective` of a family."""
    if family not in families():
        raise DataError(f"no benchmark of the name {shortened(family)}; there are: {', '.join(families())}")
    return importlib.import_module(f".{family.replace('-', '_')}", __name__).Objective
