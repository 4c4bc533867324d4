"""Item neighbours: the most similar items by the users that they have in common."""

from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions

from ....kernels.factorization.item_products import nearest_items
from ....scheduler.threads import effective_n_jobs, run_tasks
from ..._base import documented, keep_parameters
from .base import ATTRIBUTES, PARAMETERS, ItemModel, ranges, tables_of

_PARTS = 8  # tasks a thread, for balance


@documented({"binary": PARAMETERS, "attributes": ATTRIBUTES})
class ItemKNN(ItemModel):
    r"""Neighbourhood model: an item's score is the sum of its similarities to what the user has chosen.

    .. math:: s_{ui} = \sum_{j \in N(i)} x_{uj} \frac{w_i \cdot w_j}{\nu_i \nu_j + \sigma}

    over the `n_neighbors` most similar items N(i), with w_i the weighted column of item i, and sigma =
    `shrinkage`. With "cosine" w = x and with "tfidf" :math:`w_{ui} = \sqrt{x_{ui}} \log(m / (1 + m_u))`,
    where m is the number of items and m_u of those of user u; nu is the norm of w in both. With "bm25"

    .. math:: w_{ui} = \frac{x_{ui} (k + 1)}{x_{ui} + k (1 - b + b\, l_i / \bar l)} \log\frac{m}{1 + m_u}

    and nu = 1, with l_i the sum of column i and k, b = `k1`, `b`. Users who have nearly all items, where the
    logarithm is not above 0, do not count.

    The work grows with the sum over users of the squared number of their items; memory with
    `n_neighbors` x items. The result is *bitwise* the same for any `n_jobs`.

    Parameters
    ----------
    n_neighbors : int, default=200
    similarity : {"cosine", "tfidf", "bm25"}, default="tfidf"
    shrinkage : float, default=0.0
        sigma: similarities of items with few users in common are shrunk.
    k1 : float, default=1.2
        Of "bm25": from which count on a further one says little.
    b : float, default=0.75
        Of "bm25", from 0 to 1: how far popular items are weighed down.
    %(binary)s
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores.

    Attributes
    ----------
    %(attributes)s
    item_weights_ : csr_array of float32, shape (n_items, n_items)
        ``item_weights_[j, i]`` is the similarity of j to i if j is in N(i).

    Raises
    ------
    DataError
        See `fit`.

    References
    ----------
    Deshpande, Karypis, "Item-based top-N recommendation algorithms", ACM TOIS 2004. Robertson, Zaragoza, "The
    probabilistic relevance framework: BM25 and beyond", Foundations and Trends in Information Retrieval 2009.

    Examples
    --------
    >>> import stradask as sd
    >>> from stradask.datasets import make_ratings
    >>> counts, _ = make_ratings(300, 60, 3, density=0.2, implicit=True, random_state=0)
    >>> knn = sd.ItemKNN(20).fit(counts)
    >>> knn.recommend([0, 1], n=3).items.shape
    (2, 3)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "similarity": [StrOptions({"cosine", "tfidf", "bm25"})],
        "shrinkage": [Interval(Real, 0, np.inf, closed="left")],
        "k1": [Interval(Real, 0, np.inf, closed="neither")],
        "b": [Interval(Real, 0, 1, closed="both")],
        "binary": ["boolean"],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        n_neighbors: int = 200,
        *,
        similarity: str = "tfidf",
        shrinkage: float = 0.0,
        k1: float = 1.2,
        b: float = 0.75,
        binary: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _learn(self, X):
        W = self._weighted(X.astype(np.float64))
        n_items = W.shape[1]
        norms = np.ones(n_items)
        if self.similarity != "bm25":
            norms = np.sqrt(np.bincount(W.indices, W.data**2, n_items))
        by_item, by_user = tables_of(W)
        k = max(1, min(self.n_neighbors, n_items - 1))
        indices, values = np.empty((n_items, k), np.int32), np.empty((n_items, k), np.float64)
        parts = ranges(n_items, _PARTS * effective_n_jobs(self.n_jobs))
        shared = by_item, by_user, norms, float(self.shrinkage), indices, values
        run_tasks([(nearest_items, (a, b, *shared)) for a, b in parts], self.n_jobs)
        self.item_weights_ = weights_of(indices, values)

    def _weighted(self, X):
        """Columns as the similarity weighs them, of values above zero."""
        if self.similarity == "cosine":
            return X
        n_users, n_items = X.shape
        rows = np.repeat(np.arange(n_users), np.diff(X.indptr))
        idf = np.maximum(np.log(n_items) - np.log1p(np.diff(X.indptr)), 0.0)[rows]
        if self.similarity == "tfidf":
            values = np.sqrt(X.data) * idf
        else:
            lengths = np.bincount(X.indices, X.data, n_items)
            length = 1 - self.b + self.b * lengths[X.indices] / lengths.mean()
            values = X.data * (self.k1 + 1) / (self.k1 * length + X.data) * idf
        W = sparse.csr_array((values, X.indices.copy(), X.indptr), shape=X.shape)
        W.eliminate_zeros()
        return W


def weights_of(indices, values):
    """A CSR table of weights from the neighbours (-1 for none) of each column."""
    n_items = len(indices)
    columns = np.repeat(np.arange(n_items), indices.shape[1])
    there = indices.ravel() >= 0
    cells = indices.ravel()[there], columns[there]
    weights = values.ravel()[there].astype(np.float32)
    return sparse.csr_array((weights, cells), shape=(n_items, n_items))
