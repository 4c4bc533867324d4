"""A smooth loss on a working set: the subproblem of logistic and multinomial regression.

With F = O + A b + c (O an offset, c the intercept, A the columns of W) the problem is::

    min_{b, c}  loss(F) + sum_j l1_j |b_j| + l2_j b_j^2 / 2

and each output has its own coefficients. It is solved by a proximal Newton method. A direction minimises the
quadratic model of the loss, with the exact Hessian, plus the penalty: coordinate descent finds the signs, and
where that takes more than a few sweeps, conjugate gradients on the support do the rest. Columns that are far
from their threshold are left out of the model until their slope calls for them.

**Dual point and gap.** ``V = -loss'(F)``, scaled by some s in [0, 1], is a dual point if it is orthogonal to
the *free* columns (the intercept, and features without any penalty). One Newton step ``d = Z a`` along these
columns Z has ``Z^T (V - H d) = 0``, with H the Hessian; and ``V - H d`` has the form of V with other
probabilities: for small d (``|d| <= 1/2`` always) a dual point, to rounding, though the intercept is not yet
at its best value. Larger steps are taken, not projected. The gap is that of `duality.smooth_gap`.

Memory: 24 bytes a row and output, besides the working copies (`copies`).

References
----------
Lee, Sun, Saunders, "Proximal Newton-type methods for minimizing composite functions", SIAM Journal on
Optimization 24(3), 2014.
Yuan, Ho, Lin, "An improved GLMNET for L1-regularized logistic regression", JMLR 13, 2012.
"""

from typing import Any, Protocol

import numpy as np
from scipy import sparse

from ....errors import DataError
from ..subproblems.copies import copies_of
from ..subproblems.free_columns import newton_step
from ..subproblems.quadratic_model import QuadraticModel
from .columns import columns_of
from .duality import smooth_gap
from .penalties import L1L2

_EASY = 1  # directions in one `solve` that count as next to no work
_DIRECTIONS = 100  # for one call of `solve`
_ARMIJO = 1e-3  # share of the promised decrease that a step must bring
_HALVINGS = 40  # 2^-40 of a step is rounding
_ROUNDING = 1e-13  # of an objective, or of a sum of probabilities a row
_EPSILON = 1e-16  # relative: below it a value is rounding
_ORTHOGONAL = 1e-12  # products of the dual point with free columns, a row, that count as rounding
_FARTHEST = 50.0  # largest change of a predictor in a step
_STUCK = 3  # directions without effect that end a `solve`
_PROJECT = 0.5  # largest Newton step on the free columns that is projected away rather than taken
_EXACT = 1e-9  # the same for the model without columns
_FREE_STEPS = 60  # of Newton on the columns that are not zero
_CONSTANT = 0.5  # value of the column of the intercept: copies have their largest value in [1/2, 1)
_LARGEST = 1e300  # for thresholds of columns of extreme scale


class SmoothLoss(Protocol):
    """The loss that `ProximalNewton` needs. F, V and shares have the shape (n_outputs, n_rows).

    The *shares* are what value, derivatives and dual objective are made of: probabilities, for the logistic
    losses. Weights of rows are expected to be about 1.
    """

    n_outputs: int
    n_rows: int

    def shares(self, F) -> tuple[float, np.ndarray]:
        """Return the loss and the shares of F."""

    def residual(self, shares) -> np.ndarray:
        """Return minus the gradient of the loss."""

    def curvature(self, shares, k) -> np.ndarray:
        """Return the diagonal of the Hessian for output k: array of shape (n_rows,)."""

    def hessian(self, shares, V, k) -> np.ndarray:
        """Return output k of the Hessian's product with V: array of shape (n_rows,)."""

    def tilt(self, shares, V) -> np.ndarray:
        """Return the shares whose residual is ``residual(shares) - hessian(V)``, for ``|V| <= 1/2``."""

    def dual(self, shares, s) -> float:
        """Return ``min_F loss(F) + s residual(shares) . F``."""

    def centred(self, coef) -> np.ndarray:
        """Choose among coefficients, of shape (n_outputs, ...), that give the same loss."""


