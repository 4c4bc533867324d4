"""celer: working sets with dual extrapolation."""

import numpy as np


class Solver:
    """`celer.GroupLasso` and `celer.MultiTaskLasso`."""

    name = "celer"
    method = "working sets, dual extrapolation (Cython)"
    requires = ("celer==0.7.4", "scikit-learn<1.6", "numpy")  # MultiTaskLasso fails with later scikit-learn
    tolerances = (1e-2, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data: they come as they are used."""
        self.X, self.y = data.X, data.y

    def group(self, alpha, tolerance):
        """One fit from scratch."""
        from celer import GroupLasso

        size = self.settings.group_size
        options = {"groups": size, "weights": np.ones(self.X.shape[1] // size)}
        return self._fit(GroupLasso(alpha=alpha * np.sqrt(size), **options), tolerance)

    def multitask(self, alpha, tolerance):
        """One fit from scratch."""
        from celer import MultiTaskLasso

        return self._fit(MultiTaskLasso(alpha=alpha), tolerance)

    def _fit(self, model, tolerance):
        model.set_params(fit_intercept=False, tol=tolerance, max_iter=200, max_epochs=100_000)
        return {"coef": model.fit(self.X, self.y).coef_, "intercept": 0.0}
