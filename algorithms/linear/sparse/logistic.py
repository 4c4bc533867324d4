"""Two classes: the logistic loss, and its problem on a working set.

With signs y of 1 and -1 and weights w, ``loss(F) = sum_i w_i log(1 + exp(-y_i F_i))``. The share
``u_i = 1 / (1 + exp(y_i F_i))`` is the probability of the other class, minus the gradient is ``w y u``, the
Hessian is the diagonal ``w u (1 - u)``, and the dual objective sums the entropies of the probabilities s u.
"""

import numpy as np

from ....kernels.linear.logistic import binary_entropy, binary_shares
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


class Logistic(ProximalNewton):
    """Two classes on a working set: a `Subproblem` of `WorkingSet`.

    `labels`, `weights`: see `LogisticLoss`. `offset`: float64 (n_rows,); added to the linear predictor.
    """

    def __init__(self, labels, weights=None, *, offset=None, fit_intercept=True):
        offset = None if offset is None else np.array(offset, dtype=np.float64).reshape(1, -1)
        super().__init__(LogisticLoss(labels, weights), offset=offset, fit_intercept=fit_intercept)
