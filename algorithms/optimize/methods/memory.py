"""The direction of L-BFGS from the pairs of the last steps: the recursion needs scalar products only.

The two-loop recursion is linear in the pairs s_i, y_i and the gradient g. Written in the basis
B = (s_1 .. s_m, y_1 .. y_m) it needs the matrix M = B B^T and the products B g, and gives the direction as
B^T delta + e g. A step s is t times the last direction, so B s follows from M, and B y is the change
of B g: each step reads B twice, for B g and for B^T delta, where the plain recursion reads it six times over.

References: Nocedal, "Updating quasi-Newton matrices with limited storage", Math. Comp. 1980; Chen, Wang,
Zhou, "Large-scale L-BFGS using MapReduce", NIPS 2014.
"""

import math
from typing import Any

import numpy as np

CURVED = 1e-10  # a pair is kept if s.y is at least this part of |s| |y|


class Memory:
    """The pairs of the last steps and their scalar products.

    `size`: pairs kept, at least 1.
    """

    def __init__(self, space, size):
        self.space, self.size = space, size
        self.products = np.zeros((2 * size, 2 * size))
        self.rows: Any = None
        self.clear()

    def clear(self):
        """Forget all pairs."""
        self.order: list[int] = []  # places of the pairs, the oldest first
        self._forget_direction()

    def _forget_direction(self):
        self.seen = None  # the gradient whose products with the rows are known
        self.with_seen = np.zeros(2 * self.size)
        self.delta, self.e = np.zeros(2 * self.size), -1.0

    def direction(self, g):
        """Return -H g, H the inverse Hessian that the pairs make; -g without any."""
        if not self.order:
            return self.space.scale(-1.0, g)
        if self.seen is not g:
            self.with_seen = self._live(self.rows.dots(g))
            self.seen = g
        self.delta, self.e = self._recursion(self.products, self.with_seen, self.order)
        return self.rows.combine(self.delta, self.e, g)

    def direction_within(self, g, free):
        """Return -H g, H made of the pairs' parts in the free coordinates; 0 in the others.

        `free`: bool (n,); for numpy vectors, whose space is `LocalSpace`.
        """
        part = np.where(free, g, 0.0)
        if not self.order:
            return -part
        rows = np.where(free, self.rows.array, 0.0)
        M, m = rows @ rows.T, self.size
        order = [
            k
            for k in self.order
            if M[m + k, m + k] > 0 and M[k, m + k] > CURVED * math.sqrt(M[k, k] * M[m + k, m + k])
        ]
        if not order:
            return -part
        delta, e = self._recursion(M, rows @ part, order)
        return e * part + delta @ rows

    def _recursion(self, M, bg, order):
        """The two loops over the pairs `order`: weights of the rows and of g, from products alone."""
        m = self.size
        delta, e, a = np.zeros(2 * m), -1.0, {}
        for i in reversed(order):
            a[i] = (delta @ M[:, i] + e * bg[i]) / M[i, m + i]
            delta[m + i] -= a[i]
        last = order[-1]
        gamma = M[last, m + last] / M[m + last, m + last]
        delta *= gamma
        e *= gamma
        for i in order:
            delta[i] += a[i] - (delta @ M[:, m + i] + e * bg[m + i]) / M[i, m + i]
        return delta, e

    def add(self, s, y, g, t=None):
        """Add a pair, unless it has too little curvature; return whether it was added.

        `s`, `y`: the step, and the change of the gradient. `g`: the gradient after it. `t`: if s is `t` times
        the last direction: its products with the pairs are then known.
        """
        ss, sy, yy, sg, yg = self.space.dots([(s, s), (s, y), (y, y), (s, g), (y, g)])
        if not (yy > 0 and sy > CURVED * math.sqrt(ss) * math.sqrt(yy)):
            return False
        if not (math.isfinite(sy / yy) and math.isfinite(ss / sy)):  # squares that underflow
            return False
        m, M = self.size, self.products
        if self.rows is None:
            self.rows = self.space.rows(2 * m, g)
        if t is None or self.seen is None:
            known, after = None, None
        else:
            after = self._live(self.rows.dots(g))
            known = t * (M @ self.delta + self.e * self.with_seen), after - self.with_seen
        k = self.order.pop(0) if len(self.order) == m else len(self.order)
        self.rows.put(k, s)
        self.rows.put(m + k, y)
        self.order.append(k)
        if known is None:
            known = self._live(self.rows.dots(s)), self._live(self.rows.dots(y))
        for row, products in zip((k, m + k), known, strict=True):
            M[row] = M[:, row] = products
        M[k, k], M[m + k, m + k] = ss, yy
        M[k, m + k] = M[m + k, k] = sy
        self._forget_direction()
        if after is not None:
            after[[k, m + k]] = sg, yg
            self.seen, self.with_seen = g, after
        return True

    def _live(self, products):
        """Blank the products with rows left from before `clear`."""
        live = np.zeros(2 * self.size, bool)
        live[self.order] = live[[self.size + k for k in self.order]] = True
        return np.where(live, products, 0.0)
