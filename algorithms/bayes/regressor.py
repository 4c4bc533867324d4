"""The base of Bayesian regressions of numbers: predictions with their standard deviation."""

from typing import Literal, Self, overload

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Callback, Matrix, Vector
from ...errors import DataError
from ..inputs.targets import check_targets
from .estimator import BayesianRegression


class BayesianRegressor(RegressorMixin, BayesianRegression):
    """Predictions with their standard deviation."""

    def _targets(self, y, n_samples):
        y = check_targets(y, n_samples, type(self).__name__)
        if y.ndim > 1 and y.shape[1] > 1:
            raise DataError(
                f"y has {y.shape[1]} columns, {type(self).__name__} takes one target: fit one model each"
            )
        return np.ascontiguousarray(column_or_1d(y, warn=True))

    def fit(
        self,
        X: Matrix,
        y: Vector | None = None,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        groups: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Draw from the posterior.

        Ctrl-C stops a run in one piece after the running hundred draws, and keeps those, with a warning.

        Parameters
        ----------
        X : ndarray or DataFrame of shape (n_samples, n_features), Dask array, or list of shards
            Blocks of rows of a Dask array (not persisted), and entries of a list, are shards. Workers read
            them, and read them again if a worker is lost. Entries are paths of npz files with X and y, and
            perhaps sample_weight, offset and groups; paths of svmlight files; pairs of npy files; Delayed of
            (X, y).
        y : array-like of shape (n_samples,), or Dask array
            None with a list, whose entries hold y.
        sample_weight : float or array-like of shape (n_samples,), optional
            A row of weight 2 counts as two rows.
        offset : array-like of shape (n_samples,), optional
            Added to the linear predictor of each row; the logarithm of an exposure, for counts.
        groups : array-like of shape (n_samples,), optional
            The label of each row's group, a number, text or time: each group gets an intercept of its own,
            normal about the common one, with a standard deviation ``group_sd`` that is found with the rest.
        callback : callable, optional
            ``callback(info)`` after the warm-up and every hundred draws of all chains, or after every shard;
            True ends the run. Not where importance sampling suffices.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, offset, groups, callback)

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
            return self._average(X, offset, groups, lambda f, posterior: [self._mean(f)], 1)[0]
        mean, squares, noise = self._average(X, offset, groups, self._moments, 3)
        return mean, np.sqrt(np.maximum(squares - mean**2, 0) + noise)

    def log_likelihood(
        self, X: Matrix, y: Vector, *, offset: Vector | None = None, groups: Vector | None = None
    ) -> Array:
        """Compute the log-likelihood of each observation under each draw, as ArviZ takes it for `loo`.

        Parameters
        ----------
        X, offset, groups
            As in `predict`.
        y : array-like of shape (n_samples,)

        Returns
        -------
        ndarray of shape (n_draws, n_samples)
        """
        check_is_fitted(self)
        X, offset, numbers = self._rows(X, offset, groups)
        y = self._targets(y, len(X))[:, None]
        return self._log_density(self._predictors(X, offset, numbers), y, self._is_new(numbers)).T

    def _log_density(self, f, y, new):
        """Log density of targets (rows, 1) given predictors (rows, draws); `new` marks rows of new groups."""
        raise NotImplementedError

    def _moments(self, f, posterior):
        mean = self._mean(f)
        return mean, mean**2, self._variance(mean, posterior)

    def _mean(self, f):
        """Mean of an observation of the linear predictor f."""
        raise NotImplementedError

    def _variance(self, mean, posterior):
        """Variance of an observation of that mean, (rows, draws)."""
        raise NotImplementedError

    def _shaped(self, values):
        return values if np.ndim(values) else float(values)
