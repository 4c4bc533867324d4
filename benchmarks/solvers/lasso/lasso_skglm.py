"""skglm: working sets with Anderson acceleration."""


class Solver:
    """`skglm.Lasso`."""

    name = "skglm"
    method = "working sets, Anderson acceleration (numba)"
    requires = ("skglm==0.5", "numpy")
    tolerances = (1e-1, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from skglm import Lasso

        model = Lasso(
            alpha, fit_intercept=self.settings.intercept, tol=tolerance, max_iter=200, max_epochs=100_000
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": model.intercept_}
