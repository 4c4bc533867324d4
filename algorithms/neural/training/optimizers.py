"""Optimisers of flat vectors: a step changes parameters and slots in place."""

import math
from dataclasses import dataclass

import numpy as np

_BLOCK = 2**15  # entries at a time, which stay in the cache


@dataclass(frozen=True)
class SGD:
    """Gradient descent with momentum, as in PyTorch: ``slot = momentum slot + gradient``.

    Examples
    --------
    >>> import numpy as np
    >>> from stradask.algorithms.neural.training.optimizers import SGD
    >>> optimizer, params = SGD(0.1, momentum=0.5), np.zeros(2)
    >>> slots = optimizer.slots(params)
    >>> for number in (1, 2):
    ...     optimizer.step(params, np.array([1.0, -2.0]), slots, number)
    >>> params
    array([-0.25,  0.5 ])
    """

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def slots(self, params):
        """Return what is kept from step to step."""
        return np.zeros((1 if self.momentum else 0, len(params)), params.dtype)

    def step(self, params, grads, slots, number, decayed=None):
        """Make the step of this number, counted from 1; `grads` may be overwritten."""
        rate, momentum, decay = map(params.dtype.type, (self.learning_rate, self.momentum, self.weight_decay))
        for part, (w, g, *v) in _blocks(params, grads, *slots):
            _add_decay(w, g, decay, decayed, part)
            if not v:
                g *= rate
            else:
                v[0] *= momentum
                v[0] += g
                if self.nesterov:
                    g += momentum * v[0]
                    g *= rate
                else:
                    np.multiply(v[0], rate, out=g)
            w -= g


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), as in PyTorch; `weight_decay` is added to the gradient."""

    learning_rate: float
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def slots(self, params):
        """Return what is kept from step to step."""
        return np.zeros((2, len(params)), params.dtype)

    def step(self, params, grads, slots, number, decayed=None):
        """Make the step of this number, counted from 1; `grads` may be overwritten."""
        kind = params.dtype.type
        rate = kind(self.learning_rate / (1 - self.beta_1**number))
        spread = kind(math.sqrt(1 - self.beta_2**number))
        one, two, epsilon, decay = map(kind, (self.beta_1, self.beta_2, self.epsilon, self.weight_decay))
        for part, (w, g, m, v) in _blocks(params, grads, *slots):
            _add_decay(w, g, decay, decayed, part)
            m += (1 - one) * (g - m)
            v *= two
            v += (1 - two) * (g * g)
            np.sqrt(v, out=g)
            g /= spread
            g += epsilon
            np.divide(m, g, out=g)
            g *= rate
            w -= g


def _blocks(*vectors):
    for first in range(0, len(vectors[0]), _BLOCK):
        part = slice(first, first + _BLOCK)
        yield part, [vector[part] for vector in vectors]


def _add_decay(w, g, decay, decayed, part):
    if decay:
        g += decay * w if decayed is None else decay * decayed[part] * w
