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
from scipy import sparse
from scipy.linalg import eigh

from ...errors import DataError
from ...kernels.linear_columns import csc_add, csc_dot, dense_add, dense_dot
from ...kernels.weighted_descent import csc_descent, dense_descent
from .columns import columns_of
from .copies import copies_of
from .duality import smooth_gap
from .penalties import ElasticNet

_NEAR = 0.8  # columns at zero take part in a direction from this part of their threshold on
_SWEEPS = 3  # over the columns that take part, before conjugate gradients take over
_SUPPORT_SWEEPS = 10  # after each of them
_DIRECTION = 0.01  # a direction is good when changes (squared) are this part of the first ones
_DESCENTS = 8  # of `_SWEEPS`, with conjugate gradients between them, for a direction
_CONJUGATE_STEPS, _CONJUGATE_TOL = 40, 0.1
_DIRECTIONS = 100  # for one call of `solve`
_ARMIJO = 1e-3
_HALVINGS = 40
_ROUNDING = 1e-13  # of an objective, or of a sum of probabilities a row
_EPSILON = 1e-16
_STUCK = 3  # directions without effect that end a `solve`
_PROJECT = 0.5  # largest Newton step on the free columns that is projected away rather than taken
_EXACT = 1e-9  # the same for the model without columns
_FREE_STEPS = 60
_SINGULAR = 1e-13
_CONSTANT = 0.5  # value of the column of the intercept: copies have their largest value in [1/2, 1)
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

    def centred(self, intercept) -> np.ndarray:
        """Choose among intercepts, of shape (n_outputs,), that give the same loss."""
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
        self._first = int(fit_intercept)  # a first column is constant: its coefficient is the intercept
        self._copies = None
        self._b = np.zeros((loss.n_outputs, self._first))
        self._l1 = self._l2 = np.zeros(self._first)
        self._positive = np.zeros(self._first, bool)
        self._penalty = None
        self._free_block = None
        self._set_predictor(self._offset_or_zero())
        self._settle(_EXACT)
        self._null = self._value

    # What `WorkingSet` asks ---------------------------------------------------------------------------

    @property
    def coef(self):
        """See `Subproblem`."""
        if self._copies is None:
            coef = np.zeros((self.loss.n_outputs, 0))
        else:
            coef = (self._b * self._copies.scales)[:, self._first :]
        return coef[0] if self.loss.n_outputs == 1 else coef.T

    @property
    def intercept(self):
        """See `Subproblem`; of several outputs, those that sum to zero."""
        intercept = _CONSTANT * self._b[:, 0] if self._first else np.zeros(self.loss.n_outputs)
        return float(intercept[0]) if self.loss.n_outputs == 1 else self.loss.centred(intercept)

    def grow(self, ids, columns, positions, penalty):
        """See `Subproblem`."""
        if self._copies is None:
            self._copies = copies_of(columns.is_sparse, self.n_rows, np.empty(0), centre=False)
            if self._first:
                constant = np.full((self.n_rows, 1), _CONSTANT, order="F")
                constant = columns_of(sparse.csc_array(constant) if columns.is_sparse else constant)
                self._copies.admit(constant, np.zeros(1, np.int64))
        self._copies.admit(columns, positions)
        self.features = np.concatenate([self.features, ids])
        self._b = np.concatenate([self._b, np.zeros((len(self._b), len(ids)))], axis=1)
        self._slopes = None
        self._use(penalty)

    def start(self, coef):
        """See `Subproblem`."""
        columns = np.reshape(coef, (len(self.features), -1)).T
        self._b[:, self._first :] = columns / self._copies.scales[self._first :]
        F = self._offset_or_zero()
        self._add(self._b, F)
        self._set_predictor(F)

    def solve(self, penalty, eps):
        """See `Subproblem`."""
        self._use(penalty)
        self.easy = True
        if self._copies is None:
            return self.gap(penalty, 0.0)[1] <= eps
        stuck = 0
        for step in range(_DIRECTIONS):
            before, gap = self.gap(penalty, 0.0)
            if gap <= eps:
                return True
            self.easy = step == 0
            self._step()
            after = self._value + self._charge(self._b)
            stuck = 0 if after < before - _ROUNDING * abs(before) else stuck + 1
            if stuck == _STUCK:
                break
        return self.gap(penalty, 0.0)[1] <= eps

    def vectors(self):
        """See `Subproblem`."""
        self._settle()
        return self._dual_vectors.copy()

    def gap(self, penalty, bound):
        """See `Subproblem`."""
        self._use(penalty)
        if not np.isfinite(bound):
            objective = self._value + self._charge(self._b)
            return objective, objective
        self._settle()
        if self._slopes is None:
            self._slopes = self._products(self._dual_vectors)
            self._slopes[:, self._free] = 0.0  # to rounding they are
        slopes = np.where(self._positive, np.maximum(self._slopes, 0.0), self._slopes)
        most = penalty.strength / bound if bound > 0 else np.inf
        most = min(most, self._dual_most)
        return smooth_gap(self._value, self._dual, slopes, self._b, self._l1, self._l2, most)

    def unit(self, penalty):
        """See `Subproblem`."""
        return self._null

    # State ----------------------------------------------------------------------------------------------

    def _offset_or_zero(self):
        if self.offset is None:
            return np.zeros((self.loss.n_outputs, self.n_rows))
        return self.offset.copy()

    def _use(self, penalty):
        """Take the penalty's constants for the columns of W, in the units of their copies."""
        if penalty is self._penalty and len(self._l1) == self._b.shape[1]:
            return
        if not isinstance(penalty, ElasticNet):
            raise DataError(
                f"the logistic losses take the penalty ElasticNet, got {type(penalty).__name__}; see Squared for others"
            )
        self._penalty = penalty
        if self._copies is None:
            return
        scales, none = self._copies.scales[self._first :], np.zeros(self._first)
        l1 = penalty.thresholds(self.features) * scales
        l2 = penalty.ridges(self.features) * scales * scales
        self._l1 = np.minimum(np.concatenate([none, l1]), _LARGEST)
        self._l2 = np.minimum(np.concatenate([none, l2]), _LARGEST)
        self._positive = np.arange(len(self._l1)) >= (self._first if penalty.positive else len(self._l1))
        if not np.array_equal(self._free_columns(), self._free):
            self._settled = False

    def _set_predictor(self, F):
        self._F = F
        self._value, self._shares = self.loss.shares(F)
        self._settled = False

    def _charge(self, b):
        """The penalty of coefficients."""
        sizes = np.abs(b)
        return float((sizes * (self._l1 + 0.5 * self._l2 * sizes)).sum())

    def _products(self, V):
        """``V A`` in float64, one row an output."""
        if self._copies is None:
            return _CONSTANT * V.sum(axis=1, keepdims=True) if self._first else np.zeros((len(V), 0))
        return np.array([self._copies.dot(v) for v in V])

    def _add(self, b, F):
        """Add ``A b`` to F, in float64."""
        for coef, f in zip(b, F, strict=True):
            chosen = np.flatnonzero(coef)
            self._copies.add(chosen, coef[chosen], f)

    def _dual(self, s):
        """The dual objective of the scaled dual point, without the penalty's part."""
        value = self.loss.dual(self._dual_shares, s)
        return value if self.offset is None else value - s * float((self._dual_vectors * self.offset).sum())

    # The free columns -----------------------------------------------------------------------------------

    def _free_columns(self):
        """Positions of columns that nothing holds: the intercept, and features without penalty."""
        held = self._positive & ~(self._b > 0).any(axis=0)
        return np.flatnonzero((self._l1 == 0) & (self._l2 == 0) & ~held)

    def _settle(self, most=_PROJECT):
        """Make the dual point, after Newton steps on the free columns until one of them is at most `most`."""
        if self._settled:
            return
        self._settled, self._slopes, self._free = True, None, self._free_columns()
        self._move = np.zeros((self.loss.n_outputs, len(self._free)))
        residual = self.loss.residual(self._shares)
        self._dual_shares, self._dual_vectors, self._dual_most = self._shares, residual, 1.0
        if not len(self._free):
            return
        Z = self._free_matrix()
        for _ in range(_FREE_STEPS):
            move = self._free_step(Z, residual)
            delta = np.ascontiguousarray((Z @ move.T).T)
            if np.abs(delta).max() <= most or not self._take(move, delta, residual):
                break
            residual = self.loss.residual(self._shares)
        tilted = self.loss.tilt(self._shares, delta)
        shares = np.clip(tilted, 0.0, 1.0)
        if np.abs(shares - tilted).sum() <= _ROUNDING * self.n_rows:
            self._move, self._dual_shares = move, shares
            self._dual_vectors = self.loss.residual(shares)
        else:  # not yet near a minimum along these columns: only zero is a dual point
            self._dual_vectors, self._dual_most = residual, 0.0

    def _free_matrix(self):
        """The free columns: dense (n, k), or CSC."""
        key = tuple(self._free.tolist())
        if self._free_block is None or self._free_block[0] != key:
            self._free_block = (key, self._copies_or_ones())
        return self._free_block[1]

    def _copies_or_ones(self):
        if self._copies is None or (len(self._free) == 1 and self._free[0] < self._first):
            return np.full((self.n_rows, 1), _CONSTANT)
        if self._copies.is_sparse:
            A = sparse.csc_array(
                (self._copies.data, self._copies.indices, self._copies.indptr),
                shape=(self.n_rows, len(self._copies)),
            )
            return A[:, self._free]
        Z = np.zeros((self.n_rows, len(self._free)), order="F")
        for i, j in enumerate(self._free):
            self._copies.add(np.array([j]), np.ones(1), Z[:, i])
        return Z

    def _free_step(self, Z, residual):
        """Newton step along the free columns, of least norm where it is not unique: (n_outputs, k)."""
        n_outputs, k = len(residual), Z.shape[1]
        H = np.empty((n_outputs, k, n_outputs, k))
        for output in range(n_outputs):
            for i in range(k):
                V = np.zeros_like(residual)
                V[output] = Z[:, [i]].toarray()[:, 0] if sparse.issparse(Z) else Z[:, i]
                for row in range(n_outputs):
                    H[row, :, output, i] = Z.T @ self.loss.hessian(self._shares, V, row)
        slopes = (Z.T @ residual.T).T.ravel()
        H = H.reshape(n_outputs * k, n_outputs * k)
        roots = np.sqrt(np.maximum(H.diagonal(), np.finfo(float).tiny))
        values, vectors = eigh(H / np.outer(roots, roots))
        kept = values > _SINGULAR * len(values) * max(values[-1], 0.0)
        half = vectors[:, kept] / np.sqrt(values[kept])
        return (half @ (half.T @ (slopes / roots)) / roots).reshape(n_outputs, k)

    def _take(self, move, delta, residual):
        """Take a Newton step on the free columns, shortened until the loss falls; False if it does not."""
        slope, before, t = float((residual * delta).sum()), self._value, 1.0
        for _ in range(_HALVINGS if slope > _EPSILON * before else 0):
            F = self._F + t * delta
            value, shares = self.loss.shares(F)
            if value < before - _ARMIJO * t * slope:
                self._b[:, self._free] += t * move
                self._F, self._value, self._shares = F, value, shares
                return True
            t *= 0.5
        return False

    # Directions -----------------------------------------------------------------------------------------

    def _step(self):
        """Make a direction and go along it until the objective falls."""
        model = QuadraticModel(self)
        model.minimise()
        self.updates += model.visits
        change = model.b - self._b
        move = np.zeros_like(self._F)
        self._add(change, move)
        residual = self.loss.residual(self._shares)
        charge = self._charge(self._b)
        slope = self._charge(model.b) - charge - float((residual * move).sum())
        before, t = self._value + charge, 1.0
        for _ in range(_HALVINGS):
            b, F = self._b + t * change, self._F + t * move
            value, shares = self.loss.shares(F)
            if value + self._charge(b) <= before + _ARMIJO * t * slope + _ROUNDING * abs(before):
                self._b, self._F, self._value, self._shares = b, F, value, shares
                self._settled = False
                return
            t *= 0.5


