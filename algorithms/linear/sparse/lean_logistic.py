"""Two classes with an l1 penalty where X is small: Newton steps over all columns, without a working set.

A round of `WorkingSet` and its engine takes longer than a whole step here. The columns are

- few and dense: compiled steps with the whole Hessian (`kernels.linear.small_smooth`), or
- sparse and of few entries: descent on the quadratic model of the loss (`kernels.linear.weighted_descent`),
  and a line search. Yuan, Ho, Lin, "An improved GLMNET for L1-regularized logistic regression", JMLR 2012.

Steps end when the duality gap of the whole problem (see `proximal_newton`) is at most `tol` times the loss
of the model without columns. Where descent is slow, because columns correlate, or rounding ends the steps
before, nothing is returned: the caller then takes the working set.
"""

import functools
import time
from typing import Any

import numpy as np
from scipy import sparse

from ....kernels.linear.columns import csc_add, csc_dot
from ....kernels.linear.glm_losses import LOGISTIC
from ....kernels.linear.small_smooth import STUCK, newton_step
from ....kernels.linear.weighted_descent import csc_descent
from ....scheduler.history import History, Run
from ....scheduler.loop import report_rounds
from ....scheduler.threads import single_threaded_blas
from .. import rules
from ..subproblems.copies import row_index_type
from .class_losses import LogisticLoss
from .duality import smooth_gap
from .working_set import Solution

_STEPS = 40  # at most; a problem that needs more goes to the working set
_SWEEPS, _SUPPORT_SWEEPS = 10, 5  # of descent in a step; where these do not suffice, columns correlate
_DIRECTION = 0.01  # a model is solved when changes (squared) are this part of the first ones
_ARMIJO, _SLACK, _HALVINGS = 1e-3, 1e-14, 30
_STALLED = 3  # steps in a row that lower nothing
_LARGEST = 1e300  # for thresholds of excluded columns
_TILT = 0.5  # of predictors: how far the intercept may be from its best value where a gap is known
_ROUNDING = 1e-13  # of a sum of probabilities a row
_NEARLY = 10.0  # what a step promised, in units of the gap asked for, from which on the gap is computed


def applies(design, penalty, n_classes, offset, start):
    """Whether a problem is small, of two classes, and each of its columns penalised."""
    plain = design.cut is None and design.engine == "local" and not design.positive
    if not plain or n_classes != 2 or offset is not None or start is not None:
        return False
    if len(penalty.unpenalised(design.n_features)) and penalty.ridge == 0:
        return False
    if design.l1_factors is not None and not (design.l1_factors > 0).all():
        return False
    X = design.X
    if sparse.issparse(X):
        most = rules.SMALL_SPARSE_LOGISTIC
        if X.shape[1] > most.columns or X.nnz > most.stored:
            return False
        # A full column may be constant or far from zero, and stands in the way of the intercept, uncentred.
        return not design.fit_intercept or int(np.diff(X.indptr).max(initial=0)) < X.shape[0]
    return rules.SMALL_SMOOTH.hold(X.shape[0], X.shape[1] + 1)


def solve_lean(design, labels, penalty, *, tol, max_iter, unit=1.0, read=None, **shown):
    """Minimise; return a `Solution` and a `Run`, as `fitting.solve`, or None.

    `labels`: int (n_rows,), of 0 and 1. `tol`: relative gap. `max_iter`: most passes over X. `unit`: the
    history's objective is so many times the mean over the rows. `read`: see `fitting.solve`. `shown`: label,
    verbose and callback of `report_rounds`.
    """
    began = time.perf_counter()
    steps: Any = _SparseSteps if sparse.issparse(design.X) else _DenseSteps
    with single_threaded_blas():
        state = steps(design, labels, penalty)
        if not state.nothing > 0:  # all rows with weight are of one class
            return None
        asked, gap, solutions, read_at = tol * state.nothing, np.inf, [], [began]
        for rounds in range(1, min(_STEPS, max_iter) + 1):
            objective = state.measure()
            if rounds == 1 or state.decrement <= _NEARLY * asked:
                gap = state.gap()
            b, c = state.coefficients()
            features = np.flatnonzero(b)
            model = penalty.strength, features, b[features], c
            figures = objective / state.n_rows, gap / state.nothing, gap / state.n_rows
            solutions.append(Solution(*model, *figures, rounds, state.visits, "gap"))
            read_at.append(time.perf_counter())
            if gap <= asked:
                break
            if not state.step(asked):
                return None
        else:
            return None
    visits = np.diff([0, *(solution.updates for solution in solutions)]).tolist()
    history = History()
    ended = report_rounds(
        history,
        [
            {
                "figures": {"objective": unit * solution.objective, "updates": n, "seconds": seconds},
                "gap": solution.gap,
                "snapshot": read and functools.partial(read, solution, history),
            }
            for solution, n, seconds in zip(solutions, visits, np.diff(read_at).tolist(), strict=True)
        ],
        **shown,
    )
    return solutions[len(history) - 1], Run(history, len(history), "callback" if ended else "gap")


