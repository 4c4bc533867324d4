"""The squared loss on a working set: least squares with an absolute and a square penalty.

With weights w, centred y and columns (copies, see `copies`), the problem on W is::

    min_b  |rho|^2 / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2,      rho = sqrt(w) (y - ybar) - A b

Two ways lead to its solution, the cheaper one by measured rate:

1. coordinate descent on the columns, in float32 around an exact anchor where they are dense, extrapolated
   every five sweeps;
2. the products of the columns that matter, on which descent and Newton's method need no rows (`gram`).

The features whose l1 and l2 are 0 are solved for exactly before each test of the gap (`free_columns`). If
they are held at or above zero, their l1 is taken for ``1e-10 |a_j| |y|``, since a dual point cannot be made
to meet an inequality exactly.

References
----------
Bertrand, Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
"""

import functools

import numpy as np

from ....kernels.linear import columns as linear_columns
from ....kernels.linear import descent as linear_descent
from ..subproblems.copies import copies_of
from ..subproblems.free_columns import MOST_DIRECT, Unpenalised
from ..subproblems.gram import MOST_COLUMNS, GramProblem, Products, Trail, likely_cost
from .duality import column_gap

_SUPPORT_SWEEPS = (1, 8)  # least and most sweeps over the support after one over W (dense)
_SPARSE_SUPPORT_SWEEPS = 4  # over the support, for each over all columns
_MOST_RIDGE = 1e300  # stays finite when it is multiplied
_MOST_SWEEPS, _MOST_MEETINGS = 4000, 50  # caps of sweeps, and of rounds in which columns join the products
_STUCK, _PROGRESS = 4, 1e-15  # tests after which descent gives up if the objective does not fall so far
_SINGLE = 3e-5  # thresholds below this part of |a_j| |rho| ask for them always
_EXACT = 3e-5  # gaps below this part of |y|^2 are taken from float64 slopes
_CLOSE = 3.0  # a descent that is stuck so near to what is asked ends there: the next round may do with it
_PATIENCE = 0.15  # descent goes on until it has taken this part of what products would: rates are uncertain
_FAR = 0.6  # columns whose slope is below this part of its threshold are not visited until the next test
_NEAR = 0.8  # columns whose slope is this near to its threshold join the products
_NOTHING = 1e-15  # a threshold this small relative to |a_j| |y| is lost in rounding: taken for 0
_SPANNED = 1e-12  # a column is spanned by the unpenalised ones if so little of its square is left
# Slopes of free columns that are zero but for rounding; the least l1 that keeps signs.
_SETTLED, POSITIVE_TRACE = 1e-9, 1e-10


