"""Least squares on rows of workers: the products of the working set's columns come here, and no column.

The design for many more rows than columns, where an n-vector is the large thing. A pass over the rows is one
of two:

- *slopes*: every block computes its residual from the coefficients, and its part of the slopes X^T W r of all
  columns; their sum names the columns that violate optimality most.
- *sums*: every block multiplies those columns with the working set and with themselves. The problem on the
  working set is then solved here without data.

With an intercept, dense columns are taken from their means in both, which one more pass finds: of columns far
from zero, products keep no digit of what the means leave. Sparse columns stay as they are.

Bytes of a pass and block: slopes 24 for each coefficient down and ``8 p`` up; sums 16 for each column named
and each of the working set down, and for m new columns and w of the working set ``8 m (w + m + 2)`` up. No
n-vector travels but y and the weights, once.
"""

import functools
from typing import Any

import numpy as np
from scipy import linalg

from ..structured.solving.block_descent import MatrixProducts
from ..structured.solving.small import SmallSolver, largest
from .columns import CONSTANT
from .cut_columns import columns_of_cut
from .least_squares import LeastSquares

_LEAST_GROWTH = 100  # columns that join the working set in a pass, if so many violate
_NEAR, _FEW = 0.5, 10  # others join whose slope is this part of its threshold, so many at least
_MOST_SWEEPS, _MOST_ATTEMPTS = 20_000, 20  # caps; tolerances end them
_INNER, _LEAST_INNER = 0.02, 0.3  # parts of the gap to which a working set is solved that grew, and of `tol`


