"""scikit-learn: L-BFGS."""


class Solver:
    """`sklearn.linear_model.LogisticRegression` with ``solver="lbfgs"``."""

    name = "sklearn-lbfgs"
    method = "L-BFGS (SciPy, Cython losses)"
    requires = ("scikit-learn==1.9.1", "numpy", "scipy")
    tolerances = (1e-1, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Bring the rows together, which is how the library reads them."""
        from _logistic_sklearn import rows_of

        self.X, self.y = rows_of(data)

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from _logistic_sklearn import fit

        return fit(self.X, self.y, alpha, tolerance, solver="lbfgs", fit_intercept=self.settings.intercept)
