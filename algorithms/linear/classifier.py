"""Predictions of fitted linear classifiers."""

from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Matrix
from .._base import Estimator, check_classes
from ..inputs.dask_arrays import is_dask, lazily
from ..inputs.matrices import check_rows
from ..inputs.tables import ScoresFiles, given_rows
from ..inputs.targets import AccuracyMixin
from .sparse.fitting import check_shapes


class ScoringClassifier(AccuracyMixin, Estimator):
    """Labels from scores, a column a class or a single one of two; and the forms of `coef_`."""

    classes_: np.ndarray
    coef_: Any

    def _most_probable(self, scores):
        return self.classes_[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]

    def sparsify(self) -> Self:
        """Turn `coef_` into a CSR array, in place.

        Returns
        -------
        self
            Predicts as before; worth it where an l1 penalty has left few coefficients.
        """
        check_is_fitted(self)
        self.coef_ = sparse.csr_array(self.coef_)
        return self

    def densify(self) -> Self:
        """Turn `coef_` into an ndarray again, in place.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        if not isinstance(self.coef_, np.ndarray):
            self.coef_ = self.coef_.toarray()
        return self

    def _check_state(self):
        super()._check_state()
        check_shapes(self)
        check_classes(self.classes_, self.coef_.shape[0] if self.coef_.ndim == 2 else 0)


def probabilities(scores):
    """Return the probabilities of the classes, from log-odds of two or a column a class."""
    if scores.ndim == 1:
        return np.column_stack([expit(-scores), expit(scores)])
    return softmax(scores, axis=1)


def log_probabilities(scores):
    """Return the logarithms of `probabilities`, without underflow."""
    if scores.ndim == 1:
        return np.column_stack([log_expit(-scores), log_expit(scores)])
    return log_softmax(scores, axis=1)


class LinearClassifier(ScoresFiles, ScoringClassifier):
    """Predictions from `classes_`, `coef_` and `intercept_`; two classes have one row of coefficients."""

    intercept_: np.ndarray

    def decision_function(self, X: Matrix) -> Array:
        """Compute the linear predictors ``X @ coef_.T + intercept_``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Or a Dask array, and then the result is one.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes the log-odds of ``classes_[1]``.
        """
        check_is_fitted(self)
        X = given_rows(self, X)
        if is_dask(X):
            n_outputs = None if self.coef_.shape[0] == 1 else self.coef_.shape[0]
            return lazily(self.decision_function, X, n_outputs, self.coef_.dtype)
        scores = safe_sparse_dot(check_rows(self, X), self.coef_.T, dense_output=True) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Matrix) -> Array:
        """Predict the most probable label of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        X = given_rows(self, X)
        if is_dask(X):
            check_is_fitted(self)
            return lazily(self.predict, X, None, self.classes_.dtype)
        return self._most_probable(self.decision_function(X))

    def predict_proba(self, X: Matrix) -> Array:
        """Compute the probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Rows sum to 1.
        """
        X = given_rows(self, X)
        if is_dask(X):
            check_is_fitted(self)
            return lazily(self.predict_proba, X, len(self.classes_), self.coef_.dtype)
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: Matrix) -> Array:
        """Compute the logarithms of the probabilities of the classes, without underflow.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        X = given_rows(self, X)
        if is_dask(X):
            check_is_fitted(self)
            return lazily(self.predict_log_proba, X, len(self.classes_), self.coef_.dtype)
        return log_probabilities(self.decision_function(X))
