"""Chains of shards as chunks of 100 draws, and the posterior of all: on threads, on Dask, with files.

What a chunk has to know is a `State`, its random numbers are named by (seed, shard, chain, draw): see
``shard_tasks`` for what follows from that.
"""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from dask.base import normalize_token

from ...._version import __version__
from ....errors import DataError, StradaskError, shortened
from ....scheduler.history import History
from ....scheduler.loop import Round
from ....scheduler.place import check_engine
from ....scheduler.threads import single_threaded_blas
from ..chains.chain import STATISTICS, Draws, State, advance, is_tuning
from ..chains.sampling import CHUNK, Plan, check_settings, make_plan, sample_model
from ..combine.collect import from_sample, from_shards
from ..models.failures import COUNTS, first_failure
from ..models.model import Model
from .tasks import ShardPool

_N_CHOICE = 2000  # draws of importance sampling by which "auto" chooses; not those asked for, which may grow
_LATER = {"failed": "f8", "failure": "U1"}  # arrays that files of version 0.1 lack: nothing was raised there
_NEAR = 1e-4  # to which part a density must be what a file says: sums are rounded in several orders


@dataclass(frozen=True, eq=False)
class _Shard:
    """The density of a shard, and how it is sampled."""

    model: Model
    plan: Plan


@normalize_token.register(_Shard)
def _token(shard):
    return normalize_token(shard.model.identity())


@dataclass(frozen=True, eq=False)
class _Load:
    """Makes a shard where it is worked on."""

    build: Any
    settings: dict
    plan: Plan | None = None

    def __call__(self, shard):
        with single_threaded_blas():
            model = self.build()
            return _Shard(model, self.plan or make_plan(model, shard=shard, **self.settings))


def draw_posterior(
    builds,
    variables,
    *,
    sampler,
    n_samples,
    n_chains,
    n_warmup,
    seed,
    combine="auto",
    n_proposals=0,
    target=None,
    engine="local",
    checkpoint=None,
    n_jobs=None,
    verbose=0,
    callback=None,
    local=None,
    n_held=None,
    names=None,
    dealt=False,
    rows_gap=None,
):
    """Draw from a posterior, in one piece or in shards.

    Parameters
    ----------
    builds : list of callables
        ``build()`` makes the `Model` of a shard, wherever it is called; one of them is the whole.
    variables : callable
        ``variables(model)`` returns names and shapes of the columns of ``model.values``.
    sampler, n_samples, n_chains, n_warmup, seed, target, n_jobs, verbose, callback
        See `sample_model`; with shards or a checkpoint `n_jobs` are threads over chains.
    combine : str, default="auto"
        See `combine.combine`.
    n_proposals : int, default=0
        See `from_shards`.
    engine, checkpoint
        See `ShardPool`.
    local : callable, optional
        ``local(model, points)`` draws what belongs to a shard alone, given draws (K, d) of the parameters
        that all share; returns (K, c), and the c numbers of these columns among all such. They become the
        last columns of the posterior.
    n_held : int, optional
        See `ShardPool`.
    names : callable, optional
        ``names(model)`` returns the names of its parameters for diagnostics; ``model.names`` by default.
    dealt : bool, default=False
        Whether rows were dealt to the shards at random, and not by whoever made their files.
    rows_gap : callable, optional
        See `from_shards`.

    Returns
    -------
    posterior : Posterior
    samplers : list of str
        The one that ran in each shard.
    """
    check_settings(sampler, n_samples, n_chains, n_warmup)
    check_engine(engine)
    counts = {"n_samples": n_samples, "n_chains": n_chains, "n_warmup": n_warmup}
    choice = {"sampler": sampler, "target": target, "seed": seed, "n_starts": n_chains}
    ways = {"engine": engine, "checkpoint": checkpoint, "n_jobs": n_jobs, "n_held": n_held}
    told = {"verbose": verbose, "callback": callback}
    shown = _names if names is None else names
    whole = len(builds) == 1
    model = builds[0]() if whole else None
    own = None if local is None else lambda points: _in_place([local(model, points)])
    if whole and engine == "local" and checkpoint is None:
        sample = sample_model(model, sampler, **counts, target=target, seed=seed, n_jobs=n_jobs, **told)
        return from_sample(model, sample, variables(model), seed, own, shown(model)), [sample.sampler]
    if whole:
        with single_threaded_blas():
            plan = make_plan(model, n=n_samples * n_chains, **choice)
        if plan.draws is not None:  # made here and now, as without engine and checkpoint
            sample = plan.sample([plan.draws], [], History())
            return from_sample(model, sample, variables(model), seed, own, shown(model)), [plan.sampler]
        loads, made = [_Load(builds[0], {}, plan)], [plan.sampler, plan.metric]
    else:
        choice |= {"n": _N_CHOICE, "weighted": False}
        loads, made = [_Load(build, choice) for build in builds], None
    identity = {"version": __version__, "plan": made, "n_warmup": n_warmup, "target": target}
    with ShardPool(loads, len(builds), **ways) as pool:
        runs = _run(pool, identity | {"sampler": sampler}, **counts, seed=seed, **told)
        if whole:
            sample = _as_sample(runs, plan, n_samples)
            return from_sample(model, sample, variables(model), seed, own, shown(model)), [plan.sampler]
        arrays = {name: array[:, :, :n_samples] for name, array in runs.arrays.items()}
        model = pool.values(_without_data, None)[0]
        settings = {"method": combine, "n_draws": n_samples * n_chains, "seed": seed}
        settings |= {"n_proposals": n_proposals, "names": shown(model), "dealt": dealt, "rows_gap": rows_gap}
        if local is not None:
            settings["local"] = lambda points: _in_place(pool.values(partial(_local, local), points))
        posterior = from_shards(model, arrays, _SecondRound(pool), variables(model), **settings)
    return posterior, [str(chains[0].state["sampler"]) for chains in runs.last]


