"""scikit-learn: coordinate descent with screening."""

import numpy as np


class Solver:
    """`sklearn.linear_model.Lasso` and `LassoCV`."""

    name = "sklearn"
    method = "coordinate descent, gap-safe screening (Cython)"
    requires = ("scikit-learn==1.9.1", "numpy")
    tolerances = (1e-2, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from sklearn.linear_model import Lasso

        model = Lasso(
            alpha,
            fit_intercept=self.settings.intercept,
            copy_X=self.settings.intercept,  # without one nothing is centred, and a copy is only time
            tol=tolerance,
            max_iter=100_000,
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": model.intercept_}

    def cross_validate(self, alphas, n_folds, tolerance):
        """A path on each fold, and a fit to all rows at the best penalty."""
        from sklearn.linear_model import LassoCV

        model = LassoCV(
            alphas=np.array(alphas), cv=n_folds, tol=tolerance, max_iter=100_000, n_jobs=self.settings.n_jobs
        ).fit(self.X, self.y)
        return {
            "coef": model.coef_,
            "intercept": model.intercept_,
            "alpha": model.alpha_,
            "errors": model.mse_path_.mean(axis=-1),
        }
