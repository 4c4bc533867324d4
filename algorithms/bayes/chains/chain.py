"""Chains on one machine: the state of a chain, a pure step of any length, and its draws.

Random numbers are named by (seed, shard, chain, draw). `advance` is a pure function of a model, a state and
those numbers. So a run resumes where it stopped, a part of it can be repeated on another machine, and 2 x 100
draws are 200 draws bit for bit.
"""

from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from ....errors import DataError
from ....kernels.bayes import chain as bayes_chain
from ....kernels.bayes import gibbs as bayes_gibbs
from ....kernels.bayes import hmc, nuts, random_walk, slice_sampling, split_hmc
from ....kernels.bayes import together as bayes_together
from ....kernels.bayes.address import BEGIN, GO_ON, STEP, TOGETHER, address_of
from ....kernels.bayes.densities import glm as bayes_glm
from ....kernels.bayes.densities import priors as bayes_priors
from ....kernels.bayes.streams import normals, uniforms
from ..models.failures import Tally, place_words

STATISTICS = ("acceptance", "n_gradients", "depth", "divergent", "energy", "step_size")
_LEAST_ROWS = 5  # scratch of samplers that build no trees
# Numbers of draws that are no draws of a chain.
WARM_UP, STARTING, PROPOSING = 2**31, 2**32 - 1, 2**32 - 2
_STARTS = 100  # random points, as Stan tries
_HALVINGS, _EACH = 20, 20  # of the reach, where none of these has a density: to a millionth; points at each
_MOST_LIMIT = {True: 30, False: 10**9}  # a tree of depth 30 has 10^9 leaves


@dataclass(frozen=True)
class Sampler:
    """A sampler: its compiled `kernel`, with a `step`, and how it is tuned.

    `target` is the acceptance that the step size is adapted to; None keeps the step size. `limit` bounds a
    draw: the depth of a tree, the number of leapfrog steps or of widths. `most` is the largest step size.
    `size` is the first one; None searches for it.
    """

    kernel: Any
    target: float | None
    limit: float
    most: float = np.inf
    size: float | None = None


# Targets: Stan's for NUTS; Roberts and Rosenthal (1998) for MALA; Gelman, Roberts, Gilks (1996) for the walk;
# the angle of split HMC is lowered only where less is accepted.
SAMPLERS = MappingProxyType(
    {
        "nuts": Sampler(nuts, 0.8, 10),
        "split_hmc": Sampler(split_hmc, 0.65, 1, most=1.9, size=1.9),
        "hmc": Sampler(hmc, 0.8, 20),
        "mala": Sampler(hmc, 0.574, 1),
        "random_walk": Sampler(random_walk, 0.234, 1, size=1.0),
        "slice": Sampler(slice_sampling, None, 20, size=2.0),
        "gibbs": Sampler(None, None, 1, size=1.0),  # a loop of its own
    }
)

_WITHOUT_GRADIENTS = ("random_walk", "slice")


@dataclass(frozen=True, eq=False)
class State:
    """Where a chain is, and how it moves.

    Position z and gradient gz (d,) are in the coordinates of the metric, ``q = mu + A z``: A holds scales (1,
    d) or a lower triangle (d, d). `tuning` is (step size, limit), `draw` the number of the next draw.
    """

    sampler: str
    z: np.ndarray
    gz: np.ndarray
    logp: float
    mu: np.ndarray
    A: np.ndarray
    tuning: np.ndarray
    draw: int = 0


@dataclass(frozen=True, eq=False)
class Draws:
    """The n draws of a chain, or of importance sampling.

    `draws` (n, d) are parameters q, `gradients` (n, d) those of the log density, None for importance
    sampling. `statistics` are arrays (n,): those named in `STATISTICS`, and ``undefined`` and ``failed``, the
    evaluations of a user's density that were NaN or raised an error, all counted at the first draw of a call.
    Importance sampling has only the last two, and `log_weights`. `failure` describes the first error.
    """

    draws: np.ndarray
    gradients: np.ndarray | None
    log_densities: np.ndarray
    statistics: dict
    log_weights: np.ndarray | None = None
    failure: str = ""

    @staticmethod
    def join(parts):
        """Put consecutive parts of one chain together."""
        draws, gradients, log_densities = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("draws", "gradients", "log_densities")
        )
        figures = {name: np.concatenate([p.statistics[name] for p in parts]) for name in parts[0].statistics}
        failure = next((part.failure for part in parts if part.failure), "")
        return Draws(draws, gradients, log_densities, figures, failure=failure)


def stream(seed, shard, chain, draw):
    """Name the stream of random numbers of one draw."""
    for what, value, bits in (("seed", seed, 64), ("shard", shard, 32), ("chain", chain, 32)):
        if not 0 <= value < 2**bits:
            raise DataError(f"{what} must be an integer from 0 to 2^{bits} - 1, got {value}")
    return np.array([0, draw, chain, shard, seed & 0xFFFFFFFF, seed >> 32], dtype=np.uint32)


