"""The squared loss on a working set: least squares with an absolute and a square penalty.

With weights w, centred y and columns (copies, see `copies`), the problem on W is::

    min_b  |rho|^2 / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2,      rho = sqrt(w) (y - ybar) - A b

Two methods solve it, the cheaper one by measured rate:

1. coordinate descent, in float32 where columns are dense, extrapolated every five sweeps;
2. a proximal-point method whose steps are found by a semismooth Newton method in the dual (`newton`).

References
----------
Bertrand, Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
Li, Sun, Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso problems",
SIAM Journal on Optimization 28(1), 2018.
"""

import numpy as np

from ...kernels import linear_columns, linear_descent
from .copies import copies_of
from .duality import limit, squared_gap
from .newton import ProximalNewton
from .unpenalised import settle

_HISTORY = 5  # iterates that an extrapolation combines
_SUPPORT_SWEEPS = (2, 8)  # least and most sweeps over the support after one over W (dense)
_SPARSE_SUPPORT_SWEEPS = 4
_MOST_SWEEPS = 4000


class Squared:
    """Squared loss; see `Subproblem`, of which it is one.

    Parameters
    ----------
    y : float64 ndarray of shape (n_rows,)
        Finite; it is not changed.
    sample_weight : float64 ndarray of shape (n_rows,), optional
        Finite, not negative, not all 0.
    fit_intercept : bool, default=False

    Attributes
    ----------
    scale : float
        Power of two by which y was divided, so that its largest value lies in [1/2, 1).
    """

    def __init__(self, y, sample_weight=None, fit_intercept=False):
        y = np.asarray(y, dtype=np.float64)
        self.n_rows = len(y)
        self.fit_intercept = fit_intercept
        self._roots = np.empty(0) if sample_weight is None else np.sqrt(sample_weight)
        self.scale = float(np.ldexp(1.0, np.clip(np.frexp(np.abs(y).max())[1], -1000, 1000)))
        y = y / self.scale
        self._mean = float(np.average(y, weights=sample_weight)) if fit_intercept else 0.0
        self.y = y - self._mean
        if len(self._roots):
            self.y *= self._roots
        self.y_y = float(self.y @ self.y)
        self.features = np.empty(0, np.int64)
        self.b, self.rho = np.empty(0), self.y.copy()
        self.updates, self.easy = 0, True
        self.copies = None
        self._slopes = None

    # What a working set asks ----------------------------------------------------------------------

    @property
    def coef(self):
        """Coefficients of W, of X and y as they were given."""
        return self.b * self.copies.scales * self.scale if self.copies else self.b.copy()

    @property
    def intercept(self):
        """``ybar - xbar . b``; 0 without an intercept."""
        shift = self.copies.means @ self.b if self.copies else 0.0
        return (self._mean - shift) * self.scale if self.fit_intercept else 0.0

    def grow(self, ids, columns, positions, penalty):
        """See `Subproblem.grow`."""
        if self.copies is None:
            self.copies = copies_of(columns.is_sparse, self.n_rows, self._roots, self.fit_intercept)
            self._newton = ProximalNewton(self.copies, self.y)
            self._use_single = not columns.is_sparse
        order = np.argsort(ids)
        self.copies.admit(columns, positions[order])
        self.features = np.concatenate([self.features, ids[order]])
        self.b = np.concatenate([self.b, np.zeros(len(ids))])
        self._slopes = None
        self._settle(*self._terms(penalty))

    def start(self, coef):
        """See `Subproblem.start`."""
        self.b = coef / (self.copies.scales * self.scale)
        self._rebuild()

    def vectors(self):
        """See `Subproblem.vectors`."""
        return (self.rho * self._roots if len(self._roots) else self.rho.copy())[None]

    def unit(self, penalty):
        """See `Subproblem.unit`."""
        return 0.5 * self.y_y

    def gap(self, penalty, bound):
        """See `Subproblem.gap`."""
        if self._slopes is None and self.copies:
            self._slopes = self.copies.dot(self.rho)
        strength = penalty.strength / self.scale
        outside = limit(np.array([strength]), np.array([bound]))
        if not len(self.b):
            return squared_gap(self.y_y, self.y_y, (0.0, 0.0, 0.0), outside)
        return self._gap(self._slopes, *self._terms(penalty), penalty.positive, outside)

    # The problem on W -------------------------------------------------------------------------------

    def _terms(self, penalty):
        """l1 and l2 of each column of W, for the scaled copies and y."""
        scales = self.copies.scales
        l1 = penalty.thresholds(self.features) * (scales / self.scale)
        return l1, penalty.ridges(self.features) * scales**2

    def _gap(self, slopes, l1, l2, positive, outside):
        b = self.b
        squares = l2 * b * b
        ridge = (l1 == 0) & (l2 > 0)
        dual_squares = np.where(ridge, slopes**2 / np.where(ridge, l2, 1.0), squares).sum()
        inside = slopes - l2 * b
        held = l1 > 0
        inside = np.maximum(inside[held], 0) if positive else inside[held]
        terms = (float(l1 @ np.abs(b)), float(squares.sum()), float(dual_squares))
        y_r, r_r = float(self.y @ self.rho), float(self.rho @ self.rho)
        return squared_gap(y_r, r_r, terms, min(outside, limit(l1[held], inside)))

    def _objective(self, b, rho, l1, l2):
        return 0.5 * (rho @ rho + l2 @ (b * b)) + l1 @ np.abs(b)

    def _residual(self, b):
        rho = self.y.copy()
        support = np.flatnonzero(b)
        self.copies.add(support, -b[support], rho)
        return rho

    def _rebuild(self):
        """Exact residual of the present coefficients."""
        self.rho, self._slopes = self._residual(self.b), None

    def _settle(self, l1, l2):
        """Bring the unpenalised columns to their exact best; nothing without any."""
        free = np.flatnonzero((l1 == 0) & (l2 == 0) & (self.copies.norms > 0))
        if len(free):
            self.b[free] += settle(self.copies, free, self.rho)
            self._slopes = None

    def solve(self, penalty, eps):
        """See `Subproblem.solve`."""
        if not len(self.b):
            self.easy = True
            return True
        l1, l2 = self._terms(penalty)
        return self._descend(l1, l2, penalty.positive, eps)

    def _descend(self, l1, l2, positive, eps):
        """Coordinate descent, until Newton steps are cheaper."""
        self.easy = True
        history, since, wait = [self.b.copy()], 0, 2
        before, lowest, tired = None, np.inf, False
        for sweep in range(_MOST_SWEEPS):
            self.easy = self.easy and sweep < 2
            self._sweep(l1, l2, positive)
            since += 1
            history.append(self.b.copy())
            if len(history) == _HISTORY + 1:
                self._extrapolate(history, l1, l2, positive)
                history = [self.b.copy()]
            if since < wait:
                continue
            self._rebuild()
            self._settle(l1, l2)
            gap = self._inner_gap(l1, l2, positive)
            if gap <= eps:
                return True
            if self._use_single and gap > 0.3 * lowest and gap < 1e-5 * self.y_y:
                self._use_single = False
                before, since, wait, lowest, history = None, 0, 2, np.inf, [self.b.copy()]
                continue
            lowest = gap
            if before is not None:
                rate = np.log(max(before / gap, 1.0 + 1e-9)) / since
                need = np.log(gap / eps) / rate
                if not tired and need * self._sweep_cost() > self._newton.cost(self.b):
                    self.easy = False
                    reached, tired = self._newton_steps(l1, l2, positive, eps)
                    if reached or not tired:
                        return reached
                    before, since, wait, history = None, 0, 2, [self.b.copy()]
                    continue
                wait = int(min(max(2, 0.5 * need), 10))
            before, since = gap, 0
        return False

    def _newton_steps(self, l1, l2, positive, eps):
        start = self._objective(self.b, self.rho, l1, l2)
        b, reached, tired, visits = self._newton.solve(
            self.b,
            self.rho,
            l1,
            l2,
            positive,
            eps,
            lambda b, rho, slopes: self._gap_at(b, rho, slopes, l1, l2, positive),
        )
        self.updates += visits
        rho = self._residual(b)
        if reached or self._objective(b, rho, l1, l2) <= start:
            self.b, self.rho, self._slopes = b, rho, None
            self._settle(l1, l2)
        return reached, tired

    def _gap_at(self, b, rho, slopes, l1, l2, positive):
        self.b, self.rho, self._slopes = b, rho, slopes
        return self._gap(slopes, l1, l2, positive, np.inf)[1]

    def _inner_gap(self, l1, l2, positive):
        """Gap of the problem on W; from float32 products while descent is in float32."""
        if self._use_single and self._slopes is None:
            slopes = np.empty((1, len(self.b)))
            single = self.rho.astype(np.float32)[None]
            linear_columns.dense_dot(self.copies.single, np.arange(len(self.b)), single, slopes)
            return self._gap(slopes[0], l1, l2, positive, np.inf)[1]
        if self._slopes is None:
            self._slopes = self.copies.dot(self.rho)
        return self._gap(self._slopes, l1, l2, positive, np.inf)[1]

    def _sweep(self, l1, l2, positive):
        """Visit every column of W once and its support some times more; `rho` is exact no longer."""
        copies = self.copies
        self._slopes = None
        if copies.is_sparse:
            visits, carried = linear_descent.csc_sweeps(
                copies.data, copies.indices, copies.indptr, copies.norms, copies.means, copies.total_weight,
                self.rho, 0.0, self.b, l1, l2, positive, 1, _SPARSE_SUPPORT_SWEEPS,
            )  # fmt: skip
            if carried:
                self.rho -= carried * self._roots if len(self._roots) else carried
        else:
            A = copies.single if self._use_single else copies.exact()
            rho = self.rho.astype(np.float32) if self._use_single else self.rho
            visits = linear_descent.dense_sweeps(
                A, copies.norms, rho, self.b, l1, l2, positive, 1, self._support_sweeps()
            )
            self.rho = rho.astype(np.float64) if self._use_single else rho
        self.updates += visits

    def _support_sweeps(self):
        """More when W is mostly zeros."""
        least, most = _SUPPORT_SWEEPS
        return int(min(max(len(self.b) / (2.0 * np.count_nonzero(self.b) + 1), least), most))

    def _extrapolate(self, history, l1, l2, positive):
        """Anderson step from the last iterates, kept only if the objective falls."""
        points = np.array(history)
        steps = np.diff(points, axis=0)
        products = steps @ steps.T
        trace = np.trace(products)
        if not trace > 0:
            return
        products.flat[:: len(products) + 1] += 1e-12 * trace
        try:
            mix = np.linalg.solve(products, np.ones(len(products)))
        except np.linalg.LinAlgError:
            return
        b = (mix / mix.sum()) @ points[1:]
        if positive:
            np.maximum(b, 0.0, out=b)
        if not np.isfinite(b).all():
            return
        rho = self._residual(b)
        self._rebuild()
        if self._objective(b, rho, l1, l2) < self._objective(self.b, self.rho, l1, l2):
            self.b, self.rho = b, rho

    def _sweep_cost(self):
        """Seconds of a sweep, as measured on one core; only ratios matter."""
        support = np.count_nonzero(self.b)
        if self.copies.is_sparse:
            return 6e-9 * len(self.copies.data)
        per_value = 0.2e-9 if self._use_single else 0.45e-9
        return self.n_rows * (len(self.b) + (1 + self._support_sweeps()) * support) * per_value
