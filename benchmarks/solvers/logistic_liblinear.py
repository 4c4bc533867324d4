"""LIBLINEAR through scikit-learn: a trust-region Newton method in C++."""

import numpy as np


class Solver:
    """`sklearn.linear_model.LogisticRegression` with ``solver="liblinear"``: its trust-region method.

    LIBLINEAR penalises an intercept like a column; a large `intercept_scaling` makes that small.
    """

    name = "liblinear"
    method = "trust-region Newton (C++)"
    requires = ("scikit-learn==1.9.1", "numpy", "scipy")
    tolerances = (1e-1, 1e-10)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Bring the rows together, which is how the library reads them."""
        self.X = np.ascontiguousarray(data.X) if isinstance(data.X, np.ndarray) else data.X.tocsr()
        self.y = data.y.astype(np.int8)

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(
            C=1 / (alpha * len(self.y)),
            solver="liblinear",
            fit_intercept=self.settings.intercept,
            intercept_scaling=1e4,
            tol=tolerance,
            max_iter=100_000,
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": np.ravel(model.intercept_)[0]}
