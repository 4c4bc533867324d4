"""A network of dense layers: its value, and the gradient of its loss by back-propagation."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_expit, log_softmax, logsumexp, softmax

from ...scheduler.parameters import stream

_WEIGHTS = 2**63 + 18  # purpose of a random stream
_BLOCK = 8192  # rows that are predicted at once


@dataclass(frozen=True)
class Network:
    r"""What a network computes: layers ``a <- activation(a W + b)``, the last one without activation.

    The loss of a row is half the squared error, ``-log softmax(a)[y]``, or for two classes and one output
    ``log(1 + exp(-a))`` for y = 1 and ``log(1 + exp(a))`` for y = 0; beside it stands the row's share of
    :math:`\alpha |W|^2 / 2` of all W, one in `n_rows`.

    All parameters lie in one vector: W and b of each layer after another, W by rows.

    Parameters
    ----------
    sizes : tuple of int
        Of the input, the hidden layers and the output.
    activation : {"relu", "tanh", "logistic", "identity"}
    loss : {"squared", "softmax", "logistic"}
    alpha : float
    n_rows : int
        Of all data.

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
        found, at = [], 0
        for a, b in self.shapes:
            found.append((w[at : at + a * b].reshape(a, b), w[at + a * b : at + a * b + b]))
            at += a * b + b
        return found

    def start(self, seed, dtype):
        """Draw the parameters as Glorot and Bengio (2010) do: uniform, by the widths on both sides."""
        w = np.empty(self.n_parameters, dtype)
        scale = 2.0 if self.activation == "logistic" else 6.0
        for number, ((W, b), (n_in, n_out)) in enumerate(zip(self.layers(w), self.shapes, strict=True)):
            bound = math.sqrt(scale / (n_in + n_out))
            random = stream(seed, _WEIGHTS, number)
            W[:] = random.uniform(-bound, bound, W.shape)
            b[:] = random.uniform(-bound, bound, b.shape)
        return w

    def output(self, X, w):
        """Compute the last layer for all rows, block by block."""
        layers = self.layers(w)
        blocks = range(0, X.shape[0], _BLOCK)
        return np.concatenate([self._forward(X[start : start + _BLOCK], layers)[-1] for start in blocks])

    def _forward(self, X, layers):
        """Return what each layer is given, and the output."""
        values = [X]
        for number, (W, b) in enumerate(layers):
            a = values[-1] @ W
            a += b
            if number < len(layers) - 1:
                _ACTIVATIONS[self.activation](a)
            values.append(a)
        return values

    def loss(self, rows, w):
        """Return the sum of the loss over rows, and its gradient in the type of `w`.

        Parameters
        ----------
        rows : tuple of X, shape (n, n_features), targets and perhaps weights
            Targets are of shape (n, n_outputs), or the numbers of classes, shape (n,); weights of shape (n,).
        w : ndarray of shape (n_parameters,)
        """
        X, y, *weights = rows
        parameters = w.astype(X.dtype, copy=False)
        layers = self.layers(parameters)
        values = self._forward(X, layers)
        value, delta = _LOSSES[self.loss_name](values[-1], y, *weights)
        gradient = np.empty_like(parameters)
        for number, (out, (W, _)) in reversed(
            list(enumerate(zip(self.layers(gradient), layers, strict=True)))
        ):
            out[0][:] = values[number].T @ delta
            out[1][:] = delta.sum(axis=0)
            if number:
                delta = delta @ W.T
                _SLOPES[self.activation](delta, values[number])
        return self._penalised(value, gradient, layers, X.shape[0] / self.n_rows, w.dtype)

    def _penalised(self, value, gradient, layers, share, dtype):
        if self.alpha:
            for (G, _), (W, _) in zip(self.layers(gradient), layers, strict=True):
                G += W.dtype.type(share * self.alpha) * W
                value += share * self.alpha / 2 * float(np.vdot(W, W))
        return value, gradient.astype(dtype, copy=False)

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


# Activations work in place; slopes multiply by the derivative, which the activation's value tells. -----


def _relu(a):
    np.maximum(a, 0, out=a)


def _tanh(a):
    np.tanh(a, out=a)


def _logistic(a):
    expit(a, out=a)


def _identity(a):
    pass


def _relu_slope(delta, value):
    delta *= value > 0


def _tanh_slope(delta, value):
    delta *= 1 - value * value


def _logistic_slope(delta, value):
    delta *= value * (1 - value)


def _identity_slope(delta, value):
    pass


_ACTIVATIONS = {"relu": _relu, "tanh": _tanh, "logistic": _logistic, "identity": _identity}
_SLOPES = {
    "relu": _relu_slope,
    "tanh": _tanh_slope,
    "logistic": _logistic_slope,
    "identity": _identity_slope,
}


# Losses: the sum over rows, and its derivative by the output. ---------------------------------------------


def _squared(output, y, weights=None):
    delta = output - y
    return _summed(0.5 * np.sum(delta * delta, axis=1, dtype=np.float64), delta, weights)


def _softmax(output, y, weights=None):
    rows = np.arange(len(y))
    log_total = logsumexp(output, axis=1)
    delta = np.exp(output - log_total[:, None])
    losses = log_total - output[rows, y]
    delta[rows, y] -= 1
    return _summed(losses, delta, weights)


def _two_classes(output, y, weights=None):
    a = output[:, 0]
    losses = -np.where(y == 1, log_expit(a), log_expit(-a))
    return _summed(losses, (expit(a) - y.astype(a.dtype))[:, None], weights)


def _summed(losses, delta, weights):
    if weights is not None:
        losses, delta = losses * weights, delta * weights[:, None]
    return float(np.sum(losses, dtype=np.float64)), delta


_LOSSES = {"squared": _squared, "softmax": _softmax, "logistic": _two_classes}
