"""glum: iteratively reweighted least squares by coordinate descent."""

import numpy as np


class Solver:
    """`glum.GeneralizedLinearRegressor` of counts."""

    name = "glum"
    method = "iteratively reweighted least squares, coordinate descent (Cython)"
    requires = ("glum==3.4.1", "numpy")
    tolerances = (1e-2, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data, with rows that are contiguous or not as they come."""
        self.X, self.y = np.asarray(data.X), data.y

    def poisson(self, alpha, tolerance):
        """One fit from scratch; the loss is half the mean deviance, as ours but for a constant."""
        from glum import GeneralizedLinearRegressor

        model = GeneralizedLinearRegressor(
            family="poisson",
            alpha=alpha,
            l1_ratio=1.0,
            fit_intercept=False,
            solver="irls-cd",
            gradient_tol=tolerance,
            max_iter=1000,
            scale_predictors=False,
        )
        return {"coef": model.fit(self.X, self.y).coef_, "intercept": 0.0}
