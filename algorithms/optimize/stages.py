"""One minimisation that changes its method on the way."""

from scipy.optimize import OptimizeResult

from .methods.lbfgs import LIMIT, STOPPED, minimize_lbfgs

LBFGS_SHARE = 0.1  # of a tolerance for L-BFGS: its steps promise less than can be reached


class Stages:
    """Runs minimisers one after the other, each from the end of the last.

    `max_iter`: steps of all stages together. `over`: whether a stage has converged, the steps are used up or
    the callback has ended it.
    """

    def __init__(self, objective, x0, max_iter, callback=None):
        self.x, self.over = x0, False
        self._objective, self._max_iter, self._callback = objective, max_iter, callback
        self._last = OptimizeResult()
        self._nit = self._nfev = 0

    def run(self, minimiser, *, most=None, **options):
        """Run a stage of at most `most` steps; return its result."""
        left = self._max_iter - self._nit
        by_gradients = minimiser is minimize_lbfgs
        if by_gradients:
            options["precision"] = self._objective.precision
        self._last = minimiser(
            self._objective.value_and_gradient if by_gradients else self._objective,
            self.x,
            max_iter=left if most is None else min(most, left),
            callback=self._callback,
            **options,
        )
        self.x = self._last.x
        self._nit += self._last.nit
        self._nfev += self._last.nfev
        self.over = self._last.success or self._nit >= self._max_iter or self._last.status == STOPPED
        return self._last

    def run_lbfgs(self, scaling, steps, *, first=None, tol_decrease, excess):
        """Run L-BFGS for so many steps, then twice as many and so on, preconditioned anew each time.

        `scaling`: ``scaling(x)`` makes a preconditioner at x. `first`: preconditioner; to begin with.
        """
        preconditioner = first or scaling(self.x)
        while True:
            result = self.run(
                minimize_lbfgs,
                most=steps,
                preconditioner=preconditioner,
                excess=excess,
                tol_gradient=0.0,
                tol_decrease=LBFGS_SHARE * tol_decrease,
            )
            if self.over or result.status != LIMIT:
                return
            preconditioner, steps = scaling(self.x), 2 * steps

    def result(self):
        """The last stage's result with the steps and passes of all."""
        whole = OptimizeResult()
        whole.update(self._last, x=self.x, nit=self._nit, nfev=self._nfev)
        if self._last.status == LIMIT:
            whole.update(message=f"max_iter={self._max_iter} steps were taken")
        return whole
