"""Logistic and multinomial losses, and their problems on a working set.

**Two classes.** With signs y of 1 and -1 and weights w, ``loss(F) = sum_i w_i log(1 + exp(-y_i F_i))``. The
share ``u_i = 1 / (1 + exp(y_i F_i))`` is the probability of the other class, minus the gradient is ``w y u``,
the Hessian is the diagonal ``w u (1 - u)``, and the dual objective sums the entropies of the probabilities s
u.

**K classes.** With indicators Y of the classes, weights w and ``P = softmax(F)``, ``loss(F) = -sum_i w_i log
P_i(label)``. The shares are P, minus the gradient is ``w (Y - P)``, the Hessian's product with V is ``w P (V
- sum_k P_k V_k)``, and the dual objective sums the entropies of ``(1 - s) Y + s P``. Every class has its
coefficients (the symmetric form): the penalty decides among those that give the same P. Where it does not,
intercepts and unpenalised coefficients sum to zero over the classes.
"""

import numpy as np

from ....kernels.linear.logistic import (
    binary_entropy,
    binary_shares,
    multinomial_entropy,
    multinomial_shares,
)
from .proximal_newton import ProximalNewton


class LogisticLoss:
    """See the module, and `SmoothLoss`.

    `labels`: int (n_rows,); 1 for the class that the coefficients speak for, 0 for the other. `weights`: None
    or float64 (n_rows,); None for weights of 1.
    """

    n_outputs = 1

    def __init__(self, labels, weights=None):
        self.n_rows = len(labels)
        self.signs = np.where(np.asarray(labels) > 0, 1.0, -1.0)
        self.weights = np.ones(self.n_rows) if weights is None else weights
        self._slope = self.weights * self.signs

    def shares(self, F):
        """See `SmoothLoss`."""
        shares = np.empty_like(F)
        return binary_shares(self.signs, self.weights, F[0], shares[0]), shares

    def residual(self, shares):
        """See `SmoothLoss`."""
        return self._slope * shares

    def curvature(self, shares, k):
        """See `SmoothLoss`."""
        return self.weights * shares[0] * (1 - shares[0])

    def hessian(self, shares, V, k):
        """See `SmoothLoss`."""
        return self.curvature(shares, k) * V[0]

    def tilt(self, shares, V):
        """See `SmoothLoss`."""
        return shares * (1 - (1 - shares) * self.signs * V)

    def dual(self, shares, s):
        """See `SmoothLoss`."""
        return binary_entropy(self.weights, shares[0], s)

    def centred(self, coef):
        """See `SmoothLoss`: there are no others."""
        return coef


class LogisticSubproblem(ProximalNewton):
    """Two classes on a working set: a `Subproblem` of `WorkingSet`.

    `labels`, `weights`: see `LogisticLoss`. `offset`: float64 (n_rows,); added to the linear predictor.
    """

    def __init__(self, labels, weights=None, *, offset=None, fit_intercept=True):
        offset = None if offset is None else np.array(offset, dtype=np.float64).reshape(1, -1)
        super().__init__(LogisticLoss(labels, weights), offset=offset, fit_intercept=fit_intercept)


class MultinomialLoss:
    """See the module, and `SmoothLoss`.

    `labels`: int64 (n_rows,); classes, from 0. `weights`: None or float64 (n_rows,); None for weights of 1.
    """

    def __init__(self, labels, n_classes, weights=None):
        self.labels = np.asarray(labels, dtype=np.int64)
        self.n_outputs, self.n_rows = n_classes, len(labels)
        self.weights = np.ones(self.n_rows) if weights is None else weights

    def shares(self, F):
        """See `SmoothLoss`."""
        shares = np.empty_like(F)
        return multinomial_shares(self.labels, self.weights, F, shares), shares

    def residual(self, shares):
        """See `SmoothLoss`."""
        residual = shares * -self.weights
        residual[self.labels, np.arange(self.n_rows)] += self.weights
        return residual

    def curvature(self, shares, k):
        """See `SmoothLoss`."""
        return self.weights * shares[k] * (1 - shares[k])

    def hessian(self, shares, V, k):
        """See `SmoothLoss`."""
        return self.weights * shares[k] * (V[k] - np.einsum("ki,ki->i", shares, V))

    def tilt(self, shares, V):
        """See `SmoothLoss`."""
        return shares * (1 + V - np.einsum("ki,ki->i", shares, V))

    def dual(self, shares, s):
        """See `SmoothLoss`."""
        return multinomial_entropy(self.labels, self.weights, shares, s)

    def centred(self, coef):
        """See `SmoothLoss`: those that sum to zero."""
        return coef - coef.mean(axis=0)


class MultinomialSubproblem(ProximalNewton):
    """K classes on a working set: a `Subproblem` of `WorkingSet`.

    `labels`, `n_classes`, `weights`: see `MultinomialLoss`. `offset`: float64 (n_rows, n_classes); added to
    the linear predictors.
    """

    def __init__(self, labels, n_classes, weights=None, *, offset=None, fit_intercept=True):
        offset = None if offset is None else np.array(np.transpose(offset), dtype=np.float64, order="C")
        loss = MultinomialLoss(labels, n_classes, weights)
        super().__init__(loss, offset=offset, fit_intercept=fit_intercept)
