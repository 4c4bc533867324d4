"""What the Bayesian regressions share: priors, sampling in one piece or in shards, averaged predictions."""

import os
from functools import cache, partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...errors import DataError, in_brief
from ...scheduler.place import check_engine
from ...scheduler.threads import effective_n_jobs, single_threaded_blas
from .._base import Estimator
from ..inputs.dask_arrays import is_frame
from ..inputs.matrices import check_columns, check_rows
from ..inputs.targets import check_names, check_offset, check_weights
from .chains.chain import SAMPLERS
from .chains.sampling import CAREFUL
from .combine.combiners import COMBINERS
from .models.groups import (
    LEAST_GROUPS,
    check_groups,
    code_groups,
    cut_groups,
    find_groups,
    normal_nodes,
    text_of,
)
from .models.model import PRIORS, Prior, regression
from .models.propriety import check_identified, check_scale_identified, identifies, warn_of_tails
from .posterior.draws import Posterior
from .shards.chains import check_checkpoint, draw_posterior
from .shards.rows import Part, cut_rows, number_of_shards
from .shards.source_fit import far_model, look, moments, sources_of_fit, spreads
from .shards.sources import BESIDE, columns_of

_NO_VARIANCE = 3.0  # a density that falls like x to minus this, or slower
_HORSESHOE_TARGET = 0.95  # acceptance: its funnels want short steps
_CELLS = 4_000_000  # of predictors, rows times draws, at a time
_POSITIVE = Interval(Real, 0, np.inf, closed="neither")
SCALE = Interval(Real, 1e-100, np.inf, closed="both")  # inf is a flat prior; squares may not underflow
_COUNT = Interval(Integral, 1, None, closed="left")