def init(model, q, sampler="nuts", *, mu=None, A=None, size=None, limit=None, draw=0):
    """Begin a chain at q (d,); for mu, A, step size and limit see `State`.

    Raises a DataError if the log density is not finite at q, or its gradient, where the sampler takes one, or
    if a scale is not above zero.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.chains.chain import advance, init
    >>> from stradask.algorithms.bayes.models.model import regression
    >>> model = regression("bernoulli", np.array([[1.0], [2.0]]), np.array([1.0, -1.0]))
    >>> state, some = advance(model, init(model, np.zeros(1)), 100, seed=1)
    >>> _, more = advance(model, state, 100, seed=1)
    >>> _, whole = advance(model, init(model, np.zeros(1)), 200, seed=1)
    >>> bool((np.concatenate([some.draws, more.draws]) == whole.draws).all())
    True
    """
    kind, d = SAMPLERS[sampler], model.n_params
    mu = np.zeros(d) if mu is None else np.array(mu, dtype=np.float64)  # may be read-only
    A = np.ones((1, d)) if A is None else np.array(A, dtype=np.float64, order="C")
    scales = A[0] if len(A) != d else np.diag(A)
    if not (np.isfinite(A).all() and (scales > 0).all()):
        raise DataError(f"A must have scales above zero, got {scales}")
    model.take_tally()
    logp, gradient = model.logp_grad(q)
    if sampler in _WITHOUT_GRADIENTS:  # differences beside a wall are infinite
        gradient = np.where(np.isfinite(gradient), gradient, 0.0)
    if not (np.isfinite(logp) and np.isfinite(gradient).all()):
        tally = model.take_tally()
        found = tally.first or f"{logp} at {np.round(q, 6).tolist()}, its gradient {gradient.tolist()}"
        raise DataError(
            f"the log density is {found}; both must be finite where a chain begins: begin elsewhere, or mend "
            "the density"
        ) from tally.error
    diagonal = len(A) != d
    z = (q - mu) / A[0] if diagonal else np.linalg.solve(A, q - mu)
    gz = A[0] * gradient if diagonal else A.T @ gradient
    size = (kind.size or 1.0) if size is None else size
    limit = kind.limit if limit is None else limit
    if not is_tuning(sampler, size, limit):
        raise DataError(
            f"the step size must be above 0 and limit from 1 to {_MOST_LIMIT[sampler == 'nuts']}, got {size} "
            f"and {limit}"
        )
    tuning = np.array([size, limit], dtype=np.float64)
    return State(sampler, z, gz, logp, mu, A, tuning, draw)


def is_tuning(sampler, size, limit):
    """Whether a sampler can move by steps of that size, and within that limit."""
    return bool(0 < size < np.inf and 1 <= limit <= _MOST_LIMIT[sampler == "nuts"])


def advance(model, state, n, *, seed, shard=0, chain=0, averaging=None):
    """Make n draws; returns the new state and the `Draws`. This is the pure step of every sampler.

    (seed, shard, chain) name the random numbers. `averaging` (7,) is the state of dual averaging: with it the
    step size is adapted, and it changes in place.
    """
    (made,) = advance_all(model, [state], n, seed=seed, shard=shard, chains=[chain], averagings=[averaging])
    return made


def advance_all(model, states, n, *, seed, shard=0, chains, averagings=None):
    """Make n draws of several chains of one sampler; returns (State, Draws) of each.

    Bits are those of `advance`, but for models `in_one_group`. The chains go in step where the model's
    densities can be evaluated together.
    `averagings` are all None, or none of them.
    """
    if n < 1:
        raise DataError(f"n must be at least 1, got {n}")
    averagings = [None] * len(states) if averagings is None else averagings
    names = [stream(seed, shard, chain, s.draw) for chain, s in zip(chains, states, strict=True)]
    if len(states) > 1 and in_step(model, states[0].sampler):
        made = _run_together(model, states, averagings, names, n)
    else:
        made = [_run(model, *one, n) for one in zip(states, averagings, names, strict=True)]
    return [_result(state, *one) for state, one in zip(states, made, strict=True)]


def in_step(model, sampler):
    """Whether several chains of that sampler share the readings of the model's data."""
    return model.together is not None and hasattr(SAMPLERS[sampler].kernel, "go_on")


def _result(state, made, tuning, tally):
    """The state after some draws, and these."""
    draws, gradients, statistics, z, gz, logp = made
    n = len(draws)
    figures = {name: statistics[:, i + 1] for i, name in enumerate(STATISTICS)}
    figures |= tally.columns(n)
    state = replace(state, z=z, gz=gz, logp=logp, tuning=tuning, draw=state.draw + n)
    return state, Draws(draws, gradients, statistics[:, 0], figures, failure=tally.first)


