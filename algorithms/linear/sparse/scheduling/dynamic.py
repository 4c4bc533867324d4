"""Dynamic schedules of Lasso and elastic net: which program runs, from a design to solutions."""

from typing import Any

import numpy as np

from .....errors import DataError
from .....scheduler.engine import run
from .....scheduler.schedules.static import StaticSchedule
from ....inputs.dask_arrays import is_dask
from ..fitting import DEFAULT_ROUNDS, LEAST_TOL
from ..working_set import Solution
from .drawn_rounds import DrawnRounds
from .scheduled import scheduled_elastic_net


def solve_scheduled(
    design,
    y,
    penalty,
    *,
    tol,
    max_iter,
    random_state,
    start=None,
    n_jobs=None,
    verbose=0,
    callback=None,
    read=None,
    label,
):
    """Solve for one penalty by coefficients that are drawn; returns as `solve`.

    In this process by compiled rounds (see `drawn_rounds`), with rows on workers by those of `scheduled`. A
    pass is as many rounds as it takes to visit every coefficient once.
    """
    if is_dask(design.X):
        raise DataError(
            "schedule='dynamic' takes a Dask array that is cut by columns, but X is cut by rows: call "
            "X.rechunk({0: -1, 1: 'auto'}), or take schedule='auto'"
        )
    n_samples, n_features = design.X.shape
    every, X = np.arange(n_features), design.columns
    if design.l1_factors is not None and np.isinf(design.l1_factors).any():
        every = np.flatnonzero(np.isfinite(design.l1_factors))
        if not len(every):
            raise DataError(
                "penalty_factor is inf for every column, and schedule='dynamic' needs one to draw: take "
                "schedule='auto' for the model of the intercept alone"
            )
        X = X[:, every]
    coef = None
    if start is not None:
        coef = np.zeros(n_features)
        coef[start[0]] = start[1]
        coef = coef[every]
    # Weights of sum 1: then all figures are those of the estimators.
    terms = penalty.thresholds(every) / n_samples, penalty.ridges(every) / n_samples
    weights = (np.ones(n_samples) if design.weights is None else design.weights) / n_samples
    options = {"fit_intercept": design.fit_intercept, "positive": design.positive, "coef": coef}
    options |= {"tol": max(tol, LEAST_TOL), "random_state": random_state}
    n_passes, stop = max_iter or DEFAULT_ROUNDS, None
    if design.cut is None:
        program: Any = DrawnRounds(X, y, *terms, weights, **options)
        schedule: Any = StaticSchedule(1)
        rounds = 1
    else:
        n_shards = len(design.cut.pieces)
        program, schedule = scheduled_elastic_net(
            X, y, *terms, sample_weight=weights, n_shards=n_shards, **options
        )
        rounds, stop = program.measure_every, program.stop

    def fit(n_rounds, reason):
        features = np.flatnonzero(program.coef)
        relative = program.gap / program.scale if program.scale > 0 else 0.0
        model = penalty.strength, every[features], program.coef[features], program.intercept
        return Solution(
            *model, program.primal, relative, program.gap, -(-n_rounds // rounds), n_rounds, reason
        )

    done = run(
        program,
        schedule,
        engine=design.engine if design.cut is not None else "local",
        n_jobs=n_jobs,
        max_rounds=n_passes * rounds,
        stop=stop,
        callback=callback,
        snapshot=read and (lambda history: read(fit(len(history), ""), history)),
        verbose=verbose,
        label=label,
    )
    if done.reason != "gap" and design.cut is None:
        program.measure_now()
    reason = {"finished": "max_rounds", "gap": "gap"}.get(done.reason, "stopped")
    return [fit(done.n_rounds, reason)], done
