"""Schedules: a Lasso and a group lasso by parallel descent under four of them.

Objective against updates and against seconds, for U = 1, 8, 32 and 128 updates in flight, on independent
columns, on strongly correlated ones, and on groups of columns in correlated clusters, on this process and on
two worker processes. All U blocks of a round are stepped from one residual, so that what is measured against
updates is the same on every machine and wherever it runs. There are no peers here: the schedules are compared
with one another, and with the working set of the estimator that solves the same problem (``own``).
"""

import time
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...errors import DataError
from ...scheduler import DynamicSchedule, StaticSchedule, run
from ..engines import engines_of
from ..gaps import lasso_gap
from ..pages.strads import LEAST, POLICIES, RHO, TARGETS
from ..pages.strads import page as page  # as every family has both
from ..pages.strads import table as table
from ..run import about_run
from .group_blocks import GroupBlocks, least_seconds, make_groups

SIZES = (1, 8, 32, 128)
N_SHARDS = 2  # everywhere, so that sums are taken in one order
PLACES = ("local", "two processes")
# Rows, columns; columns of one group share a factor.
WHOLE, QUICK = {"n": 500, "p": 5000, "n_groups": 20}, {"n": 200, "p": 1000, "n_groups": 10}
# Rows, groups, columns of a group; groups of one cluster share factors.
WHOLE_GROUPS = {"n": 500, "n_groups": 300, "size": 5, "n_clusters": 10}
QUICK_GROUPS = {"n": 300, "n_groups": 100, "size": 5, "n_clusters": 5}
PROBLEMS = ("independent", "correlated", "groups")


@dataclass(frozen=True)
class Lasso:
    """A problem with its minimum: columns of mean 0 and variance 1, a target of mean 0.

    `strength` is lambda, a tenth of the least that makes all coefficients zero; `optimum` the least
    objective, by scikit-learn at a tight tolerance, `scale` that at zero; `limit` is ``p / lambda_max(X^T
    X)`` for columns of norm 1: about how many updates may be in flight at random.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    strength: float
    optimum: float
    scale: float
    limit: float

    def program(self, n_shards):
        """Return the program: coefficients are groups of one."""
        return GroupBlocks(self.X, self.y, self.strength, 1, n_shards=n_shards)

    def conflicts(self, rho):
        """Return a function of two lists of columns: which correlate by rho or more."""
        columns = self.X.T / np.sqrt(len(self.y))
        return lambda left, right: np.abs(columns[left] @ columns[right].T) >= rho

    def own_solvers(self):
        """Return the estimator by its working set and by compiled rounds: functions of the tolerance."""
        from ...algorithms.linear.lasso import Lasso as Estimator

        def fitted(tol, **options):
            model = Estimator(self.strength / len(self.y), fit_intercept=False, tol=tol, **options)
            return model.fit(self.X, self.y).coef_

        drawn = {"schedule": "dynamic", "max_iter": 100_000, "random_state": 0}
        return {"Lasso": fitted, "Lasso(schedule='dynamic')": partial(fitted, **drawn)}

    def gap(self, coef):
        """Return the relative duality gap of coefficients."""
        return lasso_gap(self.X, self.y, coef, self.strength / len(self.y))[0]


def make_problem(name, *, quick, seed):
    """Return the shape and the problem of a name in `PROBLEMS`."""
    if name == "groups":
        shape = QUICK_GROUPS if quick else WHOLE_GROUPS
        problem = make_groups(name, **shape, seed=seed)
        return shape | {"p": problem.X.shape[1]}, problem
    shape = QUICK if quick else WHOLE
    return shape, make_lasso(name, **shape, seed=seed)


def make_lasso(name, *, n, p, n_groups, seed):
    """Draw a problem: ``"independent"``, or ``"correlated"``: 0.9 within groups of scattered columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    if name == "correlated":
        factors = rng.standard_normal((n, n_groups))
        X = np.sqrt(0.9) * factors[:, rng.permutation(p) % n_groups] + np.sqrt(0.1) * X
    X = np.asfortranarray((X - X.mean(axis=0)) / X.std(axis=0))
    signal = X[:, rng.choice(p, 40, replace=False)] @ rng.standard_normal(40)
    y = signal + rng.standard_normal(n) * signal.std() / 3
    y -= y.mean()
    strength = np.abs(X.T @ y).max() / 10
    from sklearn import linear_model

    best = linear_model.Lasso(strength / n, fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y).coef_
    optimum = 0.5 * np.sum((y - X @ best) ** 2) + strength * np.abs(best).sum()
    limit = p * n / np.linalg.eigvalsh(X @ X.T)[-1]
    return Lasso(name, X, y, strength, float(optimum), float(0.5 * y @ y), float(limit))


def own_seconds(problem):
    """CPU seconds of the estimators that solve the problem to each target, least of three, and their gaps."""
    own: dict[str, dict] = {}
    for name, fit in problem.own_solvers().items():
        fit(TARGETS[0])  # compiles
        for target in TARGETS:
            seconds, coef = least_seconds(partial(fit, target))
            own.setdefault(name, {})[f"{target:g}"] = {"seconds": seconds, "gap": problem.gap(coef)}
    return own


def make_schedule(policy, problem, size, n_blocks, seed):
    """Make a schedule by its name in `POLICIES`."""
    if policy in ("cyclic", "random"):
        order = "cyclic" if policy == "cyclic" else "permutation"
        return StaticSchedule(n_blocks, size=size, n_shards=N_SHARDS, order=order, random_state=seed)
    if policy == "priority":
        # As many draws as places, as in STRADS: more would fill a set with the same few heavy coefficients.
        return DynamicSchedule(n_blocks, size=size, n_shards=N_SHARDS, oversample=1, random_state=seed)
    depends = problem.conflicts(RHO)
    return DynamicSchedule(n_blocks, size=size, n_shards=N_SHARDS, conflicts=depends, random_state=seed)


