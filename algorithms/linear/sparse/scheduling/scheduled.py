r"""Lasso and elastic net by scheduled parallel coordinate descent, as in STRADS.

For rows of weights w_i::

    P(b) = sum_i w_i (y_i - x_i b - b0)^2 / 2 + sum_j l1_j |b_j| + sum_j l2_j b_j^2 / 2

A shard is a range of rows with its part of the residual r; a block is a coefficient. In a round the
schedule names U coefficients; each shard returns its part of ``s_j = x_j . w r`` (push); the coordinator adds
the parts up and steps to the minimum along each coordinate (pull)::

    b_j <- soft(s_j + c_j b_j, l1_j) / (c_j + l2_j),     c_j = sum_i w_i (x_ij - mean_j)^2

and the shards take the changes into their residuals (sync). The intercept is implicit: r keeps
``sum_i w_i r_i = 0``, so that X is neither centred nor made dense.

All U steps are taken from one residual. Where columns are correlated they overshoot together, and beyond
about ``p / lambda_max(X^T X)`` of them the descent diverges (Shotgun, below). The dynamic schedule takes
only pairs with ``|corr(x_j, x_k)| < rho`` into one set. Should the objective rise all the same, steps are
shortened from then on by ``1 + (U - 1) rho``, which bounds the largest eigenvalue of the set's correlations
(Gershgorin): then every round descends.

It ships as an option only (``schedule="dynamic"``). On one machine the working-set solver of this folder
is faster by orders of magnitude, and between machines it needs some ten rounds where this needs thousands.
It is for problems that have no small working set, and it is the worked example of a program with a
dynamic schedule.

References
----------
Kim, Ho, Lee, Zheng, Dai, Gibson, Xing, "STRADS: a distributed framework for scheduled model parallel machine
learning", EuroSys 2016.

Bradley, Kyrola, Bickson, Guestrin, "Parallel coordinate descent for L1-regularized loss minimization",
ICML 2011.
"""

import numpy as np
from scipy import sparse

from .....errors import DataError, ModelFileError, shortened
from .....kernels.linear import column_moments
from .....kernels.linear import columns as linear_columns
from .....scheduler.parameters import check_count
from .....scheduler.program import Outcome, Program
from .....scheduler.schedules.dynamic import DynamicSchedule
from ..columns import CONSTANT, columns_of
from ..duality import limit, squared_gap

_DIVERGED = 1e6  # times the objective at the start
_NOISE = 1e-9  # a rise of the objective by this part is rounding


def scheduled_elastic_net(
    X,
    y,
    l1,
    l2=0.0,
    *,
    size=32,
    rho=0.3,
    tol=1e-4,
    fit_intercept=True,
    sample_weight=None,
    positive=False,
    coef=None,
    n_shards=1,
    eta=1.0,
    oversample=4,
    n_schedulers=1,
    lookahead=0,
    random_state=None,
):
    """Make the program and the dynamic schedule of a Lasso or an elastic net.

    Run them with ``run(program, schedule, stop=program.stop, max_rounds=...)``; then `program` has `coef`,
    `intercept` and the duality gap `gap`. The schedule compares columns of X, which must be in this process.
    `size`: U, the most coefficients updated at a time. `rho`: columns of a set have absolute correlations
    below it, above 0, at most 1. Others: see `ScheduledElasticNet` and `stradask.scheduler.DynamicSchedule`.
    """
    program = ScheduledElasticNet(
        X,
        y,
        l1,
        l2,
        size=size,
        rho=rho,
        tol=tol,
        fit_intercept=fit_intercept,
        sample_weight=sample_weight,
        positive=positive,
        coef=coef,
        n_shards=n_shards,
    )
    schedule = DynamicSchedule(
        program.n_blocks,
        size=size,
        n_shards=len(program.shards),
        eta=eta,
        conflicts=Correlated(X, rho, sample_weight, centred=fit_intercept),
        oversample=oversample,
        n_schedulers=min(n_schedulers, program.n_blocks),
        lookahead=lookahead,
        random_state=random_state,
    )
    return program, schedule


