"""Cox's proportional hazards with sparse coefficients."""

from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.stats import norm
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Callback, Engine, Matrix, Names, Vector
from ....errors import DataError, shortened
from ..._base import documented, keep_parameters, weights_differ
from ...inputs.table_columns import table_columns_of
from ...inputs.targets import (
    _numbers,
    check_offset,
    check_row_labels,
    check_weights,
    total_weight,
)
from ..inference.likelihood import dependent_columns, moved_off
from ..inference.references import (
    columns_in_order,
    in_pairs,
    levels_of,
    reference_levels,
    take_left_out,
)
from ..inference.summary import SummarisedModel, Summary, coefficient_table
from ..plotting import draw_survival
from ..predictions import linear_predictor
from ..vocabulary import ALPHA, CONSTRAINTS, FACTOR, RATIO
from .base import StructuredModel
from .cox_loss import PartialLikelihood
from .named import PENALTIES, named_terms
from .penalties import Penalty
from .sparse_glm import GROUPS, SHARED
from .survival import check_times, concordance, inference, null_information

_MOST_COLUMNS = 10_000  # for standard errors
_MOST_TIMES = 1_000_000_000  # entries of a table of survival curves


@documented(SHARED)
class CoxRegression(SummarisedModel, StructuredModel):
    r"""Hazards of rows that are observed until an event, or censored, by few columns.

    The hazard at a time t is :math:`h_0(t) \exp(x_i b)`. Minimises minus the logarithm of the partial
    likelihood over the sum of the weights, plus any penalty of `SparseGLM`.

    The penalty weighs coefficients, so predictions change with the units of the columns: scale columns of
    different units, or pass ``standardize=True``.

    Parameters
    ----------
    alpha : float, default=0.01
        Strength of the penalty. 0 leaves the partial likelihood alone, which may have no maximum.
    penalty : str or Penalty, default="auto"
        "auto" is "elastic-net", with `groups` "sparse-group". Others as in `SparseGLM`: "mcp" and "scad"
        leave large coefficients unshrunk, "slope" gives equal effects equal coefficients.
    l1_ratio : float, default=1.0
        Without `groups` the share of the l1 penalty, the rest is the squared one; with `groups` the share of
        the l1 norm, the rest is the norm of the groups.
    ties : {"efron", "breslow"}, default="efron"
        How events at the same time are taken. Efron's is the more exact, and the default of R.
    groups : int, array-like, dict, "category" or None, default=None
        As in `GroupLasso`; None takes every column alone.
    penalty_factor : array-like, default=None
        One number for each column, or group; 0 never penalises, infinity excludes.
    gamma : float, default=None
        Shape of "mcp", "scad", "log" and "lq", as in `SparseGLM`.
    penalty_options : dict, default=None
        Of "slope": ``weights``, falling, or ``q``.
    standardize, engine, n_jobs
        As in `SparseGLM`.
    max_iter : int, default=1000
        Most passes over `X`.
    tol : float, default=1e-6
        The fit ends when the duality gap is at most `tol` times what the model without columns loses; where
        no gap is known, when the optimality conditions are broken by at most `tol` times its largest slope.
    warm_start : bool, default=False
        Begin from the coefficients of the last fit.
    verbose : int, default=0
        1 shows a progress bar.
    reference : dict, optional
        With ``alpha=0``: the reference level of categories, as in `GLM`.

    Attributes
    ----------
    %(attributes)s
    covariance_, standard_errors_ : ndarray of shape (n_features, n_features) and (n_features,)
        Only with ``alpha=0``, by the observed information, see `summary`; NaN where there are none to trust,
        and for columns that are left out since they are combinations of others.
    reference_levels_ : dict of str to str
        Only with ``alpha=0``: the level of each category whose column is left out, see `GLM`.
    event_times_ : ndarray of shape (n_times,)
        Times of events, rising within each stratum.
    event_strata_ : ndarray of shape (n_times,)
        The stratum of each.
    cumulative_baseline_hazard_ : ndarray of shape (n_times,)
        Cumulative hazard of a row with ``x b = 0`` at those times, by Breslow's estimator (with Efron's
        ties, by Efron's).

    See Also
    --------
    GroupLasso : The penalty on groups.
    SparseGLM : The penalties.

    References
    ----------
    Cox, "Regression models and life-tables", JRSS B 1972. Efron, "The efficiency of Cox's likelihood
    function for censored data", JASA 1977. Simon and others, "Regularization paths for Cox's proportional
    hazards model via coordinate descent", Journal of Statistical Software 2011.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 10))
    >>> time, censored = rng.exponential(np.exp(-X[:, 2])), rng.exponential(2, 300)
    >>> y = np.rec.fromarrays([time <= censored, np.minimum(time, censored)], names="event,time")
    >>> model = sd.CoxRegression(alpha=0.1).fit(X, y)
    >>> np.flatnonzero(model.coef_), model.score(X, y) > 0.7
    (array([2]), True)
    >>> model.predict_survival(X[:2], times=[0.5, 1.0]).shape
    (2, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        **ALPHA,
        "penalty": [StrOptions({"auto", *PENALTIES}), Penalty],
        **RATIO,
        "ties": [StrOptions({"efron", "breslow"})],
        "groups": GROUPS["groups"],
        **FACTOR,
        "reference": [dict, None],
        "gamma": [Interval(Real, 0, np.inf, closed="neither"), None],
        "penalty_options": [dict, None],
        **{name: kinds for name, kinds in CONSTRAINTS.items() if name != "fit_intercept"},
    }
    fit_intercept = False
    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = weights_differ(
        "by Efron a row of weight 2 is not two rows: they tie"
    )

    def __init__(
        self,
        alpha: float = 0.01,
        *,
        penalty: str | Penalty = "auto",
        l1_ratio: float = 1.0,
        ties: str = "efron",
        groups: Any = None,
        penalty_factor: Vector | None = None,
        gamma: float | None = None,
        penalty_options: dict | None = None,
        standardize: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        verbose: int = 0,
        engine: Engine = "local",
        n_jobs: int | None = None,
        reference: dict | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def __sklearn_tags__(self):
        """Tell scikit-learn that times are needed, and not negative."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    def _terms(self):
        penalty = self.penalty
        if isinstance(penalty, str) and penalty == "auto":
            penalty = "elastic-net" if self._numbered_groups() is None else "sparse-group"
        return named_terms(
            penalty,
            self.penalty_options,
            gamma=self.gamma,
            l1_ratio=self.l1_ratio,
            groups=self._numbered_groups(),
            factors=self.penalty_factor,
        )

    def _pose(self, X, y, sample_weight=None, offset=None, entry=None, strata=None):
        X, y, sample_weight = self._columns(X, y, sample_weight)
        n_samples = X.shape[0]
        time, event = check_times(y, n_samples, type(self).__name__)
        weights = check_weights(sample_weight, n_samples)
        weights = np.ones(n_samples) if weights is None else weights
        if entry is not None:
            entry = _numbers("entry", entry)
            if entry.shape != (n_samples,) or not np.isfinite(entry).all():
                raise DataError(f"entry must be {n_samples} finite numbers, got the shape {entry.shape}")
            late = np.flatnonzero(entry >= time)
            if len(late):
                raise DataError(
                    f"entry is {entry[late[0]]:g} in row {late[0]}, not before its time "
                    f"{time[late[0]]:g}: a row must "
                    "be observed for a while; leave it out"
                )
        _, numbers = check_row_labels("strata", strata, n_samples)
        offset = check_offset(offset, n_samples, 1)
        offset = None if offset is None else offset[:, None]
        loss = PartialLikelihood(
            time, event, weights, ties=self.ties, entry=entry, strata=numbers, offset=offset
        )
        return self._problem(X, loss, weights / n_samples, centre=True)  # the likelihood knows no shift

    def fit(
        self,
        X: Matrix,
        y: Vector,
        sample_weight: Vector | None = None,
        *,
        entry: Vector | None = None,
        strata: Vector | None = None,
        offset: Vector | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Fit coefficients and the baseline hazard.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        y : structured array of shape (n_samples,), DataFrame or array-like
            A field of booleans, whether there was an event, and one of times, as scikit-survival has it; or
            two columns, times and events; or times alone, all of events.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative. Only ratios count.
        entry : array-like of shape (n_samples,), optional
            When a row began to be observed (left truncation): it is at risk after that.
        strata : array-like of shape (n_samples,), optional
            Labels: rows are compared within a stratum, each of which has a baseline hazard.
        offset : array-like of shape (n_samples,), optional
            Is added to ``x b``.
        callback : callable, optional
            As in `SparseGLM.fit`.

        Returns
        -------
        self
        """
        self._validate_params()
        with self._draft() as draft:
            table = table_columns_of(X)
            levels = levels_of(table, draft.reference)
            problem = draft._pose(X, y, sample_weight, offset, entry, strata)
            labels, _ = check_row_labels("strata", strata, problem.loss.n)
            draft._fit(problem, callback, draft._start(problem))
            loss = problem.loss
            for name in ("covariance_", "standard_errors_", "reference_levels_"):
                draft.__dict__.pop(name, None)
            coef = np.asarray(draft.coef_, np.float64)
            scales = np.ones(len(coef)) if problem.scales is None else problem.scales
            unpenalised = draft.alpha == 0 and np.isfinite(problem.factors).all() and problem.blocks.plain
            if unpenalised and problem.columns.n_features <= _MOST_COLUMNS:
                total = total_weight(sample_weight, loss.n)
                with problem.columns.opened():
                    H = null_information(problem)
                    references = reference_levels(levels, draft.reference, H.diagonal() > 0)
                    left_out = dependent_columns(H, columns_in_order(references, len(coef)))
                    coef = moved_off(left_out, coef * scales, H) if len(left_out) else coef * scales
                    coef, covariance = inference(problem, coef, total, type(draft).__name__, left_out)
                take_left_out(draft, references, left_out, table.names if table else draft._column_names())
                coef, draft.covariance_ = coef / scales, covariance / np.multiply.outer(scales, scales)
                draft.standard_errors_ = np.sqrt(np.diag(draft.covariance_))
                draft.coef_ = coef.astype(problem.columns.dtype)
            with problem.columns.opened():
                f = problem.predictor(coef[:, None])[:, 0]
            hazard = loss.hazard((f if offset is None else f + loss.offset[:, 0])[:, None])
            draft.event_times_, draft.event_strata_ = loss.times, labels[loss.of_stratum]
            edges = zip(loss.edges[:-1], loss.edges[1:], strict=True)
            draft.cumulative_baseline_hazard_ = np.concatenate([np.cumsum(hazard[a:b]) for a, b in edges])
        return self

    def predict(self, X: Matrix, *, offset: Vector | None = None) -> Array:
        """Compute ``x b``, the logarithm of the relative hazard: the larger, the sooner the event.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return linear_predictor(self, self.predict, X, offset)

    def predict_cumulative_hazard(
        self, X: Matrix, times: Vector | None = None, *, stratum: Any = None, offset: Vector | None = None
    ) -> Array:
        """Compute cumulative hazards.

        Parameters
        ----------
        X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
        times : array-like of shape (n_times,), optional
            By default the times of events of the stratum.
        stratum : optional
            A label, needed if the model has several strata.
        offset : array-like of shape (n_samples,), optional

        Returns
        -------
        ndarray of shape (n_samples, n_times)
        """
        f = self.predict(X, offset=offset)
        labels = np.unique(self.event_strata_)
        if stratum is None and len(labels) > 1:
            raise DataError(f"stratum must be given: the model has {len(labels)} of them")
        own = np.ones(len(self.event_times_), bool) if stratum is None else self.event_strata_ == stratum
        if not own.any():
            raise DataError(
                f"stratum={shortened(stratum)} has no events in the fit; there are {shortened(labels)}"
            )
        known, hazard = self.event_times_[own], self.cumulative_baseline_hazard_[own]
        times = known if times is None else _numbers("times", times)
        if times.ndim != 1 or np.isnan(times).any() or len(times) * len(f) > _MOST_TIMES:
            raise DataError(
                f"times must be a vector without NaN, and the table below {_MOST_TIMES:g} entries"
            )
        at = np.concatenate([[0.0], hazard])[np.searchsorted(known, times, side="right")]
        return np.exp(f)[:, None] * at

    def predict_survival(
        self, X: Matrix, times: Vector | None = None, *, stratum: Any = None, offset: Vector | None = None
    ) -> Array:
        """Compute the probabilities that there is no event until some times.

        Parameters
        ----------
        X, times, stratum, offset
            As in `predict_cumulative_hazard`.

        Returns
        -------
        ndarray of shape (n_samples, n_times)
        """
        return np.exp(-self.predict_cumulative_hazard(X, times, stratum=stratum, offset=offset))

    def summary(self, level: float = 0.95) -> Summary:
        """Describe a fit with ``alpha=0``: estimates, hazard ratios, standard errors, p-values and intervals.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals, by the normal distribution.

        Returns
        -------
        Summary
            As of `GLM.summary`.
        """
        names = self._checked_names(level)
        errors = vars(self).get("standard_errors_")
        if errors is None or np.isnan(errors).all():
            raise DataError(
                "there are no standard errors: they are those of a fit with alpha=0 whose likelihood has a "
                "maximum"
            )
        table = coefficient_table(names, self.coef_, errors, (norm(), "z"), level)
        table.columns = {"coef": table["coef"], "exp(coef)": np.exp(self.coef_), **table.columns}
        figures = {"ties": self.ties, "times of events": f"{len(self.event_times_)}"}
        if getattr(self, "reference_levels_", None):
            figures["reference levels"] = in_pairs(self.reference_levels_)
        return Summary("Cox regression", figures, table)

    def plot_survival(
        self,
        X: Matrix,
        times: Vector | None = None,
        *,
        stratum: Any = None,
        offset: Vector | None = None,
        labels: Names | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the survival curve of each row, a step at each time of events; needs matplotlib.

        Parameters
        ----------
        X, times, stratum, offset
            As in `predict_cumulative_hazard`.
        labels : sequence of str, optional
            Of the rows, for the legend; by default their numbers.
        ax : matplotlib axes, optional
            By default of a new figure.

        Returns
        -------
        matplotlib axes
        """
        curves = self.predict_survival(X, times, stratum=stratum, offset=offset)
        if times is None:
            own = slice(None) if stratum is None else self.event_strata_ == stratum
            times = self.event_times_[own]
        return draw_survival(_numbers("times", times), curves, labels, ax)

    def score(
        self, X: Matrix, y: Vector, sample_weight: Vector | None = None, *, offset: Vector | None = None
    ) -> float:
        """Compute Harrell's concordance: how often the row with the larger hazard has the event first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : as in `fit`
        sample_weight : None
            Weights are not taken.
        offset : array-like of shape (n_samples,), optional

        Returns
        -------
        float
            1 is perfect, 0.5 is chance; 0.5 also where no rows can be compared.
        """
        if sample_weight is not None:
            raise DataError("sample_weight is not taken by the concordance: leave it out")
        f = self.predict(X, offset=offset)
        time, event = check_times(y, len(f), type(self).__name__)
        return concordance(time, event, f)

    def path(self, *args: Any, **options: Any) -> tuple[Array, Array, Array]:
        """Fit a falling sequence of `alpha`, as `SparseGLM.path` does.

        Parameters
        ----------
        *args, **options
            X, y, sample_weight, alphas, eps, and further arguments of `fit`, one entry a row.

        Returns
        -------
        alphas : ndarray of shape (n_alphas,)
        coefs : ndarray of shape (n_features, n_alphas)
        dual_gaps : ndarray of shape (n_alphas,)
        """
        alphas, coefs, _, gaps = super().path(*args, **options)
        return alphas, coefs, gaps

    def _check_state(self):
        super()._check_state()
        check_is_fitted(self, ["event_times_", "cumulative_baseline_hazard_"])
        n = len(self.event_times_)
        if len(self.event_strata_) != n or self.cumulative_baseline_hazard_.shape != (n,):
            raise DataError(
                "event_times_, event_strata_ and cumulative_baseline_hazard_ must have one length"
            )
