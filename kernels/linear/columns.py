"""Products with single columns of a dense or CSC matrix.

Dense matrices come turned, `XT`, a column a row, C-ordered: of a Fortran-ordered one that is a view, and a
single column is then of the same type to numba as many. It would be C-ordered in X as well, for which the
kernels would be compiled anew, and round otherwise.

The dot products of a column do not depend on which other columns are asked for: a shard of columns
gives the same bits as the whole matrix. Sums are reassociated by the compiler, so that they run in
vectors, but NaN and infinity keep their meaning.
"""

from typing import Any

import numba as nb

from ..indexing import at, span
from ..options import KERNEL

FAST = {"nsz", "arcp", "contract", "afn", "reassoc"}
_SUMS: dict[str, Any] = {**KERNEL, "fastmath": FAST}
_IN_ORDER: dict[str, Any] = {**KERNEL, "fastmath": {"nsz", "contract"}}


@nb.njit(**_SUMS)
def dense_dot(XT, columns, V, out):
    """Fill ``out[k, i] = X[:, columns[i]] . V[k]``, four columns at a time.

    The last group repeats its last column: every column goes through the same code.
    """
    n, m = XT.shape[1], len(columns)
    for start in range(0, m, 4):
        i1, i2, i3 = min(start + 1, m - 1), min(start + 2, m - 1), min(start + 3, m - 1)
        x0, x1, x2, x3 = XT[columns[start]], XT[columns[i1]], XT[columns[i2]], XT[columns[i3]]
        for k in range(len(V)):
            v = V[k]
            a0 = a1 = a2 = a3 = v[0] * 0
            for row in range(n):
                a0 += x0[row] * v[row]
                a1 += x1[row] * v[row]
                a2 += x2[row] * v[row]
                a3 += x3[row] * v[row]
            out[k, start] = a0
            out[k, i1] = a1
            out[k, i2] = a2
            out[k, i3] = a3


@nb.njit(**_SUMS)
def csc_dot(data, indices, indptr, columns, V, out):
    """Fill ``out[k, i] = X[:, columns[i]] . V[k]``."""
    for i in range(len(columns)):
        entries = span(indptr, columns[i])
        for k in range(len(V)):
            v = V[k]
            total = 0.0
            for e in entries:
                total += data[e] * v[at(indices[e])]
            out[k, i] = total


@nb.njit(**_IN_ORDER)
def dense_add(AT, columns, coef, out):
    """Add ``A[:, columns] @ coef`` to `out`, four columns at a time.

    One column is added after the other, so that the bits are those of several calls with a few columns each.
    """
    n, m = AT.shape[1], len(columns)
    i = 0
    while i + 4 <= m:
        x0, x1, x2, x3 = AT[columns[i]], AT[columns[i + 1]], AT[columns[i + 2]], AT[columns[i + 3]]
        b0, b1, b2, b3 = coef[i], coef[i + 1], coef[i + 2], coef[i + 3]
        for row in range(n):
            out[row] = out[row] + b0 * x0[row] + b1 * x1[row] + b2 * x2[row] + b3 * x3[row]
        i += 4
    while i < m:
        x0, b0 = AT[columns[i]], coef[i]
        for row in range(n):
            out[row] += b0 * x0[row]
        i += 1
