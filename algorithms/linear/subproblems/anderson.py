"""Anderson extrapolation of the iterates of coordinate descent.

References
----------
Bertrand, Massias, "Anderson acceleration of coordinate descent", AISTATS 2021.
"""

import numpy as np

LENGTH = 5  # steps that an extrapolation combines


class Trail:
    """The last iterates, with what depends on them linearly (a residual, slopes).

    `b`: float64 (m,). `image`: float ndarray.
    """

    def __init__(self, b, image):
        self._points, self._images = [b.copy()], [image.copy()]

    def add(self, b, image):
        """Take one more iterate; return whether there are enough of them."""
        self._points.append(b.copy())
        self._images.append(image.copy())
        return len(self._points) > LENGTH

    def mixed(self):
        """Combine the iterates so that the same combination of their steps is as short as can be.

        Returns (ndarray, ndarray) or None; the point and its image; None if the iterates do not move, or
        there is no finite combination.
        """
        points = np.array(self._points)
        steps = np.diff(points, axis=0)
        products = steps @ steps.T
        trace = np.trace(products)
        if not trace > 0:
            return None
        products.flat[:: len(products) + 1] += 1e-12 * trace
        try:
            weights = np.linalg.solve(products, np.ones(len(products)))
        except np.linalg.LinAlgError:
            return None
        weights /= weights.sum()
        if not np.isfinite(weights).all():
            return None
        return weights @ points[1:], weights @ np.array(self._images[1:])
