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

    Parameters
    ----------
    labels : int ndarray of shape (n_rows,)
        1 for the class that the coefficients speak for, 0 for the other.
    weights : None or float64 ndarray of shape (n_rows,)
        None for weights of 1.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.sparse.logistic import LogisticLoss
    >>> value, shares = LogisticLoss(np.array([0, 1]), None).shares(np.zeros((1, 2)))
    >>> round(value, 6), shares.tolist()
    (1.386294, [[0.5, 0.5]])
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

    Parameters
    ----------
    labels, weights
        See `LogisticLoss`.
    offset : float64 ndarray of shape (n_rows,), optional
        Added to the linear predictor.
    fit_intercept : bool, default=True

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.linear.sparse.columns import columns_of
    >>> from stradask.algorithms.linear.sparse.logistic import Logistic
    >>> from stradask.algorithms.linear.sparse.penalties import ElasticNet
    >>> from stradask.algorithms.linear.sparse.program import SparseLinearProgram, solve
    >>> from stradask.algorithms.linear.sparse.working_set import WorkingSet
    >>> rng = np.random.default_rng(0)
    >>> X = np.asfortranarray(rng.standard_normal((40, 60)))
    >>> working_set = WorkingSet(
    ...     Logistic((X[:, 0] > 0).astype(int)), [ElasticNet(5.0)], n_features=60, is_sparse=False
    ... )
    >>> solve(SparseLinearProgram(working_set, columns_of(X)))
    >>> int(working_set.solutions[0].features[0]), working_set.solutions[0].gap < 1e-6
    (0, True)
    """

    def __init__(self, labels, weights=None, *, offset=None, fit_intercept=True):
        offset = None if offset is None else np.array(offset, dtype=np.float64).reshape(1, -1)
        super().__init__(LogisticLoss(labels, weights), offset=offset, fit_intercept=fit_intercept)
