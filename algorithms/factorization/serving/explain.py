"""Which of a user's ratings drive a prediction."""

import numpy as np


def driving_ratings(entries, columns, sides, settings, n, rated=None):
    """Find the n ratings that add most to the prediction of one item (`columns`) for each row.

    Returns the numbers of rated items (n_rows, n), the largest addition first, -1 for none; and the
    additions, -inf for none. `rated` are the items in the sums of implicit feedback, by default all.
    """
    Q = sides.item_factors.astype(np.float64)
    present = Q if rated is None else Q[rated]
    gram = present.T @ present if settings.implicit else 0.0
    if settings.bias:
        Q = np.column_stack([Q, np.ones(len(Q))])
    items = np.full((len(columns), n), -1)
    amounts = np.full((len(columns), n), -np.inf)
    ridge, bias_ridge = settings.ridges(entries.counts, np.float64, 0)
    for u, column in enumerate(columns):
        row = entries.part(u, u + 1)
        q, values = Q[row.indices], row.values.astype(np.float64)
        if settings.implicit:
            weights, pulls = np.abs(values) - 1, np.maximum(values, 0)
        else:
            weights = np.ones(len(values))
            pulls = values - sides.mean - sides.item_bias[row.indices]
        A = q.T @ (weights[:, None] * q) + gram + ridge[u] * np.eye(Q.shape[1])
        if settings.bias:
            A[-1, -1] += bias_ridge[u] - ridge[u]
        adds = pulls * (q @ np.linalg.solve(A, Q[column]))
        order = np.argsort(-adds, kind="stable")[:n]
        items[u, : len(order)], amounts[u, : len(order)] = row.indices[order], adds[order]
    return items, amounts
