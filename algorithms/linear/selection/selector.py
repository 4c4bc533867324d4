"""What all selections of columns share: scikit-learn's `transform` and `get_support`, with our errors."""

from typing import Any

from scipy import sparse
from sklearn.base import MetaEstimatorMixin
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Matrix
from ....errors import DataError
from ..._base import Estimator
from ...inputs.matrices import check_rows


class Selector(SelectorMixin, MetaEstimatorMixin, Estimator):
    """Base of estimators that choose columns, as `support_`, by fits of another estimator."""

    support_: Array

    def transform(self, X: Matrix) -> Any:
        """Return the chosen columns.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features)

        Returns
        -------
        matrix of shape (n_samples, n_selected_features)
        """
        check_is_fitted(self, "support_")
        numbers = check_rows(self, X)
        return super().transform(numbers if getattr(getattr(X, "dtype", None), "kind", "") == "O" else X)

    def _get_support_mask(self) -> Array:
        check_is_fitted(self, "support_")
        return self.support_


def coefficients(fitted):
    """The coefficients of an estimator, dense."""
    coef = getattr(fitted, "coef_", None)
    if coef is None:
        raise DataError(
            f"estimator={type(fitted).__name__} has no coef_ after fit: take a linear model itself, not a "
            "pipeline or search around it"
        )
    return coef.toarray() if sparse.issparse(coef) else coef
