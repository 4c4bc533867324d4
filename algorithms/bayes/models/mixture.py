"""A mixture of Gaussians as a density for `sample`: priors, transforms, start of chains."""

import warnings
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes.densities import mixture as bayes_mixture
from ..posterior.tables import as_floats
from .model import Model


@dataclass(frozen=True, eq=False)
class MixtureModel(Model):
    """The model of a shard's points; `values` are in the units of the data."""

    location: Any = 0.0
    unit: Any = 1.0
    reach = 0.5  # in units of the data 2 is far, and there are minor modes

    def values(self, Q):
        """Means, scales and weights, one after the other."""
        Q, (_, p, K) = self._points(Q), self.meta
        out = np.empty((len(Q), 2 * K * p + K))
        for q, row in zip(Q, out, strict=True):
            means, log_scales, log_weights = np.empty((K, p)), np.empty((K, p)), np.empty(K)
            bayes_mixture.unpack(q, means, log_scales, log_weights)
            means, scales = self.location + self.unit * means, self.unit * np.exp(log_scales)
            row[:] = np.concatenate([means.ravel(), scales.ravel(), np.exp(log_weights)])
        return out

    def identity(self):
        """All that the density depends on, for digests."""
        return *super().identity(), np.asarray(self.location), np.asarray(self.unit)


class GaussianMixtureDensity:
    r"""A mixture of Gaussians with a known number of components, for `sample`.

    .. math:: p(x_i) = \sum_{k=1}^K w_k \prod_j N(x_{ij} \mid m_{kj}, s_{kj}^2)

    Components come in the order of their means on the first axis: all orders are the same mixture, and one of
    them is enough. That holds in shards too, so their draws can be combined without any aligning. Where
    components overlap on that axis, put another one first.

    Priors are in units of the data's standard deviation on each axis, and about its mean. The prior of scales
    leaves no mass near zero, where a component that sits on equal points would have a likelihood without
    bound.

    Parameters
    ----------
    n_components : int
        K, from 2 on.
    mean_scale : float, default=2
        Standard deviation of the normal prior of the means.
    scale_median, scale_spread : float, default=0.5, 1
        Scales are log-normal: their median, and the standard deviation of their logarithm.
    concentration : float, default=2
        Of the symmetric Dirichlet prior of the weights; 1 is uniform.

    See Also
    --------
    sample : ``sample(GaussianMixtureDensity(2), None, x)``.

    Examples
    --------
    >>> import numpy as np
    >>> import stradask as sd
    >>> rng = np.random.default_rng(0)
    >>> x = np.concatenate([rng.normal(-3, 1, 300), rng.normal(2, 0.5, 700)])
    >>> posterior = sd.sample(sd.GaussianMixtureDensity(2), None, x, random_state=0)
    >>> posterior.mean()["means"].round(1), posterior.mean()["weights"].round(1)
    (array([-3.,  2.]), array([0.3, 0.7]))
    """

    n_components: int
    _priors: dict[str, float]

    def __init__(
        self,
        n_components: int,
        *,
        mean_scale: float = 2.0,
        scale_median: float = 0.5,
        scale_spread: float = 1.0,
        concentration: float = 2.0,
    ) -> None:
        if isinstance(n_components, bool) or not isinstance(n_components, Integral) or n_components < 2:
            raise DataError(f"n_components must be an integer from 2 on, got {shortened(n_components)}")
        self.n_components = int(n_components)
        self._priors = {
            "mean_scale": mean_scale,
            "scale_median": scale_median,
            "scale_spread": scale_spread,
            "concentration": concentration,
        }
        for name, value in self._priors.items():
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
                raise DataError(f"{name} must be a finite number above zero, got {shortened(value)}")

    def fitted_to(self, data: Any) -> Any:
        """Return the density of data (n,) or (n, p): its units, and where chains begin.

        Raises a DataError for other shapes, values that are not finite, an axis without spread, and fewer
        points than components.
        """
        if np.iscomplexobj(data):
            raise DataError("data of a mixture hold complex numbers: give real ones")
        if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
            raise DataError("data of a mixture hold masked values: drop their rows")
        x = as_floats("data of a mixture must be an array of numbers", data)
        if x.ndim not in (1, 2) or not x.size:
            raise DataError(f"data of a mixture must have the shape (n,) or (n, p), got {x.shape}")
        flat, x = x.ndim == 1, x.reshape(len(x), -1)
        wrong = np.argwhere(~np.isfinite(x))
        if len(wrong):
            raise DataError(
                f"data of a mixture holds {x[tuple(wrong[0])]} in row {wrong[0][0]}: drop the row"
            )
        if len(x) <= self.n_components:
            raise DataError(
                f"{self.n_components} components need more than {len(x)} points: give a smaller n_components"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            location, unit = x.mean(axis=0), x.std(axis=0)
        if not np.isfinite(unit).all():
            axis = np.flatnonzero(~np.isfinite(unit))[0]
            raise DataError(f"data of a mixture in column {axis} are too large to be squared: rescale them")
        if not (unit > 1e-12 * np.abs(location)).all():
            axis = np.flatnonzero(~(unit > 1e-12 * np.abs(location)))[0]
            raise DataError(f"data of a mixture are equal in column {axis}: leave the column out")
        x = (x - location) / unit
        return _Fitted(self.n_components, self._priors, x, location, unit, flat, _start(x, self.n_components))


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A mixture and its data, in their own units; `points` are left out where the density travels."""

    K: int
    priors: dict
    points: Any
    location: np.ndarray
    unit: np.ndarray
    flat: bool
    start: np.ndarray

    def without_points(self):
        """Return a copy without the points, for every shard."""
        return replace(self, points=None)

    def variables(self):
        """Names and shapes of `MixtureModel.values`."""
        shape = (self.K,) if self.flat else (self.K, len(self.unit))
        return {"means": shape, "scales": shape, "weights": (self.K,)}

    def model(self, points, power):
        """Make the model of some points, (n, p) in the units of all."""
        (n, p), K, priors = points.shape, self.K, self.priors
        head = [
            power,
            1 / priors["mean_scale"],
            np.log(priors["scale_median"]),
            1 / priors["scale_spread"],
            priors["concentration"],
        ]
        names = ["mean[0]"] + [f"log gap of mean[{k}]" for k in range(1, K)]
        names += [f"mean[{k},{j}]" for k in range(K) for j in range(1, p)]
        names += [f"log scale[{k},{j}]" for k in range(K) for j in range(p)]
        names += [f"log ratio of weight[{k}]" for k in range(K - 1)]
        data, meta = np.concatenate([head, points.ravel()]), np.array([n, p, K], dtype=np.int64)
        return MixtureModel(
            bayes_mixture.mixture, data, meta, tuple(names), self.start, False, self.location, self.unit
        )


def _start(x, K):
    """Find a point of high likelihood by scikit-learn's EM algorithm."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near is enough
        fitted = GaussianMixture(K, covariance_type="diag", reg_covar=1e-3, n_init=4, random_state=0).fit(x)
    order = np.argsort(fitted.means_[:, 0], kind="stable")
    means, log_scales = fitted.means_[order], 0.5 * np.log(fitted.covariances_[order])
    weights = np.log(np.maximum(fitted.weights_[order], 1e-3))
    gaps = np.log(np.maximum(np.diff(means[:, 0]), 0.05))
    ratios = weights[:-1] - weights[-1]
    return np.concatenate([means[:1, 0], gaps, means[:, 1:].ravel(), log_scales.ravel(), ratios])
