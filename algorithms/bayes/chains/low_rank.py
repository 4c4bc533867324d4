"""A metric from draws and gradients: a scale for each parameter, and a correction of low rank.

The covariance M of the metric makes the Fisher divergence of draws x and gradients g from a standard normal
density least: ``M C_g M = C_x``, with C_x and C_g their covariances. M is the geometric mean of C_x and the
inverse of C_g. For a normal density it is the exact covariance as soon as the draws span the space, when C_x
alone is still far off.

1. Scales ``s_i = (var x_i / var g_i)^(1/4)``, by which x is divided and g multiplied.
2. The directions that are known: the span of draws and gradients, where these are fewer than parameters.
3. M there, with C_x and C_g shrunk towards I. Its eigenvalues from 1/2 to 2 become 1, so that what chance
   makes in many directions is not taken for correlation.

Then ``covariance = s (I + V (L - I) V') s``. Its Cholesky factor goes to the samplers like that of a dense
metric, so that nothing else is compiled. The gain in effective draws a gradient: docs/mcmc-measured.md.

Heavy tails, as of a horseshoe prior, have gradients that say little of where the draws are. `normal_metric`
tells such a density from one that is nearly normal.

References: Seyboldt, Carlson, Carpenter, "Preconditioning Hamiltonian Monte Carlo by minimizing Fisher
divergence", 2024. Bales, Pourzanjani, Vehtari, Petzold, "Selecting the metric in Hamiltonian Monte Carlo",
2019.
"""

import numpy as np
from scipy import linalg

from ....scheduler.threads import single_threaded_blas

_SHRINK = 1e-2  # weight of I in the covariances of scaled draws and gradients, times (1 + d / n)
_KEPT = 2.0  # eigenvalues that are nearer to 1, by factors, are taken for 1
_LEAST = 10  # draws without which nothing is said
_NORMAL = 0.5  # R2 from which a density is nearly normal: at a variance of gradients 4/3 of that of a normal


def low_rank(draws, gradients, condition=1.0):
    """Return a triangle (d, d) with ``A A'`` the covariance of the metric, or None.

    None where scales alone do: where the condition number of correlations is at most `condition`, and where
    draws (n, d) or gradients are too few, constant or infinite.
    """
    scales = fisher_scales(draws, gradients)
    if scales is None:
        return None
    x, g = draws - draws.mean(axis=0), gradients - gradients.mean(axis=0)
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        try:  # products of gradients may overflow, as near a noise of zero
            values, vectors = _correction(x / scales, g * scales)
            if not len(values) or max(1.0, values.max()) <= condition * min(1.0, values.min()):
                return None
            covariance = np.eye(len(scales)) + (vectors * (values - 1)) @ vectors.T
            return np.linalg.cholesky(covariance * scales[:, None] * scales)
        except np.linalg.LinAlgError:  # or the covariance be singular to rounding: scales do
            return None


def fisher_scales(draws, gradients):
    """Return the scales (d,) of least Fisher divergence, or None of too few, constant or infinite draws."""
    if len(draws) < _LEAST or not (np.isfinite(draws).all() and np.isfinite(gradients).all()):
        return None
    spread, slope = draws.std(axis=0), gradients.std(axis=0)
    return np.sqrt(spread / slope) if (spread > 0).all() and (slope > 0).all() else None


def normal_metric(draws, gradients, condition):
    """Return the metric A of draws whose density is nearly normal, or None.

    It is a triangle where the condition number of correlations is above `condition`, else scales (1, d).

    Nearly normal is a density whose gradients are linear in the draws: a metric from the first half of the
    draws must explain most of the gradients of the second. The metric of low rank is tried first, then scales
    (1, d) alone.
    """
    half = len(draws) // 2

    def scales(x, g):
        found = fisher_scales(x, g)
        return None if found is None else found[None]

    def correlated(x, g):
        found = low_rank(x, g, condition)
        return scales(x, g) if found is None else found

    for make in (correlated, scales):
        tried = make(draws[:half], gradients[:half])
        if tried is not None and explained(tried, draws[half:], gradients[half:]) >= _NORMAL:
            return make(draws, gradients)
    return None


def explained(A, draws, gradients):
    """The share R2 of the gradients that a normal density of covariance ``A A'`` explains.

    In the coordinates ``z = x / A`` such a density has gradients ``-z``, about means. What is left is the
    Fisher divergence; R2 is below zero where that is more than the gradients, or these are not finite, as
    those at the walls of a box.
    """
    if not np.isfinite(gradients).all():
        return -np.inf
    x, g = draws - draws.mean(axis=0), gradients - gradients.mean(axis=0)
    if len(A) == len(A.T):
        with single_threaded_blas():
            z, slopes = linalg.solve_triangular(A, x.T, lower=True).T, g @ A
    else:
        z, slopes = x / A[0], g * A[0]
    whole = (slopes**2).sum()
    return float(1 - ((z + slopes) ** 2).sum() / whole) if whole > 0 else -np.inf


def _correction(x, g):
    """Eigenvalues away from 1 of the metric of scaled draws and gradients, and their vectors (d, k)."""
    n, d = x.shape
    basis = np.eye(d)
    if 2 * n < d:
        basis = np.linalg.qr(np.concatenate([x, g]).T)[0]
    weight = _SHRINK * (1 + d / n)
    some = (part @ basis for part in (x, g))
    of_x, of_g = ((part.T @ part / n + weight * np.eye(basis.shape[1])) / (1 + weight) for part in some)
    values, vectors = np.linalg.eigh(_geometric_mean(of_x, of_g))
    far = (values > _KEPT) | (values < 1 / _KEPT)
    return values[far], basis @ vectors[:, far]


def _geometric_mean(of_x, of_g):
    """Solve ``M of_g M = of_x`` for M positive definite."""
    root, inverse = _roots(of_g)
    middle, _ = _roots(root @ of_x @ root)
    return inverse @ middle @ inverse


def _roots(matrix):
    """The root of a positive definite matrix, and that of its inverse."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    roots = np.sqrt(np.maximum(values, np.finfo(float).tiny))
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T