class _Steps:
    """What both kinds of steps share: the loss, the penalty, and the gap at a predictor F (n_rows,)."""

    def __init__(self, design, labels, penalty):
        self.n_rows, self.p = design.X.shape
        self.loss, self.intercept = LogisticLoss(labels, design.weights), bool(design.fit_intercept)
        kept = np.arange(self.p)
        if design.l1_factors is not None:  # the others are excluded
            kept = np.flatnonzero(np.isfinite(design.l1_factors))
        self.l1, self.l2 = np.full(self.p, _LARGEST), np.zeros(self.p)
        self.l1[kept] = np.minimum(penalty.thresholds(kept), _LARGEST)
        self.l2[kept] = np.minimum(penalty.ridges(kept), _LARGEST)
        self.visits, self.nothing, self.decrement = 0, self._nothing(), np.inf
        self._stalled = 0

    def present(self):
        """Return coefficients, loss and shares."""
        raise NotImplementedError(f"{type(self).__name__} must say where it is")

    def products(self, v):
        """Return the slopes of the columns, for a vector of the rows."""
        raise NotImplementedError(f"{type(self).__name__} must multiply its columns")

    def _nothing(self):
        """The loss of the model without columns."""
        weights, positive = self.loss.weights, self.loss.signs > 0
        total, part = float(weights.sum()), float(weights[positive].sum())
        if not self.intercept:
            return total * float(np.log(2))
        shares = np.array([part, total - part])
        return float(-(shares * np.log(np.maximum(shares, np.finfo(float).tiny) / total)).sum())

    def measure(self):
        """Take in the present coefficients; return the objective."""
        self.b, self.value, self.shares = self.present()
        return self.value + self._charge(self.b)

    def gap(self):
        """The duality gap; infinite where the intercept is far from its best value."""
        shares, V = self.shares, self.loss.residual(self.shares)
        if self.intercept:
            curvature = float(self.loss.curvature(shares, 0).sum())
            move = float(V.sum()) / curvature if curvature > 0 else np.inf
            if abs(move) > _TILT:
                return np.inf
            shares = np.clip(self.loss.tilt(shares, np.full((1, self.n_rows), move)), 0.0, 1.0)
            V = self.loss.residual(shares)
            if abs(V.sum()) > _ROUNDING * self.n_rows:
                return np.inf

        def dual(s):
            return self.loss.dual(shares, s)

        return smooth_gap(self.value, dual, self.products(V[0]), self.b, self.l1, self.l2, 1.0)[1]

    def _falls(self, there, before):
        """Whether steps go on: near the end rounding hides that the objective falls, but the gap does."""
        self._stalled = self._stalled + 1 if there >= before else 0
        return self._stalled < _STALLED

    def _charge(self, b):
        sizes = np.abs(b)
        return float((sizes * (self.l1 + 0.5 * self.l2 * sizes)).sum())


