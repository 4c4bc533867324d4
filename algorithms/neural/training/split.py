"""Stages whose weights are split over places: the first of two dense layers by columns, the second by rows.

Each part computes ``f(x W1_r + b1_r) W2_r`` for some hidden units. The first place adds up the outputs of all
parts, and has the layers before and after the two. Activations of the hidden layer never travel.
"""

import itertools
from typing import Any

import numpy as np

from ....errors import DataError
from ....scheduler.planning.costs import Link
from ....scheduler.planning.signatures import split_layers
from ..network import ACTIVATIONS, SLOPES
from .stage import add_product

_SPEED, _LINK = 2e10, Link(0.0, 1e9)  # nominal, so that no choice depends on timings


class StageChain:
    """Stages one after another, as one: pairs of a stage and the number of its entries."""

    def __init__(self, stages):
        self.stages = [stage for stage, _ in stages]
        self.ends = np.cumsum([0, *(n for _, n in stages)]).tolist()

    def forward(self, params, x, key):
        """Call the stages in turn."""
        contexts = []
        for stage, part in self._cut(params):
            x, context = stage.forward(part, x, key)
            contexts.append(context)
        return x, contexts

    def backward(self, contexts, dy, grads):
        """Call them in the other order."""
        for (stage, part), context in reversed(list(zip(self._cut(grads), contexts, strict=True))):
            dy = stage.backward(context, dy, part)
        return dy

    def changed(self):
        """Tell the stages that parameters were changed."""
        for stage in self.stages:
            if hasattr(stage, "changed"):
                stage.changed()

    def squares(self, params):
        """Sum the squares of the weights of each layer."""
        return [square for stage, part in self._cut(params) for square in stage.squares(part)]

    def decayed(self):
        """Return where weight decay applies; 1 where a stage does not say."""
        return np.concatenate(
            [np.empty(0, np.float32)]
            + [
                stage.decayed() if hasattr(stage, "decayed") else np.ones(b - a, np.float32)
                for (stage, (a, b)) in zip(self.stages, itertools.pairwise(self.ends), strict=True)
            ]
        )

    def _cut(self, vector):
        return [
            (stage, vector[a:b])
            for stage, (a, b) in zip(self.stages, itertools.pairwise(self.ends), strict=True)
        ]


class FirstPart(StageChain):
    """What the first place of a split stage has: the layers before, a part of the two, and those after."""

    def __init__(self, before, part, after):
        super().__init__([(way, way.ends[-1]) for way in (before, part, after)])

    def way(self, number, vector):
        """Return the stages before (0), of the part (1) or after it (2), and their entries of a vector."""
        return self._cut(vector)[number]


class SplitStage:
    """A stage whose weights are on several places.

    Parameters
    ----------
    before, after : StageChain
    parts : list of Stage
        Their outputs add up to that of the two layers.
    index : list of ndarray
        For each part its entries in the vector of the two layers.
    """

    n_buffers = 0

    def __init__(self, before, parts, after, index):
        self.places = [FirstPart(before, StageChain([(parts[0], len(index[0]))]), after), *parts[1:]]
        start, n = before.ends[-1], sum(map(len, index))
        ends = np.arange(start), start + n + np.arange(after.ends[-1])
        self.index = [np.concatenate([ends[0], start + index[0], ends[1]]), *(start + i for i in index[1:])]

    def joined(self, parts):
        """Put vectors of the parts together, along the last axis."""
        found = np.empty((*parts[0].shape[:-1], sum(map(len, self.index))), parts[0].dtype)
        for index, part in zip(self.index, parts, strict=True):
            found[..., index] = part
        return found


