"""Chains of shards as chunks of 100 draws, and the posterior of all: on threads, on Dask, with files.

A chunk begins with a `State`, and its random numbers are named by (seed, shard, chain, draw): see
``shards.tasks`` for the consequences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from dask.base import normalize_token

from ...._version import __version__
from ....errors import StradaskError
from ....scheduler.history import History
from ....scheduler.loop import Round
from ....scheduler.threads import single_threaded_blas
from ..chains.chain import STATISTICS, Draws, State, advance, is_tuning
from ..chains.sampling import CHUNK, SamplingPlan, make_plan, sample_model
from ..combine.collect import from_sample, from_shards
from ..models.failures import COUNTS, first_failure
from ..models.model import Model
from .sources import check_alone
from .subsets import estimates, summed
from .tasks import ShardPool

_N_CHOICE = 2000  # draws of importance sampling by which "auto" chooses; not those asked for, which may grow
_NEAR = 1e-4  # relative difference of a density from that in a file: sums are rounded in several orders


@dataclass(frozen=True, eq=False)
class _Shard:
    """The density of a shard, how it is sampled, and densities of subsets of its rows; see `subsets`."""

    model: Model
    plan: SamplingPlan
    parts: Sequence = ()


@normalize_token.register(_Shard)
def _token(shard):
    return normalize_token(shard.model.identity())


@dataclass(frozen=True, eq=False)
class _Load:
    """Makes a shard where it is worked on."""

    build: Any
    settings: dict
    plan: SamplingPlan | None = None

    def __call__(self, shard):
        with single_threaded_blas():
            with_parts = getattr(self.build, "with_parts", None)
            model, parts = (self.build(), ()) if with_parts is None else with_parts()
            return _Shard(model, self.plan or make_plan(model.chained, shard=shard, **self.settings), parts)


def _names(model):
    return model.names


@dataclass(frozen=True, eq=False)
class Densities:
    """Densities that multiply to the posterior, or the one that is the posterior.

    ``builds[m]()`` makes the `Model` of shard m, wherever it is called; `with_parts`, if it has one,
    also those of `subsets`. ``variables(model)`` returns names and shapes of the columns of ``model.values``;
    ``names(model)`` names its parameters in diagnostics.
    ``local(model, points)`` draws what belongs to one shard alone, given draws (K, d) of the parameters that
    all share: it returns (K, c), and the numbers of these columns among all such. They become the last
    columns of the posterior. The local engine holds the data of `n_held` shards at a time, by default of all.
    `dealt` says that rows were dealt at random here, not by the files' author. ``rows_gap(points)`` is
    the log density of all rows less the sum over shards, (K,), which should be constant.
    `log_likelihood` is that of observations, for the `Posterior`. `derived` is a `Deterministic`, whose
    values are further columns. `judges_values` says that another library derives some of ``model.values``,
    so that chains are judged by all of them.
    """

    builds: Sequence[Callable]
    variables: Callable
    names: Callable = _names
    local: Callable | None = None
    n_held: int | None = None
    dealt: bool = False
    rows_gap: Callable | None = None
    log_likelihood: Callable | None = None
    derived: Any = None
    judges_values: bool = False


def draw_local(seed, n_jobs, model, points):
    """Draw what belongs to a shard's groups alone; and the places of its columns."""
    return model.draw_local(points, seed=seed, n_jobs=n_jobs)


def draw_posterior(densities, settings):
    """Draw from a posterior, in one piece or in shards; return it and the sampler of each shard."""
    return (_draw_whole if len(densities.builds) == 1 else _draw_shards)(densities, settings)


def _draw_whole(densities, settings):
    check_alone(getattr(densities.builds[0], "workers", ()))
    model = densities.builds[0]()
    sample = _sample_whole(model, densities, settings)
    local = None if densities.local is None else lambda points: _in_place([densities.local(model, points)])
    return from_sample(model, sample, densities, settings.seed, local), [sample.sampler]


def _sample_whole(model, densities, settings):
    """Sample on threads; with another engine or a checkpoint, in chunks."""
    choice = {"metric": settings.metric, "target": settings.target, "seed": settings.seed}
    watch = {"n_jobs": settings.n_jobs, "verbose": settings.verbose, "callback": settings.callback}
    if settings.engine == "local" and settings.checkpoint is None:
        return sample_model(model, settings.sampler, **settings.counts, **choice, **watch)
    n, n_chains = settings.n_samples * settings.n_chains, settings.n_chains
    with single_threaded_blas():
        plan = make_plan(model, settings.sampler, n=n, n_starts=n_chains, **choice)
    made = plan.sample_at_once(model, settings.n_samples, n_chains, seed=settings.seed, **watch)
    if made is not None:  # here and now, as without engine and checkpoint
        return made
    with _pool([_Load(densities.builds[0], {}, plan)], densities, settings) as pool:
        runs = _run(pool, settings, [plan.sampler, plan.metric])
    return _as_sample(runs, plan, settings.n_samples)


