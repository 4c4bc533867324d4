"""Poisson regression of counts with a squared penalty."""

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions

from ..._typing import Array, Callback, Engine, Matrix, Vector
from .._base import documented, keep_parameters
from ..inputs.remote_targets import FarCounts, target_sums
from ..inputs.tables import ScoresFiles, fitted_table
from .glm.smooth import SMOOTH_DOCS, SOLVERS, SmoothModel
from .losses import poisson
from .predictions import linear_predictor, with_exposure
from .vocabulary import CONSTRAINTS


@documented(SMOOTH_DOCS)
class PoissonRegressor(ScoresFiles, RegressorMixin, SmoothModel):
    r"""Poisson regression with the log link, by second-order methods over portions of the rows.

    Minimises, over coefficients w and an intercept c that is not penalised, with means ``mu_i = exp(x_i w +
    c + o_i)``,

    .. math:: \frac{1}{\sum_i s_i} \sum_i s_i \left(y_i \log\frac{y_i}{\mu_i} - y_i + \mu_i\right)
              + \frac{\alpha}{2} |w|^2

    with s = `sample_weight` and o = `offset`: half the mean deviance, scikit-learn's objective.

    %(seeds)s

    The penalty weighs coefficients, so predictions change with the units of the columns and of y: scale
    columns of different units, or pass ``standardize=True``.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty.
    fit_intercept : bool, default=True
        False takes c = 0.
    tol : float, default=1e-6
        A fit ends when the estimated excess of the objective over its minimum is at most `tol` times the
        objective.
        For float32 data at least 1.2e-6 is taken.
    solver : str, default="auto"
        As in `LogisticRegression`.
    max_iter : int, default=1000
        Most steps.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    %(places)s
    %(standardize)s
    %(verbose)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        w, in the type of `X`.
    intercept_ : float
        c; 0.0 without intercept.
    n_iter_ : int
        Steps.
    solver_ : str
        "newton", "newton-cg", "sketch" or "lbfgs".
    history_ : dict of arrays
        One entry a step: round, seconds, objective, updates, bytes_sent, waiting, staleness.
    %(names)s

    Raises
    ------
    DataError
        For NaN, infinities, negative targets, targets that are all zero, other lengths, negative weights and
        the like.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` steps, or the precision of the arithmetic, did not suffice for `tol`; and without a
        penalty where columns separate rows without counts, so that there are no best coefficients.

    References
    ----------
    McCullagh, Nelder, "Generalized linear models", 2nd edition, 1989, chapter 6.

    Examples
    --------
    The intercept alone is the logarithm of the mean:

    >>> import numpy as np
    >>> from stradask.algorithms.linear.poisson import PoissonRegressor
    >>> model = PoissonRegressor().fit(np.zeros((4, 1)), [0, 1, 3, 4])
    >>> model.predict(np.zeros((1, 1))).round(6)
    array([2.])
    """

    _score_name = "D2"
    _parameter_constraints: ClassVar[dict] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions(SOLVERS | {"newton-cholesky"})],
        **CONSTRAINTS,
    }

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        solver: str = "auto",
        max_iter: int = 1000,
        warm_start: bool = False,
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
        standardize: bool = False,
    ) -> None:
        keep_parameters(self, locals())

    def __sklearn_tags__(self):
        """Tell scikit-learn that targets are not negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

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

        Ctrl-C stops after the running step and keeps the model so far, with a warning.

        Parameters
        ----------
        %(X)s
        y : array-like of shape (n_samples,)
            Counts, or other numbers that are not negative, such as rates with their exposures as weights.
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative. Only ratios count.
        offset : array-like of shape (n_samples,), optional
            Added to the linear predictor of each row. A Dask y comes to this process then, and with
            exposures.
        exposure : array-like of shape (n_samples,), optional
            Factors of the means, above 0, such as times of observation.
        %(callback)s

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft, fitted_table(draft, X, y, sample_weight) as (X, y, sample_weight):
            draft._fit_rows(X, y, sample_weight, offset, callback, exposure=exposure)
            draft._warn_of_method()
        return self

    def _target(self, name, y, sample_weight, n_samples):
        return poisson.target(name, y, sample_weight, n_samples)

    def _remote_checks(self, name):
        return FarCounts(name)

    def _remote_target(self, answers, n_samples):
        return poisson.remote_target(target_sums(answers, n_samples))

    def _scales(self, target, k):
        """The objective is a mean."""
        return 1.0, self.alpha

    def predict(self, X: Matrix, *, offset: Vector | None = None, exposure: Vector | None = None) -> Array:
        """Compute the means ``exposure * exp(X @ coef_ + intercept_ + offset)``.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Or a Dask array, and then the result is one.
        offset, exposure : array-like of shape (n_samples,), optional
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return np.exp(self._predictor(X, with_exposure(offset, exposure, X=X)))

    def _predictor(self, X, offset=None):
        return linear_predictor(self, self._predictor, X, offset)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Vector | None = None,
        exposure: Vector | None = None,
    ) -> float:
        """Compute D^2, the share of the deviance that is explained.

        Parameters
        ----------
        X, y, sample_weight, offset, exposure
            As in `fit`.

        Returns
        -------
        float
            1 is perfect; 0 is no better than the mean.
        """
        return super().score(X, y, sample_weight, offset=with_exposure(offset, exposure, X=X))

    def _scored(self, y, predicted, sample_weight):
        from sklearn.metrics import d2_tweedie_score

        return d2_tweedie_score(y, predicted, sample_weight=sample_weight, power=1)
