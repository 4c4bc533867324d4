"""The working-set programs with objectives as the estimators define them: means over the rows, not sums."""

from dataclasses import replace
from typing import Any

from ....scheduler.program import Program
from .program import SparseLinearProgram


class Mean(Program):
    """Lets history, progress bar and callbacks of a program show its objective divided by n_samples."""

    working_set: Any

    def aggregate(self, tasks, partials):
        """See `Program.aggregate`."""
        outcome: Any = super().aggregate(tasks, partials)
        return replace(outcome, objective=outcome.objective / self.working_set.n_rows)


class MeanProgram(Mean, SparseLinearProgram):
    """`SparseLinearProgram` with the mean objective."""
