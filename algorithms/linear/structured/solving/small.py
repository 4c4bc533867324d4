"""The solver of small dense problems: single coefficients, a loss that kernels know.

A fit is one call of `kernels.linear.working_set`, or one for each round where somebody looks on. It answers
the questions of `solver.Solver`.
"""

import numpy as np

from .....kernels.linear import newton
from .....kernels.linear import working_set as kernels
from .columns import Columns
from .solver import Fit

_ROWS, _FAR = 8, 100.0  # that are looked at; of their distances from the mean, that it is far from zero
MOST_ENTRIES = 2e6  # of X, which is copied
_REASONS = {
    kernels.RUNS: "max_rounds",
    kernels.GAP: "gap",
    kernels.CONDITIONS: "kkt",
    kernels.STALLED: "stalled",
    kernels.LARGE: "large",
}


def is_small(problem, penalty, fit_intercept):
    """Whether `SmallSolver` takes a problem; without an intercept the unit at an offset is another."""
    if np.all(penalty.free) or not (fit_intercept or problem.loss.offset is None):
        return False
    columns, blocks = problem.columns, problem.blocks
    dense = type(columns) is Columns and not columns.is_sparse and columns.X.size <= MOST_ENTRIES
    coded = getattr(problem.loss, "code", None) is not None and penalty.kind in (0, 1, 2, 3)
    return dense and coded and blocks.plain and len(blocks.starts) == columns.n_features + 1


class SmallSolver:
    """Solves for one penalty after the other, each from the solution before; see `Solver`.

    `is_watched`: whether rounds are to be reported when they are over, not all at the end.
    """

    K = 1

    def __init__(self, columns, loss, blocks, *, fit_intercept, is_watched=False):
        self.columns, self.loss, self.blocks, self.fit_intercept = columns, loss, blocks, fit_intercept
        self.is_watched, self._XT = is_watched, np.ascontiguousarray(columns.X.T, np.float64)
        if not self._XT.flags.writeable:  # kernels are compiled for arrays that are
            self._XT = self._XT.copy()
        self._means = np.zeros(len(self._XT))
        if fit_intercept:  # columns far from zero would lose digits
            means = self._XT @ loss.weights
            near = np.abs(self._XT[:, :_ROWS] - means[:, None]).max(axis=1, initial=0.0)
            if (np.abs(means) > _FAR * near).any():
                self._XT, self._means = self._XT - means[:, None], means
        self.floor = 1e-2 if loss.flat else 0.0  # of curvatures, where they may vanish
        self._offset = np.empty(0) if loss.offset is None else loss.offset[:, 0].copy()
        self.begin(np.zeros((len(self._XT), 1)), loss.start() if fit_intercept else np.zeros(1))

    def begin(self, B, intercept):
        """Start from coefficients and an intercept."""
        n = len(self.loss.weights)
        self.B, self.c = np.array(B, np.float64, order="C"), np.array(intercept, np.float64)
        self._state = (
            np.empty((0, n)),
            np.empty((0, 0)),
            np.empty(0, np.int64),
            np.empty(0),
            np.full(n, np.nan),
        )
        if self.fit_intercept and B.any():  # that of centred columns
            self.c += self.loss.weights @ (self._XT.T @ B) + self._means @ B

    def intercept(self):
        """Intercept of X as it is."""
        return self.c - self._state[3] @ self.B[self._state[2]] - self._means @ self.B

    # Of the working set: see `Solver`

    @property
    def places(self):
        """Columns of the working set."""
        return self._state[2]

    @property
    def part(self):
        """These columns, less the means; shape (n, m)."""
        return self._state[0][: len(self.places)].T

    @property
    def products(self):
        """Products of the columns, of columns and the intercept, and of the intercept: of a squared loss."""
        m = len(self.places)
        return self._state[1][:m, :m], self.part.T @ self.loss.weights, 1.0

    @property
    def f(self):
        """Predictors."""
        return self._state[4][:, None]

    @f.setter
    def f(self, f):
        """Set predictors."""
        self._state = *self._state[:4], f[:, 0].copy()

    def state(self):
        """What `restore` takes: coefficients, intercept and predictors."""
        return self.B.copy(), self.c.copy(), self.f.copy()

    def restore(self, state):
        """Go back to a state; the working set stays."""
        B, c, self.f = state
        self.B, self.c = B.copy(), c.copy()

    def objective(self, penalty):
        """Loss plus penalty."""
        return self.loss.objective(self.f) + penalty.value(self.B)

    def descend(self, penalty, tol, *, few=False):
        """Minimise on the working set: see `Solver.descend`."""
        A, H, ids, _, f = self._state
        rows = A[: len(ids)], H, self.loss.code, self.loss.delta, self.loss.y[:, 0].copy(), self.loss.weights
        b, terms = self.B[ids, 0], (penalty.table[:, ids], penalty.gamma, penalty.kind)
        newton.minimise(*rows, f, b, self.c, *terms, self.fit_intercept, few, tol, self.floor)
        self.B[ids, 0] = b

    def null(self, penalty):
        """Fit the intercept and the free columns alone; return the units of gaps and of violations."""
        scales = np.array([np.nan, np.nan, self.loss.least()])
        self._call(penalty, True, 0.0, scales, self._memory(), 0)
        return scales[0], scales[1]

    def _memory(self):
        return np.array([np.inf, np.inf, np.inf, 0.0, self.floor, 0.0])

    def _call(self, penalty, convex, tol, scales, memory, n_rounds, ends=True):
        loss, figures = self.loss, np.empty((n_rounds, 3))
        rows = loss.y[:, 0].copy(), loss.weights, self._offset, loss.code, loss.delta
        terms = penalty.table, penalty.gamma, penalty.kind, self.fit_intercept, convex, tol, scales
        begun = self.B[:, 0], self.c, self._state, memory, n_rounds, ends, figures
        self._state, done, reason = kernels.solve(self._XT, *rows, *terms, *begun)
        return figures[:done], reason

    def solve(self, penalty, unit, first, *, tol, max_rounds, report=None):
        """See `Solver.solve`; the reason "large" asks another solver to go on, and nothing was reported."""
        convex = self.loss.has_conjugate and penalty.has_dual
        scales, memory = np.array([unit, first, 0.0]), self._memory()
        begun, max_rounds = (self.B.copy(), self.c.copy(), self._copied()), max(max_rounds, 2)
        figures, reason = self._call(penalty, convex, tol, scales, memory, max_rounds)
        if reason in (kernels.LARGE, kernels.STALLED):
            objective, gap, violation = figures[-1].tolist()
            return self.fit(objective, gap, len(figures), violation, _REASONS[reason])
        if self.is_watched:  # the same again, round by round
            (self.B, self.c, self._state), memory, reason = begun, self._memory(), kernels.RUNS
        rounds = 0
        while rounds < max_rounds:
            if self.is_watched:
                ends = rounds + 1 == max_rounds
                figures, reason = self._call(penalty, convex, tol, scales, memory, 1, ends)
            for objective, gap, violation in figures.tolist():
                rounds += 1
                if report is not None and report(rounds, objective, gap if convex else violation):
                    return self.fit(objective, gap, rounds, violation, "stopped")
            if reason != kernels.RUNS:
                break
        return self.fit(objective, gap, rounds, violation, _REASONS[reason])

    def _copied(self):
        """The state, whose predictors a call changes."""
        *rest, f = self._state
        return *rest, f.copy()

    def fit(self, objective, gap, rounds, violation=np.nan, reason="running"):
        """The solution as it is now."""
        return Fit(self.B.copy(), self.intercept(), objective, gap, violation, rounds, reason)
