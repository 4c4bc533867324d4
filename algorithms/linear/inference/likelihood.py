"""The likelihood of a generalised linear model as sums over portions of the rows, and its maximum.

A pass brings the loss, its gradient and its Hessian, a matrix of one row a coefficient, from all portions; on
a cluster the rows stay where they are. Columns that store all entries are taken less their means. Newton
steps are halved until the loss falls. All sums are in float64, and grouped in the same way for any number of
threads.
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dposv, dpstrf
from scipy.special import digamma, polygamma

from ....errors import DataError
from ....scheduler.sums.summed import Summed
from ...inputs.streamed import StreamedBlock, matrix_of, renewed
from .families import family_of

_BLOCK = 1 << 20  # entries of a block of rows
_ROWS = 8192  # of a dense block: numbers of so many rows stay in the cache
_KEPT = 1 << 18  # entries of a portion whose columns are kept for the next pass
_OUTSIDE, _ROUNDING = 1e-3, 1e-6  # slopes outside of a singular Hessian: part of all, and of the loss's root
_DEPENDENT = 1e-12  # a squared pivot below this share of its diagonal: columns depend on each other
_INDEPENDENT = 1e-6  # above this share pivots need no second look
_HALVINGS, _EIGHTHS = 10, 20  # of a Newton step, and then its eighths: 1e-21 of it is none
_LEFT = 1e-10  # of the loss: a step that gains less is rounding


class Likelihood(Summed):
    """Portions of rows with targets, weights, offsets and clusters, and the sums that they answer.

    `shards`: (source, y, weights, offset, clusters) each; the last two may be None. ``read(source)`` returns
    a checked ndarray or csr_array. Requests bring the `spec` of a family, since its parameters change.
    """

    def __init__(self, shards, read, n_features, fit_intercept):
        self.shards, self.read = shards, read
        self.n_features, self.fit_intercept = n_features, fit_intercept

    def load(self, data):
        """Read a portion."""
        source, *vectors = data
        return _Portion(self.read(source), *vectors)

    def portion(self, number, state, request):
        """Answer a request: a number and an array."""
        what, *args = request
        if args and isinstance(args[0], tuple):
            args[0] = family_of(*args[0])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            return getattr(self, what)(state.here(), *args)

    def renew(self, state):
        """See `Summed`; blocks that are read in every pass go on with this program's memory."""
        state.X = renewed(state.X, self.read)
        return state

    def kind(self, request):
        """Requests of one name take about as long as each other."""
        return request[0]

    def answer_bytes(self, request):
        """Bytes of an answer, about."""
        return 8 * (self.n_features + 1) ** (1 if request[0] in ("means", "reach") else 2)

    def means(self, state):
        """Weighted sums of the columns, and of the weights; and how many entries each column stores."""
        d = self.n_features
        out = np.zeros(2 * d + 1)
        for rows in state.blocks():
            X, weights = state.X[rows], state.vectors[1][rows]
            out[:d] += weights @ X.astype(np.float64)
            out[d] += weights.sum()
            if isinstance(X, np.ndarray):
                out[d + 1 :] += len(X)
            elif X.has_canonical_format:
                out[d + 1 :] += np.bincount(X.indices, minlength=d)
        return 0.0, out

    def newton(self, state, family, theta, means):
        """Half the deviance; and in one vector Pearson's sum, the gradient, and the Hessian.

        Pearson's sum is 0 where the dispersion is known: steps do not depend on it.
        """
        k = len(theta)
        value, chi, g, H = 0.0, 0.0, np.zeros(k), np.zeros((k, k))
        for A, y, weights, f, log_y, _ in self._design(state, theta, means):
            excess, slope, curvature = family.terms(y, f, log_y)
            value += float(weights @ excess)
            chi += 0.0 if family.known_dispersion else float(weights @ family.pearson(y, f))
            g += A.T @ (weights * slope)
            H += _products(A, weights * curvature)
        return value, np.concatenate([[chi], g, H.ravel()])

    def pearson(self, state, family, theta, means):
        """Pearson's sum, and no array."""
        each = (weights @ family.pearson(y, f) for _, y, weights, f, *_ in self._design(state, theta, means))
        return float(sum(each)), np.empty(0)

    def figures(self, state, family, theta, means, dispersion, frequencies):
        """The log-likelihood; and the expected information, unless it is the observed one."""
        value, E = 0.0, np.zeros((0 if family.canonical else len(theta),) * 2)
        for A, y, weights, f, *_ in self._design(state, theta, means):
            one = np.ones(len(y))
            each = family.log_likelihood(y, f, one if frequencies else weights, dispersion)
            value += float((weights if frequencies else one) @ each)
            if not family.canonical:
                E += _products(A, weights * family.information(f))
        return value, E

    def meat(self, state, family, theta, means, inverse, power, frequencies):
        """Products of the scores of rows, over ``(1 - h)^power`` with h the leverage, twice."""
        out = np.zeros((len(theta),) * 2)
        for A, y, weights, f, *_ in self._design(state, theta, means):
            slopes = family.loss.gradient(y, f)
            squares = weights * slopes**2 if frequencies else (weights * slopes) ** 2
            if power:
                leverage = _row_sums(A, A @ inverse)
                leverage *= family.information(f) if frequencies else weights * family.information(f)
                squares = squares / np.maximum(1 - leverage, 1e-300) ** power
            out += _products(A, squares)
        return 0.0, out

    def clusters(self, state, family, theta, means):
        """The scores of each cluster: a list of numbers of clusters and their sums."""
        found = []
        for A, y, weights, f, _, numbers in self._design(state, theta, means):
            there, place = np.unique(numbers, return_inverse=True)
            slopes = weights * family.loss.gradient(y, f)
            sums = sparse.csr_array((slopes, (place, np.arange(len(y)))), shape=(len(there), len(y))) @ A
            found.append((there, sums if isinstance(sums, np.ndarray) else sums.toarray()))
        return 0.0, found

    def reach(self, state, theta, means):
        """The furthest that a direction moves a predictor, a list of one number."""
        moved = [np.abs(A @ theta).max(initial=0.0) for A, *_ in self._design(state, theta, means)]
        return 0.0, [max(moved, default=0.0)]

    def shape(self, state, family, theta, means):
        """First and second derivative of the log-likelihood by the overdispersion of counts."""
        out = np.zeros(2)
        a = family.loss.overdispersion
        for _, y, weights, f, *_ in self._design(state, theta, means):
            mean, size = family.loss.mean(f), 1 / a
            log, whole = np.log1p(a * mean), 1 + a * mean
            # By the size 1 / a, and from there by a.
            by_size = digamma(y + size) - digamma(size) - log + a * (mean - y) / whole
            twice = polygamma(1, y + size) - polygamma(1, size) + a * mean * a / whole
            twice = twice - a**2 * (mean - y) / whole**2
            out += weights @ np.column_stack([-by_size * size**2, twice * size**4 + 2 * by_size * size**3])
        return 0.0, out

    def excess(self, state, family, theta, means):
        """How much more counts vary than Poisson's, and the squares of their means, in sum."""
        total, squares = 0.0, 0.0
        for _, y, weights, f, *_ in self._design(state, theta, means):
            mean = family.loss.mean(f)
            total += float(weights @ ((y - mean) ** 2 - y))
            squares += float(weights @ mean**2)
        return total, np.array([squares])

    def _design(self, state, theta, means):
        """Yield blocks of rows that have weight: columns of theta, targets, weights, predictors,
        logarithms of the targets, clusters.

        `theta` of one entry, where there are more columns, is the intercept alone; of none no column at all.
        """
        without = len(theta) < self.n_features + self.fit_intercept
        keeps = state.kept is None and isinstance(state.X, np.ndarray) and state.X.size <= _KEPT
        blocks = state.kept or (self._columns(state, rows, means) for rows in state.blocks())
        if keeps and not without:
            blocks = state.kept = list(blocks)
        for A, y, weights, offset, log_y, numbers in blocks:
            A = np.ones((len(y), len(theta))) if without else A
            f = np.asarray(A @ theta, np.float64).reshape(len(y))
            yield A, y, weights, f if offset is None else f + offset, log_y, numbers

    def _columns(self, state, rows, means):
        """Columns, targets, weights, offsets, logarithms and clusters of a block's rows that have weight."""
        vectors = [None if v is None else v[rows] for v in state.vectors]
        X, weighed = state.X[rows], state.vectors[1][rows] > 0
        if not weighed.all():
            X, vectors = X[weighed], [None if v is None else v[weighed] for v in vectors]
        y: Any
        y, weights, offset, numbers = vectors
        A = _columns(X, means, self.fit_intercept)
        return A, y, weights, offset, np.log(np.where(y > 0, y, 1.0)), numbers


