r"""Annealed sequential Monte Carlo: points go from a reference q to a density p, in small steps.

.. math:: p_t(x) \propto q(x)^{1 - t} p(x)^t, \qquad 0 = t_0 < t_1 < \dots < t_S = 1.

At every temperature points are weighed by ``(p / q)^(t_s - t_(s-1))``, resampled, and moved by steps that
keep ``p_t``. The next t is the largest at which the weights of every population are worth half of its points.
The mean weights multiply to an estimate of the evidence ``Z = int p``, without bias where the t were given:

.. math:: \log Z - \log \int q \approx \sum_s \log \frac{1}{n} \sum_i (p / q)(x_i)^{t_s - t_{s-1}}.

Several populations that know nothing of each other but the temperatures are run; what they disagree about is
the error. How points move is the caller's: along differences of other points where only densities are known
(shards), by trajectories where there are gradients.

References: Neal, "Annealed importance sampling", Statistics and Computing 2001. Del Moral, Doucet, Jasra,
"Sequential Monte Carlo samplers", JRSS B 2006.
"""

import numpy as np
from scipy.special import logsumexp

from ..posterior.psis import importance_ess, resample

_KEPT = 0.5  # part of the points that a step of the temperature may cost
_NOTHING = -1e200  # logarithm of no weight, whose multiples are numbers
MOST_STEPS = 60  # of tempering; a cap


class Annealing:
    """Populations of points on their way.

    `columns` are arrays of a row for each point: ``x`` (n, d), ``log_p``, ``log_q`` (n,), and what else moves
    with the points; ``ancestor`` is added. The n points are cut into `n_populations`, one after the other.
    `log_evidence` (n_populations,) is what is known so far, at the temperature `t` after `n_steps`, and
    `variance` what the weights say of its square error, as if points were independent at every temperature.
    """

    def __init__(self, columns, n_populations, rng):
        n = len(columns["x"])
        self.columns = columns | {"ancestor": np.arange(n)}
        self.populations = [
            slice(part[0], part[-1] + 1) for part in np.array_split(np.arange(n), n_populations)
        ]
        self.log_evidence, self.variance = np.zeros(n_populations), np.zeros(n_populations)
        self.t, self.n_steps, self._rng = 0.0, 0, rng

    def step(self, move):
        """Take the next temperature, weigh, resample, and move; returns whether it is 1.

        ``move(columns, t)`` returns the columns after moves that keep the density at t. What is left after 60
        steps is done in one, and the populations will differ.
        """
        ratio = np.maximum(self.columns["log_p"] - self.columns["log_q"], _NOTHING)
        left = 1.0 - self.t
        further = left
        if self.n_steps + 1 < MOST_STEPS:
            for own in self.populations:
                size = own.stop - own.start
                further = min(further, largest_power(ratio[own], _KEPT * size, further))
        kept = np.empty(len(ratio), dtype=np.int64)
        for k, own in enumerate(self.populations):
            weights = further * ratio[own]
            total = logsumexp(weights)
            self.log_evidence[k] += total - np.log(len(weights))
            self.variance[k] += 1 / importance_ess(weights - total) - 1 / len(weights)
            kept[own] = own.start + resample(weights - total, len(weights), self._rng)
        self.t = 1.0 if further == left else self.t + further
        self.n_steps += 1
        self.columns = move({name: column[kept] for name, column in self.columns.items()}, self.t)
        return self.t >= 1.0

    def population(self, k, name="x"):
        """A column of population k."""
        return self.columns[name][self.populations[k]]


def largest_power(log_weights, least, most=1.0):
    """Find the largest power of weights, up to `most`, at which they are worth `least` draws."""

    def worth(power):
        return importance_ess(power * log_weights - logsumexp(power * log_weights))

    if worth(most) >= least:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if worth(middle) >= least else (low, middle)
    return high
