"""All chains of one density on one machine: warm-up, draws, progress, and the choice of a sampler.

``sampler="auto"`` takes the cheapest way that its own figures allow. It looks for the mode and the
Hessian there. If k-hat of importance sampling about it is below 0.5 and the weights are worth more than
three quarters of the draws, these are the draws. Else, if k-hat is below 0.3 (0.7 of a concave density, or of
a shard) and split HMC accepts 0.6 or more, it is split HMC, one gradient a draw. Else, and where there is no
definite Hessian, NUTS. Of several modes the proposal is a mixture of the normal densities at all, by the same
limits, if no more are expected by how often searches found each; else populations are annealed from Student
t's about all ("smc"). Shards take NUTS then: chains begin in each of the modes in turn, so that R-hat tells
whether they change places.
A density of up to 50 parameters that ends at a hard wall, that jumps, or that is constant as far as can be
seen, is sampled by slices.
"""

import time
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ....errors import DataError, StradaskError, shortened
from ....kernels.bayes.address import ADDRESS, INTEGERS, VECTOR, address_of
from ....kernels.bayes.densities import logistic as bayes_logistic
from ....kernels.bayes.team import BLOCKS, LINE, ROUND
from ....scheduler.history import History
from ....scheduler.loop import iterate
from ....scheduler.parameters import check_count
from ....scheduler.threads import effective_n_jobs, run_tasks
from ..models.model import aligned
from ..posterior.diagnostics import MOST_DIVERGENT
from ..posterior.psis import importance_ess, khat_limit
from .adaptation import METRICS, warm_up_all
from .chain import (
    SAMPLERS,
    WARM_UP,
    Draws,
    State,
    advance,
    advance_all,
    check_conjugate,
    in_step,
    init,
    starting_point,
)
from .laplace import Mode, find_mode, laplace_draws, mixture_draws
from .modes import NOTHING_FOUND, FoundModes, find_further, find_modes
from .tempering import Evidence, run_populations
from .walls import MOST_PARAMETERS, jumps, wall_about, wall_near

K_HAT_WEIGHTS, PART_WEIGHTS = 0.5, 0.75  # for importance sampling alone
K_HAT_SPLIT, ACCEPTANCE_SPLIT = 0.7, 0.6  # for split HMC
K_HAT_SPLIT_ALONE = 0.3  # the same of a density in one piece that is not known to be concave
_AROUND = 2.0  # standard deviations about the mode, where jumps are looked for
_TRIED = 2000  # draws that tell whether the density is wider than at its mode
_TRIAL = 200  # draws that show the acceptance of split HMC, and whether a step that was found diverges
CHUNK = 100  # draws of a chain between two looks at the callback
_DIFFERENT = "searches from scattered points end in different modes"
_LEVEL = "the log density is constant about the start: gradients do not lead"
_WALL = "the density ends at a wall, which gradients do not see"
_JUMPS = "the density jumps, which gradients do not see"
_PLACES = 4  # that tell whether a density is constant, or jumps
_PATIENCE = 0.1  # seconds between two looks at Ctrl-C, where there is no callback
SAMPLER_NAMES = ("auto", "laplace", "smc", *SAMPLERS)
SEARCH_MODES = ("laplace", "split_hmc", "smc")  # which search for modes, and move in their coordinates
TUNED_BY_ACCEPTANCE = ("nuts", "hmc")  # whose steps an acceptance shortens where draws diverge
_SHORT_STEPS = 0.95  # that acceptance
_CLOSED = -1  # a round that never comes: helpers end
_LEAST_BLOCKS = 3  # a thread, or it would wait too long for the last


