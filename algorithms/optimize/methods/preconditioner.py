"""Changes of variables w = P u, in which P P^T stands for the inverse of the Hessian.

A preconditioner has ``direct(v)``, P v, and ``transposed(v)``, P^T v: a gradient g in w is P^T g in u.
"""

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.linalg.blas import dtrsv

_LEAST = 1e-12  # of a diagonal entry before its column was centred: what rounding may leave of it
_TINY = float(np.finfo(np.float64).tiny)  # smaller entries have lost their digits
_FAR = 1e-6  # a column's variance as a part of its mean square, below which it is computed by itself
_HEAVY = 50.0  # largest |x_i|^2 over their mean: the diagonal at the start is that of a few rows
_JITTER, _GROWTH, _MOST_JITTER = 1e-14, 100.0, 1e4  # added to a diagonal that has no factor, relative to it


def _inverse_roots(diagonal):
    """``h^(-1/2)``, however far apart; entries that are zero, or as good as, count as the largest."""
    largest = diagonal.max(initial=0.0)
    if not largest > _TINY:
        return np.ones(len(diagonal))
    return 1 / np.sqrt(np.where(diagonal > _TINY, diagonal, largest))


def far_means(h, column):
    """Means of the columns, weighted by curvature, where one is so far from zero that h lost its variance.

    `h`, `column`: float64 (p,); diagonal of a Hessian, and the intercept's column, the last. Returns float64
    (p - 1,) or None; None where h will do.
    """
    if not h[-1] > 0:
        return None
    means = column[:-1] / h[-1]
    return means if (h[:-1] - h[-1] * means**2 < _FAR * h[:-1]).any() else None


class Diagonal:
    """P = diag(h)^(-1/2).

    `h`: float64 (p,); diagonal of a Hessian.
    """

    def __init__(self, h):
        self._root = _inverse_roots(h)

    def direct(self, v):
        """P v."""
        return self._root * v

    transposed = direct


class Centred:
    """P for columns far from zero and an intercept: as `Diagonal` would be, had the columns been centred.

    In the variables u the coefficients are D u and the intercept is ``u_c / sqrt(h_c) - m . D u``, m being
    the means of the columns (weighted by curvature) and ``D^(-2) = h - h_c m^2``, about their variances. `h`:
    diagonal of a Hessian, the intercept's h_c last; `column`: the intercept's column, h_c m; `centred`: the
    diagonal for columns less m, where it is known.
    """

    def __init__(self, h, column, centred=None):
        self._means = column[:-1] / h[-1]
        if centred is None:
            centred = np.append(np.maximum(h[:-1] - h[-1] * self._means**2, _LEAST * h[:-1]), h[-1])
        self._root = _inverse_roots(centred)

    def direct(self, v):
        """P v."""
        w = self._root * v
        w[-1] -= self._means @ w[:-1]
        return w

    def transposed(self, v):
        """P^T v."""
        g = v.copy()
        g[:-1] -= v[-1] * self._means
        return self._root * g


class Cholesky:
    """P = D L^(-T) with ``L L^T = D H D``, D bringing the diagonal of H to ones.

    A matrix that is singular to working precision gets a multiple of its diagonal added, from 1e-14 on and a
    hundred times more as often as it takes; `jitter` is that multiple. `means`: of columns, if H is that of
    columns less these (the intercept being the last); P is then for the columns themselves. `ridge`: part of
    the diagonal that is added where a pivot is smaller, see `LinearObjective.ridge`.
    """

    def __init__(self, H, means=None, ridge=0.0):
        self._means = means
        self._scale = _inverse_roots(np.diagonal(H))
        A = H * self._scale[:, None] * self._scale
        jitter = 0.0
        while True:
            self.jitter = jitter
            try:
                self._L = cholesky(A, lower=True, check_finite=False)
                if not ridge or np.diagonal(self._L).min() ** 2 >= ridge:
                    break
            except LinAlgError:
                if jitter > _MOST_JITTER:
                    raise
            if ridge:
                A.flat[:: len(A) + 1] += ridge
                ridge = 0.0
                continue
            more = max(_GROWTH * jitter, _JITTER)
            A.flat[:: len(A) + 1] += more - jitter
            jitter = more

    def direct(self, v):
        """P v."""
        w = self._scale * dtrsv(self._L, v, lower=1, trans=1)
        if self._means is not None:
            w[-1] -= self._means @ w[:-1]
        return w

    def transposed(self, v):
        """P^T v."""
        if self._means is not None:
            v = np.append(v[:-1] - v[-1] * self._means, v[-1])
        return dtrsv(self._L, self._scale * v, lower=1)

    def solve(self, v):
        """``P P^T v``, about H^(-1) v."""
        return self.direct(self.transposed(v))


