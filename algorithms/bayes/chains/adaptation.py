"""Warm-up: step sizes by dual averaging, and metrics from windows of draws, with Stan's constants.

A chain of 1,000 warm-up draws has 75 to get to the posterior, windows of 25, 50, 100, 200 and 500 that each
end with a new metric from their draws, and 50 for the last step size. Shorter ones shrink the first and last
to 15 and 10 per cent. With n draws in a window the covariance is ``n / (n + 5) S + 5 / (n + 5) * 1e-3 I``.

Whether S is dense or diagonal Stan leaves to its user. The "adapted" metric looks at every window: by scales
alone trajectories are longer than by the whole covariance, namely by the root of the condition number of the
correlations. Where that is 3 or more, and there are draws enough to tell, the metric is dense. The "low_rank"
metric, from draws and gradients, must be asked for: it is far better for correlated normal densities with
few draws, and worse for priors with heavy tails such as the horseshoe.

References: Stan Development Team, Stan Reference Manual, "HMC algorithm parameters". Hoffman, Gelman, JMLR
2014.
"""

import math
from dataclasses import replace

import numpy as np

from ....errors import DataError, shortened
from ....kernels.bayes.hmc import first_size
from ....scheduler.threads import single_threaded_blas
from .chain import SAMPLERS, WARM_UP, Draws, advance_all, init, stream
from .low_rank import low_rank

METRICS = ("adapted", "diagonal", "dense", "low_rank", "laplace")
_FIRST, _WINDOW, _LAST, _LEAST = 75, 25, 50, 20  # Stan's windows of warm-up, in iterations
_LAPLACE_WARM_UP = 150  # iterations: only the step size is left to learn
_SHRINK, _FLOOR = 5.0, 1e-3  # Stan's shrinkage of estimated variances towards 0.001
# Tail ESS a gradient with and without: docs/mcmc.md, "Steps and metrics".
_CORRELATED, _DRAWS = 9.0, 20  # condition number, and draws a parameter, from which a metric is dense
_LEAST_PART = 1e-10  # of an eigenvalue of correlations, below which it is rounding


def windows(n):
    """Cut a warm-up of n draws into stretches: (length, whether the metric is renewed at its end).

    >>> from stradask.algorithms.bayes.chains.adaptation import windows
    >>> [length for length, _ in windows(1000)]
    [75, 25, 50, 100, 200, 500, 50]
    """
    if n < _LEAST:
        return [(n, False)]
    first, last = (_FIRST, _LAST) if n >= _FIRST + _WINDOW + _LAST else (int(0.15 * n), int(0.1 * n))
    left, size, stretches = n - first - last, _WINDOW, [(first, False)]
    while left:
        length = left if left < 3 * size else size
        stretches.append((length, True))
        left, size = left - length, 2 * size
    return [*stretches, (last, False)]


def start_averaging(size, target, most=np.inf):
    """State of dual averaging that begins at a step size."""
    return np.array([0.0, 0.0, math.log(10 * size), 0.0, target, math.log(most)])


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
    as only a step size is left to find; it needs a `mode`, as split HMC does. The "adapted" metric becomes
    dense where a window of at least 20 draws a parameter shows strong correlations. `target` is the
    acceptance, by default the sampler's; slice and Gibbs sampling accept always, and have none. For `limit`
    see `init`.
    """
    if metric not in METRICS:
        raise DataError(f"metric must be one of {', '.join(METRICS)}, got {shortened(metric)}")
    if sampler == "split_hmc" or metric == "laplace":
        if mode is None:
            raise DataError(
                f"sampler={shortened(sampler)} with metric={shortened(metric)} needs a mode: see find_mode"
            )
        begin = {"mu": mode.q, "A": mode.A}
        stretches = [(min(n, _LAPLACE_WARM_UP), False)]
    else:
        begin = {}
        stretches = [(n, False)] if sampler == "gibbs" else windows(n)  # which keeps its coordinates
    states = [init(model, q, sampler, **begin, limit=limit, draw=WARM_UP) for q in points]
    own = SAMPLERS[sampler].target
    target = own if own is None or target is None else target
    parts: list[list[Draws]] = [[] for _ in points]
    renewed, averagings = True, [None] * len(points)
    for length, renew in stretches:
        if renewed:
            begun = [
                _begin(model, state, target, seed=seed, shard=shard, chain=chain)
                for state, chain in zip(states, chains, strict=True)
            ]
            states, averagings = map(list, zip(*begun, strict=True))
        made = advance_all(
            model, states, length, seed=seed, shard=shard, chains=chains, averagings=averagings
        )
        for i, (state, draws) in enumerate(made):
            parts[i].append(draws)
            states[i] = _adapted(model, state, draws, averagings[i], metric if renew else None)
        renewed = renew
    return [(replace(state, draw=0), Draws.join(own)) for state, own in zip(states, parts, strict=True)]


def _adapted(model, state, draws, averaging, metric):
    """The state after a stretch: with a new metric where that is due, and the averaged step size."""
    if metric is not None:
        state = _with_metric(model, state, draws, metric)
    if averaging is not None and averaging[3]:
        state = replace(state, tuning=np.array([math.exp(averaging[0]), state.tuning[1]]))
    return state


def _begin(model, state, target, *, seed, shard, chain):
    """Look for a step size of the right order, and begin to average from there."""
    if target is None:
        return state, None
    kind, size = SAMPLERS[state.sampler], state.tuning[0]
    if kind.size is None:
        name = stream(seed, shard, chain, WARM_UP - 1 - (state.draw - WARM_UP))
        size = first_size(
            model.address, state.z, state.gz, state.logp, state.mu, state.A, name, model.data, model.meta
        )
    elif state.sampler == "random_walk":
        size = 2.38 / math.sqrt(len(state.z))
    tuning = np.array([size, state.tuning[1]])
    return replace(state, tuning=tuning), start_averaging(size, target, kind.most)


def _with_metric(model, state, made, metric):
    """Change to the coordinates that a window of draws suggests."""
    draws = made.draws
    n, d = draws.shape
    keep = n / (n + _SHRINK)
    floor = _FLOOR * (1 - keep)
    A = None
    if metric == "dense" or (metric == "adapted" and d > 1 and n >= _DRAWS * d):
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
