"""Exact steps along the columns that nothing holds at zero: features without penalty, and an intercept.

The dual point of a fit must be orthogonal to each of them, so that they are solved for before each test of
the gap.

*Squared loss* (`Unpenalised`): the step ``delta = (A_U^T A_U)^+ A_U^T rho`` along these columns U, twice,
because the product is as ill-conditioned as the square of A_U. Many columns (alpha=0) are solved by LSMR
instead.
*Smooth losses* (`newton_step`): Newton's step; many columns take conjugate gradients in place of a matrix.
"""

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, cg, lsmr

from ....kernels.linear.weighted_descent import FLAT

MOST_DIRECT = 2000  # columns up to which their products are laid out
_SINGULAR = 1e-13  # eigenvalues below this part of the largest, and for each column, are taken for 0
_MOST_DENSE = 2000  # coefficients up to which the matrix of second derivatives is laid out
_CG_TOL = 1e-13  # relative: as far as double precision goes


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


def newton_step(loss, shares, Z, allowed):
    """Solve ``Z^T H Z a = Z^T V``, with H the Hessian of the loss and V its residual.

    `shares`: float64 (n_outputs, n_rows). `Z`: ndarray or csc_array (n_rows, k). `allowed`: bool (n_outputs,
    k); which coefficients may move. Returns float64 (n_outputs, k); where the solution is not unique, one of
    (nearly) least norm.
    """
    slopes = (Z.T @ loss.residual(shares).T).T[allowed]
    step = np.zeros(allowed.shape)
    solve = _by_eigenvalues if len(slopes) <= _MOST_DENSE else _by_conjugate_gradients
    step[allowed] = solve(loss, shares, Z, allowed, slopes)
    return step


def _by_eigenvalues(loss, shares, Z, allowed, slopes):
    n_outputs, k = allowed.shape
    H = np.empty((n_outputs, k, n_outputs, k))
    for output in range(n_outputs):
        unit = np.zeros_like(shares)
        unit[output] = 1.0
        for row in range(n_outputs):
            H[row, :, output] = _weighted_products(Z, loss.hessian(shares, unit, row))
    pairs = np.flatnonzero(allowed)
    H = H.reshape(n_outputs * k, n_outputs * k)[np.ix_(pairs, pairs)]
    flat = np.flatnonzero(H.diagonal() <= FLAT)
    H[flat, flat] += np.abs(slopes[flat])  # what has no curvature moves by 1 at most
    if len(slopes) == 1:  # the intercept of two classes
        return slopes / (H[0] if H[0, 0] > 0 else 1.0)
    roots = _roots(H.diagonal())
    values, vectors = eigh(H / np.outer(roots, roots))
    kept = values > _SINGULAR * len(values) * max(values[-1], 0.0)
    half = vectors[:, kept] / np.sqrt(values[kept])
    return half @ (half.T @ (slopes / roots)) / roots


def _by_conjugate_gradients(loss, shares, Z, allowed, slopes):
    squares = Z**2
    curvature = [squares.T @ loss.curvature(shares, k) for k in range(len(shares))]
    curvature = np.array(curvature)[allowed]
    extra = np.where(curvature <= FLAT, np.abs(slopes), 0.0)
    roots = _roots(curvature + extra)

    def product(z):
        coef = np.zeros(allowed.shape)
        coef[allowed] = np.ravel(z) / roots
        V = np.ascontiguousarray((Z @ coef.T).T)
        HV = np.array([loss.hessian(shares, V, k) for k in range(len(shares))])
        return ((Z.T @ HV.T).T[allowed] + extra * coef[allowed]) / roots

    operator = LinearOperator((len(slopes), len(slopes)), matvec=product, dtype=np.float64)
    return cg(operator, slopes / roots, rtol=_CG_TOL, atol=0.0, maxiter=2 * len(slopes))[0] / roots


def _weighted_products(Z, weights):
    """``Z^T diag(weights) Z``."""
    if isinstance(Z, np.ndarray):
        return Z.T @ (Z * weights[:, None])
    return (Z.T @ Z.multiply(weights[:, None])).toarray()


def _roots(diagonal):
    """Square roots, 1 in place of 0."""
    roots = np.sqrt(np.maximum(diagonal, 0.0))
    return np.where(roots > 0, roots, 1.0)
