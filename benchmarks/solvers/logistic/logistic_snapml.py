"""Snap ML: parallel stochastic dual coordinate descent, in C++."""

import numpy as np


class Solver:
    """`snapml.LogisticRegression`."""

    name = "snapml"
    method = "dual coordinate descent, threads (C++)"
    requires = ("snapml==1.17.2", "numpy", "scipy")
    tolerances = (1e-1, 1e-10)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Bring the rows together, which is how the library reads them."""
        dense = isinstance(data.X, np.ndarray)
        self.X = np.ascontiguousarray(data.X, np.float32) if dense else data.X.tocsr().astype(np.float32)
        self.y = data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from snapml import LogisticRegression

        model = LogisticRegression(
            regularizer=alpha * len(self.y),
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=100_000,
            n_jobs=self.settings.n_jobs,
            dual=True,
        )
        model.fit(self.X, self.y)
        coef = np.ravel(model.coef_).astype(np.float64)
        intercept = np.ravel(model.intercept_)[0] if self.settings.intercept else 0.0
        return {"coef": coef[: self.X.shape[1]], "intercept": intercept}
