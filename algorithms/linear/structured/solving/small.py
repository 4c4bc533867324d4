"""The solver of small dense problems: single coefficients, a loss that kernels know.

It goes as `solver.Solver`, whose questions it answers, with little Python in a round. A round computes the
slopes of all columns, ends at the duality gap or the violation of the optimality conditions, and lets the
columns that break them most join the working set, on which `second_order` solves it.
"""

import numpy as np

from .....kernels.linear import working_set as kernels
from .columns import Columns
from .second_order import minimise_columns
from .solver import Fit

_ROWS, _FAR = 8, 100.0  # that are looked at; of their distances from the mean, that it is far from zero
MOST_ENTRIES = 2e6  # of X, which is copied
MOST_REMADE = 1.5e5  # the same where each step makes products anew: descent by float32 columns is faster
_MOST_OF_CSC = 1e4  # with its zeros, of a partial likelihood: a pass costs less than the Python of a round
_MOST_OF_STARTS = 3e5  # the same, of penalties that are not convex
_FEW = 10  # columns that join at least
_PASS = 4  # columns of X, for each pair of columns of the working set, whose slopes cost as much
_ROUND = 1e6  # multiplications in products of columns that a round may cost
# Multiplications in products of columns with coefficients, made once or in each Newton step, and of all of
# a working set, beyond which descent by rows or other solvers are faster.
_MOST_THERE, _MOST_REMADE, _MOST = 2e7, 6e6, 4e8
_FALL = 1e-12  # of an objective: what falls less is rounding
_SLOW = 1e-3  # of the gap: where an objective falls by less in a round, its end is far
_LEAST = 1e-14  # violations below this, in units of the first slopes, are rounding


def is_small(problem, penalty, fit_intercept):
    """Whether `SmallSolver` takes a problem; without an intercept the unit at an offset is another."""
    if np.all(penalty.free) or not (fit_intercept or problem.loss.offset is None):
        return False
    columns, blocks = problem.columns, problem.blocks
    most = MOST_ENTRIES if problem.loss.quadratic or not penalty.convex else MOST_REMADE
    if columns.is_sparse:
        several = problem.loss.quadratic and not penalty.convex  # starts, which use products of columns again
        most = _MOST_OF_CSC if not problem.loss.by_rows else _MOST_OF_STARTS if several else 0
    dense = type(columns) is Columns and columns.n_samples * columns.n_features <= most
    coded = getattr(problem.loss, "code", None) is not None and problem.loss.n_outputs == 1
    coded = coded and penalty.kind in (0, 1, 2, 3)
    return dense and coded and blocks.plain and len(blocks.starts) == columns.n_features + 1


