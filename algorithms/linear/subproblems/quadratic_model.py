"""A smooth loss on a working set, to second order, and its penalty: it gives a proximal Newton direction.

With slopes g and the exact Hessian H at the present coefficients b0::

    min_b  -g.(b - b0) + (A (b - b0)) . H A (b - b0) / 2 + sum_j l1_j |b_j| + l2_j b_j^2 / 2

H couples the outputs of a row; descent goes through them in turn.
"""

import numpy as np

from ....kernels.linear.columns import csc_add, csc_dot, dense_add, dense_dot
from ....kernels.linear.weighted_descent import (
    FLAT,
    csc_descent,
    csc_weighted_gram,
    dense_descent,
    gram_descent,
)

_NEAR = 0.9  # columns at zero take part in a direction from this part of their threshold on
_SWEEPS = 3  # over the columns that take part, before conjugate gradients take over
_SUPPORT_SWEEPS = 10  # after each of them
_DIRECTION = 0.03  # a direction is good when changes (squared) are this part of the first ones
_DESCENTS = 3  # of `_SWEEPS`, with conjugate gradients between them, for a direction
_MOST_SPARSE, _MOST_DENSE = 200, 100  # columns for which their weighted products may be laid out,
_GRAM_WORK = 60  # for at most so many multiplications an entry of sparse columns
_GRAM_SWEEPS, _GRAM_TOL = 1000, 1e-6  # of the start: the model itself changes with the next step
_LEAST_CURVATURE = (
    1e-9  # directions of less curvature, relative to that of their coordinates, are not followed
)
# Inexact Newton: a third of the residual is enough far from the end.
_CONJUGATE_STEPS, _CONJUGATE_TOL = 40, 0.3


class QuadraticModel:
    """See the module.

    `shares`: float64 (n_outputs, n_rows); of b0. `copies`: DenseCopies or SparseCopies; A. `slopes`, `start`:
    float64 (n_outputs, m), g and b0. `l1`, `l2`: float64 (m,). `positive`: bool (m,). Attributes: `b`:
    float64 (n_outputs, m). `visits`: coordinates visited.
    """

    def __init__(self, loss, shares, copies, slopes, start, l1, l2, positive):
        self.loss, self.copies, self.slopes, self.b = loss, copies, slopes, start
        self.l1, self.l2, self.positive = l1, l2, positive
        self.visits = 0
        dtype = np.float64 if self.copies.is_sparse else np.float32
        self.shares = shares.astype(dtype, copy=False)
        self.V = np.zeros(self.shares.shape, dtype)  # A (b - b0)
        self.h = np.full(self.b.shape, -1.0)
        sizes = np.where(self.positive, self.slopes, np.abs(self.slopes))
        self.near = [np.flatnonzero(near) for near in (self.b != 0) | (sizes >= _NEAR * self.l1)]

    def minimise(self):
        """Descend until changes are small relative to the first ones."""
        bar = 0.0
        for _ in range(_DESCENTS):
            changes = np.array([self._descend(k, bar) for k in range(len(self.b))])
            bar = bar or _DIRECTION * changes.max()
            if (changes[:, 0 if len(self.b) > 1 else 1] <= bar).all():
                break
            self._newton()

    def _descend(self, k, bar):
        """Bring down the coefficients of an output; return the first and last sweep's largest changes."""
        D = self.loss.curvature(self.shares, k).astype(self.V.dtype, copy=False)
        q = self.loss.hessian(self.shares, self.V, k).astype(self.V.dtype, copy=False)
        near, before = self.near[k], self.b[k].copy()
        G = self._gram(near, D)
        if len(G):
            slopes = self.slopes[k, near] - self.backward(near, q)
            b, penalty = self.b[k, near], (self.l1[near], self.l2[near], self.positive[near])
            first, visits = gram_descent(G, slopes, b, *penalty, _GRAM_SWEEPS, _GRAM_TOL)
            self.b[k, near], self.h[k, near], last = b, G.diagonal(), 0.0
        else:
            vectors = (near, self.slopes[k], self.h[k], self.b[k], q, D, self.l1, self.l2, self.positive)
            limits = (_SWEEPS, _SUPPORT_SWEEPS, _DIRECTION, bar)
            sweeps = csc_descent if self.copies.is_sparse else dense_descent
            first, last, visits = sweeps(*self._arrays(), *vectors, *limits)
        self.visits += visits
        changed = np.flatnonzero(self.b[k] != before)
        self.forward(changed, self.b[k, changed] - before[changed], self.V[k])
        return first, last

    def _gram(self, near, D):
        """``A^T D A`` of the columns `near`, where that is cheaper than sweeps over them; else nothing."""
        if self.copies.is_sparse:
            if len(near) > _MOST_SPARSE:
                return ()
            return csc_weighted_gram(*self._arrays(), near, D, _GRAM_WORK)
        if len(near) > _MOST_DENSE:
            return ()
        rows = np.ascontiguousarray(self.copies.single.T[near])
        rows *= np.sqrt(D)
        return (rows @ rows.T).astype(np.float64)

    def _arrays(self):
        if self.copies.is_sparse:
            return self.copies.data, self.copies.indices, self.copies.indptr
        return (self.copies.single.T,)

    def _newton(self):
        """Minimise over the coefficients that are not zero, signs held."""
        face = _Face(self)
        change = face.solve()
        b = self.b[face.rows, face.columns]
        held = (self.l1[face.columns] > 0) | self.positive[face.columns]
        flips = held & ((b + change) * b < 0)
        change[flips] = -b[flips]
        moved = face.forward(change)
        if flips.any():
            curvature = change @ (face.backward(moved) + face.l2 * change)
            length = min(1.0, (face.right @ change) / curvature) if curvature > 0 else 0.0
            if length <= 0:
                return
            change *= length
            moved *= moved.dtype.type(length)
        self.b[face.rows, face.columns] = b + change
        self.V += moved
        self.visits += len(b)

    def forward(self, chosen, coef, out):
        """Add ``A[:, chosen] @ coef`` to a vector of the model."""
        if self.copies.is_sparse:
            csc_add(*self._arrays(), chosen, coef, out)
        else:
            dense_add(*self._arrays(), chosen, coef.astype(np.float32), out)

    def backward(self, chosen, v):
        """Products of the columns `chosen` with a vector of the model."""
        out = np.empty((1, len(chosen)))
        if self.copies.is_sparse:
            csc_dot(*self._arrays(), chosen, v[None], out)
        else:
            dense_dot(*self._arrays(), chosen, v.astype(np.float32, copy=False)[None], out)
        return out[0]


