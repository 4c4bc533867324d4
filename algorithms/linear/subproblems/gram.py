"""The problem on some columns of a working set, solved through their products alone.

Once ``G = A^T A`` of the columns that matter is known, a visit of coordinate descent costs their number
and not the number of rows, a Newton step a Cholesky factor, and a test of the gap next to nothing. Columns
join as they are needed and stay: later rounds, and later penalties of a path, find their products there.

Memory, in bytes: 8 for each pair of columns, and for dense columns 8 n each.
"""

import numpy as np
from scipy.linalg.lapack import dposv

from ....kernels.linear import descent as linear_descent
from ....kernels.linear import gram as linear_gram
from ..sparse.duality import limit, squared_gap
from .anderson import Trail
from .conjugate_gradients import KeptFactor
from .newton import proximal_newton

MOST_COLUMNS = 5000
_LEAST_ITERATED = 1500  # smaller Newton systems are factored each time
_KEPT = 0.2  # part of the last proximal step with which the next problem begins
_SUPPORT_SWEEPS = 4
_AGAIN = 0.05  # Newton's method is taken for so much cheaper where it was the faster way before
_POLISH = 0.2  # a solution for given signs costs this part of Newton's method
_MOST_POLISHED = 10  # coefficients that it may bring to zero
_RIDGE = 1e-14  # relative to the columns' squares, against singular products
_MOST_SWEEPS = 2000


