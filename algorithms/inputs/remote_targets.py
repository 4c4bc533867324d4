"""Targets and weights that stay on the workers of a Dask cluster, with their blocks of rows.

Each block is checked on its worker. Labels, sums and extremes come to this process; the coding of targets and
weights goes back. `RemotePortions` calls both parts.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy
from sklearn.utils.validation import column_or_1d

from ...errors import DataError, shortened
from .matrices import _as_data_errors, check_plain
from .pieces import computed, located, partition
from .targets import (
    check_class_names,
    check_not_negative,
    check_row_weights,
    check_some_weight,
    check_targets,
    label_numbers,
    weights_of_classes,
)


class _RemoteTargets:
    """Checks targets and weights of a block; `name` is the estimator's, for messages."""

    def __init__(self, name):
        self.name = name

    def load(self, source, y, weights):
        """Check a block; say which it is if it cannot be used."""
        number, first, n_rows, _ = source
        with located(partition(number, first)):
            y, weights = computed(y), computed(weights)
            for name, vector in (("y", y), ("sample_weight", weights)):
                if np.ndim(vector) == 1 and len(vector) != n_rows:
                    raise DataError(
                        f"{name} has {len(vector)} rows, but X has {n_rows}: cut both alike, or pass "
                        f"{name}.compute()"
                    )
            if isinstance(weights, float):
                weights = np.full(n_rows, weights)
            weights = None if weights is None else check_row_weights(weights, n_rows)
            return self.checked(y, n_rows), weights, number

    def survey(self, block):
        """The block's number, extremes of the weights, and sums with weights scaled to at most 1."""
        targets, weights, number = block
        if weights is None:
            return number, 1.0, 1.0, *self.sums(targets, None)
        most = float(weights.max(initial=0.0))
        scaled = weights / most if most > 0 else weights
        return number, float(weights.min(initial=np.inf)), most, *self.sums(targets, scaled)

    checked: Any
    sums: Any


class FarLabels(_RemoteTargets):
    """Labels of classes."""

    def checked(self, y, n_rows):
        """Return the labels of a block, and the label number of each row."""
        return label_numbers(y, n_rows, self.name)

    def sums(self, labels, weights):
        """The labels, and the weight of each."""
        classes, numbers = labels
        mass = np.bincount(numbers, weights, len(classes)).astype(np.float64)
        return _sent(classes), mass

    def rows(self, block, dtype, coding):
        """Make targets of a block (signs of two classes, else class numbers) and weights."""
        (classes, numbers), weights, _ = block
        names, factors = coding
        numbers = np.searchsorted(_array(names), classes)[numbers]
        target = np.where(numbers > 0, 1.0, -1.0).astype(dtype) if len(names) == 2 else numbers
        if factors is None:
            return [target], None
        return [target], (factors[numbers] * (1.0 if weights is None else weights)).astype(dtype)


class FarTargets(_RemoteTargets):
    """Targets of a regression."""

    def checked(self, y, n_rows):
        """Return the targets of a block, (n_rows, n_targets)."""
        return check_targets(y, n_rows, self.name).reshape(n_rows, -1)

    def sums(self, y, weights):
        """Total weight, and weighted sums of the columns `of_interest`."""
        weights = np.ones(len(y)) if weights is None else weights
        return float(weights.sum()), weights @ self.of_interest(y)

    def of_interest(self, y):
        """Columns whose means are needed: the targets."""
        return y

    def rows(self, block, dtype, coding):
        """Make targets and weights of a block."""
        y, weights, _ = block
        (factor,) = coding
        targets = [target.astype(dtype) for target in y.T]
        return targets, None if factor is None else (factor * weights).astype(dtype)


class FarCounts(FarTargets):
    """Targets of a Poisson regression."""

    def checked(self, y, n_rows):
        """Return the counts of a block, (n_rows, 1)."""
        with _as_data_errors():
            check_plain("y", y)
            y = column_or_1d(y, warn=True)
        y = super().checked(y, n_rows)
        check_not_negative(y[:, 0], self.name)
        return y

    def of_interest(self, y):
        """The counts, and ``y log y - y``."""
        return np.column_stack([y, xlogy(y, y) - y])


class LabelSums(NamedTuple):
    """Sorted classes, total weight of rows, weight of each class in some unit, and coding for `rows`."""

    classes: np.ndarray
    total: float
    mass: np.ndarray
    coding: tuple


def label_sums(answers, n_rows, class_weight, name):
    """Combine the surveys of all blocks: `answers` are columns of the tuples that `survey` returned.

    Raises `DataError` for a single class, numbers mixed with text, and class weights that cannot be.
    """
    numbers, least, most, names, masses = answers
    names = [_array(part) for part in names]
    _check_alike(numbers, names)
    classes = np.unique(np.concatenate(names))
    check_class_names(classes, name)
    top, mass = _unit(most), np.zeros(len(classes))
    for part, weight, unit in zip(names, masses, most, strict=True):
        mass[np.searchsorted(classes, part)] += weight * (unit / top)
    of_class = weights_of_classes(class_weight, classes, mass)
    plain = min(least) == top and (of_class == of_class[0]).all()
    mass = of_class * mass
    factors = None if plain else of_class * (n_rows / mass.sum() / top)
    total = top * float(mass.sum())
    return LabelSums(classes, total, mass, (_sent(classes), factors))


class TargetSums(NamedTuple):
    """Weighted means of the columns `of_interest`, total weight of the rows, and the coding for `rows`."""

    means: np.ndarray
    total: float
    coding: tuple


def target_sums(answers, n_rows):
    """Combine the surveys of all blocks; see `label_sums`."""
    _, least, most, masses, sums = answers
    top = _unit(most)
    shares = np.array(most) / top
    mass = float(shares @ np.array(masses))
    factor = None if min(least) == top else n_rows / mass / top
    return TargetSums(shares @ np.array(sums) / mass, top * mass, (factor,))


def _check_alike(numbers, names):
    """Refuse numbers in some blocks and text in others, which numpy would turn into text."""
    first: dict = {}
    for number, part in zip(numbers, names, strict=True):
        first.setdefault(part.dtype.kind in "OSU", (number, part[0]))
    if len(first) > 1:
        (text, word), (other, label) = first[True], first[False]
        raise DataError(
            f"y holds text in partition {text}, such as {shortened(str(word))}, and numbers in partition "
            f"{other}, such as {label}: make them alike"
        )


def _unit(most):
    """The largest weight."""
    check_some_weight(max(most))
    return max(most)


def _sent(classes):
    return classes.tolist() if classes.dtype.hasobject else classes


def _array(names):
    return names if isinstance(names, np.ndarray) else np.array(names, dtype=object)
