"""The solver of blocks and a squared loss through second moments of X and y: after one pass no row is read.

Slopes, objective and gap come from products of centred columns and targets, which are less exact than
columns. They are held against a bound of their rounding errors: where that is not far below what was asked
for, the fit is "stalled", and another solver goes on.
"""

from typing import Any

import numpy as np

from ... import rules
from ...sparse.moments import moments_of, shift_of
from ..losses import Squared
from ..mean_loss import MeanLoss
from .block_descent import MOST_BASIS, MatrixProducts, rows_are_cheaper
from .columns import Columns
from .small import _FEW, SmallSolver

_FEW_PRODUCTS = 3.5e7  # that are made of all columns at once
# Rows for each column, with which they are, too, where such a part of the blocks is expected to have
# coefficients: at the model without columns, and after it.
_TALL, _MANY = 5, (0.6, 0.25)
_JOINING, _ROUND = 100, 1e7  # coefficients that join at once; multiplications in products of a round
_MOST_WIDE, _MOST_ENTRIES = 2000, 3e5  # columns and entries of wide X, over which some passes cost little
_MOST_SWEEPS = 20_000  # a cap; the tolerance ends them
_DOUBTFUL = 1e-7  # of a column's square that is left by centring: is it constant?
_RANGE = (1e-200, 1e200)  # of squares
_ROUNDING = 32 * np.finfo(np.float64).eps  # bound of relative errors of sums
_SHARE = 0.1  # of what is asked for, that rounding errors may be


def moment_solver(problem, penalty, fit_intercept, **options):
    """`MomentSolver` of a problem; None where it is not for it, or moments would not be exact enough."""
    columns, loss, blocks = problem.columns, problem.loss, problem.blocks
    is_squared = type(loss) is MeanLoss and type(loss.loss) is Squared
    if not (is_squared and type(columns) is Columns and blocks.plain and penalty.kind == 0):
        return None
    sizes, stored = rules.MOMENTS_OF_BLOCKS, None
    if columns.is_sparse:
        sizes, stored = rules.SPARSE_MOMENTS, columns.size
    n, p = columns.X.shape
    if not (sizes.hold(n, p, stored) or (stored is None and p <= _MOST_WIDE and n * p <= _MOST_ENTRIES)):
        return None
    if p > n and loss.n_outputs == 1:  # groups with many coefficients would go on by rows in the end
        return None
    if penalty.free.any() or not (penalty.has_dual and blocks.sizes.max() <= MOST_BASIS):
        return None
    if not (fit_intercept or loss.offset is None):  # the unit at an offset is another
        return None
    solver = MomentSolver(columns, loss, blocks, fit_intercept=fit_intercept, **options)
    return solver if solver.is_sound else None


