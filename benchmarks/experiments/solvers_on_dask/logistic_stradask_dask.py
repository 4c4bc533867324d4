"""stradask on worker processes: sums over portions that lie there."""

from typing import Any


class Solver:
    """`stradask.LogisticRegression` on Dask arrays whose rows, and labels, lie on the workers."""

    name = "stradask-dask"
    method = "Newton or L-BFGS (numba, sums over portions)"
    requires = ()
    libraries = ("numba", "scipy", "distributed")
    tolerances = (1e-2, 1e-12)
    workers: Any = None  # of this process, for the warm-up and what is timed

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Lay the rows on the workers."""
        from _cluster import Workers

        Solver.workers = Solver.workers or Workers(self.settings.n_jobs)
        self.X, self.y = self.workers.spread(data.X), self.workers.spread(data.y)

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        import stradask

        model = stradask.LogisticRegression(
            1 / (alpha * len(self.y)),
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=10_000,
            engine="dask",
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": float(model.intercept_[0])}
