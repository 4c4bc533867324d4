"""The fit of a generalised linear model: vectors of the rows checked, and passes until the maximum."""

import warnings

import numpy as np

from ....errors import DataError, shortened
from ....scheduler.loop import Monitor
from ...inputs.matrices import check_vector
from ...inputs.targets import (
    all_weights,
    check_offset,
    check_row_labels,
    check_span,
    check_targets,
    target_vector,
)
from ..glm.row_places import sources_and_reader, sources_of
from ..predictions import with_exposure
from ..scales import merged_scales
from ..sparse.fitting import check_goes_on
from ..structured.mean_loss import MeanLoss
from .families import FAMILIES, family_of
from .likelihood import maximise, scaled_products

_MOST_COLUMNS = 10_000  # whose products take 0.8 GB
# Coefficients and overdispersion in turn; Newton steps for the latter.
_ROUNDS_OF_SHAPE, _STEPS_OF_SHAPE = 50, 50
_MANY_CLUSTERS = 40  # from which on intervals cover about what they say
_SETTLED = 1e-11  # a relative change of the overdispersion
_LAW = "family", "power", "overdispersion"  # parameters that predictions take as they were in `fit`
_REPORTED = "family", "covariance", "dispersion", "fit_intercept"  # that a summary needs as they were
_ROUNDING = 1e-28  # of the squares of y: squared residuals that are rounding


def check_columns(n_columns):
    """Refuse columns whose products of pairs would not fit into memory."""
    if n_columns > _MOST_COLUMNS:
        raise DataError(
            f"X has {n_columns} columns; GLM takes up to {_MOST_COLUMNS}, since it inverts the "
            "products of all pairs: take PoissonRegressor, LogisticRegression, Ridge or SparseGLM"
        )


def family_of_model(model):
    """The family of a model, by the parameters of its fit; of one that is not fitted, by those it has."""
    given = getattr(model, "_fitted_with", None) or model.get_params(deep=False)
    overdispersion = given["overdispersion"]
    if overdispersion == "estimate":
        overdispersion = getattr(model, "overdispersion_", 1.0)
    return family_of(given["family"], given["power"], overdispersion)


def parameters_of_fit(model):
    """The parameters of a fit that its predictions and its summary depend on."""
    return {name: getattr(model, name) for name in (*_LAW, *_REPORTED)}


def check_as_fitted(model):
    """Refuse to describe a fit by parameters that it did not have."""
    for name in _REPORTED:
        now = getattr(model, name)
        value = getattr(model, "_fitted_with", {}).get(name, now)
        if now != value:
            raise DataError(f"{name} was {value!r} in fit and is {now!r} now: fit again")


def check_parameters_of_fit(model):
    """Check those that a file brought; older files have none."""
    known = getattr(model, "_fitted_with", None)
    if known is None:
        return
    if not isinstance(known, dict) or known.keys() != {*_LAW, *_REPORTED} or known["family"] not in FAMILIES:
        raise DataError("_fitted_with must hold the parameters of the fit")
    type(model)(**known)._validate_params()


