"""One solver's turn at one objective: the input of every procedure."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .process import WorkerProcess


@dataclass(frozen=True)
class Turn:
    """One run of a solver: its interpreter, the objective, and the folder of the objective's arrays."""

    plan: Any
    objective: Any
    solver: Any
    repeat: int
    python: Path
    data: Path

    def worker(self, folder):
        """Return the solver in a process of its own, which leaves its files in `folder`."""
        plan = self.plan
        settings = self.objective.settings() | {"n_jobs": plan.n_jobs, "seed": plan.seed + self.repeat}
        job = {"procedure": self.objective.procedure, "settings": settings}
        places = {"data": self.data, "folder": folder}
        return WorkerProcess(self.python, self.solver, job, n_jobs=plan.n_jobs, **places)
