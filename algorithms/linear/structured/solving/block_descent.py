"""Block coordinate descent on a quadratic model plus a penalty of blocks, with accelerating steps.

The model is ``<G, d> + <d, H d> / 2`` with d, of shape (m, K), the change of B from where its slopes are G. H
is known by the products of the columns, or it is ``A^T D A`` of rows that cost less than the products. A
block under its norm alone goes to its minimum, others take steps of a proximal gradient. Sweeps find which
coefficients are not zero. On those the penalty is smooth: few of them take a Newton step, many an
extrapolation of the sweeps, wherever the objective falls by it; also where it is not convex.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .....kernels.linear import blocks as kernels

_MOST_SWEEPS = 20_000  # a cap; the tolerance ends it
_BETWEEN = 3  # sweeps between Newton steps, or kept iterates
_FIRST = 2e5  # multiplications that cost as little as one such step on a small problem
_KEPT = 5  # iterates of an extrapolation
_FEW_DIRECT, _MOST_DIRECT = 150, 800  # coefficients of a compiled Newton step; of any
MOST_BASIS = 100  # columns of a block whose eigenvectors are taken
_DEPENDENT = 1e-6  # ratio of the pivots of columns that depend on each other
_SWEEPS = 15  # that are expected, for the choice between rows and products
_SWEEPS_NOT_CONVEX = 60  # the same, from some starts
_SWEEPS_SPARSE = 30  # of columns with few entries


def rows_are_cheaper(n_rows, n_columns, n_outputs, *, n_known=0, convex=True):
    """Whether sweeps over rows cost less than the products of the columns, and sweeps over them.

    `n_known`: columns whose products are there. The constants are nanoseconds of one core: .25 for each of
    the 4 n operations of a visit by rows, 1/30 for a multiplication in a product of matrices, 2/3 for an
    entry of the products in a sweep.
    """
    if n_columns**2 * n_rows < _FIRST:
        return False
    sweeps = n_outputs * (_SWEEPS if convex else _SWEEPS_NOT_CONVEX)
    products = (n_columns**2 - n_known**2) * n_rows / 30
    return n_columns * sweeps * n_rows < products + n_columns**2 * sweeps * 2 / 3


def sparse_rows_are_cheaper(n_rows, n_columns, entries, n_outputs, *, convex=True):
    """The same of a CSC matrix with `entries`, nanoseconds of one core.

    A visit takes 3 for each of its entries. A product of two columns takes 3 for each row that both have, and
    8 for its place in matrices.
    """
    sweeps = n_outputs * _SWEEPS_SPARSE * (1 if convex else 4)
    return sweeps * (3 * entries + 5 * n_columns) < 3 * entries**2 / n_rows + 8 * n_columns**2


class MatrixProducts:
    """H as a matrix. `state`: slopes at the last B."""

    direct = True

    def __init__(self, H, starts):
        self.H = H
        self.spectrum = _Spectrum()
        self.spectrum.add(starts, lambda places: H[places[:, :, None], places[:, None]])

    def start(self, G, B):
        """Begin at B, where the slopes are G."""
        self.state, self.first, self.origin = G.copy(order="F"), G, B.copy()  # each output in a row of memory

    def sweeps(self, B, starts, *penalty, n_sweeps, tol):
        """Visit the blocks some times: see `kernels.sweeps`."""
        if self.of_columns(B):
            state, b, steps = self.state[:, 0], B[:, 0], self.spectrum.steps
            return kernels.minimise_columns(self.H, state, b, steps, *penalty, tol, n_sweeps, _FEW_DIRECT)
        return kernels.sweeps(self.H, self.state, B, starts, *self.spectrum, *penalty, n_sweeps, tol)

    def of_columns(self, B):
        """Whether blocks are single columns of one output."""
        return B.shape[1] == 1 and len(self.spectrum.steps) == len(B)

    def value(self, B, state):
        """How much the model has changed since the start."""
        d = B - self.origin
        return float(np.sum(self.first * d) + 0.5 * np.sum(d * (state - self.first)))

    def moved(self, places, d):
        """Take up the change d of some places."""
        self.state += self.H[:, places] @ d

    def refresh(self, B):
        """Compute the state without the rounding of many changes."""
        self.state = self.first + self.H @ (B - self.origin)


class RowProducts:
    """H as ``A^T D A``. `A`: float64 (n, m), in Fortran order. `D`: float64 (n,). `state`: ``(D A d)^T``."""

    direct = False

    def __init__(self, A, D, starts):
        self.D, self.largest = D, int(np.diff(starts).max(initial=1))
        self.own = np.zeros((0, self.largest))
        self.spectrum, self.n_blocks = _Spectrum(), 0
        self.grow(A, starts)

    @property
    def _columns(self):
        """What the kernels take for A."""
        return self.A.T

    def grow(self, A, starts):
        """Take up columns behind those that are there."""
        self.A, first = A, len(self.own)
        starts = starts[self.n_blocks :] - first
        largest = max(self.largest, int(np.diff(starts).max(initial=1)))
        own = np.zeros((A.shape[1], largest))
        own[:first, : self.largest] = self.own
        kernels.own_products(self._columns[first:] if first else self._columns, self.D, starts, own[first:])
        self.own, self.largest = own, largest
        more = own[first:]
        self.spectrum.add(starts, lambda places: more[places, : places.shape[1]])
        self.n_blocks += len(starts) - 1

    def start(self, G, B):
        """Begin at B, where the slopes are G."""
        self.first, self.origin = G, B.copy()
        self.state = np.zeros((B.shape[1], len(self.D)))

    def sweeps(self, B, starts, *penalty, n_sweeps, tol):
        """Visit the blocks some times: see `kernels.row_sweeps`."""
        model = self._columns, self.D, self.first, self.own, self.state, B, starts
        return kernels.row_sweeps(*model, *self.spectrum, *penalty, n_sweeps, tol)

    def value(self, B, state):
        """How much the model has changed since the start."""
        squares = np.divide(state**2, self.D, out=np.zeros_like(state), where=self.D > 0)
        return float(np.sum(self.first * (B - self.origin)) + 0.5 * squares.sum())

    def refresh(self, B):
        """Compute the state without the rounding of many changes."""
        d = B - self.origin
        on = np.flatnonzero(d.any(axis=1))
        self.state[:] = (self.A[:, on] @ d[on]).T * self.D


class SparseRowProducts(RowProducts):
    """H as ``A^T D A - shares crossed^T`` of k eliminated columns. `A`: float64 CSC (n, m).

    `crossed`: float64 (m, k), products of A with the eliminated columns. `shares`: those times the inverse of
    the products of the eliminated columns with each other. `state`: ``(D A d)^T``, then ``(crossed^T d)^T``.
    """

    def __init__(self, A, D, starts, crossed, shares):
        A.sort_indices()
        self.crossed, self.shares = crossed, shares
        super().__init__(A, D, starts)

    @property
    def _columns(self):
        return self.A.data, self.A.indices, self.A.indptr, self.crossed, self.shares

    def start(self, G, B):
        """Begin at B, where the slopes are G."""
        super().start(G, B)
        self.state = np.zeros((B.shape[1], len(self.D) + self.crossed.shape[1]))

    def value(self, B, state):
        """How much the model has changed since the start."""
        d, n = B - self.origin, len(self.D)
        squares = np.divide(state[:, :n] ** 2, self.D, out=np.zeros((len(state), n)), where=self.D > 0)
        taken = float(np.sum((self.shares.T @ d) * state[:, n:].T))
        return float(np.sum(self.first * d) + 0.5 * (squares.sum() - taken))

    def refresh(self, B):
        """Compute the state without the rounding of many changes."""
        d = B - self.origin
        self.state[:] = np.concatenate([(self.A @ d).T * self.D, (self.crossed.T @ d).T], axis=1)


class _Spectrum:
    """Of each block's own part of H: one over the largest eigenvalue (0 if it is zero), and the basis.

    Unpacks to `steps`, `bases` and `spectra` of the kernels; blocks of single columns, and large ones, need
    no basis.
    """

    def __init__(self):
        self.steps = np.zeros(0)
        self.bases, self.spectra = np.zeros((0, 1)), np.zeros(0)

    def __iter__(self):
        return iter((self.steps, self.bases, self.spectra))

    def add(self, starts, own_parts):
        """Decompose blocks behind those that are there.

        ``own_parts(places)``: the parts of H between places, of the shape of `places` and its last axis
        again.
        """
        sizes = np.diff(starts)
        if not len(self.steps) and len(sizes) and sizes.max() == 1:
            self.spectra = own_parts(starts[:-1, None])[:, 0, 0]
            self.steps, self.bases = _inverse(self.spectra), np.zeros((len(sizes), 1))
            return
        most, spectra = np.zeros(len(sizes)), np.zeros(int(starts[-1]) if len(starts) else 0)
        widths = sizes[sizes <= MOST_BASIS]
        bases = np.zeros((len(spectra), max(int(widths.max(initial=1)), self.bases.shape[1])))
        for size in np.unique(sizes).tolist():
            some = np.flatnonzero(sizes == size)
            places = starts[some, None] + np.arange(size)
            own = own_parts(places)
            if size == 1:
                most[some] = spectra[places[:, 0]] = own[:, 0, 0]
            elif size > MOST_BASIS:
                most[some] = np.linalg.eigvalsh(own)[:, -1]
            else:
                values, vectors = np.linalg.eigh(own)
                most[some] = values[:, -1]
                spectra[places] = np.maximum(values, 0)
                bases[places, :size] = vectors
        there = np.zeros((len(self.bases), bases.shape[1]))
        there[:, : self.bases.shape[1]] = self.bases
        self.bases = np.concatenate([there, bases])
        self.spectra = np.concatenate([self.spectra, spectra])
        self.steps = np.concatenate([self.steps, _inverse(most)])


def _inverse(values):
    """One over each value, 0 where it is not above 0."""
    return np.divide(1.0, values, out=np.zeros(len(values)), where=values > 0)


def block_descent(model, G, B, starts, penalty, tol, *, convex, most=_MOST_SWEEPS):
    """Minimise from B, in place.

    `G`: slopes at B. `penalty`: lam, l1, low and high of the blocks, gamma and kind.
    """
    if not len(B):
        return
    model.start(G, B)
    kept, wait, due = [(B.copy(), model.state.copy())], 1, 1
    n_sweeps = _BETWEEN
    single = model.direct and model.of_columns(B)
    if single and model.sweeps(B, starts, *penalty, n_sweeps=most, tol=0.1 * tol) <= tol:
        return
    if model.direct and convex:  # else Newton steps come early: many sweeps may lead to a worse point
        n_sweeps = max(n_sweeps, min(most, int(_FIRST // (B.size * len(B)))))
    for turn in range(1, max(most // _BETWEEN, 1) + 1):
        if model.sweeps(B, starts, *penalty, n_sweeps=n_sweeps, tol=tol) <= tol:
            return
        # Between whole sweeps go some over what is not zero, unless that is much.
        n_sweeps = (
            1 if convex and B.shape[1] > 1 and 2 * np.count_nonzero(B.any(axis=1)) > len(B) else _BETWEEN
        )
        kept.append((B.copy(), model.state.copy()))
        if turn >= due and model.direct and B.shape[1] == 1 and np.count_nonzero(B) <= _MOST_DIRECT:
            # Steps that would leave the signs say that it is too early for them.
            whole = _newton_step(model, B, starts, *penalty)
            wait = 1 if whole else 2 * wait
            due = turn + wait
        elif len(kept) > _KEPT:
            _extrapolate(model, B, kept, starts, *penalty)
        else:
            continue
        if turn % 32 == 0:
            model.refresh(B)
        kept = [(B.copy(), model.state.copy())]


def _extrapolate(model, B, kept, starts, lam, l1, low, high, gamma, kind):
    """Anderson's combination of iterates in place of the last, if the objective falls."""
    points = np.array([point.ravel() for point, _ in kept])
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
    weights = weights / weights.sum()
    new = (weights @ points[1:]).reshape(B.shape)
    inside = np.clip(new, np.repeat(low, sizes)[:, None], np.repeat(high, sizes)[:, None])
    if (inside != new).any():  # the state is that of the combination
        return
    state = np.tensordot(weights, np.array([state for _, state in kept[1:]]), 1)

    def charge(C):
        norms = np.sqrt(np.add.reduceat((C**2).sum(axis=1), starts[:-1]))
        absolute = float(l1 @ np.add.reduceat(np.abs(C).sum(axis=1), starts[:-1]))
        return float(kernels.terms(norms, lam, gamma, kind)[0].sum()) + absolute

    if model.value(new, state) + charge(new) < model.value(B, model.state) + charge(B):
        B[:], model.state[:] = new, state


