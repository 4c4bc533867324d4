"""A working set of blocks and proximal Newton steps, for any loss and penalty.

A round computes the slopes of all columns, adds the blocks that break the optimality conditions most, and
solves the problem on the working set: the loss is replaced by its second-order model, the intercept and the
columns without penalty are eliminated from it, and `block_descent` minimises it, by products of columns or by
rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .....kernels.linear import class_newton, sparse_newton
from .block_descent import RowProducts, rows_are_cheaper, sparse_rows_are_cheaper
from .class_steps import minimise_classes, step_on_support
from .column_descent import ColumnDescent
from .second_order import (
    MatrixModel,
    RowModel,
    minimise_columns,
    minimise_likelihood,
    minimise_model,
    visited,
)

_NEWTON_STEPS = 50  # models of a loss on one working set; the tolerance ends them
_FEW = 10  # blocks that join at least
_PASS = 4  # columns of X, for each pair of columns of the working set, whose slopes cost as much
_ALMOST = 0.1  # of the blocks with coefficients: so few that join do not change much
_LEAN = 30  # columns of X, for each pair of the working set, that cost more than a further step on that
_ROUND = 4e6  # multiplications in products of columns that cost as much as the Python of a round
_SMALL = 2e5  # multiplications that cost less than the Python of a round
_TINY, _FURTHER = (
    5e3,
    1e-3,
)  # entries whose sweeps cost nearly nothing, and go on to this part of a violation
_FALL = 1e-12  # of an objective: what falls less is rounding
_SLOW = 1e-5  # of the gap: where an objective falls by less in a round, its end is far
_MOST_FREE = 32  # columns without penalty, beside which the others go by rows
_MOST_COMPILED = 500  # columns of a working set whose products are made, of a constant curvature
_MOST_REMADE = 20  # the same where each Newton step makes them anew
_COMPILED = (0, 1, 2, 3)  # penalties that those steps know: see `kernels.linear.blocks`
_MOST_COPIED = 2e6  # values of sparse columns that are made dense where descent by their entries is slow
_PATIENCE = 30, 4  # of descent by columns: see `sparse_newton.minimise`
_SAFE = 1e-10, 1e10  # norms of columns that models in float32 may have
_SHARE = 0.2  # of the columns, which join a working set of sparse ones where models change
# Parts of the gap to which a working set is solved by descent: while columns join, at the end, and of `tol`.
_INNER, _INNER_NEARLY, _LEAST_INNER = 0.1, 0.02, 0.3
_SLOPE = 16 * np.finfo(np.float64).eps  # rounding of a slope
_LEAST = 1e-14  # violations below this, in units of the first slopes, are rounding


@dataclass
class Fit:
    """A solution: coefficients of places, intercepts of X as it is, and how far from the optimum."""

    B: np.ndarray
    intercept: np.ndarray
    objective: float
    gap: float
    violation: float
    rounds: int
    reason: str


class Solver:
    """Solves for one penalty after the other, each from the solution before.

    `loss`: `MeanLoss` or alike, see `losses`. `blocks`: `Blocks`.
    """

    def __init__(self, columns, loss, blocks, *, fit_intercept):
        self.columns, self.loss, self.blocks, self.fit_intercept = columns, loss, blocks, fit_intercept
        self.K, self.is_multinomial = loss.n_outputs, getattr(loss, "code", None) == class_newton.MULTINOMIAL
        self.B = np.zeros((len(blocks.order), self.K))
        self.c = loss.start() if fit_intercept else np.zeros(self.K)  # of the shifted columns
        self.floor = 1e-2 if loss.flat else 0.0  # of curvatures, where they may vanish
        self.by_rows, self.expected = False, 0  # how models are solved, and columns that are expected
        self.is_slow = False  # descent by the entries of sparse columns
        self.eps: float | None = None  # the gap that is asked of the working set, if it is known
        self.is_hard = False  # products of columns, which depend on each other, have led to no solution
        self.known = self.last = None  # a predictor and slopes: of all columns, and its own
        # Columns at or above zero without a penalty, and norms: they must have no slope, but for rounding.
        self.doubtful: Any = None
        self._forget()
        self.f = self._predictor()

    # State --------------------------------------------------------------------------------------

    def _forget(self):
        self.inside = np.empty(0, np.int64)  # blocks of the working set
        self._within = np.zeros(len(self.blocks.sizes), bool)
        self.places, self.starts = np.empty(0, np.int64), np.zeros(1, np.int64)
        self.stack, self.shift = self.columns.stack(), np.zeros(0)
        self._part, self._to_come = None, [self.places]  # features that were not copied yet
        self.products = self.rows = self.descent = None  # of a loss of constant curvature
        self.model = None  # of other losses: products, and their places in the working set

    @property
    def part(self):
        """Columns of the working set. Sparse ones are copied when they are asked for: see `sparse_newton`."""
        if self._to_come:
            self._part = self.stack.add(self.columns.take(np.concatenate(self._to_come))[0])
            self._to_come = []
        return self._part

    def _predictor(self):
        b = self.B[self.places]
        f = self.columns.times(self.part, b) if b.any() else np.zeros((self.columns.n_samples, self.K))
        f = f + self.c
        return f if self.loss.offset is None else f + self.loss.offset

    def state(self):
        """What `restore` takes: places and their coefficients, intercepts of shifted columns, predictors."""
        return self.places, self.B[self.places], self.c, self.f

    def restore(self, state):
        """Go back to a state; its blocks join the working set."""
        places, b, self.c, self.f = state
        self.B[:] = 0
        self.B[places] = b
        self.grow(np.flatnonzero(np.bincount(self.blocks.block_of(), self.B.any(axis=1))))

    def begin(self, B, intercept):
        """Start from coefficients of places and an intercept."""
        self.B[:] = B
        self._forget()
        self.grow(np.flatnonzero(np.bincount(self.blocks.block_of(), B.any(axis=1))))
        self.c = intercept + self.shift @ self.B[self.places] if self.fit_intercept else self.c
        self.f = self._predictor()

    def intercept(self):
        """Intercepts of X as it is."""
        return self.c - self.shift @ self.B[self.places]

    def grow(self, blocks):
        """Let blocks join the working set."""
        blocks = blocks[~self._within[blocks]]
        if not len(blocks):
            return
        places, starts = self.blocks.places(blocks)
        features = self.blocks.order[places]
        if self.columns.csc is None:
            self._part, (more, shift) = self.part, self.columns.take(features)
            self._part = self.stack.add(more)
        else:
            self._to_come.append(features)
            shift = np.zeros(len(features))
        self._within[blocks] = True
        self.inside = np.concatenate([self.inside, blocks])
        self.starts = np.concatenate([self.starts, self.starts[-1] + starts[1:]])
        self.places, self.shift = np.concatenate([self.places, places]), np.concatenate([self.shift, shift])

    # The whole problem ---------------------------------------------------------------------------

    def slopes(self):
        """Minus the slopes of the loss at all places, and those of the predictors."""
        if self.known is None or self.known[0] is not self.f:
            u = self._gradient()
            if self.fit_intercept:
                u = self.loss.balanced(u)
            V = -self.blocks.spread(self.columns.all_slopes(u))
            if self.shift.any():  # columns far from zero lose digits where they are not centred
                V[self.places] = -self.columns.slopes(self.part, u)
            if self.doubtful is not None:
                places, sizes = self.doubtful
                bar = _SLOPE * sizes * np.sqrt(self.loss.weights @ (self.f**2 + self.loss.y**2))
                V[places] = np.where(np.abs(V[places]) <= bar, 0.0, V[places])
            self.known = self.f, V, u
        return self.known[1:]

    def _gradient(self):
        """Slopes of the predictors, kept as long as these are the same."""
        if self.last is None or self.last[0] is not self.f:
            self.last = self.f, self.loss.gradient(self.f)
        return self.last[1]

    def forget_slopes(self):
        """Compute slopes and models again: the loss has changed."""
        self.known = self.last = self.model = None

    def objective(self, penalty):
        """Loss, without smoothing, plus penalty."""
        return self.loss.objective(self.f) + penalty.value(self.B)

    def gap(self, penalty, V, u, objective):
        """Duality gap, NaN where none is known."""
        has_dual = self.loss.has_conjugate and penalty.has_dual
        return self._gap_of(u, objective, *penalty.judge(self.B, V, has_dual)[2:])

    def _gap_of(self, u, objective, scale, conjugate, rest):
        """The gap, from what a penalty says of the slopes: see `kernels.linear.blocks.judge`."""
        if np.isnan(scale):
            return np.nan
        return max(objective + self.loss.conjugate(u, scale, self.f) + conjugate, 0.0) + rest

    def null(self, penalty):
        """Fit the intercept and the free columns alone; return the excess of the loss, and the slopes."""
        self.grow(np.flatnonzero(penalty.free))
        self._newton(penalty, 1e-13 * self._size_of_slopes())
        return max(self.loss.objective(self.f) - self.loss.least(), 0.0), self.slopes()[0]

    def _size_of_slopes(self):
        return float(np.abs(self._gradient()).sum()) or 1.0

    def solve(self, penalty, unit, first, *, tol, max_rounds, report=None):
        """Minimise for a penalty. `unit` is that of the gap, `first` that of violations; both times `tol`.

        ``report(solver, round, objective, gap, violation)`` returns whether to end.
        """
        if len(self.inside) > 200 + 2 * np.count_nonzero(self._there()):
            self.begin(self.B.copy(), self.intercept())
        self.grow(np.flatnonzero(penalty.free))
        convex, smooth = self.loss.has_conjugate and penalty.has_dual, getattr(self.loss, "smoothing", None)
        if convex and self.loss.quadratic and self.doubtful is None and len(places := penalty.cones):
            part = self.columns.raw(places)
            squares = part.multiply(part) if self.columns.is_sparse else part**2
            self.doubtful = places, np.sqrt(squares.T @ self.loss.weights)[:, None]
            self.known = None
        # Products of so many columns with each other cost about what a pass over X does.
        least = max(_FEW, int(np.sqrt(_PASS * len(self.blocks.sizes) ** 2 / max(len(self.B), 1))))
        by_entries = False
        single = len(self.blocks.sizes) == len(self.blocks.order)
        if single and self._compiled(penalty):  # or what the Python of a round does
            by_entries = self.columns.is_sparse
            least = max(least, int(np.sqrt(_ROUND / self.columns.n_samples)))
            if by_entries and not self.loss.quadratic:
                least = max(least, int(_SHARE * len(self.B)))
        reason, aim, rounds, last, stuck, before = "max_rounds", np.inf, 0, np.inf, 0, np.inf
        candidates, asked = np.empty(0, np.intp), np.inf
        self.by_rows, self.expected, self.is_slow = False, 0, False
        max_rounds = max(max_rounds, 2)
        for rounds in range(1, max_rounds + 1):
            V, u = self.slopes()
            scores, cost, *dual = penalty.judge(self.B, V, convex)
            violation = max(float(scores.max(initial=0.0)), self._free_slope(self._gradient()))
            objective = self.loss.objective(self.f) + cost
            gap = self._gap_of(u, objective, *dual)
            figure, bar = (gap, tol * unit) if convex else (violation, tol * first)
            done = figure <= bar
            if convex and smooth is not None:  # a part of the gap is that of the smoothing
                left, slack = smooth(self.f)
                figure, bar = max(gap - left, 0.0), slack
                done = done or figure <= bar
            if report is not None and report(rounds, objective, gap if convex else violation):
                reason = "stopped"
                break
            if done:
                reason = "gap" if convex else "kkt"
                break
            # A gap may rest while columns join, or a bound of the curvature keeps steps short: it falls later
            resting = figure > 0.9 * last and violation <= 100 * aim and len(candidates) < _FEW
            falls = convex and objective < before - max(_FALL * abs(objective), _SLOW * gap)
            stuck = stuck + 1 if resting and not falls else 0
            last, before = min(last, figure), objective
            if violation <= _LEAST * first or stuck > 5:
                reason = "stalled"
                break
            if rounds == max_rounds:  # the last one only measures
                break
            outside = scores.copy()
            outside[self.inside] = 0
            # Sweeps measure each block when they visit it: of columns that depend on each other all is more.
            excess = max(float(scores[self.inside].max(initial=0.0)) / asked, 1.0)
            n_new = max(least, 2 * int(np.count_nonzero(self._there())))
            if np.count_nonzero(outside) > n_new:
                candidates = np.argpartition(-outside, n_new)[:n_new]
            else:
                candidates = np.flatnonzero(outside)
            candidates = candidates[outside[candidates] > 0]
            if rounds > 1:  # before, what breaks the conditions says little about the end
                self.expected = len(self.places) + int(self.blocks.sizes[outside > 0].sum())
            self.grow(np.sort(candidates))
            aim = min(aim, 0.3 * violation)
            if stuck:  # the working set may measure its violation otherwise, and have found nothing to do
                aim = min(aim, max(0.1 * aim, 0.01 * violation))
            if not convex:
                aim = max(aim, 0.3 * tol * first)
            goal = aim
            # Where the working set is all but complete, it is solved to the end at once.
            nearly = len(candidates) <= _ALMOST * np.count_nonzero(self._there())
            if by_entries:
                nearly &= 16 * self._entries() <= self.columns.size + 4e5
            else:
                nearly &= len(self.places) ** 2 <= _LEAN * self.columns.n_features
            last_step = nearly or not (len(candidates) or self.loss.quadratic)
            if convex and figure > 0 and (last_step or self._is_cheap()):
                # The gap falls as the violation, later as its square.
                goal = min(aim, np.sqrt(0.5 * bar / figure) * violation)
            if by_entries and self.loss.quadratic and self._entries() < _TINY:
                goal *= _FURTHER
            part = _INNER_NEARLY if nearly else _INNER
            self.eps = max(_LEAST_INNER * bar, part * figure)
            asked = max(goal / excess if self.loss.quadratic else goal, 0.1 * _LEAST * first)
            self._newton(penalty, asked)
        return Fit(
            self.B.copy(),
            self.intercept(),
            objective,
            gap,
            violation,
            rounds,
            reason,
        )

    def _is_cheap(self):
        """Whether sweeps over the working set cost less than a pass over X."""
        if not self.loss.quadratic or self.by_rows:
            return False
        csc = self.columns.is_sparse and self.products is None
        work = self._entries() if csc else len(self.places) ** 2
        return 40 * self.K * work < max(self.columns.size, _SMALL)

    def _entries(self):
        """Stored entries of the working set of sparse columns."""
        return self.columns.entries(self.blocks.order[self.places])

    def _there(self):
        """Blocks of the working set that have coefficients."""
        if not len(self.inside):
            return np.zeros(0, bool)
        return np.logical_or.reduceat(self.B[self.places].any(axis=1), self.starts[:-1])

    def _free_slope(self, u):
        return float(np.abs(u.sum(axis=0)).max()) if self.fit_intercept else 0.0

    # The working set ------------------------------------------------------------------------------

    def descend(self, penalty, tol, *, few=False):
        """Minimise on the working set, about to the violation `tol`; no other block joins.

        With `few` blocks get coefficients by and by, those first that break the conditions most: where the
        penalty is not convex, the end depends on it.
        """
        self.by_rows, self.expected = False, 0
        self.eps = None
        for _ in range(_NEWTON_STEPS if self.loss.quadratic else 1):
            if self._newton(penalty, tol, few=few):
                return

    def _newton(self, penalty, tol, *, few=False):
        """Minimise on the working set; return whether the optimality conditions are broken by at most `tol`.

        The model of a loss of constant curvature is the loss itself: it takes one step.
        """
        if not len(self.places) and self._free_slope(self._gradient()) <= tol:
            return True  # before anything is compiled
        if way := self._compiled(penalty):
            return self._newton_of_columns(way, penalty, tol, few)
        damping, value, last = self.floor, None, np.inf
        for turn in range(1 if self.loss.quadratic else _NEWTON_STEPS):
            u = self._gradient()
            g = self._slopes_inside(u)
            distances = penalty.distances_within(self.B, -g, self.places, self.inside, self.starts)
            violation = max(distances.max(initial=0.0), self._free_slope(u))
            if violation <= tol:
                return True
            # Of a loss whose products change, columns that are zero and stay there for now are left out.
            on = visited(distances, self._there() | penalty.free[self.inside], few)
            if on.all() or (self.loss.quadratic and not few):
                on = None
            inner = 0.5 * tol if self.loss.quadratic else max(0.1 * violation, 0.3 * tol)
            if violation**2 > tol * last:  # another step as good as the last would not be enough
                self.model = None
            last, kept = violation, self.model
            # The model of several classes is a bound, whose steps are short.
            exact = self._step_on_support(penalty, g, u.sum(axis=0)) if turn % 2 else None
            if exact is not None:
                step, dc = exact
                value = self._search(penalty, step, dc, value, damping)[-1]
                continue
            step, dc = self._step(penalty, on, g, u.sum(axis=0), damping, inner)
            if self.loss.quadratic:
                self.f = self.f + self.columns.times(self.part, step) + dc
                self.B[self.places] += step
                self.c = self.c + dc
                return False
            value = self.loss.value(self.f) + penalty.value(self.B) if value is None else value
            moved, shorter, value = self._search(penalty, step, dc, value, damping)
            if not moved and kept is not None and self.model is kept:
                self.model = None
                continue
            damping = shorter
            if self.loss.flat:
                damping = self.floor = min(max(damping, 1e-9), 1.0)
            if not moved:
                return True
        return False

    def _compiled(self, penalty):
        """Which compiled steps take the loss, the penalty and the columns of the working set, if any do.

        "products" of columns, or "entries": descent by these; or "classes" of a multinomial loss.
        """
        if self.K > 1:
            single = penalty.kind == 0 and len(self.blocks.sizes) == len(self.blocks.order)
            is_l1 = self.is_multinomial and single and not penalty.lam[penalty.allowed].any()
            return "classes" if is_l1 else None
        m, quadratic = len(self.places), self.loss.quadratic
        if getattr(self.loss, "code", None) is None or penalty.kind not in _COMPILED or m > len(self.inside):
            return None
        if self._descends(penalty):
            return "descent"
        by_entries = penalty.convex and not self.is_slow and (self.loss.by_rows or self.columns.is_sparse)
        most = _MOST_COMPILED if quadratic or not by_entries else _MOST_REMADE
        is_copied = self.is_slow and quadratic and self.columns.n_samples * m <= _MOST_COPIED
        is_dense = not self.columns.is_sparse or is_copied
        if is_dense and m <= most:
            return "products"
        if by_entries and quadratic and not self.columns.is_sparse:
            known = 0 if self.products is None else len(self.products[0])
            by_entries = rows_are_cheaper(self.columns.n_samples, max(m, self.expected), 1, n_known=known)
        return "entries" if by_entries else None

    def _descends(self, penalty):
        """Whether the columns are many, dense and without a free one, of least squares with an l1 penalty."""
        m = len(self.places)
        if not (self.loss.quadratic and penalty.kind == 0) or self.columns.is_sparse or self.eps is None:
            return False
        if m <= _MOST_COMPILED and not self.is_hard:
            return False
        low, high = penalty.low, penalty.high
        signs = (low == low[0]).all() and low[0] in (0, -np.inf) and (high == np.inf).all()
        return signs and not (penalty.lam + penalty.l1 == 0).any()

    def _descend_columns(self, penalty):
        """See `_newton`: by `column_descent`."""
        loss, inside, b = self.loss, self.inside, self.B[self.places, 0]
        if self.descent is None:
            self.descent = ColumnDescent(np.sqrt(loss.weights))
        ridge = np.zeros(len(b)) if penalty.ridge is None else penalty.ridge[self.places]
        terms = (penalty.lam + penalty.l1)[inside], ridge, bool(penalty.low[0] == 0)
        V, self.products = self.slopes()[0][self.places, 0], None
        change = self.descent.minimise(self.part, (loss.y - self.f)[:, 0], V, b, terms, self.eps)
        f, self.B[self.places, 0] = self.f + change[:, None], b
        dc = -loss.gradient(f).sum() if self.fit_intercept else 0.0
        self.f, self.c = f + dc, self.c + dc
        return True

    def _newton_of_columns(self, way, penalty, tol, few):
        """See `_newton`: of single columns, in one call."""
        if way == "classes":
            return self._newton_of_classes(penalty, tol)
        if way == "descent":
            return self._descend_columns(penalty)
        loss, b, P = self.loss, self.B[self.places, 0], penalty.table.take(self.inside, axis=1)
        if way == "products":
            products = self._model(0.0, self.part, slice(None)) if loss.quadratic else None
            terms = P, penalty.gamma, penalty.kind, self.fit_intercept, few, tol, self.floor
            part = self.part.toarray(order="F") if self.columns.is_sparse else self.part
            self.f, b, self.c, self.floor = minimise_columns(
                part.T, products, loss, self.f, b, self.c, *terms
            )
        else:
            self.products = None
            X, A, ids, kind = self._entries_of_columns()
            if loss.by_rows:
                f, c = self.f[:, 0].copy(), self.c.copy()
                rows = loss.code, loss.delta, loss.y[:, 0], loss.weights, f, b, c
                terms = P, self.fit_intercept, tol, self.floor, _PATIENCE, *loss.at(self.f)
                floor, fast = sparse_newton.minimise(X, A, ids, *rows, *terms, np.empty(len(f) + 1, kind))
                self.f, self.c, self.floor = f[:, None], c, floor if loss.flat else 0.0
            else:
                rules = P, penalty.gamma, penalty.kind, few, tol, _PATIENCE
                self.f, b, fast = minimise_likelihood(X, ids, loss, self.f, b, *rules)
            self.is_slow = not fast
        self.B[self.places, 0] = b
        return True

    def _entries_of_columns(self):
        """The columns of the working set, as `sparse_newton.minimise` takes them.

        A matrix, another for models, where they have these columns, and the type of the other.
        """
        if self.columns.csc is not None:
            return self.columns.csc, self.columns.csc, self.blocks.order[self.places], np.float64
        A: Any = self.part
        ids = np.arange(A.shape[1])
        if self.columns.is_sparse:
            A = A.data, A.indices, A.indptr.astype(np.int64)
            return A, A, ids, np.float64
        with np.errstate(over="ignore"):
            single = A.T.astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", single, single))
        if not self.loss.quadratic and not ((norms < _SAFE[0]) | (norms > _SAFE[1])).any():
            return A.T, single, ids, np.float32
        return A.T, A.T, ids, np.float64

    def _newton_of_classes(self, penalty, tol):
        """See `_newton`: of single columns and several classes, in one call."""
        columns, P = self._entries_of_columns(), penalty.table.take(self.inside, axis=1)
        b = np.ascontiguousarray(self.B[self.places].T)
        self._minimise_classes(columns, b, P, tol)
        self.B[self.places] = b.T
        return True

    def fit_intercepts(self):
        """Minimise over the intercepts of several classes alone."""
        X, A, ids, kind = self._entries_of_columns()
        if not self.columns.is_sparse:
            X, A = X[:0], A[:0]
        none = np.empty((self.K, 0)), np.empty((5, 0)), 1e-13 * self._size_of_slopes()
        self._minimise_classes((X, A, ids[:0], kind), *none)

    def _minimise_classes(self, columns, b, P, tol):
        loss, c, f = self.loss, self.c.copy(), self.f.T.copy()
        minimise_classes(columns, loss.shares, loss.weights, f, b, c, P, self.fit_intercept, tol)
        self.f, self.c = f.T, c

    def _slopes_inside(self, u):
        """Slopes of the loss at the working set; those of all columns may be known."""
        if self.known is not None and self.known[0] is self.f and not self.fit_intercept:
            return -self.known[1][self.places]
        return self.columns.slopes(self.part, u)

    def _step(self, penalty, visited, g, g0, damping, tol):
        """Minimise the second-order model plus penalty: the changes of coefficients and intercepts.

        `visited`: which blocks of the working set move; None: all. `g`, `g0`: slopes of the loss.
        """
        blocks, starts, part, b = self.inside, self.starts, self.part, self.B[self.places]
        if visited is None:
            on: Any = slice(None)
        else:
            sizes = np.diff(starts)
            on = np.flatnonzero(np.repeat(visited, sizes))
            blocks, g, b = blocks[visited], g[on], b[on]
            part = part[:, on] if self.columns.is_sparse else np.asfortranarray(part[:, on])
            starts = np.concatenate([[0], np.cumsum(sizes[visited])])
        most = 20_000 if self.loss.quadratic else 500
        free = penalty.free[blocks]
        by_rows = self._take_rows(penalty, free, part, damping)
        if by_rows and not (self.columns.is_sparse or (self.loss.quadratic and visited is not None)):
            new, dc = self._by_row_sweeps(penalty, part, damping, g, g0, b, blocks, starts, tol, most)
        else:
            if penalty.ridge is not None:
                g = g + penalty.ridge[self.places][on, None] * b
            model = self._second_order(penalty, part, on, damping, by_rows)
            new, dc = minimise_model(model, g, g0, b, blocks, starts, free, penalty, tol, most)
        step = np.zeros((len(self.places), self.K))
        step[on] = new - b
        return step, dc

    def _step_on_support(self, penalty, g, g0):
        """See `class_steps.step_on_support`; None for other losses and penalties."""
        if not self.is_multinomial or penalty.kind != 0:
            return None
        block = np.repeat(np.arange(len(self.inside)), np.diff(self.starts))
        terms = penalty.table[:, self.inside[block]]
        p = self.loss.loss.mean(self.f).T
        g0 = g0 if self.fit_intercept else None
        b = self.B[self.places]
        return step_on_support(self.part, p, self.loss.weights, b, g, g0, terms, block)

    def _second_order(self, penalty, part, on, damping, by_rows):
        """The model of the loss and the ridge on the columns of `part`, which are at `on`, damped."""
        model: Any
        if by_rows:
            self.products = None
            h = self.loss.curvature(self.f, damping if self.loss.flat else 0.0)
            model = RowModel(part, h, True if self.fit_intercept else None)
        else:
            model = MatrixModel(*self._model(damping, part, on))
        if not self.fit_intercept:
            model.ones = None
        damping = 0.0 if self.loss.flat else damping  # of flat losses it is in the curvature
        if penalty.ridge is None and not damping:
            return model
        ridge = 0.0 if penalty.ridge is None else penalty.ridge[self.places][on]
        return model.with_ridge(damping * model.diagonal() + (1 + damping) * ridge, damping)

    def _take_rows(self, penalty, free, part, damping):
        """Whether the model is solved by the rows of the columns, not by their products."""
        n_columns = part.shape[1]
        if self.columns.is_sparse:
            if not (self.loss.by_rows and penalty.by_rows) or np.count_nonzero(free) > _MOST_FREE:
                return False
            part = self.part if self.loss.quadratic else part  # whose products are made once
            size = self.columns.n_samples, part.shape[1], part.nnz, self.K
            return sparse_rows_are_cheaper(*size, convex=penalty.convex)
        needs_matrix = (damping and not self.loss.flat) or penalty.ridge is not None or free.any()
        if needs_matrix or not (self.loss.by_rows and penalty.by_rows):
            return False
        if not (self.by_rows and self.loss.quadratic):  # then products would come too late
            known = 0
            if self.loss.quadratic:
                h, weights = self.loss.curvature(self.f), self.loss.weights
                if self.fit_intercept and (h != weights * (h.sum() / weights.sum())).any():
                    return False  # the columns are centred with other weights
                known = 0 if self.products is None else len(self.products[0])
                n_columns = max(n_columns, self.expected)
            options = {"n_known": known, "convex": penalty.convex}
            self.by_rows = rows_are_cheaper(self.columns.n_samples, n_columns, self.K, **options)
        return self.by_rows

    def _by_row_sweeps(self, penalty, part, damping, g, g0, b, blocks, starts, tol, most):
        """See `_step`; the columns lose what the intercept takes up: their means, with the weights h."""
        new = b.copy()
        if self.loss.quadratic:
            self.products = None
            if self.rows is None:
                self.rows = RowProducts(part, self.loss.curvature(self.f), starts)
            elif len(self.rows.own) < starts[-1]:
                self.rows.grow(part, starts)
            penalty.descend(self.rows, g, new, blocks, starts, tol, most)
            return new, -g0 / self.rows.D.sum() if self.fit_intercept else np.zeros(self.K)
        h = self.loss.curvature(self.f, damping if self.loss.flat else 0.0)
        total = h.sum()
        if self.fit_intercept:
            means = self.columns.slopes(part, h) / total
            part, g = np.asfortranarray(part - means), g - means[:, None] * g0
        penalty.descend(RowProducts(part, h, starts), g, new, blocks, starts, tol, most)
        dc = -g0 / total - means @ (new - b) if self.fit_intercept else np.zeros(self.K)
        return new, dc

    def _make_products(self):
        """Products of the working set, for a loss of constant curvature, from those of the columns before."""
        if self.products is None:
            self.products = self.loss.gram(self.f, self.columns, self.part, True)
        (H, ones, total), m = self.products, len(self.products[0])
        if m < len(self.places):
            h, more = self.loss.curvature(self.f), self.part[:, m:]
            cross = self.columns.cross(self.part[:, :m], more, h)
            H = np.block([[H, cross], [cross.T, self.columns.gram(more, h)]])
            self.products = H, np.concatenate([ones, self.columns.slopes(more, h)]), total

    def _search(self, penalty, step, dc, before, damping):
        """Go along a step while the objective falls; return whether it did, damping and objective."""
        old, c, f = self.B[self.places].copy(), self.c.copy(), self.f
        df = self.columns.times(self.part, step) + dc
        t = 1.0
        for _ in range(12):
            self.B[self.places], self.c, self.f = old + t * step, c + t * dc, f + t * df
            value = self.loss.value(self.f) + penalty.value(self.B)
            if value < before:
                if t == 1.0:
                    return True, damping / 4 if damping > 1e-4 or self.loss.flat else 0.0, value
                return True, max(4 * damping, 1e-3) if t < 0.1 else damping, value
            if (
                value <= before + 1e-14 * abs(before) and t == 1.0
            ):  # rounding: the step may still bring slopes down
                return bool(np.any(step)) or bool(np.any(dc)), damping, min(value, before)
            t /= 2
        self.B[self.places], self.c, self.f = old, c, f
        return damping < (1.0 if self.loss.flat else 1e6), max(10 * damping, 1e-2), before

    def _model(self, floor, part, on):
        """Products of the columns of `part`, which are at `on`: see `mean_loss.MeanLoss.gram`.

        Those of a loss of constant curvature are made once; those of others serve until steps gain little.
        """
        places = np.arange(len(self.places))[on]
        if self.loss.quadratic:
            self._make_products()
            return _restricted(self.products, np.arange(len(self.places)), places)
        if self.loss.flat:
            return self.loss.gram(self.f, self.columns, part, self.fit_intercept, floor)
        if self.model is not None and not floor:
            products, known = self.model
            found = _restricted(products, known, places)
            if found is not None:
                return found
        products = self.loss.gram(self.f, self.columns, part, self.fit_intercept)
        self.model = products, places
        return products


def _restricted(products, known, places):
    """Products between some places, of those between known ones; None if one is not known. Both rise."""
    if len(known) == len(places):
        return products if (known == places).all() else None
    at = np.searchsorted(known, places)
    if len(at) and (at[-1] >= len(known) or (known[at] != places).any()):
        return None
    H, ones, total = products
    return H[np.ix_(at, at)], None if ones is None else ones[at], total
