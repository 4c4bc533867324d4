"""Anderson extrapolation of the iterates of coordinate descent.

References
----------
Bertrand, Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
"""

import numpy as np


def mixed(history, positive):
    """Combine iterates so that the combination of their steps is as short as can be.

    Parameters
    ----------
    history : list of float64 ndarray of shape (m,)
        The last iterates, oldest first.
    positive : bool
        Cut the result at zero.

    Returns
    -------
    float64 ndarray of shape (m,) or None
        None if the iterates do not move, or move so alike that there is no finite combination.
    """
    points = np.array(history)
    steps = np.diff(points, axis=0)
    products = steps @ steps.T
    trace = np.trace(products)
    if not trace > 0:
        return None
    products.flat[:: len(products) + 1] += 1e-12 * trace
    try:
        mix = np.linalg.solve(products, np.ones(len(products)))
    except np.linalg.LinAlgError:
        return None
    b = (mix / mix.sum()) @ points[1:]
    if not np.isfinite(b).all():
        return None
    return np.maximum(b, 0.0) if positive else b