def _newton_step(model, B, starts, lam, l1, low, high, gamma, kind):
    """Take a Newton step on what is not zero, if the objective falls; return whether it was a whole one.

    The penalty of a block of norm s is smooth there, of slope ``phi'(s) B / s``, of curvature ``phi'(s) / s``
    across B and ``phi''(s)`` along it.
    """
    sizes = np.diff(starts)
    of_block = np.repeat(np.arange(len(sizes)), sizes)
    places = np.flatnonzero((B[:, 0] != 0) & (B[:, 0] > low[of_block]) & (B[:, 0] < high[of_block]))
    if not len(places):
        return False
    b, block = B[places, 0], of_block[places]
    l1, low, high = l1[block], low[block], high[block]
    firsts = np.flatnonzero(np.diff(block, prepend=-1))
    lengths = np.diff(firsts, append=len(places))

    def terms(c):
        return kernels.terms(np.sqrt(np.add.reduceat(c * c, firsts)), lam[block[firsts]], gamma, kind)

    charge, slope, bend = terms(b)
    size = np.repeat(np.sqrt(np.add.reduceat(b * b, firsts)), lengths)
    unit, across, along = b / size, np.repeat(slope, lengths) / size, np.repeat(bend, lengths)
    H = model.H[np.ix_(places, places)]
    M = H.copy()
    if (lengths > 1).any():
        M += np.where(block[:, None] == block, np.outer((along - across) * unit, unit), 0.0)
        M[np.diag_indices_from(M)] += across
    else:
        M[np.diag_indices_from(M)] += along
    try:
        factor = cho_factor(M, overwrite_a=True)
    except LinAlgError:  # columns that depend on each other, or no minimum is near
        return False
    pivots = np.diag(factor[0])
    if pivots.min() < _DEPENDENT * pivots.max():
        return False
    g = model.state[places, 0]
    step = -cho_solve(factor, g + np.repeat(slope, lengths) * unit + l1 * np.sign(b))
    crossing = (l1 > 0) | np.repeat(lengths == 1, lengths)
    before = float(charge.sum()) + float(l1 @ np.abs(b))
    for t in (1.0, 0.3):
        new = b + t * step
        new = np.clip(np.where(crossing & (new * b < 0), 0.0, new), low, high)
        d = new - b
        change = float(d @ g) + 0.5 * float(d @ (H @ d))
        if change + float(terms(new)[0].sum()) + float(l1 @ np.abs(new)) < before:
            B[places, 0] = new
            model.moved(places, d[:, None])
            return t == 1.0 and bool(new.all())
    return False
