"""Steps of optimisers of flat vectors: one pass over all of them, where several in numpy would be.

Entries are independent, and nothing is contracted or reassociated: the same bits wherever a vector is cut.
"""

import numba as nb
import numpy as np

_SAME = {"nogil": True, "cache": True, "error_model": "numpy"}


@nb.njit(**_SAME)
def sgd_step(params, grads, decay, decayed, rate):
    """Move `params` by `rate` against their gradients; `decayed` (or nothing) says where `decay` is added."""
    for i in range(len(params)):
        g = grads[i]
        if decay > 0:
            g += (decay * decayed[i] if len(decayed) else decay) * params[i]
        params[i] -= rate * g


@nb.njit(**_SAME)
def momentum_step(params, grads, velocity, decay, decayed, rate, momentum, nesterov):
    """Move `params` along ``velocity = momentum velocity + gradient``, or with its next step in sight."""
    for i in range(len(params)):
        g = grads[i]
        if decay > 0:
            g += (decay * decayed[i] if len(decayed) else decay) * params[i]
        v = momentum * velocity[i] + g
        velocity[i] = v
        params[i] -= rate * (g + momentum * v if nesterov else v)


@nb.njit(**_SAME)
def adam_step(params, grads, means, squares, decay, decayed, rate, spread, beta_1, beta_2, epsilon):
    """Move `params` by Adam: `rate` and `spread` correct the start of means and of the root of squares."""
    one = params.dtype.type(1)
    for i in range(len(params)):
        g = grads[i]
        if decay > 0:
            g += (decay * decayed[i] if len(decayed) else decay) * params[i]
        m = means[i] + (one - beta_1) * (g - means[i])
        v = beta_2 * squares[i] + (one - beta_2) * (g * g)
        means[i], squares[i] = m, v
        params[i] -= rate * (m / (np.sqrt(v) / spread + epsilon))
