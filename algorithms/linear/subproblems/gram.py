"""The problem on some columns of a working set, solved through their products alone.

Once ``G = A^T A`` of the columns that matter is known, a visit of coordinate descent costs their number
and not the number of rows, a Newton step a Cholesky factor, and a test of the gap next to nothing. Columns
join as they are needed and stay: later rounds, and later penalties of a path, find their products there.

Memory, in bytes: 8 for each pair of columns, and for dense columns 8 n each.

Three methods share the work: coordinate descent, its iterates extrapolated (`Trail`); a proximal-point method
with semismooth Newton steps (`proximal_newton`); and the system of the present signs (`GramProblem._polish`).
Large Newton systems are solved by conjugate gradients with a factor that is kept (`KeptFactor`).

**Newton's method.** Least squares with an absolute and a square penalty needs of its columns A only G = A^T A
and c = A^T y. With
a step s > 0 and ``sigma_j = s / |a_j|^2``, each proximal step from a point b::

    b+ = argmin_z |y - A z|^2 / 2 + sum_j l1_j |z_j| + l2_j z_j^2 / 2 + (z_j - b_j)^2 / (2 sigma_j)

is found by its dual: solve ``u + y - A p(u) = 0``, where
``p_j(u) = soft(b_j - sigma_j a_j.u, sigma_j l1_j) / (1 + sigma_j l2_j)``. Every u met on the way is
``A q - y`` for some q, so that q takes its place: ``A^T u = G q - c``, and the gradient of the dual is
``A (q - p)``. With S the support of p, a Newton step solves
``(diag((1 + sigma_j l2_j) / sigma_j) + G_SS) z = (G (q - p))_S`` and moves q by ``p - q + z``.

References
----------
Bertrand, Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
Li, Sun, Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso problems",
SIAM Journal on Optimization 28(1), 2018.
"""

import itertools

import numpy as np
from scipy.linalg.blas import dsymv, strsv
from scipy.linalg.lapack import dposv, spotrf

from ....kernels.linear import descent as linear_descent
from ...optimize.methods.conjugate_gradients import conjugate_gradient_steps
from ..sparse.duality import column_gap

MOST_COLUMNS = 5000  # whose products take 200 MB
_LEAST_ITERATED = 1500  # smaller Newton systems are factored each time
_KEPT = 0.2  # part of the last proximal step with which the next problem begins
_SUPPORT_SWEEPS = 4  # over the support, for each over all columns
_AGAIN = 0.05  # Newton's method is taken for so much cheaper where it was the faster way before
_POLISH = 0.2  # a solution for given signs costs this part of Newton's method
_MOST_POLISHED = 10  # coefficients that it may bring to zero
_RIDGE = 1e-14  # relative to the columns' squares, against singular products
_MOST_SWEEPS = 2000  # a cap; the tolerance ends it,
_IDLE, _PROGRESS = 5, 0.999  # or tests, after Newton's method, of which none found a smaller gap: rounding
# Extrapolation
LENGTH = 5  # steps that an extrapolation combines
# Newton's method
_FIRST_STEP, _FACTOR = 10.0, 5.0  # s at first, and its growth
_MOST_STEP = 1e10  # beyond it only rounding changes
_OUTER, _INNER, _HALVINGS = 40, 40, 20  # caps of proximal Newton, of its sweeps, and of its line search
_WORSE = 7  # proximal steps without a smaller gap after which it ends
_ROUNDING = 1e-18  # a descent this small relative to |y|^2 is lost in rounding: the inner problem is solved
_LOOSE = 5.0  # inner steps stop at this multiple of |b+ - b| / s, in the norm of the columns
# Conjugate gradients
_TOLERANCE = 1e-8  # of the residual, relative to the right side
_MOST_STEPS = 25  # with an old factor; each costs about a fortieth of a new one where this is used
_MOST_FRESH = 200  # steps of conjugate gradients with a fresh factor; a cap


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
        signs, least, idle = np.sign(b), gap, 0
        for _ in range(_MOST_SWEEPS):
            if gap <= eps or (tired and idle == _IDLE):
                break
            visits += linear_descent.gram_sweeps(self.G, slopes, b, l1, l2, positive, 1, _SUPPORT_SWEEPS)
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
            idle = 0 if gap < _PROGRESS * least else idle + 1
            least = min(least, gap)
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


def _objective(b, slopes, c, l1, l2):
    """Less ``|y|^2 / 2``."""
    return -0.5 * (b @ (c + slopes)) + l1 @ np.abs(b) + 0.5 * (l2 @ (b * b))


class Trail:
    """The last iterates, with an image that is linear in them (a residual, slopes); see Bertrand and Massias.

    `b`: float64 (m,).
    """

    def __init__(self, b, image):
        self._points, self._images = [b.copy()], [image.copy()]

    def add(self, b, image):
        """Take one more iterate; return whether there are enough of them."""
        self._points.append(b.copy())
        self._images.append(image.copy())
        return len(self._points) > LENGTH

    def mixed(self):
        """Combine the iterates so that the same combination of their steps is as short as can be.

        Returns (ndarray, ndarray) or None; the point and its image; None if the iterates do not move, or
        there is no finite combination.
        """
        points = np.array(self._points)
        steps = np.diff(points, axis=0)
        products = steps @ steps.T
        trace = np.trace(products)
        if not trace > 0:
            return None
        products.flat[:: len(products) + 1] += 1e-12 * trace
        try:
            weights = np.linalg.solve(products, np.ones(len(products)))
        except np.linalg.LinAlgError:
            return None
        weights /= weights.sum()
        if not np.isfinite(weights).all():
            return None
        return weights @ points[1:], weights @ np.array(self._images[1:])


