"""Stages: a part of a network that one place computes. All that layers and their derivatives must offer."""

from typing import Any, Protocol

import numpy as np

from ...._typing import Array
from ....errors import DataError, shortened
from ....kernels.cuda.device import cuda_device
from ....scheduler.parameters import stream
from ..._streams import Purpose
from ..network import ACTIVATIONS, SLOPES, Network


class Stage(Protocol):
    """What the training program calls.

    The numbers of a stage are one flat vector, float32 or float64, so that optimisers, sums over replicas and
    checkpoints know no layers. A stage itself keeps none: it is pickled once to where it works. The last
    `n_buffers` entries (an attribute, 0 if there is none) are not trained: `forward` may change them, as the
    running means of batch normalisation. `decayed` (optional) returns, for each trained entry, 1 where weight
    decay applies and 0 where not.
    """

    def start(self, seed: int) -> Array:
        """Return the initial vector; the same for the same seed."""
        ...

    def forward(self, params: Array, x: Array, key: tuple) -> tuple[Array, Any]:
        """Return the output for the rows x, and what `backward` needs.

        `key` is a tuple of integers for random numbers (dropout): the same key, the same bits.
        """
        ...

    def backward(self, context: Any, dy: Array, grads: Array) -> Array:
        """Add the gradient of the trained entries to `grads`, once to each; return that of the input.

        The first stage of a network may return None.
        """
        ...


class DenseStage:
    """Layers ``activation(a W + b)``.

    Parameters
    ----------
    sizes : tuple of int
        Widths, the input's first.
    activation : str
    first : int, default=0
        Number of the first layer in the whole network: where it is cut changes no initial value.
    begins, ends : bool, default=False
        Whether it is the first stage, which needs no gradient of its input, and the last one, whose last
        layer has no activation.
    device : {"cpu", "cuda"}, default="cpu"
        Where layers are computed. On a GPU rows and parameters are copied to it, the latter once a step of
        the optimiser, and outputs and gradients come back.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.neural.training.stage import DenseStage, check_stage
    >>> stage = DenseStage((3, 4, 2), "tanh")
    >>> stage.start(0).shape
    (26,)
    >>> check_stage(stage, np.ones((5, 3))) < 1e-6
    True
    """

    def __init__(self, sizes, activation="relu", first=0, begins=False, ends=False, device="cpu"):
        self.network = Network(tuple(sizes), activation, "squared", 0.0, 1, device)
        self.first, self.begins, self.ends = first, begins, ends
        self._there: Any = None  # parameters, and their layers on the GPU

    def start(self, seed, dtype=np.float32):
        """Draw the layers by their numbers in the whole network."""
        return self.network.start(seed, dtype, self.first)

    def decayed(self):
        """W decays, b does not."""
        mask = np.zeros(self.network.n_parameters, np.float32)
        for W, _ in self.network.layers(mask):
            W[:] = 1
        return mask

    def squares(self, params):
        """Return the sum of the squares of each W."""
        return [float(np.vdot(W, W)) for W, _ in self.network.layers(params)]

    def changed(self):
        """Forget the copy of parameters that an optimiser has changed."""
        self._there = None

    def forward(self, params, x, key):
        """Keep the value of every layer."""
        if self.network.device == "cpu":
            return self._forward(np, self.network.layers(params), x)
        gpu = cuda_device()
        with gpu.computing():
            if self._there is None or self._there[0] is not params:
                self._there = (params, self.network.layers(gpu.put(params)))
            y, context = self._forward(gpu.xp, self._there[1], gpu.put(x))
            return gpu.get(y), context

    def _forward(self, xp, layers, x):
        values = [x]
        for number, (W, b) in enumerate(layers):
            a = values[-1] @ W
            a += b
            if not self._is_end(number):
                ACTIVATIONS[self.network.activation](xp, a)
            values.append(a)
        return values[-1], (layers, values)

    def backward(self, context, dy, grads):
        """Propagate back, layer by layer."""
        if self.network.device == "cpu":
            return self._backward(context, dy, grads, add_product, lambda array: array)
        gpu = cuda_device()

        def add_there(G, x, dy):
            G += gpu.get(x.T @ dy)

        with gpu.computing():
            dx = self._backward(context, gpu.put(dy), grads, add_there, gpu.get)
            return None if dx is None else gpu.get(dx)

    def _backward(self, context, dy, grads, add, to_host):
        layers, values = context
        given = dy
        for number, (G, g) in reversed(list(enumerate(self.network.layers(grads)))):
            if not self._is_end(number):
                dy = dy.copy() if dy is given else dy
                SLOPES[self.network.activation](dy, values[number + 1])
            add(G, values[number], dy)
            g += to_host(dy.sum(axis=0))
            if self.begins and not number:
                return None
            dy = dy @ layers[number][0].T
        return dy

    def _is_end(self, number):
        return self.ends and number == len(self.network.sizes) - 2


