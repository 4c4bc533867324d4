r"""Products of Gaussians: closed forms, and tests whether shards are near enough to Gaussian.

.. math:: \prod_m N(\theta \mid \mu_m, P_m^{-1}) \propto N(\theta \mid P^{-1} \sum_m P_m \mu_m, P^{-1}),
    \qquad P = \sum_m P_m.

Only the sums of the precisions and of ``P_m mu_m`` are needed: a shard that knows nothing of a direction adds
nothing, and the precision of a single shard need not be definite.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from ....errors import DataError


class Gaussian(NamedTuple):
    """A normal density by its mean (d,) and covariance (d, d)."""

    mean: np.ndarray
    covariance: np.ndarray

    def draw(self, n, rng):
        """Return n independent draws, (n, d)."""
        noise = rng.standard_normal((n, len(self.mean)))
        return self.mean + noise @ np.linalg.cholesky(self.covariance).T


class NotDefinite(ArithmeticError):
    """A product whose precision has an eigenvalue that is not positive: no density."""


def gaussian_product(precisions, shifts):
    """Multiply Gaussians of precisions P_m (M, d, d) and shifts ``P_m mu_m`` (M, d).

    Raises NotDefinite if the sum of the precisions is not positive definite.
    """
    precision = precisions.sum(axis=0)
    scale = np.sqrt(np.abs(np.diag(precision)))
    if not np.isfinite(precision).all() or not scale.all():
        raise NotDefinite("the precision of the product is zero or not finite")
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))  # scaled: units do not count
    if values[0] <= len(values) * np.finfo(float).eps * values[-1]:
        raise NotDefinite(f"the precision of the product has the eigenvalue {values[0]:.2g}")
    half = vectors / np.sqrt(values) / scale[:, None]
    covariance = half @ half.T
    return Gaussian(covariance @ shifts.sum(axis=0), covariance)


def centred_covariance(x, y=None):
    """Return ``Cov(x, y)`` of every shard, (M, d, d), for arrays (M, T, d)."""
    x = x - x.mean(axis=1, keepdims=True)
    y = x if y is None else y - y.mean(axis=1, keepdims=True)
    return np.swapaxes(x, 1, 2) @ y / (x.shape[1] - 1)


def inverses(matrices, what):
    """Invert positive definite matrices (M, d, d); a DataError names the shard whose one is not."""
    scale = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
    for m, row in enumerate(scale):
        if not row.all():
            raise DataError(
                f"parameter {int(np.argmin(row))} does not move in shard {m}: its chain is stuck, or the "
                "parameter is a constant; run the shard anew or leave the parameter out"
            )
    correlations = matrices / (scale[:, :, None] * scale[:, None, :])
    values = np.linalg.eigvalsh(correlations)
    poor = np.flatnonzero(values[:, 0] <= matrices.shape[1] * np.finfo(float).eps * values[:, -1])
    if len(poor):
        raise DataError(
            f"{what} of shard {poor[0]} is singular: its draws lie in fewer than {matrices.shape[1]} "
            "dimensions; take more draws, or leave out parameters that depend on one another"
        )
    return np.linalg.inv(correlations) / (scale[:, :, None] * scale[:, None, :])


def from_moments(draws):
    """Multiply Gaussians with the shards' sample means and covariances (the parametric product), T > d + 2.

    The inverse of a sample covariance is too large on average; ``(T - d - 2) / (T - 1)`` corrects it.
    """
    _, T, d = draws.shape
    if d + 2 >= T:
        raise DataError(
            f"a parametric product of {d} parameters needs more than {d + 2} draws a shard, got {T}: take at "
            f"least {10 * d}, or the score-matched product, which needs gradients and only {d + 2} draws"
        )
    return gaussian_product(*moment_parameters(draws))


def moment_parameters(draws):
    """Return precisions (M, d, d) and ``P_m mu_m`` (M, d) of the shards by their sample moments."""
    _, T, d = draws.shape
    precisions = inverses(centred_covariance(draws), "the covariance") * ((T - d - 2) / (T - 1))
    return precisions, np.einsum("mij,mj->mi", precisions, draws.mean(axis=1))


def from_scores(draws, gradients, spd=False):
    r"""Multiply Gaussians found by regressing each shard's gradients on its draws, (M, T, d) both.

    For :math:`N(\mu, P^{-1})` the gradient is :math:`g = -P (\theta - \mu)` without any noise. So

    .. math:: P_m = -\mathrm{sym}(C_\theta^{-1} C_{\theta g}), \qquad
        P_m \mu_m = P_m \bar\theta + \bar g

    are exact from d + 2 draws on, where sample moments are off by :math:`O(\sqrt{M d / T})` standard
    deviations. `spd` takes the positive definite solution of :math:`P C_\theta P = C_g`: where shards are
    skewed the regression may not be definite, and is noisier.
    """
    T, d = draws.shape[1:]
    if d + 2 > T:
        raise DataError(
            f"a score-matched product of {d} parameters needs {d + 2} draws a shard, got {T}: take more draws"
        )
    return gaussian_product(*score_parameters(draws, gradients, spd))


def score_parameters(draws, gradients, spd=False):
    """Return precisions (M, d, d) and ``P_m mu_m`` (M, d) of the shards by `from_scores`' regression."""
    scale, x, g = _scaled(draws, gradients)
    spread = centred_covariance(x)
    if spd:
        precisions = definite_maps(spread, centred_covariance(g))
    else:
        precisions = -inverses(spread, "the covariance") @ centred_covariance(x, g)
        precisions = (precisions + np.swapaxes(precisions, 1, 2)) / 2
    precisions /= scale[:, :, None] * scale[:, None, :]
    return precisions, np.einsum("mij,mj->mi", precisions, draws.mean(axis=1)) + gradients.mean(axis=1)


