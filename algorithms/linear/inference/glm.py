"""Generalised linear models by maximum likelihood, with standard errors."""

import contextlib
import warnings
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import stats
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from ...._typing import Array, Callback, Engine, Matrix, Vector
from ....errors import DataError
from ....scheduler.threads import single_threaded_blas
from ....scheduler.workers import open_workers
from ..._base import keep_parameters
from ...inputs.dask_arrays import is_dask
from ...inputs.matrices import check_vector
from ...inputs.table_columns import table_columns_of
from ...inputs.tables import fitted_table, scored_rows
from ...inputs.targets import check_row_weights, check_targets
from ..glm.row_places import check_rows_and_targets
from ..predictions import linear_predictor
from ..sparse.fitting import check_shapes
from ..vocabulary import ALPHA, CONSTRAINTS
from . import fitting
from .covariance import KINDS, covariance, shifted
from .families import FAMILIES
from .likelihood import Likelihood
from .references import columns_in_order, in_pairs, levels_of, reference_levels, take_left_out
from .summary import SummarisedModel, Summary, coefficient_table


class GLM(RegressorMixin, SummarisedModel):
    r"""Generalised linear model by maximum likelihood, with standard errors, intervals and p-values.

    Maximises the likelihood of targets with means :math:`\mu_i = g^{-1}(x_i w + c + o_i)` and variances
    :math:`\phi V(\mu_i) / s_i`, with s = `sample_weight`:

    ===================  ========  ========================  =====================
    family               link g    V                         dispersion
    ===================  ========  ========================  =====================
    "normal"             identity  1                         Pearson's, over n - k
    "binomial"           logit     mu (1 - mu)               1
    "poisson"            log       mu                        1
    "gamma"              log       mu^2                      Pearson's, over n - k
    "tweedie"            log       mu^power                  Pearson's, over n - k
    "negative-binomial"  log       mu + overdispersion mu^2  1
    ===================  ========  ========================  =====================

    Newton's method with the Hessian of p + 1 rows: for up to 10,000 columns. `X` is never made dense. The
    rows are read in portions by threads, or on a Dask cluster where they are; the result is *bitwise* the
    same for any `n_jobs`.

    Parameters
    ----------
    family : str, default="normal"
        See above. "binomial" takes y of 0 and 1, or shares of successes with the trials as weights.
    covariance : str, default="nonrobust"
        "nonrobust" trusts the family's variance: the dispersion times the inverse expected information.
        "HC0" and "HC1" (times n / (n - k)) are robust to another variance: sandwiches with the observed
        information. "HC2" and "HC3" divide squared scores by 1 - h and its square, h the leverage. "cluster"
        sums the scores of each of `clusters` first, and corrects by G / (G - 1) (n - 1) / (n - k); intervals
        and p-values are by Student's t with G - 1 degrees of freedom. Below 40 clusters errors are too small.
    power : float, default=1.5
        Of "tweedie", between 1 and 2.
    overdispersion : float or "estimate", default="estimate"
        Of "negative-binomial"; "estimate" maximises the likelihood over it as well, and standard errors take
        it as known, as in R's ``glm.nb``.
    dispersion : float or {"auto", "estimate"}, default="auto"
        "auto" is the table's; "estimate" takes Pearson's for "poisson" or "binomial" as well, which are then
        quasi-likelihoods.
    weight_type : {"variance", "frequency"}, default="variance"
        "variance": a row of weight 2 has half the variance. "frequency": it counts as two rows, also in
        the number of rows. Coefficients are the same.
    alpha : float, default=0.0
        Above 0 a penalty ``alpha |w|^2 / 2`` is added to minus the mean log-likelihood (of dispersion 1), as
        in `PoissonRegressor`; there are no standard errors then.
    standardize : bool, default=False
        With `alpha`: penalise ``s_j w_j`` instead of w_j, with s_j the (weighted) standard deviation of
        column j, or its root mean square without an intercept.
    fit_intercept : bool, default=True
        False takes c = 0.
    reference : dict, optional
        With ``alpha=0``: the reference level of categories, as in ``{"city": "Rome"}``; by default the first
        level of each that has weight.
        For frames that `table_pipeline` encodes, Parquet files and tables of the command line, where each
        level is a column. See `reference_levels_`.
    max_iter : int, default=1000
        Most Newton steps.
    tol : float, default=1e-8
        The fit ends after a Newton step of at most `tol` standard errors.
    warm_start : bool, default=False
        Begin with the coefficients of the last fit, where the likelihood is larger there than at zero.
    engine : str or distributed.Client, default="local"
        Where the rows are read: ``"local"``, ``"dask"`` (the current client), a client, or the address of a
        Dask scheduler. Blocks of a Dask array are not moved. Vectors are held by this process.
    n_jobs : int or None, default=None
        Threads, on a cluster of each worker. None is 1, on a cluster as many as a worker has; -1 all cores.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        w, in float64; 0 for columns that are left out, because they are combinations of earlier ones.
    intercept_ : float
        c; 0.0 without intercept.
    covariance_ : ndarray of shape (k, k)
        Of the coefficients, and last the intercept, if there is one; NaN where there is none to trust, and
        for columns that are left out.
    standard_errors_ : ndarray of shape (k,)
        Roots of its diagonal.
    dispersion_ : float
        phi.
    overdispersion_ : float
        Only of "negative-binomial".
    reference_levels_ : dict of str to str
        Level of each category whose column is left out, since the levels add up to the intercept: the
        coefficients of other levels are differences from it.
    deviance_, null_deviance_ : float
        Twice the log-likelihood below that of a perfect fit, at dispersion 1; and of the model with no
        columns.
    pearson_chi2_ : float
        Sum of ``s (y - mu)^2 / V(mu)``.
    log_likelihood_, aic_, bic_ : float
        At `dispersion_`; of "normal" at the deviance over n, as R has it. `aic_` counts coefficients, and an
        estimated overdispersion, but not the dispersion. NaN for quasi-likelihoods, which have none: of
        "poisson", "binomial" and "negative-binomial" at another `dispersion` than 1.
    n_clusters_ : int
        G; only with ``covariance="cluster"``.
    df_residual_ : float
        Rows of positive weight, or with frequencies the sum of weights, less the coefficients that are not
        left out.
    n_iter_ : int
        Newton steps.
    history_ : dict of arrays
        One entry a step: round, seconds, objective (minus the mean log-likelihood, but for constants).
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when `X` had feature names that are all strings.

    Raises
    ------
    DataError
        For NaN, infinities, targets that the family does not take, exposures of 0, counts that vary less
        than Poisson's with an estimated overdispersion, and the like.

    Warns
    -----
    ConvergenceWarning
        If the likelihood rises without end because columns separate the rows, or `max_iter` did not suffice.
    UserWarning
        If columns that are no reference levels are left out, or counts are not whole numbers: standard errors
        of "nonrobust" take them for counts. If clusters are fewer than 40, or no more than coefficients.

    See Also
    --------
    Ridge, PoissonRegressor, LogisticRegression : Penalised, faster for many columns.
    SparseGLM : Sparse penalties.

    References
    ----------
    McCullagh, Nelder, "Generalized linear models", 2nd edition, 1989. White, "Maximum likelihood estimation
    of misspecified models", Econometrica 1982. MacKinnon, White, "Some heteroskedasticity-consistent
    covariance matrix estimators", Journal of Econometrics 1985.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X, years = rng.standard_normal((500, 2)), rng.uniform(1, 5, 500)
    >>> y = rng.poisson(years * np.exp(X @ [0.5, 0.0] - 1))
    >>> model = sd.GLM("poisson", covariance="HC1").fit(X, y, exposure=years)
    >>> model.summary().table
                  coef  std err       z      P>|z|    2.5%   97.5%
    intercept    -1.09   0.0445   -24.5  1.55e-132   -1.18   -1.00
    x0           0.562   0.0438    12.9   8.33e-38   0.477   0.648
    x1         -0.0305   0.0392  -0.779      0.436  -0.107  0.0463
    """

    _state_attributes = ("_fitted_with", "_no_errors")
    _parameter_constraints: ClassVar[dict] = {
        "reference": [dict, None],
        "family": [StrOptions(set(FAMILIES))],
        "covariance": [StrOptions(set(KINDS))],
        "power": [Interval(Real, 1, 2, closed="neither")],
        "overdispersion": [Interval(Real, 0, np.inf, closed="neither"), StrOptions({"estimate"})],
        "dispersion": [Interval(Real, 0, np.inf, closed="neither"), StrOptions({"auto", "estimate"})],
        "weight_type": [StrOptions({"variance", "frequency"})],
        **ALPHA,
        **CONSTRAINTS,
        "tol": [Interval(Real, 0, np.inf, closed="neither")],
    }

    def __init__(
        self,
        family: str = "normal",
        *,
        covariance: str = "nonrobust",
        power: float = 1.5,
        overdispersion: float | str = "estimate",
        dispersion: float | str = "auto",
        weight_type: str = "variance",
        alpha: float = 0.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-8,
        warm_start: bool = False,
        engine: Engine = "local",
        n_jobs: int | None = None,
        verbose: int = 0,
        standardize: bool = False,
        reference: dict | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def __sklearn_tags__(self):
        """Tell scikit-learn which targets are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.family != "normal"
        return tags

    # Fitting ------------------------------------------------------------------------------------

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        exposure: Vector | None = None,
        clusters: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit coefficients and intercept, and their covariance.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
            Best in C order or CSR. Or a Dask array or DataFrame, which stays on its cluster.
            Or names of Parquet files, or a `stradask.datasets.ParquetTable`: `y` and `sample_weight` are then
            names of columns.
        y : array-like of shape (n_samples,)
        sample_weight : float or array-like of shape (n_samples,), optional
            Not negative, see `weight_type`. Rows of weight 0 are left out.
        offset : array-like of shape (n_samples,), optional
            Is added to the linear predictor.
        exposure : array-like of shape (n_samples,), optional
            Above 0; its logarithm is an offset. For families with a logarithmic link.
        clusters : array-like of shape (n_samples,), optional
            Labels; rows of one label may depend on each other. For ``covariance="cluster"``.
        callback : callable, optional
            ``callback(info)`` before every step; `info` has round, total, objective, seconds and history.
            Returning True ends the fit.

        Returns
        -------
        self
        """
        self._validate_params()
        if (clusters is None) == (self.covariance == "cluster"):
            raise DataError(
                f"covariance={self.covariance!r} and clusters={'None' if clusters is None else '...'}: "
                "covariance='cluster' needs the labels of clusters in fit, the others take none"
            )
        with self._draft() as draft, fitted_table(draft, X, y, sample_weight) as (X, y, sample_weight):
            table = table_columns_of(X)
            levels = levels_of(table, draft.reference)
            here = draft.engine == "local"
            rows, y, sample_weight, engine = check_rows_and_targets(
                draft, X, y, sample_weight, keeps_order=here
            )
            fitting.check_columns(rows.shape[1])
            vectors = fitting.check_vectors(draft, rows.shape, y, sample_weight, offset, exposure, clusters)
            shards, read = fitting.shards_of(draft, rows, engine, vectors)
            program = Likelihood(shards, read, rows.shape[1], draft.fit_intercept)
            workers = open_workers(engine, draft.n_jobs)
            with contextlib.closing(workers.sum(program, ordered=True)) as passes, single_threaded_blas():
                sums = passes.run(("means",))[1]
                references = reference_levels(levels, draft.reference, sums[: rows.shape[1]] != 0)
                order = columns_in_order(references, rows.shape[1])
                maximum = fitting.fit_rows(draft, passes, sums, vectors, order, callback)
                names = [*(table.names if table else draft._column_names()), "the intercept"]
                take_left_out(draft, references, maximum[0].dependent, names)
                draft._take(passes, *maximum)
        return self

    def _take(self, passes, found, family, means, n_rows, frequencies):
        """Set the model and what is known of its errors; warn where that is nothing."""
        theta, n_features = found.theta, len(found.theta) - self.fit_intercept
        k = len(theta) - len(found.dependent)
        estimated = self.dispersion == "estimate" or (
            self.dispersion == "auto" and not family.known_dispersion
        )
        self.dispersion_ = 1.0 if self.dispersion in ("auto", "estimate") else float(self.dispersion)
        if estimated:
            self.dispersion_ = found.pearson / (n_rows - k) if n_rows > k else np.nan
        law = self.deviance_ / n_rows if self.family == "normal" else self.dispersion_
        law = law if law > 0 else np.nan
        request = ("figures", family.spec, theta, means, law, frequencies)
        self.log_likelihood_, information = passes.run(request)
        information = found.hessian if family.canonical else information
        if family.known_dispersion and self.dispersion_ != 1:
            self.log_likelihood_ = np.nan
        counted = k + (self.family == "negative-binomial" and self.overdispersion == "estimate")
        self.aic_ = 2 * (counted - self.log_likelihood_)
        self.bic_ = counted * np.log(n_rows) - 2 * self.log_likelihood_
        self.coef_ = theta[:n_features].copy()
        self.intercept_ = float(theta[-1] - means @ self.coef_) if self.fit_intercept else 0.0
        self._no_errors = self._warn(found, k, n_rows)
        V = np.full((len(theta), len(theta)), np.nan)
        if not self._no_errors:
            arguments = (family, found, means, information, self.dispersion_, n_rows, frequencies)
            V = shifted(covariance(passes, self.covariance, *arguments), means, self.fit_intercept)
        V[found.dependent] = V[:, found.dependent] = np.nan
        self.covariance_, self.standard_errors_ = V, np.sqrt(np.diag(V))
        self._fitted_with = fitting.parameters_of_fit(self)

    def _warn(self, found, k, n_rows):
        """Return why there are no standard errors, or ""."""
        name = type(self).__name__
        if found.separated:
            why = "a combination of columns separates the rows, so that there are no best coefficients"
            warnings.warn(
                f"{name}: {why}; leave out such columns, or take a penalty, alpha > 0",
                ConvergenceWarning,
                stacklevel=4,
            )
            return why
        if found.reason in ("max_iter", "stalled"):
            passed = f"max_iter={self.max_iter} steps" if found.reason == "max_iter" else "rounding"
            warnings.warn(
                f"{name} did not reach tol={self.tol:g} by {passed}; raise max_iter or tol, or scale the "
                "columns",
                ConvergenceWarning,
                stacklevel=4,
            )
            return "the fit did not converge"
        if found.reason == "stopped":
            return "the fit was ended before its maximum"
        if self.alpha > 0:
            return "alpha is above 0, and penalised coefficients have no such standard errors"
        return "" if n_rows > k else f"there are {k} coefficients, and only {n_rows:g} rows"

    # Using --------------------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> Summary:
        """Describe the fit: figures, and estimate, standard error, p-value and interval of each coefficient.

        P-values and intervals are by the normal distribution; by Student's t with `df_residual_` where the
        dispersion is estimated and ``covariance="nonrobust"``, with ``n_clusters_ - 1`` for "cluster".

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.

        Returns
        -------
        Summary
            Prints as text, and as HTML in notebooks; ``.table["std err"]``, ``.table.row("x0")``,
            ``.to_pandas()``.
        """
        names = ["intercept"] * self.fit_intercept + self._checked_names(level)
        fitting.check_as_fitted(self)
        if np.isnan(self.standard_errors_).all():
            why = getattr(self, "_no_errors", "") or "the fit has none to trust"
            raise DataError(f"there are no standard errors: {why}")
        free = (
            fitting.family_of_model(self).known_dispersion
            if self.dispersion == "auto"
            else self.dispersion != "estimate"
        )
        law: Any = stats.norm(), "z"
        if self.covariance == "cluster":
            law = stats.t(getattr(self, "n_clusters_", np.inf) - 1), "t"  # older files have none
        elif self.covariance == "nonrobust" and not free:
            law = stats.t(self.df_residual_), "t"
        order = np.roll(np.arange(len(self.standard_errors_)), int(self.fit_intercept))
        values = np.append(self.coef_, [self.intercept_] * self.fit_intercept)[order]
        table = coefficient_table(names, values, self.standard_errors_[order], law, level)
        figures = {
            "rows - coefficients": f"{self.df_residual_:g}",
            "dispersion": f"{self.dispersion_:.6g}" + (" (given)" if free else " (Pearson)"),
            "deviance": f"{self.deviance_:.6g} (without columns {self.null_deviance_:.6g})",
            "log-likelihood": f"{self.log_likelihood_:.6g}",
            "AIC, BIC": f"{self.aic_:.6g}, {self.bic_:.6g}",
            "covariance": self.covariance,
        }
        if hasattr(self, "n_clusters_"):
            figures["covariance"] += f" ({self.n_clusters_} clusters)"
        if getattr(self, "reference_levels_", None):
            figures["reference levels"] = in_pairs(self.reference_levels_)
        if self.family == "negative-binomial":
            figures["overdispersion"] = f"{self.overdispersion_:.6g}"
        link = fitting.family_of_model(self).link
        return Summary(f"GLM, {self.family} family, {link} link", figures, table)

    def predict(self, X: Matrix, *, offset: Vector | None = None, exposure: Vector | None = None) -> Array:
        """Compute the means.

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
        family = fitting.family_of_model(self)
        return family.loss.mean(self._predictor(X, fitting.offset_of(family, offset, exposure, X=X)))

    def _predictor(self, X, offset=None):
        return linear_predictor(self, self._predictor, X, offset)

    @property
    def _score_name(self):
        return "R2" if fitting.family_of_model(self).spec[0] == "normal" else "D2"

    def score(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        offset: Vector | None = None,
        exposure: Vector | None = None,
    ) -> float:
        """Compute D^2, the share of the deviance that is explained; R^2 of the normal family.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight, offset, exposure : array-like of shape (n_samples,), optional

        Returns
        -------
        float
            1 is perfect; 0 is no better than the mean.
        """
        X, y, sample_weight = scored_rows(self, X, y, sample_weight)
        mean: Any = self.predict(X, offset=offset, exposure=exposure)
        mean = np.asarray(mean.compute() if is_dask(mean) else mean)
        y = check_targets(check_vector(y, len(mean)), len(mean), type(self).__name__)
        family = fitting.family_of_model(self)
        loss = family.loss
        loss.check(y, type(self).__name__)
        weights = np.ones(len(y)) if sample_weight is None else check_row_weights(sample_weight, len(y))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            own, null = (
                weights @ loss.excess(y, family.predictor(m))
                for m in (mean, np.full(len(y), np.average(y, weights=weights)))
            )
        return float(1 - own / null) if null > 0 else 0.0

    def _check_state(self):
        super()._check_state()
        check_shapes(self)
        k = self.n_features_in_ + self.fit_intercept
        if np.shape(self.covariance_) != (k, k) or np.shape(self.standard_errors_) != (k,):
            raise DataError(f"covariance_ and standard_errors_ do not fit {k} coefficients")
        fitting.check_parameters_of_fit(self)