class _Portion:
    """Rows, and y, weights, offset and clusters of them; `kept` are the blocks of a small one."""

    def __init__(self, X, *vectors):
        self.X, self.vectors = X, vectors
        self.kept: Any = None

    def here(self):
        """The portion with its rows, which may be read for every pass."""
        return _Portion(matrix_of(self.X), *self.vectors) if isinstance(self.X, StreamedBlock) else self

    def blocks(self):
        """Slices of rows."""
        n, d = self.X.shape
        size = max(64, _BLOCK // max(d, 1))
        size = min(size, _ROWS) if isinstance(self.X, np.ndarray) else size
        return [slice(start, min(n, start + size)) for start in range(0, n, size)]


def _columns(X, means, intercept):
    """Rows in float64, stored entries less the means of the columns, and a column of ones.

    Dense ones in Fortran order, in which few columns are multiplied sooner.
    """
    if isinstance(X, np.ndarray):
        A = np.ones((X.shape[1] + intercept, X.shape[0]))
        np.subtract(X.T, means[:, None] if intercept else 0.0, out=A[: X.shape[1]])
        return A.T
    X = X.astype(np.float64)
    if intercept and means.any():  # of columns that store all their entries
        X = sparse.csr_array((X.data - means[X.indices], X.indices, X.indptr), shape=X.shape)
    return sparse.hstack([X, np.ones((X.shape[0], 1))], format="csr") if intercept else X


def _products(A, h):
    """``A^T diag(h) A``, dense; h is not negative."""
    if isinstance(A, np.ndarray):
        B = A.T * np.sqrt(h)
        return B @ B.T
    return (A.T @ A.multiply(h[:, None]).tocsr()).toarray()


def _row_sums(A, B):
    """Sums over the columns of the products of entries."""
    return np.einsum("ij,ij->i", A, B) if isinstance(A, np.ndarray) else np.asarray(A.multiply(B).sum(axis=1))


class Maximum:
    """Where the likelihood is largest: coefficients, and what the last pass brought.

    Attributes: `theta`: of columns less `means`, the intercept last. `value`: half the deviance, and the
    penalty. `pearson`: Pearson's sum, 0 where the
    dispersion is known. `hessian`: the observed information. `dependent`: columns that depend
    on others and are left out, their coefficients 0. `separated`: whether the likelihood rises without end.
    `reason`: "converged", "max_iter", "stalled" or what ended it.
    """

    theta: Any
    value: float
    pearson: float
    hessian: Any
    n_iter = 0
    reason = "converged"
    separated = False
    dependent: Any = None

    def inverse_of(self, information):
        """Invert an information matrix over the columns that are not left out."""
        return inverse_without(information, self.dependent)


def maximise(
    passes,
    family,
    theta,
    means,
    *,
    ridges,
    n_free,
    least,
    tol,
    max_iter,
    report=None,
    warm=None,
    order=None,
    dependent=None,
):
    """Maximise the likelihood by Newton's method from `theta`, or from `warm` if that is higher.

    Returns a `Maximum`.

    A step is at most `tol` standard errors at the end. `ridges`: (k,), added to the diagonal of the Hessian.
    `n_free`: residual degrees of freedom, of columns that do not depend on each other; they divide Pearson's
    sum. `least`: a gain of the loss below it is rounding. `order`: of columns that depend on each other the
    last in it are left out. `dependent`: those to leave out, if they are known.
    """
    k = len(theta)

    def at(theta):
        value, found = passes.run(("newton", family.spec, theta, means))
        value += 0.5 * float(ridges[ridges > 0] @ theta[ridges > 0] ** 2)
        g, H = found[1 : k + 1] + ridges * theta, found[k + 1 :].reshape(k, k) + np.diag(ridges)
        finite = np.isfinite(value) and np.isfinite(g).all() and np.isfinite(H).all()
        if out.dependent is not None:
            g[out.dependent], H = 0.0, without(H, out.dependent)
        return (value if finite else np.inf), found[0], g, H

    out = Maximum()
    value, pearson, g, raw = at(theta)
    if dependent is None:
        dependent = dependent_columns(raw, order) if k and np.isfinite(value) else np.empty(0, np.intp)
    wrong = "not finite" if not np.isfinite(value) else "flat" * (len(dependent) and _vanishes(raw, g, value))
    if wrong:
        raise DataError(
            f"the likelihood is {wrong} where the fit begins, since offset or y is too large for the "
            f"{family.link} link: take fit_intercept=True, or subtract a constant from offset"
        )
    out.dependent, n_free = dependent, n_free + len(dependent)
    if len(dependent):
        theta = moved_off(dependent, theta, raw)
        warm = None if warm is None else moved_off(dependent, warm, raw)
        value, pearson, g, raw = at(theta)
    H = raw
    if warm is not None:
        found = at(warm)
        if found[0] < value:
            theta, (value, pearson, g, H) = warm, found
    step = np.zeros(k)
    for out.n_iter in range(1, max_iter + 1):
        if not k or (report is not None and report(value)):
            out.reason = "converged" if not k else "stopped"
            break
        step = -solve(H, g)
        decrement = -float(g @ step)
        unit = 1.0 if family.known_dispersion else max(pearson, 0.0) / max(n_free, 1)
        unit = min(unit, max(abs(value), 1.0))  # far from the maximum Pearson's sum is beyond all measure
        if decrement <= tol**2 * unit:  # of the order of rounding: the loss cannot tell
            new = at(theta + step)
            if np.isfinite(new[0]):
                theta, (value, pearson, g, H) = theta + step, new
            break
        t, before = 1.0, value
        for shortened in range(_HALVINGS + _EIGHTHS):
            new = at(theta + t * step)
            if new[0] < before:
                break
            t /= 2 if shortened < _HALVINGS else 8
        else:
            out.reason = "converged" if decrement <= _LEFT * abs(before) + least else "stalled"
            break
        theta, (value, pearson, g, H) = theta + t * step, new
    else:
        out.reason = "max_iter"
    out.theta, out.value, out.pearson, out.hessian = theta, value, pearson, H
    judged = out.reason == "converged" and k and not family.bounded
    if judged and not ridges.any():
        # The last step still goes far; or rows that left for infinity have no weight, so that what only
        # they separated depends on each other now.
        _, moved = passes.run(("reach", step, means))
        out.separated = max(moved) > 0.1 or len(dependent_columns(H)) > 0
    return out


def _vanishes(H, g, value):
    """Whether slopes g lie outside of a singular H: rows lost their weight. Of dependent columns none do."""
    scaled, scale = scaled_products(H)
    with np.errstate(over="ignore"):
        slopes = g / scale
    if not np.isfinite(slopes).all():
        return True
    rest = np.abs(slopes - scaled @ np.linalg.lstsq(scaled, slopes)[0]).max()
    return bool(rest > max(_OUTSIDE * np.abs(slopes).max(), _ROUNDING * np.sqrt(max(abs(value), 1.0))))


def scaled_products(H):
    """Products of columns with a diagonal of ones, and the columns' lengths."""
    squares = H.diagonal()
    scale = np.sqrt(np.where(squares > 0, squares, 1.0))
    return H / scale / scale[:, None], scale


def dependent_columns(H, order=None):
    """Numbers of columns that are combinations of others, from their products.

    `order`: of the columns; those that are combinations of earlier ones are returned.
    """
    scaled, _ = scaled_products(H)
    pivots = dpstrf(scaled, lower=1)[0].diagonal()
    if (pivots**2 > _INDEPENDENT).all():
        return np.empty(0, np.intp)
    _, R, pivot_order = qr(scaled, pivoting=True)
    rank = int(np.count_nonzero(np.abs(R.diagonal()) > _DEPENDENT * len(H)))
    # Columns of a basis N of the null space, H N = 0. Columns can be left out together if their rows of N are
    # independent: the last ones that are.
    N = np.zeros((len(H), len(H) - rank))
    N[pivot_order[:rank]] = -solve_triangular(R[:rank, :rank], R[:rank, rank:])
    N[pivot_order[rank:]] = np.eye(len(H) - rank)
    lengths = np.linalg.norm(N, axis=1)
    left_out: list[int] = []
    for column in (np.arange(len(H)) if order is None else order)[::-1].tolist():
        row = N[column] / max(lengths[column], 1e-300)
        if lengths[column] > _ROUNDING * lengths.max() and row @ row > _ROUNDING:
            row /= np.linalg.norm(row)
            N -= np.outer(N @ row, row)
            left_out.append(column)
    return np.sort(np.array(left_out, np.intp))


def moved_off(columns, theta, H):
    """Compute coefficients of the same predictors, 0 for `columns`, which depend on the others.

    `H`: products of all columns.
    """
    products = H @ theta
    products[columns] = 0.0
    return solve(without(H, columns), products)


def inverse_without(H, columns):
    """Invert a matrix over all but some columns; the entries of these are 0."""
    inverse = solve(without(H, columns), np.eye(len(H)))
    inverse[columns, columns] = 0.0
    return inverse


def without(H, columns):
    """The matrix with the rows and columns of the identity for `columns`: its inverse is that of the rest."""
    if len(columns):
        H = H.copy()
        H[columns] = H[:, columns] = 0.0
        H[columns, columns] = 1.0
    return H


def solve(H, g):
    """``H^-1 g``; where H is singular the smallest solution, of columns of one scale."""
    scaled, scale = scaled_products(H)
    right = (g.T / scale).T
    factor, x, info = dposv(scaled, right, lower=1)
    if info or not (factor.diagonal() ** 2 > _DEPENDENT).all():
        x = np.linalg.lstsq(scaled, right, rcond=1e-12)[0]
    return (x.T / scale).T
