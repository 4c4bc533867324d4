"""Models: a log density with its names, start and values, as samplers and combiners need them."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import special, stats

from ....errors import DataError
from ....kernels.bayes.address import SIGNATURE, address_of
from ....kernels.bayes.chain import evaluate_all
from ....kernels.bayes.densities import glm as bayes_glm
from ....kernels.bayes.densities import groups as bayes_groups
from ....kernels.bayes.densities import logistic as bayes_logistic
from ....kernels.bayes.densities import priors as bayes_priors
from ....kernels.bayes.densities import tiles as bayes_tiles
from ....kernels.bayes.densities.logistic import VARIANTS
from ....scheduler.threads import run_tasks
from ..chains.chain import stream
from .failures import Tally

PRIORS = {
    "normal": bayes_priors.NORMAL,
    "student_t": bayes_priors.STUDENT_T,
    "laplace": bayes_priors.LAPLACE,
    "horseshoe": bayes_priors.HORSESHOE,
}
INTERCEPTS = 2**32 - 1  # the number of a chain that is none: random numbers of groups' intercepts
_BLOCK = 100  # draws of intercepts that are a task
_SCALES = {"normal": "sigma", "student_t": "sigma", "negative_binomial": "overdispersion"}
_FAMILIES = {
    "bernoulli": bayes_glm.BERNOULLI,
    "poisson": bayes_glm.POISSON,
    "negative_binomial": bayes_glm.NEGATIVE_BINOMIAL,
    "student_t": bayes_glm.STUDENT_NOISE,
}


def aligned(n_bytes):
    """Return zeros (float64) on a cache line: a vector across two lines halves the rate of loads."""
    memory = np.zeros(n_bytes + bayes_tiles.LINE, np.uint8)
    first = -memory.ctypes.data % bayes_tiles.LINE
    return memory[first : first + n_bytes].view(np.float64)


@dataclass(frozen=True, eq=False)
class Model:
    """A log density over unconstrained parameters q, whose names are `names`.

    The compiled ``density(q, g, data, meta)`` returns the log density and fills its gradient g; see
    ``kernels.bayes.hmc``. Chains begin about `start` (d,). A density that is known to be concave has no
    second mode. `log_constant` is what the density leaves out of likelihood times prior.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.models.model import regression
    >>> model = regression("bernoulli", np.array([[1.0], [2.0]]), np.array([1.0, -1.0]))
    >>> logp, gradient = model.logp_grad(np.zeros(1))
    >>> round(logp, 4), gradient  # twice log(1/2), and half the difference of the rows
    (-1.3863, array([-0.5]))
    """

    density: Any
    data: np.ndarray
    meta: np.ndarray
    names: tuple[str, ...]
    start: np.ndarray
    concave: bool = False
    log_constant: float = field(default=0.0, kw_only=True)
    reach: ClassVar[float] = 2.0  # how far from `start` chains begin, in every parameter
    # Whether all chains go together whatever the number of threads: `together` has bits of its own.
    in_one_group: ClassVar[bool] = False

    def __post_init__(self):
        self.density.compile(SIGNATURE)  # or read from disk: a model compiles what it needs and no more

    @cached_property
    def address(self):
        """Address of the compiled density in this process."""
        return address_of(self.density, SIGNATURE)

    @property
    def n_params(self):
        """How many parameters q there are."""
        return len(self.names)

    def logp_grad(self, q):
        """Compute the log density and its gradient (d,) at q (d,)."""
        logps, gradients = self.logp_grads(np.asarray(q)[None])
        return float(logps[0]), gradients[0]

    def logp_grads(self, Q):
        """Compute log densities (K,) and gradients (K, d) at the points Q (K, d)."""
        results = evaluate_all(self.address, self._points(Q), self.data, self.meta)
        self.raise_errors()
        return results

    def raise_errors(self):
        """Raise an error that ended an evaluation; compiled densities raise nothing."""

    @property
    def is_differenced(self):
        """Whether gradients are differences of the log density."""
        return False

    def take_tally(self):
        """Return a `Tally` of the errors of this thread's evaluations since the last call."""
        return Tally()

    def logp_batch(self, Q):
        """Compute log densities (K,) at points (K, d), without gradients where that is faster."""
        Q = self._points(Q)
        if self.density not in VARIANTS:
            return self.logp_grads(Q)[0]
        batch, _, _ = VARIANTS[self.density]
        out = np.empty(len(Q))
        batch(Q, out, self.data, self.meta)
        return out

    @property
    def together(self):
        """A compiled function for several points, by which chains share readings of the data; or None.

        It gives the same bits as `density`; see ``kernels.bayes.address``.
        """
        return VARIANTS[self.density][1] if self.density in VARIANTS else None

    @property
    def chained(self):
        """The model that chains sample: this one, or one with more parameters, which `reduced` takes off."""
        return self

    def reduced(self, draws):
        """Points (K, d) of this model from draws of `chained`, with log densities and gradients."""
        raise NotImplementedError

    def _points(self, Q):
        Q = np.require(Q, np.float64, ["C", "W"])
        if Q.ndim != 2 or Q.shape[1] != self.n_params:
            raise DataError(f"points must have the shape (n, {self.n_params}), got {Q.shape}")
        return Q

    @property
    def is_costly(self):
        """Whether a million evaluations of the density, as tempering takes, are too many."""
        return False

    @property
    def regular(self):
        """Whether the density is known to resemble a normal one about its mode."""
        return False

    @property
    def value_names(self):
        """Names of the columns of `values`."""
        return self.names

    def values(self, Q):
        """Turn parameters q (K, d) into the values of the posterior."""
        return self._points(Q)

    @property
    def watched(self):
        """Columns of `values` that mix several parameters: chains are judged by them too."""
        return np.zeros(0, dtype=np.int64)

    def identity(self):
        """All that the density depends on, for digests."""
        function = self.density.py_func
        name = (function.__module__, function.__qualname__)
        return name, self.data, self.meta, self.names, self.start

    def without_data(self):
        """Return a copy for names and `values` alone, without a density."""
        return replace(self, data=np.zeros(0))

    def __getstate__(self):
        """Pickle plain arrays, without the address and other state of this process."""
        state = vars(self)
        return {name: value for name, value in state.items() if name != "address" and name[0] != "_"}

    def __setstate__(self, state):
        data = aligned(state["data"].nbytes)
        data[:] = state["data"]
        self.__dict__.update(state, data=data, meta=state["meta"].copy())  # what travels may be read-only


