"""A network of dense layers: its value, and the gradient of its loss by back-propagation."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax

from ...kernels.cuda.device import cuda_device
from ...scheduler.parameters import stream
from .._streams import Purpose

_BLOCK = 8192  # rows that are predicted at once
_VALUES = 2**27  # of all layers, of the rows that a GPU takes at once


@dataclass(frozen=True)
class Network:
    r"""A network of layers ``a <- activation(a W + b)``, the last one without activation, and its loss.

    The loss of a row is half the squared error, the mean square or size of its errors ("mse", "mae"),
    ``-log softmax(a)[y]``, or for two classes and one output
    ``log(1 + exp(-a))`` for y = 1 and ``log(1 + exp(a))`` for y = 0. Each of the `n_rows` rows adds its
    share of the penalty :math:`\alpha |W|^2 / 2`.

    All parameters are in one vector: W (by rows) and b of one layer after another. On a GPU, too, it stays on
    the host; rows may be on the GPU already (`on_device`), or are copied each time.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.neural.network import Network
    >>> network = Network((2, 3, 1), "tanh", "squared", alpha=0.0, n_rows=1)
    >>> network.n_parameters
    13
    >>> w = network.start(0, np.float64)
    >>> rows = np.ones((1, 2)), np.ones((1, 1))
    >>> value, gradient = network.loss(rows, w)
    >>> w[12] += 1e-6
    >>> bool(abs((network.loss(rows, w)[0] - value) / 1e-6 - gradient[12]) < 1e-5)
    True
    """

    sizes: tuple
    activation: str
    loss_name: str
    alpha: float
    n_rows: int
    device: str = "cpu"

    @property
    def shapes(self):
        """Shapes of the W."""
        return list(itertools.pairwise(self.sizes))

    @property
    def n_parameters(self):
        """Length of the vector."""
        return sum(a * b + b for a, b in self.shapes)

    def layers(self, w):
        """Return (W, b) of each layer, views of the vector."""
        layers, at = [], 0
        for a, b in self.shapes:
            layers.append((w[at : at + a * b].reshape(a, b), w[at + a * b : at + a * b + b]))
            at += a * b + b
        return layers

    def start(self, seed, dtype, first=0):
        """Draw initial parameters: uniform, scaled by the widths on both sides (Glorot and Bengio, 2010).

        `first` is the number of the first layer where this is a part of a network.
        """
        w = np.empty(self.n_parameters, dtype)
        scale = 2.0 if self.activation == "logistic" else 6.0
        for number, ((W, b), (n_in, n_out)) in enumerate(zip(self.layers(w), self.shapes, strict=True)):
            bound = math.sqrt(scale / (n_in + n_out))
            random = stream(seed, Purpose.WEIGHTS.value, first + number)
            W[:] = random.uniform(-bound, bound, W.shape)
            b[:] = random.uniform(-bound, bound, b.shape)
        return w

    def rows_at_once(self):
        """Rows whose layers fit on a GPU at once."""
        return max(_BLOCK, _VALUES // sum(self.sizes))

    def on_device(self, rows):
        """Copy rows to the device, if they are not there yet."""
        return rows if self.device == "cpu" else tuple(cuda_device().moved(part) for part in rows)

    def output(self, X, w):
        """Compute the last layer for all rows, block by block."""
        if self.device == "cpu":
            layers = self.layers(w)
            blocks = (X[start : start + _BLOCK] for start in range(0, X.shape[0], _BLOCK))
            return np.concatenate([self._forward(np, block, layers)[-1] for block in blocks])
        gpu, size = cuda_device(), self.rows_at_once()
        with gpu.computing():
            layers = self.layers(gpu.put(w))
            blocks = (gpu.moved(X[start : start + size]) for start in range(0, X.shape[0], size))
            return np.concatenate([gpu.get(self._forward(gpu.xp, block, layers)[-1]) for block in blocks])

    def _forward(self, xp, X, layers):
        """Return the input of each layer, and the output."""
        values = [X]
        for number, (W, b) in enumerate(layers):
            a = values[-1] @ W
            a += b
            if number < len(layers) - 1:
                ACTIVATIONS[self.activation](xp, a)
            values.append(a)
        return values

    def loss(self, rows, w):
        """Return the sum of the loss over rows, and its gradient in the type of `w`.

        `rows` are X, targets (n, n_outputs) or class numbers (n,), and perhaps weights (n,).
        """
        parameters = w.astype(rows[0].dtype, copy=False)
        if self.device == "cpu":
            value, gradient = self._loss(np, rows, parameters)
        else:
            gpu = cuda_device()
            with gpu.computing():
                value, gradient = self._loss(gpu.xp, self.on_device(rows), gpu.put(parameters))
                gradient = gpu.get(gradient)
        return value, gradient.astype(w.dtype, copy=False)

    def _loss(self, xp, rows, parameters):
        """Compute the loss on the device of the rows and parameters; `xp` is NumPy, or CuPy on a GPU."""
        X, y, *weights = rows
        layers = self.layers(parameters)
        values = self._forward(xp, X, layers)
        value, delta = LOSSES[self.loss_name](xp, values[-1], y, *weights)
        gradient = xp.empty_like(parameters)
        for number, (out, (W, _)) in reversed(
            list(enumerate(zip(self.layers(gradient), layers, strict=True)))
        ):
            out[0][:] = values[number].T @ delta
            out[1][:] = delta.sum(axis=0)
            if number:
                delta = delta @ W.T
                SLOPES[self.activation](delta, values[number])
        share = X.shape[0] / self.n_rows * self.alpha
        if share:
            for (G, _), (W, _) in zip(self.layers(gradient), layers, strict=True):
                G += share * W
                value += share / 2 * float(xp.vdot(W, W))
        return value, gradient

    def log_probabilities(self, output):
        """Turn outputs into logarithms of the probabilities of classes."""
        if self.loss_name == "logistic":
            return np.column_stack([log_expit(-output[:, 0]), log_expit(output[:, 0])])
        return log_softmax(output, axis=1)

    def probabilities(self, output):
        """Turn outputs into probabilities of classes."""
        if self.loss_name == "logistic":
            return np.column_stack([expit(-output[:, 0]), expit(output[:, 0])])
        return softmax(output, axis=1)

    def classes(self, output):
        """Turn outputs into numbers of the most probable classes."""
        return (output[:, 0] > 0).astype(np.int64) if self.loss_name == "logistic" else output.argmax(axis=1)


# Activations work in place; slopes multiply by the derivative, a function of the activation's value. ---


def _relu(xp, a):
    xp.maximum(a, 0, out=a)


def _tanh(xp, a):
    xp.tanh(a, out=a)


def _logistic(xp, a):
    a[:] = _expit(xp, a)


def _identity(xp, a):
    pass


def _relu_slope(delta, value):
    delta *= value > 0


def _tanh_slope(delta, value):
    delta *= 1 - value * value


def _logistic_slope(delta, value):
    delta *= value * (1 - value)


def _identity_slope(delta, value):
    pass


ACTIVATIONS = {"relu": _relu, "tanh": _tanh, "logistic": _logistic, "identity": _identity}
SLOPES = {
    "relu": _relu_slope,
    "tanh": _tanh_slope,
    "logistic": _logistic_slope,
    "identity": _identity_slope,
}


# Losses: the sum over rows, and its derivative by the output. ---------------------------------------------


def _squared(xp, output, y, weights=None):
    delta = output - y
    return _summed(xp, 0.5 * xp.sum(delta * delta, axis=1, dtype=np.float64), delta, weights)


def _mean_squared(xp, output, y, weights=None):
    delta = output - y
    losses = xp.mean(delta * delta, axis=1, dtype=np.float64)
    return _summed(xp, losses, delta * delta.dtype.type(2 / delta.shape[1]), weights)


def _absolute(xp, output, y, weights=None):
    delta = output - y
    losses = xp.mean(xp.abs(delta), axis=1, dtype=np.float64)
    return _summed(xp, losses, xp.sign(delta) / delta.dtype.type(delta.shape[1]), weights)


def _softmax(xp, output, y, weights=None):
    rows = xp.arange(len(y))
    shifted = output - output.max(axis=1, keepdims=True)
    delta = xp.exp(shifted)
    total = delta.sum(axis=1, keepdims=True)
    delta /= total
    losses = xp.log(total[:, 0]) - shifted[rows, y]
    delta[rows, y] -= 1
    return _summed(xp, losses, delta, weights)


def _two_classes(xp, output, y, weights=None):
    a = output[:, 0]
    losses = xp.logaddexp(0.0, xp.where(y == 1, -a, a))
    return _summed(xp, losses, (_expit(xp, a) - y.astype(a.dtype))[:, None], weights)


def _summed(xp, losses, delta, weights):
    if weights is not None:
        losses, delta = losses * weights, delta * weights[:, None]
    return float(xp.sum(losses, dtype=np.float64)), delta


def _expit(xp, a):
    """1 / (1 + exp(-a)), without overflow."""
    return expit(a) if xp is np else xp.exp(-xp.logaddexp(0.0, -a))


LOSSES = {
    "squared": _squared,
    "mse": _mean_squared,
    "mae": _absolute,
    "softmax": _softmax,
    "logistic": _two_classes,
}
