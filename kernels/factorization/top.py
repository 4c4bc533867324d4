"""The best columns of each row of scores."""

import numba as nb
import numpy as np


@nb.njit(nogil=True, cache=True, error_model="numpy")
def best_columns(scores, columns, values):
    """Find the highest scores of each row, in falling order; ties go to the first column.

    `scores` is (m, n), -inf is skipped; fills `columns` (int64) and `values`, both (m, k), with -1 and -inf
    where a row has fewer scores.
    """
    m, n = scores.shape
    k = columns.shape[1]
    for i in range(m):
        columns[i, :] = -1
        values[i, :] = -np.inf
        for j in range(n):
            score = scores[i, j]
            if not score > values[i, k - 1]:
                continue
            at = k - 1
            while at > 0 and score > values[i, at - 1]:
                values[i, at] = values[i, at - 1]
                columns[i, at] = columns[i, at - 1]
                at -= 1
            values[i, at] = score
            columns[i, at] = j


@nb.njit(nogil=True, cache=True, error_model="numpy")
def merge_best(scores, rows, numbers, columns, values):
    """Put scores of some more columns among the highest so far; of equal scores the smaller number is first.

    `scores` is (m, n), of the `rows` (m,) of `columns` (int64) and `values`, both (users, k), and of columns
    of these `numbers` (n,). -inf is skipped; rows begin with -1 and -inf.
    """
    m, n = scores.shape
    k = columns.shape[1]
    for i in range(m):
        row = rows[i]
        for j in range(n):
            score = scores[i, j]
            if not score >= values[row, k - 1] or score == -np.inf:
                continue
            number = numbers[j]
            at = k
            while at > 0 and (
                score > values[row, at - 1]
                or (score == values[row, at - 1] and number < columns[row, at - 1])
            ):
                if at < k:
                    values[row, at] = values[row, at - 1]
                    columns[row, at] = columns[row, at - 1]
                at -= 1
            if at < k:
                values[row, at] = score
                columns[row, at] = number
