"""skglm: working sets with proximal Newton steps."""


class Solver:
    """`skglm.SparseLogisticRegression`."""

    name = "skglm"
    method = "working sets, proximal Newton (numba)"
    requires = ("skglm==0.5", "numpy")
    tolerances = (1e-1, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from skglm import SparseLogisticRegression

        model = SparseLogisticRegression(
            alpha, fit_intercept=self.settings.intercept, tol=tolerance, max_iter=200, max_epochs=100_000
        ).fit(self.X, self.y)
        return {"coef": model.coef_.ravel(), "intercept": float(model.intercept_)}
