"""Optimisers of flat vectors: a step changes parameters and slots in place."""

import math
from dataclasses import dataclass

import numpy as np

from ....errors import DataError
from ....kernels.neural.steps import adam_step, momentum_step, sgd_step


@dataclass(frozen=True)
class SGD:
    """Gradient descent with momentum, as in PyTorch: ``slot = momentum slot + gradient``.

    An epoch has `n_steps` steps over `n_rows` rows; see `rate`.

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
    power: float = 0.0
    n_rows: int = 0
    n_steps: int = 1

    def rate(self, number):
        """Rate of a step: it falls as ``(1 + t) ** -power`` with the t rows of the epochs before."""
        rows = (number - 1) // self.n_steps * self.n_rows
        return self.learning_rate / (1 + rows) ** self.power

    def slots(self, params):
        """Return what is kept from step to step."""
        return np.zeros((1 if self.momentum else 0, len(params)), params.dtype)

    def step(self, params, grads, slots, number, decayed=None):
        """Make the step of this number, counted from 1."""
        kind = params.dtype.type
        rate, momentum, decay = map(kind, (self.rate(number), self.momentum, self.weight_decay))
        decayed = params[:0] if decayed is None else decayed
        if not len(slots):
            sgd_step(params, grads, decay, decayed, rate)
        else:
            momentum_step(params, grads, slots[0], decay, decayed, rate, momentum, self.nesterov)


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
        """Make the step of this number, counted from 1."""
        kind = params.dtype.type
        rate = kind(self.learning_rate / (1 - self.beta_1**number))
        spread = kind(math.sqrt(1 - self.beta_2**number))
        betas = kind(self.beta_1), kind(self.beta_2)
        decayed = params[:0] if decayed is None else decayed
        decay, epsilon = kind(self.weight_decay), kind(self.epsilon)
        adam_step(params, grads, *slots, decay, decayed, rate, spread, *betas, epsilon)


def check_optimizer_state(model, n_parameters):
    """Refuse a model read from a file whose `optimizer_state_` and `n_updates_` do not fit its parameters."""
    slots, n_updates = (vars(model).get(name) for name in ("optimizer_state_", "n_updates_"))
    if slots is None and n_updates is None:  # of a fit without such an optimiser, or an older file
        return
    fits = isinstance(slots, np.ndarray) and slots.dtype.kind == "f" and slots.ndim == 2
    if not fits or slots.shape[1] != n_parameters or not np.isfinite(slots).all():
        raise DataError("optimizer_state_ is not that of the parameters")
    if len(slots) == 2 and (slots[1] < 0).any():
        raise DataError("optimizer_state_ has means of squares below 0")
    if type(n_updates) is not int:
        raise DataError("n_updates_ must be an integer")
