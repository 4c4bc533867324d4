"""Several classes, few rows and columns: Newton's method with the whole Hessian.

With probabilities P (n, K) and weights w the Hessian of the loss has the blocks, for classes k and l,

    H_kl = X^T diag(w P_k (1[k = l] - P_l)) X.

The loss does not change where a column's coefficients, or the intercepts, of all classes move alike. At a
point where they sum to zero the gradient has no part along such a move, and a Hessian to which squares of
these sums are added gives the same step.
"""

import numpy as np
from scipy.linalg.lapack import dposv

from ....kernels.linear.small_smooth import ARMIJO, HALVINGS, SLACK
from ...optimize.methods.newton import ROUNDING, STALLED, result_of
from .. import rules
from .objective import MultinomialObjective
from .rows import DenseRows
from .small import shifted


def applies(objective):
    """Whether an objective is small, of dense rows of this process, and has a penalty."""
    if not isinstance(objective, MultinomialObjective) or type(objective.rows) is not DenseRows:
        return False
    return objective.l2 > 0 and rules.SMALL_SMOOTH.hold(objective.n_rows, objective.n_parameters)


def minimize_small_multinomial(objective, x0, *, max_iter=100, tol_decrease=1e-6, callback=None):
    """Minimise F, from coefficients that sum to zero over the classes; see `minimize_newton`.

    Where the Hessian is singular to working precision, or nothing is gained along its step, it ends with
    status 2, at the best point so far: the caller goes on in another way.
    """
    problem = _Centred(objective)
    B = shifted(x0.reshape(-1, objective.n_classes), problem.means, problem.intercept)
    value, P = problem.value(B)
    stalled, status, decrement, nit = 0, 1, np.inf, 0
    for nit in range(1, max_iter + 1):
        g, step = problem.step(B, P)
        slope = float((g * step).sum()) if step is not None else 0.0
        decrement = -0.5 * slope
        if not slope < 0:
            status, nit = (0 if step is not None and slope == 0 else 2), nit - 1
            break
        near = decrement <= max(tol_decrease * abs(value), ROUNDING**2 * abs(value))
        t = 1.0
        for _ in range(HALVINGS):
            there, P_there = problem.value(B + t * step)
            if there <= value + ARMIJO * t * slope + SLACK * abs(value):
                break
            t *= 0.5
        else:
            status, nit = (0 if near else 2), nit - 1
            break
        stalled = stalled + 1 if there >= value * (1 - ROUNDING) else 0
        B, value, P = B + t * step, there, P_there
        if callback is not None and callback(problem.result(B, value, nit, 1, decrement)) is True:
            status = 3
            break
        if near or stalled == STALLED:
            status = 0 if near else 2
            break
    return problem.result(B, value, nit, status, decrement)


class _Centred:
    """The objective for columns less their means, which belong to the intercepts then.

    Parameters B are an array (d, K), or (d + 1, K) with the intercepts last.
    """

    def __init__(self, objective):
        rows, self.n_classes, self.scale = objective.rows, objective.n_classes, objective.scale
        X, self.l2 = rows.X.astype(np.float64), objective.l2
        self.d, self.intercept, n = X.shape[1], objective.fit_intercept, len(X)
        self.means = X.mean(axis=0) if self.intercept else np.zeros(self.d)
        self.X = np.hstack([X - self.means, np.ones((n, 1))]) if self.intercept else X
        self.weights = self.scale * (rows.weights.astype(np.float64) if len(rows.weights) else np.ones(n))
        self.y, self.every = rows.y, np.arange(n)
        self.offset = rows.offset if len(rows.offset) else 0.0
        self.penalty = np.zeros((self.X.shape[1], 1))
        self.penalty[: self.d, 0] = objective.of_columns(objective.l2_weights)

    def value(self, B):
        """F, and the probabilities of the classes."""
        F = self.X @ B + self.offset
        F -= F.max(axis=1, keepdims=True)
        own = F[self.every, self.y]
        P = np.exp(F)
        total = P.sum(axis=1, keepdims=True)
        loss = self.weights @ (np.log(total[:, 0]) - own)
        return float(loss + 0.5 * (self.penalty * B * B).sum()), P / total

    def step(self, B, P):
        """The gradient, and Newton's step; None for it where there is none to working precision."""
        X, K, (n, m) = self.X, self.n_classes, self.X.shape
        residual = self.weights[:, None] * P
        residual[self.every, self.y] -= self.weights
        g = X.T @ residual + self.penalty * B
        parts = (P[:, :, None] * X[:, None, :]).reshape(n, K * m)
        weighed = self.weights[:, None] * parts
        H = (weighed.T @ -parts).reshape(K, m, K, m)
        blocks = (X.T @ weighed).reshape(m, K, m)
        columns, classes = np.arange(m), np.arange(K)
        blocks[columns, :, columns] += self.penalty
        H[classes, :, classes] += blocks.transpose(1, 0, 2)
        H[:, columns, :, columns] += blocks[columns, :, columns].mean(axis=1)[:, None, None]
        _, step, info = dposv(H.reshape(K * m, K * m), -g.T.ravel(), lower=1)
        return g, step.reshape(K, m).T if info == 0 and np.isfinite(step).all() else None

    def result(self, B, value, nit, status, decrement):
        """Make scipy's result."""
        x = shifted(B, self.means, self.intercept, -1.0).ravel()
        return result_of(status, x=x, fun=value, jac=None, nit=nit, nfev=nit + 1, decrement=decrement)
