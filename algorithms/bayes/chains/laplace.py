"""The mode of a density, its curvature there, and importance sampling about it.

The mode is found by quasi-Newton steps and polished by Newton's; the Hessian is taken from central
differences of the gradient. Draws from the normal distribution there (Laplace's approximation), or from
Student's t, weigh ``p(q) / approximation(q)``; Pareto's k-hat shows whether the weights can be trusted.

References: Tierney, Kadane, "Accurate approximations for posterior moments and marginal densities", JASA
1986. Vehtari, Simpson, Gelman, Yao, Gabry, "Pareto smoothed importance sampling", JMLR 2024.
"""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg, special

from ....kernels.bayes.climb import climb
from ....kernels.bayes.streams import normals, uniforms
from ....scheduler.threads import single_threaded_blas
from ..posterior.psis import psis
from .chain import PROPOSING, Draws, starting_point, stream
from .rays import points_of_a_ray, turned

_CLIMBS = 4  # from where the one before has ended, unless at a mode
_NEWTON_STEPS = 20  # a cap
_STEPS = 20  # of a climb in one compiled call, which Ctrl-C waits for
_NEAR = 0.1  # posterior standard deviations: the same mode
_CLOSE = 1e-3  # posterior standard deviations; nearer a density in single precision cannot tell
_DIFFERENCE = 1e-4  # of a parameter, relative: near the fourth root of rounding, for second differences
_SHORTER, _MUCH = 10, 1e3  # times that these are made shorter, and by how much at most
_LEAST_CURVATURE = 1e-10  # against the largest
_FLAT = 1e-100  # keeps a direction without curvature finite
_PART = 1e-2  # of a standard deviation, once that is known
_FAR = 3.0  # times twice the standard deviation
_TIMES = (1, 5, 25)  # the distance from the start at which chains begin
_RAYS = 8  # pairs of rays for each pair of scattered points
_SEEN = 0.25  # part of a mode's own part, that draws near it must be
MOST_MODES = 8  # that are found and weighed; there may be more
_STEEP = 10.0  # fall within a standard deviation of a normal density whose own is .5: there is no such one
_LEAST_MASS = -10.0  # logarithm of a mode's part, by the normal density there, of the heaviest one's
# Searches after the draws: docs/mcmc.md, "Any density".
_WORTH = 0.05  # of the evaluations that the draws took, for a later search
_FEW, _WORTH_OF_FEW = 1000, 0.25  # where these are few
_WORTH_OF_RAYS = 0.4  # of these
_ELSEWHERE = 2**32 - 1  # in the place of a shard's number: random numbers that no chain has


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

    @cached_property
    def _inverse(self):
        return linalg.solve_triangular(self.A, np.eye(len(self.A)), lower=True)


@dataclass
class Budget:
    """Evaluations of the density that searches may take.

    They end soon after the last one: by twenty steps and a Hessian at most.
    """

    left: float = np.inf


def missed_share(model, modes, draws, log_densities):
    """Compare the mass of the normal densities at modes with the share of draws (n, d) near them.

    Returns the largest share that a mode should have, of the modes with less than a quarter of it in the
    draws near them; 0 if there is none. The integral of the density over the region of the draws is estimated
    as that of a normal density with their covariance and their mean log density. This is exact for a normal
    density and too large for others, so a mode's share comes out too small rather than too large. Modes that
    no normal density describes, such as a point of a crooked ridge, do not count.
    """
    modes = [mode for mode in modes if _is_normal(model, mode)]
    d = draws.shape[1]
    signs = np.linalg.slogdet(np.atleast_2d(np.cov(draws.T)))
    if not len(modes) or len(draws) < d + 2 or not signs[0] > 0:
        return 0.0
    known = log_densities.mean() + (d + signs[1]) / 2  # both without the same power of 2 pi
    worst, radius = 0.0, special.chdtri(d, 0.01)
    all_modes = special.logsumexp([mode.log_mass for mode in modes])
    for mode in modes:
        share = special.expit(mode.log_mass - known)
        if len(modes) > 1:
            share = max(share, np.exp(mode.log_mass - all_modes))
        there = (((draws - mode.q) @ mode._inverse.T) ** 2).sum(axis=1) < radius
        if there.mean() < _SEEN * share:
            worst = max(worst, share)
    return float(worst)


