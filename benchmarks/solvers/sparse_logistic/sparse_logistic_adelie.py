"""adelie: proximal Newton steps on a screened set, in C++."""

import numpy as np

_PENALTIES = 5  # of the path for wide designs: alone, a small penalty screens nearly every column in


class Solver:
    """`adelie.grpnet` with groups of one column; of wide designs a short path to the penalty."""

    name = "adelie"
    method = "proximal Newton, strong screening (C++)"
    requires = ("adelie==1.1.52", "numpy", "scipy")
    tolerances = (1e-2, 1e-10)  # of changes; the library compares their squares

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Wrap the design, which copies nothing."""
        import adelie

        wrap = adelie.matrix.dense if isinstance(data.X, np.ndarray) else adelie.matrix.sparse
        self.X = wrap(data.X, method="naive", n_threads=self.settings.n_jobs)
        self.glm = adelie.glm.binomial((data.y + 1) / 2)
        self.start = np.abs(data.X.T @ ((data.y - data.y.mean()) / 2)).max() / len(data.y)
        self.is_wide = data.X.shape[1] > data.X.shape[0]

    def solve(self, alpha, tolerance):
        """One fit from scratch; deviance rules that would end it early are off."""
        import adelie

        path = self.is_wide and alpha < self.start
        state = adelie.grpnet(
            X=self.X,
            glm=self.glm,
            intercept=self.settings.intercept,
            lmda_path=np.geomspace(self.start, alpha, _PENALTIES) if path else [alpha],
            tol=tolerance**2,
            irls_tol=tolerance**2,
            max_iters=10**7,
            adev_tol=1.0,
            ddev_tol=0.0,
            early_exit=False,
            n_threads=self.settings.n_jobs,
            progress_bar=False,
        )
        return {"coef": state.betas[-1].toarray().ravel(), "intercept": state.intercepts[-1]}
