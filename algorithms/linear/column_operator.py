"""Newton's method on more columns than have room for their products: each product passes over the columns."""

import numpy as np

_TOLERANCE, _MOST_STEPS = 1e-3, 300  # of conjugate gradients, relative to the right side


class ColumnOperator:
    """What `proximal_newton` asks of ``G = A^T A``, without G.

    Parameters
    ----------
    copies : DenseCopies or SparseCopies
    chosen : int64 ndarray of shape (k,)
        Positions in W, of columns of positive norm.
    """

    def __init__(self, copies, chosen):
        self.copies, self.chosen = copies, chosen
        self.norms = copies.norms[chosen]

    def times(self, x):
        """``G x``."""
        support = np.flatnonzero(x)
        return self._through_rows(self.chosen[support], x[support], self.chosen)

    def solve(self, S, right, diagonal):
        """Solve ``(diag(diagonal) + G_SS) z = right`` by conjugate gradients, preconditioned by the diagonal."""
        own, columns = self.norms[S] + diagonal, self.chosen[S]
        z, residual = np.zeros(len(S)), right.copy()
        step = residual / own
        rho = residual @ step
        least = _TOLERANCE**2 * rho
        for _ in range(_MOST_STEPS):
            if not rho > least:
                break
            product = self._through_rows(columns, step, columns) + diagonal * step
            length = rho / (step @ product)
            z += length * step
            residual -= length * product
            fresh = residual / own
            before, rho = rho, residual @ fresh
            step = fresh + (rho / before) * step
        return z

    def _through_rows(self, columns, x, others):
        v = np.zeros(self.copies.n_rows)
        self.copies.add(columns, x, v)
        return self.copies.dot(v, others)