def _draw_shards(densities, settings):
    """Sample every shard, then combine the draws."""
    choice = {"sampler": settings.sampler, "metric": settings.metric, "target": settings.target}
    choice |= {"seed": settings.seed, "n": _N_CHOICE, "n_starts": settings.n_chains, "weighted": False}
    with _pool([_Load(build, choice) for build in densities.builds], densities, settings) as pool:
        runs = _run(pool, settings, None)
        models, has_subsets, are_costly = zip(*pool.values(_without_data, None), strict=True)
        model = models[0]
        local = None
        if densities.local is not None:
            local = lambda points: _in_place(pool.values(partial(_local, densities.local), points))  # noqa: E731
        second = _SecondRound(pool, all(has_subsets), any(are_costly))
        arrays = {name: array[:, :, : settings.n_samples] for name, array in runs.arrays.items()}
        posterior = from_shards(model, arrays, second, densities, settings, local)
    return posterior, [str(chains[0].state["sampler"]) for chains in runs.last]


def _pool(loads, densities, settings):
    ways = {"engine": settings.engine, "checkpoint": settings.checkpoint, "n_jobs": settings.n_jobs}
    workers = [getattr(build, "workers", ()) for build in densities.builds]
    return ShardPool(loads, len(loads), **ways, n_held=densities.n_held, workers=workers)


