"""A smooth loss on a working set: the subproblem of logistic and multinomial regression.

With F = O + A b + c (O an offset, c the intercept, A the columns of W) the problem is::

    min_{b, c}  loss(F) + sum_j l1_j |b_j| + l2_j b_j^2 / 2

and each output has its own coefficients. It is solved by a proximal Newton method. A direction minimises the
quadratic model of the loss, with the exact Hessian, plus the penalty: coordinate descent finds the signs, and
where that takes more than a few sweeps, conjugate gradients on the support do the rest. Columns that are far
from their threshold are left out of the model until their slope calls for them.

**Dual point and gap.** ``V = -loss'(F)``, scaled by some s in [0, 1], is a dual point if it is orthogonal to the
*free* columns (the intercept, and features without any penalty). One Newton step ``d = Z a`` along these columns Z has
``Z^T (V - H d) = 0``, with H the Hessian; and ``V - H d`` has the form of V with other probabilities: a dual point for
``|d| <= 1/2``, to rounding, however far the intercept is from its best value. Larger steps are taken, not
projected. The gap is that of `duality.smooth_gap`.

Memory: 24 bytes a row and output, beside the working copies (`copies`).

References
----------
Lee, Sun, Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM J. Optim. 24(3), 2014.
Yuan, Ho, Lin, "An improved GLMNET for L1-regularized logistic regression", JMLR 13, 2012.
"""

from typing import Protocol

import numpy as np

from ...errors import DataError
from ...kernels.linear_columns import csc_add, csc_dot, dense_add, dense_dot
from ...kernels.weighted_descent import csc_descent, dense_descent
from .columns import columns_of
from .copies import copies_of
from .duality import smooth_gap

_NEAR = 0.8  # columns at zero take part in a direction from this part of their threshold on
_SWEEPS = 3  # over the columns that take part, before conjugate gradients take over
_SUPPORT_SWEEPS = 10  # after each of them
_DIRECTION = 0.01  # a direction is good when changes (squared) are this part of the first ones
_DESCENTS = 8  # of `_SWEEPS`, with conjugate gradients between them, for a direction
_CONJUGATE_STEPS, _CONJUGATE_TOL = 40, 0.1
_DIRECTIONS = 100  # for one call of `solve`
_ARMIJO = 1e-3
_HALVINGS = 40
_ROUNDING = 1e-13  # of an objective
_PROJECT = 0.5  # largest Newton step on the free columns that is projected away rather than taken
_FREE_STEPS = 60
_LARGEST = 1e300  # for thresholds of columns of extreme scale


class SmoothLoss(Protocol):
    """What a loss offers to `ProximalNewton`. F, V and shares have the shape (n_outputs, n_rows).

    The *shares* are what value, derivatives and dual objective are made of: probabilities, for the logistic losses.

    Attributes
    ----------
    n_outputs, n_rows : int
    """

    n_outputs: int
    n_rows: int

    def shares(self, F) -> tuple[float, np.ndarray]:
        """Return the loss and the shares of F."""
        ...

    def residual(self, shares) -> np.ndarray:
        """Return minus the gradient of the loss."""
        ...

    def curvature(self, shares, k) -> np.ndarray:
        """Return the diagonal of the Hessian for output k: array of shape (n_rows,)."""
        ...

    def hessian(self, shares, V, k) -> np.ndarray:
        """Return output k of the Hessian's product with V: array of shape (n_rows,)."""
        ...

    def tilt(self, shares, V) -> np.ndarray:
        """Return the shares whose residual is ``residual(shares) - hessian(V)``, for ``|V| <= 1/2``."""
        ...

    def dual(self, shares, s) -> float:
        """Return ``min_F loss(F) + s residual(shares) . F``."""
        ...


class ProximalNewton:
    """A `Subproblem` of `WorkingSet` for a smooth loss.

    Parameters
    ----------
    loss : SmoothLoss
    offset : float64 ndarray of shape (n_outputs, n_rows), optional
        O, which no coefficient changes.
    fit_intercept : bool, default=True

    Attributes
    ----------
    n_rows, scale, features, coef, intercept, updates, easy
        See `Subproblem`.
    """

    scale = 1.0

    def __init__(self, loss, *, offset=None, fit_intercept=True):
        self.loss, self.offset = loss, offset
        self.n_rows = loss.n_rows
        self.features = np.empty(0, np.int64)
        self.updates, self.easy = 0, True
        self._first = int(fit_intercept)  # the intercept is the coefficient of a first column of ones
        self._copies = None
        self._b = np.zeros((loss.n_outputs, 0))
        self._F = np.zeros((loss.n_outputs, self.n_rows)) if offset is None else offset.copy()
        self._value, self._shares = loss.shares(self._F)
        self._dual = None  # shares of the dual point, its vectors, and the step on the free columns
        self._slopes = None
        self._free = np.empty(0, np.int64)
        self._null = None
