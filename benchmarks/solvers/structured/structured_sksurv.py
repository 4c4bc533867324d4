"""scikit-survival: coordinate descent along a path, in C++."""

import numpy as np


class Solver:
    """`sksurv.linear_model.CoxnetSurvivalAnalysis`, by a path of ten penalties."""

    name = "sksurv"
    method = "coordinate descent along a path (C++)"
    requires = ("scikit-survival", "numpy")
    tolerances = (1e-4, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Make the structured target."""
        self.X = data.X
        if data.y.ndim > 1:  # of other models it is never asked for
            self.y = np.empty(len(data.y), [("event", bool), ("time", np.float64)])
            self.y["event"], self.y["time"] = data.y[:, 1] > 0, data.y[:, 0]

    def cox(self, alpha, tolerance):
        """One path from the largest penalty."""
        from sksurv.linear_model import CoxnetSurvivalAnalysis

        alphas = np.geomspace(20 * alpha, alpha, 10)
        model = CoxnetSurvivalAnalysis(alphas=alphas, l1_ratio=1.0, tol=tolerance, max_iter=100_000)
        return {"coef": model.fit(self.X, self.y).coef_[:, -1], "intercept": 0.0}
