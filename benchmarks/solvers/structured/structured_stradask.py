"""stradask: working sets of blocks, proximal Newton steps."""


class Solver:
    """`stradask.GroupLasso`, `MultiTaskLasso`, `SparsePoissonRegressor` and `CoxRegression`."""

    name = "stradask"
    method = "working sets, proximal Newton by rows or products (numba)"
    requires = ()
    libraries = ("numba", "scipy")
    tolerances = (1e-2, 1e-9)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def group(self, alpha, tolerance):
        """One fit from scratch."""
        return self._fit("GroupLasso", alpha, tolerance, groups=self.settings.group_size)

    def multitask(self, alpha, tolerance):
        """One fit from scratch."""
        return self._fit("MultiTaskLasso", alpha, tolerance)

    def poisson(self, alpha, tolerance):
        """One fit from scratch."""
        return self._fit("SparsePoissonRegressor", alpha, tolerance)

    def cox(self, alpha, tolerance):
        """One fit from scratch."""
        import stradask

        model = stradask.CoxRegression(alpha=alpha, tol=tolerance, max_iter=1000).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": 0.0}

    def _fit(self, name, alpha, tolerance, **options):
        import stradask

        model = getattr(stradask, name)(
            alpha=alpha, fit_intercept=False, tol=tolerance, max_iter=1000, **options
        )
        return {"coef": model.fit(self.X, self.y).coef_, "intercept": 0.0}
