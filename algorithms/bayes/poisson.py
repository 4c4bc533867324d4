"""Bayesian regression of counts."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from ..._typing import ArrayLike
from ...errors import DataError
from .estimator import SCALE
from .regressor import BayesianRegressor


@dataclass(eq=False, repr=False)
class BayesianPoissonRegression(BayesianRegressor):
    r"""Bayesian regression of counts, Poisson or negative binomial.

    The mean is :math:`\mu_i = \exp(x_i b + c + o_i)`; the variance is the mean, or with
    ``family="negative_binomial"`` :math:`\mu_i + a \mu_i^2`, where the overdispersion a has a half-Cauchy
    prior.

    Parameters
    ----------
    family : {"poisson", "negative_binomial"}, default="poisson"
        The latter takes integers; the former any number from 0 on, whose likelihood is then a
        quasi-likelihood.
    prior : {"normal", "student_t", "laplace", "horseshoe"}, default="normal"
    prior_scale : "auto", float or array-like of shape (n_features,), default="auto"
        "auto" is ``2.5 / sd(x_j)``. np.inf is flat.
    intercept_scale : float, default=10
        Of the logarithm of the mean at the means of the columns and of the offset.
    overdispersion_scale : float, default=1
        Of the half-Cauchy prior of the overdispersion; np.inf is flat.
    prior_freedom, group_scale, fit_intercept, n_samples, n_chains, n_warmup, sampler, n_shards, combine
        See `BayesianLogisticRegression`.
    n_proposals, target_accept, engine, checkpoint, n_jobs, random_state, verbose
        See `BayesianLogisticRegression`.

    Attributes
    ----------
    posterior_ : Posterior
        Draws by name: ``coef``, ``intercept``; for the negative binomial ``overdispersion``; with groups
        ``group_sd`` and ``group``.
    coef_ : ndarray of shape (n_features,)
        Posterior means.
    intercept_ : float
    groups_, group_intercepts_ : ndarray of shape (n_groups,)
        With groups only: their labels, sorted, and the posterior means of their intercepts.
    sampler_, n_shards_, n_features_in_, feature_names_in_
        See `BayesianLogisticRegression`.

    References
    ----------
    Gelman, Carlin, Stern, Dunson, Vehtari, Rubin, "Bayesian Data Analysis", 3rd edition, 2013, chapter 16.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = rng.poisson(np.exp(X @ [0.5, -0.5] + 1))
    >>> model = sd.BayesianPoissonRegression(random_state=0).fit(X, y)
    >>> model.coef_.round(1), round(model.intercept_, 1)
    (array([ 0.4, -0.5]), 1.0)
    """

    family: str = "poisson"
    prior: str = "normal"
    prior_scale: ArrayLike = "auto"
    _: KW_ONLY
    overdispersion_scale: float = 1.0
    group_scale: float = 2.5

    _parameter_constraints: ClassVar[dict] = {
        **BayesianRegressor._parameter_constraints,
        "family": [StrOptions({"poisson", "negative_binomial"})],
        "overdispersion_scale": [SCALE],
    }

    def __sklearn_tags__(self):
        """Tell scikit-learn that targets are counts."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    @property
    def _family(self):
        return self.family

    def _targets(self, y, n_samples):
        y = super()._targets(y, n_samples)
        wrong = np.flatnonzero((y < 0) | ((y != np.floor(y)) & (self.family != "poisson")))
        if len(wrong):
            raise DataError(
                f"y holds {y[wrong[0]]:g} in row {wrong[0]}: {type(self).__name__} takes counts, 0, 1, 2, ..."
            )
        return y

    def _own_scale(self, size):
        return self.overdispersion_scale

    def _family_parameters(self, posterior):
        names = ["overdispersion"] * (self.family == "negative_binomial")
        return {name: posterior[name] for name in names}

    def _over_groups(self, function, f, posterior):
        """Moments over the intercepts of new groups: powers of the mean are log-normal."""
        half = posterior["group_sd"] ** 2 / 2
        mean, squares = np.exp(f + half), np.exp(2 * f + 4 * half)
        own = posterior["overdispersion"] * squares if self.family == "negative_binomial" else 0.0
        return np.stack([mean, squares, mean + own])

    def _log_density(self, f, y, new):
        """See the base class."""
        if new.any():
            raise DataError(
                f"row {np.flatnonzero(new)[0]} has no group, or one that the fit did not see: log_likelihood "
                "of counts is for the groups of the fit"
            )
        with np.errstate(over="ignore"):
            return super()._log_density(f, y, new)
