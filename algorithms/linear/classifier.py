"""Predictions of fitted linear classifiers."""

import functools
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Matrix, Vector
from .._base import Estimator, check_classes
from ..inputs.tables import ScoresFiles
from ..inputs.targets import AccuracyMixin
from .predictions import applied, linear_predictor
from .sparse.fitting import check_shapes


class LinearClassifier(ScoresFiles, AccuracyMixin, Estimator):
    """Predictions from `classes_`, `coef_` and `intercept_`; two classes have one row of coefficients."""

    classes_: np.ndarray
    coef_: Any
    intercept_: Any

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

    def decision_function(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute the linear predictors ``X @ coef_.T + intercept_ + offset``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Or a Dask array, and then the result is one.
        offset : array-like of shape (n_samples,) or (n_samples, n_classes), optional
            Added to the linear predictor of each row; the second shape is for more than two classes.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes the log-odds of ``classes_[1]``.
        """
        return linear_predictor(self, self.decision_function, X, offset)

    def predict(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Predict the most probable label of each row.

        Parameters
        ----------
        X, offset
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        scores = self.decision_function(X, offset=offset)
        return applied(functools.partial(_most_probable, self.classes_), scores, self.classes_.dtype)

    def predict_proba(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute the probabilities of the classes.

        Parameters
        ----------
        X, offset
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Rows sum to 1.
        """
        scores = self.decision_function(X, offset=offset)
        return applied(probabilities, scores, self.coef_.dtype, len(self.classes_))

    def predict_log_proba(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute the logarithms of the probabilities of the classes, without underflow.

        Parameters
        ----------
        X, offset
            As in `decision_function`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self.decision_function(X, offset=offset)
        return applied(log_probabilities, scores, self.coef_.dtype, len(self.classes_))

    def _check_state(self):
        super()._check_state()
        check_shapes(self)
        check_classes(self.classes_, self.coef_.shape[0] if self.coef_.ndim == 2 else 0)


def _most_probable(classes, scores):
    return classes[(scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)]


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