class BayesianRegression(Estimator):
    """What the three have in common: priors, sampling, shards, the posterior."""

    _state_attributes = ("_posterior_state",)
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
        "prior_scale": [SCALE, "array-like"],
        "intercept_scale": [SCALE],
        "prior_freedom": [_POSITIVE],
        "group_scale": [_POSITIVE],
        "fit_intercept": ["boolean"],
        "n_samples": [_COUNT],
        "n_chains": [_COUNT],
        "n_warmup": [_COUNT],
        "target_accept": [Interval(Real, 0, 1, closed="neither")],
        "sampler": [StrOptions({"auto", "laplace", *SAMPLERS})],
        "n_shards": [StrOptions({"auto"}), _COUNT],
        "combine": [StrOptions(COMBINERS.keys())],  # a view: entries may be added
        "n_proposals": [_COUNT],
        "engine": [str],
        "checkpoint": [None, str, os.PathLike],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __sklearn_tags__(self):
        """Tell scikit-learn that X must be dense: every density reads each row in full."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    # Fitting ------------------------------------------------------------------------------------------

    def _fit(self, X, y, sample_weight, offset, groups, callback):
        """Check, build, sample, store."""
        self._validate_params()
        frame = X if is_frame(X) else None
        sources = sources_of_fit(X, y, sample_weight=sample_weight, offset=offset, groups=groups)
        if sources is not None and len(sources) == 1:  # nothing to combine: read here, as any array
            arrays, _ = columns_of(sources[0])
            X, y, sample_weight, offset, groups = map(arrays.get, ("X", "y", *BESIDE))
        elif sources is not None:
            with self._unchanged_on_error():
                self._fit_far(sources, frame, callback)
            return self
        with self._unchanged_on_error():
            X, y, options = self._checked(X, y, sample_weight, offset, groups)
            if frame is not None:  # of a single block, which was read
                check_names(self, frame, y)
            self._number_groups(options)
            columns, weights = X, options["weights"]
            scales = cache(lambda: spreads([moments(columns, y, weights)]))
            prior = self._prior(X.shape[1], scales)
            X, names = self._with_intercept(X)
            self._check_proper(X, y, names, prior, options)
            self._sample(X, y, names, prior, scales, options, callback)
        return self

    def _checked(self, X, y, sample_weight=None, offset=None, groups=None):
        """Check what a fit is given; rows of weight 0 are left out."""
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

    def _with_intercept(self, X):
        """Add the column of ones; names of all columns, for messages."""
        names = [f"x{j}" for j in range(X.shape[1])]
        if not self.fit_intercept:
            return X, names
        return np.column_stack([X, np.ones(len(X), X.dtype)]), [*names, "the intercept"]

    def _check_proper(self, X, y, names, prior, options):
        """Refuse a flat prior that the rows do not make up for."""
        flat = np.isinf(prior.scale)
        if flat.any():
            which = [name for name, is_flat in zip(names, flat, strict=True) if is_flat]
            check_identified(self._family, X[:, flat], y, which)
        check_scale_identified(self._family, X, y, prior.own_scale, flat.sum(), **options)

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

    def _prior(self, d, spreads):
        """Make the prior of d coefficients, and of the intercept.

        ``spreads()`` are standard deviations of the columns and of y, for priors that go by them.
        """
        scale = self._coef_scale(spreads)
        try:
            scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), d)
        except (TypeError, ValueError) as error:
            raise DataError(f"prior_scale must be a number or {d} of them: {in_brief(error)}") from error
        if not (scale > 0).all():
            raise DataError(f"prior_scale must be above zero, got {scale[~(scale > 0)][0]}")
        if self.prior == "horseshoe" and np.isinf(scale).any():
            raise DataError("prior_scale must be finite with prior='horseshoe'")
        scales = np.append(scale, self.intercept_scale) if self.fit_intercept else scale
        return Prior(self.prior, scales, self.prior_freedom, 1.0, self._own_scale(spreads), n_shrunk=d)

    def _coef_scale(self, spreads):
        return self.prior_scale

    def _own_scale(self, spreads):
        """Of the half-Cauchy prior of what the noise has of its own."""
        return 1.0

    def _sample(self, X, y, names, prior, scales, options, callback):
        """Draw from the posterior, in one piece or in shards."""
        seed = self._seed()
        groups, local = options["groups"], None
        self.n_shards_ = self._count_shards(X, y, groups)
        shards = [None]
        if self.n_shards_ > 1:
            self._check_sharded()
            shards = self._cut(y, groups, seed)
        if self.n_shards_ > 1:
            slow = []
            for m, rows in enumerate(shards):
                own = {name: None if value is None else value[rows] for name, value in options.items()}
                if self._check_shard(f"shard {m}", X[rows], y[rows], names, prior, own):
                    slow.append(m)
            if slow:
                which = f"shard{'s' * (len(slow) > 1)} {', '.join(map(str, slow))}"
                warn_of_tails(which, self.n_shards_, self.prior_freedom)
        arrays = {"X": X, "y": y} | {name: value for name, value in options.items() if value is not None}
        made = self._model_options(prior)
        if groups is not None:
            made["group_scale"] = self._group_scale(scales)
            local = partial(_intercepts, seed, effective_n_jobs(self.n_jobs) if self.n_shards_ == 1 else 1)
        builds = [
            partial(_model, self._family, {name: Part(value, rows) for name, value in arrays.items()}, made)
            for rows in shards
        ]
        self._draw(builds, seed, callback, local=local, dealt=True)

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

    def _fit_far(self, sources, frame, callback):
        """Draw from the shards where they lie; the rows do not come here."""
        n = len(sources)
        if self.n_shards not in ("auto", n):
            raise DataError(f"n_shards={self.n_shards}, but X is {n} shards: take n_shards='auto' or {n}")
        if not self._merges():
            self._check_sharded()
        seed = self._seed()
        door = type(self)(**self.get_params(deep=False))
        found = look(door, sources, engine=self.engine, n_jobs=self.n_jobs)
        self.n_shards_ = len(found.sources)
        check_names(self, np.empty((1, found.n_features)) if frame is None else frame, np.zeros(1))
        if found.classes is not None:
            self.classes_ = found.classes
        self._forget_groups()
        scales = partial(spreads, found.moments)
        prior = self._prior(found.n_features, scales)
        if found.rows is not None:
            self.n_shards_ = 1
            X, y, weights = found.rows
            names = self._with_intercept(np.empty((0, found.n_features)))[1]
            self._check_proper(X, y, names, prior, {"weights": weights})
            build = partial(_model, "normal", {"X": Part(X), "y": Part(y), "weights": Part(weights)})
            self._draw([partial(build, self._model_options(prior))], seed, callback)
            return
        made, local = self._model_options(prior), None
        if found.groups is not None:
            self._check_sharded()
            self.groups_, made["group_scale"] = found.groups, self._group_scale(scales)
            local = partial(_intercepts, seed, 1)
        builds = [partial(far_model, door, source, made, found.groups) for source in found.sources]
        self._draw(builds, seed, callback, local=local, n_held=effective_n_jobs(self.n_jobs))

    def _merges(self):
        """Whether shards that lie elsewhere are merged, if they have no groups; see ``source_fit``."""
        return self._family == "normal" and self.combine == "auto"

    def _seed(self):
        check_engine(self.engine)
        check_checkpoint(self.checkpoint, self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _model_options(self, prior):
        return {"prior": prior, "power": 1 / self.n_shards_, "freedom": self._noise_freedom}

    def _draw(self, builds, seed, callback, **places):
        names = (
            "sampler",
            "n_samples",
            "n_chains",
            "n_warmup",
            "combine",
            "n_proposals",
            "engine",
            "checkpoint",
        )
        settings = {name: getattr(self, name) for name in (*names, "n_jobs", "verbose")}
        if self.sampler in ("auto", *CAREFUL):
            least = _HORSESHOE_TARGET if self.prior == "horseshoe" and self.sampler == "auto" else 0.0
            settings["target"] = max(self.target_accept, least)
        posterior, samplers = draw_posterior(
            builds, self._variables, seed=seed, callback=callback, names=self._names, **places, **settings
        )
        self.sampler_ = ", ".join(sorted(set(samplers)))
        self._keep(posterior)

    def _group_scale(self, spreads):
        """Of the half-normal prior of the standard deviation of the groups' intercepts."""
        return self.group_scale

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

    def _check_sharded(self):
        """Refuse settings that have no shards: weighted draws, and funnels."""
        if self.prior == "horseshoe":
            raise DataError(
                "prior='horseshoe' makes funnels of the shards, which no combination takes: n_shards=1"
            )
        if self.sampler == "laplace":
            raise DataError("sampler='laplace' gives weighted draws, which no combination takes: n_shards=1")

    def _check_shard(self, shard, X, y, names, prior, options):
        """Refuse a shard that cannot be normalised: of one class, without noise, its prior too weak.

        Returns whether it can, but its tails are those of a Student-t prior to a power that has no variance.
        """
        n = self.n_shards_
        if self._family == "bernoulli" and len(np.unique(y)) < 2:
            raise DataError(
                f"all rows of {shard} of {n} are of one class: take a smaller n_shards, or 'auto', which "
                "does so where groups are not split"
            )
        flat = np.isinf(prior.scale)
        try:
            check_scale_identified(self._family, X, y, prior.own_scale, flat.sum(), **options)
        except DataError as error:
            raise DataError(f"{shard} of {n}: {error}; or take a smaller n_shards") from error
        decay = (self.prior_freedom + 1) / n if self.prior == "student_t" else np.inf
        heavy = decay <= 1
        if heavy:
            flat = np.ones_like(flat)
        if flat.any():
            self._check_flat(shard, X, y, names, flat, heavy)
        return decay <= _NO_VARIANCE and not identifies(self._family, X, y, names)

    def _check_flat(self, shard, X, y, names, flat, heavy):
        """Refuse a shard that does not identify coefficients with a flat prior, or one as good as flat."""
        n = self.n_shards_
        try:
            which = [name for name, is_flat in zip(names, flat, strict=True) if is_flat]
            check_identified(self._family, X[:, flat], y, which)
        except DataError as error:
            if not heavy:
                raise DataError(f"{shard} of {n}: {error}; or take a smaller n_shards") from error
            raise DataError(
                f"prior='student_t' with {self.prior_freedom:g} degrees of freedom is improper to the power "
                f"1/{n}, and the rows of {shard} do not make up for it ({error}): take n_shards below "
                f"{self.prior_freedom + 1:g}, or prior='normal'"
            ) from error

    def _variables(self, model):
        """Names and shapes of the columns of `Model.values`."""
        d = model.n_coefs - self.fit_intercept
        names = list(getattr(self, "feature_names_in_", ()))
        columns = names if len(set(names)) == d else (d,)  # scikit-learn before 1.9 lets names repeat
        variables: dict[str, tuple | list] = {"coef": columns} | (
            {"intercept": ()} if self.fit_intercept else {}
        )
        if self.prior == "horseshoe":
            variables |= {"local_scale": columns, "global_scale": ()}
        own = model.value_names[-1]
        grouped = "group_sd" in model.value_names
        variables |= {"group_sd": ()} if grouped else {}
        variables |= {own: ()} if own in ("sigma", "overdispersion") else {}
        return variables | ({"group": text_of(self.groups_)} if grouped else {})

    def _names(self, model):
        """Name the parameters of a model as the posterior names what they are.

        The model's own names are not those of columns: files of chains know a density by them.
        """
        d = model.n_coefs - self.fit_intercept
        columns = list(getattr(self, "feature_names_in_", ()))
        columns = columns if len(set(columns)) == d else list(range(d))
        coefs = [f"coef[{column}]" for column in columns] + ["intercept"] * self.fit_intercept
        scales = {f"log local scale x{j}": f"log local_scale[{column}]" for j, column in enumerate(columns)}
        rest = model.names[model.n_coefs :]
        return [*coefs, *(scales.get(name, name.replace("global scale", "global_scale")) for name in rest)]

    def _keep(self, posterior):
        mean = posterior.mean()
        self.coef_: Any = self._shaped(mean["coef"])
        self.intercept_: Any = self._shaped(mean.get("intercept", np.float64(0.0)))
        if "group" in mean:
            self.group_intercepts_ = mean["group"]
        self._posterior_state = posterior.state()
        self._posterior = posterior

    def _shaped(self, values):
        return values

    # Using --------------------------------------------------------------------------------------------

    @property
    def posterior_(self) -> Posterior:
        """The draws: a `Posterior`."""
        if "_posterior_state" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no 'posterior_': it is not fitted yet")
        if "_posterior" not in vars(self):
            self._posterior = Posterior.from_state(self._posterior_state)
        return self._posterior

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
                found = self._integrated(X[rows], offset[rows], numbers[rows], function)
                out[:, rows] = np.stack([part @ weights for part in found])
        return out

    def _integrated(self, X, offset, numbers, function):
        """Return ``function(predictors, posterior)``, of new groups its mean over their intercepts."""
        posterior, new = self.posterior_, self._is_new(numbers)
        f = self._predictors(X, offset, numbers)
        found = np.stack(function(f, posterior))
        if new.any():
            found[:, new] = self._over_groups(function, f[new], posterior)[: len(found)]
        return found

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
        known = np.flatnonzero(numbers >= 0)
        if len(known):
            f[known] += posterior["group"].T[numbers[known]]
        return f

    def _rows(self, X, offset, groups):
        """Check new rows, what is added to their predictors, and their groups; -1 is a new group."""
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


def _model(family, parts, options):
    """Make the model of a shard, where it is worked on."""
    with single_threaded_blas():
        return regression(family, **{name: part.take() for name, part in parts.items()}, **options)


def _intercepts(seed, n_jobs, model, points):
    """Draw the intercepts of a shard's groups; and the groups' numbers."""
    return model.draw_intercepts(points, seed=seed, n_jobs=n_jobs), model.groups


def _dense(X, name):
    """Refuse sparse matrices, with what to do."""
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