class SquaredSubproblem:
    """Squared loss; see `Subproblem`, of which it is one.

    `y`: float64 (n_rows,); finite; it is not changed. `sample_weight`: float64 (n_rows,); finite, not
    negative, not all 0. Attributes: `scale`: power of two by which y was divided, so that its largest value
    lies in [1/2, 1).
    """

    strides = None

    def __init__(self, y, sample_weight=None, fit_intercept=False):
        y = np.asarray(y, dtype=np.float64)
        self.n_rows, self.fit_intercept = len(y), fit_intercept
        self.roots = np.empty(0) if sample_weight is None else np.sqrt(sample_weight)
        self.scale = float(np.ldexp(1.0, np.clip(np.frexp(np.abs(y).max())[1], -1000, 1000)))
        y = y / self.scale
        self._mean = float(np.average(y, weights=sample_weight)) if fit_intercept else 0.0
        self.y = y - self._mean
        if len(self.roots):
            self.y *= self.roots
        self.y_y = float(self.y @ self.y)
        self.features = np.empty(0, np.int64)
        self.b, self.rho = np.empty(0), self.y.copy()
        self.updates, self.easy = 0, True
        self.is_empty, self._last_gap = True, 0.5 * self.y_y
        self._slopes = None  # A^T rho, where it is known exactly

    @functools.cached_property
    def unpenalised(self):
        """The exact step along unpenalised columns."""
        return Unpenalised(self.copies)

    # What a working set asks ----------------------------------------------------------------------

    @property
    def coef(self):
        """Coefficients of W, of X and y as they were given."""
        return self.b.copy() if self.is_empty else self.b * self.copies.scales * self.scale

    @property
    def intercept(self):
        """``ybar - xbar . b``; 0 without an intercept."""
        if not self.fit_intercept:
            return 0.0
        shift = 0.0 if self.is_empty else self.copies.means @ self.b
        return float(self._mean - shift) * self.scale

    def grow(self, ids, columns, positions, penalty):
        """See `Subproblem.grow`."""
        if self.is_empty:
            self.copies = copies_of(columns.is_sparse, self.n_rows, self.roots, self.fit_intercept)
            self.products = Products(self.copies)
            self.is_empty = False
        order = np.argsort(ids)
        self.copies.admit(columns, positions[order])
        self.features = np.concatenate([self.features, ids[order]])
        self.b = np.concatenate([self.b, np.zeros(len(ids))])
        self._slopes = None
        self._held = self.terms(penalty)[:2]
        self._settle(*self._held)

    def start(self, coef):
        """See `Subproblem.start`; constant columns have no coefficient."""
        self.b = self.of_copies(coef)
        self._rebuild()
        self._settle(*self._held)  # without it no multiple of the residual is a dual point

    def intercept_of(self, coef, intercept, dtype):
        """See `Subproblem.intercept_of`: the best one, in float64."""
        if not self.fit_intercept or self.is_empty:
            return self.intercept
        return float(self._mean - self.copies.means @ (coef / (self.copies.scales * self.scale))) * self.scale

    def excess(self, coef, intercept):
        """See `Subproblem.excess`: the present coefficients differ in columns that are at their best."""
        if self.is_empty:
            return 0.0
        change, moved = self.of_copies(coef) - self.b, np.zeros(self.n_rows)
        support = np.flatnonzero(change)
        self.copies.add(support, change[support], moved)
        return 0.5 * float(moved @ moved)

    def of_copies(self, coef):
        """Coefficients of the copies, from those of X; 0 for constant columns."""
        return np.where(self.copies.norms > 0, coef / (self.copies.scales * self.scale), 0.0)

    def vectors(self):
        """See `Subproblem.vectors`."""
        return (self.rho * self.roots if len(self.roots) else self.rho.copy())[None]

    def unit(self, penalty):
        """See `Subproblem.unit`."""
        return 0.5 * self.y_y

    def gap(self, penalty, bound):
        """See `Subproblem.gap`."""
        outside = penalty.strength / self.scale / bound if bound > 0 else np.inf
        if self.is_empty:
            none = np.empty(0)
            return column_gap(none, none, none, none, False, self.y_y, self.y_y, outside)
        l1, l2, positive = self.terms(penalty)
        objective, self._last_gap = self._gap(self.exact_slopes(), l1, l2, positive, outside)
        return objective, self._last_gap

    def solve(self, penalty, eps):
        """See `Subproblem.solve`."""
        self.easy = True
        if self.is_empty:
            return True
        terms = self.terms(penalty)
        self._settle(*terms[:2])
        return self._descend(terms, eps)

    def replace(self, chosen, b):
        """Set coefficients of the copies and renew what depends on them."""
        self.b[chosen] = b
        self._rebuild()

    # The problem on W -------------------------------------------------------------------------------

    def terms(self, penalty):
        """l1 and l2 of each column of W, for the scaled copies and y, and whether b >= 0."""
        scales = self.copies.scales
        l1 = penalty.thresholds(self.features) * (scales / self.scale)
        with np.errstate(over="ignore"):
            l2 = np.minimum(penalty.ridges(self.features) * scales * scales, _MOST_RIDGE)
        size = np.sqrt(self.copies.norms * self.y_y)
        if penalty.positive:
            l1 = np.where(l2 > 0, l1, np.maximum(l1, POSITIVE_TRACE * size))
        else:
            l1[(l1 <= _NOTHING * size) & (l2 == 0)] = 0.0
        return l1, l2, penalty.positive

    def _gap(self, slopes, l1, l2, positive, outside=np.inf):
        free = (l1 == 0) & (l2 == 0)
        if free.any() and (np.abs(slopes) > _SETTLED * np.sqrt(self.copies.norms * self.y_y))[free].any():
            outside = 0.0  # solved for a larger strength: no multiple of rho but 0 is a dual point
        return column_gap(self.b, slopes, l1, l2, positive, self.y @ self.rho, self.rho @ self.rho, outside)

    def exact_slopes(self):
        """``A^T rho`` in float64."""
        if self._slopes is None:
            self._slopes = np.where(self.copies.norms > 0, self.copies.dot(self.rho), 0.0)
        return self._slopes

    def _slopes_for(self, gap):
        """``A^T rho``; of float32 copies, to about 1e-7 of ``|a_j| |rho|``, where that is enough."""
        if self.copies.is_sparse or self._slopes is not None or gap < _EXACT * self.y_y:
            return self.exact_slopes()
        out, single = np.empty((1, len(self.b))), self.rho.astype(np.float32)[None]
        linear_columns.dense_dot(self.copies.single.T, np.arange(len(self.b)), single, out)
        return out[0]

    def _rebuild(self):
        """Exact residual of the present coefficients."""
        self.rho, self._slopes = self._residual(self.b), None

    def _residual(self, b):
        rho = self.y.copy()
        support = np.flatnonzero(b)
        self.copies.add(support, -b[support], rho)
        return rho

    def _free(self, l1, l2):
        return np.flatnonzero((l1 == 0) & (l2 == 0) & (self.copies.norms > 0))

    def _settle(self, l1, l2):
        """Bring the unpenalised columns to their exact best; return whether there are any."""
        free = self._free(l1, l2)
        if len(free):
            self.b[free] += self.unpenalised.settle(free, self.rho)
            self._slopes = None
        return len(free) > 0

    # Descent on columns -------------------------------------------------------------------------------

    def _descend(self, terms, eps):
        """Coordinate descent on the columns, unless or until their products are the cheaper way."""
        need, wait, least, stuck = 6 * np.log10(max(self._last_gap / eps, 1.0)), 2, np.inf, 0
        lowest: list[tuple[int, float]] = []
        spent = 0.0
        accurate = np.inf if self._single_serves(terms[0]) else 0.0
        slopes, sweeps, trail = self._slopes_for(min(eps, accurate)), 0, Trail(self.b, self.rho)
        while sweeps < _MOST_SWEEPS:
            cost = self._sweep_cost(len(self._candidates(slopes, *terms[:2])))
            other = self._products_cost(slopes, terms, need)
            tired = not lowest or spent >= _PATIENCE * other
            if stuck == _STUCK and (lowest[-1][1] <= _CLOSE * eps or not np.isfinite(other)):
                return False
            if stuck == _STUCK or (tired and need * cost > other):
                self.easy = False
                return self._by_products(slopes, terms, eps)
            trail = self._sweeps(slopes, terms, wait, trail)
            spent += wait * cost
            if self._settle(*terms[:2]):
                trail = Trail(self.b, self.rho)
            sweeps += wait
            slopes = self._slopes_for(accurate)
            objective, gap = self._gap(slopes, *terms)
            accurate = gap if gap < 0.5 * accurate else 0.0
            self.easy = sweeps <= 2
            if gap <= eps:
                return True
            nearer = not lowest or gap < 0.9 * lowest[-1][1]  # the objective is at its end before it
            stuck = 0 if nearer or objective < least - _PROGRESS * self.y_y else stuck + 1
            least = min(least, objective)
            lowest.append((sweeps, min(gap, lowest[-1][1]) if lowest else gap))
            if len(lowest) > 1:
                need = _sweeps_to(eps, lowest)
                wait = int(min(max(2, 0.5 * need), 10))
        return False

    def _single_serves(self, l1):
        """Whether the error of float32 slopes is small relative to every threshold."""
        least = _SINGLE * np.sqrt(self.copies.norms * (self.rho @ self.rho))
        return bool((l1 >= least)[l1 > 0].all())

    def _sweeps(self, slopes, terms, count, trail):
        """Visit every column of W `count` times and its support more often; renew the residual.

        Takes and returns the trail of iterates and residuals that the next extrapolation combines.
        """
        l1, l2, positive = terms
        copies, b = self.copies, self.b
        change = np.zeros(self.n_rows, np.float32)
        rho = self.rho.copy() if copies.is_sparse else self.rho
        columns = self._candidates(slopes, l1, l2)
        for _ in range(count):
            if copies.is_sparse:
                visits, carried = linear_descent.csc_sweeps(
                    copies.data, copies.indices, copies.indptr, columns, copies.norms, copies.shifts,
                    copies.total_weight, rho, 0.0, b, l1, l2, positive, _SPARSE_SUPPORT_SWEEPS,
                )  # fmt: skip
                if carried:
                    rho -= carried * self.roots if len(self.roots) else carried
            else:
                most = self._support_sweeps(len(columns))
                visits = linear_descent.dense_sweeps(
                    copies.single.T, columns, copies.norms, slopes, change, b, l1, l2, positive, most
                )
            self.updates += visits
            if trail.add(b, rho if copies.is_sparse else self.rho + change):
                b, moved = self._extrapolate(trail, b, rho - self.rho if copies.is_sparse else change, terms)
                trail = Trail(b, self.rho + moved)
                if copies.is_sparse:
                    rho = self.rho + moved
                else:
                    change = moved.astype(np.float32)
        self.b = b
        self._rebuild()
        return trail

    def _extrapolate(self, trail, b, change, terms):
        """Anderson step from the last iterates, kept only if the objective falls."""
        mixed = trail.mixed()
        if mixed is None:
            return b, change
        other, changed = mixed
        changed -= self.rho
        below = np.flatnonzero(other < 0) if terms[2] else ()
        if len(below):
            self.copies.add(below, other[below], changed)
            other[below] = 0.0
        if self._objective(other, changed, terms) < self._objective(b, change, terms):
            return other, changed
        return b, change

    def _objective(self, b, change, terms):
        """Less ``|rho|^2 / 2`` at the anchor."""
        l1, l2, _ = terms
        moved = change.astype(np.float64)
        return moved @ (self.rho + 0.5 * moved) + l1 @ np.abs(b) + 0.5 * (l2 @ (b * b))

    def _candidates(self, slopes, l1, l2):
        """Columns that have a coefficient or may get one before the next test of the gap."""
        return np.flatnonzero((self.b != 0) | (np.abs(slopes - l2 * self.b) >= _FAR * l1))

    def _support_sweeps(self, n_visited):
        """More when most of the columns that are visited are zeros."""
        least, most = _SUPPORT_SWEEPS
        return int(min(max(n_visited / (2.0 * np.count_nonzero(self.b) + 1), least), most))

    # By products of columns -----------------------------------------------------------------------------

    def _near(self, slopes, l1, l2):
        """Columns that have a coefficient or are about to get one, as far as the products have room."""
        with np.errstate(divide="ignore", invalid="ignore"):
            near = np.abs(slopes - l2 * self.b) / l1
        near[self.copies.norms == 0] = 0.0
        near[self.b != 0] = np.inf
        chosen = np.flatnonzero(near >= _NEAR)
        support = int(np.count_nonzero(self.b))
        most = max(min(support + support // 2 + 100, MOST_COLUMNS), support)
        if len(chosen) > most:
            chosen = np.sort(chosen[np.argsort(-near[chosen], kind="stable")[:most]])
        return chosen

    def _by_products(self, slopes, terms, eps):
        """Solve on the columns that matter, check the others, let violators join, until the gap is `eps`."""
        l1, l2, positive = terms
        products, lowest, free = self.products, np.inf, self._free(l1, l2)
        for _ in range(_MOST_MEETINGS):
            chosen = np.setdiff1d(self._near(slopes, l1, l2), free, assume_unique=True)
            every = np.concatenate([free, chosen])
            new = products.missing(every)
            if len(products.members) + len(new) > MOST_COLUMNS:
                return False
            products.join(new)
            G = products.among(every)
            if len(free):
                G = self.unpenalised.reduced(free, G)
                apart = np.diagonal(G) > _SPANNED * self.copies.norms[chosen]
                self.b[chosen[~apart]] = 0.0  # the unpenalised columns do as well, for nothing
                chosen, G = chosen[apart], np.ascontiguousarray(G[np.ix_(apart, apart)])
                self._rebuild()
                self._settle(l1, l2)
            problem = GramProblem(G, products.step)
            own = (l1[chosen], l2[chosen], positive)
            exact = self.copies.dot(self.rho, chosen)
            b, visits = problem.minimise(self.b[chosen], exact, self.rho @ self.rho, own, 0.5 * eps)
            products.step = problem.step
            self.updates += visits
            self.replace(chosen, b)
            self._settle(l1, l2)
            slopes = self.exact_slopes()
            gap = self._gap(slopes, *terms)[1]
            if gap <= eps:
                return True
            if gap > 0.9 * lowest and not len(np.setdiff1d(self._near(slopes, l1, l2), every)):
                return False
            lowest = min(lowest, gap)
        return False

    def _sweep_cost(self, visited):
        """Seconds of a sweep, as measured on one core; only ratios matter."""
        support = np.count_nonzero(self.b)
        if self.copies.is_sparse:
            return 5e-9 * len(self.copies.data)
        return self.n_rows * (visited + (1 + self._support_sweeps(visited)) * support) * 0.3e-9

    def _products_cost(self, slopes, terms, sweeps):
        """Seconds until the problem is solved by products; infinite if they would not fit."""
        near, members = self._near(slopes, *terms[:2]), self.products.members
        missing = self.products.missing(near)
        if len(members) + len(missing) > MOST_COLUMNS or len(self._free(*terms[:2])) > MOST_DIRECT:
            return np.inf
        support = int(np.count_nonzero(self.b))
        return self.copies.products_cost(missing, members) + likely_cost(len(near), support, sweeps)


def _sweeps_to(eps, lowest):
    """Sweeps until the gap is `eps`, at the rate of the later half of those made.

    A gap rises now and then while the objective falls, so the lowest so far is kept: pairs of the
    sweeps made and that gap.
    """
    now, gap = lowest[-1]
    earlier = [pair for pair in lowest[:-1] if 2 * pair[0] <= now] or lowest[:1]
    before, most = earlier[-1]
    return np.log(gap / eps) / np.log(max(most / gap, 1.0 + 1e-9)) * (now - before)