@dataclass(frozen=True)
class Prior:
    """Priors of a regression; a scale of inf is a flat prior.

    The horseshoe (the regularised one, with `scale` for its slab) shrinks the first `n_shrunk` coefficients,
    by default all; the others are normal. `global_scale` is in units of `scale`; `freedom` is that of
    Student's t. `own_scale` is that of the half-Cauchy prior of sigma, or of the overdispersion, and
    `group_scale` that of the half-normal prior of the standard deviation of groups' intercepts.
    """

    kind: str = "normal"
    scale: Any = 2.5
    freedom: float = 4.0
    global_scale: float = 1.0
    own_scale: float = 2.5
    n_shrunk: int | None = None
    group_scale: float = 1.0

    def log_density(self, coefs, scales):
        """Log density (n,) of coefficients (n, d), and of scales (n,) by name.

        Flat priors are left out, and coefficients that the horseshoe shrinks: their priors depend on scales.
        """
        widths = np.array(np.broadcast_to(self.scale, coefs.shape[1]), dtype=np.float64)
        widths[: self.count_shrunk(len(widths))] = np.inf
        proper = np.isfinite(widths)
        unit = {"student_t": stats.t(self.freedom), "laplace": stats.laplace}.get(self.kind, stats.norm)
        total = unit.logpdf(coefs[:, proper] / widths[proper]).sum(axis=1) - np.log(widths[proper]).sum()
        for name, values in scales.items():
            width = {"group_sd": self.group_scale, "global_scale": self.global_scale}.get(
                name, self.own_scale
            )
            if np.isfinite(width):
                distribution = stats.halfnorm if name == "group_sd" else stats.halfcauchy
                total = total + distribution.logpdf(values, scale=width)
        return total

    def count_shrunk(self, d):
        """How many of d coefficients the horseshoe shrinks."""
        if self.kind != "horseshoe":
            return 0
        return d if self.n_shrunk is None else self.n_shrunk


