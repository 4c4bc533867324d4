"""The squared loss with any separable penalty, by products of columns.

A penalty from outside brings its proximal operator alone (`Separable`). Coordinate descent on the products of
the columns that matter calls it for each visit. There need be no duality gap: the measure of optimality is
the largest violation of stationarity, ``max_j |b_j - prox(b_j + t_j g_j)| / t_j`` with
``t_j = 1 / |x_j|^2``, which for a coefficient at zero is how far its slope exceeds its threshold.
"""

import numpy as np

from ....kernels.linear import prox as linear_prox

_NEAR = 0.8
_MOST_MEETINGS, _MOST_SWEEPS = 100, 20_000


def violation(problem, penalty):
    """Largest violation among the columns of W, as a slope of the problem divided by its scale."""
    slopes = problem.exact_slopes()
    return float(_violations(problem, penalty, slopes, problem.b, np.arange(len(slopes))).max(initial=0.0))


def descend(problem, penalty, eps):
    """Bring the largest violation among the columns of W to `eps`; return whether it was reached."""
    products, strengths = problem.products, penalty.thresholds(problem.features)
    for _ in range(_MOST_MEETINGS):
        slopes = problem.exact_slopes()
        raw = np.abs(slopes) * problem.scale / problem.copies.scales
        near = (problem.b != 0) | (raw > _NEAR * strengths)
        chosen = np.flatnonzero(near & (problem.copies.norms > 0))
        products.join(products.missing(chosen))
        b, exact, G = problem.b[chosen], slopes[chosen], products.among(chosen)
        units, steps = problem.copies.scales[chosen] * problem.scale, _steps(problem, chosen)
        for sweep in range(_MOST_SWEEPS):
            problem.updates += linear_prox.descend_prox(
                G, exact, b, units, steps, strengths[chosen], penalty.shape, penalty.prox
            )
            if sweep % 4 == 0:
                worst = _violations(problem, penalty, exact, b, chosen).max(initial=0.0)
                if worst <= 0.5 * eps:
                    break
        problem.replace(chosen, b)
        if violation(problem, penalty) <= eps:
            return True
        if sweep == _MOST_SWEEPS - 1:
            return False
    return False


def _violations(problem, penalty, slopes, b, chosen):
    """Violations of the columns `chosen` of W, whose slopes and coefficients are given."""
    scales = problem.copies.scales[chosen]
    out = np.empty(len(chosen))
    linear_prox.violations(
        slopes * (problem.scale / scales),
        b * (scales * problem.scale),
        _steps(problem, chosen),
        penalty.thresholds(problem.features[chosen]),
        penalty.shape,
        penalty.prox,
        out,
    )
    return out / problem.scale


def _steps(problem, chosen):
    """``1 / |x_j|^2`` of the columns as they were given; 0 for constant ones."""
    scales, norms = problem.copies.scales[chosen], problem.copies.norms[chosen]
    return np.where(norms > 0, scales**2 / np.where(norms > 0, norms, 1.0), 0.0)