class QuadraticModel:
    """The loss near the present coefficients, to second order, and the penalty.

    Parameters
    ----------
    problem : ProximalNewton
        With a settled dual point: the model begins after the step on the free columns, where its slopes are
        those of the dual point.

    Attributes
    ----------
    b : float64 ndarray of shape (n_outputs, m)
    visits : int
    """

    def __init__(self, problem):
        self.loss, self.copies = problem.loss, problem._copies
        self.l1, self.l2, self.positive = problem._l1, problem._l2, problem._positive
        self.slopes = problem._slopes
        self.b = problem._b.copy()
        self.b[:, problem._free] += problem._move
        self.visits = 0
        dtype = np.float64 if self.copies.is_sparse else np.float32
        self.shares = problem._shares.astype(dtype)
        self.V = np.zeros(self.shares.shape, dtype)  # A (b - b0)
        self.h = np.full(self.b.shape, -1.0)
        sizes = np.where(self.positive, self.slopes, np.abs(self.slopes))
        self.near = [np.flatnonzero(near) for near in (self.b != 0) | (sizes >= _NEAR * self.l1)]

    def minimise(self):
        """Descend until changes are small beside the first ones."""
        bar = 0.0
        for _ in range(_DESCENTS):
            changes = np.array([self._descend(k, bar) for k in range(len(self.b))])
            bar = bar or _DIRECTION * changes.max()
            if (changes[:, 0 if len(self.b) > 1 else 1] <= bar).all():
                break
            self._conjugate()

    def _descend(self, k, bar):
        """Sweep over the coefficients of an output; return the first and last sweep's largest changes."""
        D = self.loss.curvature(self.shares, k).astype(self.V.dtype, copy=False)
        q = self.loss.hessian(self.shares, self.V, k).astype(self.V.dtype, copy=False)
        before = self.b[k].copy()
        vectors = (self.near[k], self.slopes[k], self.h[k], self.b[k], q, D, self.l1, self.l2, self.positive)
        limits = (_SWEEPS, _SUPPORT_SWEEPS, _DIRECTION, bar)
        if self.copies.is_sparse:
            A = (self.copies.data, self.copies.indices, self.copies.indptr)
            first, last, visits = csc_descent(*A, *vectors, *limits)
        else:
            first, last, visits = dense_descent(self.copies.single, *vectors, *limits)
        self.visits += visits
        changed = np.flatnonzero(self.b[k] != before)
        self._forward(changed, self.b[k, changed] - before[changed], self.V[k])
        return first, last

    def _conjugate(self):
        """Minimise over the coefficients that are not zero, signs held, by conjugate gradients."""
        supports = [np.flatnonzero(b) for b in self.b]
        ends = np.cumsum([len(support) for support in supports])
        rows = np.repeat(np.arange(len(supports)), [len(support) for support in supports])
        columns = np.concatenate(supports)
        b, l2 = self.b[rows, columns], self.l2[columns]
        diagonal = np.maximum(self.h[rows, columns], 0.0) + l2
        diagonal[diagonal == 0] = 1.0

        def forward(z):
            out = np.zeros_like(self.V)
            for k, part in enumerate(np.split(z, ends[:-1])):
                self._forward(supports[k], part, out[k])
            return out

        def backward(V):
            parts = [
                self._backward(support, self.loss.hessian(self.shares, V, k))
                for k, support in enumerate(supports)
            ]
            return np.concatenate(parts)

        rest = self.slopes[rows, columns] - backward(self.V) - self.l1[columns] * np.sign(b) - l2 * b
        right = rest.copy()
        change, moved = np.zeros_like(b), np.zeros_like(self.V)
        step = rest / diagonal
        size = first = rest @ step
        for _ in range(_CONJUGATE_STEPS):
            if size <= _CONJUGATE_TOL**2 * first:
                break
            ahead = forward(step)
            product = backward(ahead) + l2 * step
            curvature = step @ product
            if curvature <= 0:
                break
            length = size / curvature
            change += length * step
            moved += moved.dtype.type(length) * ahead
            rest -= length * product
            scaled = rest / diagonal
            size, old = rest @ scaled, size
            step = scaled + (size / old) * step
            self.visits += len(b)
        held = (self.l1[columns] > 0) | self.positive[columns]
        flips = held & ((b + change) * b < 0)
        if flips.any():
            change[flips] = -b[flips]
            moved = forward(change)
            curvature = change @ (backward(moved) + l2 * change)
            length = min(1.0, (right @ change) / curvature) if curvature > 0 else 0.0
            if length <= 0:
                return
            change *= length
            moved *= moved.dtype.type(length)
        self.b[rows, columns] = b + change
        self.V += moved

    def _forward(self, chosen, coef, out):
        """Add ``A[:, chosen] @ coef`` to a vector of the model."""
        if self.copies.is_sparse:
            csc_add(self.copies.data, self.copies.indices, self.copies.indptr, chosen, coef, out)
        else:
            dense_add(self.copies.single, chosen, coef.astype(np.float32), out)

    def _backward(self, chosen, v):
        """Products of the columns `chosen` with a vector of the model."""
        out = np.empty((1, len(chosen)))
        if self.copies.is_sparse:
            csc_dot(self.copies.data, self.copies.indices, self.copies.indptr, chosen, v[None], out)
        else:
            dense_dot(self.copies.single, chosen, v.astype(np.float32, copy=False)[None], out)
        return out[0]
