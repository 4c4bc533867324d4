"""stradask: Newton, a sketched preconditioner, or L-BFGS, by the shape of the data."""


class Solver:
    """`stradask.LogisticRegression` as a user calls it."""

    name = "stradask"
    method = "Newton, sketch or L-BFGS (numba)"
    requires = ()
    libraries = ("numba", "scipy")
    tolerances = (1e-2, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Bring the rows together, which is how the library reads them."""
        import numpy as np

        self.X = np.ascontiguousarray(data.X) if isinstance(data.X, np.ndarray) else data.X.tocsr()
        self.y = data.y.astype(np.int8)

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        import stradask

        model = stradask.LogisticRegression(
            1 / (alpha * len(self.y)),
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=10_000,
            n_jobs=self.settings.n_jobs,
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": float(model.intercept_[0])}
