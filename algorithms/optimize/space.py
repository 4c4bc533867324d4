"""Vector spaces: the operations of the optimisers, for local and sharded vectors."""

import itertools

import numpy as np

from ...errors import DataError, in_brief, shortened


class LocalRows:
    """n vectors kept together, so that one product with all of them reads memory once."""

    def __init__(self, n, like):
        self.array = np.zeros((n, len(like)))
        self.used = np.zeros(n, bool)
        self._runs: list[slice] = []  # of rows that were set; the others' pages have never been touched

    def put(self, row, x):
        """Set a row."""
        self.array[row] = x
        if not self.used[row]:
            self.used[row] = True
            self._find_runs()

    def fill(self, array, used):
        """Set all rows, and which of them count."""
        self.array[:], self.used[:] = array, used
        self._find_runs()

    def dots(self, x):
        """Scalar products of all rows with x."""
        products = np.zeros(len(self.array))
        for part in self._runs:
            products[part] = self.array[part] @ x
        return products

    def combine(self, weights, a, x):
        """Return a x plus the sum of all rows, each times its weight."""
        total = a * x
        for part in self._runs:
            total += weights[part] @ self.array[part]
        return total

    def _find_runs(self):
        used = [False, *self.used.tolist(), False]
        edges = [row for row, (before, now) in enumerate(itertools.pairwise(used)) if before != now]
        self._runs = [slice(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True)]


class LocalSpace:
    """Operations on vectors of one length: here numpy arrays of this process.

    A vector is an object that only its space understands; none of these methods changes one. The optimisers
    themselves see scalars only. `stradask.algorithms.optimize.sharded` has vectors in slices on workers.
    """

    def dots(self, pairs):
        """Scalar products of pairs of vectors."""
        return np.array([x @ y for x, y in pairs])

    def axpy(self, a, x, y):
        """a x + y."""
        return a * x + y

    def scale(self, a, x):
        """a x."""
        return a * x

    def rows(self, n, like):
        """Room for n vectors, zero at first, as long as `like`; see `LocalRows`."""
        return LocalRows(n, like)

    # Further needs of OWL-QN; `l1` is a float or a vector of weights -------------------------------

    def weights(self, l1, like):
        """Bring a float, or an array of one weight a coordinate, to the form that the methods below take."""
        return l1 if np.ndim(l1) == 0 else np.asarray(l1, np.float64)

    def penalty(self, x, l1):
        """sum_j l1_j |x_j|."""
        return float(np.sum(l1 * np.abs(x)))

    def pseudo_gradient(self, x, g, l1):
        """The subgradient of smallest norm of f + l1 |x|, where f has the gradient g."""
        return np.where(x != 0, g + l1 * np.sign(x), np.sign(g) * np.maximum(np.abs(g) - l1, 0))

    def aligned(self, d, pg):
        """d, with zeros where it does not go down: where d_j pg_j >= 0."""
        return np.where(d * pg < 0, d, 0.0)

    def orthant_step(self, x, t, d, pg, l1):
        """x + t d, with zeros where it left the orthant sign(x), or -sign(pg) where x is 0."""
        orthant = np.where(x != 0, np.sign(x), -np.sign(pg))
        reached = x + t * d
        reached[(reached * orthant <= 0) & (np.asarray(l1) > 0)] = 0.0
        return reached


def as_numbers(name, values):
    """Return anything that holds real numbers as an array of float64."""
    try:
        values = np.asarray(values)
        if values.dtype.kind not in "buif":
            raise TypeError(f"its type is {values.dtype}")
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be real numbers, got {shortened(values)}: {in_brief(error)}") from error
    return values.astype(np.float64, copy=False)


def checked_start(x0):
    """Return a start as a vector of float64 of its own."""
    x = as_numbers("x0", x0).copy()
    if x.ndim != 1 or not len(x):
        raise DataError(f"x0 must be a vector of at least one number, got the shape {x.shape}")
    if not np.isfinite(x).all():
        at = int(np.flatnonzero(~np.isfinite(x))[0])
        raise DataError(f"x0 must be finite, but x0[{at}] is {x[at]}")
    return x