class _Face:
    """The coefficients of a model that are not zero and have curvature; their signs are held.

    Attributes: `rows`, `columns`: int64 (m,); their outputs and columns. `l2`, `right`: float64 (m,); `right`
    is minus the slope of the model, with its penalty.
    """

    def __init__(self, model):
        self.model = model
        self.supports = [np.flatnonzero((b != 0) & (h > FLAT)) for b, h in zip(model.b, model.h, strict=True)]
        sizes = [len(support) for support in self.supports]
        self.ends = np.cumsum(sizes)[:-1]
        self.rows, self.columns = np.repeat(np.arange(len(sizes)), sizes), np.concatenate(self.supports)
        b, self.l2 = model.b[self.rows, self.columns], model.l2[self.columns]
        slopes = model.slopes[self.rows, self.columns] - self.backward(model.V)
        self.right = slopes - model.l1[self.columns] * np.sign(b) - self.l2 * b

    def forward(self, z):
        """``A z``, one row an output."""
        out = np.zeros_like(self.model.V)
        for k, part in enumerate(np.split(z, self.ends)):
            self.model.forward(self.supports[k], part, out[k])
        return out

    def backward(self, V):
        """``A^T H V``."""
        model = self.model
        products = [model.loss.hessian(model.shares, V, k) for k in range(len(V))]
        return np.concatenate([model.backward(*pair) for pair in zip(self.supports, products, strict=True)])

    def solve(self):
        """Newton step on the face, by a few conjugate gradients."""
        diagonal = self.model.h[self.rows, self.columns] + self.l2
        rest, change = self.right.copy(), np.zeros_like(self.right)
        step = rest / diagonal
        size = first = rest @ step
        for _ in range(_CONJUGATE_STEPS):
            if size <= _CONJUGATE_TOL**2 * first:
                break
            product = self.backward(self.forward(step)) + self.l2 * step
            curvature = step @ product
            if curvature <= _LEAST_CURVATURE * (step @ (diagonal * step)):
                break
            length = size / curvature
            change += length * step
            rest -= length * product
            scaled = rest / diagonal
            size, old = rest @ scaled, size
            step = scaled + (size / old) * step
        return change