class Regression(Model):
    """The model of `regression`: coefficients first, a scale of the likelihood's own last."""

    @cached_property
    def n_coefs(self):
        """How many coefficients there are."""
        return int(self.meta[bayes_priors.N_COEFS])

    @property
    def _n_local(self):
        horseshoe = self.meta[bayes_priors.PRIOR] == bayes_priors.HORSESHOE
        return int(self.meta[bayes_priors.N_SHRUNK]) if horseshoe else 0

    @property
    def regular(self):
        """All but the horseshoe, whose scales make funnels."""
        return not self._n_local

    @property
    def value_names(self):
        """Coefficients, and scales by their names without "log"."""
        return tuple(name.removeprefix("log ") for name in self.names)

    def values(self, Q):
        """Coefficients and scales: exponentials of the logarithms in q."""
        Q = self._points(Q)
        out, d, h = Q.copy(), self.n_coefs, self._n_local
        out[:, d:] = np.exp(Q[:, d:])
        if h:
            scales = np.exp(-2 * (Q[:, d : d + h] + Q[:, [d + h]]))
            out[:, :h] /= np.sqrt(1 + scales) * self.data[bayes_priors.HEAD :][:h]
        return out


@dataclass(frozen=True, eq=False)
class GroupedRegression(Regression):
    """A regression with an intercept for each group, which is integrated out and drawn afterwards.

    `groups` (G,) are the numbers of the groups, rising.
    """

    groups: Any = None

    def draw_local(self, Q, *, seed, n_jobs=1):
        """Draw the groups' intercepts (K, G) exactly, given parameters q (K, d); also the groups' numbers."""
        linear = self.density is bayes_groups.linear_groups
        draw = bayes_groups.draw_linear_intercepts if linear else bayes_groups.draw_intercepts
        Q, name = self._points(Q), stream(seed, int(self.groups[0]), INTERCEPTS, 0)

        def block(first):
            own = name.copy()
            own[1] += np.uint32(first)
            return draw(Q[first : first + _BLOCK], own, self.data, self.meta)

        blocks = run_tasks([(block, (first,)) for first in range(0, len(Q), _BLOCK)], n_jobs)
        return np.concatenate(blocks), self.groups


