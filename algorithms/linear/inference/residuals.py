"""Residuals of generalised linear models, and the pictures by which people judge a fit."""

from typing import Any

import numpy as np
from scipy import special, stats
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ...._typing import Array, Matrix, Vector
from ....errors import DataError
from ...inputs.dask_arrays import is_dask
from ...inputs.matrices import check_vector
from ...inputs.targets import check_row_weights, check_targets
from ...plotting import COLOURS, QUIET, pyplot, tidy
from . import fitting
from .glm import GLM

KINDS = "quantile", "deviance", "pearson", "response"
_TINY = 1e-300  # a probability of 0 or 1 has no normal quantile: 37 deviations instead
_BAND = 0.95  # of pictures: where so many of the ordered residuals of a true model lie, each by itself
_REACH = 40  # deviations of a Poisson number: those beyond have a chance below 1e-300
_MOST_TERMS = 200_000  # gamma variables in a row, whose sums are added up for a Tweedie probability


def residuals(
    model: GLM,
    X: Matrix,
    y: Vector,
    kind: str = "quantile",
    *,
    sample_weight: Vector | None = None,
    offset: Vector | None = None,
    exposure: Vector | None = None,
    random_state: Any = None,
) -> Array:
    r"""Compute residuals of a fitted `GLM`, each of variance about 1 if the model is right.

    ==========  =============================================================================================
    kind        of a target y of mean m and weight s, dispersion phi
    ==========  =============================================================================================
    "quantile"  ``Phi^-1(F(y))``, F the distribution function of y: exactly standard normal under the model.
                Where F jumps, F(y) is drawn between ``F(y-)`` and ``F(y)`` (Dunn and Smyth 1996)
    "deviance"  ``sign(y - m) sqrt(s d(y, m) / phi)``, d the unit deviance
    "pearson"   ``(y - m) sqrt(s / (phi V(m)))``
    "response"  ``y - m``, not scaled
    ==========  =============================================================================================

    The deviance and Pearson residuals of counts and of zeros and ones are far from normal: take "quantile".

    Parameters
    ----------
    model : GLM
        Fitted.
    X : ndarray, sparse matrix, DataFrame or Dask array of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    kind : {"quantile", "deviance", "pearson", "response"}, default="quantile"
    sample_weight, offset, exposure : array-like of shape (n_samples,), optional
        As in the fit. Rows of weight 0 have the residual NaN. For "quantile", weights of Poisson and binomial
        targets are whole numbers, of rows and trials. With the negative binomial family, and with
        ``weight_type="frequency"``, weights do not enter: a row has the distribution of one target.
    random_state : int, RandomState or None, default=None
        Of the draws where F jumps.

    Returns
    -------
    ndarray of shape (n_samples,)

    Raises
    ------
    DataError
        For quantiles of a model that has no distribution: Poisson, binomial or negative binomial with a
        dispersion other than 1 (quasi-likelihood).

    References
    ----------
    Dunn, Smyth, "Randomized quantile residuals", Journal of Computational and Graphical Statistics 1996.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = rng.poisson(np.exp(X @ [0.5, 0.0] - 1))
    >>> model = sd.GLM("poisson").fit(X, y)
    >>> r = sd.residuals(model, X, y, random_state=0)
    >>> bool(abs(r.std() - 1) < 0.1)
    True
    """
    return _residuals(model, X, y, kind, sample_weight, offset, exposure, random_state)[0]


def plot_residuals(
    model: GLM,
    X: Matrix,
    y: Vector,
    kind: str = "quantile",
    *,
    sample_weight: Vector | None = None,
    offset: Vector | None = None,
    exposure: Vector | None = None,
    random_state: Any = None,
    axes: Any = None,
) -> Array:
    """Draw the residuals of a fitted `GLM` in two pictures; needs matplotlib.

    Left, residuals against predicted means, with a line through their averages: a bend says that columns or
    the link are wrong, a funnel that the variance is. Right, ordered residuals against normal quantiles. If
    the model is right, each point lies in the band in 95 % of samples; points beyond it at both ends say
    that targets have heavier tails.

    Parameters
    ----------
    model, X, y, kind, sample_weight, offset, exposure, random_state
        As of `residuals`. "response" is drawn on its own scale, and has no band.
    axes : two matplotlib axes, optional
        By default of a new figure.

    Returns
    -------
    ndarray of two matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = rng.poisson(np.exp(X @ [0.5, 0.0] - 1))
    >>> axes = sd.plot_residuals(sd.GLM("poisson").fit(X, y), X, y, random_state=0)
    >>> axes[0].get_ylabel()
    'quantile residual'
    """
    values, means = _residuals(model, X, y, kind, sample_weight, offset, exposure, random_state)
    there = np.isfinite(values)
    values, means = values[there], means[there]
    if axes is None:
        axes = pyplot().subplots(1, 2, figsize=(9, 4), layout="constrained")[1]
    left, right = np.asarray(axes).ravel()
    left.axhline(0, color=QUIET, linewidth=0.8)
    left.plot(means, values, ".", color=COLOURS[0], markersize=4, alpha=min(1.0, 30 / len(values) ** 0.5))
    left.plot(*_averages(means, values), color=COLOURS[1], linewidth=1.8)
    left.set(xlabel="predicted mean", ylabel=f"{kind} residual")
    ordered, n = np.sort(values), len(values)
    quantiles = stats.norm.ppf((np.arange(n) + 0.5) / n)
    if kind != "response":
        orders = np.arange(1, n + 1)
        tails = (1 - _BAND) / 2
        low, high = (stats.norm.ppf(stats.beta.ppf(q, orders, n + 1 - orders)) for q in (tails, 1 - tails))
        right.fill_between(quantiles, low, high, color=QUIET, alpha=0.25, linewidth=0)
        right.plot(quantiles[[0, -1]], quantiles[[0, -1]], color=QUIET, linewidth=0.8)
    right.plot(quantiles, ordered, ".", color=COLOURS[0], markersize=4)
    right.set(xlabel="normal quantile", ylabel=f"ordered {kind} residuals")
    for ax in (left, right):
        tidy(ax)
    return np.array([left, right])