def proximal_newton(operator, b, slopes, y_y, penalty, gap_at, eps, *, step=0.0, most_steps=200):
    """Reduce the gap to `eps`; return the best b, its slopes and gap, the last s, the number of systems.

    `operator`: ``times(x)`` is G x; ``solve(S, right, diagonal)`` solves ``(diag(diagonal) + G_SS) z =
    right``, or returns None if it cannot; ``norms`` is the diagonal of G, all positive. `slopes`: ``c - G
    b``. `penalty`: l1, l2, and whether b is at or above zero. ``gap_at(b, slopes)``: the duality gap. `step`:
    s to begin with, if larger than the first.
    """
    l1, l2, positive = penalty
    norms = operator.norms
    x, q, u = b, b, -slopes  # u stands for A^T u
    c = slopes + operator.times(b)
    best = (b, slopes, gap_at(b, slopes))
    s, steps, worse = max(_FIRST_STEP, step), 0, 0
    for _ in range(_OUTER):
        sigma = s / norms
        growth = 1.0 + sigma * l2
        held, inverse = sigma * l1, growth / sigma
        weight = 0.5 * inverse / growth**2
        for inner in range(_INNER + 1):
            w = x - sigma * u
            p = _soft(w, held, positive) / growth
            slopes_p = c - operator.times(p)
            e, G_e = q - p, u + slopes_p
            size, moved = e @ G_e, p - x
            if not size > 0 or (inner and size <= _LOOSE**2 * (moved @ (norms * moved)) / s**2):
                break
            if steps >= most_steps or inner == _INNER:
                return (*best, s, most_steps)
            S = np.flatnonzero(p)
            z = operator.solve(S, G_e[S], inverse[S]) if len(S) else G_e[S]
            if z is None:
                return (*best, s, most_steps)
            steps += 1
            d = -e
            d[S] += z
            G_d = operator.times(d)
            if -(e @ G_d) <= _ROUNDING * y_y:
                break
            descent, q_q, d_q, d_d = e @ G_d, q @ (u + c), d @ (u + c), d @ G_d
            now = 0.5 * q_q + weight @ (growth * p) ** 2
            t = 1.0
            for _ in range(_HALVINGS):
                then = 0.5 * q_q + t * d_q + 0.5 * t * t * d_d
                then += weight @ _soft(w - t * sigma * G_d, held, positive) ** 2
                if then <= now + 1e-4 * t * descent + 1e-13 * abs(now):
                    break
                t *= 0.5
            q, u = q + t * d, u + t * G_d
        x = p
        gap = gap_at(x, slopes_p)
        worse = worse + 1 if gap >= best[2] else 0
        if gap < best[2]:
            best = (x, slopes_p, gap)
        if best[2] <= eps or worse > _WORSE:
            break
        s = min(s * _FACTOR, _MOST_STEP)
    return (*best, s, steps)


def _soft(w, held, positive):
    """Soft threshold."""
    return np.maximum(w - held, 0.0) if positive else w - np.clip(w, -held, held)


class KeptFactor:
    """Newton systems that change little from one to the next: conjugate gradients with a kept factor.

    A system is ``(diag(d) + G_SS) z = right``; from step to step S loses and gains a few columns and d
    changes by a factor. The Cholesky factor of one system, in float32, preconditions the next: columns that
    left are given zeros, columns that are new have their diagonal alone. When that takes too many steps, a
    new factor is made.
    """

    def __init__(self):
        self._columns = np.empty(0, np.int64)
        self._factor = None

    def solve(self, G, S, right, diagonal):
        """Solve ``(diag(diagonal) + G_SS) z = right``.

        `G`: float64 ndarray, C-ordered; products of at least the columns in `S`. `S`: int64 (m,). `right`,
        `diagonal`: float64 (m,). Returns float64 (m,) or None; None if the matrix is singular to working
        precision.
        """
        H = np.zeros((len(S), len(S)), order="F")  # the upper part is cast, too
        linear_descent.gather_lower(G, S, H)
        H.flat[:: len(S) + 1] += diagonal
        if self._factor is not None and 10 * len(np.setxor1d(S, self._columns)) < len(S):
            z = self._iterate(H, S, right, _MOST_STEPS)
            if z is not None:
                return z
        self._columns, self._factor = S, None
        factor, info = spotrf(H.astype(np.float32), lower=1, overwrite_a=1)
        if info:
            return None
        self._factor = factor
        return self._iterate(H, S, right, _MOST_FRESH)

    def _iterate(self, H, S, right, most):
        """Conjugate gradients; None if `most` steps are not enough."""
        own = np.diagonal(H)
        _, here, there = np.intersect1d(S, self._columns, assume_unique=True, return_indices=True)
        new = np.setdiff1d(np.arange(len(S)), here, assume_unique=True)
        scale = np.sqrt(right @ right)
        if not scale > 0:
            return np.zeros(len(S))

        def preconditioned(v):
            padded = np.zeros(len(self._columns), np.float32)
            padded[there] = v[here] / scale
            half = strsv(self._factor, padded, lower=1, overwrite_x=1)
            solved = strsv(self._factor, half, lower=1, trans=1, overwrite_x=1)
            out = np.empty(len(S))
            out[here] = solved[there]
            out[here] *= scale
            out[new] = v[new] / own[new]
            return out

        steps = conjugate_gradient_steps(lambda v: dsymv(1.0, H, v, lower=1), right, preconditioned)
        for state in itertools.islice(steps, most + 1):
            if state.residual @ state.residual <= (_TOLERANCE * scale) ** 2:
                return state.x
            if not state.square > 0:
                return None
        return None
