"""Minimising in the space of the rows, for sparse data of fewer rows than columns and a squared penalty.

From zero on, gradients and steps of such an objective are combinations of the rows: every vector of
coefficients that L-BFGS meets is ``W = X^T A``, A having one row for each row of X, and K numbers in it for K
classes. So A stands for W together with its *image* ``Z = X W = X X^T A``, the linear predictors, and

    <W_1, W_2> = <A_1, Z_2>,    F = scale loss(Z) + l2 / 2 <A, Z>,    gradient: R + l2 A,  R = scale loss'(Z)

so that vectors have n K numbers instead of p K. With Z kept, a trial along a known direction costs no pass;
an accepted point costs one, ``X X^T R``, for which each column is read twice and no array of the columns is
made. Intercepts are numbers of their own at the end of both halves.

The price: a preconditioner that scales columns would leave the space, and products of two vectors are sums of
squares of X, so columns far larger than the others are left to the space of the columns.
"""

import itertools

import numpy as np
from scipy import sparse

from ....kernels.linear.multinomial import csc_gram, multinomial_residuals, residual_changes
from ....scheduler.threads import run_tasks
from ...optimize.methods.excess import Excess
from ...optimize.methods.lbfgs import Identity, minimize_lbfgs
from ...optimize.space import LocalRows
from ...optimize.stages import LBFGS_SHARE
from .objective import tree_sum
from .rows import SparseRows

_MEMORY = 6  # pairs: a pass is so cheap that more would not pay
_FEWER = 2  # times fewer rows than columns
_SPREAD = 1e5  # a column's sum of squares over the median's, at most: beyond, the diagonal needs fewer steps
_PIECES, _ENTRIES_A_SUM = 4, 8  # of columns, each of so many entries for a number of the sum that it makes


class RowVector:
    """A vector of coefficients in the space of the rows.

    `coef`: float64 (m,); A, row by row, and the intercepts. `image`: float64 (m,), or callable; Z likewise
    (the intercepts are no part of it, but stand at its end again); a function that makes it, for vectors
    whose image is perhaps never asked for.
    """

    __slots__ = ("_image", "coef")

    def __init__(self, coef, image):
        self.coef, self._image = coef, image

    @property
    def image(self):
        """Z."""
        if callable(self._image):
            self._image = self._image()
        return self._image


class RowSpace:
    """A space, see `LocalSpace`, of `RowVector`; products use the second vector's image only."""

    def dots(self, pairs):
        """See `LocalSpace`."""
        return np.array([a.coef @ b.image for a, b in pairs])

    def axpy(self, a, x, y):
        """See `LocalSpace`."""
        return RowVector(a * x.coef + y.coef, a * x.image + y.image)

    def scale(self, a, x):
        """See `LocalSpace`."""
        return RowVector(a * x.coef, a * x.image)

    def rows(self, n, like):
        """See `LocalSpace`."""
        return _RowVectors(n, like)


class _RowVectors:
    """n vectors kept together: see `LocalRows`."""

    def __init__(self, n, like):
        self._coefs, self._images = LocalRows(n, like.coef), LocalRows(n, like.coef)

    def put(self, row, x):
        """Set a row."""
        self._coefs.put(row, x.coef)
        self._images.put(row, x.image)

    def dots(self, x):
        """Scalar products of all rows with x."""
        return self._coefs.dots(x.image)

    def combine(self, weights, a, x):
        """Return a x plus the sum of all rows, each times its weight."""
        return RowVector(self._coefs.combine(weights, a, x.coef), self._images.combine(weights, a, x.image))


def applies(objective, x0):
    """Whether `minimize_by_rows` takes this objective.

    It takes sparse rows of this process, fewer than half of the columns, these of one scale or so.

    `x0`: float64 ndarray; its coefficients must be zero.
    """
    if (
        not isinstance(objective.rows, SparseRows)
        or _FEWER * objective.n_rows > objective.n_columns
        or not objective.l2 > 0
        or x0[: objective.n_penalised].any()
    ):
        return False
    return of_one_scale(objective)


def of_one_scale(objective):
    """Whether no column is far larger than the others: the row space cannot scale columns."""
    rows = objective.rows
    squares = rows.diagonal(rows.row_weights())[:-1] / objective.of_columns(objective.scales**2)
    largest = squares.max(initial=0.0)
    if 0 < largest <= _SPREAD * squares.min():  # no median is smaller
        return True
    used = squares[squares > 0]
    return len(used) > 0 and bool(largest <= _SPREAD * np.median(used))


def minimize_by_rows(objective, x0, *, max_iter=1000, tol_decrease=1e-6, callback=None):
    """Minimise by L-BFGS in the space of the rows; see the module.

    `objective`: MultinomialObjective; one that `applies`. `x0`, `max_iter`, `tol_decrease`, `callback`: see
    `minimize_newton`. Returns OptimizeResult; see `minimize_lbfgs`; `x` and `jac` are those of the columns.
    """
    problem = _RowProblem(objective)
    space = RowSpace()
    result = minimize_lbfgs(
        problem.value_and_gradient,
        problem.vector(x0),
        space=space,
        memory=_MEMORY,
        max_iter=max_iter,
        tol_gradient=0.0,
        tol_decrease=LBFGS_SHARE * tol_decrease,
        precision=objective.precision,
        excess=Excess(problem, tol_decrease, lambda x: Identity(), False, space),
        callback=None if callback is None else lambda at: callback(Step(at.nit, at.fun, at.x, problem)),
    )
    result.x, result.jac = problem.of_columns(result.x), problem.of_columns(result.jac)
    return result


