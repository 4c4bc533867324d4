"""Exact steps along the columns that nothing holds at zero: features without penalty, of the squared loss.

The dual point of a fit must be orthogonal to each of them, so that they are solved for before each test of
the gap: the step ``delta = (A_U^T A_U)^+ A_U^T rho`` along these columns U, twice, because the product is as
ill-conditioned as the square of A_U. Many columns (alpha=0) are solved by LSMR instead.
"""

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, lsmr

MOST_DIRECT = 2000  # columns up to which their products are laid out
_SINGULAR = 1e-13  # eigenvalues below this part of the largest, and for each column, are taken for 0


class Unpenalised:
    """The exact step, with the factors of the last set of columns."""

    def __init__(self, copies):
        self.copies = copies
        self._chosen = np.empty(0, np.int64)
        self._half = np.empty((0, 0))

    def settle(self, chosen, rho):
        """Take the step.

        `chosen`: int64 ndarray; positions of the unpenalised columns in W, of positive norm. `rho`: float64
        (n_rows,); residual; changed in place, and orthogonal to these columns afterwards. Returns float64
        ndarray of the shape of `chosen`; what their coefficients change by.
        """
        norms = np.sqrt(self.copies.norms[chosen])
        if len(chosen) > MOST_DIRECT:
            return self._iterate(chosen, norms, rho)
        half, total = self._factored(chosen, norms), np.zeros(len(chosen))
        for _ in range(2):
            slopes = self.copies.dot(rho, chosen) / norms
            change = half @ (half.T @ slopes) / norms
            self.copies.add(chosen, -change, rho)
            total += change
        return total

    def reduced(self, chosen, G):
        """Products of other columns, made orthogonal to the unpenalised ones.

        `chosen`: int64 (u,); positions of the unpenalised columns, `MOST_DIRECT` at most. `G`: float64 (u +
        k, u + k); products of these columns and, after them, of k others. Returns float64 (k, k), C-ordered.
        """
        norms, u = np.sqrt(self.copies.norms[chosen]), len(chosen)
        cross = self._factored(chosen, norms).T @ (G[:u, u:] / norms[:, None])
        return np.ascontiguousarray(G[u:, u:] - cross.T @ cross)

    def _factored(self, chosen, norms):
        """H with ``H H^T`` the pseudo-inverse of the products of the columns, divided by their norms."""
        if not np.array_equal(chosen, self._chosen):
            values, vectors = eigh(self.copies.gram(chosen) / np.outer(norms, norms))
            kept = values > _SINGULAR * len(chosen) * values[-1]
            self._chosen, self._half = chosen, vectors[:, kept] / np.sqrt(values[kept])
        return self._half

    def _iterate(self, chosen, norms, rho):
        def forward(z):
            out = np.zeros(self.copies.n_rows)
            self.copies.add(chosen, np.ravel(z) / norms, out)
            return out

        def backward(v):
            return self.copies.dot(np.ravel(v), chosen) / norms

        shape = (self.copies.n_rows, len(chosen))
        operator = LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=np.float64)
        change = lsmr(operator, rho, atol=1e-14, btol=1e-14, conlim=0, maxiter=10 * len(chosen))[0] / norms
        self.copies.add(chosen, -change, rho)
        return change