def check_vectors(model, shape, y, sample_weight, offset, exposure, clusters):
    """Check what has an entry a row: targets, weights, offsets, numbers of clusters."""
    n_samples, n_features = shape
    if model.warm_start and "coef_" in vars(model):
        check_goes_on(model.coef_, 1, n_features)
    name = type(model).__name__
    family = family_of(
        model.family, model.power, 1.0 if model.overdispersion == "estimate" else model.overdispersion
    )
    y = check_targets(target_vector(y), n_samples, name)
    weights = all_weights(sample_weight, n_samples)
    if model.weight_type == "frequency" and (weights % 1).any():
        row = int(np.flatnonzero(weights % 1)[0])
        raise DataError(
            f"sample_weight is {weights[row]:g} in row {row}: frequencies are whole numbers; take "
            "weight_type='variance' for others"
        )
    there = weights > 0
    family.loss.check(np.where(there, y, np.nan), name)
    weighed = y[there]
    if model.family == "binomial" and weighed.max() == weighed.min() in (0, 1):
        raise DataError(
            f"y is {weighed[0]:g} in every row of positive weight: the binomial family needs rows of both "
            "kinds"
        )
    by_counts = family.counts and model.covariance == "nonrobust" and model.dispersion == "auto"
    broken = np.flatnonzero(there & (y != np.floor(y)) & by_counts)
    if len(broken):
        warnings.warn(
            f"y holds {y[broken[0]]:g} in row {broken[0]}, which is no count: standard errors take the "
            "variance of counts; give counts with exposure=, or covariance='HC1'",
            stacklevel=3,
        )
    offset = check_offset(check_vector(offset, n_samples), n_samples, 1)
    offset = offset_of(family, offset, exposure, n_samples)
    offset = check_span(offset) if family.link == "log" else offset
    labels, numbers = check_row_labels("clusters", check_vector(clusters, n_samples), n_samples)
    n_clusters = 0 if numbers is None else len(np.unique(numbers[there]))
    if n_clusters == 1:
        raise DataError(f"clusters holds one label, {shortened(labels[0])}: two or more are needed")
    k = n_features + model.fit_intercept
    if 0 < n_clusters < _MANY_CLUSTERS:
        few = f"are too small, though their intervals are those of Student's t({n_clusters - 1})"
        why = (
            "their covariance is singular"
            if n_clusters <= k
            else "few clusters tell little of their variance"
        )
        warnings.warn(
            f"clusters holds {n_clusters} labels for {k} coefficients, so that {why}: standard errors {few}; "
            f"take finer clusters, {_MANY_CLUSTERS} or more, or fewer columns",
            stacklevel=3,
        )
    return y, weights, None if offset is None else offset.reshape(n_samples), numbers


def offset_of(family, offset, exposure, n_samples=None, X=None):
    """Add the logarithms of exposures to an offset."""
    if exposure is not None and family.link != "log":
        raise DataError(f"exposure is for families with a logarithmic link, not for {family.spec[0]!r}")
    return with_exposure(offset, exposure, n_samples, X)


def fit_rows(model, passes, sums, vectors, order, callback):
    """Maximise the likelihood; set figures of the fit. Returns maximum, family, means, rows, frequencies.

    `sums`: see `Likelihood.means`. `order`: of the columns; those that depend on earlier ones are left out.
    """
    (y, weights, offset, clusters), n_features = vectors, len(sums) // 2
    there = weights > 0
    for name in ("overdispersion_", "n_clusters_"):  # of an earlier fit
        vars(model).pop(name, None)
    if clusters is not None:
        model.n_clusters_ = len(np.unique(clusters[there]))
    frequencies = model.weight_type == "frequency"
    n_rows = float(weights.sum()) if frequencies else float(np.count_nonzero(there))
    k = n_features + model.fit_intercept
    means = np.zeros(n_features)
    if model.fit_intercept:  # the zeros that a sparse column does not store stay zeros
        full = sums[n_features + 1 :] == len(y)
        means[full] = sums[:n_features][full] / sums[n_features]
    family = family_of(model.family, model.power, 1.0 if model.overdispersion == "estimate" else
                       model.overdispersion)  # fmt: skip
    shares, offset = weights[there] / weights[there].sum(), None if offset is None else offset[there, None]

    def null_intercept(family):
        """The intercept of the model without columns."""
        if offset is None:
            return family.predictor(shares @ y[there])
        return MeanLoss(family.loss, y[there, None], shares, offset).start()

    rounding = _ROUNDING * float(weights @ y**2) + 1e-290  # squares vanish where the fit is perfect
    ridges = np.full(k, model.alpha * float(weights.sum()))
    ridges[n_features:] = 0.0
    if model.standardize and model.alpha > 0:
        ridges[:n_features] *= _variances(passes, sums, means, k)
    monitor: Monitor = Monitor(
        model.max_iter, label=type(model).__name__, unit="step", verbose=model.verbose, callback=callback
    )

    def report(value):
        return bool(monitor.record({"objective": value / weights.sum()}))

    def solve(family, theta, report=None, dependent=None):
        options = {"n_free": n_rows - k, "least": rounding, "tol": model.tol, "max_iter": model.max_iter}
        options |= {"report": report, "warm": warm, "dependent": dependent}
        options["order"] = np.append([n_features] * model.fit_intercept, order).astype(np.intp)
        return maximise(passes, family, theta, means, ridges=ridges, **options)

    warm, theta = None, np.zeros(k)
    if model.fit_intercept:
        theta[-1:] = null_intercept(family)
    elif offset is not None:  # near the null model, as far as the columns reach
        products = passes.run(("newton", family_of("normal").spec, theta, means))[1][k + 1 :].reshape(k, k)
        scaled, scale = scaled_products(products)
        theta = np.linalg.lstsq(scaled, null_intercept(family) * sums[:k] / scale)[0] / scale
    if model.warm_start and "coef_" in vars(model):
        warm = np.append(model.coef_, [model.intercept_ + means @ model.coef_] * model.fit_intercept)
    with monitor:
        if model.family == "negative-binomial" and model.overdispersion == "estimate":
            family, found = _with_overdispersion(model, passes, theta, means, solve, report)
        else:
            found = solve(family, theta, report)
    null = np.ravel(null_intercept(family)) if model.fit_intercept else np.zeros(0)
    model.deviance_ = 2 * found.value - float(ridges @ found.theta**2)
    model.null_deviance_ = 2 * passes.run(("newton", family.spec, null, means))[0]
    if family.known_dispersion:
        found.pearson = passes.run(("pearson", family.spec, found.theta, means))[0]
    model.pearson_chi2_, model.df_residual_ = found.pearson, n_rows - k + len(found.dependent)
    if model.family == "negative-binomial":
        model.overdispersion_ = family.loss.overdispersion
    model.n_iter_, model.history_ = len(monitor.history), monitor.history.as_dict()
    return found, family, means, n_rows, frequencies