class ProximalNewton:
    """A `Subproblem` of `WorkingSet` for a smooth loss.

    `offset`: float64 (n_outputs, n_rows); O, which no coefficient changes. Attributes: `n_rows`, `scale`,
    `features`, `coef`, `intercept`, `updates`, `easy`, `strides`: see `Subproblem`.
    """

    scale = 1.0
    strides = (0.1, 0.4)  # work on W is cheap compared with a pass over X

    def __init__(self, loss, *, offset=None, fit_intercept=True):
        self.loss, self.offset = loss, offset
        self.n_rows = loss.n_rows
        self.features = np.empty(0, np.int64)
        self.updates, self.easy = 0, True
        self._first = int(fit_intercept)  # a first column is constant: its coefficient is the intercept
        self._copies: Any = None
        self._b = np.zeros((loss.n_outputs, self._first))
        self._l1 = self._l2 = np.zeros(self._first)
        self._positive = np.zeros(self._first, bool)
        self._penalty = None
        self._free, self._free_block = self._free_mask(), None
        F = self._offset_or_zero()
        if fit_intercept and offset is not None:  # from where probabilities are not all 0 and 1
            middle = np.median(offset, axis=1, keepdims=True)
            self._b -= middle / _CONSTANT
            F -= middle
        self._set_predictor(F)
        self._settle(_EXACT)
        self._null = self._value

    # What `WorkingSet` asks ---------------------------------------------------------------------------

    @property
    def coef(self):
        """See `Subproblem`."""
        if self._copies is None:
            coef = np.zeros((self.loss.n_outputs, 0))
        else:
            coef = self._b * self._copies.scales
            free = (self._l1 == 0) & (self._l2 == 0) & ~self._positive
            coef[:, free] = self.loss.centred(coef[:, free])
            coef = coef[:, self._first :]
        return coef[0] if self.loss.n_outputs == 1 else coef.T

    @property
    def intercept(self):
        """See `Subproblem`; of several outputs, those that sum to zero."""
        intercept = _CONSTANT * self._b[:, 0] if self._first else np.zeros(self.loss.n_outputs)
        if self._copies is not None:
            intercept = intercept - self._b @ self._copies.means
        return float(intercept[0]) if self.loss.n_outputs == 1 else self.loss.centred(intercept)

    def grow(self, ids, columns, positions, penalty):
        """See `Subproblem`."""
        if self._copies is None:
            self._copies = copies_of(
                columns.is_sparse, self.n_rows, np.empty(0), centre=False, corrected=False
            )
            if self._first:
                constant = np.full((self.n_rows, 1), _CONSTANT, order="F")
                constant = columns_of(sparse.csc_array(constant) if columns.is_sparse else constant)
                self._copies.admit(constant, np.zeros(1, np.int64))
                self._copies.centre = True  # far from zero, columns hardly differ from the intercept's
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
        self._settle(_EXACT)  # the intercept was that of no columns, from where the dual point is a poor one

    def intercept_of(self, coef, intercept, dtype):
        """See `Subproblem.intercept_of`: that of the fit, rounded."""
        rounded = np.asarray(intercept).astype(dtype).astype(np.float64)
        return rounded if rounded.ndim else float(rounded)

    def excess(self, coef, intercept):
        """See `Subproblem.excess`."""
        F = self._offset_or_zero()
        b = np.zeros_like(self._b)
        shift = np.reshape(np.asarray(intercept, np.float64), (-1, 1))
        if self._copies is not None:
            b[:, self._first :] = np.reshape(coef, (len(self.features), -1)).T
            b /= self._copies.scales
            shift = shift + (b @ self._copies.means)[:, None]  # copies may be centred
            self._add(b, F)
        before = self._value + self._charge(self._b)
        return self.loss.shares(F + shift)[0] + self._charge(b) - before

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
            self.easy = step < _EASY
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
        slopes = np.where(self._positive, np.maximum(self._slopes, 0.0), self._slopes)
        slopes[(self._l1 == 0) & (np.abs(slopes) <= _ROUNDING * self.n_rows)] = 0.0
        slopes[:, : self._free.shape[1]][self._free] = 0.0  # to rounding they are
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
        if not isinstance(penalty, L1L2):
            raise DataError(
                f"the logistic losses take the penalty L1L2, got {type(penalty).__name__}: use it with "
                "the squared loss"
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
        if not np.array_equal(
            np.flatnonzero(self._free_mask().any(axis=0)), np.flatnonzero(self._free.any(axis=0))
        ):
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

    def _free_mask(self):
        """Unpenalised coefficients: intercepts, and those of features without penalty."""
        return (self._l1 == 0) & (self._l2 == 0) & (~self._positive | (self._b > 0))

    def _settle(self, most=_PROJECT):
        """Make the dual point, after Newton steps on the free columns until one of them is at most `most`."""
        if self._settled:
            return
        self._settled, self._slopes = True, None
        self._move = delta = None
        for _ in range(_FREE_STEPS):
            self._free = self._free_mask()
            columns = np.flatnonzero(self._free.any(axis=0))
            if not len(columns):
                self._move = delta = None
                break
            Z = self._free_matrix(columns)
            self._move = np.zeros_like(self._b)
            self._move[:, columns] = newton_step(self.loss, self._shares, Z, self._free[:, columns])
            delta = np.ascontiguousarray((Z @ self._move[:, columns].T).T)
            small = np.abs(delta).max() <= most and self._longest_step(self._move) == 1.0
            if small or not self._take(self._move, delta):
                break
        self._project(delta)

    def _project(self, delta):
        """Make the dual point by the step `delta` of the predictor, or by none."""
        self._dual_shares, self._dual_most = self._shares, 1.0
        if delta is not None:
            tilted = self.loss.tilt(self._shares, delta)
            self._dual_shares = np.clip(tilted, 0.0, 1.0)
            lost = np.abs(self._dual_shares - tilted).sum()
        self._dual_vectors = self.loss.residual(self._dual_shares)
        if delta is not None:
            lost += np.abs(self._free_slopes()).max()
            if (
                lost > _ORTHOGONAL * self.n_rows
            ):  # far from a minimum along the free columns: zero is a dual point
                self._move, self._dual_most = None, 0.0
                self._dual_shares, self._dual_vectors = self._shares, self.loss.residual(self._shares)

    def _free_slopes(self):
        """Products of the free columns with the dual point: 0 but for rounding."""
        columns = np.flatnonzero(self._free.any(axis=0))
        return (self._free_matrix(columns).T @ self._dual_vectors.T).T[self._free[:, columns]]

    def _free_matrix(self, columns):
        """The free columns: dense (n_rows, k), or CSC."""
        if self._free_block is None or not np.array_equal(self._free_block[0], columns):
            self._free_block = (columns, self._laid_out(columns))
        return self._free_block[1]

    def _laid_out(self, columns):
        if self._copies is None or (len(columns) == 1 and columns[0] < self._first):
            return np.full((self.n_rows, 1), _CONSTANT)
        if self._copies.is_sparse:
            arrays = (self._copies.data, self._copies.indices, self._copies.indptr)
            return sparse.csc_array(arrays, shape=(self.n_rows, len(self._copies)))[:, columns]
        Z = np.zeros((self.n_rows, len(columns)), order="F")
        for i, j in enumerate(columns):
            self._copies.add(np.array([j]), np.ones(1), Z[:, i])
        return Z

    def _longest_step(self, move):
        """Largest part, up to 1, of a move that leaves positive coefficients at or above zero."""
        limited = self._positive & (self._b + move < 0)
        return float((self._b[limited] / -move[limited]).min(initial=1.0))

    def _take(self, move, delta):
        """Take a Newton step on the free columns, shortened until the loss falls; False if it does not."""
        slope = float((self.loss.residual(self._shares) * delta).sum())
        before, longest = self._value, self._longest_step(move)
        t = min(longest, _FARTHEST / max(np.abs(delta).max(), 1.0))
        for _ in range(_HALVINGS if slope > _EPSILON * before else 0):
            F = self._F + t * delta
            value, shares = self.loss.shares(F)
            if value < before - _ARMIJO * t * slope:
                b = self._b + t * move
                if t == longest < 1:
                    b[self._positive & (b < _EPSILON * self._b)] = 0.0
                self._b, self._F, self._value, self._shares = b, F, value, shares
                return True
            t *= 0.5
        return False

    # Directions -----------------------------------------------------------------------------------------

    def _step(self):
        """Make a direction and go along it until the objective falls."""
        start = self._b.copy()
        if self._move is not None:
            start[:, : self._move.shape[1]] += self._move
            start[:, self._positive] = np.maximum(start[:, self._positive], 0.0)
        penalty = (self._l1, self._l2, self._positive)
        model = QuadraticModel(self.loss, self._shares, self._copies, self._slopes, start, *penalty)
        model.minimise()
        self.updates += model.visits
        change = model.b - self._b
        move = np.zeros_like(self._F)
        self._add(change, move)
        residual = self.loss.residual(self._shares)
        charge = self._charge(self._b)
        slope = self._charge(model.b) - charge - float((residual * move).sum())
        before, t = self._value + charge, min(1.0, _FARTHEST / max(np.abs(move).max(), 1.0))
        for _ in range(_HALVINGS):
            b, F = self._b + t * change, self._F + t * move
            value, shares = self.loss.shares(F)
            if value + self._charge(b) <= before + _ARMIJO * t * slope + _ROUNDING * abs(before):
                self._b, self._F, self._value, self._shares = b, F, value, shares
                self._settled = False
                return
            t *= 0.5
