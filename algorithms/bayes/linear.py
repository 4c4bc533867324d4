"""Bayesian linear regression."""

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ..._typing import ArrayLike
from .estimator import SCALE
from .mixed.families import log_density
from .regressor import BayesianRegressor


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(BayesianRegressor):
    r"""Bayesian linear regression with normal or Student-t noise.

    .. math:: y_i = x_i b + c + o_i + \sigma e_i / \sqrt{w_i}

    Weights w enter as numbers of rows. With normal noise the density is computed from sufficient
    statistics, so that sampling costs nothing by row.

    Parameters
    ----------
    noise : {"normal", "student_t"}, default="normal"
        Student's t bears outliers.
    prior : {"normal", "student_t", "laplace", "horseshoe"}, default="normal"
    prior_scale : "auto", float or array-like of shape (n_features,), default="auto"
        "auto" is ``2.5 sd(y) / sd(x_j)``. np.inf is flat.
    intercept_scale : float, default=np.inf
        Of the mean of y at the means of the columns; flat by default, as it may be anywhere. Must be finite
        with prior="horseshoe" only if there are as few rows as columns.
    noise_scale : "auto" or float, default="auto"
        Of the half-Cauchy prior of sigma; "auto" is ``2.5 sd(y)``, np.inf is flat.
    noise_freedom : float, default=4
        Degrees of freedom of noise="student_t".
    group_scale : "auto" or float, default="auto"
        Of the half-normal prior of the standard deviation of the groups' intercepts, where `fit` is given
        `groups`; "auto" is ``2.5 sd(y)``. Groups are for noise="normal" alone.
    sampler : str, default="auto"
        See `BayesianLogisticRegression`. With noise="normal" and prior="normal" there is "gibbs" as well,
        which draws coefficients and noise in turn, each exactly.
    prior_freedom, fit_intercept, n_samples, n_chains, n_warmup, target_accept, n_shards, combine
        See `BayesianLogisticRegression`.
    n_proposals, engine, checkpoint, n_jobs, random_state, verbose
        See `BayesianLogisticRegression`.

    Attributes
    ----------
    posterior_ : Posterior
        Draws by name: ``coef``, ``intercept``, ``sigma``; with groups ``group_sd`` and ``group``.
    coef_ : ndarray of shape (n_features,)
        Posterior means.
    intercept_ : float
    groups_, group_intercepts_ : ndarray of shape (n_groups,)
        With groups only: their labels, sorted, and the posterior means of their intercepts.
    sampler_, n_shards_, n_features_in_, feature_names_in_
        See `BayesianLogisticRegression`.

    References
    ----------
    Gelman, Carlin, Stern, Dunson, Vehtari, Rubin, "Bayesian Data Analysis", 3rd edition, 2013, chapters 14
    and 17.

    Examples
    --------
    >>> import stradask as sd
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = sd.BayesianLinearRegression(random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:2], return_std=True)
    >>> mean.round(-1), std.round(-1)
    (array([210.,  70.]), array([50., 50.]))
    """

    noise: str = "normal"
    prior: str = "normal"
    prior_scale: ArrayLike = "auto"
    _: KW_ONLY
    intercept_scale: float = np.inf
    noise_scale: float | str = "auto"
    noise_freedom: float = 4.0
    group_scale: float | str = "auto"

    _expected_failed_checks: ClassVar[dict] = {
        **BayesianRegressor._expected_failed_checks,
        **dict.fromkeys(
            (
                "check_regressors_no_decision_function",
                "check_sample_weights_not_overwritten",
                "check_sample_weights_shape",
            ),
            "targets without noise have no posterior, and are refused",
        ),
    }
    _parameter_constraints: ClassVar[dict] = {
        **BayesianRegressor._parameter_constraints,
        "group_scale": [StrOptions({"auto"}), Interval(Real, 0, np.inf, closed="neither")],
        "noise": [StrOptions({"normal", "student_t"})],
        "noise_scale": [StrOptions({"auto"}), SCALE],
        "noise_freedom": [Interval(Real, 0, np.inf, closed="neither")],
    }

    @property
    def _family(self):
        return self.noise

    @property
    def _noise_freedom(self):
        return self.noise_freedom

    def _own_scale(self, size):
        return self.noise_scale if not isinstance(self.noise_scale, str) else 2.5 * size

    def _family_parameters(self, posterior):
        return {"sigma": posterior["sigma"], "freedom": self.noise_freedom}

    def _log_density(self, f, y, new):
        """See the base class; the intercepts of new groups add their variance to the noise's."""
        own = self._family_parameters(self.posterior_)
        if new.any():
            own["sigma"] = np.hypot(own["sigma"], np.where(new[:, None], self.posterior_["group_sd"], 0.0))
        return log_density(self.noise, f, y, own)
