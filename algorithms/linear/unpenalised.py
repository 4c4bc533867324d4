"""Exact least squares over the unpenalised columns of a working set.

The dual point of a fit must be orthogonal to every column that nothing holds at zero. So before each test of
the gap these columns U take the step ``delta = (A_U^T A_U)^+ A_U^T rho``, twice, because the product is as
ill-conditioned as the square of A_U. Many columns (alpha=0) are solved by LSMR instead.
"""

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, lsmr

_MOST_GRAM = 2000  # columns up to which their products are laid out


def settle(copies, free, rho):
    """Take the exact step.

    Parameters
    ----------
    copies : DenseCopies or SparseCopies
    free : int64 ndarray
        Positions of the unpenalised columns in W, of positive norm.
    rho : float64 ndarray of shape (n_rows,)
        Residual; changed in place, and orthogonal to these columns afterwards.

    Returns
    -------
    float64 ndarray of the shape of `free`
        What their coefficients change by.
    """
    if len(free) > _MOST_GRAM:
        return _iterate(copies, free, rho)
    norms = np.sqrt(copies.norms[free])
    values, vectors = eigh(copies.gram(free, free) / np.outer(norms, norms))
    kept = values > 1e-13 * len(free) * values[-1]
    half = vectors[:, kept] / np.sqrt(values[kept])
    total = np.zeros(len(free))
    for _ in range(2):
        slopes = copies.dot(rho)[free] / norms
        change = half @ (half.T @ slopes) / norms
        copies.add(free, -change, rho)
        total += change
    return total


def _iterate(copies, free, rho):
    norms = np.sqrt(copies.norms[free])

    def forward(z):
        out = np.zeros(copies.n_rows)
        copies.add(free, np.ravel(z) / norms, out)
        return out

    def backward(v):
        return copies.dot(np.ravel(v))[free] / norms

    operator = LinearOperator((copies.n_rows, len(free)), matvec=forward, rmatvec=backward, dtype=np.float64)
    change = lsmr(operator, rho, atol=1e-14, btol=1e-14, conlim=0, maxiter=10 * len(free))[0] / norms
    copies.add(free, -change, rho)
    return change
