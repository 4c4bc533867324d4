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
metric, so that nothing else is compiled. The gain in effective draws a gradient: docs/mcmc.md.

References: Seyboldt, Carlson, Carpenter, "Preconditioning Hamiltonian Monte Carlo by minimizing Fisher
divergence", 2024. Bales, Pourzanjani, Vehtari, Petzold, "Selecting the metric in Hamiltonian Monte Carlo",
2019.
"""

import numpy as np

from ....scheduler.threads import single_threaded_blas

_SHRINK = 1e-2  # weight of I in the covariances of scaled draws and gradients, times (1 + d / n)
_KEPT = 2.0  # eigenvalues that are nearer to 1, by factors, are taken for 1
_LEAST = 10  # draws without which nothing is said


def low_rank(draws, gradients):
    """Return a triangle (d, d) with ``A A'`` the covariance of the metric, or None.

    None where scales alone do: without strong correlations, and where draws (n, d) or gradients are too few,
    constant or infinite.
    """
    n, d = draws.shape
    if n < _LEAST or not (np.isfinite(draws).all() and np.isfinite(gradients).all()):
        return None
    x, g = draws - draws.mean(axis=0), gradients - gradients.mean(axis=0)
    spread, slope = x.std(axis=0), g.std(axis=0)
    if not ((spread > 0).all() and (slope > 0).all()):
        return None
    scales = np.sqrt(spread / slope)
    with single_threaded_blas():
        values, vectors = _correction(x / scales, g * scales)
        if not len(values):
            return None
        covariance = np.eye(d) + (vectors * (values - 1)) @ vectors.T
        try:
            return np.linalg.cholesky(covariance * scales[:, None] * scales)
        except np.linalg.LinAlgError:  # singular to rounding: scales do
            return None


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
