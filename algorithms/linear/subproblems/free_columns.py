"""Newton steps of a smooth loss along columns that nothing holds: the intercept, features without penalty.

Many of them (alpha=0) take conjugate gradients in place of a matrix of their products.
"""

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, cg

from ....kernels.linear.weighted_descent import FLAT

_MOST_DENSE = 2000  # coefficients up to which the matrix of second derivatives is laid out
_SINGULAR = 1e-13  # part of the largest eigenvalue below which one counts as zero
_CG_TOL = 1e-13


def newton_step(loss, shares, Z, allowed):
    """Solve ``Z^T H Z a = Z^T V``, with H the Hessian of the loss and V its residual.

    `loss`: SmoothLoss. `shares`: float64 (n_outputs, n_rows). `Z`: ndarray or csc_array (n_rows, k).
    `allowed`: bool (n_outputs, k); which coefficients may move. Returns float64 (n_outputs, k); where the
    solution is not unique, one of (nearly) least norm.
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
