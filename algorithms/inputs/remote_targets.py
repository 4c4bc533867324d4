"""Targets and weights that lie beside the rows on a Dask cluster: they stay there.

Each block is checked where it lies. What comes to this process are the labels that there are, sums and
extremes; what goes back is how targets and weights are made of them. `FarPortions` calls both parts.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import xlogy
from sklearn.utils.validation import column_or_1d

from ...errors import DataError, shortened
from ...scheduler.threads import computed_here
from .dask_arrays import is_dask
from .matrices import _as_data_errors, check_plain
from .targets import (
    check_class_names,
    check_not_negative,
    check_row_weights,
    check_some_weight,
    check_targets,
    label_numbers,
    weights_of_classes,
)


class _Beside:
    """Checks targets and weights of a block.

    Parameters
    ----------
    name : str
        The estimator's, for messages.
    """

    def __init__(self, name):
        self.name = name

    def load(self, source, y, weights):
        """Check a block; say which it is if it cannot be used."""
        number, first, n_rows, _ = source
        y, weights = (computed_here(v)[0] if is_dask(v) else v for v in (y, weights))
        for what, vector in (("y", y), ("sample_weight", weights)):
            if np.ndim(vector) == 1 and len(vector) != n_rows:
                raise DataError(
                    f"in partition {number}, which begins at row {first}: {what} has {len(vector)} rows, but "
                    f"X has {n_rows}: cut both alike, or pass {what}.compute()"
                )
        try:
            if isinstance(weights, float):
                weights = np.full(n_rows, weights)
            weights = None if weights is None else check_row_weights(weights, n_rows)
            return self.checked(y, n_rows), weights, number
        except DataError as error:
            raise DataError(f"in partition {number}, which begins at row {first}: {error}") from error

    def survey(self, lying):
        """The block's number, extremes of the weights, and sums in which the largest of them is 1."""
        found, weights, number = lying
        if weights is None:
            return number, 1.0, 1.0, *self.sums(found, None)
        most = float(weights.max(initial=0.0))
        scaled = weights / most if most > 0 else weights
        return number, float(weights.min(initial=np.inf)), most, *self.sums(found, scaled)

    checked: Any
    sums: Any


class FarLabels(_Beside):
    """Labels of classes."""

    def checked(self, y, n_rows):
        """Return the labels of a block, and which of them each row has."""
        return label_numbers(y, n_rows, self.name)

    def sums(self, labels, weights):
        """The labels, and the weight of each."""
        classes, numbers = labels
        mass = np.bincount(numbers, weights, len(classes)).astype(np.float64)
        return _sent(classes), mass

    def rows(self, lying, dtype, coding):
        """Make targets of a block: signs of two classes, else their numbers; and weights."""
        (classes, numbers), weights, _ = lying
        names, factors = coding
        numbers = np.searchsorted(_array(names), classes)[numbers]
        target = np.where(numbers > 0, 1.0, -1.0).astype(dtype) if len(names) == 2 else numbers
        if factors is None:
            return [target], None
        return [target], (factors[numbers] * (1.0 if weights is None else weights)).astype(dtype)


class FarTargets(_Beside):
    """Targets of a regression."""

    def checked(self, y, n_rows):
        """Return the targets of a block, (n_rows, n_targets)."""
        return check_targets(y, n_rows, self.name).reshape(n_rows, -1)

    def sums(self, y, weights):
        """The rows' weight, and weighted sums of what is to be known."""
        weights = np.ones(len(y)) if weights is None else weights
        return float(weights.sum()), weights @ self.of_interest(y)

    def of_interest(self, y):
        """Columns whose means are wanted: the targets."""
        return y

    def rows(self, lying, dtype, coding):
        """Make targets and weights of a block."""
        y, weights, _ = lying
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
    """What a fit knows of labels.

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Sorted.
    total : float
        Sum of the weights of the rows, with those of their classes.
    mass : float64 ndarray of shape (n_classes,)
        Weight of each class, in some unit.
    coding : tuple
        For `FarLabels.rows`.
    """

    classes: np.ndarray
    total: float
    mass: np.ndarray
    coding: tuple


def label_sums(answers, n_rows, class_weight, name):
    """Put the surveys of the blocks together.

    Parameters
    ----------
    answers : list of tuples
        Columns of what `FarLabels.survey` returned.
    n_rows : int
    class_weight : None, "balanced" or dict of label to float
    name : str
        The estimator's, for messages.

    Returns
    -------
    LabelSums

    Raises
    ------
    DataError
        For a single class, numbers and text, classes without weight, and weights of classes that cannot be.
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
    """What a fit knows of targets.

    Attributes
    ----------
    means : float64 ndarray
        Of the columns `FarTargets.of_interest`, weighted.
    total : float
        Sum of the weights of the rows.
    coding : tuple
        For `FarTargets.rows`.
    """

    means: np.ndarray
    total: float
    coding: tuple


def target_sums(answers, n_rows):
    """Put the surveys of the blocks together; see `label_sums`."""
    _, least, most, masses, sums = answers
    top = _unit(most)
    shares = np.array(most) / top
    mass = float(shares @ np.array(masses))
    factor = None if min(least) == top else n_rows / mass / top
    return TargetSums(shares @ np.array(sums) / mass, top * mass, (factor,))


def _check_alike(numbers, names):
    """Refuse numbers in some blocks and text in others: numpy would make text of them all."""
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
