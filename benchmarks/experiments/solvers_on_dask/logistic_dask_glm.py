"""dask-glm: SciPy's L-BFGS, each value and gradient a graph of Dask's."""

from typing import Any


class Solver:
    """`dask_glm.algorithms.lbfgs` on a Dask array whose rows lie on the workers."""

    name = "dask-glm"
    method = "L-BFGS (SciPy, sums by Dask)"
    requires = ("dask-glm==0.4.0", "distributed==2026.8.0", "numpy", "scipy")
    tolerances = (1e4, 1e-4)  # of the largest slope of the sum over all rows
    workers: Any = None  # of this process, for the warm-up and what is timed

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Lay the rows on the workers."""
        from _cluster import Workers

        Solver.workers = Solver.workers or Workers(self.settings.n_jobs)
        self.n_rows = len(data.y)
        self.X = self.workers.spread(data.X)
        self.y = self.workers.spread((data.y > 0).astype(data.X.dtype))

    def solve(self, alpha, tolerance):
        """One fit from scratch, without an intercept."""
        if self.settings.intercept:
            raise ValueError("dask-glm penalises a column of ones: compare without intercept")
        from dask_glm.algorithms import lbfgs

        coef = lbfgs(
            self.X, self.y, regularizer="l2", lamduh=alpha * self.n_rows, max_iter=10_000, tol=tolerance
        )
        return {"coef": coef.reshape(1, -1), "intercept": 0.0}