class Factors:
    """Cholesky factors of an objective's Hessians, columns far from zero less their means."""

    def __init__(self, objective):
        self._objective, self._means = objective, None

    def at(self, x):
        """A `Cholesky` of the Hessian at x."""
        H, means = self.hessian(x)
        return Cholesky(H, means, self._objective.ridge)

    def hessian(self, x):
        """The Hessian at x, and the means that its columns are less by, or None."""
        if self._means is None:
            H = self._objective.hessian(x)
            if self._objective.fit_intercept:
                self._means = far_means(np.diagonal(H), H[-1])
        if self._means is not None:
            H = self._objective.hessian(x, self._means)
        return H, self._means


def less_class_means(v, n_classes):
    """An array (p, K), given as one vector, less the means of its rows.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.optimize.methods.preconditioner import less_class_means
    >>> less_class_means(np.array([1.0, 3.0, 0.0, 0.0]), 2)
    array([-1.,  1.,  0.,  0.])
    """
    rows = v.reshape(-1, n_classes)
    return (rows - rows.mean(axis=1, keepdims=True)).ravel()


class BetweenClasses:
    """P = (I - mean over the classes) diag(h)^(-1/2), for parameters that are an array (p, K).

    What is added to all classes alike changes no probability. There only the penalty bends the objective,
    which a diagonal that differs from class to class hides; at a minimum these means are zero, and stay so.

    `h`: float64 (p K,); diagonal of a Hessian. `n_classes`: K.
    """

    def __init__(self, h, n_classes):
        self._root, self._n_classes = _inverse_roots(h), n_classes

    def direct(self, v):
        """P v."""
        return less_class_means(self._root * v, self._n_classes)

    def transposed(self, v):
        """P^T v."""
        return self._root * less_class_means(v, self._n_classes)


class Repeated:
    """The same preconditioner for each of K columns of parameters that are an array (p, K).

    `one`: preconditioner; for vectors of length p. `n_columns`: K.
    """

    def __init__(self, one, n_columns):
        self._one, self._n_columns = one, n_columns

    def direct(self, v):
        """P v."""
        return self._each(self._one.direct, v)

    def transposed(self, v):
        """P^T v."""
        return self._each(self._one.transposed, v)

    def _each(self, function, v):
        columns = v.reshape(-1, self._n_columns)
        return np.column_stack([function(column) for column in columns.T]).ravel()


def has_long_rows(rows):
    """Whether a few rows are far longer than the others, as those of raw counts are."""
    largest, mean = rows.longest
    return largest > _HEAVY * mean


def scaling_of(objective, x):
    """A preconditioner from the diagonal of the Hessian at x.

    See `scaling_at`. Where a few rows are far longer than the others (raw
    counts), nothing is scaled: the diagonal at the start is theirs, and their curvature vanishes after the
    first steps.
    """
    return Diagonal(np.ones(len(x))) if has_long_rows(objective.rows) else scaling_at(objective, x)


def scaling_at(objective, x):
    """A preconditioner from the diagonal of the Hessian at x, where columns are centred with an intercept."""
    diagonal = objective.hessian_diagonal(x)
    if not objective.fit_intercept:
        return Diagonal(diagonal)
    intercept = np.zeros(len(x))
    intercept[-1] = 1.0
    column = objective.hessian_product(x, intercept)
    means = far_means(diagonal, column)
    return Centred(diagonal, column, None if means is None else objective.hessian_diagonal(x, means))
