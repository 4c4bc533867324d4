"""``sampler="smc"``: populations of points, annealed from a reference about all known modes to the density.

The reference is a mixture of Student t's: two about each mode that was found, as wide as a short chain there
and as the curvature says, and a wide one over all of them. So modes of any shape and width have points at
every temperature, and temperatures have only to mend what a t gets wrong. Where no mode is known it is the
wide one alone. The shares of the modes in the draws, and the evidence, are estimates whose errors show in how
far the populations differ. See `annealing` for the equations, and ``kernels.bayes.tempering`` for the moves.

Reference: Surjanovic, Syed, Bouchard-Cote, Campbell, "Parallel tempering with a variational reference",
NeurIPS 2022.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from ....errors import DataError, StradaskError
from ....kernels.bayes.tempering import move, reference_all
from ....scheduler.history import History
from ....scheduler.loop import iterate
from ....scheduler.threads import effective_n_jobs, run_tasks, single_threaded_blas
from ..models.failures import Tally
from ..posterior.psis import importance_ess
from .adaptation import warm_up_all
from .annealing import MOST_STEPS, Annealing
from .chain import Draws, advance_all, stream

_WIDE_SHARE, _WIDE, _WIDE_FREEDOM = 0.2, 10.0, 3.0  # of the component over all, times the standard deviations
_FREEDOM = 5.0  # of the components about modes
_PILOT, _PILOT_WARM_UP, _PILOT_DEPTH = 200, 100, 6  # draws of a chain in each mode, and its deepest trees
_CURVED = 0.3  # part of a mode's share that has the curvature there
_SHRINK = 3  # draws a parameter that the curvature at a mode counts for, beside the covariance of the chain
_SWEEPS, _LAST_SWEEPS = 3, 12  # moves of every point at a temperature, and at the last
_STEPS = 8  # leapfrog steps of a trajectory, at most
_SLAB = 64  # points that are a task
_RATE = 1.0  # of the logarithm of a step size, times the error of the acceptance
_LEAST_SEEN = 10  # trajectories that tell of an acceptance
_ACCEPTANCE = 0.8  # that step sizes are adapted to
_PILOTS = 2**20  # numbers of chains from here on are those of pilots
_SEEDED, _FIRST = 2, 2**30  # with the seed, the name of numpy's stream; draws' number of the first sweep


@dataclass(frozen=True, eq=False)
class Reference:
    """A mixture of K Student t's; for the arrays see ``kernels.bayes.tempering``."""

    shares: np.ndarray
    freedom: np.ndarray
    middles: np.ndarray
    roots: np.ndarray

    def arrays(self):
        """Return logarithms of shares with constants, those of shares, and the rest, for the kernels."""
        d = self.middles.shape[1]
        inverses = np.stack([np.linalg.solve(root, np.eye(d)) for root in self.roots])
        volumes = np.log(np.diagonal(self.roots, axis1=1, axis2=2)).sum(axis=1)
        nu = self.freedom
        constants = special.gammaln((nu + d) / 2) - special.gammaln(nu / 2) - d / 2 * np.log(nu * np.pi)
        logs = np.log(self.shares)
        return logs + constants - volumes, logs, nu, self.middles, self.roots, inverses

    def draw(self, n, rng):
        """Draw n points (n, d), as many of each component as its share says."""
        places = (np.arange(n) + rng.random()) / n
        own = np.minimum(np.searchsorted(np.cumsum(self.shares), places), len(self.shares) - 1)
        z = rng.standard_normal((n, self.middles.shape[1]))
        z /= np.sqrt(rng.chisquare(self.freedom[own]) / self.freedom[own])[:, None]
        for k, (middle, root) in enumerate(zip(self.middles, self.roots, strict=True)):
            z[own == k] = middle + z[own == k] @ root.T
        return z