def _names(model):
    return model.names


def _run(pool, identity, *, n_samples, n_chains, n_warmup, seed, verbose, callback):
    """Chunks of 100 draws, the last one in full: so a run that is extended finds all of them."""
    length = min(CHUNK, n_samples)
    n_chunks = -(-n_samples // length)
    return pool.run(
        partial(_step, length, n_warmup),
        n_chunks=n_chunks,
        n_chains=n_chains,
        seed=seed,
        identity=identity | {"length": length},
        fits=partial(_fits, length),
        optional=_LATER,
        verbose=verbose,
        on_chunk=None if callback is None else _Watch(callback, pool.n_shards, n_chains, n_chunks, length),
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
    if state is None:
        state, _ = shard.plan.begin(shard.model, n_warmup, **numbers)
        return _packed(state), {}
    state, made = advance(shard.model, _unpacked(state), length, **numbers)
    arrays = {"draws": made.draws, "gradients": made.gradients, "log_densities": made.log_densities}
    failure = np.array([made.failure] + [""] * (length - 1))
    return _packed(state), arrays | made.statistics | {"failure": failure}


def _fits(length, shard, state, arrays, key):
    """Whether a file's state and draws can be those of this chunk: compiled code reads them unchecked."""
    d, n, plan = shard.model.n_params, key.chunk and length, shard.plan
    forms = {"z": [(d,)], "gz": [(d,)], "mu": [(d,)], "A": [(1, d), (d, d)], "tuning": [(2,)], "logp": [()]}
    plain = {"sampler": plan.sampler, "draw": key.chunk * length}
    rows: dict[str, list[tuple]] = {"draws": [(n, d)], "gradients": [(n, d)]} if n else {}
    if n:
        rows |= {name: [(n,)] for name in ("log_densities", *STATISTICS, *COUNTS)}
        arrays = {name: np.zeros(n, kind) for name, kind in _LATER.items()} | arrays
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
        and _is_there(shard.model, _unpacked(state))
    )


def _is_there(model, state):
    """Whether density and gradient at a state's place are what it says: a chain elsewhere would be stuck."""
    A = state.A
    diagonal = len(A) != model.n_params
    with np.errstate(all="ignore"):
        logp, gradient = model.logp_grad(state.mu + (A[0] * state.z if diagonal else A @ state.z))
        gz = A[0] * gradient if diagonal else A.T @ gradient
        found = np.append(gz, logp)
        far = np.abs(found - np.append(state.gz, state.logp)).max()
        return bool(np.isfinite(found).all() and far <= _NEAR * (1 + np.abs(found).max()))


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
    return shard.model.without_data()


class _SecondRound:
    """Sums over the shards of their log densities, and what these raised."""

    def __init__(self, pool):
        self._pool, self.failed, self.failure = pool, 0, ""

    def __call__(self, points):
        found = self._pool.values(_log_density, points)
        total = np.zeros(len(points))
        for values, failed, failure in found:
            total += values
            self.failed += failed
            self.failure = self.failure or failure
        return total


def _log_density(shard, points):
    shard.model.take_tally()
    values = shard.model.logp_batch(points)
    tally = shard.model.take_tally()
    return values, tally.failed, tally.first


def _local(local, shard, points):
    return local(shard.model, points)


def _in_place(parts):
    """Columns of all shards, each in its place."""
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


def check_checkpoint(checkpoint, random_state):
    """Refuse a checkpoint without a seed, whose files would never be found again."""
    if checkpoint is not None and (
        isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer))
    ):
        raise DataError(
            f"checkpoint={shortened(str(checkpoint), 200)} needs random_state to be an integer, by which a "
            f"later run finds the files; got {shortened(random_state)}"
        )
