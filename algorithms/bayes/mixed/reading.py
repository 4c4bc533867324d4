"""What a fitted `BayesianGLM` says: predictions, effects of groups, variances, pictures."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, RandomState
from ....errors import DataError, shortened
from ..._table import Table
from ..posterior.draws import Posterior
from ..settings import SampledEstimator
from . import summaries
from .draws import MixedLikelihoods, Predictors
from .formula_design import FormulaDesign


class ReadableMixedModel(SampledEstimator):
    """Base of `BayesianGLM`: all that needs a fit, and no priors."""

    formula: str | None
    family: str
    groups_: dict[str, Array]
    effects_: dict[str, Array]

    def __sklearn_tags__(self):
        """Tell scikit-learn that data are a table with the target: its checks have nothing to run on."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = tags.input_tags.sparse = False
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def summary(self, quantiles: Any = (0.05, 0.5, 0.95)) -> Table:
        """Describe the parameters that all groups share, in a line each; see `Posterior.summary`.

        Parameters
        ----------
        quantiles : float or sequence of float, default=(0.05, 0.5, 0.95)

        Returns
        -------
        Table
        """
        posterior = self.posterior_
        names = [
            name for name in posterior.variables if not any(name.startswith(f"{t}:") for t in self.groups_)
        ]
        variables = {name: posterior.labels.get(name, posterior.variables[name]) for name in names}
        n = len(posterior.names) - sum(effects.size for effects in self.effects_.values())
        shared = Posterior(
            posterior.draws[:, :n], variables, n_chains=posterior.n_chains,
            shard_draws=posterior.shard_draws, diagnostics=posterior.diagnostics,
        )  # fmt: skip
        return shared.summary(quantiles)

    def effects(self, level: float = 0.9, *, total: bool = False) -> Table:
        """Tabulate the effects of the groups, with intervals.

        Parameters
        ----------
        level : float, default=0.9
            Posterior probability of each interval; it has equal tails.
        total : bool, default=False
            Add the coefficients of the same columns: the intercept and slope of each group, not what they
            differ by.

        Returns
        -------
        Table
            A row for each group and column, ``subject[308] days``, with mean, sd, low and high.
        """
        check_is_fitted(self)
        return summaries.effects(self.posterior_, self.groups_, self._columns_of_terms(), level, total)

    def variances(self, level: float = 0.9) -> Table:
        """Tabulate standard deviations, correlations and intraclass correlations, with intervals.

        ``icc_subject`` is the intraclass correlation, ``sd^2 / (sum of sd^2 + v)`` over all terms with
        intercepts; where slopes vary, it is that at zero of their columns. v is the variance of a row given
        its effects on the scale of the predictor: sigma^2 (normal), sigma^2 freedom / (freedom - 2)
        (Student's t; infinite at 2 degrees and fewer), pi^2 / 3 (logistic, binomial, ordered). Families of
        counts and gamma have none, and no such rows.

        Parameters
        ----------
        level : float, default=0.9

        Returns
        -------
        Table
            Rows ``sd_subject[days]``, ``cor_subject[days~Intercept]``, ``sigma``, ``icc_subject`` with mean,
            sd, low and high.

        References
        ----------
        Nakagawa, Schielzeth, "A general and simple method for obtaining R2 from generalized linear
        mixed-effects models", Methods in Ecology and Evolution 4, 2013.
        """
        check_is_fitted(self)
        return summaries.variances(self.posterior_, self.family, self._columns_of_terms(), level)

    def r2(self, data: Any, level: float = 0.9, *, offset: Any = None) -> Table:
        r"""Compute Bayesian R2: the variance of fitted means over that of fitted means and residuals.

        .. math:: R^2 = \frac{\mathrm{var}_i\, \mu_i}{\mathrm{var}_i\, \mu_i
            + \mathrm{mean}_i\, \mathrm{var}(y_i \mid \mu_i)}

        for each draw: "conditional". The numerator of "marginal" has means without effects of groups.

        Parameters
        ----------
        data : pandas DataFrame, or dict of columns
        level : float, default=0.9
        offset : array-like of shape (n_rows,), or name of a column, optional

        Returns
        -------
        Table
            Rows "conditional" and "marginal" with mean, sd, low and high.

        References
        ----------
        Gelman, Goodrich, Gabry, Vehtari, "R-squared for Bayesian regression models", The American
        Statistician 73, 2019.
        """
        if self.family == "ordered":
            raise DataError(
                "r2 needs a target of numbers, which family='ordered' has not: take log_likelihood"
            )
        design, values = self._known().design(data, offset), self._values()
        return summaries.r_squared(self.family, design, values, level)

    def predict(self, data: Any, *, offset: Any = None, groups: bool = True) -> Array:
        """Predict the mean of new observations, averaged over the posterior.

        A group that the fit did not see has effects of the groups' distribution, one draw for each draw of
        the parameters, which all of its rows share; so in `posterior_epred` and `posterior_predictive`.

        Parameters
        ----------
        data : pandas DataFrame, or dict of columns
        offset : array-like of shape (n_rows,), or name of a column, optional
        groups : bool, default=True
            False takes all effects of groups for zero: the prediction of a typical group. Columns of groups
            are not needed then.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_levels)
            Of a logistic family the probability of the second class, of a binomial one the expected count of
            the trials, of an ordered one the probabilities of all levels.
        """
        predictors = self._predictors(data, offset, groups)
        values = self._values()
        return np.concatenate([made.mean(axis=0) for made in predictors.means(values, 0)])

    def posterior_epred(
        self, data: Any, n: int | None = None, *, offset: Any = None, groups: bool = True,
        random_state: RandomState | None = None,
    ) -> Array:  # fmt: skip
        """Draw the expected values of the rows: the mean of an observation under each draw.

        Parameters
        ----------
        data, offset, groups
            As in `predict`.
        n : int, optional
            Draws, by default all, in the order of `posterior_`.
        random_state : int, RandomState or None

        Returns
        -------
        ndarray of shape (n, n_rows) or (n, n_rows, n_levels)
        """
        check_is_fitted(self)
        values = self._values() if n is None else self.posterior_.sample(n, random_state)
        predictors = self._predictors(data, offset, groups)
        return np.concatenate(list(predictors.means(values, seed_of(random_state))), axis=1)

    def posterior_predictive(
        self, data: Any, n: int | None = None, *, offset: Any = None, groups: bool = True,
        random_state: RandomState | None = None,
    ) -> Array:  # fmt: skip
        """Draw new observations, one of each row for each draw of the posterior.

        Parameters
        ----------
        data, offset, groups
            As in `predict`.
        n : int, optional
            Draws, by default all.
        random_state : int, RandomState or None

        Returns
        -------
        ndarray of shape (n, n_rows)
            Codes 0, 1, ... of `classes_` where the target is no number.
        """
        check_is_fitted(self)
        values = self.posterior_.sample(n, random_state)
        return self._predictors(data, offset, groups).observations(values, seed_of(random_state))

    def log_likelihood(self, data: Any, *, offset: Any = None) -> Array:
        """Compute the log density of each row's target under each draw, as ArviZ takes it for `loo`.

        Parameters
        ----------
        data, offset
            As in `predict`, with the target.

        Returns
        -------
        ndarray of shape (n_draws, n_rows)
        """
        check_is_fitted(self)
        design = self._known().design(data, offset, target=True)
        return MixedLikelihoods(self.family, design)(self._values())

    def plot_predictive(
        self, data: Any, n: int = 50, *, prior: bool = False, offset: Any = None,
        random_state: RandomState | None = None, ax: Any = None,
    ) -> Any:  # fmt: skip
        """Draw the distribution of the observed target over those of new ones.

        Parameters
        ----------
        data : pandas DataFrame, or dict of columns
            With the target.
        n : int, default=50
            Sets of new observations, a thin line each.
        prior : bool, default=False
            Those of the prior in place of the posterior.
        offset : array-like of shape (n_rows,), or name of a column, optional
        random_state : int, RandomState or None
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from ..posterior.plots import plot_predictive

        if prior:
            made = self.prior_predictive(data, n, offset=offset, random_state=random_state)
            observed = FormulaDesign(self.formula, self.family).learn(data, offset, None).observed
        else:
            made = self.posterior_predictive(data, n, offset=offset, random_state=random_state)
            observed = self._known().design(data, offset, target=True).observed
        return plot_predictive(observed, made, "prior" if prior else "posterior", ax)

    def plot_effect(
        self, data: Any, column: str, by: str | None = None, *, groups: dict | None = None,
        level: float = 0.9, offset: float | None = None, ax: Any = None,
    ) -> Any:  # fmt: skip
        """Draw the expected target over a column, other columns held at typical values: conditional effects.

        Other numbers are at their mean, categories at the most frequent one, and effects of groups are left
        out unless `groups` names some. With `by` there is a line for each of its categories, or for its
        quartiles.

        Parameters
        ----------
        data : pandas DataFrame, or dict of columns
            Rows that say which values are typical, such as those of the fit.
        column : str
            A column of numbers or categories.
        by : str, optional
            A second column.
        groups : dict of str to label, optional
            A group for each column of groups, ``{"subject": 308}``: effects are those of these groups.
        level : float, default=0.9
            Of the bands.
        offset : float, optional
            Added to the predictor of all rows; one in the formula is at typical values.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes
        """
        from ..posterior.plots import plot_effect

        check_is_fitted(self)
        if self.family == "ordered":
            raise DataError(
                "plot_effect needs a target of numbers, which family='ordered' has not: take predict"
            )
        known = self._known()
        rows, lines = summaries.effect_rows(known, data, column, by, groups)
        added = None if offset is None else np.full(len(rows[column]), float(offset))
        design = replace(known.design(rows, added, groups=groups is not None), trials=None)
        predictors = Predictors(self.family, design, groups is not None)
        made = np.concatenate(list(predictors.means(self._values(), 0)), axis=1)
        what = f"share of {known.target}" if self.family == "binomial" else f"mean of {known.target}"
        return plot_effect(rows[column], lines, made, level, (column, by, what), ax)

    def _columns_of_terms(self):
        """Names of the columns of each term."""
        labels = self.posterior_.labels
        return {name: list(labels[f"sd_{name}"]) for name in self.groups_}

    def _known(self):
        check_is_fitted(self)
        return vars(self).get("_formula") or self._of_file()

    def _of_file(self):
        """The formula of a model that was read from a file."""
        state, classes = vars(self).get("_formula_state"), vars(self).get("classes_")
        return FormulaDesign.of_state(self.formula, self.family, state, self.groups_, classes)

    def _check_state(self):
        super()._check_state()
        self._of_file()

    def _predictors(self, data, offset, groups=True):
        if not isinstance(groups, (bool, np.bool_)):
            raise DataError(f"groups must be True or False, got {shortened(groups)}")
        return Predictors(self.family, self._known().design(data, offset, groups=bool(groups)))

    def _values(self):
        posterior = self.posterior_
        return {name: posterior[name] for name in posterior.variables}


def seed_of(random_state):
    """A whole number of a random state."""
    return int(check_random_state(random_state).randint(2**31))
