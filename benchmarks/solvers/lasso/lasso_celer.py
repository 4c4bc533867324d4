"""celer: working sets with dual extrapolation."""

import numpy as np


class Solver:
    """`celer.Lasso` and `celer.LassoCV`."""

    name = "celer"
    method = "working sets, dual extrapolation (Cython)"
    requires = ("celer==0.7.4", "scikit-learn==1.8.0", "numpy")  # LassoCV fails with scikit-learn 1.9
    tolerances = (1e-2, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from celer import Lasso

        model = Lasso(
            alpha, fit_intercept=self.settings.intercept, tol=tolerance, max_iter=200, max_epochs=100_000
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": model.intercept_}

    def cross_validate(self, alphas, n_folds, tolerance):
        """A path on each fold, and a fit to all rows at the best penalty."""
        from celer import LassoCV

        model = LassoCV(
            alphas=np.array(alphas),
            cv=n_folds,
            tol=tolerance,
            max_iter=200,
            max_epochs=100_000,
            n_jobs=self.settings.n_jobs,
        ).fit(self.X, self.y)
        return {
            "coef": model.coef_,
            "intercept": model.intercept_,
            "alpha": model.alpha_,
            "errors": model.mse_path_.mean(axis=-1),
        }
