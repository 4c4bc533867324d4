"""EASE: linear regression of every item on all others, in closed form."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import linalg
from sklearn.utils._param_validation import Interval

from ....errors import DataError
from ....kernels.factorization.item_products import fill_dense_products
from ....scheduler.threads import effective_n_jobs, run_tasks
from ..._base import documented, keep_parameters
from ...inputs.memory import refuse_beyond
from .base import ATTRIBUTES, PARAMETERS, ItemModel, ranges, tables_of
from .knn import weights_of

_PARTS = 8  # tasks a thread, for balance
_BLOCK = 256  # columns whose weights are chosen at a time


@documented({"binary": PARAMETERS, "attributes": ATTRIBUTES})
class EASE(ItemModel):
    r"""Embarrassingly shallow autoencoder: each item as a linear combination of all others.

    With X the table of choices it minimises

    .. math:: |X - X B|_F^2 + \lambda |B|_F^2 \quad \text{with} \quad B_{jj} = 0

    by one Cholesky factor: with :math:`P = (X^T X + \lambda I)^{-1}` the minimum is
    :math:`B_{ij} = -P_{ij} / P_{jj}`. Scores of a user are ``x B``. It has one parameter, and on tables of
    tens of thousands of items at most it ranks as well as models that take far longer.

    Time grows with items³, memory is 12 bytes x items² while fitting and 4 bytes x items² afterwards, or 12
    bytes x `n_neighbors` x items.

    Parameters
    ----------
    reg : float, default=500.0
        lambda, above 0; in units of users. Values from 100 to 2,000 are usual: more for larger tables, and
        for those that show little beyond popularity.
    n_neighbors : int or None, default=None
        Weights of each item that are kept, those of the largest magnitude; None keeps all, a dense table.
    memory_limit : int, str or None, default=None
        Bytes, or "4GB": a fit that needs more is refused. None is the memory of this machine.
    %(binary)s
    n_jobs : int or None, default=None
        Threads of products and scores; None is 1, -1 all cores. The Cholesky factor takes those of BLAS.

    Attributes
    ----------
    %(attributes)s
    item_weights_ : ndarray or csr_array of float32, shape (n_items, n_items)
        B: ``item_weights_[j, i]`` is what a choice of j adds to the score of i.

    Raises
    ------
    DataError
        If items² do not fit the memory; see `fit`, too.

    References
    ----------
    Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019.

    Examples
    --------
    >>> import stradask as sd
    >>> from stradask.datasets import make_ratings
    >>> counts, _ = make_ratings(300, 60, 3, density=0.2, implicit=True, random_state=0)
    >>> ease = sd.EASE(reg=30).fit(counts)
    >>> ease.recommend([0, 1], n=3).items.shape
    (2, 3)
    """

    _parameter_constraints: ClassVar[dict] = {
        "reg": [Interval(Real, 0, np.inf, closed="neither")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), None],
        "memory_limit": [Interval(Integral, 1, None, closed="left"), str, None],
        "binary": ["boolean"],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        reg: float = 500.0,
        *,
        n_neighbors: int | None = None,
        memory_limit: Any = None,
        binary: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _learn(self, X):
        n_items = X.shape[1]
        refuse_beyond(
            self.memory_limit, 12.0 * n_items**2, f"EASE of {n_items:,} items takes",
            "leave out rare items, or take ItemKNN or SLIM, whose weights are sparse",
        )  # fmt: skip
        P = inverse(self._gram(X))
        diagonal = np.diagonal(P).copy()
        if self.n_neighbors is None:
            B = np.empty((n_items, n_items), np.float32)
            np.divide(P.T, -diagonal, out=B, casting="same_kind")
            np.fill_diagonal(B, 0)
            self.item_weights_ = B
        else:
            self.item_weights_ = largest(P, diagonal, min(self.n_neighbors, max(n_items - 1, 1)))

    def _gram(self, X):
        """``X' X + reg I`` in double precision."""
        n_items = X.shape[1]
        by_item, by_user = tables_of(X)
        G = np.zeros((n_items, n_items))
        parts = ranges(n_items, _PARTS * effective_n_jobs(self.n_jobs))
        run_tasks([(fill_dense_products, (a, b, by_item, by_user, G)) for a, b in parts], self.n_jobs)
        G[np.diag_indices(n_items)] += self.reg
        return G


def inverse(G):
    """Invert a positive definite matrix in its own memory, by Cholesky."""
    factor, info = linalg.lapack.dpotrf(G.T, lower=1, overwrite_a=1)
    if info == 0:
        factor, info = linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    if info != 0:
        raise DataError("X' X + reg I is not positive definite in double precision: take a larger reg")
    for a in range(0, len(factor), _BLOCK):  # the upper triangle is as it was
        stop = min(a + _BLOCK, len(factor))
        block = factor[a:stop, a:stop]
        block[:] = np.tril(block) + np.tril(block, -1).T
        factor[a:stop, stop:] = factor[stop:, a:stop].T
    return factor


def largest(P, diagonal, k):
    """The k weights of the largest magnitude of each column of ``-P / diagonal``, without the diagonal."""
    n_items = len(P)
    indices, values = np.empty((n_items, k), np.int32), np.empty((n_items, k))
    for a in range(0, n_items, _BLOCK):
        stop = min(a + _BLOCK, n_items)
        block = -P[:, a:stop].T / diagonal[a:stop, None]  # P is symmetric: rows are columns of B
        block[np.arange(stop - a), np.arange(a, stop)] = 0
        chosen = np.sort(np.argpartition(-np.abs(block), k - 1, axis=1)[:, :k], axis=1)
        indices[a:stop], values[a:stop] = chosen, np.take_along_axis(block, chosen, axis=1)
    indices[values == 0] = -1
    return weights_of(indices, values)