class RowSquares(SmallSolver):
    """Solves for one penalty after the other, each from the solution before; see `Solver`.

    `columns`: `RowsOnWorkers` whose blocks have y and the weights. `loss`: the squared one; with an intercept
    its y has the mean zero. `centres`: None, or the means of the columns, near enough, to take them from.
    """

    f: Any = None  # predictors stay with the rows
    c: Any = None
    _gap, _bar = 0.0, 0.0  # of the whole problem, and what is asked of it

    def __init__(self, columns, loss, blocks, *, fit_intercept, centres):
        self.columns, self.loss, self.blocks, self.fit_intercept = columns, loss, blocks, fit_intercept
        self._centres = centres
        self._far = np.zeros(columns.n_features) if centres is None else centres
        self._total, self._y_y = float(loss.weights.sum()), float(loss.weights @ loss.y[:, 0] ** 2)
        self.loss_of_zero = 0.5 * self._y_y or 1.0
        self._least = _LEAST_GROWTH
        self.begin(np.zeros((columns.n_features, 1)), None)

    def begin(self, B, intercept):
        """Start from coefficients."""
        self.B, self.places = np.array(B, np.float64, order="C"), np.empty(0, np.int64)
        self._H, self._Q, self._means, self._known = np.empty((0, 0)), np.empty(0), np.empty(0), None
        self._add(np.flatnonzero(B[:, 0]))
        self.B[self.places[np.diagonal(self._H) == 0]] = 0.0  # which no slope brings back to zero

    def intercept(self):
        """Intercept of X as it is."""
        return -(self._means + self._far[self.places]) @ self.B[self.places]

    def null(self, penalty):
        """Fit the free columns alone; return the loss, and the slopes."""
        self.settle_free(penalty.free)
        return self._squares()[1] / 2, self.slopes()[0]

    def settle_free(self, free):
        """Bring columns without penalty to their best, so that the slopes make a dual point."""
        self._add(np.setdiff1d(np.flatnonzero(free), self.places))
        on = np.flatnonzero(free[self.places])
        if len(on):
            change = linalg.lstsq(self._H[np.ix_(on, on)], self._squares()[2][on])[0]
            self.B[self.places[on], 0] += change
            self._known = None

    def objective(self, penalty):
        """Loss plus penalty, without a pass."""
        return self._squares()[1] / 2 + penalty.value(self.B)

    def slopes(self):
        """Minus the slopes of all columns, by a pass; those of the predictors stay with the rows."""
        return self._measured()[2], None

    def dual_squares(self):
        """Products of the residual with y and with itself, which make a dual point."""
        return self._squares()[:2]

    def _join(self, new):
        """Let columns join, and with them some that nearly break the conditions."""
        if len(new) and self._known is not None:
            V, penalty = self._known[2][:, 0], self._penalty
            bars = penalty.lam + penalty.l1
            near = np.where(penalty.low == 0, V, np.abs(V)) / np.where(bars > 0, bars, np.inf)
            near[near < _NEAR] = near[self.places] = near[new] = 0.0
            new = np.union1d(new, largest(near, max(_FEW, len(self.places) // 4)))
        self._add(new)

    def _add(self, new):
        """Sum the products of columns that join the working set; those of constant ones are zero."""
        self._has_grown = len(new) > 0
        if not self._has_grown:
            return
        every, m = np.append(self.places, new), len(self.places)
        sums = self.columns.sums(new, self.places, self._centres_of(every))
        products, means = sums[:, :-2], sums[:, -1] / self._total
        squares = products[np.arange(len(new)), m + np.arange(len(new))].copy()
        self._means = np.append(self._means, means if self.fit_intercept else np.zeros(len(new)))
        products -= self._total * np.outer(self._means[m:], self._means)
        norms = products[np.arange(len(new)), m + np.arange(len(new))]
        squares = np.maximum(squares, CONSTANT * self._total * self._far[new] ** 2)
        constant = np.flatnonzero(~(norms > CONSTANT * np.maximum(squares, norms)))
        products[constant] = products[:, m + constant] = 0.0
        cross, own = products[:, :m], products[:, m:]
        self._H = np.ascontiguousarray(np.block([[self._H, cross.T], [cross, own]]))
        self._Q = np.append(self._Q, np.where(np.isin(np.arange(len(new)), constant), 0.0, sums[:, -2]))
        self.places = every

    def _centres_of(self, features):
        return None if self._centres is None else self._centres[features]

    def _squares(self):
        """Products of the residual with y, with itself, and with the columns of the working set."""
        b = self.B[self.places, 0]
        slopes = self._Q - self._H @ b
        y_r = self._y_y - float(self._Q @ b)
        return y_r, max(y_r - float(slopes @ b), 0.0), slopes

    def _measured(self):
        """Loss, slope of the intercept, minus the slopes of all columns; squares of y and of residuals."""
        if self._known is None:
            b = self.B[self.places, 0]
            on = np.flatnonzero(b)
            shift = -float(self._means[on] @ b[on])
            features = self.places[on]
            sums = self.columns.slopes_at(features, b[on], shift, self._centres_of(features))
            V = sums[:-1] - sums[-1] * self._far
            y_r, r_r, slopes = self._squares()
            if not (self.columns.is_sparse and self.fit_intercept):
                V[self.places] = slopes  # else products of sparse columns far from zero judged themselves
            self._known = 0.5 * r_r, 0.0, V[:, None], (y_r, r_r)
        return self._known

    def _conjugate(self, products, scale):
        y_r, r_r = products
        return scale * (0.5 * scale * r_r - y_r)

    def _is_large(self, n_there, m, expected):
        return False

    def descend(self, penalty, tol, *, few=False):
        """Minimise on the working set: a pass costs more than to go on until its gap is small enough."""
        starts, H, self._known = np.arange(len(self.places) + 1), self._H, None
        ridge = None if penalty.ridge is None else penalty.ridge[self.places]
        model = MatrixProducts(H if ridge is None else H + np.diag(ridge), starts)
        V, lowest = np.zeros_like(self.B), np.inf
        for _ in range(_MOST_ATTEMPTS):
            b, G = self.B[self.places], -self._squares()[2][:, None]
            G = G if ridge is None else G + ridge[:, None] * b
            penalty.descend(model, G, b, self.places, starts, tol, _MOST_SWEEPS)
            self.B[self.places] = b
            *products, V[self.places, 0] = self._squares()
            _, cost, scale, dual, rest = penalty.judge(self.B, V, True)
            gap = 0.5 * products[1] + cost + dual + self._conjugate(products, scale) + rest
            if gap <= self._eps or gap > 0.9 * lowest:
                break
            lowest, tol = gap, 0.1 * tol

    @property
    def _eps(self):
        """The gap that is asked of the working set: less where no column has joined."""
        return max(_LEAST_INNER * self._bar, _INNER * self._gap if self._has_grown else 0.0)

    def solve(self, penalty, unit, first, *, tol, max_rounds, report=None):
        """See `Solver.solve`."""
        self._penalty = penalty

        def reported(rounds, objective, gap):
            self._gap, self._bar = gap, tol * unit
            return report is not None and report(rounds, objective, gap)

        return self._rounds(penalty, unit, first, tol, max(max_rounds, 2), reported)


class RowLeastSquares(LeastSquares):
    """`LeastSquares` of a design that is cut by rows."""

    def set_columns(self, design, loss, n_jobs):
        """Keep the loss; leave y and the weights with the rows."""
        self.set_loss(design, loss)
        vectors = loss.y[:, 0], loss.weights
        where = design.cut, design.engine, n_jobs
        self.columns = columns_of_cut(*where, vectors=vectors, weights=None, centre=False)

    @functools.cached_property
    def _centres(self):
        """The means of dense columns, where there is an intercept; a pass, once."""
        if self.columns.is_sparse or not self.design.fit_intercept:
            return None
        return self.columns.weighted_sums() / self.loss.weights.sum()

    def general_solver(self):
        """See `ClassColumns`; the largest slope would take a pass, and nothing depends on it."""
        design = self.design
        options = {"fit_intercept": design.fit_intercept, "centres": self._centres}
        solver = RowSquares(self.columns, self.loss, self.blocks, **options)
        return solver, solver.loss_of_zero, 0.0

    def begin(self, solver, start):
        """Start from features and coefficients."""
        B = np.zeros((self.design.n_features, 1))
        B[start[0], 0] = start[1]
        solver.begin(B, None)

    def settle_free(self, solver, free):
        """See `LeastSquares`."""
        solver.settle_free(free)

    def dual_at(self, solver, free):
        """See `LeastSquares`."""
        solver.settle_free(free)
        return solver.slopes()[0], *solver.dual_squares()
