"""The working set's own copies of its columns: scaled, weighted and, where they have no gaps, centred.

With weights w and an intercept, column j of W is ``a_j = sqrt(w) (2^e_j x_j - mean_j)``: the loss is then
plain least squares in A, with no weights and no intercept. The power of two brings a column's largest value
into [1/2, 1), which is exact, lets float32 hold it and keeps squares from overflowing.

A sparse copy stays as it is, and its products are corrected with its mean. But a column with nearly every row
stored may be far from zero, where it hardly differs from a constant: its copy gets the few rows that it lacks
and is centred like a dense one, so that it keeps its digits and descent its speed.

Memory, in bytes: dense 4 n a column, and 8 n more for columns whose products are laid out (see `gram`);
sparse 12 (above 2^31 rows 16) an entry; 48 a column in both.
"""

import numpy as np

from ....kernels.linear import columns as kernels
from ..sparse.columns import CONSTANT, SparseColumns, row_index_type

_NEARLY = 0.9  # part of the rows from which on a sparse column that is centred gets the others


def copies_of(is_sparse, n_rows, roots, centre, corrected=True):
    """Make an empty set of copies.

    `roots`: float64 (n_rows,) or (0,); square roots of the weights; empty if all are 1. `corrected`: False
    leaves sparse columns that lack many rows without centring.
    """
    if is_sparse:
        return SparseCopies(n_rows, roots, centre, corrected)
    return DenseCopies(n_rows, roots, centre)


class _Copies:
    """Scales, means and norms of the copied columns.

    Attributes: `scales`: float64 (m,); powers of two by which the raw columns were multiplied: a coefficient
    of the copies times its scale is one of X. `means`: float64 (m,); weighted means of the scaled columns; 0
    of those that are not centred. `norms`: float64 (m,); squared norms of the (centred) columns.
    """

    def __init__(self, n_rows, roots, centre):
        self.n_rows, self.roots, self.centre = n_rows, roots, centre
        self.scales, self.means, self.norms = np.empty(0), np.empty(0), np.empty(0)
        self.total_weight = float(roots @ roots) if len(roots) else float(n_rows)

    def __len__(self):
        return len(self.norms)

    def _admit(self, columns, positions):
        """Scales of new columns; empty arrays for their means and norms, which the caller fills."""
        exponents = np.frexp(columns.largest(positions))[1]
        scales = np.ldexp(1.0, -np.clip(exponents, -1000, 1000))
        means, norms = np.zeros(len(positions)), np.zeros(len(positions))
        return scales, means, norms

    def _keep(self, scales, means, norms):
        self.scales = np.concatenate([self.scales, scales])
        self.means = np.concatenate([self.means, means])
        self.norms = np.concatenate([self.norms, norms])


