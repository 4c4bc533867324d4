"""Block coordinate descent on a quadratic model plus a penalty of blocks, with accelerating steps.

The model is ``<B, H B> / 2 + <Q, B>`` with B of shape (m, K). H is known by the products of the columns, or
it is ``A^T D A`` of rows that cost less than the products. Sweeps of blocks find which coefficients are not
zero. On those the penalty is smooth: few of them take a Newton step, many an extrapolation of the sweeps,
wherever the objective falls by it.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ....kernels.linear import blocks as kernels

_MOST_SWEEPS = 20_000
_BETWEEN = 3  # sweeps between Newton steps, or kept iterates
_KEPT = 5  # iterates of an extrapolation
_MOST_DIRECT = 800  # coefficients of a Newton step
_DEPENDENT = 1e-6  # ratio of the pivots of columns that depend on each other
_SWEEPS = 15  # that are expected, for the choice between rows and products


def rows_are_cheaper(n_rows, n_columns, n_outputs):
    """Whether sweeps over rows cost less than the products of the columns, and sweeps over them.

    The constants are nanoseconds of one core: .25 for each of the 4 n operations of a visit by rows, 1/30 for
    a multiplication in a product of matrices, 2/3 for an entry of the products in a sweep.
    """
    by_rows = _SWEEPS * n_outputs * n_rows
    return by_rows < n_columns * (n_rows / 30 + _SWEEPS * n_outputs * 2 / 3)


class MatrixProducts:
    """H as a matrix."""

    direct = True

    def __init__(self, H, starts):
        self.H = H
        self.steps = _steps(starts, lambda places: H[places[:, :, None], places[:, None]])

    def start(self, Q, B):
        """Slopes at B."""
        self.Q, self.G = Q, self.H @ B + Q

    def sweeps(self, B, starts, *penalty, n_sweeps, tol):
        """Visit the blocks some times: see `kernels.sweeps`."""
        return kernels.sweeps(self.H, self.G, B, starts, self.steps, *penalty, n_sweeps, tol)

    def slopes(self, B):
        """Slopes at B, without the rounding of many changes."""
        self.G = self.H @ B + self.Q
        return self.G

    def times(self, V, places):
        """Product with H, between some places."""
        return (self.H[:, places] @ V)[places]


class RowProducts:
    """H as ``A^T D A``. `A`: float64 (n, m), in Fortran order. `D`: float64 (n,)."""

    direct = False

    def __init__(self, A, D, starts):
        self.A, self.D = A, D
        sizes = np.diff(starts)
        self.own = np.zeros((A.shape[1], int(sizes.max(initial=1))))
        kernels.own_products(A.T, D, starts, self.own)
        self.steps = _steps(starts, lambda places: self.own[places, : places.shape[1]])

    def start(self, Q, B):
        """Slopes at B."""
        self.Q = Q
        self.q = np.empty((B.shape[1], len(self.D)))
        self.slopes(B)

    def sweeps(self, B, starts, *penalty, n_sweeps, tol):
        """Visit the blocks some times: see `kernels.row_sweeps`."""
        given = self.A.T, self.D, self.Q, self.own, self.q, B, starts, self.steps
        return kernels.row_sweeps(*given, *penalty, n_sweeps, tol)

    def slopes(self, B):
        """Slopes at B, without the rounding of many changes."""
        on = np.flatnonzero(B.any(axis=1))
        self.q[:] = (self.A[:, on] @ B[on]).T * self.D
        return self.Q + self.A.T @ self.q.T

    def times(self, V, places):
        """Product with H, between some places."""
        A = self.A if len(places) == self.A.shape[1] else self.A[:, places]
        return A.T @ (self.D[:, None] * (A @ V))


def _steps(starts, own_parts):
    """One over the largest eigenvalue of each block; 0 of a block that is zero.

    ``own_parts(places)``: the parts of H between places, of the shape of `places` and its last axis again.
    """
    sizes = np.diff(starts)
    most = np.zeros(len(sizes))
    for size in np.unique(sizes).tolist():
        some = np.flatnonzero(sizes == size)
        own = own_parts(starts[some, None] + np.arange(size))
        most[some] = own[:, 0, 0] if size == 1 else np.linalg.eigvalsh(own)[:, -1]
    return np.where(most > 0, 1 / np.where(most > 0, most, 1), 0.0)


def block_descent(model, Q, B, starts, penalty, tol, *, convex, most=_MOST_SWEEPS):
    """Minimise from B, in place. `penalty`: lam, l1, low, high of the blocks, gamma and kind."""
    if not len(B):
        return
    model.start(Q, B)
    kept, wait, due = [B.copy()], 1, 1
    for turn in range(1, max(most // _BETWEEN, 1) + 1):
        if model.sweeps(B, starts, *penalty, n_sweeps=_BETWEEN, tol=tol) <= tol:
            return
        if not convex:
            model.slopes(B)
            continue
        kept.append(B.copy())
        if turn >= due and model.direct and B.shape[1] == 1 and np.count_nonzero(B) <= _MOST_DIRECT:
            # Steps that would leave the signs say that it is too early for them.
            whole = _newton_step(model, model.slopes(B), B, starts, *penalty[:4])
            wait = 1 if whole else 2 * wait
            due = turn + wait
        elif len(kept) > _KEPT:
            _extrapolate(model, model.slopes(B), B, kept, starts, *penalty[:4])
        else:
            continue
        model.slopes(B)
        kept = [B.copy()]


def _change(model, G, d, places):
    """How much the model changes by the change d of some places."""
    return float((d * G[places]).sum() + 0.5 * (d * model.times(d, places)).sum())


def _extrapolate(model, G, B, kept, starts, lam, l1, low, high):
    """Anderson's combination of iterates in place of the last, if the objective falls."""
    points = np.array([point.ravel() for point in kept])
    steps = np.diff(points, axis=0)
    products = steps @ steps.T
    products += 1e-12 * np.trace(products) * np.eye(len(steps))
    try:
        weights = np.linalg.solve(products, np.ones(len(steps)))
    except np.linalg.LinAlgError:
        return
    if not np.isfinite(weights).all() or abs(weights.sum()) < 1e-300:
        return
    sizes = np.diff(starts)
    new = (weights / weights.sum() @ points[1:]).reshape(B.shape)
    new = np.clip(new, np.repeat(low, sizes)[:, None], np.repeat(high, sizes)[:, None])

    def charge(C):
        norms = np.sqrt(np.add.reduceat((C**2).sum(axis=1), starts[:-1]))
        return float(lam @ norms) + float(l1 @ np.add.reduceat(np.abs(C).sum(axis=1), starts[:-1]))

    d = new - B
    places = np.flatnonzero(d.any(axis=1))
    if _change(model, G, d[places], places) + charge(new) < charge(B):
        B[:] = new