class Step:
    """The argument of callbacks; `x`, of the columns, is computed on access."""

    def __init__(self, nit, fun, there, problem, decrement=np.nan):
        self.nit, self.fun, self.decrement = nit, fun, decrement
        self._there, self._problem = there, problem

    @property
    def x(self):
        """The parameters."""
        return self._problem.of_columns(self._there)


def equal_shares(starts, n_pieces):
    """Cut columns, which begin at the entries `starts`, into pieces of about equal size; return the edges."""
    shares = starts[-1] * np.arange(1, n_pieces) // n_pieces
    return [0, *np.searchsorted(starts, shares).tolist(), len(starts) - 1]


class _RowProblem:
    """A `MultinomialObjective` in the space of its rows.

    The sums over columns are made in pieces, whose number depends on the data alone.
    """

    def __init__(self, objective):
        rows = objective.rows
        self.precision, self.l2 = objective.precision, objective.l2
        self._scale, self._constant, self._threads = objective.scale, objective.constant, objective._threads
        self._labels, self._n_classes, self._intercept = rows.y, objective.n_classes, objective.fit_intercept
        self._weights = rows.weights.astype(np.float64)
        self._offset = rows.offset if len(rows.offset) else 0.0
        self._X = sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape).tocsc()
        self._scales = objective.of_columns(objective.scales)
        if np.ndim(objective.scales):
            self._X.data /= np.repeat(self._scales, np.diff(self._X.indptr))
        self._shape = rows.shape[0], self._n_classes
        n_pieces = max(1, min(_PIECES, self._X.nnz // (_ENTRIES_A_SUM * rows.shape[0])))
        self._columns = equal_shares(self._X.indptr, n_pieces)
        self._rows = [rows.shape[0] * k // n_pieces for k in range(n_pieces + 1)]

    def vector(self, x0):
        """A start whose coefficients are zero."""
        half = np.zeros(self._shape[0] * self._n_classes)
        intercept = x0[self._X.shape[1] * self._n_classes :]
        half = np.append(half, intercept)
        return RowVector(half, half.copy())

    def of_columns(self, vector):
        """The coefficients of the columns and the intercepts, as one vector."""
        A, intercept = self._halves(vector.coef)
        return np.append((self._X.T @ A / self._scales[:, None]).ravel(), intercept)

    def value_and_gradient(self, x):
        """F and its gradient, whose image is computed on access."""
        residuals = self._predictors(x.image, self._offset)
        losses = self._by_pieces(
            self._rows,
            lambda a, b: multinomial_residuals(
                residuals[a:b], self._labels[a:b], self._weights[a:b], self._n_classes
            ),
        )
        A, _ = self._halves(x.coef)
        Z, _ = self._halves(x.image)
        residuals *= self._scale
        value = self._scale * tree_sum(losses) + 0.5 * self.l2 * float(np.vdot(A, Z)) + self._constant
        return value, self._assembled(residuals, x)

    def hessian_product(self, x, v):
        """The Hessian at x times v."""
        bent = self._predictors(v.image)
        residual_changes(self._predictors(x.image, self._offset), bent, self._weights, self._n_classes)
        bent *= self._scale
        return self._assembled(bent, v)

    def squared_norms(self, g):
        """Of the part that is penalised, and of the intercepts'."""
        end = self._shape[0] * self._n_classes
        return float(g.coef[:end] @ g.image[:end]), float(g.coef[end:] @ g.image[end:])

    def _halves(self, half):
        end = self._shape[0] * self._n_classes
        return half[:end].reshape(self._shape), half[end:]

    def _predictors(self, image, offset=0.0):
        """A copy of the predictors, intercepts included."""
        Z, intercept = self._halves(image)
        return Z + intercept + offset if self._intercept else Z + offset

    def _assembled(self, R, x):
        """``X^T R + l2 W``, and the sums over R for the intercepts."""
        free = R.sum(axis=0) if self._intercept else np.empty(0)

        def image():
            Z, _ = self._halves(x.image)
            return np.append(self._gram(R) + self.l2 * Z, free)

        A, _ = self._halves(x.coef)
        return RowVector(np.append(R + self.l2 * A, free), image)

    def _gram(self, R):
        """``X X^T R``: the pass over the data."""
        X = self._X

        def piece(first, last):
            out = np.zeros(self._shape)
            csc_gram(X.data, X.indices, X.indptr[first : last + 1], R, out)
            return out

        return tree_sum(self._by_pieces(self._columns, piece))

    def _by_pieces(self, edges, work):
        return run_tasks([(work, pair) for pair in itertools.pairwise(edges)], self._threads)
