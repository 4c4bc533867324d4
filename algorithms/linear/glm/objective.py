"""Penalised generalised linear objectives as sums over portions of the rows.

::

    F(w, c) = scale * sum_i s_i l(y_i, x_i w + c) + l2 / 2 sum_j (d_j w_j)^2 + constant

with d the scales of the columns, 1 by default. The intercept c is not penalised, and no column of ones is
made for it. The parameters are one float64 vector: w, and then c if there is one; for K classes each entry
is K numbers.

Portions are evaluated by threads, and their sums are added along a tree that depends on the number of
portions alone: values have the same bits on any number of threads.
"""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from ....scheduler.threads import run_tasks
from .rows import LANES, cut, in_rows

_WORTH_THREADS = 1 << 15  # entries; below, handing work over takes longer than a pass
_PRECISION = 1e-12  # relative, of a sum in float64
_HIDDEN = 16  # units in the last place: curvature below this part of a diagonal is rounding
LAST_PLACES = 10  # of the type of the data: the least tolerance that can be met in it
_HESSIAN_BYTES = 1 << 26  # that partial Hessians may take together
_ROWS_TO_COUNT = 4096  # of the sample from which counts are estimated
_NO_ROWS = np.empty(0, np.int64)


def tree_sum(parts):
    """Add up in pairs, then the sums in pairs, and so on.

    Examples
    --------
    >>> from stradask.algorithms.linear.glm.objective import tree_sum
    >>> tree_sum(["a", "b", "c", "d", "e"])
    'abcde'
    """
    parts = list(parts)
    while len(parts) > 1:
        paired = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = paired + parts[len(parts) & ~1 :]
    return parts[0]


class _Penalised:
    """Base of the objectives: portions, threads, the squared penalty.

    `width`: numbers that an entry of the parameters has. `scales`: d, float64 (n_columns,), or 1.
    """

    def __init__(self, rows, *, scale, l2, fit_intercept, n_jobs, width, constant=0.0, scales=1.0):
        self.rows, self.scale, self.l2, self.constant = rows, scale, l2, constant
        self.fit_intercept, self.n_jobs = fit_intercept, n_jobs
        self.n_rows, self.n_columns = rows.shape
        self.n_penalised = self.n_columns * width
        self.n_parameters = self.n_penalised + width * fit_intercept
        self.scales = np.repeat(scales, width) if np.ndim(scales) else scales  # of the penalised parameters
        self.l2_weights = l2 * self.scales**2
        self.portions = self._cut(rows)
        self.n_passes = 0
        ends = np.cumsum([0, *(portion.shape[0] for portion in self.portions)])
        self._slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self._threads = n_jobs if rows.n_entries * width >= _WORTH_THREADS else 1
        self._known: Any = None  # the last point, and what was found there

    @property
    def precision(self):
        """Relative precision of values, about: some last places of the data's type, and long sums."""
        return max(_PRECISION, LAST_PLACES * float(np.finfo(self.rows.dtype).eps))

    @property
    def ridge(self):
        """The ridge that solvers add to a Hessian with a diagonal of ones: 0 for float64.

        Gradients of float32 rows have rounding errors in every direction. Where columns repeat each other the
        Hessian is singular, and its inverse would turn such errors into steps of 1e6.
        """
        return 0.0 if self.rows.dtype == np.float64 else _HIDDEN * float(np.finfo(self.rows.dtype).eps)

    def squared_norms(self, g):
        """Of the part of a gradient that is penalised, for columns of scale 1, and of the intercepts'."""
        penalised, free = g[: self.n_penalised] / self.scales, g[self.n_penalised :]
        return float(penalised @ penalised), float(free @ free)

    @property
    def most_sampled(self):
        """Rows from which on a sample is too large."""
        return self.n_rows // 2

    @property
    def sample_threads(self):
        """Threads for work on a sample."""
        return self.n_jobs

    def bytes_sent(self):
        """Bytes sent over the network so far."""
        return 0

    def of_columns(self, numbers):
        """One number a column, of those of the penalised parameters."""
        return np.broadcast_to(numbers, self.n_penalised).reshape(self.n_columns, -1)[:, 0]

    def _cut(self, rows):
        return cut(rows)

    def _run(self, work):
        """Call ``work(portion, its rows)`` for all portions; return the list of results."""
        self.n_passes += 1
        if len(self.portions) == 1:  # of small data, where handing out work takes as long as a part of a pass
            return [work(self.portions[0], self._slices[0])]
        return run_tasks(
            [(work, pair) for pair in zip(self.portions, self._slices, strict=True)], self._threads
        )

    def _complete(self, w, parts):
        """Sum values and gradients of the portions."""
        values, gradients = zip(*parts, strict=True)
        value = float(self.scale * tree_sum(values) + self._penalty(w))
        gradient = self._scaled(gradients)
        gradient[: self.n_penalised] += self.l2_weights * w[: self.n_penalised]
        self._known = w.copy(), value, gradient
        return value, gradient

    def _known_at(self, w):
        return self._known is not None and bool((w == self._known[0]).all())

    def _scaled(self, parts):
        return self.scale * tree_sum(parts)[: self.n_parameters]

    def _penalty(self, w):
        w = w[: self.n_penalised]
        return 0.5 * (w @ (self.l2_weights * w)) + self.constant