class DensePart:
    """Some hidden units of two dense layers; only the first part has the bias of the second layer."""

    def __init__(self, n_in, n_hidden, n_out, activation, has_bias, begins):
        self.shape, self.activation = (n_in, n_hidden, n_out), activation
        self.has_bias, self.begins = has_bias, begins

    def _layers(self, vector):
        n_in, n_hidden, n_out = self.shape
        W1, b1, W2, b2 = np.split(vector, np.cumsum([n_in * n_hidden, n_hidden, n_hidden * n_out]))
        return W1.reshape(n_in, n_hidden), b1, W2.reshape(n_hidden, n_out), b2

    def decayed(self):
        """W decays, b does not."""
        n_in, n_hidden, n_out = self.shape
        mask = np.zeros((n_in + 1 + n_out) * n_hidden + n_out * self.has_bias, np.float32)
        W1, _, W2, _ = self._layers(mask)
        W1[:], W2[:] = 1, 1
        return mask

    def squares(self, params):
        """Return the sum of the squares of each W."""
        W1, _, W2, _ = self._layers(params)
        return [float(np.vdot(W, W)) for W in (W1, W2)]

    def forward(self, params, x, key):
        """Compute this part of the output."""
        W1, b1, W2, b2 = self._layers(params)
        hidden = x @ W1
        hidden += b1
        ACTIVATIONS[self.activation](np, hidden)
        y = hidden @ W2
        if self.has_bias:
            y += b2
        return y, (x, hidden, W1, W2)

    def backward(self, context, dy, grads):
        """Propagate back."""
        x, hidden, W1, W2 = context
        G1, g1, G2, g2 = self._layers(grads)
        add_product(G2, hidden, dy)
        if self.has_bias:
            g2 += dy.sum(axis=0)
        dh = dy @ W2.T
        SLOPES[self.activation](dh, hidden)
        add_product(G1, x, dh)
        g1 += dh.sum(axis=0)
        return None if self.begins else dh @ W1.T


class Activation:
    """An activation function by itself, which comes after a sum of parts."""

    def __init__(self, name):
        self.name = name

    def squares(self, params):
        """Have no weights."""
        return []

    def forward(self, params, x, key):
        """Apply it to a copy."""
        y = x.copy()
        ACTIVATIONS[self.name](np, y)
        return y, y

    def backward(self, context, dy, grads):
        """Multiply by its slope."""
        dy = dy.copy()
        SLOPES[self.name](dy, context)
        return dy


