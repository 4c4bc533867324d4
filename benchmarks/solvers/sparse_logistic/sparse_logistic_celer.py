"""celer: working sets with dual extrapolation and proximal Newton steps."""


class Solver:
    """`celer.LogisticRegression`, which fits no intercept."""

    name = "celer"
    method = "working sets, proximal Newton (Cython)"
    requires = ("celer==0.7.4", "scikit-learn==1.8.0", "numpy")
    tolerances = (1e-2, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from celer import LogisticRegression

        model = LogisticRegression(
            C=1 / (alpha * len(self.y)),
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=200,
            max_epochs=100_000,
        ).fit(self.X, self.y)
        return {"coef": model.coef_.ravel(), "intercept": float(model.intercept_)}
