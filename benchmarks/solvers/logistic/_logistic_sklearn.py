"""What the solvers of scikit-learn's `LogisticRegression` share: rows that lie together, and a fit."""

import numpy as np


def rows_of(data):
    """Bring the rows together, which is how the library reads them; labels of one byte."""
    X = np.ascontiguousarray(data.X) if isinstance(data.X, np.ndarray) else data.X.tocsr()
    return X, data.y.astype(np.int8)


def fit(X, y, alpha, tolerance, **options):
    """Fit from scratch; return what the objective judges."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1 / (alpha * len(y)), tol=tolerance, max_iter=100_000, **options).fit(X, y)
    return {"coef": model.coef_, "intercept": np.ravel(model.intercept_)[0]}
