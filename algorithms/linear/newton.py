"""Proximal-point method with semismooth Newton steps in the dual, for the squared loss on a working set.

With a step s > 0, ``sigma_j = s / |a_j|^2``, a point b and ``soft`` the soft threshold, each proximal step::

    b+ = argmin_z |y - A z|^2 / 2 + sum_j l1_j |z_j| + l2_j z_j^2 / 2 + (z_j - b_j)^2 / (2 sigma_j)

is found by its dual: solve ``u + y - A p(u) = 0`` for u, with ``p_j(u) = soft(b_j - sigma_j A_j.u,
sigma_j l1_j) / (1 + sigma_j l2_j)``. On S, the support of p, the Newton system is ``(diag((1 + sigma_j l2_j) /
sigma_j) + A_S^T A_S) z = A_S^T grad``, and the direction ``A_S z - grad``. Products of columns are kept for every
column that was ever in S.
"""

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dposv

from ...kernels import linear_descent

_FIRST_STEP, _FACTOR, _KEPT = 10.0, 5.0, 0.04  # s: at first, its growth, what is kept of it
_OUTER, _INNER = 40, 40
_LOOSE = 5.0  # inner steps stop at this multiple of |b+ - b| / s, in the norm of the columns
_MOST_DIRECT = 1500  # sparse: larger systems go to conjugate gradients
_MOST_SPARSE_STEPS = 40


class ProximalNewton:
    """The method, with what it keeps between problems: products of columns and the last step.

    Parameters
    ----------
    copies : DenseCopies or SparseCopies
    y : float64 ndarray of shape (n_rows,)
    """

    def __init__(self, copies, y):
        self.copies, self.y = copies, y
        self.step = 0.0
        self.members = np.empty(0, np.int64)
        self.products = np.empty((0, 0))
        self.place = np.empty(0, np.int64)

    def solve(self, b, rho, l1, l2, positive, eps, gap_at):
        """Reduce the gap to `eps`.

        Returns
        -------
        b : float64 ndarray
        reached : bool
        tired : bool
            The steps allowed were used up: descent may be better.
        visits : int
            Columns touched.
        """
        copies, y = self.copies, self.y
        if not copies.is_sparse:
            copies.exact()
        x, u = b, -rho
        slopes = copies.dot(u)
        norms = np.maximum(copies.norms, 1e-300)
        s = max(_FIRST_STEP, self.step * _KEPT)
        tiny = 1e-13 * np.sqrt(y @ y)
        steps = visits = 0
        allowed = _MOST_SPARSE_STEPS if copies.is_sparse else _OUTER * _INNER
        for _ in range(_OUTER):
            sigma = s / norms
            growth = 1.0 + sigma * l2
            held, inverse = sigma * l1, growth / sigma
            weight = 0.5 / (sigma * growth)
            for inner in range(_INNER):
                w = x - sigma * slopes
                p = np.maximum(w - held, 0.0) if positive else w - np.clip(w, -held, held)
                p /= growth
                support = np.flatnonzero(p)
                values = p[support]
                residual = y.copy()
                copies.add(support, -values, residual)
                gradient = u + residual
                size = np.sqrt(gradient @ gradient)
                moved = p - x
                if inner and (size <= _LOOSE * np.sqrt(moved @ (norms * moved)) / s or size < tiny):
                    break
                if steps >= allowed:
                    break
                d = self._direction(support, gradient, inverse[support])
                steps += 1
                visits += len(b) + len(support)
                slopes_d = copies.dot(d)
                descent = gradient @ d
                uu, ud, dd, yu, yd = u @ u, u @ d, d @ d, y @ u, y @ d
                now = 0.5 * uu + yu + 0.5 * (values @ (inverse[support] * values))
                t = 1.0
                for _ in range(20):
                    a = w - t * sigma * slopes_d
                    a = (a if positive else np.abs(a)) - held
                    np.maximum(a, 0.0, out=a)
                    then = 0.5 * (uu + 2 * t * ud + t * t * dd) + yu + t * yd + a @ (weight * a)
                    if then <= now + 1e-4 * t * descent + 1e-13 * abs(now):
                        break
                    t *= 0.5
                u = u + t * d
                slopes = slopes + t * slopes_d
            x = p
            gap = gap_at(x, residual, copies.dot(residual))
            if gap <= eps:
                break
            if steps >= allowed:
                break
            s *= _FACTOR
        self.step = s
        return x, gap <= eps, steps >= allowed, visits

    def cost(self, b):
        """Seconds that a solution is likely to take, as measured on one core; only ratios matter."""
        copies, n = self.copies, self.copies.n_rows
        support = np.count_nonzero(b)
        if copies.is_sparse:
            entries = len(copies.data)
            part = entries * support / len(b)
            if support <= _MOST_DIRECT:
                return 40 * (0.33 * support**3 / 5e10 + 4e-9 * entries) + part**2 / n * 5e-9
            return 40 * 150 * (2.0 * part + 2 * n) * 1.2e-9
        k = min(support, n)
        known = self._places(np.flatnonzero(b)) >= 0
        fresh = support - np.count_nonzero(known)
        products = 2.0 * n * support * fresh
        return (products + 3.3 * k**3) / 5e10 + 20.0 * n * len(b) / 5e9

    def _places(self, chosen):
        """Where columns stand in `products`; -1 for none."""
        if len(self.place) < len(self.copies):
            more = np.full(len(self.copies) - len(self.place), -1)
            self.place = np.concatenate([self.place, more])
        return self.place[chosen]

    def _gram(self, chosen):
        """Lower triangle of the products of some columns, which are kept."""
        new = chosen[self._places(chosen) < 0]
        if len(new):
            known, members = len(self.members), np.concatenate([self.members, new])
            fresh = self.copies.gram(new, members)
            products = np.empty((len(members), len(members)))
            products[:known, :known] = self.products
            products[known:] = fresh
            products[:known, known:] = fresh[:, :known].T
            self.place[new] = np.arange(known, len(members))
            self.members, self.products = members, products
        out = np.empty((len(chosen), len(chosen)), order="F")
        linear_descent.gather_lower(self.products, self._places(chosen), out)
        return out

    def _direction(self, support, gradient, diagonal):
        """Solve ``(I + A_S diag^-1 A_S^T) d = -gradient``, through the smaller side."""
        copies = self.copies
        if not len(support):
            return -gradient
        d = -gradient
        if not copies.is_sparse and len(support) > copies.n_rows:
            H = dsyrk(1.0, copies.exact()[:, support] / np.sqrt(diagonal), lower=1)
            H.flat[:: len(H) + 1] += 1.0
            return dposv(H, d, lower=1, overwrite_a=1)[1]
        right = copies.dot(gradient)[support]
        if copies.is_sparse and len(support) > _MOST_DIRECT:
            z = linear_descent.csc_conjugate_gradients(
                copies.data, copies.indices, copies.indptr, copies.norms, copies.means, copies.roots,
                support, right, diagonal, copies.n_rows, 300, 1e-2,
            )  # fmt: skip
        else:
            H = self._gram(support)
            H.flat[:: len(H) + 1] += diagonal
            z = dposv(H, right, lower=1, overwrite_a=1)[1]
        copies.add(support, z, d)
        return d
