"""The methods that all regressors of the generic solver share: fit, predictions, scores and paths."""

from typing import Self

from sklearn.base import MultiOutputMixin, RegressorMixin

from ...._typing import Array, Callback, Matrix, Vector
from ...inputs.matrices import check_vector
from ...inputs.pieces import gathered
from ...inputs.tables import scored_rows
from ...inputs.targets import check_length
from ..predictions import applied, linear_predictor
from .base import StructuredModel
from .solving.kinks import Pinball


class StructuredRegressor(MultiOutputMixin, RegressorMixin, StructuredModel):
    """Fits of targets by a mean of the linear predictor."""

    def __sklearn_tags__(self):
        """Tell scikit-learn which targets are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._many_targets()
        tags.target_tags.single_output = not self._only_many()
        tags.target_tags.positive_only = bool(getattr(self._quiet_loss(), "positive_mean", False))
        return tags

    def _quiet_loss(self):
        try:
            return self._make_loss()
        except (ValueError, TypeError):  # of a parameter that `fit` refuses with its message
            return None

    def _many_targets(self):
        return False

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        exposure: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit coefficients and intercept.

        Ctrl-C stops after the running pass and keeps the model so far, with a warning.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Best in Fortran order or CSC: then nothing is copied but the columns of the working set.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Several targets share which columns have coefficients.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count, but for `HuberRegressor`.
        offset : array-like of shape (n_samples,), optional
            Is added to the linear predictor.
        exposure : array-like of shape (n_samples,), optional
            Above 0; its logarithm is an offset. For losses with a logarithmic link.
        callback : callable, optional
            ``callback(info)`` after every pass; `info` has round, total, objective, gap, seconds, history,
            and ``info.snapshot()``, the model so far. Returning True ends the fit.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft, draft._read(X, y, sample_weight) as (X, y, sample_weight):
            problem = draft._pose(X, y, sample_weight, offset, exposure)
            draft._fit(problem, callback, draft._start(problem))
        return self

    def predict(self, X: Matrix, *, offset: Vector | None = None, exposure: Vector | None = None) -> Array:
        """Predict the mean of each row, or its quantile.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        offset, exposure : array-like of shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        loss = self._make_loss()
        if exposure is not None:
            n_samples = len(exposure)
            offset = self._offset(
                loss, check_vector(offset, n_samples), check_vector(exposure, n_samples), n_samples, 1
            )
        f = self._predictor(X, offset)
        return applied(loss.mean, f, f.dtype, None if f.ndim == 1 else f.shape[1])

    def _predictor(self, X, offset=None):
        return linear_predictor(self, self._predictor, X, offset)

    def score(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        exposure: Vector | None = None,
    ) -> float:
        """Compute R^2; with a logarithmic link, and of quantiles, D^2, the share of the loss explained.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight, offset, exposure : array-like of shape (n_samples,), optional

        Returns
        -------
        float
            1 is perfect; 0 is no better than the mean, or the quantile, of y.
        """
        from sklearn.metrics import d2_pinball_score, d2_tweedie_score, r2_score

        X, y, sample_weight = scored_rows(self, X, y, sample_weight)
        predicted = gathered(self.predict(X, offset=offset, exposure=exposure), "dask")
        check_length("y", y, len(predicted))
        power, loss = self._power_of_loss, self._make_loss()
        if isinstance(loss, Pinball):
            return float(d2_pinball_score(y, predicted, sample_weight=sample_weight, alpha=loss.quantile))
        if power is None:
            return float(r2_score(y, predicted, sample_weight=sample_weight))
        return float(d2_tweedie_score(y, predicted, sample_weight=sample_weight, power=power))

    @property
    def _power_of_loss(self):
        """The power of the variance by which deviance is measured, or None."""
        loss = self._make_loss()
        return {"Poisson": 1, "Gamma": 2}.get(type(loss).__name__, getattr(loss, "power", None))

    @property
    def _score_name(self):
        plain = self._power_of_loss is None and not isinstance(self._make_loss(), Pinball)
        return "R2" if plain else "D2"
