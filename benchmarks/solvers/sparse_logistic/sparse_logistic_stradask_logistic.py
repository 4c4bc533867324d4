"""stradask: `LogisticRegression` with an l1 penalty, which takes scikit-learn's C."""


class Solver:
    """`stradask.LogisticRegression` as a user calls it."""

    name = "stradask-logistic"
    method = "LogisticRegression(l1_ratio=1) (numba)"
    requires = ()
    libraries = ("numba", "scipy")
    tolerances = (1e-2, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Bring the rows together, which is how it reads them; labels of one byte."""
        import numpy as np

        self.X = np.ascontiguousarray(data.X) if isinstance(data.X, np.ndarray) else data.X.tocsr()
        self.y = data.y.astype(np.int8)

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        import stradask

        model = stradask.LogisticRegression(
            1 / (alpha * len(self.y)),
            l1_ratio=1.0,
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=10_000,
            n_jobs=self.settings.n_jobs,
        ).fit(self.X, self.y)
        return {"coef": model.coef_.ravel(), "intercept": float(model.intercept_[0])}
