"""scikit-learn: whole Hessians and their Cholesky factors."""

import numpy as np

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
        self.X = np.ascontiguousarray(data.X) if isinstance(data.X, np.ndarray) else data.X.tocsr()
        self.y = data.y.astype(np.int8)

    def solve(self, alpha, tolerance):
        """One fit from scratch."""
        from sklearn.linear_model import LogisticRegression

        if self.X.shape[1] > MOST_COLUMNS:
            raise MemoryError(
                f"a Hessian of {self.X.shape[1]} columns: more than {MOST_COLUMNS} are not asked for"
            )
        model = LogisticRegression(
            C=1 / (alpha * len(self.y)),
            solver="newton-cholesky",
            fit_intercept=self.settings.intercept,
            tol=tolerance,
            max_iter=100_000,
        ).fit(self.X, self.y)
        return {"coef": model.coef_, "intercept": np.ravel(model.intercept_)[0]}
