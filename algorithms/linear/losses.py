"""Losses as objects: checks and coding of y, the start of a fit, and the loss for each solver.

`squared`, `logistic`, `poisson` and `multinomial(K)` are objects. For models over rows (`glm`) a loss has
`code`, its number in the kernels, `start`, `objective` and `minimiser`.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import xlogy

from ...errors import DataError
from ..inputs.matrices import check_vector
from ..inputs.targets import (
    check_class_weights,
    check_labels,
    check_not_negative,
    check_offset,
    check_span,
    check_targets,
    check_weights,
    target_vector,
    total_weight,
)
from .predictions import with_exposure

_LEAST_SHARE = float(np.finfo(np.float64).eps)  # of a class at the start: one may have no weight


@dataclass(frozen=True)
class Target:
    """Checked targets and weights of a fit over rows.

    `starts`: float64 (n_targets, n_outputs), intercepts of the models without columns. `total`: sum of the
    rows' weights, times those of their classes. `vectors`: one a target; none on a cluster, where `coding` is
    for the workers. `weights`: None, or of mean 1. `mass`: the weight of each class. `offset`: None or
    float64 (n_samples,), of several classes (n_samples, n_outputs), to add to the predictors.
    """

    loss: Any
    starts: np.ndarray
    total: float
    vectors: Any = ()
    weights: Any = None
    coding: Any = None
    classes: Any = None
    mass: Any = None
    constant: float = 0.0
    single: bool = True
    offset: Any = None

    def moved_by(self, offset, exposure=None):
        """The same targets with an offset, checked here, of the linear predictors, or with exposures."""
        offset = with_exposure(offset, exposure, len(self.vectors[0]))
        if offset is None:
            return self
        n_samples, n_outputs = len(self.vectors[0]), max(self.loss.n_outputs, len(self.vectors))
        return self.loss.moved(self, check_offset(check_vector(offset, n_samples), n_samples, n_outputs))


class EstimatorLoss:
    """A loss of one linear predictor, or of `n_outputs`."""

    code: int
    n_outputs = 1

    def start(self, mean):
        """Intercepts of the best model without columns, from the weighted mean of the targets."""
        return mean

    def moved(self, target, offset):
        """A `Target` with an offset of the predictors, and a start that makes up for its mean."""
        starts = target.starts - np.average(offset, axis=0, weights=target.weights)
        return replace(target, offset=offset, starts=starts)

    def objective(self, rows, **options):
        """The penalised mean of the loss over rows, local or remote."""
        from .glm.objective import LinearObjective
        from .glm.remote import objective_over

        return objective_over(rows, LinearObjective, self.code, scale=1 / rows.shape[0], **options)

    def minimiser(self, solver):
        """The minimiser of that mean: ``minimiser(objective, x0, ...)`` returns a result and a name."""
        from .glm.choose import minimise

        return functools.partial(minimise, solver=solver)


class _SquaredLoss(EstimatorLoss):
    code = 0  # as in kernels.linear.glm_losses

    def moved(self, target, offset):
        offsets = offset.reshape(len(offset), -1).T
        means = np.average(offsets, axis=1, weights=target.weights)
        vectors = [y - shift for y, shift in zip(target.vectors, offsets, strict=True)]
        return replace(target, vectors=vectors, starts=target.starts - means[:, None])

    def minimiser(self, solver):
        from .glm.choose import SquareMinimiser

        return SquareMinimiser(solver)

    def target(self, name, y, sample_weight, n_samples):
        """Check targets, of which there may be several."""
        y = check_targets(y, n_samples, name)
        weights, total = check_weights(sample_weight, n_samples), total_weight(sample_weight, n_samples)
        vectors = y.reshape(len(y), -1).T
        starts = np.average(vectors, axis=1, weights=weights)[:, None]
        return Target(self, starts, total, list(vectors), weights, single=y.ndim == 1)

    def remote_target(self, sums):
        """Take the target of a cluster from its `TargetSums`."""
        return Target(self, sums.means[:, None], sums.total, coding=sums.coding)


class _PoissonLoss(EstimatorLoss):
    code = 2

    def moved(self, target, offset):
        top = check_span(offset).max()
        mean = top + np.log(np.average(np.exp(offset - top), weights=target.weights))
        return replace(target, offset=offset, starts=target.starts - mean)

    def start(self, mean):
        if mean == 0:
            raise DataError(
                "y is 0 in every row that has weight: the best intercept of PoissonRegressor would be minus "
                "infinity; give it at least one count above 0"
            )
        return np.full((1, 1), np.log(mean))

    def target(self, name, y, sample_weight, n_samples):
        """Check counts."""
        y = check_targets(target_vector(y), n_samples, name)
        check_not_negative(y, name)
        weights = check_weights(sample_weight, n_samples)
        start = self.start(float(np.average(y, weights=weights)))
        constant = float(np.average(xlogy(y, y) - y, weights=weights))
        return Target(self, start, 1.0, [y], weights, constant=constant)

    def remote_target(self, sums):
        """Take the counts of a cluster from their `TargetSums`."""
        mean, constant = map(float, sums.means)
        return Target(self, self.start(mean), 1.0, coding=sums.coding, constant=constant)


class _LogisticLoss(EstimatorLoss):
    code = 1

    def start(self, mean):
        """Log-odds of the classes, whose weights are `mean`."""
        logs = np.log(np.maximum(mean / mean.sum(), _LEAST_SHARE))
        return logs[None, 1:] - logs[:1]

    def signs(self, numbers):
        """Targets of the rows: of two classes 1 and -1."""
        return np.where(numbers > 0, 1.0, -1.0)


class _MultinomialLoss(_LogisticLoss):
    def __init__(self, n_classes):
        self.n_outputs = n_classes

    def start(self, mean):
        logs = np.log(np.maximum(mean / mean.sum(), _LEAST_SHARE))
        return (logs - logs.mean())[None]

    def signs(self, numbers):
        return numbers

    def objective(self, rows, *, constant=0.0, **options):
        from .glm.objective import MultinomialObjective
        from .glm.remote import objective_over

        return objective_over(rows, MultinomialObjective, self.n_outputs, scale=1 / rows.shape[0], **options)

    def minimiser(self, solver):
        from .glm.choose import minimise_multinomial

        return functools.partial(minimise_multinomial, solver=solver)


squared, logistic, poisson, multinomial = _SquaredLoss(), _LogisticLoss(), _PoissonLoss(), _MultinomialLoss


def loss_of(classes):
    """The loss of some labels."""
    return logistic if len(classes) == 2 else multinomial(len(classes))


def class_target(name, y, sample_weight, n_samples, class_weight):
    """Check labels, and count them."""
    classes, numbers = check_labels(y, n_samples, name)
    weights = check_weights(sample_weight, n_samples)
    total = class_total(sample_weight, class_weight, classes, numbers)
    weights = check_class_weights(class_weight, classes, numbers, weights)
    loss, mass = loss_of(classes), np.bincount(numbers, weights)
    known = {"classes": classes, "mass": mass}
    return Target(loss, loss.start(mass), total, [loss.signs(numbers)], weights, **known)


def remote_class_target(sums):
    """Take the labels of a cluster from their `LabelSums`."""
    loss = loss_of(sums.classes)
    known = {"coding": sums.coding, "classes": sums.classes, "mass": sums.mass}
    return Target(loss, loss.start(sums.mass), sums.total, **known)


def class_total(sample_weight, class_weight, classes, numbers):
    """Sum of the rows' weights, times those of their classes, for objectives that are sums."""
    total = total_weight(sample_weight, len(numbers))
    if not isinstance(class_weight, dict):
        return total
    of_class = np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    weights = check_weights(sample_weight, len(numbers))
    return total * float(np.average(of_class[numbers], weights=weights))
