"""Multi-layer perceptrons by synchronous minibatches: SGD and Adam, over the scheduled training program."""

import math
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .training.fitting import DenseLayers, ScoreWatch, Vectors, plan_for, train
from .training.optimizers import SGD, Adam

SCHEDULED = ("sgd", "adam")
_RATE = 1e-3


def by_schedule(estimator, network, w, rows, held_out, seed, callback):
    """Fit an estimator's network; set what the fit came to, and return the parameters."""
    layers, n_rows = DenseLayers(network), rows[0].shape[0]
    rate = _RATE if estimator.learning_rate_init is None else estimator.learning_rate_init
    decay = network.alpha / n_rows
    optimizer: Any
    if estimator.solver == "adam":
        optimizer = Adam(rate, weight_decay=decay)
    else:
        optimizer = SGD(rate, estimator.momentum, estimator.nesterovs_momentum, decay)
    vectors = Vectors(w, np.empty(0, w.dtype), optimizer.slots(w))
    plan, n_steps = plan_for(
        estimator.plan,
        layers,
        vectors,
        rows[0],
        optimizer=optimizer,
        batch_size=estimator._batch(n_rows),
        micro_batches="auto",
        order="1f1b",
        recompute=False,
        engine=estimator.engine,
        n_jobs=estimator.n_jobs,
    )
    watch = None
    if held_out is not None:
        watch = ScoreWatch(
            lambda vectors: estimator._score(network, held_out, vectors.trained),
            estimator.n_iter_no_change,
            estimator.tol,
        )
    done = train(
        layers,
        vectors,
        rows,
        loss=network.loss_name,
        optimizer=optimizer,
        plan=plan,
        n_steps=n_steps,
        n_epochs=estimator.max_iter,
        seed=seed,
        engine=estimator.engine,
        n_jobs=estimator.n_jobs,
        counts_decay=True,
        watch=watch,
        stop=None if watch is not None else _idle(estimator.n_iter_no_change, estimator.tol),
        callback=callback,
        snapshot=lambda vectors, history: estimator._snapshot(network, w.dtype, vectors.trained, history),
        label=type(estimator).__name__,
        verbose=estimator.verbose,
    )
    estimator.loss_curve_ = done.history.as_dict()["objective"].tolist()
    estimator.loss_, estimator.n_iter_ = estimator.loss_curve_[-1], len(done.history)
    estimator.t_, estimator.learning_rate_ = estimator.n_iter_ * n_rows, float(rate)
    estimator._plan, estimator._timeline = done.plan, done.timeline
    if watch is not None:
        estimator.validation_scores_, estimator.best_validation_score_ = watch.scores, watch.highest
    if done.reason == "finished":
        warnings.warn(
            f"{type(estimator).__name__} has not converged in max_iter={estimator.max_iter} passes: raise "
            "max_iter or tol",
            ConvergenceWarning,
            stacklevel=4,
        )
    return done.vectors.trained


def _idle(patience, tol):
    """Make a stopping rule: the loss has not fallen by `tol` for so many epochs."""

    def stop(history):
        best, idle = math.inf, 0
        for _, value in history.objectives_from(0):
            idle = 0 if value < best - tol else idle + 1
            best = min(best, value)
        return idle >= patience

    return stop
