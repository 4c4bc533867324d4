"""Products of kernel density estimates: Algorithm 1, its semiparametric form, and the tree of exact pairs."""

import math

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from ....errors import DataError
from ....kernels.bayes.posterior_product import pair_choices, pair_sums, product_draws
from ..posterior.psis import resample
from .gaussian import centred_covariance, from_moments, gaussian_product, inverses


def kernel_product(draws, n, rng, *, semiparametric=False, sweeps=4, floor=0.1, width=None, exponent=None):
    r"""Draw n points from the product of kernel density estimates, by Metropolis over which draws are taken.

    Draws (M, T, d) are first whitened by the product of Gaussians, where each shard has a spread of about
    :math:`\sqrt M`; the width of the kernels then falls as :math:`2 \sqrt M\, i^{-1/(4 + d)}`. The
    semiparametric product is a Gaussian for each shard, corrected by kernels. Its weights divide by that
    Gaussian, so that kernels as wide as a shard prefer draws far out, and are worse than no kernels. So it
    has one width, Silverman's of T draws, from the first draw on:

    .. math:: w \propto \prod_m \frac{N(\theta_m \mid \bar\theta, h^2 I)}{N(\theta_m \mid \mu_m, S_m)}\;
        N(\bar\theta \mid \mu, \Sigma + \tfrac{h^2}{M} I).

    ``n // 4`` draws are thrown away first; each takes `sweeps` over all shards. The width is ``width *
    i^exponent`` standard deviations of a shard, and is held while the acceptance is lower than `floor`. A
    floor of 0 is the schedule of the paper, which freezes.

    Returns the draws (n, d), the acceptance, and the last width in standard deviations of the product. With
    an acceptance below 0.05 the draws stand for few choices. Nonparametric draws are ``sqrt(1 + width^2)``
    times too wide.

    Reference: Neiswanger, Wang, Xing, "Asymptotically exact, embarrassingly parallel MCMC", UAI 2014.
    """
    M, T, d = draws.shape
    if width is None:
        width = (4 / (d + 2)) ** (1 / (d + 4)) * T ** (-1 / (d + 4)) if semiparametric else 2.0
    if exponent is None:
        exponent = 0.0 if semiparametric else -1 / (4 + d)
    x, back = _whitened(draws, from_moments(draws))
    logs, mean = np.zeros((M, T)), np.zeros(d)
    if semiparametric:
        precisions = inverses(centred_covariance(x), "the covariance")
        centres = x.mean(axis=1)
        product = gaussian_product(precisions, np.einsum("mij,mj->mi", precisions, centres))
        apart = x - centres[:, None]
        logs = -((apart @ precisions) * apart).sum(axis=2) / 2
        # Whitened once more, by these very moments, so that the Gaussian factor is N(0, I).
        x, again = _whitened(x, product)
    out, acceptance, last = product_draws(
        x,
        np.einsum("mtj,mtj->mt", x, x),
        logs,
        semiparametric,
        mean,
        rng.standard_normal((n, d)),
        n // 4,
        sweeps,
        width * math.sqrt(M),
        exponent,
        floor,
        np.uint64(rng.integers(2**63)),
    )
    return back(again(out) if semiparametric else out), acceptance, last / math.sqrt(M)


def _whitened(x, gaussian):
    """Bring draws to coordinates where the Gaussian is N(0, I); return them and the way back."""
    root = np.linalg.cholesky(gaussian.covariance)
    flat = (x - gaussian.mean).reshape(-1, x.shape[2])
    whitened = np.ascontiguousarray(np.linalg.solve(root, flat.T).T.reshape(x.shape))
    return whitened, lambda z: gaussian.mean + z @ root.T


def pair_tree(draws, n, rng, *, kept=2000):
    r"""Multiply kernel density estimates two shards at a time, by the weights of all pairs of draws.

    The product of two mixtures of :math:`T_a` and :math:`T_b` kernels is a mixture of :math:`T_a T_b`
    Gaussians with weights :math:`N(x_a - x_b \mid 0, (h_a^2 + h_b^2) I)`. All are computed and `kept` draws
    taken in a stratified way, so no chain has to find its way between separate modes. For at most two
    parameters: in more dimensions hardly any pair is near. The n draws are smoothed by the kernels: wider
    than the product, by less as T grows.

    Reference: Wang, Guo, Heller, Dunson, "Parallelizing MCMC with random partition trees", NeurIPS 2015.
    """
    if draws.shape[2] > 2:
        raise DataError(f"the tree of pairs is for at most 2 parameters, got {draws.shape[2]}")
    scale = draws.reshape(-1, draws.shape[2]).std(axis=0)
    level = list(draws / scale)
    while len(level) > 1:
        odd = level[len(level) - len(level) % 2 :]
        level = [_pair(a, b, kept, rng) for a, b in zip(level[::2], level[1::2], strict=False)] + odd
    return level[0][rng.integers(len(level[0]), size=n)] * scale


def _pair(a, b, kept, rng):
    """Draw from the product of two kernel density estimates: first a row of the pairs, then a place in it."""
    width_a, width_b = kernel_width(a) ** 2, kernel_width(b) ** 2
    sums = pair_sums(a, b, width_a + width_b)
    i = resample(sums - logsumexp(sums), kept, rng)
    j = pair_choices(a, b, sums, i, rng.random(kept), width_a + width_b)
    variance = 1 / (1 / width_a + 1 / width_b)
    centres = (a[i] / width_a + b[j] / width_b) * variance
    return centres + rng.standard_normal((kept, a.shape[1])) * math.sqrt(variance)


def kernel_width(x):
    """Width of kernels by the distance to the k-th neighbour, which a far mode does not widen."""
    k = min(max(5, int(0.5 * len(x) ** (4 / (4 + x.shape[1])))), len(x))
    some = x[:: max(len(x) // 500, 1)]
    distances, _ = cKDTree(x).query(some, k=[k])
    width = float(np.median(distances))
    if width == 0:
        raise DataError(
            f"more than half of a shard's draws repeat {k} times or more, so that kernels have no width: its "
            "chain hardly moves; run it longer, or with another sampler"
        )
    return width
