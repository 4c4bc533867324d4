r"""Scores of columns without reading most of them: bounds that are carried from round to round.

Write the new vector as v' = c v + d, with the c that makes d least. With m_j the mean of column j,

.. math:: |x_j \cdot v'| \le |c| \, |x_j \cdot v| + \|x_j - m_j\| \, \|d\| + |m_j| \, |\sum_i d_i|

so a column whose bound stays below the threshold need not be multiplied. Nothing is given up: every column
above the threshold is found. On a path of many penalties v moves little and few columns are read; a fit
that is done in a few rounds never asks for norms.
"""

from typing import Any

import numpy as np

_BLOCK = 1 << 16  # columns scored at a time
_PATIENCE = 3  # whole passes before norms, which cost about one, are worth their price
_NEAR = 0.99  # columns whose bound is above this part of the threshold are read too
_SLACK = 1 + 1e-9  # on differences, for their rounding
_SINGLE = (1 + 1e-6, 1e-37)  # on norms and means, which are kept in float32: never less than they are


class Scores:
    """The scoring passes over a range of columns.

    Memory: 16 bytes a column, from the third whole pass on; less than 4 MB while they are scored.

    `columns`: DenseColumns or SparseColumns. `factors`: float64 ndarray or None; of the penalty, for these
    columns; those with infinite ones are never read. `positive`: only slopes above zero count.
    """

    def __init__(self, columns, factors, positive):
        self.columns, self.factors, self.positive = columns, factors, positive
        self._excluded = np.empty(0, np.int64) if factors is None else np.flatnonzero(np.isinf(factors))
        self._passes = 0
        self._vectors: Any = None  # those of the last pass
        self._bounds: Any = None

    def most(self, vectors, working):
        """Return the largest score outside a working set, every column being read."""
        outside = np.ones(self.columns.shape[1], bool)
        outside[working] = False
        outside[self._excluded] = False
        return float(self._read(np.flatnonzero(outside), vectors).max(initial=0.0))

    def find(self, request, working):
        """Find the columns outside the working set with the largest scores.

        `working`: int64 ndarray; columns of the working set. Returns `bound`: no score is above it: the
        largest score, or a little less than the threshold if that is more. `found`: int64 ndarray; columns
        with scores above the threshold, by falling score, ties by rising number. `scores`: float64 ndarray.
        """
        vectors, threshold = request["v"], request["threshold"]
        bounded = self._bounds is not None
        if bounded:
            self._widen(vectors)
        else:
            self._passes += 1
            if self._passes == _PATIENCE:
                self._begin(vectors)
        # The same whether or not columns were passed over: a shard that was lost begins anew. It lies below
        # the threshold, lest it limits the dual point where no column does.
        bound, found = _NEAR * threshold, []
        for first in range(0, self.columns.shape[1], _BLOCK):
            read = self._to_read(first, working, threshold if bounded else None)
            scores = self._read(read, vectors)
            if self._bounds is not None:
                self._bounds[read] = scores
            bound = max(bound, float(scores.max(initial=0.0)))
            above = np.flatnonzero(scores > threshold)
            found.append((read[above], scores[above]))
        columns, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
        best = largest(scores, threshold, request["count"])
        return bound, columns[best], scores[best]

    def _to_read(self, first, working, threshold):
        """Columns of a block outside the working set; those whose bounds are low are left out."""
        last = min(first + _BLOCK, self.columns.shape[1])
        if threshold is None and not len(working) and not len(self._excluded):
            return np.arange(first, last)
        outside = np.ones(last - first, bool)
        for left in (working, self._excluded):
            outside[left[np.searchsorted(left, first) : np.searchsorted(left, last)] - first] = False
        if threshold is not None:  # written so that a bound that is no number is read
            outside &= ~(self._bounds[first:last] <= _NEAR * threshold)
        return np.flatnonzero(outside) + first

    def _read(self, read, vectors):
        slopes = self.columns.dot(read, vectors)
        sizes = np.maximum(slopes, 0.0, out=slopes) if self.positive else np.abs(slopes, out=slopes)
        scores = sizes[0] if len(sizes) == 1 else sizes.max(axis=0)
        return scores if self.factors is None else scores / self.factors[read]

    def _widen(self, vectors):
        """Let every bound follow the vectors; c is not below 0, for scores that are slopes with a sign."""
        old = self._vectors
        square = np.vdot(old, old)
        c = max(np.vdot(old, vectors) / square, 0.0) if square > 0 else 0.0
        rest = vectors - c * old
        step = np.sqrt(np.einsum("ij,ij->i", rest, rest)).max() * _SLACK
        drift = np.abs(rest.sum(axis=1)).max() * _SLACK
        with np.errstate(invalid="ignore", over="ignore"):  # bounds that are infinite, or no number, are read
            self._bounds *= c * _SLACK
            self._bounds += np.multiply(self._norms, step, dtype=np.float64)
            if drift:
                self._bounds += np.multiply(self._means, drift, dtype=np.float64)
        self._vectors = vectors

    def _begin(self, vectors):
        """Begin to carry bounds."""
        self._means, self._norms = map(self._widened, self.columns.norms())
        self._bounds = np.full(self.columns.shape[1], np.inf)
        self._vectors = vectors

    def _widened(self, sizes):
        """Means or norms in units of the factors, rounded up to float32."""
        sizes = np.abs(sizes, out=sizes)
        if self.factors is not None:
            sizes /= np.where(self.factors > 0, self.factors, 1.0)  # others are in the working set
        with np.errstate(over="ignore"):  # what is too large for float32 is infinite, and read
            return (sizes * _SINGLE[0] + _SINGLE[1]).astype(np.float32)


def largest(scores, threshold, count):
    """Positions of the `count` largest scores above a threshold, falling; ties by rising position."""
    above = np.flatnonzero(scores > threshold)
    if len(above) > count:
        least = np.partition(scores[above], len(above) - count)[len(above) - count]
        above = above[scores[above] >= least]
    return above[np.lexsort((above, -scores[above]))][:count]