def regression(
    family,
    X,
    y,
    *,
    weights=None,
    offsets=None,
    groups=None,
    names=None,
    prior=None,
    power=1.0,
    freedom=4.0,
):
    """Make the `Regression` of a family: a key of `_FAMILIES`, or "normal".

    An intercept is a column of ones of X (n, d). In single precision a logistic regression computes in it.
    Targets are 1 and -1 for "bernoulli". `groups` (n,) number each row's group, whose intercept is normal
    about 0 with a standard deviation that is a parameter; not for "student_t". `power` is the prior's, 1/M
    for one of M shards; `freedom` is that of Student-t noise.
    """
    prior = Prior() if prior is None else prior
    n, d = X.shape
    names = tuple(f"x{j}" for j in range(d)) if names is None else tuple(names)
    meta, head = _head(d, n, prior, power, freedom)
    start, rest, n_shrunk = np.zeros(d), 1.0, prior.count_shrunk(d)
    if family != "bernoulli":
        start[n_shrunk:], rest = _least_squares(family, X[:, n_shrunk:], y, weights, offsets)
    kind, own = Regression, {}
    if groups is not None:
        order = np.argsort(groups, kind="stable")
        X, y = X[order], y[order]
        weights, offsets = (None if part is None else part[order] for part in (weights, offsets))
        ids, sizes = np.unique(groups, return_counts=True)
        kind, own = GroupedRegression, {"groups": ids}
        density, meta, body = _grouped_body(
            family, meta, head, X, y, weights, offsets, sizes, prior.group_scale
        )
    elif family == "bernoulli" and weights is None and offsets is None:
        density, body = _logistic_body(meta, head, X, y)
    elif family == "normal":
        density, body = bayes_glm.linear, _linear_body(head, X, y, weights, offsets)
    else:
        density, body = bayes_glm.glm, _row_body(meta, family, X, y, weights, offsets)
    data = aligned(8 * (len(head) + math.ceil(body.nbytes / 8)))
    data[: len(head)] = head
    data[len(head) :].view(body.dtype)[: body.size] = body.ravel()
    if prior.kind == "horseshoe":
        names += tuple(f"log local scale {name}" for name in names[:n_shrunk])
        names += ("log global scale",)
    scales = {"log group_sd": 1.0} if groups is not None else {}
    if family in _SCALES:
        scales[f"log {_SCALES[family]}"] = 1.0
    if family in ("normal", "student_t"):
        scales = dict.fromkeys(scales, rest)
    start = np.concatenate([start, np.zeros(len(names) - d), np.log([*scales.values()])])
    concave = groups is None and family in ("bernoulli", "poisson") and prior.kind in ("normal", "laplace")
    constant = _log_constant(family, y, weights, prior, d, groups is not None, freedom)
    return kind(density, data, meta, (*names, *scales), start, concave, log_constant=constant, **own)


def _log_constant(family, y, weights, prior, d, grouped, freedom):
    """What densities leave out: of priors that are not flat what they are at zero, and of each row."""
    n_shrunk, scales = prior.count_shrunk(d), ["group_sd"] * grouped
    scales += ["global_scale"] * bool(n_shrunk) + ["sigma"] * (family in _SCALES)  # of either name
    of_prior = prior.log_density(np.zeros((1, d)), dict.fromkeys(scales, 0.0))[0]
    of_prior += n_shrunk * (stats.norm.logpdf(0) + stats.halfcauchy.logpdf(0))
    of_rows = {"normal": stats.norm.logpdf(0), "student_t": stats.t.logpdf(0, freedom), "bernoulli": 0.0}
    of_row = of_rows[family] if family in of_rows else -special.gammaln(y + 1)
    return float(of_prior + (np.broadcast_to(of_row, len(y)) * (1.0 if weights is None else weights)).sum())


def _least_squares(family, X, y, weights, offsets):
    """Fit coefficients to targets, or to logarithms of counts, as a start; also the size of the residuals."""
    targets = y if family in ("normal", "student_t") else np.log(y + 0.5)
    targets = targets if offsets is None else targets - offsets
    root = np.ones(1) if weights is None else np.sqrt(weights)
    coefs = _solved(X * root[:, None], targets * root)
    rest = np.sqrt(np.average((targets - X @ coefs) ** 2, weights=weights))
    return coefs, max(rest, 1e-8 * np.abs(targets).max(), 1e-150)


def _solved(X, y):
    """Least squares by columns of about one length: those far shorter than others count as well."""
    with np.errstate(divide="ignore"):
        scales = np.exp2(np.round(np.log2(np.sqrt((X * X).sum(axis=0)))))  # exact factors
    scales[scales == 0] = 1.0
    coefs, *_ = np.linalg.lstsq(X / scales, y, rcond=None)
    return coefs / scales