class LinearObjective(_Penalised):
    """One linear predictor: the squared, the logistic (two classes) or the Poisson loss.

    `rows`: DenseRows or SparseRows; data with targets and weights. `loss`: ``rows.SQUARED``, ``LOGISTIC`` or
    ``POISSON``. `n_jobs`: threads.
    """

    def __init__(
        self, rows, loss, *, scale=1.0, l2=0.0, scales=1.0, constant=0.0, fit_intercept=True, n_jobs=None
    ):
        options = {"scale": scale, "l2": l2, "scales": scales, "constant": constant, "n_jobs": n_jobs}
        super().__init__(in_rows(rows), fit_intercept=fit_intercept, width=1, **options)
        self.loss = loss
        self._curvature: Any = None  # of the rows at the last point, if they were asked for

    def evaluate(self, portion, w, curvature=None):
        """Return loss and gradient of one portion, neither scaled nor penalised: a function of data and w."""
        coef, intercept = self._split(w)
        extra = () if curvature is None else (curvature,)
        value, gradient = portion.gradient(self.loss, coef, intercept, *extra)
        return value, gradient[: self.n_parameters]

    def value_and_gradient(self, w, *, curvature=False):
        """Compute F and its gradient at w, in one pass.

        `w`: float64 (n_parameters,). `curvature`: keep the curvatures of the rows, for a Hessian at this
        point: it then costs no pass of its own. Values of the last point are remembered: to ask for them
        again costs nothing. Returns float, float64 (n_parameters,).
        """
        if self._known_at(w) and (self._curvature is not None or not curvature):
            return self._known[1:]
        kept: Any = np.empty(self.n_rows) if curvature else None
        self._curvature = kept

        def work(portion, rows):
            return self.evaluate(portion, w, kept[rows] if curvature else None)

        return self._complete(w, self._run(work))

    def hessian_diagonal(self, w, means=None):
        """Compute the diagonal of the Hessian at w, a float64 ndarray of shape (n_parameters,).

        `means`: see `hessian`.
        """
        diagonal = self._second_order(w, "diagonal", *(() if means is None else (means,)))
        diagonal[: self.n_columns] += self.l2_weights
        return diagonal

    def hessian_product(self, w, v):
        """Compute the Hessian at w times a vector, a float64 ndarray of shape (n_parameters,)."""
        product = self._second_order(w, "product", *self._split(v))
        product[: self.n_columns] += self.l2_weights * v[: self.n_columns]
        return product

    def transposed(self, r):
        """Compute ``X^T r`` for a number r a row of sparse data, a float64 ndarray of shape (n_columns,)."""
        return tree_sum(self._run(lambda portion, rows: portion.transposed(r[rows])))[:-1]

    def images(self, v):
        """Compute ``X v`` of sparse data, a float64 ndarray of shape (n_rows,)."""
        out = np.empty(self.n_rows)
        self._run(lambda portion, rows: portion.images(v, out[rows]))
        return out

    def hessian(self, w, means=None):
        """Compute the Hessian at w, a float64 ndarray of shape (n_parameters, n_parameters).

        With `means`, a float64 ndarray of shape (n_columns,), it is that of the columns less these numbers,
        the penalty being as before: columns far from zero keep their digits.
        """
        total = self.scale * tree_sum(self._hessian_parts(w, means))[: self.n_parameters, : self.n_parameters]
        total.flat[: self.n_columns * (self.n_parameters + 1) : self.n_parameters + 1] += self.l2_weights
        return total

    def _second_order(self, w, method, *args):
        """Something that portions make of their curvatures at w, summed."""
        curvature = self._curvatures(w)
        return self._scaled(self._run(lambda portion, rows: getattr(portion, method)(curvature[rows], *args)))

    def _hessian_parts(self, w, means):
        """Hessians of groups of portions, of which there are few since each takes memory."""
        curvature = self._curvatures(w)
        size = self.n_columns + 1
        n_groups = max(2, min(8, _HESSIAN_BYTES // (8 * size**2)))
        pairs = list(zip(self.portions, self._slices, strict=True))
        step = -(-len(pairs) // n_groups)

        def work(first):
            out = np.zeros((size, size))
            for portion, rows in pairs[first : first + step]:
                portion.add_hessian(curvature[rows], out, means)
            return out

        self.n_passes += 1
        return run_tasks([(work, (first,)) for first in range(0, len(pairs), step)], self._threads)

    @property
    def share_that_counts(self):
        """Effective sample fraction of the weights: ``(sum s)^2 / (n sum s^2)``."""
        every, squares = self.rows.weight_sums
        return every**2 / (self.n_rows * squares)

    def sample(self, rows, whole=_NO_ROWS):
        """The same objective on a copy of some rows, scaled up as if they were all.

        `rows`: int ndarray; numbers of rows: a sample of all that are not in `whole`. `whole`: int ndarray;
        rows that stand for themselves alone.
        """
        part = self.rows.take(np.concatenate([rows, whole]))
        weights = part.row_weights()
        drawn, alone = weights[: len(rows)].sum(), weights[len(rows) :].sum()
        every, _ = self.rows.weight_sums
        factor = max(1.0, (every - alone) / drawn) if drawn > 0 else 1.0  # all that count may be whole
        if len(whole):
            weights[len(rows) :] /= factor
            part = replace(part, weights=weights.astype(part.dtype))
        return LinearObjective(
            part,
            self.loss,
            scale=self.scale * factor,
            l2=self.l2,
            scales=self.scales,
            constant=self.constant,
            fit_intercept=self.fit_intercept,
            n_jobs=self.sample_threads,
        )

    def rows_behind_diagonal(self, w):
        """How many rows made each entry of the Hessian's diagonal, about: ``(sum_i a_i)^2 / sum_i a_i^2``.

        From at most some thousand rows; 0 where numbers become too small or too large to tell.

        `w`: float64 (n_parameters,). Returns float64 (n_columns,).
        """
        step = -(-self.n_rows // _ROWS_TO_COUNT)
        some = slice(None, None, step)
        rows, curvature = self.rows.take(some), self._curvatures(w)[some]
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            once, twice = rows.diagonal(curvature)[:-1], rows.squared().diagonal(curvature**2)[:-1]
            counts = step * once**2 / twice
        return np.where(np.isfinite(counts) & (twice > 0), counts, 0.0)

    def _split(self, w):
        return w[: self.n_columns], float(w[self.n_columns]) if self.fit_intercept else 0.0

    def _curvatures(self, w):
        """Curvatures of the rows at w, by another pass unless they were kept."""
        self.value_and_gradient(w, curvature=True)
        return self._curvature


class MultinomialObjective(_Penalised):
    """K linear predictors and the multinomial loss; every class has its coefficients.

    The parameters are an array (d, K), or (d + 1, K) with intercepts in the last row, as one vector.

    `rows`: DenseRows or SparseRows; with numbers of classes as targets. `scale`, `l2`, `scales`,
    `fit_intercept`, `n_jobs`: see `LinearObjective`.
    """

    def __init__(self, rows, n_classes, *, scale=1.0, l2=0.0, scales=1.0, fit_intercept=True, n_jobs=None):
        options = {"scale": scale, "l2": l2, "scales": scales, "n_jobs": n_jobs}
        super().__init__(rows, fit_intercept=fit_intercept, width=n_classes, **options)
        self.n_classes = n_classes

    def evaluate(self, portion, w):
        """Return loss and gradient of one portion, neither scaled nor penalised: a function of data and w."""
        return self._evaluate(portion, self._padded(w))

    def value_and_gradient(self, w):
        """Compute F and its gradient at w, in one pass; see `LinearObjective`."""
        if self._known_at(w):
            return self._known[1:]
        W = self._padded(w)
        return self._complete(w, self._run(lambda portion, rows: self._evaluate(portion, W)))

    def hessian_product(self, w, v):
        """Compute the Hessian at w times a vector in one pass, a float64 ndarray of shape (n_parameters,)."""
        product = self._scaled(self._product_parts(self._padded(w), self._padded(v)))
        product[: self.n_penalised] += self.l2_weights * v[: self.n_penalised]
        return product

    def hessian_diagonal(self, w=None):
        """Compute the diagonal of the Hessian at w, in one pass.

        Without w it is that at zero, where all classes are equally probable, ``(1 - 1/K) / K sum_i s_i
        x_ij^2`` for every class: it stands for the scales of the columns until rows have large predictors.
        """
        if w is None:
            diagonal = np.repeat(self._gram("diagonal"), self.n_classes)[: self.n_parameters]
        else:
            diagonal = self._scaled(self._diagonal_parts(self._padded(w)))
        diagonal[: self.n_penalised] += self.l2_weights
        return diagonal

    def class_hessian(self):
        """Compute the block of the Hessian at zero that belongs to one class, (d, d) or (d + 1, d + 1).

        At zero the Hessian is ``(I - 1/K) / K`` times ``X^T S X`` (Kronecker), which bounds it elsewhere in
        the order of matrices.
        """
        n = self.n_columns + self.fit_intercept
        H = self._gram("hessian")[:n, :n]
        H.flat[: self.n_columns * (n + 1) : n + 1] += self.of_columns(self.l2_weights)
        return H

    def _evaluate(self, portion, W):
        value, gradient = portion.multinomial(W, self.n_classes)
        return value, self._unpadded(gradient)

    def _product_parts(self, W, V):
        return self._run(
            lambda portion, rows: self._unpadded(portion.multinomial_product(W, V, self.n_classes))
        )

    def _diagonal_parts(self, W):
        return self._run(
            lambda portion, rows: self._unpadded(portion.multinomial_diagonal(W, self.n_classes))
        )

    def _unpadded(self, gradient):
        return gradient[:, : self.n_classes].ravel()[: self.n_parameters]

    def _padded(self, w):
        """The parameters as the kernels read them: intercepts last, classes up to a multiple of 8."""
        W = np.zeros((self.n_columns + 1, -(-self.n_classes // LANES) * LANES), self.rows.dtype)
        given = w.reshape(-1, self.n_classes)
        W[: len(given), : self.n_classes] = given
        return W

    def _gram(self, method):
        """Sum over portions of ``X^T S X``, or its diagonal, times the curvature at zero."""
        return self.scale * (1 - 1 / self.n_classes) / self.n_classes * tree_sum(self._gram_parts(method))

    def _gram_parts(self, method):
        return self._run(lambda portion, rows: getattr(portion, method)(portion.row_weights()))
