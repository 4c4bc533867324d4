"""Does the prior decide what the parameters of a regression are? By power-scaling it."""

import math

import numpy as np

from .diagnostics import Diagnostics

_MOST_MOVED = 0.3  # standard deviations; the limit of the reference, 0.05 of a distance, stands for it


def add_prior_line(posterior, values, names, log_prior):
    r"""Add the line "prior" to the diagnostics: what doubling the power of the prior changes most.

    `values` (n, k) are parameters under the posterior's draws, `log_prior` (n,) is the log density of their
    prior; of a flat one there is no line. Under the prior to the power a, :math:`p(b)^a`, the mean of f(b)
    has the derivative :math:`\mathrm{cov}(f(b), \log p(b))` in log a, at a = 1. The figure is the largest
    change of a mean, in standard deviations, or of a standard deviation, in parts of it, times log 2.

    Reference: Kallioinen, Paananen, Buerkner, Vehtari, "Detecting and diagnosing prior and likelihood
    sensitivity with power-scaling", Statistics and Computing 34, 2024.
    """
    if not np.ptp(log_prior) > 0:
        return
    weights = posterior.weights
    z = values - weights @ values
    sizes = np.sqrt(weights @ z**2)
    z /= np.where(sizes > 0, sizes, 1.0)
    slope = weights * (log_prior - weights @ log_prior)
    moved = math.log(2) * np.maximum(np.abs(slope @ z), np.abs(slope @ z**2) / 2)
    worst = int(moved.argmax())
    level = int(moved[worst] > _MOST_MOVED)
    words = "the prior dominates: with twice its power" if level else "with twice the power of the prior"
    words += f" {names[worst]} changes by so many sd"
    line = ("prior", float(moved[worst]), f"< {_MOST_MOVED}", level, words)
    posterior.diagnostics = Diagnostics([*posterior.diagnostics.lines, line])
