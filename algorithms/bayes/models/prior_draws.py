"""Exact draws from priors of independent entries, and their distributions."""

import numpy as np
from scipy import stats

from ....kernels.bayes import transforms
from ....kernels.bayes.densities import parameter_priors as codes


def draw_prior(prior, parameter, n, rng):
    """Draw n values (n, *shape) of a parameter whose prior has numbers as arguments.

    Ordered numbers with independent priors are sorted ones. A triangle has LKJ's density of correlations, by
    partial correlations: Lewandowski, Kurowicka, Joe, "Generating random correlation matrices based on vines
    and extended onion method", Journal of Multivariate Analysis 2009.
    """
    if parameter.kind == transforms.TRIANGLE:
        return _triangles(float(prior.arguments[0][1]), parameter.size, n, rng)
    distribution = distribution_of(prior)
    low, high = distribution.cdf(parameter.low), distribution.cdf(parameter.high)
    u = low + (high - low) * rng.random((n, *parameter.shape))
    values = distribution.ppf(np.clip(u, 1e-16, 1 - 1e-16))
    return np.sort(values, axis=-1) if parameter.kind == transforms.ORDERED else values


def distribution_of(prior):
    """The distribution of SciPy that a prior with numbers as arguments is."""
    a, b, c = (*(value for _, value in prior.arguments), None, None)[:3]
    return {
        codes.NORMAL: lambda: stats.norm(a, b),
        codes.STUDENT_T: lambda: stats.t(c, a, b),
        codes.LAPLACE: lambda: stats.laplace(a, b),
        codes.LOGNORMAL: lambda: stats.lognorm(b, scale=np.exp(a)),
        codes.HALF_CAUCHY: lambda: stats.halfcauchy(scale=a),
        codes.EXPONENTIAL: lambda: stats.expon(scale=1 / b),
        codes.GAMMA: lambda: stats.gamma(a, scale=1 / b),
        codes.INVERSE_GAMMA: lambda: stats.invgamma(a, scale=b),
    }[prior.code]()


def lkj_density(prior, correlations):
    """Log density (n,) without constants of the entries (n, c) below the diagonal, row by row."""
    k = int((1 + np.sqrt(1 + 8 * correlations.shape[1])) / 2)
    R = np.tile(np.eye(k), (len(correlations), 1, 1))
    rows, columns = np.tril_indices(k, -1)
    R[:, rows, columns] = R[:, columns, rows] = correlations
    return (float(prior.arguments[0][1]) - 1) * np.linalg.slogdet(R)[1]


def _triangles(eta, k, n, rng):
    L = np.zeros((n, k, k))
    for row in range(k):
        left = np.ones(n)
        for j in range(row):
            b = eta + (k - 2 - j) / 2
            z = 2 * rng.beta(b, b, n) - 1
            L[:, row, j] = z * left
            left = left * np.sqrt(1 - z * z)
        L[:, row, row] = left
    return L