def _residuals(model, X, y, kind, sample_weight, offset, exposure, random_state):
    """Return residuals and predicted means."""
    if not isinstance(model, GLM):
        raise DataError(f"model is a {type(model).__name__}; residuals are of a fitted GLM")
    if kind not in KINDS:
        raise DataError(f"kind={kind!r} is not one of {', '.join(KINDS)}")
    check_is_fitted(model)
    fitting.check_as_fitted(model)
    mean: Any = model.predict(X, offset=offset, exposure=exposure)
    mean = np.asarray(mean.compute() if is_dask(mean) else mean)
    y = check_targets(check_vector(y, len(mean)), len(mean), "GLM")
    weights = np.ones(len(y)) if sample_weight is None else check_row_weights(sample_weight, len(y))
    family, there = fitting.family_of_model(model), weights > 0
    family.loss.check(np.where(there, y, np.nan), "GLM")
    s = np.ones(there.sum()) if model.weight_type == "frequency" else weights[there]
    result = np.full(len(y), np.nan)
    phi, law = model.dispersion_, (family, y[there], mean[there], s)
    if kind == "response":
        result[there] = y[there] - mean[there]
    elif kind == "pearson":
        result[there] = (y[there] - mean[there]) * np.sqrt(s / (phi * family.variance(mean[there])))
    elif kind == "deviance":
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            twice = 2 * family.loss.excess(y[there], family.predictor(mean[there]))
        result[there] = np.sign(y[there] - mean[there]) * np.sqrt(s * np.maximum(twice, 0) / phi)
    else:
        result[there] = _quantiles(*law, phi, check_random_state(random_state))
    return result, mean


def _quantiles(family, y, mean, s, phi, random):
    name = family.spec[0]
    if family.known_dispersion and phi != 1:
        raise DataError(
            f"kind='quantile': a {name} model with the dispersion {phi:.4g} has no distribution; take "
            "kind='pearson' or 'deviance', or family='negative-binomial' for counts that vary more"
        )
    if family.known_dispersion and name != "negative-binomial" and (s % 1).any():
        row = int(np.flatnonzero(s % 1)[0])
        raise DataError(
            f"kind='quantile': sample_weight holds {s[row]:g}; of a {name} model it counts trials or rows: "
            "give whole numbers, or kind='deviance'"
        )
    scale = phi / s
    if name == "normal":
        return (y - mean) / np.sqrt(scale)
    if name == "gamma":
        return _normal(*(law(y, 1 / scale, scale=mean * scale) for law in (stats.gamma.cdf, stats.gamma.sf)))
    if name == "tweedie":
        return _tweedie(y, mean, scale, family.loss.power, random)
    law = {
        "poisson": lambda: stats.poisson(s * mean),
        "binomial": lambda: stats.binom(s, mean),
        "negative-binomial": lambda: _negative_binomial(mean, family.loss.overdispersion),
    }[name]()
    count = np.rint(y if name == "negative-binomial" else s * y)
    u = random.uniform(size=len(y))
    below, above = law.cdf(count - 1), law.sf(count)
    return _normal(below + u * law.pmf(count), above + (1 - u) * law.pmf(count))


def _negative_binomial(mean, overdispersion):
    size = 1 / overdispersion
    return stats.nbinom(size, size / (size + mean))


def _normal(lower, upper):
    """The normal quantile of a probability, from the smaller of the two tails, which has more digits."""
    low, high = stats.norm.ppf(np.maximum(lower, _TINY)), stats.norm.isf(np.maximum(upper, _TINY))
    return np.where(lower < upper, low, high)


def _tweedie(y, mean, scale, power, random):
    """Of a Poisson number of gamma variables; zero has the probability that there are none."""
    rate = mean ** (2 - power) / (scale * (2 - power))
    shape, size = (2 - power) / (power - 1), scale * (power - 1) * mean ** (power - 1)
    nothing = np.exp(-rate)
    lower, upper = nothing * random.uniform(size=len(y)), np.ones(len(y))
    upper = np.where(y > 0, upper, 1 - lower)
    for row in np.flatnonzero(y > 0):
        spread = _REACH * (rate[row] ** 0.5 + 5)
        if 2 * spread > _MOST_TERMS:
            raise DataError(
                f"kind='quantile': row {row} is a sum of {rate[row]:.3g} gamma variables; take 'deviance'"
            )
        n = np.arange(max(1, np.floor(rate[row] - spread)), rate[row] + spread)
        chance = stats.poisson.pmf(n, rate[row])
        lower[row] = nothing[row] + chance @ special.gammainc(n * shape, y[row] / size[row])
        upper[row] = chance @ special.gammaincc(n * shape, y[row] / size[row])
    return _normal(lower, upper)


def _averages(means, values):
    """Average means and residuals of some twenty groups of rows with similar means."""
    parts = np.array_split(np.argsort(means, kind="stable"), min(20, max(1, len(means) // 5)))
    return [means[part].mean() for part in parts], [values[part].mean() for part in parts]