def _variances(passes, sums, means, k):
    """Variances of the columns, or mean squares if there is no intercept; 1 where they are 0."""
    n_features = len(means)
    products = passes.run(("newton", family_of("normal").spec, np.zeros(k), means))[1][k + 1 :].reshape(k, k)
    squares, weight = np.diagonal(products)[:n_features], sums[n_features]
    of_columns = sums[:n_features] / weight if k > n_features else np.zeros(n_features)
    variances = squares / weight - (of_columns - means) ** 2  # `means` are taken off full columns alone
    return merged_scales([1.0], [of_columns], [variances], centre=True) ** 2


def _with_overdispersion(model, passes, theta, means, solve, report):
    """Maximise over coefficients and overdispersion in turns."""
    poisson = solve(family_of("poisson"), theta)
    excess, squares = passes.run(("excess", family_of("poisson").spec, poisson.theta, means))
    if not excess > 0:
        raise DataError(
            "y varies no more than Poisson counts of its means, so that there is no overdispersion to "
            "estimate: take family='poisson', or give overdispersion"
        )
    log_a, found = float(np.log(excess / squares[0])), poisson
    for _ in range(_ROUNDS_OF_SHAPE):
        family = family_of(model.family, overdispersion=np.exp(log_a))
        found, before = solve(family, found.theta, report, poisson.dependent), log_a
        for _ in range(_STEPS_OF_SHAPE):
            family, a = family_of(model.family, overdispersion=np.exp(log_a)), np.exp(log_a)
            slope, bend = passes.run(("shape", family.spec, found.theta, means))[1]
            slope, bend = a * slope, a * a * bend + a * slope
            step = float(np.clip(-slope / bend if bend < 0 else np.sign(slope), -1, 1))
            log_a += step
            if abs(step) <= _SETTLED:
                break
        if abs(log_a - before) <= 10 * _SETTLED or found.reason == "stopped":
            break
    if found.reason == "stopped":
        return family, found
    family = family_of(model.family, overdispersion=np.exp(log_a))
    # From coefficients far out columns look dependent: the first fit can tell.
    found = solve(family, found.theta, report, poisson.dependent)
    found.separated |= poisson.separated
    return family, found


def shards_of(model, rows, engine, vectors):
    """Return shards of rows with their entries of the vectors, and the function that reads a shard's rows."""
    sources, read = sources_of(rows), _block
    if engine != "local":
        sources, read = sources_and_reader(model, rows, engine)
    return [
        (source, *(None if vector is None else vector[a:b] for vector in vectors)) for a, b, source in sources
    ], read


def _block(source):
    """Rows of this process, which are checked already."""
    return source[3]