def _is_normal(model, mode):
    """Whether the density falls about as a normal one does, on one side at least of every axis."""
    steps = mode.A.T
    logps = model.logp_grads(np.concatenate([mode.q + steps, mode.q - steps]))[0].reshape(2, -1)
    return bool((logps.max(axis=0) > mode.logp - _STEEP).all())


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
            if found is not None or (q == start).all():
                return found
            start = q  # what was learnt far out was of no use here
        return None


def find_modes(model, mode, n_pairs, *, seed, shard=0):
    """Look for further modes by climbs from points of rays, and about the start and the given mode.

    Points come in opposite pairs, of which one lies on the side of another mode, if there is one. There are
    `n_pairs` about the mode, at six standard deviations, and at 2, 10 and 50 about the start, and `n_pairs`
    times eight pairs of rays from the mode. Returns at most 8 modes, the heaviest first, and the number of
    searches. Modes with less than 1 in 20,000 of the heaviest one's mass are left out. Concave densities are
    not searched.
    """
    if model.concave:
        return [mode], 0
    with single_threaded_blas():
        starts, _ = turned(model, mode, _RAYS * n_pairs, seed=seed, shard=shard)
        modes = _climb_all(model, mode, starts, [mode])
        modes = _climb_all(model, mode, scattered(model, mode, n_pairs, seed, shard), modes, np.inf)
    return heaviest(modes), 2 * (_RAYS + 1 + (1 if model.regular else len(_TIMES))) * n_pairs


