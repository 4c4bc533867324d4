"""Warm-up: step sizes by dual averaging, and metrics from windows of draws.

A chain of 1,000 warm-up draws has 75 to get to the posterior, windows of 25, 50, 100, 200 and 450 that each
end with a new metric from their draws, and 100 for the last step size.
Shorter ones shrink the first and last to 15 and 20 per cent. The windows are those of Stan but for the last.
With n draws in a window the covariance is ``n / (n + 5) S + 5 / (n + 5) * 1e-3 I``.

Whether S is dense or diagonal Stan leaves to its user. The "adapted" metric looks at every window:

1. Where gradients are nearly linear in the draws, as those of a normal density, draws and gradients make the
   metric (see ``low_rank``): for a normal density it is exact after a few draws. It is a triangle where the
   condition number of the correlations is 9 or more.
2. Else scales, or the covariance where that number is 9 or more and there are 20 draws a parameter. By scales
   alone trajectories are longer than by the covariance, namely by the root of the condition number.

Its first metric is the inverse of the absolute Hessian at the start; the first 75 draws are three windows,
each with a metric by 1, or by the Hessian at the last draw. A warm-up ends early, with the last 100 draws,
where a window of 50 or more shows that the density is nearly normal in the coordinates in use, and its draws
are worth a fifth of as many independent ones: `n` is then the most, not the number. Steps of such a chain
have the acceptance that is asked for. Others keep the mean of widely varied steps, as in Stan, at which more
is accepted: so fewer trajectories diverge.

The "low_rank" metric by itself must be asked for: it is worse for priors with heavy tails.

References: Stan Development Team, Stan Reference Manual, "HMC algorithm parameters". Hoffman, Gelman, JMLR
2014.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes.chain import evaluate_all
from ....kernels.bayes.streams import fill_normal
from ....scheduler.threads import single_threaded_blas
from ..posterior.convergence import ess
from .chain import SAMPLERS, WARM_UP, Draws, State, advance_all, init, stream
from .laplace import hessian
from .low_rank import explained, low_rank, normal_metric

METRICS = ("adapted", "diagonal", "dense", "low_rank", "laplace")
_FIRST, _WINDOW, _LAST, _LEAST = 75, 25, 100, 20  # windows of warm-up, in iterations
_GAMMA, _STEADY = 0.05, 0.25  # of dual averaging: Hoffman and Gelman's, and where a size is nearly known
_EARLY = 3  # windows of the first stretch where a metric may be found there
_MOST_CURVED = 100  # parameters, above which the first metric is that of independent ones
_SETTLED = 0.9  # R2 of gradients by the metric, for the end of a warm-up
_LEAST_ENDING, _LEAST_WORTH = 50, 0.2  # draws, and effective ones of them, that may end a warm-up
_LAPLACE_WARM_UP = 150  # iterations: only the step size is left to learn
_BENT = 0.02  # of the second half of a window diverges: the ridge bends, and no covariance fits it
_SHRINK, _FLOOR = 5.0, 1e-3  # Stan's shrinkage of estimated variances towards 0.001
# Tail ESS a gradient with and without: docs/mcmc-measured.md, "Metrics".
_CORRELATED, _DRAWS = 9.0, 20  # condition number, and draws a parameter, from which a metric is dense
_SIZES, _LOG_ACCEPTED = 100, math.log(0.8)  # of the search for a first step size
_LEAST_PART = 1e-10  # of an eigenvalue of correlations, below which it is rounding


def windows(n):
    """Cut a warm-up of n draws into stretches: (length, whether the metric is renewed at its end).

    >>> from stradask.algorithms.bayes.chains.adaptation import windows
    >>> [length for length, _ in windows(1000)]
    [75, 25, 50, 100, 200, 450, 25, 75]
    """
    if n < _LEAST:
        return [(n, False)]
    first, last = (_FIRST, _LAST) if n >= _FIRST + _WINDOW + _LAST else (int(0.15 * n), int(0.2 * n))
    left, size, stretches = n - first - last, _WINDOW, [(first, False)]
    while left:
        length = left if left < 3 * size else size
        stretches.append((length, True))
        left, size = left - length, 2 * size
    return [*stretches, (last // 4, False), (last - last // 4, False)]


def start_averaging(size, target, most=np.inf, *, steady=False):
    """State of dual averaging that begins at a step size; a steady one makes smaller changes.

    Changes as large as those that find a size make their mean too small: the acceptance of a mean of sizes is
    above the mean of their acceptances.
    """
    centre, gamma = (size, _STEADY) if steady else (10 * size, _GAMMA)
    return np.array([0.0, 0.0, math.log(centre), 0.0, target, math.log(most), gamma])


def warm_up(model, q, sampler="nuts", *, chain=0, **settings):
    """Bring a chain from q (d,) to the posterior and tune it; see `warm_up_all` for the settings.

    Returns the state, ready for its draw number 0, and the draws of the warm-up.
    """
    (made,) = warm_up_all(model, [q], sampler, chains=[chain], **settings)
    return made


def warm_up_all(
    model,
    points,
    sampler="nuts",
    *,
    n=1000,
    metric="diagonal",
    mode=None,
    target=None,
    limit=None,
    seed,
    shard=0,
    chains,
):
    """Bring several chains to the posterior, each tuned on its own; returns pairs as `warm_up`.

    They begin at `points`, and have the numbers `chains`. The "laplace" metric takes at most 150 of n draws,
    as only a step size is left to find; it needs a `mode`, as split HMC does. With the "adapted" metric n is
    the most: chains of nearly normal densities end sooner, each on its own. `target` is the acceptance, by
    default the sampler's; slice and Gibbs sampling accept always, and have none. For `limit` see `init`.
    """
    if metric not in METRICS:
        raise DataError(f"metric must be one of {', '.join(METRICS)}, got {shortened(metric)}")
    at_mode = sampler == "split_hmc" or metric == "laplace"
    if at_mode and mode is None:
        raise DataError(
            f"sampler={shortened(sampler)} with metric={shortened(metric)} needs a mode: see find_mode"
        )
    own = SAMPLERS[sampler].target
    target = own if own is None or target is None else target
    stretches = _stretches(n, sampler, metric)
    numbers = {"seed": seed, "shard": shard}
    every = []
    for chain, q in zip(chains, points, strict=True):
        first = {"mu": mode.q, "A": mode.A} if at_mode else {}
        if stretches[0][1] == "early":
            first = {"A": _curvature(model, q)}
        every.append(_WarmUp(init(model, q, sampler, **first, limit=limit, draw=WARM_UP), chain))
    for place, (length, renewed) in enumerate(stretches):
        going = [one for one in every if not one.settled or place >= len(stretches) - 2]
        if not going:
            continue
        for one in going:
            one.prepare(model, target, numbers)
        made = advance_all(
            model,
            [one.state for one in going],
            length,
            chains=[one.chain for one in going],
            averagings=[one.averaging for one in going],
            **numbers,
        )
        for one, (state, draws) in zip(going, made, strict=True):
            one.learn(model, state, draws, renewed)
    return [(replace(one.state, draw=0), Draws.join(one.parts)) for one in every]


def _stretches(n, sampler, metric):
    """Cut a warm-up into pairs: a length, and by what the metric is renewed at its end, or None."""
    if sampler == "split_hmc" or metric == "laplace":
        return [(min(n, _LAPLACE_WARM_UP), None)]
    if sampler == "gibbs":  # which keeps its coordinates
        return [(n, None)]
    made = [(length, metric if renew else None) for length, renew in windows(n)]
    if metric == "adapted" and made[0][0] == _FIRST:
        made[:1] = [(_FIRST // _EARLY, "early")] * _EARLY
    return made


@dataclass
class _WarmUp:
    """A chain that warms up: its state, number, averaging and draws.

    `fresh` says that its coordinates are new, so that a step size must be looked for; `settled` that windows
    are done, and only the last step size is left to find.
    """

    state: State
    chain: int
    averaging: np.ndarray | None = None
    parts: list[Draws] = field(default_factory=list)
    fresh: bool = True
    settled: bool = False

    def prepare(self, model, target, numbers):
        """Begin to average, or go on, before a stretch."""
        if self.fresh:
            self.state, self.averaging = _begin(model, self.state, target, chain=self.chain, **numbers)
        elif self.settled and target is not None:
            most = SAMPLERS[self.state.sampler].most
            self.averaging = start_averaging(self.state.tuning[0], target, most, steady=True)
        self.fresh = False

    def learn(self, model, state, draws, metric):
        """Take the draws of a stretch: the averaged step size, and a new metric unless that is None."""
        self.parts.append(draws)
        self.settled |= metric == "adapted" and _is_settled(state, draws)
        self.fresh = metric is not None
        bent = draws.statistics["divergent"][len(draws.draws) // 2 :].mean() > _BENT
        if metric == "adapted" and bent:
            metric = "diagonal"
        if self.fresh:
            state = _with_metric(model, state, draws, metric)
        if self.averaging is not None and self.averaging[3]:
            state = replace(state, tuning=np.array([math.exp(self.averaging[0]), state.tuning[1]]))
        self.state = state


def _curvature(model, q):
    """The metric A of the absolute Hessian at q; scales of 1 where it is singular, or costs too much."""
    ones = np.ones((1, len(q)))
    if len(q) > _MOST_CURVED:
        return ones
    with np.errstate(all="ignore"):
        H = hessian(model, q)
    if not np.isfinite(H).all():
        return ones
    with single_threaded_blas():
        values, vectors = np.linalg.eigh(H)
        values = np.abs(values)
        if not (values > _LEAST_PART * values.max()).all():
            return ones
        return np.linalg.cholesky((vectors / values) @ vectors.T)


def _is_settled(state, draws):
    """Whether draws made with a metric show that the density is normal in its coordinates, nearly."""
    n = len(draws.draws)
    if n < _LEAST_ENDING or explained(state.A, draws.draws, draws.gradients) < _SETTLED:
        return False
    columns = np.column_stack([draws.draws, draws.log_densities])
    return bool(ess(columns[None]).min() >= _LEAST_WORTH * n)


def _begin(model, state, target, *, seed, shard, chain):
    """Look for a step size of the right order, and begin to average from there."""
    if target is None:
        return state, None
    kind, size = SAMPLERS[state.sampler], state.tuning[0]
    if kind.size is None:
        name = stream(seed, shard, chain, WARM_UP - 1 - (state.draw - WARM_UP))
        size = _first_size(model, state, name)
    elif state.sampler == "random_walk":
        size = 2.38 / math.sqrt(len(state.z))
    tuning = np.array([size, state.tuning[1]])
    return replace(state, tuning=tuning), start_averaging(size, target, kind.most)


def _first_size(model, state, name):
    """Double or halve a step size of 1 until the acceptance of one leapfrog step crosses 0.8.

    A few steps, which wait for no compiler. Of the model it calls the density alone.
    """
    z, mu, A = state.z, state.mu, state.A
    p, rng, size, way = np.empty(len(z)), name.copy(), 1.0, 0
    dense = np.tril(A) if len(A) == len(z) else None
    with np.errstate(all="ignore"), single_threaded_blas():
        for _ in range(_SIZES):
            fill_normal(rng, p)
            energy = 0.5 * (p @ p) - state.logp
            half = p + 0.5 * size * state.gz
            moved = z + size * half
            q = mu + (A[0] * moved if dense is None else dense @ moved)
            logps, gradients = evaluate_all(model.address, q[None], model.data, model.meta)
            g = gradients[0]
            half += 0.5 * size * (A[0] * g if dense is None else g @ dense)
            up = 1 if energy + logps[0] - 0.5 * (half @ half) > _LOG_ACCEPTED else -1
            if way not in (0, up):
                break
            way = up
            size *= 2.0**way
    return size


def _with_metric(model, state, made, metric):
    """Change to the coordinates that a window of draws suggests; "early" are the first of "adapted"."""
    draws = made.draws
    n, d = draws.shape
    keep = n / (n + _SHRINK)
    floor = _FLOOR * (1 - keep)
    A = normal_metric(draws, made.gradients, _CORRELATED) if metric in ("adapted", "early") else None
    if A is None and metric == "early":
        A = _curvature(model, draws[-1])
    elif A is None and (metric == "dense" or (metric == "adapted" and d > 1 and n >= _DRAWS * d)):
        with single_threaded_blas():
            covariance = np.atleast_2d(np.cov(draws.T)) * keep + floor * np.eye(d)
            A = np.sqrt(np.diag(covariance))[None]
            if metric == "dense" or _are_correlated(covariance / (A * A.T)):
                A = np.linalg.cholesky(covariance)
    elif metric == "low_rank":
        A = low_rank(draws, made.gradients)
    if A is None:
        A = np.sqrt(draws.var(axis=0, ddof=1) * keep + floor)[None]
    return init(model, draws[-1], state.sampler, A=A, limit=state.tuning[1], draw=state.draw)


def _are_correlated(correlations):
    """Whether a dense metric makes trajectories so much shorter that it is worth its products."""
    values = np.linalg.eigvalsh(correlations)
    return bool(values[-1] > _CORRELATED * values[0] > _LEAST_PART)