class ScheduledElasticNet(Program):
    """The program: coefficients are blocks, ranges of rows are shards.

    Any schedule that gives all shards one set of blocks will do; with a static or random one, `rho` must be
    None. Bits depend on the number of shards, not of threads.

    A shard holds its rows of X (shared where there is one shard and X is in Fortran order or CSC, else copied
    once), 8 bytes a row besides its part of `y` and the weights, and 16 a column; the coordinator holds 32 a
    column. Messages of a round carry ``24 U`` bytes up and at most ``16 U`` down for each shard; every
    `measure_every` rounds residuals are computed anew, and ``8 p`` more bytes go up for the duality gap.

    `X`: Fortran-ordered ndarray or CSC, checked. `l1`, `l2`: float or float64 (p,), in units of the unscaled
    loss, ``sum(w) * alpha * l1_ratio * factors`` and ``sum(w) * alpha * (1 - l1_ratio) * factors``; no column
    may have 0 in both. `size`: U; the gap is measured every ``p / U`` rounds. `rho`: bound on the
    correlations in a set. `tol`: `stop` ends the run when the gap is at most this part of `scale`, the
    objective at b = 0. `primal` and `gap` are those measured last; infinite before, `primal` only if `coef`
    was given.
    """

    saved = ("residual",)
    unit = "coordinate"

    def __init__(
        self,
        X,
        y,
        l1,
        l2=0.0,
        *,
        size=32,
        rho=None,
        tol=1e-4,
        fit_intercept=True,
        sample_weight=None,
        positive=False,
        coef=None,
        n_shards=1,
    ):
        n, p = X.shape
        if rho is not None:
            _check_rho(rho)
        columns_of(X)  # refuses what is neither dense in Fortran order nor CSC
        self.n_blocks = p
        self.l1, self.l2 = _per_column("l1", l1, p), _per_column("l2", l2, p)
        free = np.flatnonzero((self.l1 == 0) & (self.l2 == 0))
        if len(free):
            raise DataError(
                f"the dynamic schedule needs a penalty on every column, but column {free[0]} has none: its "
                "gap would never close; take schedule='auto'"
            )
        self.rho, self.tol, self.positive, self.fit_intercept = rho, tol, positive, fit_intercept
        self.measure_every = -(-p // check_count("size", size))
        self.weights = np.ones(n) if sample_weight is None else sample_weight
        self.total = float(self.weights.sum())
        self.y_mean = float(self.weights @ y) / self.total if fit_intercept else 0.0
        self.scale = 0.5 * float(self.weights @ (y - self.y_mean) ** 2)
        self.coef = np.zeros(p) if coef is None else np.array(coef, np.float64)
        self.means = np.zeros(p)
        self.shards = [
            (X[a:b] if n_shards > 1 else X, y[a:b], self.weights[a:b]) for a, b in _cut(X, n_shards)
        ]
        self.primal, self.gap = (self.scale if coef is None else np.inf), np.inf
        self._ceiling = _DIVERGED * self.scale
        self._shortens = False
        self._begin()

    def _begin(self):
        """Set the message for loaded shards: coefficients other than zero, and the intercept."""
        ids = np.flatnonzero(self.coef)
        if self.fit_intercept and len(ids):
            for X, _, weights in self.shards:
                self.means[ids] += columns_of(_by_columns(X[:, ids])).dot(np.arange(len(ids)), weights[None])[
                    0
                ]
            self.means[ids] /= self.total
        self.start = (ids, self.coef[ids], self.intercept)

    @property
    def intercept(self):
        """The intercept that belongs to the coefficients; 0 without one."""
        return self.y_mean - float(self.means @ self.coef)

    def __getstate__(self):
        """Pickle without anything of the size of X, y or the model."""
        return {**self.__dict__, "shards": (), **dict.fromkeys(("weights", "coef", "means", "l1", "l2"))}

    # On the worker of a shard ---------------------------------------------------------------------------

    def load(self, data):
        """State of a shard: its columns, targets, weights, sums over its rows, and its residual."""
        X, y, weights = data
        columns = columns_of(_by_columns(X))
        sums, squares = np.empty((2, columns.shape[1]))
        if columns.is_sparse:
            column_moments.csc_moments(columns.data, columns.indices, columns.indptr, weights, sums, squares)
        else:
            column_moments.dense_moments(columns.X.T, weights, sums, squares)
        return self.renew({"columns": columns, "y": y, "weights": weights, "sums": sums, "squares": squares})

    def renew(self, state):
        """Make the residual of the coefficients to start from."""
        state = {**state, "residual": np.empty(len(state["y"]))}
        self.sync(state, (True, *self.start))
        return state

    def sync(self, state, message):
        """Take changes into the residual, or make it afresh from all coefficients."""
        afresh, ids, values, shift = message
        residual = state["residual"]
        if afresh:
            np.subtract(state["y"], shift, out=residual)
        else:
            residual += shift
        _add(state["columns"], ids, -values, residual)

    def update(self, state, task):
        """Push: slopes, sums and sums of squares over the rows of the shard."""
        slopes = state["columns"].dot(task.blocks, (state["weights"] * state["residual"])[None])[0]
        return slopes, state["sums"][task.blocks], state["squares"][task.blocks]

    def measure(self, state):
        """Parts of the duality gap: ``w r . r``, ``w r . y``, and the slopes of all columns."""
        v = state["weights"] * state["residual"]
        slopes = state["columns"].dot(np.arange(self.n_blocks), v[None])[0]
        return v @ state["residual"], v @ (state["y"] - self.y_mean), slopes

    # At the coordinator -----------------------------------------------------------------------------

    def aggregate(self, tasks, partials):
        """Pull: step to the minimum along each coordinate of the set."""
        blocks = tasks[0].blocks
        slopes, sums, squares = (sum(parts) for parts in zip(*partials, strict=True))
        self._check(blocks, squares, slopes)
        curvature = squares
        if self.fit_intercept:
            self.means[blocks] = sums / self.total
            curvature = squares - sums * self.means[blocks]
        varies = curvature > CONSTANT * squares
        old = self.coef[blocks]
        new = np.where(varies, self._minimum(blocks, old, slopes, curvature), 0.0)
        self.coef[blocks] = new
        change = new - old
        # How much the prediction changes; |change| alone would depend on the unit of a column.
        priorities = np.abs(change) * np.sqrt(np.where(varies, curvature, 0.0))
        message = self._message(tasks[0].round, blocks, change)
        return Outcome(message, priorities=priorities, updates=len(blocks))

    def _check(self, blocks, squares, slopes):
        wrong = np.flatnonzero(~(np.isfinite(squares) & np.isfinite(slopes)))
        if len(wrong):
            raise DataError(
                f"column {blocks[wrong[0]]} of X is so large that sums of squares overflow: scale it, or "
                "take schedule='auto'"
            )

    def _minimum(self, blocks, old, slopes, curvature):
        if self._shortens:
            curvature = curvature * (1 + (len(blocks) - 1) * self.rho)
        l1, z = self.l1[blocks], slopes + curvature * old
        size = np.maximum(z if self.positive else np.abs(z), l1) - l1
        return np.sign(z) * size / np.maximum(curvature + self.l2[blocks], np.finfo(float).tiny)

    def _message(self, round_, blocks, change):
        """Changes; or all coefficients if the gap is measured next, so that it is the true one."""
        if (round_ + 1) % self.measure_every == 0:
            ids = np.flatnonzero(self.coef)
            return True, ids, self.coef[ids], self.intercept
        moved = np.flatnonzero(change)
        blocks, change = blocks[moved], change[moved]
        return False, blocks, change, float(self.means[blocks] @ change)

    def objective(self, parts):
        """Objective and duality gap of the whole problem; shorten steps from now on if it rose."""
        r_r, y_r, slopes = (sum(part) for part in zip(*parts, strict=True))
        squares = self.l2 * self.coef**2
        held = self.l1 > 0
        outward = slopes - self.l2 * self.coef
        inward = slopes if not self.positive else np.maximum(slopes, 0)
        if self.positive:
            outward = np.maximum(outward, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            dual_squares = np.where(held, squares, inward**2 / self.l2)
        terms = (self.l1 @ np.abs(self.coef), squares.sum(), dual_squares.sum())
        before = self.primal
        self.primal, self.gap = squared_gap(y_r, r_r, terms, limit(self.l1[held], outward[held]))
        if not np.isfinite(before):  # begun from coefficients, measured for the first time
            self._ceiling = max(self._ceiling, _DIVERGED * self.primal)
        if self.rho is not None and self.primal > (1 + _NOISE) * before:
            self._shortens = True
        return self.primal

    def stop(self, history):
        """Stopping rule, for the parameter `stop` of `run`.

        ``"gap"``: the duality gap is small enough. ``"diverged"``: the objective is a million times what it
        was; with `rho`, when steps are shortened before, never.
        """
        if self.gap <= self.tol * self.scale:
            return "gap"
        return "diverged" if self.rho is None and self.primal > self._ceiling else False

    def arrays(self):
        """See `Program.arrays`."""
        figures = np.array([self.primal, self.gap, self._ceiling, self._shortens])
        return {"coef": self.coef, "means": self.means, "figures": figures}

    def restore(self, arrays):
        """See `Program.restore`."""
        forms = {"coef": self.coef.shape, "means": self.means.shape, "figures": (4,)}
        for name, shape in forms.items():
            if name not in arrays or arrays[name].shape != shape or arrays[name].dtype != np.float64:
                raise ModelFileError(
                    f"the checkpoint must hold {shortened(name)}, float64 of shape {shape}; remove the "
                    "folder to start anew"
                )
        self.coef, self.means = arrays["coef"], arrays["means"]
        self.primal, self.gap, self._ceiling, shortens = arrays["figures"].tolist()
        self._shortens = bool(shortens)


class Correlated:
    """Pairs of columns with ``|corr(x_j, x_k)| >= rho``, computed from X on demand.

    `X`: ndarray in Fortran order, or CSC matrix or array, shape (n, p). `rho`: above 0, at most 1. `weights`:
    float64 (n,). `centred`: False takes cosines in place of correlations.
    """

    def __init__(self, X, rho, weights=None, *, centred=True):
        _check_rho(rho)
        self.X, self.rho, self.centred = X, float(rho), centred
        self.is_sparse = sparse.issparse(X)
        self.roots = None if weights is None else np.sqrt(weights)

    def __call__(self, left, right):
        """Return a boolean array of shape (len(left), len(right)); constant columns depend on none."""
        # What overflows here depends on nothing; `ScheduledElasticNet.aggregate` names the column.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._compare(left, right)

    def _compare(self, left, right):
        rows, means, norms = self._columns(left)
        others, their_means, their_norms = (rows, means, norms) if left is right else self._columns(right)
        products = rows @ others.T
        if self.is_sparse:
            products = products.toarray()
        products = np.abs(products - np.outer(means, their_means))
        bounds = np.outer(norms, their_norms)
        return (products >= self.rho * bounds) & (bounds > 0)

    def _columns(self, columns):
        """Columns, as rows, times the roots of the weights; their scaled means; their norms about these."""
        rows = self.X.T[columns]
        if self.is_sparse:
            if self.roots is not None:
                rows = rows @ sparse.diags_array(self.roots)
            squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        else:
            if self.roots is not None:
                rows = rows * self.roots
            squares = np.einsum("ij,ij->i", rows, rows)
        means = np.zeros(len(columns))
        if self.centred:
            roots = np.ones(rows.shape[1]) if self.roots is None else self.roots
            means = rows @ (roots / np.linalg.norm(roots))
        variances = squares - means**2
        return rows, means, np.sqrt(np.where(variances > CONSTANT * squares, variances, 0.0))


def _check_rho(rho):
    if not 0 < rho <= 1:
        raise DataError(f"rho must be above 0 and at most 1, got {rho}")


def _per_column(name, value, p):
    values = (
        np.broadcast_to(np.asarray(value, np.float64), (p,)) if np.ndim(value) == 0 else np.asarray(value)
    )
    if values.shape != (p,) or not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(f"{name} must be finite and not negative, one number or {p}, one a column")
    return values


def _cut(X, n_shards):
    """Ranges of rows of about equal work; there may be fewer than `n_shards`, as none is empty."""
    is_sparse = sparse.issparse(X)
    entries = np.bincount(X.indices, minlength=X.shape[0]) if is_sparse else np.zeros(X.shape[0])
    work = np.cumsum(1.0 + entries)
    bounds = np.searchsorted(work, work[-1] * np.arange(1, n_shards) / n_shards)
    bounds = np.unique(np.concatenate([[0], bounds, [X.shape[0]]]))
    return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))


def _by_columns(X):
    """Store rows that were cut from X by columns; a copy unless they are so already."""
    is_sparse = sparse.issparse(X)
    return X.tocsc() if is_sparse else np.asfortranarray(X)


def _add(columns, ids, values, out):
    """Add ``X[:, ids] @ values`` to `out`."""
    if columns.is_sparse:
        linear_columns.csc_add(columns.data, columns.indices, columns.indptr, ids, values, out)
    else:
        linear_columns.dense_add(columns.X.T, ids, values, out)