class DenseCopies(_Copies):
    """Copies of dense columns: float32 always, float64 on demand."""

    is_sparse = False

    def __init__(self, n_rows, roots, centre):
        super().__init__(n_rows, roots, centre)
        self._buffer32 = np.empty((n_rows, 0), np.float32, order="F")
        self._members = np.empty((n_rows, 0), order="F")
        self._sources = []

    def admit(self, columns, positions):
        """Append the columns ``columns[positions]``."""
        first = len(self)
        scales, means, norms = self._admit(columns, positions)
        self._buffer32 = _enlarged(self._buffer32, first, first + len(positions))
        kernels.dense_take(
            columns.X.T, positions, scales, self.roots, self.centre, self._buffer32.T, first, means, norms
        )
        self._keep(scales, means, norms)
        if self._sources and self._sources[-1][0] is columns:
            self._sources[-1][1] = np.concatenate([self._sources[-1][1], positions])
        else:
            self._sources.append([columns, positions, first])

    @property
    def single(self):
        """float32 ndarray of shape (n_rows, m), Fortran-ordered."""
        return self._buffer32[:, : len(self)]

    def _copied(self, buffer, used, chosen):
        """Append float64 copies of the columns `chosen` to a buffer."""
        size = used + len(chosen)
        buffer = _enlarged(buffer, used, size)
        ignored = np.empty(len(chosen))
        for columns, positions, start in self._sources:
            here = np.flatnonzero((chosen >= start) & (chosen < start + len(positions)))
            for run in np.split(here, np.flatnonzero(np.diff(here) != 1) + 1):
                if len(run):
                    kernels.dense_take(
                        columns.X.T, positions[chosen[run] - start], self.scales[chosen[run]], self.roots,
                        self.centre, buffer.T, used + run[0], ignored, ignored,
                    )  # fmt: skip
        return buffer, size

    def dot(self, v, chosen=None):
        """``A^T v`` in float64, or of the columns `chosen`: ndarray of shape (m,)."""
        if chosen is None:
            chosen = np.arange(len(self))
        out = np.empty((1, len(chosen)))
        weighted = v * self.roots if len(self.roots) else v
        for columns, positions, start in self._sources:
            here = np.flatnonzero((chosen >= start) & (chosen < start + len(positions)))
            out[0, here] = columns.dot(positions[chosen[here] - start], weighted[None])[0]
        return out[0] * self.scales[chosen] - self.means[chosen] * weighted.sum()

    def add(self, chosen, coef, out):
        """Add ``A[:, chosen] @ coef`` to the float64 vector `out`."""
        total, scaled = np.zeros(self.n_rows), coef * self.scales[chosen]
        for columns, positions, start in self._sources:
            here = (chosen >= start) & (chosen < start + len(positions))
            kernels.dense_add(columns.X.T, positions[chosen[here] - start], scaled[here], total)
        total -= self.means[chosen] @ coef
        out += total * self.roots if len(self.roots) else total

    def products(self, new, members):
        """``A[:, new]^T A[:, members]`` in float64.

        `new`: int64 ndarray; columns that were never in `members` before; they are its last. `members`: int64
        ndarray; those of the last call, and `new`. Returns array (len(new), len(members)).
        """
        known = len(members) - len(new)
        self._members, _ = self._copied(self._members, known, new)
        return self._members[:, known : len(members)].T @ self._members[:, : len(members)]

    def products_cost(self, new, members):
        """Seconds that `products` is likely to take, as measured on one core; only ratios matter."""
        return 2.0 * self.n_rows * len(new) * (len(members) + len(new)) / 4e10

    def gram(self, chosen):
        """``A[:, chosen]^T A[:, chosen]`` in float64."""
        A, _ = self._copied(np.empty((self.n_rows, 0), order="F"), 0, chosen)
        return A[:, : len(chosen)].T @ A[:, : len(chosen)]