def cuts_of(n_hidden, n_parts):
    """Cut hidden units into parts of nearly equal size."""
    if n_parts > n_hidden:
        raise DataError(f"plan splits {n_hidden} hidden units into {n_parts} parts: take fewer places")
    edges = [n_hidden * r // n_parts for r in range(n_parts + 1)]
    return list(itertools.pairwise(edges))


def indices(n_in, n_hidden, n_out, n_parts, *, columns_first, biases=(True, True)):
    """Return the entries of each part in the vector of two layers: W1, b1, W2, b2.

    `columns_first` where a row of W belongs to an input (numpy), else to an output (torch).
    """
    sizes = n_in * n_hidden, n_hidden * biases[0], n_hidden * n_out, n_out * biases[1]
    W1, b1, W2, b2 = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    W1 = W1.reshape((n_in, n_hidden) if columns_first else (n_hidden, n_in))
    W2 = W2.reshape((n_hidden, n_out) if columns_first else (n_out, n_hidden))
    found = []
    for a, b in cuts_of(n_hidden, n_parts):
        one = W1[:, a:b] if columns_first else W1[a:b]
        two = W2[a:b] if columns_first else W2[:, a:b]
        found.append(np.concatenate([one.ravel(), b1[a:b], two.ravel(), b2 if not a else b2[:0]]))
    return found


def moved_bytes(pair, n_places, batch_size, itemsize, begins):
    """Say what splitting two layers moves, and what other signatures do: bytes of all places in a step.

    `begins`: whether they are the first ones, whose input needs no gradient.
    """
    seconds = [6 * batch_size * a * b / _SPEED for a, b in itertools.pairwise(pair)]
    best: Any = split_layers(seconds, pair, n_places, _LINK, batch_size=batch_size, itemsize=itemsize)
    own = itemsize * batch_size * (n_places - 1) * (pair[0] * (1 if begins else 2) + 2 * pair[2])
    note = f"split of {pair[0]}-{pair[1]}-{pair[2]} units: {own / 1e6:.3g} MB a step"
    if best.signatures != ("column", "row"):
        note += f"; {', '.join(best.signatures)} would move {sum(best.nbytes) / 1e6:.3g} MB: see plan='data'"
    return note


class SplitOperations:
    """What the places of split stages do, for `Training`; see `Operation`."""

    sizes: Any
    wire: Any
    _key: Any
    _input: Any
    _output: Any
    _came: Any
    _slope: Any
    _gradient_of: Any
    _carry: Any

    def _open(self, state, carrier, epoch, op):
        if self.sizes(op.step)[op.micro]:
            x, key = self._input(state, carrier, epoch, op)
            before, params = state["stage"].way(0, state["params"])
            x, context = before.forward(params, x, key)
            state["split"][op.step, op.micro] = {"x": x, "key": key, "before": context}

    def _hand(self, state, carrier, epoch, op):
        if self.sizes(op.step)[op.micro]:
            x = np.ascontiguousarray(state["split"][op.step, op.micro]["x"])
            carrier.array = self.wire.encode(x)

    def _forward_part(self, state, carrier, epoch, op):
        if not self.sizes(op.step)[op.micro]:
            return
        if op.part:
            key = self._key(epoch, op)
            y, context = state["stage"].forward(state["params"], self._came(state, carrier), key)
            state["kept"][op.step, op.micro] = context
            carrier.array = self.wire.encode(y)
            return
        held = state["split"][op.step, op.micro]
        part, params = state["stage"].way(1, state["params"])
        held["y"], held["part"] = part.forward(params, held["x"], held["key"])

    def _join(self, state, carrier, epoch, op):
        if self.sizes(op.step)[op.micro]:
            held = state["split"][op.step, op.micro]
            held["y"] = held["y"] + self._came(state, carrier)
        carrier.array = np.empty(0, np.float32)

    def _close(self, state, carrier, epoch, op):
        if not self.sizes(op.step)[op.micro]:
            return None
        held = state["split"][op.step, op.micro]
        after, params = state["stage"].way(2, state["params"])
        y, held["after"] = after.forward(params, held.pop("y"), held["key"])
        return self._output(state, carrier, epoch, op, y)

    def _open_back(self, state, carrier, epoch, op):
        state["gradient"] = gradient, _ = self._gradient_of(state)
        if self.sizes(op.step)[op.micro]:
            held = state["split"][op.step, op.micro]
            after, grads = state["stage"].way(2, gradient)
            held["x"] = after.backward(held.pop("after"), self._slope(state, carrier), grads)

    _hand_back = _hand

    def _backward_part(self, state, carrier, epoch, op):
        if op.part:
            gradient, level = self._gradient_of(state)
            if self.sizes(op.step)[op.micro]:
                context = state["kept"].pop((op.step, op.micro))
                dx = state["stage"].backward(context, self._came(state, carrier), gradient)
                carrier.array = np.empty(0, np.float32) if dx is None else self.wire.encode(dx)
            self._carry(state, gradient, level)
        elif self.sizes(op.step)[op.micro]:
            held = state["split"][op.step, op.micro]
            part, grads = state["stage"].way(1, state["gradient"][0])
            held["y"] = part.backward(held.pop("part"), held["x"], grads)

    def _join_back(self, state, carrier, epoch, op):
        if self.sizes(op.step)[op.micro]:
            held = state["split"][op.step, op.micro]
            if held["y"] is not None:  # the first layers of the network need no gradient of their input
                held["y"] = held["y"] + self._came(state, carrier)
        carrier.array = np.empty(0, np.float32)

    def _close_back(self, state, carrier, epoch, op):
        gradient, level = state.pop("gradient")
        if self.sizes(op.step)[op.micro]:
            held = state["split"].pop((op.step, op.micro))
            before, grads = state["stage"].way(0, gradient)
            dx = before.backward(held["before"], held["y"], grads)
            carrier.array = self.wire.encode(dx) if state["number"] else np.empty(0, np.float32)
        self._carry(state, gradient, level)
