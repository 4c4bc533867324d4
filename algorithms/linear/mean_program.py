"""The working-set programs with objectives as the estimators define them: means over the rows, not sums."""

from dataclasses import replace

from .program import SparseLinearProgram


class Mean:
    """Lets history, progress bar and callbacks of a program show its objective divided by n_samples."""

    def aggregate(self, tasks, partials):
        """See `Program.aggregate`."""
        outcome = super().aggregate(tasks, partials)
        return replace(outcome, objective=outcome.objective / self.working_set.n_rows)


class MeanProgram(Mean, SparseLinearProgram):
    """`SparseLinearProgram` with the mean objective."""
