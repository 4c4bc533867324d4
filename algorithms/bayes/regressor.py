"""The base of Bayesian regressions of numbers: predictions with their standard deviation."""

from typing import Literal, overload

import numpy as np
from sklearn.utils import column_or_1d

from ..._typing import Array, Matrix, Vector
from ...errors import DataError
from ..inputs.targets import R2Mixin, check_targets
from .estimator import BayesianRegression
from .mixed.families import log_density, mean, variance


class BayesianRegressor(R2Mixin, BayesianRegression):
    """Predictions with their standard deviation."""

    def _targets(self, y, n_samples):
        y = check_targets(y, n_samples, type(self).__name__)
        if y.ndim > 1 and y.shape[1] > 1:
            raise DataError(
                f"y has {y.shape[1]} columns, {type(self).__name__} takes one target: fit one model each"
            )
        return np.ascontiguousarray(column_or_1d(y, warn=True))

    @overload
    def predict(
        self,
        X: Matrix,
        return_std: Literal[False] = False,
        *,
        offset: Vector | None = None,
        groups: Vector | None = None,
    ) -> Array: ...

    @overload
    def predict(
        self,
        X: Matrix,
        return_std: Literal[True],
        *,
        offset: Vector | None = None,
        groups: Vector | None = None,
    ) -> tuple[Array, Array]: ...

    def predict(
        self,
        X: Matrix,
        return_std: bool = False,
        *,
        offset: Vector | None = None,
        groups: Vector | None = None,
    ) -> Array | tuple[Array, Array]:
        """Predict the mean of new observations, averaged over the posterior.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, n_features)
        return_std : bool, default=False
            Return the standard deviation of a new observation as well: that of its mean under the posterior,
            and its noise.
        offset : array-like of shape (n_samples,), optional
        groups : array-like of shape (n_samples,), optional
            Of a model that was fitted with groups. The intercept of a group that the fit did not see is
            averaged over the distribution of groups, and so is that of all rows where `groups` is None.

        Returns
        -------
        mean : ndarray of shape (n_samples,)
        std : ndarray of shape (n_samples,)
            With `return_std`.
        """
        if not return_std:
            return self._average(X, offset, groups, lambda f, _: [mean(self._family, f, {})], 1)[0]
        expected, squares, noise = self._average(X, offset, groups, self._moments, 3)
        return expected, np.sqrt(np.maximum(squares - expected**2, 0) + noise)

    def _targets_of_fit(self, y, n_samples):
        return self._targets(y, n_samples)

    def _family_parameters(self, posterior):
        """The family's own parameters under the draws."""
        raise NotImplementedError

    def _log_density(self, f, y, new):
        return log_density(self._family, f, y, self._family_parameters(self.posterior_))

    def _moments(self, f, posterior):
        own = self._family_parameters(posterior)
        expected = mean(self._family, f, own)
        noise = variance(self._family, expected, own)
        return expected, expected**2, np.broadcast_to(noise, expected.shape)

    def _shaped(self, values):
        return values if np.ndim(values) else float(values)
