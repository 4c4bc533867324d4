"""The working-set program with objectives as the estimators define them: means over the rows, not sums."""

from dataclasses import replace

from .program import SparseLinearProgram


class MeanProgram(SparseLinearProgram):
    """`SparseLinearProgram` whose history, progress bar and callbacks show the objective divided by n_samples.

    Parameters
    ----------
    working_set, X, **options
        See `SparseLinearProgram`.
    """

    def aggregate(self, tasks, partials):
        """See `Program.aggregate`."""
        outcome = super().aggregate(tasks, partials)
        return replace(outcome, objective=outcome.objective / self.working_set.n_rows)
