"""Schedules: a Lasso by parallel coordinate descent under four of them.

Objective against updates and against seconds, for U = 1, 8, 32 and 128 updates in flight, on independent
and on strongly correlated columns, on this process and on two worker processes. All U coefficients of a round
are stepped from one residual, so that what is measured against updates is the same on every machine and
wherever it runs. There are no peers here: the schedules are compared with one another.
"""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms.linear.sparse.scheduled import Correlated, ScheduledElasticNet
from ..errors import DataError
from ..scheduler import DynamicSchedule, StaticSchedule, run
from .engines import engines_of
from .pages.strads import LEAST, POLICIES, RHO, TARGETS
from .pages.strads import page as page  # as every family has both
from .pages.strads import table as table
from .run import about_run

SIZES = (1, 8, 32, 128)
N_SHARDS = 2  # everywhere, so that sums are taken in one order
PLACES = ("local", "two processes")
# Rows, columns; columns of one group share a factor.
WHOLE, QUICK = {"n": 500, "p": 5000, "n_groups": 20}, {"n": 200, "p": 1000, "n_groups": 10}


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


def working_set_seconds(problem):
    """Least of three times that `stradask.Lasso` takes to a relative gap of 1e-4, in CPU seconds."""
    from ..algorithms.linear.lasso import Lasso as Estimator

    times = []
    for _ in range(3):
        began = time.process_time()
        Estimator(problem.strength / len(problem.y), fit_intercept=False, tol=1e-4).fit(problem.X, problem.y)
        times.append(time.process_time() - began)
    return min(times)


class Watched(ScheduledElasticNet):
    """The program with the objective alone measured: that costs little, so that seconds are of updates."""

    def measure(self, state):
        """A shard's part of the squares."""
        return state["weights"] @ state["residual"] ** 2

    def objective(self, parts):
        """Objective alone."""
        self.primal = 0.5 * sum(parts) + self.l1 @ np.abs(self.coef)
        return self.primal


def make_schedule(policy, problem, size, seed):
    """Make a schedule by its name in `POLICIES`."""
    p = problem.X.shape[1]
    if policy in ("cyclic", "random"):
        order = "cyclic" if policy == "cyclic" else "permutation"
        return StaticSchedule(p, size=size, n_shards=N_SHARDS, order=order, random_state=seed)
    if policy == "priority":
        # As many draws as places, as in STRADS: more would fill a set with the same few heavy coefficients.
        return DynamicSchedule(p, size=size, n_shards=N_SHARDS, oversample=1, random_state=seed)
    depends = Correlated(problem.X, RHO, centred=False)
    return DynamicSchedule(p, size=size, n_shards=N_SHARDS, conflicts=depends, random_state=seed)


def measure(problem, policy, size, *, engine="local", max_updates, max_seconds, seed=0):
    """Run one schedule on one problem.

    Returns the ``reason`` of the end, counts, the ``curve`` (lists ``updates``, ``seconds`` and ``excess``,
    the objective over its minimum relative to that at zero) and ``reached``, updates and seconds to each
    target or None. Seconds are CPU seconds of this process for ``engine="local"`` and wall seconds otherwise.
    """
    program = Watched(
        problem.X, problem.y, problem.strength, size=size, fit_intercept=False, n_shards=N_SHARDS
    )
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

    schedule = make_schedule(policy, problem, size, seed)
    began = clock()
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
    shape = QUICK if quick else WHOLE
    max_updates = 20 * shape["p"] if quick else 40 * shape["p"]
    with engines(places) as where:
        for name in names:
            tell(f"{name}: drawing columns and finding the minimum")
            problem = make_lasso(name, **shape, seed=seed)
            facts = {"optimum": problem.optimum, "scale": problem.scale, "limit": problem.limit, **shape}
            facts["working_set_seconds"] = working_set_seconds(problem)
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
    known = ("independent", "correlated")
    names = known if args.dataset is None else tuple(args.dataset)
    for name in names:
        if name not in known:
            raise DataError(f"--dataset: strads has {' and '.join(known)}, not {name!r}")
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
