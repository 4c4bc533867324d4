"""What to run of one family: its systems, data sets, parameters, times and seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import DataError
from .objectives import find_objective
from .solvers import find_solvers


@dataclass(frozen=True)
class Plan:
    """What to run of a family.

    `max_seconds` are training seconds of each run, or the most CPU seconds of one solve and thread. Run r has
    the seed ``seed + r``; `seed` also fixes the split of the data. `device` "cuda" adds our solvers that run
    on a GPU.

    None stands for a default: the peers installed in this environment (`against`), those of the family
    (`datasets`, `max_seconds`, missing `parameters`), 3 `repeats` (1 when quick), the user's cache folder
    (`environments`), and as `time_limit` a quarter of an hour for a warm-up, and a minute and five times
    `max_seconds` for a training run.
    """

    family: str
    against: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None
    parameters: Mapping = field(default_factory=dict)
    max_seconds: float | None = None
    repeats: int | None = None
    n_jobs: int = 1
    device: str = "cpu"
    seed: int = 0
    quick: bool = False
    out: Path = Path("stradask-bench")
    environments: Path | None = None
    solver_folders: tuple[Path, ...] = ()
    time_limit: float | None = None

    def __post_init__(self):
        objective = self.objective
        for name in ("repeats", "n_jobs", "max_seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                option = "--" + name.replace("_", "-")
                raise DataError(f"{option} is {value}; a number above 0 is needed")
        if self.seed < 0:
            raise DataError(f"--seed is {self.seed}; a number of 0 or more is needed")
        for name in self.parameters:
            if name not in objective.defaults:
                known = ", ".join(objective.defaults)
                raise DataError(f"--param: {self.family} has no parameter {name!r}; it has {known}")
        if self.device == "cuda" and not any(s.device == "cuda" for s in self._known().values()):
            raise DataError(f"--device: {self.family} has no solver that runs on a GPU; leave it out")
        if objective.procedure == "training" and len(self.names) > 1:
            raise DataError(f"--dataset: {self.family} runs on one data set at a time, not {len(self.names)}")

    @property
    def objective(self):
        """The class `Objective` of the family."""
        return find_objective(self.family)

    @property
    def names(self):
        """The data sets to run on."""
        return self.datasets or self.objective.default_datasets

    @property
    def seconds(self):
        """Training seconds of each run, or the most seconds of one solve."""
        default = self.objective.quick_max_seconds if self.quick else self.objective.max_seconds
        return default if self.max_seconds is None else self.max_seconds

    @property
    def rounds(self):
        """How often each system runs."""
        return self.repeats or (1 if self.quick else 3)

    def checkpoints(self, n_states):
        """Training seconds at which models are judged: from a fiftieth of the time, in equal ratios."""
        return np.geomspace(self.seconds / 50, self.seconds, n_states).tolist()

    def all_parameters(self):
        """Parameters of the family with their defaults."""
        quick = self.objective.quick_defaults if self.quick else {}
        return {**self.objective.defaults, **quick, **self.parameters}

    def _known(self):
        return find_solvers(self.family, self.solver_folders)

    def solvers(self):
        """Return the solver files to run, ours first; an unknown name raises."""
        known = self._known()
        if self.device == "cpu":
            known = {name: solver for name, solver in known.items() if solver.device == "cpu"}
        peers = [name for name, solver in known.items() if not solver.is_ours]
        if self.against is None:
            return [solver for solver in known.values() if solver.is_ours or solver.is_installed()]
        for name in self.against:
            if name not in peers:
                raise DataError(
                    f"--against: unknown peer {name!r} of {self.family}; there are: {', '.join(peers)}"
                )
        return [solver for name, solver in known.items() if solver.is_ours or name in self.against]

    def not_installed(self):
        """Return the peers that are left out: neither asked for nor installed."""
        known = find_solvers(self.family, self.solver_folders) if self.against is None else {}
        return [name for name, solver in known.items() if not (solver.is_ours or solver.is_installed())]
