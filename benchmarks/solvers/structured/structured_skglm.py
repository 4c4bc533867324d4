"""skglm: working sets with Anderson acceleration, proximal Newton."""

import functools

import numpy as np


class Solver:
    """skglm's `GroupBCD`, `MultiTaskBCD` and `ProxNewton`."""

    name = "skglm"
    method = "working sets, Anderson acceleration, proximal Newton (numba)"
    requires = ("skglm==0.5", "numpy")
    tolerances = (1e-1, 1e-12)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        """Keep the data; the classes are compiled once."""
        self.X, self.y = data.X, data.y

    def group(self, alpha, tolerance):
        """One fit from scratch."""
        from skglm.datafits import QuadraticGroup
        from skglm.penalties import WeightedGroupL2
        from skglm.solvers import GroupBCD
        from skglm.utils.data import grp_converter

        size, p = self.settings.group_size, self.X.shape[1]
        indices, starts = grp_converter(size, p)
        weights = np.full(p // size, np.sqrt(size))
        datafit = _compiled(QuadraticGroup)(starts, indices)
        penalty = _compiled(WeightedGroupL2)(alpha, weights, starts, indices)
        return self._solve(GroupBCD, datafit, penalty, tolerance)

    def multitask(self, alpha, tolerance):
        """One fit from scratch."""
        from skglm.datafits import QuadraticMultiTask
        from skglm.penalties import L2_1
        from skglm.solvers import MultiTaskBCD

        return self._solve(MultiTaskBCD, _compiled(QuadraticMultiTask)(), _compiled(L2_1)(alpha), tolerance)

    def poisson(self, alpha, tolerance):
        """One fit from scratch."""
        from skglm.datafits import Poisson
        from skglm.penalties import L1
        from skglm.solvers import ProxNewton

        return self._solve(ProxNewton, _compiled(Poisson)(), _compiled(L1)(alpha), tolerance)

    def cox(self, alpha, tolerance):
        """One fit from scratch."""
        from skglm.datafits import Cox
        from skglm.penalties import L1
        from skglm.solvers import ProxNewton

        datafit, self.y = _compiled(Cox)(), np.asfortranarray(self.y)
        datafit.initialize(self.X, self.y)
        return self._solve(ProxNewton, datafit, _compiled(L1)(alpha), tolerance)

    def _solve(self, solver, datafit, penalty, tolerance):
        made = solver(tol=tolerance, max_iter=500, fit_intercept=False)
        return {"coef": made.solve(self.X, self.y, datafit, penalty)[0].T, "intercept": 0.0}


@functools.cache
def _compiled(kind):
    """A compiled class: the compilation is not timed again."""
    from numba.experimental import jitclass

    made: list[type] = []

    def make(*arguments):
        instance = kind(*arguments)
        if not made:
            made.append(jitclass(instance.get_spec())(kind))
        return made[0](**instance.params_to_dict())

    return make
