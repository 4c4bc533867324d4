"""LIBLINEAR through scikit-learn: a trust-region Newton method in C++."""


class Solver:
    """`sklearn.linear_model.LogisticRegression` with ``solver="liblinear"``: its trust-region method.

    LIBLINEAR penalises an intercept like a column; a large `intercept_scaling` makes that small.
    """

    name = "liblinear"
    method = "trust-region Newton (C++)"
    requires = ("scikit-learn==1.9.1", "numpy", "scipy")
    tolerances = (1e-1, 1e-10)

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
            self.X,
            self.y,
            alpha,
            tolerance,
            solver="liblinear",
            fit_intercept=self.settings.intercept,
            intercept_scaling=1e4,
        )
