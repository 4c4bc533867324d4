"""Newton systems that change little from one to the next, by conjugate gradients with a kept factor.

A system is ``(diag(d) + G_SS) z = right``; from step to step S loses and gains a few columns and d changes
by a factor. The Cholesky factor of one system, in float32, preconditions the next: columns that left are
given zeros, columns that are new have their diagonal alone. When that takes too many steps, a new factor
is made.
"""

import numpy as np
from scipy.linalg.blas import dsymv, strsv
from scipy.linalg.lapack import spotrf

from ....kernels.linear import descent as linear_descent

_TOLERANCE = 1e-8  # of the residual, relative to the right side
_MOST_STEPS = 25  # with an old factor; each costs about a fortieth of a new one where this is used
_MOST_FRESH = 200


class KeptFactor:
    """A factor and the columns that it is of."""

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

        z, residual = np.zeros(len(S)), right.copy()
        step = preconditioned(residual)
        rho = residual @ step
        for _ in range(most):
            product = dsymv(1.0, H, step, lower=1)
            length = rho / (step @ product)
            z += length * step
            residual -= length * product
            if residual @ residual <= (_TOLERANCE * scale) ** 2:
                return z
            fresh = preconditioned(residual)
            before, rho = rho, residual @ fresh
            if not rho > 0:
                return None
            step = fresh + (rho / before) * step
        return None