class SmallSolver:
    """Solves for one penalty after the other, each from the solution before; see `Solver`.

    `is_watched`: whether rounds are to be reported when they are over, not all at the end.
    """

    K = 1

    def __init__(self, columns, loss, blocks, *, fit_intercept, is_watched=False):
        self.columns, self.loss, self.blocks, self.fit_intercept = columns, loss, blocks, fit_intercept
        X = columns.X.toarray() if columns.is_sparse else columns.X
        self.is_watched, self._XT = is_watched, np.ascontiguousarray(X.T, np.float64)
        if not self._XT.flags.writeable:  # kernels are compiled for arrays that are
            self._XT = self._XT.copy()
        self._means, self._centres = np.zeros(len(self._XT)), np.empty(0)
        if (
            fit_intercept or not loss.by_rows
        ):  # a partial likelihood knows no shift, and columns far from zero would lose digits
            self._centres, means = loss.weights, self._XT @ loss.weights
            near = np.abs(self._XT[:, :_ROWS] - means[:, None]).max(axis=1, initial=0.0)
            if (np.abs(means) > _FAR * near).any():
                self._XT, self._means = self._XT - means[:, None], means
        n, p = columns.X.shape
        self._least = max(_FEW, int(np.sqrt(_PASS * p)), int(np.sqrt(_ROUND / n)))
        self.floor = 1e-2 if loss.flat else 0.0  # of curvatures, where they may vanish
        self.begin(np.zeros((len(self._XT), 1)), loss.start() if fit_intercept else np.zeros(1))

    def begin(self, B, intercept):
        """Start from coefficients and an intercept."""
        n = len(self.loss.weights)
        self.B, self.c = np.array(B, np.float64, order="C"), np.array(intercept, np.float64)
        self.places, self._shift, self._known = np.empty(0, np.int64), np.empty(0), None
        self._rows, self._products = np.empty((0, n)), np.empty((0, 0))  # of a capacity, for more columns
        if B.any() and self.fit_intercept:  # that of centred columns
            self.c += self.loss.weights @ (self._XT.T @ B) + self._means @ B
        self._join(np.flatnonzero(B[:, 0]))
        self.f = np.full((n, 1), self.c[0]) if self.loss.offset is None else self.loss.offset + self.c
        if len(self.places):
            self.f = self.f + self.part @ self.B[self.places]

    def intercept(self):
        """Intercept of X as it is."""
        return self.c - self._shift[: len(self.places)] @ self.B[self.places] - self._means @ self.B

    # Of the working set, `places`: see `Solver`

    @property
    def part(self):
        """These columns, less the means; shape (n, m)."""
        return self._rows[: len(self.places)].T

    @property
    def products(self):
        """Products of the columns, of columns and the intercept, and of the intercept: of a squared loss."""
        m = len(self.places)
        return self._products[:m, :m], self.part.T @ self.loss.weights, 1.0

    def state(self):
        """What `restore` takes: coefficients, intercept and predictors."""
        return self.B.copy(), self.c, self.f

    def restore(self, state):
        """Go back to a state; the working set stays."""
        B, self.c, self.f = state
        self.B = B.copy()

    def objective(self, penalty):
        """Loss plus penalty."""
        return self.loss.objective(self.f) + penalty.value(self.B)

    def descend(self, penalty, tol, *, few=False):
        """Minimise on the working set: see `Solver.descend`."""
        b, P = self.B[self.places, 0], penalty.table.take(self.places, axis=1)
        products = self._products, None, 1.0  # no column has a part along the intercept
        rows = self._rows[: len(b)], products, self.loss, self.f, b, self.c
        terms = P, penalty.gamma, penalty.kind, self.fit_intercept, few, tol, self.floor
        self.f, b, self.c, self.floor = minimise_columns(*rows, *terms)
        self.B[self.places, 0] = b

    def null(self, penalty):
        """Fit the intercept and the free columns alone; return the units of gaps and of violations."""
        self._join_free(penalty)
        u = self.loss.gradient(self.f)
        goal = 1e-13 * float(np.abs(u).sum()) or 1e-13
        if len(self.places) or (self.fit_intercept and abs(u.sum()) > goal):
            self.descend(penalty, goal)
        value, _, V, _ = self._measured()
        return max(value - self.loss.least(), 1e-300), float(np.abs(V).max(initial=0.0)) or 1.0

    def grow(self, columns):
        """Let columns join the working set."""
        self._join(np.setdiff1d(columns, self.places))

    def _join_free(self, penalty):
        if penalty.free.any():
            self.grow(np.flatnonzero(penalty.free))

    def _join(self, new):
        """Let columns join that are not in the working set."""
        m, k = len(self.places), len(self.places) + len(new)
        if k == m:
            return
        if k > len(self._rows):
            capacity = min(k + k // 2, max(k, len(self._XT)))
            rows, self._rows = self._rows, np.empty((capacity, self._XT.shape[1]))
            self._rows[:m] = rows[:m]
            if self.loss.quadratic:
                products, self._products = self._products, np.empty((capacity, capacity))
                self._products[:m, :m] = products[:m, :m]
        self.places, self._shift = (
            np.concatenate([self.places, new]),
            np.append(self._shift[:m], np.empty(k - m)),
        )
        rows, shift = self._rows[m:k], self._shift[m:]
        rows[:], shift[:] = self._XT[new], 0.0
        for _ in range(2 if len(self._centres) else 0):  # again, for the digits of a mean far from zero
            means = rows @ self._centres
            rows -= means[:, None]
            shift += means
        if self.loss.quadratic:
            sides = (rows * self.loss.weights) @ self._rows[:k].T
            self._products[m:k, :k], self._products[:k, m:k] = sides, sides.T

    def _measured(self):
        """Loss, the slope of the intercept, minus the slopes of all columns, and those of the predictors."""
        if self._known is None or self._known[0] is not self.f:
            value, u, _ = self.loss.at(self.f)
            V = np.empty((len(self._XT), 1))
            free = kernels.slopes(self._XT, u, V[:, 0], self.fit_intercept)
            if len(self._centres) and len(self.places):  # columns far from zero lose digits as they are
                V[self.places, 0] = -(self._rows[: len(self.places)] @ u)
            self._known = self.f, (value, free, V, u)
        return self._known[1]

    def slopes(self):
        """See `Solver`."""
        return self._measured()[2:]

    def _conjugate(self, u, scale):
        """Conjugate of the loss at a share of its slopes."""
        return self.loss.conjugate(u[:, None], scale, self.f)

    def _is_large(self, n_there, m, expected):
        """Whether working sets of m columns, some with coefficients, perhaps more, are for another solver."""
        n = float(self.columns.n_samples)
        most_there = _MOST_THERE if self.loss.quadratic else _MOST_REMADE
        return n * n_there**2 > most_there or n * m**2 > _MOST

    def _is_exact(self, penalty, tol):
        """Whether rounding errors are far below a gap or violation that was reached."""
        return True

    def solve(self, penalty, unit, first, *, tol, max_rounds, report=None):
        """See `Solver.solve`; the reason "large" asks another solver to go on, and nothing was reported."""
        begun, working_set, figures = self.state(), self.places, []
        terms = penalty, unit, first, tol, max(max_rounds, 2)
        fit = self._rounds(*terms, lambda *row: figures.append(row))
        if report is None or fit.reason in ("large", "stalled"):
            return fit
        if self.is_watched:  # the same again
            self.restore(begun)
            self.places, self._known = working_set, None
            return self._rounds(*terms, report)
        if report.past(figures):
            fit.reason = "stopped"
        return fit

    def _rounds(self, penalty, unit, first, tol, max_rounds, report):
        p, loss = len(self.B), self.loss
        convex, gap = loss.has_conjugate and penalty.has_dual, np.nan
        aim = last = before = np.inf
        stuck, joined, reason, self.floor = 0, 0, "max_rounds", 1e-2 if loss.flat else 0.0
        self._join_free(penalty)
        for rounds in range(1, max_rounds + 1):
            value, free, V, u = self._measured()
            scores, cost, scale, dual, rest = penalty.judge(self.B, V, convex)
            violation, objective = max(free, float(scores.max(initial=0.0))), value + cost
            if convex:
                gap = max(objective + dual + self._conjugate(u, scale), 0.0) + rest
            figure, bar = (gap, tol * unit) if convex else (violation, tol * first)
            if report(rounds, objective, figure):
                reason = "stopped"
                break
            if figure <= bar:
                reason = ("gap" if convex else "kkt") if self._is_exact(penalty, tol) else "stalled"
                break
            # A gap may rest while columns join, or a bound of the curvature keeps steps short: it falls later
            resting = figure > 0.9 * last and joined < _FEW
            resting = resting and (violation <= 100.0 * aim or figure == last)
            falls = convex and objective < before - max(_FALL * abs(objective), _SLOW * gap)
            stuck = stuck + 1 if resting and not falls else 0
            last, before = min(last, figure), objective
            if not violation > _LEAST * first or stuck > 5 or figure != figure:
                reason = "stalled"
                break
            if rounds == max_rounds:  # the last one only measures
                break
            n_there = int(np.count_nonzero(self.B.any(axis=1)))
            scores[self.places] = 0.0
            new = largest(scores, max(self._least, 2 * n_there))
            joined, m = len(new), len(self.places) + len(new)
            if self._is_large(n_there, m, len(self.places) + np.count_nonzero(scores)):
                reason = "large"
                break
            self._join(new)
            aim = min(aim, 0.3 * violation)
            if not convex:
                aim = max(aim, 0.3 * tol * first)
            # Where the working set is all but complete, or cheap, it is solved to the end at once.
            nearly = (10 * joined <= n_there and m * m <= 30 * p) or not (joined or loss.quadratic)
            goal = aim
            if (
                convex
                and figure > 0.0
                and (nearly or (loss.quadratic and m * m < self.columns.n_samples * p))
            ):
                goal = min(aim, np.sqrt(0.5 * bar / figure) * violation)  # the gap falls as its square
            self.descend(penalty, max(goal, 0.1 * _LEAST * first))
        return Fit(self.B.copy(), self.intercept(), objective, gap, violation, rounds, reason)


def largest(scores, most):
    """Columns of the largest scores above zero, at most so many, by number; ties go to lower numbers."""
    new = np.flatnonzero(scores)
    if len(new) <= most:
        return new
    values = scores[new]
    bar = np.partition(values, len(new) - most)[len(new) - most]
    joins = values > bar
    joins[np.flatnonzero(values == bar)[: most - np.count_nonzero(joins)]] = True
    return new[joins]
