"""Products of the columns of a sparse table of users and items, and scores of users by weights of items.

A table is given twice, by item and by user: ``indptr``, ``indices``, ``data`` of its CSC and of its CSR form.
Values are above zero, so that a sum of products is zero for items without a common user alone.
"""

import numba as nb
import numpy as np

from ..options import INNER, KERNEL


@nb.njit(**KERNEL, **INNER)
def _add_up(j, by_item, by_user, totals, touched):
    """Add the products of item j with all items to `totals`; return how many it has, listed in `touched`."""
    starts, users, values = by_item
    ends, items, others = by_user
    n = 0
    for a in range(starts[j], starts[j + 1]):
        u, x = users[a], np.float64(values[a])
        for b in range(ends[u], ends[u + 1]):
            i = items[b]
            if totals[i] == 0.0:
                touched[n] = i
                n += 1
            totals[i] += x * others[b]
    return n


@nb.njit(**KERNEL)
def count_products(first, last, by_item, by_user, counts):
    """Count the items that have a user in common with each of a range of items."""
    n_items = len(by_item[0]) - 1
    mark = np.full(n_items, -1, np.int64)
    for j in range(first, last):
        n = 0
        for a in range(by_item[0][j], by_item[0][j + 1]):
            u = by_item[1][a]
            for b in range(by_user[0][u], by_user[0][u + 1]):
                i = by_user[1][b]
                if mark[i] != j:
                    mark[i] = j
                    n += 1
        counts[j] = n


@nb.njit(**KERNEL)
def fill_products(first, last, by_item, by_user, indptr, indices, data):
    """Fill the rows of a range of items of the Gram matrix; columns in no order."""
    n_items = len(by_item[0]) - 1
    totals, touched = np.zeros(n_items), np.empty(n_items, np.int32)
    for j in range(first, last):
        n = _add_up(j, by_item, by_user, totals, touched)
        at = indptr[j]
        for k in range(n):
            indices[at + k], data[at + k] = touched[k], totals[touched[k]]
            totals[touched[k]] = 0.0


@nb.njit(**KERNEL)
def fill_dense_products(first, last, by_item, by_user, G):
    """Fill the rows of a range of items of the dense Gram matrix, which is zero before."""
    n_items = len(by_item[0]) - 1
    touched = np.empty(n_items, np.int32)
    for j in range(first, last):
        _add_up(j, by_item, by_user, G[j], touched)


@nb.njit(**KERNEL)
def nearest_items(first, last, by_item, by_user, norms, shrinkage, indices, similarities):
    """Find the items of highest similarity to each of a range of items, itself left out.

    The similarity is the product over ``norms[i] * norms[j] + shrinkage``. Fills ``indices[j]`` (-1 for none)
    and ``similarities[j]``, in falling order; ties go to the lower number.
    """
    n_items, k = len(by_item[0]) - 1, indices.shape[1]
    totals, touched = np.zeros(n_items), np.empty(n_items, np.int32)
    for j in range(first, last):
        n = _add_up(j, by_item, by_user, totals, touched)
        row, values = indices[j], similarities[j]
        row[:], values[:] = -1, 0.0
        for t in range(n):
            i = touched[t]
            value = totals[i] / (norms[i] * norms[j] + shrinkage)
            totals[i] = 0.0
            last_value = values[k - 1]
            if i == j or value < last_value or (value == last_value and not (0 <= i < row[k - 1])):
                continue
            at = k - 1
            while at > 0 and (
                row[at - 1] < 0 or value > values[at - 1] or (value == values[at - 1] and i < row[at - 1])
            ):
                row[at], values[at] = row[at - 1], values[at - 1]
                at -= 1
            row[at], values[at] = i, value


@nb.njit(**KERNEL)
def gather_products(members, first, indptr, indices, data, position, out):
    """Gather the Gram matrix of some items from its sparse rows; that of those before `first` is there.

    `position` is -1 for all items, and is so again at the end.
    """
    m = len(members)
    for k in range(m):
        position[members[k]] = k
    for k in range(first, m):
        out[k, :] = 0.0
        for a in range(indptr[members[k]], indptr[members[k] + 1]):
            if position[indices[a]] >= 0:
                out[k, position[indices[a]]] = data[a]
        for other in range(first):
            out[other, k] = out[k, other]
    for k in range(m):
        position[members[k]] = -1


@nb.njit(**KERNEL)
def subtract_products(members, coefs, indptr, indices, data, slopes):
    """Subtract the rows of some items of the sparse Gram matrix, times their coefficients, from `slopes`."""
    for k in range(len(members)):
        if coefs[k] != 0.0:
            for a in range(indptr[members[k]], indptr[members[k] + 1]):
                slopes[indices[a]] -= coefs[k] * data[a]


@nb.njit(**KERNEL)
def sparse_scores(first, last, users, weights, out):
    """Score all items for a range of users: the sum of the rows of sparse weights times the user's values."""
    for u in range(first, last):
        row = out[u - first]
        row[:] = 0.0
        for a in range(users[0][u], users[0][u + 1]):
            x, i = users[2][a], users[1][a]
            for b in range(weights[0][i], weights[0][i + 1]):
                row[weights[1][b]] += x * weights[2][b]


@nb.njit(**KERNEL)
def dense_scores(first, last, users, weights, out):
    """As `sparse_scores`, of a dense table of weights."""
    for u in range(first, last):
        row = out[u - first]
        row[:] = 0.0
        for a in range(users[0][u], users[0][u + 1]):
            x, other = users[2][a], weights[users[1][a]]
            for j in range(len(row)):
                row[j] += x * other[j]