def find_further(model, mode, n, *, seed, shard=0):
    """Look for modes along more rays from the given one, with about n evaluations; see `find_modes`."""
    if model.concave:
        return [mode], 0
    n_pairs = max(1, n // (4 * points_of_a_ray()))
    with single_threaded_blas():
        starts, _ = turned(model, mode, n_pairs, seed=seed, shard=shard, number=1)
        modes = _climb_all(model, mode, starts, [mode], np.inf, Budget(n / 2))
    return heaviest(modes), 2 * n_pairs


def _climb_all(model, mode, starts, modes, patience=8, budget=None):
    """Climb from starts until so many in a row have brought no new mode; returns all modes."""
    modes, in_vain, budget = list(modes), 0, Budget() if budget is None else budget
    for start in starts:
        if in_vain >= patience or len(modes) == MOST_MODES or budget.left <= 0:
            break
        in_vain += 1
        other = find_mode(model, start, scales=mode.A, known=modes, budget=budget)
        if other is not None and other not in modes and not any(one.is_near(other.q) for one in modes):
            modes.append(other)
            in_vain = 0
    return modes


def heaviest(modes):
    """Sort modes by mass; leave out those with less than 1 in 20,000 of the first one's."""
    modes = sorted(modes, key=lambda one: -one.log_mass)
    return [one for one in modes if one.log_mass - modes[0].log_mass > _LEAST_MASS]


def scattered(model, mode, n_pairs, seed, shard=0):
    """Yield the points from which `find_modes` searches."""
    times = _TIMES[:1] if model.regular else _TIMES  # a regression far out is flat, and slow
    for chain in range(n_pairs):
        numbers = {"chain": chain, "seed": seed, "shard": shard}
        far = _FAR * (starting_point(model, mode=mode, **numbers) - mode.q)
        near = starting_point(model, **numbers) - model.start
        for origin, way in ((mode.q, far), *((model.start, k * near) for k in times)):
            yield origin + way
            yield origin - way


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
        squares = (((q - mode.q) @ mode._inverse.T) ** 2).sum(axis=1)
        log_q[k] = np.log(shares[k]) - np.log(np.diag(mode.A)).sum() - 0.5 * squares
    return _weighted(model, q, special.logsumexp(log_q, axis=0))


def _weighted(model, q, log_q):
    """Points of a proposal with their smoothed weights, and k-hat."""
    model.take_tally()
    logps = model.logp_batch(q)
    tally = model.take_tally()
    log_weights, k_hat = psis(np.where(np.isfinite(logps), logps, -np.inf) - log_q)
    return Draws(q, None, logps, tally.columns(len(q)), log_weights, tally.first), k_hat


def look_for_modes(model, sample, seed):
    """Look for modes about chains that were sampled without a search for any; return the sample with them.

    Chains of NUTS, HMC and slices begin near the start. Of modes that lie apart, or of a narrow one within a
    wide one, all may know the same one, and R-hat is 1.00. This search is for the diagnostics alone, with
    random numbers of its own and few evaluations compared with the chains'. It begins at the draw with the
    highest density, then at points of rays from it, and scattered about it, by the covariance of the draws,
    and about the start. An error that the density raises so far out ends that search alone. Ctrl-C keeps the
    draws. The sample is unchanged where modes were looked for before, where the density is known to be
    concave, and where no mode with a definite Hessian is found.
    """
    if sample.n_searches or not sample.states or model.concave:
        return sample
    known = _place_of(sample)
    if known is None:
        return sample
    total = float(sample.statistic("n_gradients").sum())
    budget = Budget(max(_WORTH * total, min(_FEW, _WORTH_OF_FEW * total)))
    modes: list[Mode] = []
    n = 0
    try:
        with single_threaded_blas():
            for start in _starts(model, known, len(sample.chains), seed, budget):
                if budget.left <= 0 or len(modes) == MOST_MODES:
                    break
                n += 1
                mode = _search(model, start, known, modes, budget)
                if mode is not None and not any(one is mode or one.is_near(mode.q) for one in modes):
                    modes.append(mode)
    except KeyboardInterrupt:
        sample = replace(sample, reason=f"{sample.reason}; the search for other modes was stopped")
    model.take_tally()  # of places where no chain was
    if not modes:
        return sample
    modes = heaviest(modes)
    return replace(sample, modes=tuple(modes), n_modes=len(modes), n_searches=n)


def _place_of(sample):
    """The draw with the highest density, with the covariance of all; None where that is singular."""
    draws = sample.stacked().reshape(-1, sample.chains[0].draws.shape[1])
    if len(draws) <= draws.shape[1]:  # a singular covariance, and large
        return None
    logps = sample.stacked("log_densities").ravel()
    try:
        A = np.linalg.cholesky(np.atleast_2d(np.cov(draws.T)))
    except np.linalg.LinAlgError:
        return None
    best = int(logps.argmax())
    return Mode(draws[best], A, np.eye(len(A)), float(logps[best])) if np.isfinite(A).all() else None


def _starts(model, known, n_pairs, seed, budget):
    """Yield the best draw, then points of rays and scattered ones in turn."""
    yield known.q
    left = max(0.0, budget.left)  # the climb from there may take more than all
    most = int(_WORTH_OF_RAYS * left) // (2 * points_of_a_ray())
    far, n = turned(model, known, min(most, _RAYS * n_pairs), seed=seed, shard=_ELSEWHERE)
    budget.left -= n
    near = scattered(model, known, n_pairs, seed, _ELSEWHERE)
    for points in itertools.zip_longest(far, _until_an_error(near)):
        yield from (point for point in points if point is not None)


def _until_an_error(points):
    while True:
        try:
            yield next(points)
        except Exception:  # the end, or no finite density there
            return


def _search(model, start, known, modes, budget):
    """A mode, or None, where the density may fail as it likes."""
    try:
        return find_mode(model, start, scales=known.A, known=modes, budget=budget)
    except Exception:
        return None
