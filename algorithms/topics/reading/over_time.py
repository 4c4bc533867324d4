"""Slices of time: their labels, and a topic's words from one slice to the next."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv

from ....errors import DataError, in_brief, shortened
from ..covariates import check_order
from ..inference import levels_to_user
from .comparison import group_codes, has_order
from .times import chosen_unit, days_of, names_of, numbers_of, times_of

_MOST_FILLED = 10_000  # periods from the first to the last
_FEWEST = 5  # documents of a slice in the middle
_LISTED = 12  # slices of a table


def slices_of(X, slices):
    """The slices, or the index of a frame that holds times or periods."""
    if slices is None:
        index = getattr(X, "index", None)
        kind = getattr(index, "dtype", None)
        if not (hasattr(kind, "freq") or getattr(kind, "kind", "") == "M"):
            raise DataError(
                "slices is missing: pass a label for each document, such as its year, or a DataFrame with an "
                "index of times or periods"
            )
        return index
    check_order(X, slices)
    return slices


def slice_codes(slices, n_documents, unit=None, *, chooses=False):
    """Return the labels of slices, in their order, the slice of each document, and the unit of dates.

    Of pandas categories all are slices, and of periods all from the first to the last, with documents or not.
    With a `unit` slices are those of dates in it; it may be chosen, by the documents.
    """
    if hasattr(getattr(slices, "dtype", None), "freq"):
        return *_period_codes(slices, n_documents), unit
    labels, codes = group_codes(slices, n_documents, "slices", unused=True)
    times, codes_of_times = np.unique(times_of(labels), return_inverse=True)
    if times.dtype.kind == "M":
        labels, codes = times, codes_of_times[codes]
    elif labels.dtype.kind == "O":
        labels = np.array([str(label) for label in labels])
    if labels.dtype.kind not in "OUiufMb":
        raise DataError(
            f"slices has labels of {labels.dtype}: pass dates, numbers, text, periods or categories"
        )
    days, names = (None, None) if has_order(slices) else days_of(labels)
    if days is None and names is not None and (chooses or unit is not None):
        raise DataError(
            f"slices are dates such as {shortened(str(labels[0]))}, but {names}: pass them as 2004-01-31, "
            "or pandas.to_datetime(slices, dayfirst=True)"
        )
    if days is not None and chooses:
        unit = chosen_unit(days, codes, names)
    if days is not None and unit is not None:
        numbers = numbers_of(days, unit)
        every = np.arange(numbers.min(), numbers.max() + 1)
        labels, codes = names_of(every, unit), (numbers - every[0])[codes]
    return labels, codes.astype(np.int64), unit


def check_documents(codes, unit):
    """Refuse slices of which most have few documents; say which unit of time they are."""
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    if len(counts) > 1 and np.median(counts) < _FEWEST:
        raise DataError(
            f"slices divides {len(codes)} documents into {len(counts)} slices, with {np.median(counts):g} "
            f"documents in the median: {_FEWEST} or more are needed. Take longer ones: of numbers such as "
            "10 * (years // 10), of periods dates.dt.to_period('Y'); dates, such as "
            "pandas.to_datetime(seconds, unit='s'), are put into slices that have enough"
        )
    if unit is not None:
        warnings.warn(
            f"slices are dates: each {unit} is a slice, {codes.max() + 1} in all, {len(counts)} with "
            f"documents (median {np.median(counts):g}); for others pass periods, such as "
            "dates.dt.to_period('M')",
            UserWarning,
            stacklevel=levels_to_user(),
        )


def _period_codes(slices, n_documents):
    import pandas

    values = pandas.array(slices, dtype=slices.dtype)
    if len(values) != n_documents:
        raise DataError(f"slices has {len(values)} labels; pass one for each of the {n_documents} documents")
    if values.isna().any():
        raise DataError(f"slices has no label for document {np.flatnonzero(values.isna())[0]}: give it one")
    order = values.asi8
    first, n_slices = int(order.min()), int(order.max() - order.min()) + 1
    if n_slices > _MOST_FILLED:
        raise DataError(
            f"slices are periods from {values.min()} to {values.max()}, {n_slices} of them, more than "
            f"{_MOST_FILLED}: take longer ones, such as slices.asfreq('Y')"
        )
    every = pandas.period_range(values.min(), periods=n_slices, freq=slices.dtype.freq)
    return np.array([str(period) for period in every]), order - first


def place_of(label, labels, unit=None):
    """The place of one label among those of a model, or of a date in its unit."""
    if labels.dtype.kind == "M":
        try:
            label = np.datetime64(label).astype(labels.dtype)
        except (TypeError, ValueError):
            label = np.datetime64("NaT")
    elif labels.dtype.kind in "OU":
        label = str(label)
        if unit is not None and label not in labels and (days := days_of(np.array([label]))[0]) is not None:
            (label,) = names_of(numbers_of(days, unit), unit)
    same = labels == label if labels.dtype.kind == "M" else [own == label for own in labels.tolist()]
    found = np.flatnonzero(np.asarray(same, bool))
    if not len(found):
        names = in_brief(", ".join(map(str, labels)), 200)
        raise DataError(f"slice={shortened(str(label))} is none of the model's: {names}")
    return int(found[0])


def beta_interval(mode, variances, level):
    """Intervals of probabilities from modes and variances of the logarithms of rates, by Laplace.

    A word with n of N tokens has the variance 1 / n. The interval is that of Clopper and Pearson for so many.
    Unlike the normal distribution of the logarithms it stays below 1, and near 3 / N, where a word has next
    to no tokens.
    """
    n = 1 / variances
    others = n * np.maximum((1 - mode) / mode, np.finfo(float).tiny)
    low = betaincinv(n, others + 1, (1 - level) / 2)
    return np.minimum(low, mode), np.maximum(betaincinv(n + 1, others, (1 + level) / 2), mode)


@dataclass(frozen=True, eq=False)
class WordTrajectories:
    """Probabilities of words in one topic, slice after slice.

    Attributes
    ----------
    topic : int
    slices : ndarray of shape (n_slices,)
        Labels, in their order.
    words : list of str
    probabilities, low, high : ndarrays of shape (n_slices, n_words)
    level : float
        Probability of the intervals from `low` to `high`.
    top_words : list of list of str
        The most probable words of the topic in each slice.
    """

    topic: int
    slices: np.ndarray
    words: list
    probabilities: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float
    top_words: list

    def __str__(self):
        n_slices = len(self.slices)
        chosen = np.unique(np.linspace(0, n_slices - 1, min(n_slices, _LISTED)).round().astype(int))
        names = [str(self.slices[t]) for t in chosen]
        width = max(map(len, names))
        rows = zip(names, chosen, strict=True)
        return "\n".join(
            [f"topic {self.topic}", *(f"{name:<{width}}  {' '.join(self.top_words[t])}" for name, t in rows)]
        )

    __repr__ = __str__

    def plot(self, ax: Any = None) -> Any:
        """Draw the words' probabilities over the slices, with bands.

        Parameters
        ----------
        ax : matplotlib axes, optional
            By default of a new figure of pyplot.

        Returns
        -------
        matplotlib axes

        Raises
        ------
        StradaskError
            If matplotlib is not installed.
        """
        from .plots import plot_words_over_time

        return plot_words_over_time(self, ax)
