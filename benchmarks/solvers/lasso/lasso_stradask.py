"""stradask: working sets with the penalty falling inside, coordinate descent and a Newton finish."""


class Solver:
    """`stradask.Lasso` and `stradask.LassoCV` as a user calls them."""

    name = "stradask"
    method = "working sets, coordinate descent, semismooth Newton (numba)"
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

        model = stradask.Lasso(
            alpha,
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=100_000,
            n_jobs=self.settings.n_jobs,
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": model.intercept_}

    def cross_validate(self, alphas, n_folds, tolerance):
        """A path on each fold, and a fit to all rows at the best penalty."""
        import stradask

        model = stradask.LassoCV(
            alphas=alphas, cv=n_folds, tol=tolerance, max_iter=100_000, n_jobs=self.settings.n_jobs
        ).fit(self.X, self.y)
        return {
            "coef": model.coef_,
            "intercept": model.intercept_,
            "alpha": model.alpha_,
            "errors": model.mse_path_.mean(axis=-1),
        }
