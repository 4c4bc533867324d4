"""Penalties of the generic solver: the protocol for one of your own, SLOPE, and penalties on norms of blocks.

A penalty of your own has `value` and `prox` on whole vectors, and is solved by accelerated proximal
gradients on the products of the columns of the working set. Penalties on norms of blocks (`BlockPenalty`)
are solved by compiled block coordinate descent. Both answer the questions of `solver`.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from ...._typing import Array
from ....errors import DataError
from ....kernels.linear import blocks as kernels
from ....kernels.linear.newton import judge_columns
from .solving.accelerated import proximal_gradients
from .solving.block_descent import block_descent

KINDS = {"norm": 0, "mcp": 1, "scad": 2, "log": 3, "lq": 4}


class Penalty:
    """Base of penalties on a vector of coefficients; subclass it for one of your own.

    `alpha` is an array of one strength for each coefficient: the estimator's `alpha` times `penalty_factor`.
    It is 0 nowhere: columns without penalty never come here, and neither do excluded ones.

    Attributes
    ----------
    convex : bool
        Whether it is. The fit of a penalty that is not convex ends at a stationary point.
    separable : bool
        Whether it is a sum over coefficients. If not, `penalty_factor` is refused.
    dual_norm : callable or None
        ``dual_norm(slopes, alpha)`` of a penalty that is a norm, the largest of ``slopes @ b`` where the
        penalty of b is 1: with it, and a convex loss, the fit stops at a duality gap.

    Examples
    --------
    An l1 penalty that ends at 1:

    >>> import numpy as np
    >>> import stradask as sd
    >>> class Capped(sd.Penalty):
    ...     convex = False
    ...     def value(self, coef, alpha):
    ...         return np.sum(alpha * np.minimum(np.abs(coef), 1))
    ...     def prox(self, coef, step, alpha):
    ...         size = np.abs(coef)
    ...         near, far = np.clip(size - step * alpha, 0, 1), np.maximum(size, 1)
    ...         gain = (far - size) ** 2 / (2 * step) + alpha - (near - size) ** 2 / (2 * step) - alpha * near
    ...         return np.sign(coef) * np.where(gain < 0, far, near)
    >>> X, y = 2 * np.eye(4), np.array([6.0, 1, 0, 0])
    >>> sd.SparseGLM(penalty=Capped(), alpha=0.5, fit_intercept=False).fit(X, y).coef_.round(2)
    array([3., 0., 0., 0.])
    """

    convex = True
    separable = True
    dual_norm: Any = None

    def of_width(self, n_features: int) -> "Penalty":
        """The penalty for a number of columns, where it depends on that."""
        return self

    def value(self, coef: Array, alpha: Any) -> float:
        """The penalty of all coefficients, a number."""
        raise NotImplementedError(f"{type(self).__name__} must define value(coef, alpha)")

    def prox(self, coef: Array, step: Any, alpha: Any) -> Array:
        """The b that minimises ``|b - coef|^2 / (2 step)`` plus the penalty; `step`: number or array."""
        raise NotImplementedError(f"{type(self).__name__} must define prox(coef, step, alpha)")


class Slope(Penalty):
    """The sorted l1 norm: the largest coefficient has the largest weight, so that equal effects get equal
    values.

    `weights`: falling, one for each column; by default those of Benjamini and Hochberg at the level `q`,
    over the first of them, so that `alpha` is the weight of the largest coefficient.
    """

    separable = False

    def __init__(self, weights=None, q=0.1):
        if not 0 < q < 1:
            raise DataError(f"q={q} of the SLOPE penalty must lie between 0 and 1")
        self.weights, self.q = weights, float(q)

    def of_width(self, n_features):
        """See `Penalty`."""
        weights = self.weights
        if weights is None:
            weights = ndtri(1 - self.q * np.arange(1, n_features + 1) / (2 * n_features))
            weights = weights / weights[0]
        weights = np.asarray(weights, dtype=np.float64)
        falling = (
            weights.shape == (n_features,) and np.isfinite(weights).all() and (np.diff(weights) <= 0).all()
        )
        if not falling or weights[-1] < 0 or weights[0] <= 0:
            raise DataError(
                f"weights of the SLOPE penalty must be {n_features} numbers, falling, of 0 and above, the "
                "first above 0"
            )
        return Slope(weights, self.q)

    def value(self, coef, alpha):
        """See `Penalty`."""
        return float(np.sort(np.abs(coef))[::-1] @ (self.weights[: len(coef)] * alpha))

    def prox(self, coef, step, alpha):
        """See `Penalty`; isotonic regression of the sorted sizes."""
        from scipy.optimize import isotonic_regression

        size = np.abs(coef)
        order = np.argsort(-size, kind="stable")
        falling = size[order] - step * alpha * self.weights[: len(coef)]
        sizes = np.empty(len(coef))
        sizes[order] = np.maximum(isotonic_regression(falling, increasing=False).x, 0)
        return np.sign(coef) * sizes

    def dual_norm(self, slopes, alpha):
        """See `Penalty`."""
        sums = np.cumsum(self.weights[: len(slopes)] * alpha)
        return float(np.max(np.cumsum(np.sort(np.abs(slopes))[::-1]) / sums))


@dataclass
class GivenPenalty:
    """A `Penalty` as the solver asks for it: single columns, one output."""

    penalty: Penalty
    alpha: np.ndarray
    curvature: float  # the largest of the loss
    by_rows, kind = False, None  # the model of a working set must be a matrix
    cones = ()  # blocks without a penalty that may have but one sign

    def __post_init__(self):
        self.convex, self.allowed = self.penalty.convex, np.isfinite(self.alpha)
        self.free = self.alpha == 0
        self.ridge = None
        self.has_dual = self.convex and self.penalty.dual_norm is not None
        self._step = 1 / max(self.curvature, 1e-300)

    def _penalised(self):
        return self.allowed & ~self.free

    def value(self, B):
        """The penalty at all coefficients."""
        on = self._penalised()
        return float(self.penalty.value(B[on, 0], self.alpha_of(on)))

    def alpha_of(self, on):
        """Strengths of some columns; one number for a penalty that is not separable."""
        return self.alpha[on] if self.penalty.separable else self.alpha.max()

    def distances(self, B, V):
        """How far each column is from a step of the proximal gradient method that does not move it."""
        on, out = self._penalised(), np.abs(V[:, 0]) * self.free
        step, b = self._step, B[on, 0]
        out[on] = np.abs(b - self.penalty.prox(b + step * V[on, 0], step, self.alpha_of(on))) / step
        return out

    def distances_within(self, B, V, places, blocks, starts):
        """The same of some columns; V holds their slopes. Columns without coefficients change no other."""
        slopes = np.zeros_like(B)
        slopes[places] = V
        return self.distances(B, slopes)[blocks]

    def descend(self, model, G, B, blocks, starts, tol, most):
        """Minimise the quadratic model plus penalty from B, where its slopes are G, in place."""
        on = np.zeros(len(self.alpha), bool)
        on[blocks] = True
        alpha = self.alpha[blocks] if self.penalty.separable else self.alpha.max()
        proximal_gradients(
            model.H,
            G - model.H @ B,
            B,
            lambda z, step: self.penalty.prox(z, step, alpha),
            tol,
            convex=self.convex,
            most=most,
        )

    def judge(self, B, V, has_dual):
        """See `kernels.linear.blocks.judge`: the dual of a norm is the indicator of its domain."""
        on = self._penalised()
        scores, rest = np.where(self.allowed, self.distances(B, V), 0.0), np.abs(V * B)[self.free].sum()
        if not has_dual:
            return scores, self.value(B), np.nan, np.nan, rest
        norm = self.penalty.dual_norm(V[on, 0], self.alpha_of(on)) if on.any() else 0.0
        return scores, self.value(B), 1 / max(norm, 1.0), 0.0, rest


class BlockPenalty:
    """``phi(|B_g|) + l1 |B_g|_1 + ridge |B_g|^2 / 2`` of each block, perhaps within bounds.

    `lam`: float64 (n_blocks,). `l1`, `ridge`, `low`, `high`: alike, or a number. A block without lam, l1 and
    bounds is free; one with an infinite lam or l1 is excluded. `curvatures`: of the loss along each block,
    for "lq" alone. `single`: whether blocks are single coefficients of one output, with bounds of 0 and
    infinity.
    """

    by_rows = True
    traced: Any = None  # see `sparse.classes`

    def __init__(
        self, blocks, lam, l1, ridge, low, high, kind="norm", gamma=None, curvatures=None, *, single=False
    ):
        self.table = np.empty((5, len(lam)))
        for row, values in zip(self.table, (lam, l1, ridge, low, high), strict=True):
            row[:] = values
        lam, l1, ridge, low, high = self.table
        self.blocks, self.lam, self.l1, self.low, self.high = blocks, lam, l1, low, high
        self.gamma, self.kind, self.convex = gamma, KINDS[kind], kind == "norm"
        self.allowed = np.isfinite(lam) & np.isfinite(l1) & (low < high)
        unbounded = (low == -np.inf) & (high == np.inf)
        costless = (lam == 0) & (l1 == 0)
        self.free, costless = costless & unbounded, costless & self.allowed
        ridge[~self.allowed] = 0.0
        self.ridge = np.repeat(ridge, blocks.sizes) if ridge.any() else None
        # Slopes within a cone are never feasible but for rounding, and no scale makes them so.
        cone = ~unbounded & ((low == -np.inf) | (high == np.inf))
        self.cones = np.flatnonzero(costless & cone & (ridge == 0))
        self.has_dual = self.convex and (single or not len(self.cones))
        self._curvatures = curvatures

    @functools.cached_property
    def _block(self):
        return self.blocks.block_of()

    def value(self, B):
        """The penalty at all coefficients."""
        places = np.flatnonzero(B.any(axis=1))
        if not len(places):
            return 0.0
        if B.shape[1] == 1 and len(B) == len(self.lam):
            b, table = B[places, 0], self.table.take(places, axis=1)
            return judge_columns(b, b, table, self.gamma, self.kind, False, np.empty(len(b)))[0]
        blocks, b = self._block[places], B[places]
        firsts = np.flatnonzero(np.diff(blocks, prepend=-1))
        size = np.sqrt(np.add.reduceat((b**2).sum(axis=1), firsts))
        total = float(kernels.terms(size, self.lam[blocks[firsts]], self.gamma, self.kind)[0].sum())
        total += float(self.l1[blocks] @ np.abs(b).sum(axis=1))
        if self.ridge is not None:
            total += 0.5 * float(self.ridge[places] @ (b**2).sum(axis=1))
        return total

    def judge(self, B, V, has_dual):
        """See `kernels.judge`."""
        if self.kind == KINDS["lq"]:
            scores = np.where(self.allowed, self.distances(B, V), 0.0)
            return scores, self.value(B), np.nan, np.nan, 0.0
        if B.shape[1] == 1 and len(B) == len(self.lam):
            scores, b, v = np.empty(len(B)), np.ascontiguousarray(B[:, 0]), np.ascontiguousarray(V[:, 0])
            terms = self.table, self.gamma, self.kind, has_dual, scores
            value, scale, *dual, _ = judge_columns(b, v, *terms)
            return scores, value, scale if has_dual else np.nan, *dual
        return kernels.judge(B, V, self.blocks.starts, self.table, self.gamma, self.kind, has_dual)

    def distances(self, B, V):
        """Distance of the slopes of each block (without those of the ridge) from the subdifferential."""
        return self._distances(B, V, self.ridge, self.blocks.starts, slice(None))

    def distances_within(self, B, V, places, blocks, starts):
        """The same of some blocks; V holds the slopes of their places."""
        ridge = None if self.ridge is None else self.ridge[places]
        return self._distances(B[places], V, ridge, starts, blocks)

    def _distances(self, B, V, ridge, starts, blocks):
        if ridge is not None:
            V = V - ridge[:, None] * B
        values = [values[blocks] for values in (self.lam, self.l1, self.low, self.high)]
        out = kernels.distances(B, V, starts, *values, self.gamma, self.kind)
        if self.kind == KINDS["lq"] and len(out):  # whose every block of zeros is stationary
            low, high = (np.repeat(bounds, np.diff(starts))[:, None] for bounds in values[2:])
            V = np.where(((low == 0) & (V < 0)) | ((high == 0) & (V > 0)), 0.0, V)
            zero = ~np.logical_or.reduceat(B.any(axis=1), starts[:-1])
            slopes = np.sqrt(np.add.reduceat((V**2).sum(axis=1), starts[:-1]))[zero]
            jumps = kernels.jumps(
                slopes, self._curvatures[blocks][zero], values[0][zero], self.gamma, self.kind
            )
            out[zero] = jumps
        return out

    def descend(self, model, G, B, blocks, starts, tol, most):
        """Minimise the quadratic model plus penalty from B, where its slopes are G, in place."""
        lam, l1, low, high = (values[blocks] for values in (self.lam, self.l1, self.low, self.high))
        limits = {"convex": self.convex, "most": most}
        penalty = lam, l1, low, high, self.gamma, self.kind
        block_descent(model, G, B, starts, penalty, tol, **limits)

    # Duality ------------------------------------------------------------------------------------

    def gauges(self, V):
        """For each block without coefficients, how many times stronger its penalty must be to keep it so."""
        return kernels.gauges(V, self.blocks.starts, self.lam, self.l1, self.low, self.high)
