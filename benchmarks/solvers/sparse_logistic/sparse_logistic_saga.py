"""SAGA through scikit-learn: stochastic average gradients in Cython."""

import numpy as np


class Solver:
    """`sklearn.linear_model.LogisticRegression` with ``solver="saga"``."""

    name = "saga"
    method = "stochastic average gradients (Cython)"
    requires = ("scikit-learn==1.9.1", "numpy", "scipy")
    tolerances = (1e-1, 1e-10)  # of changes, relative to the largest coefficient

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Bring the rows together, which is how the library reads them."""
        self.X = data.X.copy(order="C") if isinstance(data.X, np.ndarray) else data.X.tocsr()
        self.y = data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(
            C=1 / (alpha * len(self.y)),
            l1_ratio=1.0,
            solver="saga",
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=1_000_000,
            random_state=self.settings.seed,
        )
        if model.get_params().get("penalty") == "l2":  # older versions want the name of the penalty
            model.set_params(penalty="l1", l1_ratio=None)
        model.fit(self.X, self.y)
        return {"coef": model.coef_.ravel(), "intercept": np.ravel(model.intercept_)[0]}