def _head(d, n, prior, power, freedom):
    """Fill the front of data and meta; the likelihood adds its own numbers later."""
    scale = np.broadcast_to(np.asarray(prior.scale, dtype=np.float64), d)
    start = bayes_priors.HEAD + -(-d // 8) * 8
    meta, head = np.zeros(bayes_priors.HEAD, np.int64), np.zeros(start)
    meta[bayes_priors.N_COEFS], meta[bayes_priors.N_ROWS], meta[bayes_priors.START] = d, n, start
    meta[bayes_priors.PRIOR] = PRIORS[prior.kind]
    meta[bayes_priors.N_SHRUNK] = prior.count_shrunk(d)
    head[bayes_priors.POWER], head[bayes_priors.FREEDOM] = power, prior.freedom
    head[bayes_priors.GLOBAL], head[bayes_priors.OWN_SCALE] = 1 / prior.global_scale, 1 / prior.own_scale
    head[bayes_priors.NOISE_FREEDOM] = freedom
    head[bayes_priors.HEAD :][:d] = 1 / scale
    return meta, head


def _logistic_body(meta, head, X, y):
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    tiles = bayes_tiles.tiles(X * y[:, None].astype(dtype), dtype)
    meta[bayes_priors.N_TILES] = len(tiles)
    head[bayes_priors.PADDING] = (len(tiles) * tiles.shape[2] - len(X)) * math.log(2)
    return (bayes_logistic.logistic32 if dtype == np.float32 else bayes_logistic.logistic64), tiles


def _linear_body(head, X, y, weights, offsets):
    """Sufficient statistics: the least sum of squares, where it is, and its square root matrix."""
    X = X.astype(np.float64)
    weights = np.ones(len(X)) if weights is None else weights
    y = y if offsets is None else y - offsets
    root = np.sqrt(weights)[:, None]
    center = _solved(X * root, y * root[:, 0])
    rest = y - X @ center
    head[bayes_priors.CONSTANT], head[bayes_priors.WEIGHT] = weights @ rest**2, weights.sum()
    R = np.zeros((X.shape[1], X.shape[1]))
    triangle = np.linalg.qr(X * root, mode="r")
    R[: len(triangle)] = triangle
    return np.concatenate([center, R.ravel()])


def _grouped_body(family, meta, head, X, y, weights, offsets, sizes, group_scale):
    """As the bodies of one family without groups, rows sorted by group; see ``densities.groups``."""
    firsts = np.append(0, np.cumsum(sizes))
    longer = np.concatenate([meta, [len(sizes)], firsts])
    if family == "normal":
        weights = np.ones(len(X)) if weights is None else weights
        y = y if offsets is None else y - offsets
        masses, which = np.add.reduceat(weights, firsts[:-1]), np.repeat(np.arange(len(sizes)), sizes)
        X_means = np.add.reduceat(weights[:, None] * X, firsts[:-1]) / masses[:, None]
        y_means = np.add.reduceat(weights * y, firsts[:-1]) / masses
        within = _linear_body(head, X - X_means[which], y - y_means[which], weights, None)
        parts = [[1 / group_scale], within, X_means.ravel(), y_means, masses]
        return bayes_groups.linear_groups, longer, np.concatenate(parts, dtype=np.float64)
    rows = _row_body(longer, family, X, y, weights, offsets)
    return bayes_groups.glm_groups, longer, np.concatenate([[1 / group_scale], rows])


def _row_body(meta, family, X, y, weights, offsets):
    n = len(X)
    weights = np.ones(n) if weights is None else weights
    meta[bayes_priors.FAMILY] = _FAMILIES[family]
    parts = [X.ravel(), y, weights, np.zeros(n) if offsets is None else offsets]
    if family == "negative_binomial":
        counts, which = np.unique(y, return_inverse=True)
        meta[bayes_priors.N_VALUES] = len(counts)
        parts += [counts, np.bincount(which, weights=weights)]
    return np.concatenate(parts, dtype=np.float64)
