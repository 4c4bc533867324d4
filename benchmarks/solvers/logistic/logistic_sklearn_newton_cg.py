"""scikit-learn: Newton's method with conjugate gradients."""


class Solver:
    """`sklearn.linear_model.LogisticRegression` with ``solver="newton-cg"``."""

    name = "sklearn-newton-cg"
    method = "Newton with conjugate gradients (NumPy)"
    requires = ("scikit-learn==1.9.1", "numpy", "scipy")
    tolerances = (1e0, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Bring the rows together, which is how the library reads them."""
        from _logistic_sklearn import rows_of

        self.X, self.y = rows_of(data)

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from _logistic_sklearn import fit

        return fit(
            self.X, self.y, alpha, tolerance, solver="newton-cg", fit_intercept=self.settings.intercept
        )
