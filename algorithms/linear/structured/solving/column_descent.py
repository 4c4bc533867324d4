"""Least squares with an absolute and a square penalty on many dense columns, as an inner problem of `Solver`.

With columns A and the target y, both times the root of the weights, A centred::

    min_b  |y - A b|^2 / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2

Coordinate descent goes over the columns in float32, around an exact anchor, extrapolated every five sweeps.
It ends at the duality gap, or where the products of the columns that matter are the faster way by measured
rate: on these descent and Newton's method need no rows (`subproblems.gram`).

References
----------
Bertrand, Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
"""

import numpy as np

from .....kernels.linear import descent as kernels
from .....kernels.linear.columns import dense_add
from ...sparse.duality import column_gap
from ...subproblems.gram import MOST_COLUMNS, GramProblem, Trail, likely_cost

_SUPPORT_SWEEPS = (1, 8)  # least and most sweeps over the support after one over all columns
_MOST_SWEEPS, _MOST_MEETINGS = 4000, 50  # caps of sweeps, and of rounds in which columns join the products
_STUCK, _PROGRESS = 4, 1e-15  # tests after which descent gives up if the objective does not fall so far
_PATIENCE = 0.15  # descent goes on until it has taken this part of what products would: rates are uncertain
_FAR = 0.6  # columns whose slope is below this part of its threshold are not visited until the next test
_NEAR = 0.8  # columns whose slope is this near to its threshold join the products