def add_product(G, x, dy):
    """Add ``x.T @ dy`` to G. Of a large matrix some rows at once: the product needs little memory then."""
    n = max(_ENTRIES // G.shape[1], 1)
    for first in range(0, G.shape[0], n):
        G[first : first + n] += x[:, first : first + n].T @ dy


def check_stage(stage: Any, x: Array, *, seed: int = 0, n_entries: int = 20) -> float:
    """Hold the gradients of a stage against finite differences, in double precision where it can.

    Parameters
    ----------
    stage : Stage
    x : ndarray of shape (n_rows, ...)
        Rows that it may get. The differences are taken in their type, and that of `start`: pass float64, and
        let ``start`` return float64, for a sharp check.
    seed : int, default=0
    n_entries : int, default=20
        Entries of the parameters and of the input that are checked, drawn at random.

    Returns
    -------
    float
        The largest difference, relative to the largest slope. Of a kink (of relu) the smaller of two steps
        counts.

    Raises
    ------
    DataError
        If the stage does not keep to its protocol: shapes, types, equal bits for an equal key, gradients that
        are added to others.
    """
    params = np.array(stage.start(seed), np.float64)
    if params.ndim != 1:
        raise DataError(f"start returned {shortened(params)}, and must return a flat vector")
    rng, key = stream(seed, Purpose.TRIAL.value, 0), (seed, 0, 0, 0)
    n = len(params) - getattr(stage, "n_buffers", 0)
    x = np.array(x, np.float64) if x.dtype.kind == "f" else x
    y, context = stage.forward(params.copy(), x, key)
    if len(y) != len(x):
        raise DataError(f"forward made {len(y)} rows of {len(x)}: each row of x needs one")
    again, _ = stage.forward(params.copy(), x, key)
    if not np.array_equal(y, again):
        raise DataError("forward gave other values for the same key: take random numbers from the key alone")
    dy, grads = rng.standard_normal(y.shape), np.zeros(n)
    dx = stage.backward(context, dy.copy(), grads)
    begun = rng.standard_normal(n)
    found = begun.copy()
    stage.backward(stage.forward(params.copy(), x, key)[1], dy.copy(), found)
    if not np.allclose(found - begun, grads, rtol=1e-6, atol=1e-6 * max(1.0, abs(grads).max(initial=0.0))):
        raise DataError("backward must add to grads: what was in it before is not in the result")

    def slope(vector, entry, step, value):
        ends = []
        for sign in (1, -1):
            moved = vector.copy()
            moved.flat[entry] += sign * step
            ends.append(float(np.vdot(dy, value(moved))))
        return (ends[0] - ends[1]) / (2 * step)

    found, scale = 0.0, 1e-12
    of_params = (params, grads, lambda w: stage.forward(w, x, key)[0], n)
    of_x = (x, dx, lambda v: stage.forward(params.copy(), v, key)[0], x.size)
    for vector, gradient, value, size in (
        (of_params,) if dx is None or x.dtype.kind != "f" else (of_params, of_x)
    ):
        for entry in rng.choice(size, min(size, n_entries), replace=False):
            slopes = [slope(vector, entry, step, value) for step in (1e-4, 1e-6)]
            own = float(np.asarray(gradient).flat[entry])
            found = max(found, min(abs(one - own) for one in slopes))
            scale = max(scale, abs(own), *map(abs, slopes))
    return found / scale


_ENTRIES = 2**22  # of a product, whose memory is 16 MB in single precision
