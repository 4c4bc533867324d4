"""scikit-learn: whole Hessians and their Cholesky factors."""

MOST_COLUMNS = 10_000  # whose Hessian takes 800 MB, several times over


class Solver:
    """`sklearn.linear_model.LogisticRegression` with ``solver="newton-cholesky"``."""

    name = "sklearn-newton-cholesky"
    method = "Newton-Cholesky (LAPACK)"
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

        if self.X.shape[1] > MOST_COLUMNS:
            raise MemoryError(
                f"a Hessian of {self.X.shape[1]} columns: more than {MOST_COLUMNS} are not asked for"
            )
        return fit(
            self.X, self.y, alpha, tolerance, solver="newton-cholesky", fit_intercept=self.settings.intercept
        )
