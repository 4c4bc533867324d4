"""Multi-layer perceptrons by synchronous minibatches: SGD and Adam, over the scheduled training program."""

import math
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...errors import DataError, shortened
from .training.fitting import DenseLayers, ScoreWatch, Vectors, plan_for, train
from .training.optimizers import SGD, Adam

SCHEDULED = ("sgd", "adam")
_RATE = 1e-3  # scikit-learn's learning_rate_init
_LEAST_RATE, _DIVISOR = 1e-6, 5.0  # of learning_rate="adaptive"


def check_schedules(estimator):
    """Refuse a schedule of rates, or a plan, where it would not be followed."""
    if estimator.solver not in SCHEDULED and estimator.plan != "auto":
        raise DataError(
            f"plan={shortened(estimator.plan)} is of solver='sgd' and 'adam', but solver="
            f"{estimator.solver!r}: set plan='auto', or take one of these"
        )
    schedule = estimator.learning_rate
    if schedule != "constant" and estimator.solver != "sgd":
        raise DataError(
            f"learning_rate={schedule!r} is of solver='sgd', but solver={estimator.solver!r}: set "
            "learning_rate='constant'"
        )
    if schedule == "adaptive" and estimator.early_stopping:
        raise DataError(
            "learning_rate='adaptive' follows the training loss, and early_stopping=True a score: set "
            "one of the two"
        )


class FallingRate:
    """What a learning rate is divided by, which grows when the loss of epochs has not fallen for a while.

    `rate` is the first one. More than `patience` epochs in a row without a gain of `tol` divide it by 5, and
    end the fit once it is at most 1e-6.

    Examples
    --------
    >>> from stradask.algorithms.neural.scheduled import FallingRate
    >>> rate = FallingRate(0.1, patience=0, tol=0.0)
    >>> [rate.after(loss) for loss in (2.0, 1.0, 1.5)], rate.now
    ([False, False, False], 0.02)
    """

    def __init__(self, rate, patience, tol):
        self.now, self._patience, self._tol = rate, patience, tol
        self._best, self._idle = math.inf, 0

    def after(self, loss):
        """Take in the loss of an epoch; return whether to stop."""
        self._idle = 0 if loss <= self._best - self._tol else self._idle + 1
        self._best = min(self._best, loss)
        if self._idle <= self._patience:
            return False
        if self.now <= _LEAST_RATE:
            return True
        self.now, self._idle = self.now / _DIVISOR, 0
        return False

    def array(self):
        """Its state, for a checkpoint."""
        return np.array([self.now, self._best, self._idle])

    def restore(self, array):
        """Go on from what `array` gave."""
        self.now, self._best, self._idle = float(array[0]), float(array[1]), int(array[2])


def by_schedule(estimator, network, w, rows, held_out, seed, callback):
    """Fit an estimator's network; set what the fit came to, and return the parameters."""
    layers, n_rows = DenseLayers(network), rows[0].shape[0]
    rate = _RATE if estimator.learning_rate_init is None else estimator.learning_rate_init
    decay = network.alpha / n_rows
    optimizer: Any
    if estimator.solver == "adam":
        optimizer = Adam(rate, estimator.beta_1, estimator.beta_2, estimator.epsilon, decay)
    else:
        steps = -(-n_rows // min(estimator._batch(n_rows), n_rows))
        power = estimator.power_t if estimator.learning_rate == "invscaling" else 0.0
        optimizer = SGD(rate, estimator.momentum, estimator.nesterovs_momentum, decay, power, n_rows, steps)
    patience = estimator.n_iter_no_change, estimator.tol
    falling = FallingRate(rate, *patience) if estimator.learning_rate == "adaptive" else None
    vectors = Vectors(w, np.empty(0, w.dtype), optimizer.slots(w))
    # Threads that share a GPU only wait for each other.
    n_jobs = 1 if network.device == "cuda" and estimator.plan == "auto" else estimator.n_jobs
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
        n_jobs=n_jobs,
    )
    watch = None
    if held_out is not None:
        watch = ScoreWatch(
            lambda vectors: estimator._score(network, held_out, vectors.trained),
            *patience,
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
        n_jobs=n_jobs,
        counts_decay=True,
        falling=falling,
        watch=watch,
        stop=_idle(*patience) if watch is None and falling is None else None,
        callback=callback,
        snapshot=lambda vectors, history: estimator._snapshot(network, w.dtype, vectors.trained, history),
        label=type(estimator).__name__,
        verbose=estimator.verbose,
    )
    estimator.loss_curve_ = done.history.as_dict()["objective"].tolist()
    estimator.loss_, estimator.n_iter_ = estimator.loss_curve_[-1], len(done.history)
    estimator.t_ = estimator.n_iter_ * n_rows
    last = rate if falling is None else falling.now
    if estimator.solver == "sgd" and falling is None:
        last = optimizer.rate(estimator.n_iter_ * n_steps)
    estimator.learning_rate_ = float(last)
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
    """Make a stopping rule: the loss has not fallen by `tol` for more than so many epochs."""

    def stop(history):
        best, idle = math.inf, 0
        for _, value in history.objectives_from(0):
            idle = 0 if value <= best - tol else idle + 1
            best = min(best, value)
        return idle > patience

    return stop
