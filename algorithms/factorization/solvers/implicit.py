"""Implicit feedback: alternating least squares by a few conjugate gradients a row."""

import numpy as np
from scipy.linalg import eigh

from ....kernels.factorization.als import conjugate_rows, turn_rows
from ....kernels.factorization.lanes import LANES
from ....kernels.vector import aligned
from ....scheduler.threads import single_threaded_blas
from .als import AlternatingLeastSquares

_STEPS = 2  # of conjugate gradients a row and iteration; compared in docs/matrix-factorization.md

_LARGEST = 0.003  # of the initial factors, uniform from 0: compared there, too


class ImplicitFeedback(AlternatingLeastSquares):
    r"""Least squares over all cells, a few preconditioned conjugate gradients a row in place of its solution.

    The matrix of a row's normal equations is the Gram matrix G of all of the other side, the row's penalty,
    and the sum over its own cells. With :math:`G = V D V^T` each half of an iteration goes on in the
    coordinates :math:`V^T p`. There G costs a row K multiplications in place of :math:`K^2`, and
    :math:`D + \lambda` preconditions the steps: rows differ from it by their own cells alone. Rows are turned
    into these coordinates as products of matrices. They stay there, so that ``factors[side]`` are in the
    coordinates ``frames[side]``: those of the model are ``factors[side] @ frames[side].T``.

    A message about a side has its factors in the coordinates of its own Gram matrix, the axes V and D, and
    the turn from the other side's axes to these.

    Reference: Takács, Pilászy, Tikk, "Applications of the conjugate gradient method for implicit feedback
    collaborative filtering", RecSys 2011.
    """

    def __init__(self, entries, settings, seed, features=(None, None)):
        super().__init__(entries, settings, seed, features)
        self._axes = [None, None]
        self.frames = [np.eye(part.shape[1], dtype=part.dtype) for part in self.factors]

    def __getstate__(self):
        return {**super().__getstate__(), "_axes": None, "frames": None}

    def first_factors(self, rng, entries):
        """Draw factors; see `small_factors`."""
        return small_factors(rng, entries, self.settings.n_components)

    def update(self, state, task):
        """Move a shard's rows of a side; return their factors and biases, and the objective."""
        side = task.blocks
        own, other = state["sides"][side], state["sides"][1 - side]
        table, (a, b) = state["tables"][side], state["ranges"][side]
        pull, _ = self._pulls(table, own, (a, b), side)
        with single_threaded_blas():
            factors = turned(own["factors"][a:b], other["turn"], self.vectors)
            drawn = None if pull is None else pull @ other["axes"]
            loss = conjugate(table, factors, other["factors"], other["spectrum"], drawn, self.settings, side)
            return factors, own["biases"][a:b], loss

    def aggregate(self, tasks, partials):
        """Take the new rows of a side, which are in the axes of the other."""
        side = tasks[0].blocks
        frame = self._axes[1 - side][0]
        if self.priors[side] is None:
            self.frames[side] = frame
        else:  # features are of the model's coordinates, in which this side's frame stays
            with single_threaded_blas():
                partials = [(factors @ frame.T, *others) for factors, *others in partials]
        return super().aggregate(tasks, partials)

    def publish(self):
        """Message with both sides."""
        for side in (0, 1):
            self._axes[side] = self._principal_axes(side)
        return [(side, self._message(side)) for side in (0, 1)]

    def _values(self, side):
        self._axes[side] = self._principal_axes(side)
        return self._message(side)

    def _principal_axes(self, side):
        """Axes of the Gram matrix of a side in the model's coordinates and in its frame, and the squares.

        The columns of zeros stay apart.
        """
        factors, K = self.factors[side], self.settings.n_components
        present = factors if self._rated[side].all() else factors[self._rated[side]]
        with single_threaded_blas():
            return principal_axes(present.T @ present, self.frames[side], K)

    def _message(self, side):
        axes, turn, spectrum = self._axes[side]
        with single_threaded_blas():
            values = {
                "factors": turned(self.factors[side], turn, self.vectors),
                "spectrum": spectrum,
                "axes": axes,
                "turn": self._axes[1 - side][0].T @ axes,
                "biases": self.biases[side],
            }
        return values | self._prior_means(side)

    def arrays(self):
        """Arrays of a checkpoint: the model, and the frames of its factors."""
        return super().arrays() | {f"frame-{side}": self.frames[side] for side in (0, 1)}

    def restore(self, arrays):
        """Continue from the model of a checkpoint, which must have the same form."""
        super().restore(arrays)
        self.frames = [arrays[f"frame-{side}"] for side in (0, 1)]

    def model_factors(self):
        """Return the factors in the model's coordinates."""
        with single_threaded_blas():
            return [part @ frame.T for part, frame in zip(self.factors, self.frames, strict=True)]


def small_factors(rng, entries, n_components):
    """Draw small factors above 0: the first half sums the items of a user, the popular ones most."""
    shapes = [(n, n_components) for n in entries.shape]
    return [(_LARGEST * rng.random(shape)).astype(entries.dtype) for shape in shapes]


def conjugate(table, factors, others, spectrum, drawn, settings, side):
    """Move rows, in place, by conjugate gradients, in the axes of the other side; return their objective.

    `drawn` are pulls on the rows, or None.
    """
    losses, d = np.empty(len(factors)), factors.shape[1]
    conjugate_rows(
        0, len(factors), table.indptr, table.indices, table.values, others, spectrum,
        np.zeros((1, d), factors.dtype) if drawn is None else drawn,
        settings.ridge(table.counts, factors.dtype, side), _STEPS, factors, losses, (0,) * (d // LANES),
    )  # fmt: skip
    return losses.sum()


def principal_axes(gram, frame, n_components):
    """Return axes of a Gram matrix in the model's coordinates and in its `frame`, and the squares.

    The columns of zeros stay apart.
    """
    K = n_components
    turn, spectrum = np.eye(len(gram), dtype=gram.dtype), np.zeros_like(gram[0])
    squares, turn[:K, :K] = eigh(gram[:K, :K], driver="evd", check_finite=False)
    spectrum[:K] = np.maximum(squares, 0)
    return _closer(frame @ turn), turn, spectrum


def _closer(axes):
    """Take a step of Newton and Schulz to orthonormal axes: rounding adds up over products of many turns."""
    eye = np.eye(len(axes), dtype=axes.dtype)
    return axes @ (axes.dtype.type(1.5) * eye - axes.dtype.type(0.5) * (axes.T @ axes))


def turned(rows, turn, vectors):
    """Return ``rows @ turn``, which begins with a cache line: kernels load 64 bytes at a time from it."""
    turned = aligned(rows.shape, rows.dtype)
    turn_rows(np.ascontiguousarray(rows), turn, turned, vectors)
    return turned
