"""The base of the Bayesian regressions: priors, sampling in one piece or in shards, averaged predictions."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..._typing import Array, Callback, Matrix, Vector
from ...errors import DataError, in_brief
from ...scheduler.threads import effective_n_jobs, single_threaded_blas
from ..inputs.matrices import check_columns, check_rows
from ..inputs.pieces import is_frame
from ..inputs.targets import check_names, check_offset, check_weights
from .models.groups import (
    LEAST_GROUPS,
    check_groups,
    code_groups,
    cut_groups,
    find_groups,
    normal_nodes,
    text_of,
)
from .models.model import PRIORS, Prior
from .models.propriety import check_proper, check_shard, warn_of_tails
from .models.scaling import Scaling
from .posterior.diagnostics import add_prior_line
from .posterior.tables import column_names
from .settings import CONSTRAINTS, SampledEstimator, SamplingSettings
from .shards.builds import RegressionBuild, SourceBuild
from .shards.chains import Densities, draw_local, draw_posterior
from .shards.rows import Part, cut_rows, number_of_shards
from .shards.source_fit import inspect_shards, joined, moments, sources_of_fit
from .shards.sources import ROW_VECTORS, check_alone, columns_of

_HORSESHOE_TARGET = 0.95  # acceptance: its funnels want short steps
_WIDE = 2.5  # of default priors of coefficients, in standard deviations of y by those of the column
_SCALES = ("global_scale", "group_sd", "sigma", "overdispersion")
_CELLS = 4_000_000  # of predictors, rows times draws, at a time
_POSITIVE = Interval(Real, 0, np.inf, closed="neither")
SCALE = Interval(Real, 1e-100, np.inf, closed="both")  # inf is a flat prior; squares may not underflow


@dataclass(eq=False, repr=False)
class BayesianRegression(SampledEstimator):
    """Base of the three regressions: priors, sampling, shards, the posterior."""

    _: KW_ONLY
    intercept_scale: float = 10.0
    prior_freedom: float = 4.0
    group_scale: float | str = 2.5
    fit_intercept: bool = True

    # For check_estimator(model, expected_failed_checks=model._expected_failed_checks).
    _expected_failed_checks: ClassVar[dict] = {
        "check_sample_weight_equivalence_on_dense_data": "equal densities, rounded otherwise: other draws"
    }

    @property
    def _family(self):
        """The likelihood, as `regression` names it."""
        raise NotImplementedError

    @property
    def _noise_freedom(self):
        return 4.0

    _parameter_constraints: ClassVar[dict] = {
        "prior": [StrOptions(set(PRIORS))],
        "prior_scale": [StrOptions({"auto"}), SCALE, "array-like"],
        "intercept_scale": [SCALE],
        "prior_freedom": [_POSITIVE],
        "group_scale": [_POSITIVE],
        "fit_intercept": ["boolean"],
        **CONSTRAINTS,
    }

    def __sklearn_tags__(self):
        """Tell scikit-learn that X must be dense: every density reads each row in full."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    @classmethod
    def _read_parameters(cls, parameters, attributes):
        """Leave out `standardize` of version 0.2: columns always are."""
        return {name: value for name, value in parameters.items() if name != "standardize"}

    # Fitting ------------------------------------------------------------------------------------------

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
            float32 and float64 are kept. Blocks of rows of a Dask array (not persisted), and entries of a
            list, are shards. Workers read them, and read them again if a worker is lost. Entries are paths of
            npz files with X and y, and perhaps sample_weight, offset and groups; paths of svmlight files;
            pairs of npy files; Delayed of (X, y) or of a dict of these names.
        y : array-like of shape (n_samples,), or Dask array
            Numbers, or for classes labels of two, numbers or strings. None with a list, whose entries hold y.
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
        self._validate_params()
        settings = self._settings(callback)
        frame = X if is_frame(X) else None
        row_vectors = {"sample_weight": sample_weight, "offset": offset, "groups": groups}
        sources = sources_of_fit(type(self).__name__, X, y, **row_vectors)
        with self._draft() as draft:
            if sources is None:
                problem = draft._deal(X, y, row_vectors, frame, settings)
            elif len(sources) == 1:  # nothing to combine: read here, as any array
                check_alone(sources[0].workers)
                arrays, _ = columns_of(sources[0])
                row_vectors = {name: arrays.get(name) for name in ROW_VECTORS}
                problem = draft._deal(arrays["X"], arrays["y"], row_vectors, frame, settings)
            else:
                problem = draft._read_by_workers(sources, frame, settings)
            draft._draw(*problem, settings)
        return self

    def _settings(self, callback):
        given = {name: getattr(self, name) for name in CONSTRAINTS}
        if self.prior == "horseshoe" and self.sampler == "auto":
            given["target_accept"] = max(self.target_accept, _HORSESHOE_TARGET)
        return SamplingSettings(**given, callback=callback).checked()

    def _deal(self, X, y, row_vectors, frame, settings):
        """Check rows that are here, and deal them out to shards."""
        columns, y, options = self._checked(X, y, **row_vectors)
        if frame is not None:  # of a single block, which was read
            check_names(self, frame, y)
        self._number_groups(options)
        parts = [moments(columns, y, options["weights"], options["offsets"])]
        scaling, size = self._scaling(parts)
        prior = self._prior(scaling, size)
        X, names = self._with_intercept(columns, scaling, options)
        check_proper(self._family, X, y, names, prior, options)
        rows_of_shards = self._rows_of_shards(X, y, names, prior, options, settings)
        n_jobs = effective_n_jobs(self.n_jobs) if self.n_shards_ == 1 else 1
        model_options, local = self._options(prior, options["groups"], settings.seed, n_jobs)
        arrays = {"X": X, "y": y} | {name: value for name, value in options.items() if value is not None}
        builds = [
            RegressionBuild(
                self._family, {name: Part(value, rows) for name, value in arrays.items()}, model_options
            )
            for rows in rows_of_shards
        ]
        return Densities(builds, self._variables, self._names, local, dealt=True), scaling, prior

    def _rows_of_shards(self, X, y, names, prior, options, settings):
        """Choose the rows of each shard, None for all; refuse shards that cannot be normalised."""
        self.n_shards_ = self._count_shards(X, y, options["groups"])
        if self.n_shards_ == 1:
            return [None]
        self._check_sharded(settings)
        shards, slow = self._cut(y, options["groups"], settings.seed), []
        if self.n_shards_ == 1:
            return shards
        for m, rows in enumerate(shards):
            its = {name: None if value is None else value[rows] for name, value in options.items()}
            if check_shard(f"shard {m}", self.n_shards_, self._family, X[rows], y[rows], names, prior, its):
                slow.append(m)
        if slow:
            which = f"shard{'s' * (len(slow) > 1)} {', '.join(map(str, slow))}"
            warn_of_tails(which, self.n_shards_, self.prior_freedom)
        return shards

    def _read_by_workers(self, sources, frame, settings):
        """Let workers read and check their shards; the rows do not come here."""
        n = len(sources)
        if self.n_shards not in ("auto", n):
            raise DataError(f"n_shards={self.n_shards}, but X is {n} shards: take n_shards='auto' or {n}")
        if not self._merges():
            self._check_sharded(settings)
        blank = type(self)(**self.get_params(deep=False))
        summary = inspect_shards(blank, sources, engine=self.engine, n_jobs=self.n_jobs)
        self.n_shards_ = len(summary.sources)
        check_names(self, np.empty((1, summary.n_features)) if frame is None else frame, np.zeros(1))
        if summary.classes is not None:
            self.classes_ = summary.classes
        self._forget_groups()
        scaling, size = self._scaling(summary.moments)
        prior = self._prior(scaling, size)
        if summary.rows is not None:
            return self._merged(summary, prior, scaling), scaling, prior
        if summary.groups is not None:
            self._check_sharded(settings)
            self.groups_ = summary.groups
        options, local = self._options(prior, summary.groups, settings.seed, 1)
        builds = [
            SourceBuild(blank, source, options, scaling, summary.groups, summary.classes)
            for source in summary.sources
        ]
        n_held = effective_n_jobs(self.n_jobs)
        return Densities(builds, self._variables, self._names, local, n_held=n_held), scaling, prior

    def _scaling(self, parts):
        """How columns are standardised, and the standard deviation of y, by moments of parts.

        Without an intercept columns are scaled about zero.
        """
        centres, spreads = joined(parts, about_zero=not self.fit_intercept)
        # Of a linear model the offset is taken off y.
        offset = 0.0 if self._is_scaled else centres[-2]
        return Scaling(centres[:-2], spreads[:-2], offset), spreads[-1]

    def _options(self, prior, groups, seed, n_jobs):
        """Options of the shards' models, and a function that draws the intercepts of groups, or None."""
        local = None if groups is None else partial(draw_local, seed, n_jobs)
        return self._model_options(prior), local

    def _merged(self, summary, prior, scaling):
        """One density with the likelihood of all shards, of few weighted rows."""
        self.n_shards_ = 1
        X, y, weights = summary.rows
        X, names = scaling.scaled_products(X), self._column_names(summary.n_features)
        check_proper(self._family, X, y, names, prior, {"weights": weights})
        arrays = {"X": Part(X), "y": Part(y), "weights": Part(weights)}
        build = RegressionBuild("normal", arrays, self._model_options(prior))
        return Densities([build], self._variables, self._names)

    def _checked(self, X, y, sample_weight=None, offset=None, groups=None):
        """Check the data of a fit; rows of weight 0 are left out."""
        checked = _dense(check_columns(self, X), type(self).__name__)
        n_samples = len(checked)
        check_names(self, X, y)
        y = self._targets(y, n_samples)
        weights, offset = _counts(sample_weight, n_samples), check_offset(offset, n_samples, 1)
        groups = None if groups is None else check_groups(groups, n_samples)
        rows = slice(None) if weights is None else weights > 0
        options = {
            name: None if value is None else value[rows]
            for name, value in (("weights", weights), ("offsets", offset), ("groups", groups))
        }
        return np.ascontiguousarray(checked[rows]), y[rows], options

    def _with_intercept(self, X, scaling, options):
        """Standardise columns and offsets, and add the column of ones; names of all columns, for messages."""
        if options["offsets"] is not None:
            options["offsets"] = options["offsets"] - scaling.offset
        return scaling.design(X, self.fit_intercept), self._column_names(X.shape[1])

    def _column_names(self, d):
        return [*(f"x{j}" for j in range(d)), *["the intercept"] * self.fit_intercept]

    def _number_groups(self, options):
        """Keep the groups' labels, and put numbers in their place."""
        self._forget_groups()
        if options["groups"] is None:
            return
        self._check_grouped()
        self.groups_, options["groups"] = code_groups(options["groups"], self._family, options["weights"])

    def _forget_groups(self):
        for name in ("groups_", "group_intercepts_"):
            self.__dict__.pop(name, None)

    def _check_grouped(self):
        if self._family == "student_t":
            raise DataError(
                "groups are for likelihoods with a concave logarithm, which noise='student_t' has not: take "
                "noise='normal', or leave groups out"
            )

    def _prior(self, scaling, size):
        """Make the prior of coefficients, and of the intercept, of standardised columns.

        `size` is the standard deviation of y, for priors that go by it.
        """
        d, scale = len(scaling.spreads), self.prior_scale
        if isinstance(scale, str):
            scale = _WIDE * (size if self._is_scaled else 1.0) / scaling.spreads
        try:
            scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), d)
        except (TypeError, ValueError) as error:
            raise DataError(f"prior_scale must be a number or {d} of them: {in_brief(error)}") from error
        if not (scale > 0).all():
            raise DataError(f"prior_scale must be above zero, got {scale[~(scale > 0)][0]}")
        if self.prior == "horseshoe" and np.isinf(scale).any():
            raise DataError("prior_scale must be finite with prior='horseshoe'")
        scale = scale * scaling.spreads
        scales = np.append(scale, self.intercept_scale) if self.fit_intercept else scale
        noise_scale, group_scale = self._own_scale(size), self._group_scale(size)
        return Prior(self.prior, scales, self.prior_freedom, 1.0, noise_scale, d, group_scale)

    @property
    def _is_scaled(self):
        """Whether predictors are in units of y."""
        return self._family in ("normal", "student_t")

    def _own_scale(self, size):
        """Scale of the half-Cauchy prior of sigma or of the overdispersion."""
        return 1.0

    def _cut(self, y, groups, seed):
        """Deal rows out; of whole groups "auto" takes fewer shards until all have both classes."""
        classes = y if self._family == "bernoulli" else None
        if groups is None:
            return cut_rows(len(y), self.n_shards_, seed, classes)
        while self.n_shards_ > 1:
            shards = cut_groups(groups, self.n_shards_, seed)
            if self.n_shards != "auto" or classes is None or all(len(np.unique(y[r])) > 1 for r in shards):
                return shards
            self.n_shards_ -= 1
        return [None]

    def _merges(self):
        """Whether shards that workers read are merged, if they have no groups; see ``source_fit``."""
        return self._family == "normal" and self.combine == "auto"

    def _model_options(self, prior):
        return {"prior": prior, "power": 1 / self.n_shards_, "freedom": self._noise_freedom}

    def _group_scale(self, size):
        """Scale of the half-normal prior of the groups' standard deviation."""
        return 2.5 * size if isinstance(self.group_scale, str) else self.group_scale

    def _count_shards(self, X, y, groups):
        if self.n_shards == "auto" and (self._family == "normal" or self.prior == "horseshoe"):
            return 1  # sufficient statistics, whose rows cost nothing; a prior that has no shards
        n_rare = None
        if self._family == "bernoulli":
            n_rare = int(min((y > 0).sum(), (y < 0).sum()))
        elif self._family in ("poisson", "negative_binomial"):
            n_rare = int((y > 0).sum())
        most = None if groups is None else int(groups.max() + 1) // LEAST_GROUPS
        return number_of_shards(self.n_shards, len(X), X.shape[1], n_rare, most)

    def _check_sharded(self, settings):
        """Refuse settings that have no shards: funnels, and weighted draws."""
        if self.prior == "horseshoe":
            raise DataError(
                "prior='horseshoe' makes funnels of the shards, which no combination takes: n_shards=1"
            )
        settings.check_combines()

    def _variables(self, model):
        """Names and shapes of the columns of `Model.values`."""
        d = model.n_coefs - self.fit_intercept
        names = list(getattr(self, "feature_names_in_", ()))
        columns = names if len(set(names)) == d else (d,)  # scikit-learn before 1.9 lets names repeat
        variables: dict[str, tuple | list] = {"coef": columns}
        variables |= dict.fromkeys(["intercept"] * self.fit_intercept, ())
        if self.prior == "horseshoe":
            variables["local_scale"] = columns
        names = [name.replace(" ", "_") for name in model.value_names]
        variables |= {name: () for name in names if name in _SCALES}
        return variables | ({"group": text_of(self.groups_)} if "group_sd" in names else {})

    def _names(self, model):
        """Name the parameters of a model by the columns of the posterior.

        The model's own names are not those of columns: files of chains know a density by them.
        """
        variables = self._variables(model)
        variables.pop("group", None)
        names, d = column_names(variables), model.n_coefs
        return [*names[:d], *(f"log {name}" for name in names[d:])]

    def _draw(self, densities, scaling, prior, settings):
        posterior, samplers = draw_posterior(densities, settings)
        d = len(scaling.spreads) + self.fit_intercept
        scales = {name: posterior[name] for name in _SCALES if name in posterior.variables}
        log_prior = prior.log_density(posterior.draws[:, :d], scales)
        scales.pop("global_scale", None)  # which may have no mean
        values = np.column_stack([posterior.draws[:, :d], *scales.values()])
        add_prior_line(posterior, values, [*posterior.names[:d], *scales], log_prior)
        scaling.put_back(posterior.draws)
        if posterior.shard_draws is not None:
            scaling.put_back(posterior.shard_draws)
        self._keep(posterior, samplers)
        mean = posterior.mean()
        self.coef_: Any = self._shaped(mean["coef"])
        self.intercept_: Any = self._shaped(mean.get("intercept", np.float64(0.0)))
        if "group" in mean:
            self.group_intercepts_ = mean["group"]

    # Using --------------------------------------------------------------------------------------------

    def log_likelihood(
        self, X: Matrix, y: Vector, *, offset: Vector | None = None, groups: Vector | None = None
    ) -> Array:
        """Compute the log-likelihood of each observation under each draw, as ArviZ takes it for `loo`.

        Parameters
        ----------
        X, offset, groups
            As in `predict`.
        y : array-like of shape (n_samples,)
            Numbers, or labels among `classes_`.

        Returns
        -------
        ndarray of shape (n_draws, n_samples)
        """
        check_is_fitted(self)
        X, offset, numbers = self._rows(X, offset, groups)
        y = self._targets_of_fit(y, len(X))[:, None]
        return self._log_density(self._predictors(X, offset, numbers), y, self._is_new(numbers)).T

    def _targets_of_fit(self, y, n_samples):
        """Check targets of new rows, as the fit had them."""
        raise NotImplementedError

    def _log_density(self, f, y, new):
        """Log density of targets (rows, 1) given predictors (rows, draws); `new` marks rows of new groups."""
        raise NotImplementedError

    def _average(self, X, offset, groups, function, n_outputs):
        """Means over draws of ``function(predictors, posterior)``, (n_outputs, rows), by blocks of rows."""
        check_is_fitted(self)
        weights = self.posterior_.weights
        X, offset, numbers = self._rows(X, offset, groups)
        out = np.empty((n_outputs, len(X)))
        height = max(1, _CELLS // len(weights))
        with single_threaded_blas():
            for first in range(0, len(X), height):
                rows = slice(first, first + height)
                outputs = self._integrated(X[rows], offset[rows], numbers[rows], function)
                out[:, rows] = np.stack([output @ weights for output in outputs])
        return out

    def _integrated(self, X, offset, numbers, function):
        """Return ``function(predictors, posterior)``, of new groups its mean over their intercepts."""
        posterior, new = self.posterior_, self._is_new(numbers)
        f = self._predictors(X, offset, numbers)
        outputs = np.stack(function(f, posterior))
        if new.any():
            outputs[:, new] = self._over_groups(function, f[new], posterior)[: len(outputs)]
        return outputs

    def _over_groups(self, function, f, posterior):
        """Return means of ``function(f + u, posterior)`` over the intercepts u of new groups."""
        sd, total = posterior["group_sd"], 0.0
        for node, weight in zip(*normal_nodes(sd), strict=True):
            total = total + weight * np.stack(function(f + node * sd, posterior))
        return total

    def _is_new(self, numbers):
        """Which rows are of a group that the fit did not see."""
        return (numbers < 0) & hasattr(self, "groups_")

    def _predictors(self, X, offset, numbers):
        """Linear predictors of every draw, (rows, draws), with the intercepts of groups that are known."""
        posterior = self.posterior_
        f = X @ posterior["coef"].T + offset[:, None]
        if "intercept" in posterior.variables:
            f += posterior["intercept"]
        grouped = np.flatnonzero(numbers >= 0)
        if len(grouped):
            f[grouped] += posterior["group"].T[numbers[grouped]]
        return f

    def _rows(self, X, offset, groups):
        """Check new rows, their offsets and their groups; -1 is a new group."""
        X = _dense(check_rows(self, X), type(self).__name__)
        offset = check_offset(offset, len(X), 1)
        numbers = np.full(len(X), -1)
        if groups is not None:
            if not hasattr(self, "groups_"):
                raise DataError("groups are given, but the model was fitted without: leave them out")
            numbers = find_groups(check_groups(groups, len(X)), self.groups_)
        return X.astype(np.float64, copy=False), np.zeros(len(X)) if offset is None else offset, numbers

    def _check_state(self):
        super()._check_state()
        shapes = dict(self.posterior_.variables)
        if shapes.pop("coef") != (self.n_features_in_,):
            raise DataError(f"the posterior is not that of a model of {self.n_features_in_} columns")
        if shapes.pop("group", (0,)) != np.shape(getattr(self, "groups_", ())):
            raise DataError("the posterior has other groups than the model")
        scales = shapes.pop("local_scale", (self.n_features_in_,))
        if scales != (self.n_features_in_,) or any(shape != () for shape in shapes.values()):
            raise DataError(f"the posterior's variables {shapes} are not those of a regression")


def _dense(X, name):
    """Refuse sparse matrices, with a remedy."""
    if sparse.issparse(X):
        raise TypeError(
            f"Sparse data was passed for X, but {name} needs dense data: every step reads each row in full; "
            "use X.toarray() if that fits into memory, or SparseLogisticRegression"
        )
    return X


def _counts(sample_weight, n_samples):
    """Weights as they are: a row of weight 2 is two rows."""
    if sample_weight is None:
        return None
    check_weights(sample_weight, n_samples)
    return np.array(np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), n_samples))
