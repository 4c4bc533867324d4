"""The mode of a density, its curvature there, and importance sampling about it.

The mode is found by quasi-Newton steps and polished by Newton's; the Hessian is taken from central
differences of the gradient. Draws from the normal distribution there (Laplace's approximation), or from
Student's t, weigh ``p(q) / approximation(q)``; Pareto's k-hat shows whether the weights can be trusted.

References: Tierney, Kadane, "Accurate approximations for posterior moments and marginal densities", JASA
1986. Vehtari, Simpson, Gelman, Yao, Gabry, "Pareto smoothed importance sampling", JMLR 2024.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, special

from ....kernels.bayes.climb import climb
from ....kernels.bayes.streams import normals, uniforms
from ....scheduler.threads import single_threaded_blas
from ..posterior.psis import psis
from .chain import PROPOSING, Draws, stream

_CLIMBS = 4  # from where the one before has ended, unless at a mode
_NEWTON_STEPS = 20  # a cap
_STEPS = 20  # of a climb in one compiled call, which Ctrl-C waits for
_NEAR = 0.1  # posterior standard deviations: the same mode
_CLOSE = 1e-3  # posterior standard deviations; nearer a density in single precision cannot tell
_DIFFERENCE = 1e-4  # of a parameter, relative: near the fourth root of rounding, for second differences
_SHORTER, _MUCH = 10, 1e3  # times that these are made shorter, and by how much at most
_LEAST_CURVATURE = 1e-10  # against the largest
_LEAST_SADDLE = 1e-4  # curvature upwards against the largest, beyond rounding
_FLAT = 1e-100  # keeps a direction without curvature finite
_PART = 1e-2  # of a standard deviation, once that is known


@dataclass(frozen=True, eq=False)
class Mode:
    """The mode q (d,) of a density.

    `precision` is the negative Hessian of the log density; A is the lower triangle with ``A A'`` its inverse.
    """

    q: np.ndarray
    A: np.ndarray
    precision: np.ndarray
    logp: float

    @property
    def log_mass(self):
        """Logarithm of the mass of the normal density at the mode, up to a constant."""
        return self.logp + float(np.log(np.diag(self.A)).sum())

    def is_near(self, q):
        """Whether q lies within a tenth of a standard deviation in every coordinate."""
        return bool(np.abs(self._inverse @ (q - self.q)).max() <= _NEAR)

    def squares(self, points):
        """Squared distances (n,) of points (n, d) in standard deviations, those of Mahalanobis."""
        return (((points - self.q) @ self._inverse.T) ** 2).sum(axis=1)

    @cached_property
    def _inverse(self):
        return linalg.solve_triangular(self.A, np.eye(len(self.A)), lower=True)


@dataclass
class Budget:
    """Evaluations of the density that searches may take.

    They end soon after the last one: by twenty steps and a Hessian at most.
    """

    left: float = np.inf


def find_mode(model, start=None, max_iter=500, scales=None, known=(), budget=None):
    """Find a mode with a definite Hessian; None if there is none to be found.

    There is none for a density without a maximum (separated data under a flat prior), or one that is flat or
    rises without end in some direction, or is highest at its border. The search starts at ``model.start`` by
    default. It goes on in coordinates z with ``q = start + scales z``; by default the Hessian at the start
    has eigenvalues of 1 and -1 in them. A search that ends within a tenth of a standard deviation of one of
    the `known` modes returns that. Evaluations are taken off the `budget`.
    """
    start = np.array(model.start if start is None else start, dtype=np.float64)
    budget = Budget() if budget is None else budget
    with single_threaded_blas():
        scales = _scales_of(_first_hessian(model, start)) if scales is None else scales
        h = _PART * np.sqrt((scales**2).sum(axis=1))  # differences of a part of the standard deviations
        for _ in range(_CLIMBS):
            q = _climb(model, start, scales, max_iter, budget)
            if q is None:
                return None
            for mode in known:
                if mode.is_near(q):
                    return mode
            found = _polish(model, q, h, budget)
            if found is not None:
                return found
            before, start = start, _off_saddle(model, q, h)  # what was learnt far out was of no use here
            if (start == before).all():
                return None
        return None


def _climb(model, start, scales, max_iter, budget):
    """Return the end of quasi-Newton steps from the start; None if the density is not finite there."""
    d, logp, first = len(start), np.nan, 0
    z, gz, H = np.empty(d), np.empty(d), np.empty((d, d))
    scales = np.ascontiguousarray(scales)
    going = True
    while going and first < max_iter and budget.left > 0:
        n = min(_STEPS, max_iter - first)
        place = start, scales, z, gz, H
        logp, going, spent = climb(model.address, *place, logp, first, n, model.data, model.meta)
        budget.left -= spent
        model.raise_errors()
        first += n
    return start + scales @ z if np.isfinite(logp) and budget.left > 0 and np.isfinite(z).all() else None


def _off_saddle(model, q, h):
    """Return a point a standard deviation away from a saddle, where the density is higher; else q.

    Where parameters may change places, and begin at the same value, climbs end at a saddle.
    """
    precision = hessian(model, q, h)
    if not np.isfinite(precision).all():
        return q
    values, vectors = np.linalg.eigh(precision)
    if not values[0] < -_LEAST_SADDLE * np.abs(values).max():
        return q
    slopes = vectors.T @ model.logp_grad(q)[1] / np.sqrt(np.maximum(np.abs(values), _FLAT))
    if not np.abs(slopes).max() < _NEAR:
        return q
    way = vectors[:, 0]
    first = np.argmax(np.abs(way) > 0.5 * np.abs(way).max())  # LAPACK's sign is the machine's
    return q + np.sign(way[first]) * way / np.sqrt(-values[0])


def _first_hessian(model, q):
    """The Hessian from differences of a hundredth of the standard deviations, which it gives in turn."""
    h = _DIFFERENCE * np.maximum(1.0, np.abs(q))
    for _ in range(_SHORTER):
        precision = hessian(model, q, h)
        widths = np.diag(precision)
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = np.where(widths > 0, _PART / np.sqrt(widths), h)
        too_far = ~np.isfinite(widths)
        if not (too_far.any() or np.isfinite(precision).all()):
            too_far[:] = True
        wanted = np.where(too_far, h / _MUCH, wanted)
        if (wanted >= h / 10).all():
            break
        h = np.clip(wanted, h / _MUCH, h)
    return precision


def _scales_of(precision):
    """``V |L|^-1/2`` of the eigenvalues L and vectors V, or ones where there is no Hessian."""
    if not np.isfinite(precision).all() or not precision.any():
        return np.eye(len(precision))
    values, vectors = np.linalg.eigh(precision)
    values = np.abs(values)
    return vectors / np.sqrt(np.maximum(values, max(_LEAST_CURVATURE * values.max(), _FLAT)))


def _polish(model, q, h, budget):
    """Newton steps, halved while the density falls, until they are short against the posterior."""
    logp, gradient = model.logp_grad(q)
    for _ in range(_NEWTON_STEPS):
        precision = hessian(model, q, h)
        budget.left -= 2 * len(q) + 1
        if not np.isfinite(precision).all():
            return None
        try:
            L = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError:
            return None
        step = linalg.cho_solve((L, True), gradient)
        if np.abs(L.T @ step).max() < _CLOSE:
            q = q + step  # so that what is left does not depend on where the climb ended
            logp = model.logp_grad(q)[0]  # where a density ends at its top the last step may lead out of it
            return Mode(q, _triangle(L), precision, logp) if np.isfinite(logp) else None
        h = _PART / np.sqrt(np.diag(precision))
        for _ in range(30):
            new_logp, new_gradient = model.logp_grad(q + step)
            if new_logp >= logp - _CLOSE:  # false for NaN
                break
            step = step / 2
        else:
            return None
        q, logp, gradient = q + step, new_logp, new_gradient
    return None


def _triangle(L):
    """The lower triangle A with ``A A' = (L L')^-1``."""
    inverse = linalg.solve_triangular(L, np.eye(len(L)), lower=True)
    return np.linalg.cholesky(inverse.T @ inverse)


def hessian(model, q, h=None):
    """Negative Hessian (d, d) at q, from central differences of the gradient: 2 d gradients.

    `h` (d,) is half the differences; by default a ten-thousandth of q, or of 1 where that is more.
    """
    h = _DIFFERENCE * np.maximum(1.0, np.abs(q)) if h is None else h
    _, gradients = model.logp_grads(np.concatenate([q + np.diag(h), q - np.diag(h)]))
    with np.errstate(over="ignore", invalid="ignore"):  # where a density is not finite
        rows = -(gradients[: len(q)] - gradients[len(q) :]) / (2 * h[:, None])
        return (rows + rows.T) / 2


def laplace_draws(model, mode, n, *, seed, shard=0, chain=0, freedom=None):
    """Draw n points about the mode and weigh them; returns `Draws` and k-hat.

    The proposal is normal, or Student's t with that many degrees of `freedom`. The `Draws` have normalised,
    smoothed `log_weights`, and no gradients, which would cost twice as much.
    """
    d, name = model.n_params, stream(seed, shard, chain, PROPOSING)
    z = normals(name, n, d)
    log_q = -0.5 * (z**2).sum(axis=1)
    if freedom is not None:
        other = stream(seed, shard, chain, PROPOSING - 1)
        shrink = special.chdtri(freedom, uniforms(other, n)) / freedom
        log_q = -(freedom + d) / 2 * np.log1p(-2 * log_q / shrink / freedom)
        z = z / np.sqrt(shrink)[:, None]
    return _weighted(model, mode.q + z @ mode.A.T, log_q)


def mixture_draws(model, modes, n, *, seed, shard=0):
    """Draw n points from a mixture of the normal densities at several modes, and weigh them.

    Components have the shares of the modes' masses. Returns the same as `laplace_draws`. The weights say how
    much each mode has of the posterior, which chains that stay in one mode cannot.
    """
    d, name = model.n_params, stream(seed, shard, 0, PROPOSING)
    shares = special.softmax([mode.log_mass for mode in modes])
    drawn = uniforms(stream(seed, shard, 0, PROPOSING - 1), n)
    own = np.minimum(np.searchsorted(np.cumsum(shares), drawn), len(modes) - 1)
    q = normals(name, n, d)
    for k, mode in enumerate(modes):
        q[own == k] = mode.q + q[own == k] @ mode.A.T
    log_q = np.empty((len(modes), n))
    for k, mode in enumerate(modes):
        log_q[k] = np.log(shares[k]) - np.log(np.diag(mode.A)).sum() - 0.5 * mode.squares(q)
    return _weighted(model, q, special.logsumexp(log_q, axis=0))


def _weighted(model, q, log_q):
    """Points of a proposal with their smoothed weights, and k-hat."""
    model.take_tally()
    logps = model.logp_batch(q)
    tally = model.take_tally()
    log_weights, k_hat = psis(np.where(np.isfinite(logps), logps, -np.inf) - log_q)
    return Draws(q, None, logps, tally.columns(len(q)), log_weights, tally.first), k_hat