def _scaled(draws, gradients):
    """Measure every parameter in its standard deviation in the shard, (M, d): units do not count."""
    scale = draws.std(axis=1, ddof=1)
    scale = np.where(scale > 0, scale, 1.0)  # `inverses` says which one does not move
    return scale, draws / scale[:, None], gradients * scale[:, None]


def definite_maps(spread, slopes):
    """Find positive definite A with ``A spread A = slopes``, (M, d, d) each."""
    inverses(spread, "the covariance")  # names the shard that cannot be inverted
    values, vectors = np.linalg.eigh(spread)
    root = (vectors * np.sqrt(values)[:, None]) @ np.swapaxes(vectors, 1, 2)
    inverse = (vectors / np.sqrt(values)[:, None]) @ np.swapaxes(vectors, 1, 2)
    values, vectors = np.linalg.eigh(root @ slopes @ root)
    middle = (vectors * np.sqrt(np.maximum(values, 0))[:, None]) @ np.swapaxes(vectors, 1, 2)
    return inverse @ middle @ inverse


def half_disagreement(draws, gradients=None, spd=False):
    """Compare the combinations of the shards' first and second halves: a free estimate of Monte Carlo error.

    Returns the largest difference of the two means in standard deviations; NaN if a half has too few draws or
    its product is not a density. The combination of all draws errs by about half of it.
    """
    half = draws.shape[1] // 2
    try:
        if gradients is None:
            one, two = (from_moments(part) for part in (draws[:, :half], draws[:, half:]))
        else:
            one, two = (
                from_scores(draws[:, part], gradients[:, part], spd)
                for part in (slice(0, half), slice(half, None))
            )
    except (DataError, NotDefinite):
        return float("nan")
    sd = np.sqrt((np.diag(one.covariance) + np.diag(two.covariance)) / 2)
    return float((np.abs(one.mean - two.mean) / sd).max())


def non_gaussianity(draws, gradients):
    r"""Measure how far each shard is from a Gaussian, (M,), by the residuals of its gradients.

    A Gaussian's gradient is linear in the parameters. By Stein's identity :math:`C_{\theta g} = -I`, so the
    part of :math:`C_g` that the regression explains is :math:`C_\theta^{-1}`; the figure is the largest
    eigenvalue of :math:`C_g` in its unit. It is 1 for a Gaussian whatever the number of draws, 2 for
    Student's t with 3 degrees of freedom, :math:`1 + a^2 / s^2` for two equal modes of width s at a and -a,
    and inf where the regression explains nothing in some direction. T > d + 1.
    """
    _, T, d = draws.shape
    _, x, g = _scaled(draws, gradients)
    across = centred_covariance(x, g)
    explained = np.swapaxes(across, 1, 2) @ inverses(centred_covariance(x), "the covariance") @ across
    left = (centred_covariance(g) - explained) * ((T - 1) / (T - 1 - d))
    figures = np.empty(len(draws))
    for m in range(len(draws)):
        try:
            figures[m] = 1 + max(eigh(left[m], explained[m], eigvals_only=True)[-1], 0.0)
        except np.linalg.LinAlgError:  # nothing explained: the second matrix is singular
            figures[m] = np.inf
    return figures


def skew_shift(draws, gradients=None):
    r"""Estimate how far the shards' skewness puts a product of Gaussians from the product of the shards.

    A shard of skewness :math:`\gamma` has its score :math:`\gamma / 2` of its standard deviations from where
    the Gaussian has it, and M such shards add up: :math:`(M - 1) \gamma / (2 \sqrt M)` standard deviations of
    the posterior, in any direction. With gradients :math:`\gamma^2 / 2` is the excess of `non_gaussianity`
    over 1, and counts as if all shards leant to one side; without them :math:`\gamma` is the mean of
    :math:`|z|^2 z` of whitened draws.
    """
    M = len(draws)
    if gradients is not None:
        skewness = np.sqrt(2 * (non_gaussianity(draws, gradients) - 1)).mean()
    else:
        skewness = np.linalg.norm(_third(_whitened(draws)).mean(axis=0))
    return float((M - 1) / (2 * np.sqrt(M)) * skewness)


def excess_moments(draws):
    """Measure how far shards are from Gaussian by their third and fourth moments in any direction.

    The eigenvalues of :math:`E |z|^2 z z^T - (d + 2) I`, of whitened draws z, are the excess kurtoses of
    independent parts that the parameters are mixed of. Few draws make them large, the more so in many
    dimensions. Skewness or kurtosis counts, whichever is larger: the mean over shards, or a third of the
    largest, so that one shard in two pieces is not lost among many others.
    """
    z = _whitened(draws)
    fourth = np.swapaxes(z * (z**2).sum(axis=2, keepdims=True), 1, 2) @ z / z.shape[1]
    kurtosis = np.abs(np.linalg.eigvalsh(fourth) - (z.shape[2] + 2)).max(axis=1)
    figures = np.maximum(kurtosis, np.linalg.norm(_third(z), axis=1))
    return float(max(figures.mean(), figures.max() / 3))


def _third(z):
    """Skewness of each shard as a vector, (M, d)."""
    return (z * (z**2).sum(axis=2, keepdims=True)).mean(axis=1)


def _whitened(draws):
    """Give each shard's draws zero mean and unit covariance, by the symmetric root."""
    x = (draws - draws.mean(axis=1, keepdims=True)) / draws.std(axis=(0, 1))
    spread = centred_covariance(x)
    inverses(spread, "the covariance")  # names the shard that cannot be inverted
    values, vectors = np.linalg.eigh(spread)
    return x @ ((vectors / np.sqrt(values)[:, None]) @ np.swapaxes(vectors, 1, 2))