class SparseCopies(_Copies):
    """Copies of CSC columns in one compact CSC matrix.

    Attributes: `shifts`: float64 (m,); what is still to be subtracted from each column: its mean, or 0 where
    the copy is centred.
    """

    is_sparse = True

    def __init__(self, n_rows, roots, centre, corrected):
        super().__init__(n_rows, roots, centre)
        self.corrected, self.shifts = centre and corrected, np.empty(0)
        self.indptr = np.zeros(1, np.int64)
        self._data = np.empty(0)
        self._indices = np.empty(0, row_index_type(n_rows))

    @property
    def data(self):
        """float64 ndarray: values, times scale and root of the weight."""
        return self._data[: self.indptr[-1]]

    @property
    def indices(self):
        """Rows of the values."""
        return self._indices[: self.indptr[-1]]

    def admit(self, columns, positions):
        """Append the columns ``columns[positions]``."""
        scales, sums, norms = self._admit(columns, positions)
        if self.centre:
            columns, positions = _completed(columns, positions)
        first, lengths = self.indptr[-1], columns.lengths(positions)
        indptr = np.empty(len(positions) + 1, np.int64)
        indptr[0] = first
        size = first + lengths.sum()
        self._data = _longer(self._data, first, size)
        self._indices = _longer(self._indices, first, size)
        kernels.csc_take(
            columns.data,
            columns.indices,
            columns.indptr,
            positions,
            scales,
            self.roots,
            self._data,
            self._indices,
            indptr,
            sums,
            norms,
        )
        self.indptr = np.concatenate([self.indptr, indptr[1:]])
        shifts = np.zeros(len(positions))
        if self.corrected:
            shifts = sums / self.total_weight
            centred = norms - sums * shifts
            norms = np.where(centred > CONSTANT * norms, centred, 0.0)
        means = shifts.copy()
        for i in np.flatnonzero(lengths == self.n_rows) if self.centre else ():
            source = columns.data[columns.indptr[positions[i]] :][: self.n_rows]
            means[i], norms[i] = self._centre(slice(indptr[i], indptr[i + 1]), source * scales[i])
            shifts[i] = 0.0
        self.shifts = np.concatenate([self.shifts, shifts])
        self._keep(scales, means, norms)

    def _centre(self, entries, values):
        """Store the values of a column, one a row, less their mean; return it and the squared norm."""
        roots = self.roots[self._indices[entries]] if len(self.roots) else np.ones(self.n_rows)
        values = values.astype(np.float64)
        shift = values[np.argmax(roots > 0)]  # a column far from zero keeps its digits
        mean = shift + roots * roots @ (values - shift) / self.total_weight
        self._data[entries] = centred = (values - mean) * roots
        return mean, centred @ centred

    def dot(self, v, chosen=None):
        """See `DenseCopies.dot`."""
        if chosen is None:
            chosen = np.arange(len(self))
        out = np.empty((1, len(chosen)))
        kernels.csc_dot(self.data, self.indices, self.indptr, chosen, v[None], out)
        if self.corrected:
            out[0] -= self.shifts[chosen] * (v @ self.roots if len(self.roots) else v.sum())
        return out[0]

    def add(self, chosen, coef, out):
        """Add ``A[:, chosen] @ coef`` to the float64 vector `out`."""
        kernels.csc_add(self.data, self.indices, self.indptr, chosen, coef, out)
        if self.corrected:
            shift = self.shifts[chosen] @ coef
            out -= shift * self.roots if len(self.roots) else shift

    def products(self, new, members):
        """See `DenseCopies.products`."""
        out = np.zeros((len(new), len(members)))
        kernels.csc_products(self.data, self.indices, self.indptr, new, members, self.n_rows, out)
        if self.corrected:
            out -= self.total_weight * np.outer(self.shifts[new], self.shifts[members])
        return out

    def products_cost(self, new, members):
        """See `DenseCopies.products_cost`."""
        lengths = np.diff(self.indptr)
        fresh = lengths[new].sum()
        known = lengths[members].sum() + fresh
        return 6e-9 * known + 3e-9 * fresh * known / self.n_rows

    def gram(self, chosen):
        """See `DenseCopies.gram`."""
        return self.products(chosen, chosen)


def _completed(columns, positions):
    """Return columns and positions of the same columns, those that lack few rows with zeros stored there."""
    n_rows, lengths = columns.shape[0], columns.lengths(positions)
    nearly = lengths >= _NEARLY * n_rows
    if (lengths[nearly] == n_rows).all():
        return columns, positions
    data, rows, starts = columns.take(positions)
    ends = np.cumsum(np.where(nearly, n_rows, lengths))
    indptr = np.concatenate([[0], ends])
    places = np.arange(len(rows)) + np.repeat(indptr[:-1] - starts[:-1], lengths)
    stored = np.repeat(nearly, lengths)
    places[stored] = np.repeat(indptr[:-1], lengths)[stored] + rows[stored]
    filled, indices = np.zeros(ends[-1], data.dtype), np.empty(ends[-1], rows.dtype)
    filled[places], indices[places] = data, rows
    for first in indptr[:-1][nearly]:
        indices[first : first + n_rows] = np.arange(n_rows)
    return SparseColumns(filled, indices, indptr, n_rows), np.arange(len(positions))


def _enlarged(block, used, size):
    """`block` with at least `size` columns, the first `used` of them kept.

    Most of the buffer is never touched, and costs nothing until it is.
    """
    if block.shape[1] >= size:
        return block
    larger = np.empty((block.shape[0], 4 * size), block.dtype, order="F")
    larger[:, :used] = block[:, :used]
    return larger


def _longer(vector, used, size):
    """`vector` with capacity for at least `size` values, the first `used` of them kept."""
    if len(vector) >= size:
        return vector
    larger = np.empty(max(size, 2 * len(vector)), vector.dtype)
    larger[:used] = vector[:used]
    return larger
