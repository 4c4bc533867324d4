"""Ridge regression with fewer rows than columns: a system of equations as large as the rows.

With Z the rows less their mean, times the roots of their weights, and t the targets likewise, the
coefficients are ``w = Z^T a`` and ``(Z Z^T + l2) a = t``. What rounding leaves of the equations is computed
from w itself and solved for again: a Hessian, of p x p, would lose the share l2 has of its largest entry.

References: Saunders, Gammerman, Vovk, "Ridge regression learning algorithm in dual variables", ICML 1998.
"""

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsyrk
from scipy.optimize import OptimizeResult

from .. import rules
from .rows import SQUARED, DenseRows, SparseRows

_CORRECTIONS = 3  # at most, of iterative refinement; each gains the digits of one solve
_FEW = 20  # rows, whose size says how far columns are from zero
_BLOCK = 1 << 17  # entries of a block of columns: 1 MiB


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
        if not dense:
            K = self._centred((self._X @ self._X.T).toarray())
        elif self._X.dtype == np.float64 and self._near_zero():
            K = self._centred(dsyrk(1.0, self._X.T, trans=1, lower=1))
        else:
            K = self._products_of_differences()
        K.flat[:: len(K) + 1] += objective.l2
        self._factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        self._l2 = objective.l2

    def _near_zero(self):
        """Whether centring products, not columns, loses no digits: by a few rows."""
        few = self._X[:: max(1, len(self._X) // _FEW)]
        return 2 * float(self._means @ self._means) <= float(np.einsum("ij,ij->", few, few)) / len(few)

    def _products_of_differences(self):
        """The lower triangle, by blocks of columns that stay in the cache."""
        n, d = self._X.shape
        K, step = np.zeros((n, n), order="F"), max(64, _BLOCK // n)
        same = (self._roots == self._roots[0]).all()
        for j in range(0, d, step):
            part = slice(j, min(j + step, d))
            Z = np.empty((n, part.stop - j))
            np.subtract(self._X[:, part], self._means[part], out=Z)
            if not same:
                Z *= self._roots[:, None]
            K = dsyrk(1.0, Z.T, beta=1.0, c=K, trans=1, lower=1, overwrite_c=1)
        return K * self._roots[0] ** 2 if same else K

    def _centred(self, K):
        """Products of centred rows, times the roots, from those of rows; the lower triangle of K will do."""
        with_mean = self._X @ self._means
        K += self._means @ self._means - with_mean - with_mean[:, None]
        K *= self._roots[:, None] * self._roots
        return K

    def solutions(self, y):
        """Yield coefficients and intercept for targets y, (d,) and a number, ever more exact."""
        mean = float(self._shares @ y)
        left = t = self._roots * (y - mean)
        a = np.zeros(len(t))
        for _ in range(_CORRECTIONS):
            a += cho_solve(self._factor, left, check_finite=False)
            back = self._roots * a
            w = back @ self._X - back.sum() * self._means
            yield w, mean - float(self._means @ w)
            left = t - self._roots * (self._X @ w - self._means @ w) - self._l2 * a


def minimize_dual(objective, x0, *, factor, tol_decrease, max_iter=1, callback=None):
    """Take one step, `max_iter` or not, to the solution; returns as `minimize_newton` does.

    It has converged where strong convexity proves it: the excess is at most ``|g|^2 / (2 l2)``.

    `tol_decrease`: excess over the minimum relative to the objective.
    """
    before, jac = objective.value_and_gradient(x0)
    if _excess(objective, jac) <= tol_decrease * abs(before):
        return _result(x0, before, jac, 0, 0)
    x, fun, status = x0, before, 2
    for w, intercept in factor.solutions(objective.rows.y.astype(np.float64)):
        there = np.append(w, intercept) if objective.fit_intercept else w
        value, gradient = objective.value_and_gradient(there)
        if not value <= fun:
            break
        x, fun, jac = there, value, gradient
        enough = tol_decrease * abs(fun) + objective.precision * objective.precision * abs(before)
        if _excess(objective, jac) <= enough:
            status = 0
            break
    if x is x0:
        return _result(x0, fun, jac, 0, 2)
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