def measure(problem, policy, size, *, engine="local", max_updates, max_seconds, seed=0):
    """Run one schedule on one problem.

    Returns the ``reason`` of the end, counts, the ``curve`` (lists ``updates``, ``seconds`` and ``excess``,
    the objective over its minimum relative to that at zero) and ``reached``, updates and seconds to each
    target or None. Seconds are CPU seconds of this process for ``engine="local"`` and wall seconds otherwise.
    """
    program = problem.program(N_SHARDS)
    program.measure_every = max(1, program.n_blocks // (5 * size))
    clock = time.process_time if engine == "local" else time.perf_counter
    curve: dict[str, list] = {
        "updates": [0],
        "seconds": [0.0],
        "excess": [1 - problem.optimum / problem.scale],
    }
    done = 0

    def watch(info):
        nonlocal done
        done += info.updates
        if not np.isnan(info.objective):
            curve["updates"].append(done)
            curve["seconds"].append(clock() - began)
            curve["excess"].append((info.objective - problem.optimum) / problem.scale)
        return done >= max_updates

    def stop(history):
        if curve["excess"][-1] <= LEAST:
            return "reached"
        return program.stop(history) or ("time" if clock() - began >= max_seconds else False)

    from sklearn.exceptions import ConvergenceWarning

    began = clock()  # products of groups, for the test of dependency, count
    schedule = make_schedule(policy, problem, size, program.n_blocks, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # that a schedule diverges is a result here
        result = run(program, schedule, max_rounds=max_updates, engine=engine, callback=watch, stop=stop)
    return {
        "reason": {"callback": "updates"}.get(result.reason, result.reason),
        "rounds": result.n_rounds,
        "updates": done,
        "bytes_sent": int(result.history.as_dict()["bytes_sent"].sum()),
        "curve": _thinned(curve),
        "reached": {f"{target:g}": _first(curve, target) for target in TARGETS},
    }


def _thinned(curve, n_points=100):
    """Keep the ends and points in equal ratios of updates between them, to six digits."""
    updates = np.array(curve["updates"], dtype=float)
    wanted = np.geomspace(1, max(updates[-1], 1), n_points)
    kept = np.unique(np.concatenate([[0, len(updates) - 1], np.searchsorted(updates, wanted)]))
    kept = kept[kept < len(updates)]
    thinned = {name: [float(f"{values[i]:.6g}") for i in kept] for name, values in curve.items()}
    return thinned | {"updates": [curve["updates"][i] for i in kept]}


def _first(curve, target):
    """Updates and seconds at the first point at or below a target."""
    below = np.flatnonzero(np.array(curve["excess"]) <= target)
    if not len(below):
        return None
    return {name: curve[name][below[0]] for name in ("updates", "seconds")}


def engines(places):
    """Return pairs of a place and its engine, as a context."""
    return engines_of(places, {"local": "local"}, n_threads=1)


def bench(*, names, places, sizes, quick, max_seconds, seed, on_record, tell):
    """Run everything: one record for each place, problem, size and schedule."""
    common = about_run("strads") | {"seed": seed}
    with engines(places) as where:
        for name in names:
            tell(f"{name}: drawing columns and finding the minimum")
            shape, problem = make_problem(name, quick=quick, seed=seed)
            # Groups are few, and each is stepped more often.
            max_updates = (20 if quick else 40) * (10 * shape["n_groups"] if name == "groups" else shape["p"])
            facts = {"optimum": problem.optimum, "scale": problem.scale, "limit": problem.limit, **shape}
            facts["own"] = own_seconds(problem)
            for place, engine in where:
                for policy in POLICIES:  # compiles, here and on workers
                    measure(problem, policy, 8, engine=engine, max_updates=40, max_seconds=60)
                for size in sizes:
                    for policy in POLICIES:
                        options = {"max_updates": max_updates, "max_seconds": max_seconds, "seed": seed}
                        figures = measure(problem, policy, size, engine=engine, **options)
                        record = {**common, "problem": name, "place": place, "policy": policy, "size": size}
                        on_record(record | {"data": facts, "settings": options} | figures)
                        tell(f"{name}, {place}, {size} in flight, {policy}: {_one_line(figures)}")


def _one_line(figures):
    excess = figures["curve"]["excess"][-1]
    return f"{figures['reason']} after {figures['updates']:,} updates, excess {excess:.1e}"


def collect(args, on_record, tell):
    """Run what the arguments of ``stradask bench strads`` ask for."""
    if args.against:
        raise DataError("--against: strads compares schedules with one another and has no peers")
    names = PROBLEMS if args.dataset is None else tuple(args.dataset)
    for name in names:
        if name not in PROBLEMS:
            raise DataError(f"--dataset: strads has {', '.join(PROBLEMS)}, not {name!r}")
    parameters: dict[str, Any] = {"cluster": True, "sizes": SIZES} | dict(args.param)
    if parameters.keys() != {"cluster", "sizes"}:
        raise DataError("--param: strads has the parameters cluster and sizes")
    bench(
        names=names,
        places=PLACES if parameters["cluster"] else PLACES[:1],
        sizes=tuple(np.atleast_1d(parameters["sizes"]).tolist()),
        quick=args.quick,
        max_seconds=args.max_seconds or (3.0 if args.quick else 20.0),
        seed=args.seed,
        on_record=on_record,
        tell=tell,
    )