def reference_about(model, modes, *, seed):
    """Make the `Reference` about modes of a density, or about its start where there are none."""
    d = model.n_params
    if not modes:
        root = model.reach * np.eye(d)[None]
        return Reference(np.ones(1), np.full(1, _WIDE_FREEDOM), np.array(model.start, float)[None], root)
    about = [one for number, mode in enumerate(modes) for one in _about(model, number, mode, seed)]
    middles, covariances, masses, parts = map(np.array, zip(*about, strict=True))
    shares = parts * (0.5 * special.softmax(masses) + 0.5 / len(masses))
    shares /= shares.sum()
    centre = shares @ middles
    apart = middles - centre
    whole = np.einsum("k,kij->ij", shares, covariances) + (shares * apart.T) @ apart
    roots = np.linalg.cholesky(np.concatenate([covariances, _WIDE**2 * whole[None]]))
    return Reference(
        np.append((1 - _WIDE_SHARE) * shares, _WIDE_SHARE),
        np.append(np.full(len(shares), _FREEDOM), _WIDE_FREEDOM),
        np.concatenate([middles, centre[None]]),
        np.ascontiguousarray(roots),
    )


def _about(model, number, mode, seed):
    """Two components about a mode: middle, covariance, logarithm of the mass by these, and a part.

    One has the mean and covariance of a short chain. That may leave the mode; the other has the curvature.
    """
    numbers = {"seed": seed, "chains": [_PILOTS + number]}
    settings = {"n": _PILOT_WARM_UP, "metric": "laplace", "mode": mode, "limit": _PILOT_DEPTH}
    ((state, _),) = warm_up_all(model, [mode.q], "nuts", **settings, **numbers)
    ((_, made),) = advance_all(model, [state], _PILOT, **numbers)
    d, curvature = model.n_params, mode.A @ mode.A.T
    keep = _PILOT / (_PILOT + _SHRINK * d)
    covariance = keep * np.atleast_2d(np.cov(made.draws.T)) + (1 - keep) * curvature
    mass = made.log_densities.mean() + 0.5 * (d + np.linalg.slogdet(covariance)[1])
    yield made.draws.mean(axis=0), covariance, mass, 1 - _CURVED
    yield mode.q, curvature, mode.log_mass, _CURVED


@dataclass(frozen=True, eq=False)
class Evidence:
    """The logarithm of the evidence, ``log int p``, with its standard error, and what speaks of the run.

    `error` is by the spread of the populations' evidences, or of the logarithms of these, or by the weights:
    the largest. `ancestors` is how many of the first points the last ones are worth, `acceptance` that of the
    last trajectories.
    """

    log_evidence: float
    error: float
    n_steps: int
    ancestors: float
    acceptance: float