class MomentSolver(SmallSolver):
    """Solves for one penalty after the other, each from the solution before; see `Solver`."""

    f: Any = None  # predictors and intercepts come from the coefficients
    c: Any = None

    def __init__(self, columns, loss, blocks, *, fit_intercept, is_watched=False):
        self.columns, self.loss, self.blocks, self.fit_intercept = columns, loss, blocks, fit_intercept
        self.is_watched, self.K = is_watched, loss.n_outputs
        n, p = columns.n_samples, columns.n_features
        self._Y = loss.y if loss.offset is None else loss.y - loss.offset
        self._is_whole = (
            columns.is_sparse or float(n) * p * p <= _FEW_PRODUCTS or (p <= _JOINING and n >= _TALL * p)
        )
        squares, raw = self._moments(self._Y) if self._is_whole else self._slopes(self._Y)
        far = np.maximum(raw, self._means**2)
        clear = (squares > _DOUBTFUL * far) & (squares > _RANGE[0]) & (squares < _RANGE[1])
        self.is_sound = bool((clear[:p] | (far[:p] == 0)).all() and clear[p:].all())
        self._y_y, self._lengths, self._y_size = squares[p:].sum(), np.sqrt(raw[:p]), raw[p:].sum()
        largest = int(blocks.sizes.max())
        least = _JOINING if self._is_whole else max(_FEW, int(_ROUND / (n * p)))
        self._least = max(least // largest, 1)
        self.begin(np.zeros((p, self.K)), None)

    def _moments(self, Y):
        """Compute all moments at once; return squares of columns and targets, centred and about a shift."""
        X, weights, p = self.columns.X, self.loss.weights, self.columns.n_features
        shift = shift_of(X, Y, self.fit_intercept)
        total = moments_of(X, Y, None if (weights == weights[0]).all() else weights, shift)
        total /= total[-1, -1]
        H, means, raw = total[:-1, :-1], total[-1, :-1] * self.fit_intercept, np.diagonal(total)[:-1].copy()
        self._means = np.concatenate([shift.columns, shift.targets]) + means
        H -= np.outer(means, means)
        self._H, self._Q = np.ascontiguousarray(H[:p, :p]), np.ascontiguousarray(H[:p, p:])
        return np.diagonal(H), raw

    def _slopes(self, Y):
        """Compute moments of columns with targets, and squares; products are made of columns that join."""
        columns, w, p = self.columns, self.loss.weights[:, None], self.columns.n_features
        raw = np.concatenate([columns.squares(self.loss.weights), np.sum(w * Y**2, axis=0)])
        means = np.sum(w * Y, axis=0) * self.fit_intercept
        Y = Y - means
        slopes = columns.all_slopes(np.hstack([w * self.fit_intercept, w * Y]))
        self._means = np.concatenate([slopes[:, 0], means])
        self._H, self._Q = np.empty((p, p)), np.ascontiguousarray(slopes[:, 1:])
        return np.concatenate([raw[:p] - self._means[:p] ** 2, np.sum(w * Y**2, axis=0)]), raw

    def begin(self, B, intercept):
        """Start from coefficients."""
        self.B, n_blocks = np.array(B, np.float64, order="C"), len(self.blocks.sizes)
        self.B[self._lengths == 0] = 0.0  # which no slope brings back to zero
        self.places = np.arange(n_blocks if self._is_whole and len(B) <= _JOINING else 0)
        if not len(self.places):
            self._join(np.flatnonzero(np.logical_or.reduceat(B.any(axis=1), self.blocks.starts[:-1])))

    def intercept(self):
        """Intercepts of X as it is."""
        p = len(self.B)
        return self._means[p:] - self._means[:p] @ self.B

    def null(self, penalty):
        """See `SmallSolver`: the units of gaps and of violations."""
        return max(0.5 * self._y_y, 1e-300), float(np.abs(self._Q).max()) or 1.0

    def _join_free(self, penalty):
        pass

    def _join(self, new):
        if not self._is_whole and len(new):
            places, _ = self.blocks.places(new)
            part = self.columns.take(places)[0] * self.loss.weights[:, None]
            self._H[places] = self.columns.all_slopes(part).T
        self.places = np.sort(np.concatenate([self.places, new]))

    def _measured(self):
        """Loss, slope of the intercept, minus the slopes of all columns; squares of targets and residuals."""
        on = np.flatnonzero(self.B.any(axis=1))
        V = self._V = self._Q - self._H[on].T @ self.B[on]
        y_r = self._y_y - float(np.vdot(self._Q, self.B))
        r_r = max(y_r - float(np.vdot(V, self.B)), 0.0)
        return 0.5 * r_r, 0.0, V, (y_r, r_r)

    def _conjugate(self, products, scale):
        y_r, r_r = products
        return scale * (0.5 * scale * r_r - y_r)

    def _is_large(self, n_there, m, expected):
        n_blocks = len(self.blocks.sizes)
        is_tall = self.columns.n_samples >= _TALL * len(self.B)
        if is_tall and expected > _MANY[n_there > 0] * n_blocks:
            if not self._is_whole:
                self._moments(self._Y)
            self._is_whole, self._least = True, max(self._least, _JOINING // int(self.blocks.sizes.max()))
        n_columns = expected * len(self.B) // n_blocks
        wide = not self.columns.is_sparse and (self.K == 1 or not self._is_whole)
        return wide and rows_are_cheaper(self.columns.n_samples, n_columns, self.K)

    def descend(self, penalty, tol, *, few=False):
        """Minimise on the working set."""
        H, B, blocks, ridge = self._H, self.B, self.places, penalty.ridge
        G, starts, places = -self._V, self.blocks.starts, None
        if ridge is not None:
            G += ridge[:, None] * B
        if len(blocks) < len(starts) - 1:
            places, starts = self.blocks.places(blocks)
            H, G, B = H[np.ix_(places, places)], G[places], B[places]
        if ridge is not None:
            H = H + np.diag(ridge if places is None else ridge[places])
        penalty.descend(MatrixProducts(H, starts), G, B, blocks, starts, tol, _MOST_SWEEPS)
        if places is not None:
            self.B[places] = B

    def _is_exact(self, penalty, tol):
        """Whether rounding errors of moments are far below the gap, and such slopes."""
        reach = float((np.abs(self.B).sum(axis=1) * self._lengths).sum()) + np.sqrt(self._y_size)
        lengths = np.sqrt(np.add.reduceat(self._lengths**2, self.blocks.starts[:-1]))
        slopes = _ROUNDING * reach * lengths <= _SHARE * tol * (penalty.lam + penalty.l1)
        return bool(slopes.all()) and _ROUNDING * reach**2 <= _SHARE * tol * 0.5 * self._y_y
