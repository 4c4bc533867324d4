"""Ridge regression with fewer rows than columns: a system of equations as large as the rows.

With Z the rows less their mean, times the roots of their weights, and t the targets likewise, the
coefficients are ``w = Z^T a`` and ``(Z Z^T + l2) a = t``. What rounding leaves of the equations is computed
from w itself and solved for again: a Hessian, of p x p, would lose the share l2 has of its largest entry.

References: Saunders, Gammerman, Vovk, "Ridge regression learning algorithm in dual variables", ICML 1998.
"""

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import OptimizeResult

from .. import rules
from .rows import SQUARED, DenseRows, SparseRows

_CORRECTIONS = 3  # of iterative refinement; each gains the digits of one solve
_BLOCK = 1 << 20  # entries of a block of columns in float64


def applies(objective):
    """Whether an objective has fewer rows than columns, rows in this process, and a penalty."""
    n, d = objective.rows.shape
    here = isinstance(objective.rows, DenseRows | SparseRows)
    return here and objective.loss == SQUARED and objective.l2 > 0 and n < d and n <= rules.DUAL_ROWS


class DualFactor:
    """The Cholesky factor of ``Z Z^T + l2``, for any targets of the same rows and weights.

    `objective`: LinearObjective; for which `applies` holds. Raises LinAlgError: Where l2 is lost in
    rounding.
    """

    def __init__(self, objective):
        rows = objective.rows
        weights = objective.scale * rows.row_weights()
        self._roots = np.sqrt(weights)
        self._shares = weights / weights.sum() if objective.fit_intercept else np.zeros(len(weights))
        dense = isinstance(rows, DenseRows)
        self._X = rows.X if dense else sparse.csr_array((rows.data, rows.indices, rows.indptr), rows.shape)
        if not dense:
            self._X = self._X.astype(np.float64)
        self._means = self._shares @ self._X
        K = self._dense_products() if dense else self._sparse_products()
        K.flat[:: len(K) + 1] += objective.l2
        self._factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        self._l2 = objective.l2

    def _dense_products(self):
        n, d = self._X.shape
        K, step = np.zeros((n, n)), max(64, _BLOCK // n)
        for j in range(0, d, step):
            Z = self._roots[:, None] * (self._X[:, j : j + step] - self._means[j : j + step])
            K += Z @ Z.T
        return K

    def _sparse_products(self):
        K = (self._X @ self._X.T).toarray()
        with_mean = self._X @ self._means
        K += self._means @ self._means - with_mean - with_mean[:, None]
        return self._roots[:, None] * K * self._roots

    def solve(self, y):
        """Coefficients and intercept for targets y.

        Returns float64 (d,), float.
        """
        mean = float(self._shares @ y)
        t = self._roots * (y - mean)
        a, w = np.zeros(len(t)), np.zeros(len(self._means))
        for _ in range(_CORRECTIONS):
            Zw = self._roots * (self._X @ w - self._means @ w)
            a += cho_solve(self._factor, t - Zw - self._l2 * a, check_finite=False)
            back = self._roots * a
            w = back @ self._X - back.sum() * self._means
        return w, mean - float(self._means @ w)


def minimize_dual(objective, x0, *, factor, tol_decrease, max_iter=1, callback=None):
    """Take one step, `max_iter` or not, to the solution; returns as `minimize_newton` does.

    It has converged where strong convexity proves it: the excess is at most ``|g|^2 / (2 l2)``.

    `tol_decrease`: excess over the minimum relative to the objective.
    """
    fun, jac = objective.value_and_gradient(x0)
    if _excess(objective, jac) <= tol_decrease * abs(fun):
        return _result(x0, fun, jac, 0, 0)
    w, intercept = factor.solve(objective.rows.y.astype(np.float64))
    x = np.append(w, intercept) if objective.fit_intercept else w
    before = fun
    fun, jac = objective.value_and_gradient(x)
    if not fun <= before:
        fun, jac = objective.value_and_gradient(x0)
        return _result(x0, fun, jac, 0, 2)
    enough = tol_decrease * abs(fun) + objective.precision * objective.precision * abs(before)
    status = 0 if _excess(objective, jac) <= enough else 2
    result = _result(x, fun, jac, 1, status)
    if callback is not None and callback(result) is True:
        result = _result(x, fun, jac, 1, 3)
    return result


def _excess(objective, g):
    """A bound of the objective's excess; for the intercept by its own curvature, as columns were centred."""
    w, c = g[: objective.n_columns], g[objective.n_columns :]
    mass = objective.scale * float(objective.rows.row_weights().sum())
    return float(w @ w) / (2 * objective.l2) + float(c @ c) / (2 * mass)


def _result(x, fun, jac, nit, status):
    result = OptimizeResult()
    result.update(x=x, fun=fun, jac=jac, nit=nit, nfev=nit + 1, status=status, success=status == 0)
    result.update(message=_MESSAGES[status])
    return result


_MESSAGES = {
    0: "the excess of the objective is small enough",
    2: "rounding errors allow no further decrease",
    3: "the callback ended it",
}