@dataclass(frozen=True, eq=False)
class SamplingPlan:
    """How a density is sampled, and why.

    `mode` is that of the metric or the sampler, if it needs one; `target` and `limit` are those of
    `warm_up_all`. `k_hat` is that of importance sampling about the mode, NaN where it was not tried; `draws`
    are the draws of importance sampling where it is the sampler ("laplace"). `found` are the modes.
    """

    sampler: str
    metric: str
    mode: Mode | None
    target: float | None
    limit: float | None
    k_hat: float
    reason: str
    draws: Draws | None = None
    found: FoundModes = NOTHING_FOUND

    def begin(self, model, n_warmup, *, chain=0, **numbers):
        """Warm up a chain, known by its numbers (seed, shard, chain); returns its state and those draws.

        Where draws diverge in the second half, and not only by the steps that were tried there but in some
        further draws as well, once more from the start, with an acceptance of 0.95. Its metric, if it was
        "adapted", is then "diagonal": a covariance describes no ridge that bends, and its long steps along
        one end diverge where that turns.
        """
        return self.begin_all(model, n_warmup, chains=[chain], **numbers)[0]

    def begin_all(self, model, n_warmup, *, chains, seed, shard=0):
        """Warm up several chains; returns a list of pairs as `begin`."""
        numbers = {"seed": seed, "shard": shard}
        modes = self.found.modes if self.mode is None and len(self.found.modes) > 1 else (self.mode,)
        points = [
            starting_point(model, mode=modes[chain % len(modes)], chain=chain, **numbers) for chain in chains
        ]
        settings = {"metric": self.metric, "mode": self.mode, "limit": self.limit, "n": n_warmup, **numbers}
        made = warm_up_all(model, points, self.sampler, target=self.target, chains=chains, **settings)
        if self.sampler not in TUNED_BY_ACCEPTANCE or (self.target or 0) >= _SHORT_STEPS:
            return made
        again = []
        for i, (state, draws) in enumerate(made):
            n = len(draws.draws)
            if _diverges(draws, n // 2):
                further = replace(state, draw=WARM_UP + n)
                further, trial = advance(model, further, _TRIAL, chain=chains[i], **numbers)
                made[i] = replace(further, draw=0), draws
                again += [i] if _diverges(trial) else []
        if not again:
            return made
        settings |= {"target": _SHORT_STEPS, "chains": [chains[i] for i in again]}
        settings["metric"] = "diagonal" if self.metric == "adapted" else self.metric
        mended = warm_up_all(model, [points[i] for i in again], self.sampler, **settings)
        for i, one in zip(again, mended, strict=True):
            made[i] = one
        return made

    def sample(self, chains, states, history, stopped="", evidence=None):
        """Make the `Sample` of these chains."""
        reason = self.reason + stopped
        figures = self.mode, self.k_hat, reason, history, self.found, evidence
        return Sample(chains, self.sampler, states, *figures)

    def sample_at_once(self, model, n_samples, n_chains, **options):
        """Make the `Sample` where it has no chains: of importance sampling, or of populations; else None."""
        if self.draws is not None:
            return self.sample([self.draws], [], History())
        if self.sampler != "smc":
            return None
        made, history = run_populations(
            model, self.found.modes, n_samples, n_chains, target=self.target, **options
        )
        return self.sample(made.chains, [], history, evidence=made.evidence)


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws of one density: one `Draws` for each chain, or one of importance sampling, which has no states.

    `sampler` is the one that ran, `reason` says why, and whether the run was stopped; for the rest see
    `SamplingPlan`.
    """

    chains: list[Draws]
    sampler: str
    states: list[State]
    mode: Mode | None
    k_hat: float
    reason: str
    history: History
    found: FoundModes = NOTHING_FOUND
    evidence: Evidence | None = None

    def stacked(self, name="draws"):
        """Draws, gradients or log_densities of all chains, as an array (chains, draws, ...)."""
        return np.stack([getattr(chain, name) for chain in self.chains])

    def statistic(self, name):
        """A statistic of all chains, as an array (chains, draws)."""
        return np.stack([chain.statistics[name] for chain in self.chains])


def sample_model(
    model, sampler="auto", *, n_samples=1000, n_chains=4, n_warmup=1000, seed=0, shard=0, n_jobs=None,
    verbose=0, callback=None, **choice,
):  # fmt: skip
    """Draw from one density; see `sample` for sampler, counts, n_jobs, verbose and callback.

    `choice` are metric, target, limit and weighted of `make_plan`.

    Metric "auto" is "laplace" for regressions, and where k-hat of importance sampling about the mode is below
    0.7; else "adapted". `target` and `limit` are those of `warm_up_all`. With ``weighted=False`` "auto" does
    not take importance sampling, whose draws have weights and no gradients. Raises a DataError if the sampler
    needs a mode and there is none.

    >>> import numpy as np
    >>> from stradask.algorithms.bayes.models.model import regression
    >>> from stradask.algorithms.bayes.chains.sampling import sample_model
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> sample = sample_model(regression("normal", X, X @ [1.0, -1.0] + 0.1), sampler="nuts", n_chains=2)
    >>> sample.stacked().shape, sample.stacked()[..., :2].mean(axis=(0, 1)).round(1)
    ((2, 1000, 3), array([ 1., -1.]))
    """
    check_settings(sampler, n_samples, n_chains, n_warmup)
    numbers = {"seed": seed, "shard": shard}
    plan = make_plan(model, sampler, n=n_samples * n_chains, n_starts=n_chains, **numbers, **choice)
    watch = {"verbose": verbose, "callback": callback}
    made = plan.sample_at_once(model, n_samples, n_chains, seed=seed, n_jobs=n_jobs, **watch)
    if made is not None:
        return made
    chains, states, history, end = _run(model, plan, n_warmup, n_samples, n_chains, numbers, n_jobs, watch)
    return plan.sample(chains, states, history, "" if end == "finished" else f"; stopped: {end}")


def make_plan(
    model,
    sampler="auto",
    *,
    n,
    n_starts=4,
    metric="auto",
    target=None,
    limit=None,
    seed=0,
    shard=0,
    weighted=True,
):
    """Choose sampler and metric, and find the mode where they need it; see `sample_model`.

    n is the number of draws of importance sampling, by which "auto" chooses. `n_starts` pairs of scattered
    points are the starts of searches for other modes.
    """
    check_metric(metric)
    if target is not None and not 0 < target < 1:
        raise DataError(f"target must lie between 0 and 1, got {target}")
    if sampler == "gibbs":
        check_conjugate(model)
        metric = "diagonal"
    numbers = {"seed": seed, "shard": shard}
    mode, draws, k_hat, reason = None, None, np.nan, "asked for"
    found, chosen = NOTHING_FOUND, sampler == "auto"
    searched = sampler in ("auto", *SEARCH_MODES)
    if searched or metric == "laplace" or (metric == "auto" and model.regular):
        mode = find_mode(model)
    if mode is None and (sampler in ("laplace", "split_hmc") or metric == "laplace"):
        raise DataError(
            f"sampler={shortened(sampler)}, metric={shortened(metric)} need a mode with a definite Hessian, "
            "and none is to be found: give the parameters proper priors, or take sampler='nuts' with "
            "metric='adapted'"
        )
    if mode is not None and searched:
        found = find_modes(model, mode, n_starts, **numbers)
        mode = found.modes[0]
    if sampler == "auto":
        sampler, mode, draws, k_hat, reason = _choose(model, mode, n, found, numbers, weighted)
    if sampler in ("nuts", "split_hmc", "smc") and len(found.modes) == 1:  # which cost more than these rays
        found = find_further(model, found, n, n_starts, **numbers)
        if chosen and len(found.modes) > 1:
            sampler, mode, draws, k_hat, reason = _choose(model, found.modes[0], n, found, numbers, weighted)
    if chosen:
        target = target if sampler in ("nuts", "smc") else None
    elif sampler == "laplace":
        draws, k_hat = laplace_draws(model, mode, n, **numbers)
    if metric == "auto":
        metric = "laplace" if mode is not None and not k_hat >= K_HAT_SPLIT else "adapted"
    if (metric != "laplace" and sampler not in ("laplace", "split_hmc")) or sampler == "smc":
        mode = None
    draws = draws if sampler == "laplace" else None
    if sampler == "split_hmc" and np.isnan(k_hat) and weighted:  # of a chain that may never leave the mode
        _, k_hat = laplace_draws(model, mode, _TRIED, **numbers)
    return SamplingPlan(sampler, metric, mode, target, limit, k_hat, reason, draws, found)


def _blind_to(model, numbers):
    """What gradients do not see where chains would begin, in words; "" of a density that they describe."""
    points = np.stack([starting_point(model, chain=chain, **numbers) for chain in range(_PLACES)])
    if not model.logp_grads(points)[1].any():  # as of a uniform density
        return _LEVEL
    if model.concave or model.regular or model.n_params > MOST_PARAMETERS:
        return ""
    return _WALL if wall_near(model) else _JUMPS * jumps(model, points, np.full(model.n_params, model.reach))


def _diverges(draws, first=0):
    """Whether draws have, from the first on that counts, divergences beyond the limit of the diagnostics."""
    return draws.statistics["divergent"][first:].mean() > MOST_DIVERGENT


def check_metric(metric):
    """Refuse a metric that is unknown."""
    if not isinstance(metric, str) or metric not in ("auto", *METRICS):
        raise DataError(f"metric must be one of auto, {', '.join(METRICS)}, got {shortened(metric)}")


def check_settings(sampler, n_samples, n_chains, n_warmup):
    """Refuse a sampler that is unknown, and counts that are no integers of at least 1."""
    if not isinstance(sampler, str) or sampler not in SAMPLER_NAMES:
        raise DataError(f"sampler must be one of {', '.join(SAMPLER_NAMES)}, got {shortened(sampler)}")
    for name, value in (("n_samples", n_samples), ("n_chains", n_chains), ("n_warmup", n_warmup)):
        check_count(name, value)
        if value >= 2**63:
            raise DataError(f"{name} must lie within 64 bits")


def _choose(model, mode, n, found, numbers, weighted):
    """Choose for "auto": sampler, mode if it is the only one, draws about it or all, k-hat, the reason."""
    if mode is None:
        blind = _blind_to(model, numbers)
        reason = blind or "no mode with a definite Hessian was found"
        return "slice" if blind else "nuts", None, None, np.nan, reason
    walled = not (model.concave or model.regular) and model.n_params <= MOST_PARAMETERS
    several = len(found.modes) > 1
    widths = np.sqrt((mode.A**2).sum(axis=1))
    if several and not (weighted and found.complete):
        if walled and jumps(model, mode.q[None], _AROUND * widths):
            return "slice", None, None, np.nan, _JUMPS
        more = "; there seem to be more" * weighted
        return "smc" if weighted else "nuts", None, None, np.nan, f"{_DIFFERENT}{more}"
    make, about = (mixture_draws, found.modes) if several else (laplace_draws, mode)
    draws, k_hat = make(model, about, n, **numbers)
    part = importance_ess(draws.log_weights) / n
    place = f"all {len(found.modes)} modes" if several else "the mode"
    reason = f"importance sampling about {place} has k-hat {k_hat:.2f} and is worth {part:.0%} of its draws"
    if weighted and k_hat < min(K_HAT_WEIGHTS, khat_limit(max(n, 2))) and part > PART_WEIGHTS:
        return "laplace", None if several else mode, draws, k_hat, reason
    if walled and jumps(model, mode.q[None], _AROUND * widths):
        return "slice", None, None, k_hat, f"{_JUMPS}; {reason}"
    if several:
        return "smc", None, None, k_hat, f"{_DIFFERENT}; {reason}"
    if walled and wall_about(model, mode, draws):
        return "slice", None, None, k_hat, f"{_WALL}; {reason}"
    # Of tails that are heavier than normal ones its chains see little, and agree on it.
    if not k_hat < (K_HAT_SPLIT if model.concave or not weighted else K_HAT_SPLIT_ALONE):
        return "nuts", mode, None, k_hat, reason
    state = init(model, mode.q, "split_hmc", mu=mode.q, A=mode.A, draw=WARM_UP)
    _, trial = advance(model, state, _TRIAL, **numbers)
    accepted = trial.statistics["acceptance"].mean()
    sampler = "split_hmc" if accepted >= ACCEPTANCE_SPLIT else "nuts"
    return sampler, mode, None, k_hat, f"{reason}; split HMC accepts {accepted:.2f}"


def _run(model, plan, n_warmup, n_samples, n_chains, numbers, n_jobs, watch):
    """Warm up all chains in the first round, then draw in rounds of a chunk.

    Without a callback or a progress bar, a chunk is as long as Ctrl-C may wait, by the time that the warm-up
    took. Where chains share readings of the data, threads share these or have as many chains as there are for
    each; else a thread has one at a time.
    """
    n_jobs, history = effective_n_jobs(n_jobs), History()
    team = team_for(model, n_jobs) if n_chains > 1 and in_step(model, plan.sampler) else None
    model = model if team is None else team.model
    n_groups = min(n_jobs, n_chains) if in_step(model, plan.sampler) else n_chains
    n_groups = n_groups if team is None and not model.in_one_group else 1
    groups = [group.tolist() for group in np.array_split(np.arange(n_chains), n_groups)]
    states: list = [None] * n_chains
    parts: list[list[Draws]] = [[] for _ in range(n_chains)]
    length, began, watched = CHUNK, time.perf_counter(), watch["callback"] is not None or watch["verbose"]

    def begin(group):
        return plan.begin_all(model, n_warmup, chains=group, **numbers)

    def go_on(group):
        own = [states[chain] for chain in group]
        return advance_all(model, own, min(length, n_samples - own[0].draw), chains=group, **numbers)

    def step(r):
        nonlocal length
        work = begin if r == 0 else go_on
        if team is None:
            results_of_groups = run_tasks([(work, (group,)) for group in groups], n_jobs)
        else:
            results_of_groups = [team.run(partial(work, groups[0]))]
        results = [one for some in results_of_groups for one in some]
        for chain, (state, draws) in enumerate(results):
            states[chain] = state
            if r:
                parts[chain].append(draws)
        made = [draws for _, draws in results]
        if not (r or watched):
            length = max(CHUNK, int(_PATIENCE * len(made[0].draws) / (time.perf_counter() - began)))
        return {
            "objective": float(np.mean([draws.log_densities.mean() for draws in made])),
            "updates": sum(len(draws.draws) for draws in made),
            "done": "finished" if states[0].draw == n_samples else False,
        }

    def came_to():
        made = states[0].draw
        kept = "these are kept" if made else "nothing is kept"
        return f"{made} of {n_samples} draws of each of {n_chains} chains; {kept}"

    shown = {"label": plan.sampler, "unit": "draw", "came_to": came_to, **watch}
    _, end = iterate(step, 1 + -(-n_samples // CHUNK), history=history, **shown)
    if not parts[0]:
        kind = StradaskError if end == "callback" else KeyboardInterrupt
        raise kind("stopped before the first draw")
    return [Draws.join(some) for some in parts], states, history, end


class Team:
    """Threads that share each evaluation of several chains: for a logistic regression of many rows.

    With a thread for some of the chains, each thread reads all rows for its own, and waits for the memory;
    together they read them once for all chains. See ``kernels.bayes.team``. Each thread takes about a 200th
    of the memory of the rows. `model` is evaluated by the team while it runs, and else by its caller, always
    with the same bits.
    """

    def __init__(self, model, n_threads):
        n_blocks, size = _sizes(model, n_threads)
        self._control = aligned(8 * LINE * (BLOCKS + n_blocks)).view(np.int64)
        self._control[ROUND] = _CLOSED
        self._floats = aligned(8 * size)
        single = model.density is bayes_logistic.logistic32
        lead = address_of(bayes_logistic.lead, bayes_logistic.LEADS[single])
        places = [self._control.ctypes.data, self._floats.ctypes.data, size, lead]
        self.model = replace(model, meta=np.append(model.meta, places))
        vars(self.model)["_team"] = self._control, self._floats  # which it has the addresses of
        self._n_threads = n_threads
        self._help = bayes_logistic.VARIANTS[model.density][2]
        self._help.compile((ADDRESS, VECTOR, INTEGERS))  # here, and not on several threads at a time

    def run(self, work):
        """Run ``work()`` on one thread, which the others help with evaluations."""
        self._control[ROUND] = 0
        self._control[BLOCKS * LINE :] = 0

        def lead():
            try:
                return work()
            finally:
                self._control[ROUND] = _CLOSED

        others = [(self._help, (who, self.model.data, self.model.meta)) for who in range(1, self._n_threads)]
        return run_tasks([lead, *others], self._n_threads)[0]


def team_for(model, n_threads):
    """Return a `Team`, or None where threads do better on their own."""
    if n_threads < 2 or model.density not in bayes_logistic.VARIANTS:
        return None
    return None if _sizes(model, 1)[0] < _LEAST_BLOCKS * n_threads else Team(model, n_threads)


def _sizes(model, n_threads):
    return bayes_logistic.team_sizes(n_threads, model.density is bayes_logistic.logistic32, model.meta)