def _run(pool, settings, plan):
    """Chunks of 100 draws, the last one in full: so a run that is extended finds all of them."""
    length = min(CHUNK, settings.n_samples)
    n_chunks, n_chains = -(-settings.n_samples // length), settings.n_chains
    identity = {"version": __version__, "plan": plan, "sampler": settings.sampler, "length": length}
    identity |= {"metric": settings.metric}
    callback, on_chunk = settings.callback, None
    if callback is not None:
        on_chunk = _Watch(callback, pool.n_shards, n_chains, n_chunks, length)
    return pool.run(
        partial(_step, length, settings.n_warmup),
        n_chunks=n_chunks,
        n_chains=n_chains,
        seed=settings.seed,
        identity=identity | {"n_warmup": settings.n_warmup, "target": settings.target},
        fits=partial(_fits, length),
        verbose=settings.verbose,
        on_chunk=on_chunk,
    )


class _Watch:
    """Calls a callback after every shard, and ends the run where it says so."""

    def __init__(self, callback, n_shards, n_chains, n_chunks, length):
        self._callback, self._draws = callback, n_chains * n_chunks * length
        self._left = [n_chains * (n_chunks + 1)] * n_shards

    def __call__(self, shard):
        self._left[shard] -= 1
        if self._left[shard]:
            return
        done, total = self._left.count(0), len(self._left)
        info = Round(done, total, np.nan, np.nan, self._draws, History())
        if self._callback(info) is True and done < total:
            raise StradaskError(f"stopped after {done} of {total} shards: a part of them cannot be combined")


def _step(length, n_warmup, shard, state, key):
    """Warm up a chain, or make its next draws."""
    numbers = {"seed": key.seed, "shard": key.shard, "chain": key.chain}
    model = shard.model.chained
    if state is None:
        state, _ = shard.plan.begin(model, n_warmup, **numbers)
        return _packed(state), {}
    state, made = advance(model, _unpacked(state), length, **numbers)
    draws, logps, gradients = made.draws, made.log_densities, made.gradients
    if model is not shard.model:
        draws, logps, gradients = shard.model.reduced(draws)
    arrays = {"draws": draws, "gradients": gradients, "log_densities": logps}
    failure = np.array([made.failure] + [""] * (length - 1))
    return _packed(state), arrays | made.statistics | {"failure": failure}


def _fits(length, shard, state, arrays, key):
    """Whether a file's state and draws can be those of this chunk: compiled code reads them unchecked."""
    model, n, plan = shard.model.chained, key.chunk and length, shard.plan
    d, n_kept = model.n_params, shard.model.n_params
    forms = {"z": [(d,)], "gz": [(d,)], "mu": [(d,)], "A": [(1, d), (d, d)], "tuning": [(2,)], "logp": [()]}
    plain = {"sampler": plan.sampler, "draw": key.chunk * length}
    rows: dict[str, list[tuple]] = {"draws": [(n, n_kept)], "gradients": [(n, n_kept)]} if n else {}
    if n:
        rows |= {name: [(n,)] for name in ("log_densities", *STATISTICS, *COUNTS)}
    failure = arrays.get("failure", np.zeros(n, "U1"))
    arrays = {name: array for name, array in arrays.items() if name != "failure"}
    return (
        failure.shape == (n,)
        and failure.dtype.kind == "U"
        and state.keys() == forms.keys() | plain.keys()
        and all(np.array_equal(state[name], value) for name, value in plain.items())
        and _are_floats(state, forms)
        and is_tuning(plan.sampler, *state["tuning"])
        and arrays.keys() == rows.keys()
        and _are_floats(arrays, rows)
        and all(np.isfinite(part).all() for part in (*(state[name] for name in forms), *arrays.values()))
        and _is_there(model, _unpacked(state))
    )


def _is_there(model, state):
    """Whether a state has the density and gradient of its place: a chain elsewhere would be stuck."""
    A = state.A
    diagonal = len(A) != model.n_params
    with np.errstate(all="ignore"):
        logp, gradient = model.logp_grad(state.mu + (A[0] * state.z if diagonal else A @ state.z))
        gz = A[0] * gradient if diagonal else A.T @ gradient
        here = np.append(gz, logp)
        far = np.abs(here - np.append(state.gz, state.logp)).max()
        return bool(np.isfinite(here).all() and far <= _NEAR * (1 + np.abs(here).max()))


def _are_floats(arrays, shapes):
    return all(arrays[name].dtype == np.float64 and arrays[name].shape in shapes[name] for name in shapes)


def _packed(state):
    return {field.name: np.asarray(getattr(state, field.name)) for field in fields(State)}


def _unpacked(state):
    # What travelled may be read-only, and what was read may lie by columns.
    arrays = {name: np.array(array, order="C") for name, array in state.items()}
    plain = {name: arrays[name].item() for name in ("sampler", "logp", "draw")}
    return State(**arrays | plain)


def _without_data(shard, points):
    """The model without its data, whether there are densities of subsets, and `Model.is_costly`."""
    model = shard.model
    return model.without_data(), len(shard.parts) > 0, model.is_costly


class _SecondRound:
    """Sums over the shards of their log densities, and a count of the errors that these raised.

    Of tall shards by subsets of rows, where these serve: `noise` is then their standard error. See
    `Model.is_costly`, too.
    """

    def __init__(self, pool, has_subsets, is_costly):
        self._pool, self._has_subsets, self.is_costly = pool, has_subsets, is_costly
        self.failed, self.failure, self.noise = 0, "", 0.0

    def __call__(self, points):
        found = self._by_subsets(points)
        return self._summed(_log_density, points) if found is None else found[0]

    def value_and_grad(self, points):
        """The same, and the sums of the gradients (K, d)."""
        return self._by_subsets(points) or self._both(points)

    def _both(self, points):
        both = self._summed(_log_density_and_gradient, points)
        return both[:, 0], both[:, 1:]

    def _by_subsets(self, points):
        """Log densities and gradients from few rows; None where they do not serve."""
        found = summed(self._both, self._estimate, points) if self._has_subsets else None
        if found is None:
            return None
        values, gradients, noise = found
        self.noise = max(self.noise, noise)
        return values, gradients

    def _estimate(self, places):
        both = self._summed(_estimates, places)
        return both[:, 0], both[:, 2:], both[:, 1]

    def _summed(self, function, points):
        total = 0.0
        for values, failed, failure in self._pool.values(function, points):
            total = total + values
            self.failed += failed
            self.failure = self.failure or failure
        return total


def _log_density(shard, points):
    return _counted(shard.model, shard.model.logp_batch, points)


def _log_density_and_gradient(shard, points):
    return _counted(shard.model, lambda at: np.column_stack(shard.model.logp_grads(at)), points)


def _estimates(shard, places):
    values, gradients, squares = estimates(shard.model, shard.parts, places)
    return np.column_stack([values, squares, gradients]), 0, ""


def _counted(model, function, points):
    model.take_tally()
    values = function(points)
    tally = model.take_tally()
    return values, tally.failed, tally.first


def _local(local, shard, points):
    return local(shard.model, points)


def _in_place(parts):
    """Put the columns of all shards in order."""
    columns = np.concatenate([numbers for _, numbers in parts])
    return np.concatenate([values for values, _ in parts], axis=1)[:, np.argsort(columns)]


def _as_sample(runs, plan, n_samples):
    chains = []
    for chain in range(len(runs.last[0])):
        arrays = {name: array[0, chain, :n_samples] for name, array in runs.arrays.items()}
        figures = {name: arrays[name] for name in (*STATISTICS, *COUNTS)}
        draws, gradients, log_densities = (arrays[name] for name in ("draws", "gradients", "log_densities"))
        failure = first_failure(arrays["failure"])
        chains.append(Draws(draws, gradients, log_densities, figures, failure=failure))
    states = [_unpacked(chunk.state) for chunk in runs.last[0]]
    return plan.sample(chains, states, History())
