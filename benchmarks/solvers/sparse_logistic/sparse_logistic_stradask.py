"""stradask: working sets with proximal Newton steps."""


class Solver:
    """`stradask.SparseLogisticRegression` as a user calls it."""

    name = "stradask"
    method = "working sets, proximal Newton (numba)"
    requires = ()
    libraries = ("numba", "scipy")
    tolerances = (1e-2, 1e-9)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        import stradask

        model = stradask.SparseLogisticRegression(
            alpha,
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=100_000,
            n_jobs=self.settings.n_jobs,
        ).fit(self.X, self.y)
        return {"coef": model.coef_.ravel(), "intercept": float(model.intercept_[0])}