def _run_together(model, states, averagings, names, n):
    """Call the compiled loop of several chains; `averagings` change in place."""
    Z, GZ, logps, MU, tuning = (
        np.stack([getattr(state, name) for state in states]) for name in ("z", "gz", "logp", "mu", "tuning")
    )
    adapt = averagings[0] is not None
    averaging = np.stack(averagings) if adapt else np.zeros((len(states), bayes_chain.N_AVERAGING))
    model.take_tally()
    results = bayes_together.run(
        address_of(model.together, TOGETHER),
        _cuts(states[0].sampler),
        Z,
        GZ,
        logps,
        MU,
        _metrics(states),
        tuning,
        averaging,
        adapt,
        np.stack(names),
        n,
        tuple(map(max, zip(*map(_scratch, states), strict=True))),
        model.data,
        model.meta,
    )
    for own, array in zip(averagings, averaging, strict=True):
        if adapt:
            own[:] = array
    model.raise_errors()
    tallies = [model.take_tally(), *(Tally() for _ in states[1:])]  # which chain's it was is not known
    return [(made, own, tally) for tally, own, *made in zip(tallies, tuning, *results, strict=True)]


def _metrics(states):
    """Metrics in one array: where one is a triangle all are, and zeros change no bit of a draw."""
    most = max(len(state.A) for state in states)
    return np.stack([state.A if len(state.A) == most else np.diag(state.A[0]) for state in states])


def _scratch(state):
    """Rows and numbers of scratch."""
    if state.sampler != "nuts":
        return _LEAST_ROWS, split_hmc.NUMBERS
    depth = int(state.tuning[1])
    return nuts.scratch_rows(depth), nuts.scratch_numbers(depth)


@cache  # what is not called is not compiled
def _step(sampler):
    """The address of a sampler's step in this process."""
    return address_of(SAMPLERS[sampler].kernel.step, STEP)


@cache
def _cuts(sampler):
    """The addresses of the parts of a step between which all chains' densities are evaluated together."""
    kernel = SAMPLERS[sampler].kernel
    return address_of(kernel.begin, BEGIN), address_of(kernel.go_on, GO_ON)


def _run(model, state, averaging, name, n):
    """Call the compiled loop of one chain; `averaging` changes in place."""
    tuning = state.tuning.copy()
    model.take_tally()
    if state.sampler == "gibbs":
        check_conjugate(model)
        made = bayes_gibbs.run(state.z, name, n, model.data, model.meta)
    else:
        made = bayes_chain.run(
            model.address,
            _step(state.sampler),
            state.z,
            state.gz,
            state.logp,
            state.mu,
            state.A,
            tuning,
            np.zeros(bayes_chain.N_AVERAGING) if averaging is None else averaging,
            averaging is not None,
            name,
            n,
            _scratch(state)[0],
            model.data,
            model.meta,
        )
    model.raise_errors()
    return made, tuning, model.take_tally()


def check_conjugate(model):
    """Refuse models other than normal linear regression with a normal prior, for Gibbs sampling."""
    normal = model.density is bayes_glm.linear
    if not normal or model.meta[bayes_priors.PRIOR] != bayes_priors.NORMAL:
        raise DataError(
            "sampler='gibbs' takes linear regression with normal noise and prior='normal', without groups, "
            "whose conditional distributions can be drawn exactly: take sampler='auto' here"
        )


def starting_point(model, *, seed, shard=0, chain=0, mode=None):
    """Draw where a chain begins, (d,); wider than the posterior where that is known.

    With a `mode` the point is normal about it, with twice its standard deviations. Else it is uniform within
    ``model.reach`` of ``model.start`` in every parameter: 2, as in Stan, but for mixtures. Where none of 100
    points has a density, as on a narrow box, points come nearer and nearer to the start. Raises a DataError
    if no point has a finite density and gradient.
    """
    d, name = model.n_params, stream(seed, shard, chain, STARTING)
    nearer = 0.5 ** (1 + np.arange(_HALVINGS * _EACH) // _EACH)
    model.take_tally()
    for parts in (np.ones(1), np.ones(_STARTS), nearer):  # of the reach; the first numbers are the same
        n = len(parts)
        if mode is None:
            steps, middle = model.reach * (2 * uniforms(name, n * d).reshape(n, d) - 1), model.start
        else:
            steps, middle = 2 * normals(name, n, d) @ mode.A.T, mode.q
        points = middle + parts[:, None] * steps
        logps, gradients = model.logp_grads(points)
        good = np.flatnonzero(np.isfinite(logps) & np.isfinite(gradients).all(axis=1))
        if len(good):
            return points[good[0]]
    tally = model.take_tally()
    instance = tally.first or f"{logps[0]} at {place_words(model.names, points[0])}"
    raise DataError(
        f"the log density or its gradient is not finite at any of {_STARTS + len(nearer)} starting points, "
        f"for instance {instance}. Mend the density, or give a start= where it is finite, and near by as well"
    ) from tally.error