class Populations:
    """Populations of points of a model on their way from a reference.

    `chains` are the `Draws` of each, `evidence` the `Evidence`, once `step` has returned True. Random numbers
    are named by point and sweep: draws do not depend on the number of threads.
    """

    def __init__(self, model, reference, n, n_populations, *, seed, target=None, n_jobs=None):
        self._model, self._arrays, self._n_jobs = model, reference.arrays(), effective_n_jobs(n_jobs)
        self._seed, self._target = seed, _ACCEPTANCE if target is None else target
        self._sizes = np.full(len(reference.shares), 1.2 * model.n_params**-0.25)
        self._tally, self._failures, self._n_sweeps = np.zeros((len(self._sizes), 2)), [], 0
        self.n_evaluations = n * n_populations
        rng = np.random.Generator(np.random.Philox([seed, _SEEDED]))
        x = np.concatenate([reference.draw(n, rng) for _ in range(n_populations)])
        model.take_tally()
        log_p, gradients = model.logp_grads(x)
        self._failures.append(model.take_tally())
        log_q = np.empty(len(x))
        reference_all(x, log_q, self._arrays)
        good = np.isfinite(log_p) & np.isfinite(gradients).all(axis=1)
        if not good.any():
            raise DataError(
                f"the log density or its gradient is not finite at any of {len(x)} points about the start: "
                "mend the density, or give a start= where it is finite, and near by as well"
            )
        columns = {"x": x, "log_p": np.where(good, log_p, -np.inf), "log_q": log_q}
        columns["gradients"] = np.where(good[:, None], gradients, 0.0)
        self._annealing = Annealing(columns, n_populations, rng)

    @property
    def t(self):
        """The temperature so far: 1 at the end."""
        return self._annealing.t

    def objective(self):
        """Mean log density of all points."""
        return float(self._annealing.columns["log_p"].mean())

    def step(self):
        """Take the next temperature; returns whether it is the last."""
        return self._annealing.step(self._move)

    def _move(self, columns, t):
        for _ in range(_LAST_SWEEPS if t >= 1.0 else _SWEEPS):
            self._sweep(columns, t)
        return columns

    def _sweep(self, columns, t):
        """Move every point once, on threads, then adapt the step sizes."""
        name = stream(self._seed, 0, 0, _FIRST + self._n_sweeps)
        firsts = range(0, len(columns["x"]), _SLAB)
        results = run_tasks([(self._slab, (columns, t, name, first)) for first in firsts], self._n_jobs)
        self._model.raise_errors()
        self.n_evaluations += sum(n for n, _, _ in results)
        self._failures += [tally for _, _, tally in results]
        self._tally = np.sum([seen for _, seen, _ in results], axis=0)
        accepted, seen = self._tally.T
        with np.errstate(invalid="ignore"):
            change = np.where(seen >= _LEAST_SEEN, accepted / seen - self._target, 0.0)
        self._sizes *= np.exp(_RATE * change)
        self._n_sweeps += 1

    def _slab(self, columns, t, name, first):
        own = slice(first, first + _SLAB)
        name, tally = name.copy(), np.zeros_like(self._tally)
        name[2] += np.uint32(first)
        self._model.take_tally()
        points = tuple(columns[key][own] for key in ("x", "log_p", "log_q", "gradients"))
        settings = self._sizes, _STEPS, name, self._arrays, tally
        n = move(self._model.address, t, points, *settings, self._model.data, self._model.meta)
        return n, tally, self._model.take_tally()

    @property
    def chains(self):
        """Draws of each population; points with an ancestor in common lie one after the other.

        So the autocorrelations of the draws tell how many of them are independent.
        """
        made, counted = [], self._counted()
        for own in self._annealing.populations:
            order = own.start + np.argsort(self._annealing.columns["ancestor"][own], kind="stable")
            x, gradients, log_p = (
                self._annealing.columns[name][order] for name in ("x", "gradients", "log_p")
            )
            made.append(Draws(x, gradients, log_p, counted.columns(len(x)), failure=counted.first))
            counted = Tally()
        return made

    def _counted(self):
        first = next((tally.first for tally in self._failures if tally.first), "")
        undefined, failed = (
            sum(getattr(one, name) for one in self._failures) for name in ("undefined", "failed")
        )
        return Tally(undefined, failed, first)

    @property
    def evidence(self):
        """The `Evidence`."""
        logs = self._annealing.log_evidence
        log_evidence = special.logsumexp(logs) - np.log(len(logs))
        relative = np.exp(logs - log_evidence)
        with np.errstate(over="ignore"):  # where one evidence is nearly the sum, theirs come to 1 at most
            between = max(relative.var(ddof=1), logs.var(ddof=1)) if len(logs) > 1 else 0.0
        error = np.sqrt(max(between, self._annealing.variance.mean()) / len(logs))
        _, counts = np.unique(self._annealing.columns["ancestor"], return_counts=True)
        ancestors = importance_ess(np.log(counts / counts.sum()))
        accepted, seen = self._tally.sum(axis=0)
        acceptance = float(accepted / max(seen, 1.0))
        return Evidence(float(log_evidence), float(error), self._annealing.n_steps, ancestors, acceptance)


def run_populations(
    model, modes, n, n_populations, *, seed, target=None, n_jobs=None, verbose=0, callback=None
):
    """Anneal populations of n points from a reference about `modes`; returns `Populations` and the history.

    Raises a StradaskError, or KeyboardInterrupt, where the run is stopped: points on their way are no draws.
    """
    history = History()
    with single_threaded_blas():
        reference = reference_about(model, modes, seed=seed)
        populations = Populations(model, reference, n, n_populations, seed=seed, target=target, n_jobs=n_jobs)

        def step(r):
            before = populations.n_evaluations
            done = populations.step()
            return {
                "objective": populations.objective(),
                "updates": populations.n_evaluations - before,
                "done": "finished" if done else False,
                "shown": {"temperature": populations.t},
            }

        def came_to():
            return f"t = {populations.t:.3g} of 1; nothing is kept"

        options = {"label": "smc", "unit": "evaluation", "verbose": verbose, "callback": callback}
        _, end = iterate(step, MOST_STEPS, history=history, came_to=came_to, **options)
    if populations.t < 1.0:
        kind = StradaskError if end == "callback" else KeyboardInterrupt
        raise kind(f"stopped at t = {populations.t:.3g}: only at 1 the points are draws of the posterior")
    return populations, history
