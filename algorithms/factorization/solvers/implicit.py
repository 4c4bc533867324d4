"""Implicit feedback: alternating least squares by a few conjugate gradients a row."""

import numpy as np
from scipy.linalg import eigh

from ....kernels.factorization.als import conjugate_rows, turn_rows
from ....kernels.factorization.lanes import LANES
from ....kernels.vector import aligned
from ....scheduler.threads import single_threaded_blas
from .als import AXES, NAMES, SHARE, SOLVE, AlternatingLeastSquares, HalfStep, stack_rows

_STEPS = 2  # of conjugate gradients a row and iteration; compared in docs/matrix-factorization.md

_LARGEST = 0.003  # of the initial factors, uniform from 0: compared there, too


class ImplicitFeedback(AlternatingLeastSquares):
    r"""Least squares over all cells, a few preconditioned conjugate gradients a row in place of its solution.

    The matrix of a row's normal equations is the Gram matrix G of all of the other side, the row's penalty,
    and the sum over its own cells. With :math:`G = V D V^T` each half of an iteration goes on in the
    coordinates :math:`V^T p`. There G costs a row K multiplications in place of :math:`K^2`, and
    :math:`D + \lambda` preconditions the steps: rows differ from it by their own cells alone. Rows are turned
    into these coordinates as products of matrices, and stay there.

    Shards add up the Gram matrix of a side before its rows are shared, and turn their rows to its axes. One
    of them finds the axes for all: processors of two kinds may find other signs, or turn axes of nearly
    equal lengths. Only the axes are known to the coordinator. Items end a round in the coordinates in which
    they were solved for, which are the axes of the users.

    Reference: Takács, Pilászy, Tikk, "Applications of the conjugate gradient method for implicit feedback
    collaborative filtering", RecSys 2011.
    """

    n_blocks, format_name = 6, "ExchangedImplicit"
    steps = (
        HalfStep(1, SHARE),
        HalfStep(0, SOLVE),
        HalfStep(0, AXES),
        HalfStep(0, SHARE),
        HalfStep(1, SOLVE),
        HalfStep(1, AXES),
    )
    kinds = (*AlternatingLeastSquares.kinds, "gram", "axes")

    def __init__(self, entries, settings, seed, features=(None, None)):
        super().__init__(entries, settings, seed, features)
        d = self.shards[0][1][1][0].shape[1]
        eye, none = np.eye(d, dtype=entries.dtype), np.zeros(d, entries.dtype)
        self.axes = [{"axes": eye, "turn": eye, "spectrum": none, "across": eye}]
        with single_threaded_blas():
            gram = sum(items.T @ items for _, (_, (items, _)) in self.shards)
            self.axes.append(axes_of(gram, eye, settings.n_components))

    def __getstate__(self):
        return {**super().__getstate__(), "axes": None}

    def first_factors(self, rng, entries):
        """Draw factors; see `small_factors`."""
        return small_factors(rng, entries, self.settings.n_components)

    def solve(self, state, side, task):
        """Move a shard's rows of a side, in the axes of the other; return what is reported."""
        name, other, axes = NAMES[side][0], state["rows"][1 - side], state["axes"][1 - side]
        table, (pull, _) = state["tables"][side], self.pulls(state, side)
        with single_threaded_blas():
            factors = state[name] = turned(state[name], axes["across"], self.vectors)
            drawn = None if pull is None else pull @ axes["axes"]
            loss = conjugate(table, factors, other["factors"], axes["spectrum"], drawn, self.settings, side)
            return self.report_of(state, side, loss, factors if drawn is None else factors @ axes["axes"].T)

    def shared_by(self, state, step, shard):
        """Give the Gram matrix of rows that were solved for, its axes, or the rows in these."""
        side, name = step.side, NAMES[step.side][0]
        with single_threaded_blas():
            if step.what == SOLVE:
                return {shard: ("gram", side, state[name].T @ state[name])}
            if step.what == SHARE:
                state[name] = turned(state[name], state["axes"][side]["turn"], self.vectors)
                return super().shared_by(state, step, shard)
            if shard:
                return None
            frame = state["axes"][1 - side]["axes"]
            return {0: ("axes", side, axes_of(state["gram"][side], frame, self.settings.n_components))}

    def merge(self, kind, *parts):
        """Put the rows of a side together, or their Gram matrix, or pass the axes on."""
        if kind == "rows":
            return {"factors": stack_rows(parts[0]), "biases": np.concatenate(parts[1])}
        return sum(parts[0]) if kind == "gram" else parts[0][0]

    def reported(self, joined, message):
        """Report axes alone."""
        ((kind, side, values),) = message
        return {side: values} if kind == "axes" else None

    # At the coordinator ---------------------------------------------------------------------------------

    def hear(self, joined):
        """Keep the axes of both sides."""
        self.axes = [joined[side] for side in (0, 1)]

    def publish(self):
        """Send the axes of both sides, and the prior means of rows with features."""
        return [("axes", side, axes) for side, axes in enumerate(self.axes)] + (super().publish() or [])

    def arrays(self):
        """Arrays of a checkpoint: the axes, and the weights of features."""
        axes = {f"{name}-{side}": part for side, axes in enumerate(self.axes) for name, part in axes.items()}
        return axes | super().arrays()

    def restore(self, arrays):
        """Continue from the axes of a checkpoint, which must have the same form."""
        super().restore(arrays)
        self.axes = [{name: arrays[f"{name}-{side}"] for name in axes} for side, axes in enumerate(self.axes)]

    def in_model(self, factors):
        """Turn factors from the axes of the users, in which both sides end a round."""
        with single_threaded_blas():
            return factors @ self.axes[0]["axes"].T


def axes_of(gram, frame, n_components):
    """Return the principal axes of rows whose coordinates are `frame`, given their Gram matrix.

    That is the ``axes``, in the coordinates of the model; the ``spectrum``; the ``turn`` of the rows to the
    axes; and the turn of rows whose axes are the frame ``across`` to these.
    """
    axes, turn, spectrum = principal_axes(gram, frame, n_components)
    return {"axes": axes, "turn": turn, "spectrum": spectrum, "across": frame.T @ axes}


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
