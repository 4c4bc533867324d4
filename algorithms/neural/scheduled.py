"""Multi-layer perceptrons by synchronous minibatches: SGD and Adam, over the scheduled training program."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ...errors import DataError, shortened
from .training.fitting import DenseLayers, ScoreWatch, TrainingSettings, Vectors, plan_for, train
from .training.optimizers import SGD, Adam

SCHEDULED = ("sgd", "adam")
_RATE = 1e-3  # scikit-learn's learning_rate_init
_LEAST_RATE, _DIVISOR = 1e-6, 5.0  # of learning_rate="adaptive"


def learns_in_passes(estimator):
    """Whether an estimator has `partial_fit`; the AttributeError says why not."""
    if estimator.solver == "sandblaster":
        raise AttributeError(
            "partial_fit takes minibatches: it needs solver='adam', 'sgd' or 'downpour', but solver is "
            f"{shortened(estimator.solver)}"
        )
    return True


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
    n_rows, patience = rows[0].shape[0], (estimator.n_iter_no_change, estimator.tol)
    falling = _falling(estimator)
    optimizer = _optimizer(estimator, network, n_rows)
    watch = None
    if held_out is not None:
        watch = ScoreWatch(
            lambda vectors: estimator._score(network, held_out, vectors.trained),
            *patience,
        )

    def snapshot(vectors, history):
        model = estimator._snapshot(network, w.dtype, vectors.trained, history)
        return _keep_state(model, vectors, len(history) * _n_steps(estimator, n_rows))

    done = _trained(
        estimator,
        network,
        Vectors(w, np.empty(0, w.dtype), None),
        rows,
        estimator.plan,
        {"optimizer": optimizer, "seed": seed, "n_epochs": estimator.max_iter, "falling": falling},
        watch=watch,
        stop=_idle(*patience) if watch is None and falling is None else None,
        callback=callback,
        snapshot=snapshot,
    )
    estimator.loss_curve_ = done.history.as_dict()["objective"].tolist()
    estimator.loss_, estimator.n_iter_ = estimator.loss_curve_[-1], len(done.history)
    estimator.t_ = estimator.n_iter_ * n_rows
    n_updates = estimator.n_iter_ * done.n_steps
    last = optimizer.learning_rate if falling is None else falling.now
    if estimator.solver == "sgd" and falling is None:
        last = optimizer.rate(n_updates)
    estimator.learning_rate_ = float(last)
    if watch is not None and watch.best is not None:  # the vectors are those of the best epoch
        n_updates = (watch.scores.index(watch.highest) + 1) * done.n_steps
    _keep_state(estimator, done.vectors, n_updates)
    if watch is not None:
        estimator.validation_scores_, estimator.best_validation_score_ = watch.scores, watch.highest
    if done.reason == "finished":
        warnings.warn(
            f"{type(estimator).__name__} has not converged in max_iter={estimator.max_iter} passes: raise "
            "max_iter or tol, or scale the columns",
            ConvergenceWarning,
            stacklevel=4,
        )
    return done.vectors.trained


def next_pass(estimator, network, w, rows, seed, *, is_first):
    """Train for one more epoch, with the optimiser as the last one left it; set what it came to.

    A fit by another solver left none, and that of another momentum has other slots: it then begins anew.
    """
    n_rows, before = rows[0].shape[0], {} if is_first else dict(vars(estimator))
    optimizer = _optimizer(estimator, network, n_rows)
    slots: Any = before.get("optimizer_state_")
    goes_on = slots is not None and slots.shape == optimizer.slots(w).shape
    n_updates = before["n_updates_"] if goes_on else 0
    falling = _falling(estimator, before["loss_curve_"] if goes_on else ())
    if falling is None and estimator.solver == "sgd":  # of all steps: the rate falls after a pass
        rate = optimizer.learning_rate / (1 + (before["t_"] if goes_on else 0)) ** optimizer.power
        optimizer = replace(optimizer, learning_rate=rate, power=0.0)
    vectors = Vectors(w, np.empty(0, w.dtype), slots.astype(w.dtype) if goes_on else None)
    # Without timings, which may take longer than the pass; no other plan has other bits.
    plan = "data" if estimator.plan == "auto" else estimator.plan
    given = {"optimizer": optimizer, "seed": seed, "n_epochs": 1, "falling": falling}
    given |= {"first_epoch": before.get("n_iter_", 0), "first_update": n_updates}
    done = _trained(estimator, network, vectors, rows, plan, given)
    estimator.loss_ = float(done.history.as_dict()["objective"][-1])
    estimator.loss_curve_ = [*before.get("loss_curve_", ()), estimator.loss_]
    estimator.n_iter_, estimator.t_ = before.get("n_iter_", 0) + 1, before.get("t_", 0) + n_rows
    estimator.learning_rate_ = float(optimizer.learning_rate if falling is None else falling.now)
    _keep_state(estimator, done.vectors, n_updates + done.n_steps)
    return done.vectors.trained


def _trained(estimator, network, vectors, rows, plan, given, **options):
    """Train by a plan, with the settings that are given; set that and the timeline."""
    layers = DenseLayers(network, vectors.trained.dtype)
    # Threads that share a GPU only wait for each other.
    n_jobs = 1 if network.device == "cuda" and estimator.plan == "auto" else estimator.n_jobs
    given |= {"loss": network.loss_name, "batch_size": estimator._batch(network.n_rows), "n_jobs": n_jobs}
    settings = TrainingSettings.of(estimator, counts_decay=True, **given)
    plan, n_steps = plan_for(plan, layers, vectors, rows[0], settings)
    done = train(layers, vectors, rows, settings, plan, n_steps, **options)
    estimator._forget()
    estimator._plan, estimator._timeline = done.plan, done.timeline
    return done


def _n_steps(estimator, n_rows):
    """Count the minibatches of a pass."""
    return -(-n_rows // min(estimator._batch(n_rows), n_rows))


def _rate(estimator):
    return _RATE if estimator.learning_rate_init is None else estimator.learning_rate_init


def _optimizer(estimator, network, n_rows) -> Any:
    rate, decay = _rate(estimator), network.alpha / n_rows
    if estimator.solver == "adam":
        return Adam(rate, estimator.beta_1, estimator.beta_2, estimator.epsilon, decay)
    power = estimator.power_t if estimator.learning_rate == "invscaling" else 0.0
    steps = _n_steps(estimator, n_rows)
    return SGD(rate, estimator.momentum, estimator.nesterovs_momentum, decay, power, n_rows, steps)


def _falling(estimator, losses=()):
    """Return the rate of "adaptive" after these losses, or None where it does not follow them."""
    if estimator.learning_rate != "adaptive":
        return None
    falling = FallingRate(_rate(estimator), estimator.n_iter_no_change, estimator.tol)
    for loss in losses:
        falling.after(loss)
    return falling


def _keep_state(model, vectors, n_updates):
    """Set what the optimiser goes on from in `partial_fit`."""
    model.optimizer_state_, model.n_updates_ = vectors.slots, n_updates
    return model


def _idle(patience, tol):
    """Make a stopping rule: the loss has not fallen by `tol` for more than so many epochs."""

    def stop(history):
        best, idle = math.inf, 0
        for _, value in history.objectives_from(0):
            idle = 0 if value <= best - tol else idle + 1
            best = min(best, value)
        return idle > patience

    return stop