class ColumnDescent:
    """Float32 columns of a working set, which grows.

    `roots`: float64 (n_rows,), of the weights.
    """

    def __init__(self, roots):
        self.roots = roots
        self._buffer = np.empty((0, len(roots)), np.float32)
        self.norms = np.empty(0)

    def grow(self, part):
        """Take up the columns of `part`, float64 (n_rows, m) and centred, behind those that are there."""
        first, m = len(self.norms), part.shape[1]
        if m > len(self._buffer):
            larger = np.empty((m + m // 2, len(self.roots)), np.float32)
            larger[:first] = self._buffer[:first]
            self._buffer = larger
        new = self._buffer[first:m]
        np.multiply(part[:, first:].T, self.roots, out=new, casting="same_kind")
        self.norms = np.concatenate([self.norms, np.einsum("ij,ij->i", new, new, dtype=np.float64)])

    def minimise(self, part, rest, slopes, b, penalty, eps):
        """Minimise from b, in place, to a duality gap of `eps`; return the change of the predictor.

        `rest`: float64 (n_rows,), y less the predictor. `slopes`: its weighted products with the columns.
        `penalty`: l1 and l2 of the columns, and whether coefficients are at or above zero.
        """
        self.grow(part)
        fit = _Descent(self, part, rest, slopes, b, penalty)
        fit.descend(eps)
        return fit.change


class _Descent:
    """One problem; `slopes` are ``A^T rho``."""

    def __init__(self, columns, part, rest, slopes, b, penalty):
        self.part, self.roots, self.norms = part, columns.roots, columns.norms
        self.single = columns._buffer[: len(b)]
        self.rest, self.b, self.start, self.terms = rest, b, b.copy(), penalty
        self.slopes, self.rho, self.change = slopes, self.roots * rest, np.zeros(len(rest))
        self.step = 0.0  # of the last proximal step of Newton's method

    def rebuild(self):
        """Exact residual and slopes of the present coefficients."""
        moved = self.b - self.start
        on, self.change = np.flatnonzero(moved), np.zeros(len(self.rest))
        dense_add(self.part.T, on, moved[on], self.change)
        self.rho = self.roots * (self.rest - self.change)
        self.slopes = self.part.T @ (self.roots * self.rho)

    def gap(self):
        """Objective and duality gap of the present coefficients, which are exact."""
        square = self.rho @ self.rho
        l1, l2, positive = self.terms
        fit_y = square + self.b @ self.slopes
        return column_gap(self.b, self.slopes, l1, l2, positive, fit_y, square, np.inf)

    def descend(self, eps):
        """Go down until the gap is `eps`."""
        objective, gap = self.gap()
        need, wait, least, stuck, sweeps, spent = 6.0, 2, np.inf, 0, 0, 0.0
        lowest: list[tuple[int, float]] = []
        trail = Trail(self.b, self.rho)
        while gap > eps and sweeps < _MOST_SWEEPS:
            cost, other = self._sweep_cost(), self._products_cost(need)
            tired = not lowest or spent >= _PATIENCE * other
            if stuck == _STUCK or (tired and need * cost > other):
                if np.isfinite(other):
                    self._by_products(eps)
                return
            trail = self._sweep(wait, trail)
            spent, sweeps = spent + wait * cost, sweeps + wait
            objective, gap = self.gap()
            nearer = not lowest or gap < 0.9 * lowest[-1][1]  # the objective is at its end before it
            stuck = 0 if nearer or objective < least - _PROGRESS * abs(least) else stuck + 1
            least = min(least, objective)
            lowest.append((sweeps, min(gap, lowest[-1][1]) if lowest else gap))
            if len(lowest) > 1:
                need = _sweeps_to(eps, lowest)
                wait = int(min(max(2, 0.5 * need), 10))

    def _sweep(self, count, trail):
        """Visit the columns that matter `count` times, and the support more often."""
        l1, l2, positive = self.terms
        b, change = self.b, np.zeros(len(self.rho), np.float32)
        columns = np.flatnonzero((b != 0) | (np.abs(self.slopes - l2 * b) >= _FAR * l1))
        for _ in range(count):
            most = self._support_sweeps(len(columns))
            model = self.single, columns, self.norms, self.slopes, change, b, l1, l2, positive
            kernels.dense_sweeps(*model, most)
            if trail.add(b, self.rho + change):
                if (mixed := trail.mixed()) is not None:
                    point, rho = mixed
                    change = self._extrapolate(point, rho, change)
                trail = Trail(b, self.rho + change)
        self.rebuild()
        return trail

    def _extrapolate(self, b, rho, change):
        """Take a combination of iterates if the objective falls; return the change of the residual."""
        if self.terms[2] and (b < 0).any():
            return change
        moved = rho - self.rho
        if self._objective(b, moved) < self._objective(self.b, change.astype(np.float64)):
            self.b[:] = b
            return moved.astype(np.float32)
        return change

    def _objective(self, b, moved):
        """Less ``|rho|^2 / 2`` at the anchor."""
        l1, l2, _ = self.terms
        return moved @ (self.rho + 0.5 * moved) + l1 @ np.abs(b) + 0.5 * (l2 @ (b * b))

    def _support_sweeps(self, n_visited):
        """More when most of the columns that are visited are zeros."""
        least, most = _SUPPORT_SWEEPS
        return int(min(max(n_visited / (2.0 * np.count_nonzero(self.b) + 1), least), most))

    # By products of columns -----------------------------------------------------------------------------

    def _near(self):
        """Columns that have a coefficient or are about to get one, at most `MOST_COLUMNS` or the support."""
        l1, l2, _ = self.terms
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.abs(self.slopes - l2 * self.b) / l1
        near[self.norms == 0] = 0.0
        near[self.b != 0] = np.inf
        chosen = np.flatnonzero(near >= _NEAR)
        support = int(np.count_nonzero(self.b))
        most = max(min(support + support // 2 + 100, MOST_COLUMNS), support)
        if len(chosen) > most:
            chosen = np.sort(chosen[np.argsort(-near[chosen], kind="stable")[:most]])
        return chosen

    def _by_products(self, eps):
        """Solve on the columns that matter, check the others, let violators join, until the gap is `eps`."""
        l1, l2, positive = self.terms
        members, lowest = np.empty(0, np.int64), np.inf
        for _ in range(_MOST_MEETINGS):
            members = np.union1d(members, self._near())
            if len(members) > MOST_COLUMNS:
                return
            A = self.part[:, members] * self.roots[:, None]
            problem = GramProblem(A.T @ A, self.step)
            terms = l1[members], l2[members], positive
            of_members = self.b[members], self.slopes[members], self.rho @ self.rho
            self.b[members], _ = problem.minimise(*of_members, terms, 0.5 * eps)
            self.step = problem.step
            self.rebuild()
            gap = self.gap()[1]
            if gap <= eps or (gap > 0.9 * lowest and not len(np.setdiff1d(self._near(), members))):
                return
            lowest = min(lowest, gap)

    def _sweep_cost(self):
        """Seconds of a sweep, as measured on one core; only ratios matter."""
        l1, l2, _ = self.terms
        visited = np.count_nonzero((self.b != 0) | (np.abs(self.slopes - l2 * self.b) >= _FAR * l1))
        support = np.count_nonzero(self.b)
        return len(self.rho) * (visited + (1 + self._support_sweeps(visited)) * support) * 0.3e-9

    def _products_cost(self, sweeps):
        """Seconds until the problem is solved by products; infinite if they would not fit."""
        near, support = len(self._near()), int(np.count_nonzero(self.b))
        if near > MOST_COLUMNS:
            return np.inf
        return 2.0 * len(self.rho) * near * near / 4e10 + likely_cost(near, support, sweeps)


def _sweeps_to(eps, lowest):
    """Sweeps until the gap is `eps`, at the rate of the later half of those made.

    A gap rises now and then while the objective falls, so the lowest so far is kept: pairs of the
    sweeps made and that gap.
    """
    now, gap = lowest[-1]
    earlier = [pair for pair in lowest[:-1] if 2 * pair[0] <= now] or lowest[:1]
    before, most = earlier[-1]
    return np.log(gap / eps) / np.log(max(most / gap, 1.0 + 1e-9)) * (now - before)
