"""Vectors of a factorization for libraries of nearest neighbours: hnswlib and faiss."""

import importlib
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array
from ....errors import DataError, StradaskError, shortened


class Exports:
    """Exports of a factorization: inner products of vectors of users and items order the items of a user."""

    user_factors_: np.ndarray
    item_factors_: np.ndarray
    item_bias_: np.ndarray
    _known: Callable

    def query_vectors(self, users: Any) -> Array:
        """Vectors of users to search an index of items by, as `to_hnswlib` and `to_faiss` make it.

        Parameters
        ----------
        users : id or array-like of ids
            Users of `fit`.

        Returns
        -------
        ndarray of float32, shape (n_given, n_dimensions)
            Factors, and a 1 for the items' biases if there are any. A score of `recommend` is the inner
            product with the vector of an item, and what is the same for all items of the user.
        """
        check_is_fitted(self)
        factors = self.user_factors_[self._known(users, "user")].astype(np.float32)
        ones = np.ones((len(factors), int(self.item_bias_.any())), np.float32)
        return np.hstack([factors, ones])

    def _item_vectors(self):
        check_is_fitted(self)
        bias = self.item_bias_[:, None] if self.item_bias_.any() else self.item_bias_[:, None][:, :0]
        return np.ascontiguousarray(np.hstack([self.item_factors_, bias]), dtype=np.float32)

    def to_hnswlib(self, *, M: int = 16, ef_construction: int = 200, ef: int = 100) -> Any:
        """Make an index of hnswlib of the items, for searches by the largest inner product.

        Its searches are approximate and score few of the items. Labels are numbers of `item_ids_`:
        ``mf.item_ids_[index.knn_query(mf.query_vectors(users), k=10)[0]]``.

        Parameters
        ----------
        M, ef_construction, ef : int
            Of hnswlib: links of an item, and lengths of the lists of candidates to build and to search by.

        Returns
        -------
        hnswlib.Index
            In the space "ip"; its distances are 1 minus the inner product.

        Raises
        ------
        StradaskError
            If hnswlib is not installed.

        References
        ----------
        Malkov, Yashunin, "Efficient and robust approximate nearest neighbor search using hierarchical
        navigable small world graphs", IEEE TPAMI 2020.
        """
        for name, value in (("M", M), ("ef_construction", ef_construction), ("ef", ef)):
            _check_size(name, value, least=2 if name == "M" else 1)
        vectors = self._item_vectors()
        index = _library("to_hnswlib", "hnswlib", "hnswlib").Index(space="ip", dim=vectors.shape[1])
        index.init_index(max_elements=len(vectors), M=int(M), ef_construction=int(ef_construction))
        index.add_items(vectors, np.arange(len(vectors)), num_threads=1)
        index.set_ef(int(ef))
        return index

    def to_faiss(self, *, M: int | None = None) -> Any:
        """Make an index of faiss of the items, for searches by the largest inner product.

        ``scores, numbers = index.search(mf.query_vectors(users), 10)`` gives numbers of `item_ids_`.

        Parameters
        ----------
        M : int or None, default=None
            Links of an item of an approximate index (``IndexHNSWFlat``); None makes an exact one
            (``IndexFlatIP``).

        Returns
        -------
        faiss.Index

        Raises
        ------
        StradaskError
            If faiss is not installed.
        """
        if M is not None:
            _check_size("M", M, least=2)
        vectors = self._item_vectors()
        faiss = _library("to_faiss", "faiss", "faiss-cpu")
        size = vectors.shape[1]
        index = (
            faiss.IndexFlatIP(size)
            if M is None
            else faiss.IndexHNSWFlat(size, int(M), faiss.METRIC_INNER_PRODUCT)
        )
        index.add(vectors)
        return index


def _check_size(name, value, least):
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise DataError(f"{name} must be an integer of at least {least}, got {shortened(value)}")


def _library(door, module, package):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise StradaskError(
            f"{door} needs {package}, which is not installed: pip install {package}"
        ) from error