def _newton_step(model, G, B, starts, lam, l1, low, high):
    """Take a Newton step on what is not zero, if the objective falls; return whether it was a whole one.

    The penalty of a block is smooth there, of slope ``lam B / |B|`` and of curvature ``lam / |B|`` across B.
    """
    sizes = np.diff(starts)
    lam, l1, low, high = (np.repeat(values, sizes) for values in (lam, l1, low, high))
    places = np.flatnonzero((B[:, 0] != 0) & (B[:, 0] > low) & (B[:, 0] < high))
    if not len(places):
        return False
    b, lam, l1, low, high = B[places, 0], lam[places], l1[places], low[places], high[places]
    block = np.repeat(np.arange(len(sizes)), sizes)[places]
    firsts = np.flatnonzero(np.diff(block, prepend=-1))
    lengths = np.diff(firsts, append=len(places))

    def norms(c):
        return np.sqrt(np.add.reduceat(c * c, firsts))

    def charge(c):
        return float(lam[firsts] @ norms(c)) + float(l1 @ np.abs(c))

    size = np.repeat(norms(b), lengths)
    unit, across = b / size, lam / size
    M = model.H[np.ix_(places, places)]
    if (lengths > 1).any():
        M = M - np.where(block[:, None] == block, np.outer(across * unit, unit), 0.0)
        M[np.diag_indices_from(M)] += across
    try:
        factor = cho_factor(M, overwrite_a=True)
    except LinAlgError:  # columns that depend on each other
        return False
    pivots = np.diag(factor[0])
    if pivots.min() < _DEPENDENT * pivots.max():
        return False
    step = -cho_solve(factor, G[places, 0] + lam * unit + l1 * np.sign(b))
    crossing = (l1 > 0) | np.repeat(lengths == 1, lengths)
    for t in (1.0, 0.3):
        new = b + t * step
        new = np.clip(np.where(crossing & (new * b < 0), 0.0, new), low, high)
        d = (new - b)[:, None]
        if _change(model, G, d, places) + charge(new) < charge(b):
            B[places, 0] = new
            return t == 1.0 and bool(new.all())
    return False
