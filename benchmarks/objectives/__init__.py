"""One objective a family: what is solved, and the outside judge of every solver.

An objective is a file ``FAMILY.py`` with one class `Objective`, which has

- ``work``: the unit of work that solvers count (topic models: "tokens");
- ``metrics``: what is judged, the deciding one first;
- ``__init__(dataset, *, seed, parameters)``: loads the data set and splits it;
- ``dataset``, ``fingerprint``, ``describe()``: what goes into the records;
- ``arrays()`` and ``sample()``: what solvers are given, and a small part of it to warm up on;
- ``settings(parameters)``: the settings that every solver gets alike (priors, sizes);
- ``evaluate(snapshot)``: the metrics of a solver's state, None for one that it does not allow.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError


@dataclass(frozen=True)
class Metric:
    """A figure by which solvers are compared."""

    key: str
    label: str
    lower_is_better: bool


def families():
    """Names of the families that have an objective."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))


def find_objective(family):
    """Return the class `Objective` of a family."""
    if family not in families():
        raise DataError(f"no benchmark of the name {family!r}; there are: {', '.join(families())}")
    return importlib.import_module(f".{family}", __name__).Objective