class Products:
    """Products of the columns that joined.

    `copies`: DenseCopies or SparseCopies; of the working set; columns of norm 0 never join. Attributes:
    `members`: int64 (k,); positions in W of the columns that joined, in that order. `step`: of the last
    proximal step of Newton's method.
    """

    def __init__(self, copies):
        self.copies = copies
        self.members = np.empty(0, np.int64)
        self.step = 0.0
        self._room = np.empty((0, 0))
        self._place = np.empty(0, np.int64)

    def missing(self, chosen):
        """Those of the positions `chosen` that have not joined."""
        if len(self._place) < len(self.copies):
            more = np.full(len(self.copies) - len(self._place), -1)
            self._place = np.concatenate([self._place, more])
        return chosen[self._place[chosen] < 0]

    def join(self, new):
        """Compute the products of new columns with all."""
        k, members = len(self.members), np.concatenate([self.members, new])
        size = len(members)
        if size > len(self._room):
            room = np.empty((size + size // 2, size + size // 2))
            room[:k, :k] = self._room[:k, :k]
            self._room = room
        fresh = self.copies.products(new, members)
        self._room[k:size, :size] = fresh
        self._room[:k, k:size] = fresh[:, :k].T
        self._place[new] = np.arange(k, size)
        self.members = members

    def among(self, chosen):
        """Products of some members with one another: C-ordered ndarray."""
        places = self._place[chosen]
        return self._room[np.ix_(places, places)]


class GramProblem:
    """The problem on some columns, given through their products.

    `G`: float64 (k, k), C-ordered. `step`: of the last proximal step, if there was one.
    """

    def __init__(self, G, step=0.0):
        self.G, self.step = G, step
        self.norms = np.diagonal(G).copy()
        self._factor = KeptFactor()

    # An operator for Newton's method ------------------------------------------------------------------

    def times(self, x):
        """``G x``."""
        support = np.flatnonzero(x)
        if 3 * len(support) < len(x):
            return x[support] @ self.G[support]
        return self.G @ x

    def solve(self, S, right, diagonal):
        """Solve ``(diag(diagonal) + G_SS) z = right``; None if it is singular.

        Large systems go through conjugate gradients, preconditioned by a float32 factor that is kept while
        it serves.
        """
        if len(S) < _LEAST_ITERATED:
            return self._factored(S, right, diagonal)
        return self._factor.solve(self.G, S, right, diagonal)

    def _factored(self, S, right, diagonal):
        H = np.empty((len(S), len(S)), order="F")
        linear_descent.gather_lower(self.G, S, H)
        H.flat[:: len(S) + 1] += diagonal
        _, z, info = dposv(H, right, lower=1, overwrite_a=1)
        return z if info == 0 else None

    # The solution -----------------------------------------------------------------------

    def minimise(self, b, slopes, rho_rho, penalty, eps):
        """Reduce the gap of the problem on the members to `eps`, by descent or, if cheaper, Newton's method.

        `b`, `slopes`: float64 (k,); coefficients and exact ``A^T rho``; they are not changed. `rho_rho`:
        ``|rho|^2``. `penalty`: (float64 ndarray, float64 ndarray, bool), l1, l2 and positive. Returns `b`:
        float64 (k,).
        """
        l1, l2, positive = penalty
        b, slopes = b.copy(), slopes.copy()
        c = slopes + self.times(b)
        y_y = rho_rho + b @ (c + slopes)

        def gap_at(b, slopes):
            return gram_gap(b, slopes, c, y_y, penalty)

        trail, gap, wait, since, tired, visits = Trail(b, slopes), gap_at(b, slopes), 2, 0, False, 0
        signs = np.sign(b)
        for _ in range(_MOST_SWEEPS):
            if gap <= eps:
                break
            visits += linear_gram.descend(self.G, slopes, b, l1, l2, positive, 1, _SUPPORT_SWEEPS)
            since += 1
            if trail.add(b, slopes):
                b, slopes = self._extrapolate(trail, b, slopes, c, penalty)
                trail = Trail(b, slopes)
            if since < wait:
                continue
            before, gap = gap, gap_at(b, slopes)
            need = np.log(max(gap / eps, 1.0)) / np.log(max(before / max(gap, 1e-300), 1.0 + 1e-9)) * since
            part = _POLISH if tired else _AGAIN if self.step else 1.0
            if gap > eps and need * self._sweep_cost(b) > part * self._newton_cost(b):
                if np.array_equal(np.sign(b), signs):
                    visits += len(b)
                    b, slopes, gap = self._polish(b, slopes, c, gap, penalty, gap_at)
                if gap > eps and not tired:
                    step, tired = self.step * _KEPT, True
                    b, slopes, gap, self.step, steps = proximal_newton(
                        self, b, slopes, y_y, penalty, gap_at, eps, step=step
                    )
                    visits += steps * len(b)
                b, slopes = b.copy(), slopes.copy()
                trail = Trail(b, slopes)
            signs = np.sign(b)
            wait, since = int(min(max(2, 0.5 * need), 10)), 0
        return b, visits

    def _polish(self, b, slopes, c, gap, penalty, gap_at):
        """Solve for the present signs (a coefficient that would change its own becomes 0), if that helps."""
        l1, l2, _ = penalty
        signs, x, rest = np.sign(b), b.copy(), slopes
        for _ in range(_MOST_POLISHED):
            S = np.flatnonzero(x)
            if not len(S):
                break
            right = rest[S] - l1[S] * signs[S] - l2[S] * x[S]
            z = self._factored(S, right, l2[S] + _RIDGE * self.norms[S])
            if z is None:
                break
            crosses = ((x[S] + z) * signs[S] <= 0) & (l1[S] > 0)
            stops = np.where(crosses, -x[S] / np.where(z != 0, z, 1.0), np.inf)
            t = min(float(stops.min()), 1.0)
            x[S] += t * z
            x[S[stops <= t]] = 0.0
            rest = c - self.times(x)
            if not crosses.any():
                break
        polished = gap_at(x, rest)
        return (x, rest, polished) if polished < gap else (b, slopes, gap)

    def _extrapolate(self, trail, b, slopes, c, penalty):
        l1, l2, positive = penalty
        mixed = trail.mixed()
        if mixed is None:
            return b, slopes
        other, slopes_other = mixed
        if positive and (other < 0).any():
            other = np.maximum(other, 0.0)
            slopes_other = c - self.times(other)
        if _objective(other, slopes_other, c, l1, l2) < _objective(b, slopes, c, l1, l2):
            return other, slopes_other
        return b, slopes

    def _sweep_cost(self, b):
        return sweep_cost(len(b), np.count_nonzero(b))

    def _newton_cost(self, b):
        return newton_cost(len(b), np.count_nonzero(b))


def likely_cost(k, support, sweeps):
    """Seconds that `minimise` is likely to take where descent needs so many sweeps; only ratios matter."""
    return min(sweeps * sweep_cost(k, support), newton_cost(k, support)) + 4e-9 * k * k + 1e-3


def sweep_cost(k, support):
    """Seconds of a sweep over k columns and of those over the support that follow."""
    return 5e-9 * k + (1 + _SUPPORT_SWEEPS) * support * (10e-9 + 0.15e-9 * k)


def newton_cost(k, support):
    """Seconds of Newton's method."""
    return 8 * (support**3 / 6e10 + support**2 * 1e-9 + 3 * k**2 * 0.15e-9 + 1e-4)


def gram_gap(b, slopes, c, y_y, penalty):
    """Duality gap of least squares given through products; see `duality`."""
    l1, l2, positive = penalty
    return column_gap(b, slopes, l1, l2, positive, y_y - c @ b, y_y - b @ (c + slopes), np.inf)[1]


def column_gap(b, slopes, l1, l2, positive, y_r, r_r, outside):
    """Objective and gap from coefficients and slopes of columns, and a limit from those outside."""
    squares = l2 * b * b
    dual_squares = squares
    ridge = (l1 == 0) & (l2 > 0)
    if ridge.any():
        dual_squares = squares.copy()
        pulls = np.maximum(slopes, 0.0) if positive else slopes
        dual_squares[ridge] = pulls[ridge] ** 2 / l2[ridge]
    inside = slopes - l2 * b
    inside = np.maximum(inside, 0.0) if positive else np.abs(inside)
    inside[l1 == 0] = 0.0
    terms = (float(l1 @ np.abs(b)), float(squares.sum()), float(dual_squares.sum()))
    return squared_gap(float(y_r), max(float(r_r), 0.0), terms, min(outside, limit(l1, inside)))


def _objective(b, slopes, c, l1, l2):
    """Less ``|y|^2 / 2``."""
    return -0.5 * (b @ (c + slopes)) + l1 @ np.abs(b) + 0.5 * (l2 @ (b * b))