class _DenseSteps(_Steps):
    """Few dense columns, less their means where there is an intercept."""

    def __init__(self, design, labels, penalty):
        super().__init__(design, labels, penalty)
        n, p = design.X.shape
        X = design.X.astype(np.float64, copy=False)
        self.means = np.average(X, axis=0, weights=design.weights) if self.intercept else np.zeros(p)
        m = p + self.intercept
        self.XT = np.ones((m, n))
        np.subtract(X.T, self.means[:, None], out=self.XT[:p])
        self.x = np.zeros(m)
        if self.intercept:
            self.x[-1] = _log_odds(self.loss)
        none = np.zeros(m - p)
        self._penalties = [np.concatenate([part / n, none]) for part in (self.l1, self.l2)]
        self._work = [
            np.empty((m, m)),
            np.empty((m, m)),
            np.empty((5, m)),
            np.empty((6, n)),
            np.empty(m, np.int64),
        ]
        self._figures = np.full(3, np.inf)

    def present(self):
        """Coefficients; loss and shares."""
        return self.x[: self.p], *self.loss.shares((self.x @ self.XT)[None])

    def products(self, v):
        """Slopes of the columns."""
        return self.XT[: self.p] @ v

    def step(self, asked):
        """Take one; False where that is not possible."""
        y, weights = self.loss.signs, self.loss.weights
        before = self._figures[0]
        status = newton_step(
            LOGISTIC, self.XT, y, weights, *self._penalties, 0.0, 0.0, self.x, *self._work, self._figures
        )
        self.visits += len(self.x)
        self.decrement = self.n_rows * self._figures[1]
        return status != STUCK and self._falls(self._figures[0], before)

    def coefficients(self):
        """Coefficients and intercept of the columns as they are."""
        b = self.x[: self.p]
        return b, float(self.x[-1] - b @ self.means) if self.intercept else 0.0


class _SparseSteps(_Steps):
    """Sparse columns, and a last one of ones for the intercept."""

    def __init__(self, design, labels, penalty):
        super().__init__(design, labels, penalty)
        X, n = design.X, self.n_rows
        data, indices, indptr = X.data.astype(np.float64, copy=False), X.indices, X.indptr.astype(np.int64)
        if self.intercept:
            data, indices = np.append(data, np.ones(n)), np.append(indices, np.arange(n))
            indptr = np.append(indptr, indptr[-1] + n)
        self.X = data, indices.astype(row_index_type(n), copy=False), indptr
        m = len(indptr) - 1
        none = np.zeros(m - self.p)
        self._l1, self._l2 = np.append(self.l1, none), np.append(self.l2, none)
        self._every, self._free = np.arange(m), np.zeros(m, bool)
        self.x, self.F = np.zeros(m), np.zeros(n)
        if self.intercept:
            self.x[-1] = _log_odds(self.loss)
            self.F += self.x[-1]
        self._known: Any = self.loss.shares(self.F[None])

    def present(self):
        """Coefficients; loss and shares."""
        return self.x[: self.p], *self._known

    def products(self, v):
        """Slopes of the columns."""
        return self._slopes(v)[: self.p]

    def _slopes(self, v):
        out = np.empty((1, len(self._every)))
        csc_dot(*self.X, self._every, v[None], out)
        return out[0]

    def step(self, asked):
        """Take one; False where descent is slow, or nothing falls."""
        b, charge = self.x.copy(), self._charge(self.b)
        before = self.value + charge
        slopes = self._slopes(self.loss.residual(self.shares)[0])
        h, q, D = np.full(len(b), -1.0), np.zeros(self.n_rows), self.loss.curvature(self.shares, 0)
        first, last, visits = csc_descent(
            *self.X, self._every, slopes, h, b, q, D, self._l1, self._l2, self._free,
            _SWEEPS, _SUPPORT_SWEEPS, _DIRECTION, 0.0,
        )  # fmt: skip
        self.visits += visits
        if last > _DIRECTION * first and last > asked:
            return False
        d = b - self.x
        chosen = np.flatnonzero(d)
        moved = np.zeros(self.n_rows)
        csc_add(*self.X, chosen, d[chosen], moved)
        promised = self._charge(b[: self.p]) - charge - float(slopes @ d)
        self.decrement = -promised - 0.5 * float(q @ moved)
        t = 1.0
        for _ in range(_HALVINGS):
            b, F = self.x + t * d, self.F + t * moved
            value, shares = self.loss.shares(F[None])
            there = value + self._charge(b[: self.p])
            if there <= before + _ARMIJO * t * promised + _SLACK * abs(before):
                self._known = value, shares
                self.x, self.F = b, F
                return self._falls(there, before)
            t *= 0.5
        return False

    def coefficients(self):
        """Coefficients and intercept."""
        return self.x[: self.p], float(self.x[-1]) if self.intercept else 0.0


def _log_odds(loss):
    """The intercept of the model without columns; 0 where only one class has weight."""
    part = float(loss.weights[loss.signs > 0].sum())
    rest = float(loss.weights.sum()) - part
    return float(np.log(part / rest)) if part > 0 and rest > 0 else 0.0
