"""adelie: block coordinate descent on a screened set, in C++."""

import numpy as np


class Solver:
    """`adelie.grpnet` at one penalty."""

    name = "adelie"
    method = "block coordinate descent, strong screening (C++)"
    requires = ("adelie==1.1.52", "numpy", "scipy")
    tolerances = (1e-2, 1e-10)  # of changes; the library compares their squares

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Wrap the design, which copies nothing."""
        import adelie

        self.X, self.y = adelie.matrix.dense(data.X, method="naive", n_threads=self.settings.n_jobs), data.y

    def group(self, alpha, tolerance):
        """One fit from scratch."""
        import adelie

        size = self.settings.group_size
        starts = np.arange(0, self.X.cols(), size)
        penalty = np.full(len(starts), np.sqrt(size))
        return self._solve(adelie.glm.gaussian(self.y), alpha, tolerance, groups=starts, penalty=penalty)

    def poisson(self, alpha, tolerance):
        """One fit from scratch."""
        import adelie

        return self._solve(adelie.glm.poisson(self.y), alpha, tolerance, irls_tol=tolerance**2)

    def cox(self, alpha, tolerance):
        """One fit from scratch."""
        import adelie

        times, events = np.ascontiguousarray(self.y.T)
        glm = adelie.glm.cox(start=np.zeros(len(times)), stop=times, status=events)
        return self._solve(glm, alpha, tolerance, irls_tol=tolerance**2)

    def _solve(self, glm, alpha, tolerance, **options):
        """Deviance rules that would end a fit early are off."""
        import adelie

        state = adelie.grpnet(
            X=self.X,
            glm=glm,
            intercept=False,
            lmda_path=[alpha],
            tol=tolerance**2,
            max_iters=10**7,
            adev_tol=1.0,
            ddev_tol=0.0,
            early_exit=False,
            n_threads=self.settings.n_jobs,
            progress_bar=False,
            **options,
        )
        return {"coef": state.betas[-1].toarray().ravel(), "intercept": 0.0}
