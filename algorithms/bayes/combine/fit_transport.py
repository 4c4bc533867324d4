r"""Fit transports to the scores of a posterior, :math:`\nabla \log p`, at draws of the transport itself.

The **normal density** comes first, by Newton's method on its Kullback-Leibler divergence to the posterior:
:math:`P = -E\, \nabla^2 \log p`, by Stein's identity the regression of scores on points, and
:math:`\mu \leftarrow \mu + P^{-1} E\, \nabla \log p` (Opper and Archambeau). The step is halved until the
divergence falls, which the same normal numbers measure each time.

Then **stages**. Scores pulled back to z would be -z if the images of z were draws of the posterior. The rest,
r(z), is the gradient of :math:`\varphi`, the log ratio of posterior and proposal. To first order the map
:math:`z_k \mapsto z_k + c\, z_i z_j` multiplies the density by :math:`\exp(c\, z_i z_j z_k)` for i < j < k,
and likewise for other monomials. So a regression of r on Hermite polynomials of degree 0 to 2, and on the
third degree of each coordinate alone, gives a stage; the next one corrects the second order. A score has d
numbers and no noise of the proposals: 4,000 points determine the 22,100 third derivatives of 50 parameters,
where 4,000 weights cannot.

Reference: Opper, Archambeau, "The variational Gaussian approximation revisited", Neural Computation 21, 2009.
"""

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from .gaussian import Gaussian, NotDefinite, from_scores
from .transport import Bend, Transport

MOST_BENT = 200  # parameters whose third derivatives are fitted; beyond, each bends alone
_POINTS, _LEAST_POINTS = 8, 200  # of a step of the normal density: times d, and at least
_NEWTON, _SETTLED = 12, 0.1  # steps, and the gain of the divergence that ends them
_SHORTEST = 1 / 64  # step of Newton's method
_CHUNK = 512  # points whose products of coordinates are held at a time
_STEPS = 12  # of conjugate gradients, at most
_FITTED = 0.75  # part of the points that fit; the others say when to stop
_GAIN = 1e-3  # of what is left there, for another step
_LOWEST = 0.01  # part of the log ratios that is not believed
_OUTLYING = 4.0  # lengths of scores, in medians, beyond which they are shortened
_NOISES = 3.0  # standard errors that a coefficient of a coordinate alone must have
_LARGEST = 0.3  # coefficient of a stage: for larger ones the first order is no guide


def _projections():
    """Parts of the Hermite polynomials of degree 2 and 3 in the derivatives of sinh(delta asinh z + eps)."""
    z, w = hermegauss(80)
    w, root = w / w.sum(), np.sqrt(1 + z * z)
    return (w * root) @ (z * z - 1) / 2, (w * root * np.arcsinh(z)) @ (z**3 - 3 * z) / 6


_BY_EPSILON, _BY_DELTA = _projections()
_NODES, _MASSES = hermegauss(60)
_MASSES = _MASSES / _MASSES.sum()


def fit_gaussian(gaussian, value_and_grad, n, rng):
    """Move a normal density to the one of least divergence to a posterior, at up to n points a step.

    ``value_and_grad(x)`` returns log densities (k,) and gradients (k, d).
    """
    d = len(gaussian.mean)
    z = rng.standard_normal((min(n, max(_LEAST_POINTS, _POINTS * d)), d))

    def looked(candidate):
        x, log_q = Transport(candidate).forward(z)
        heights, scores = value_and_grad(x)
        return x, scores, np.mean(heights - log_q)

    x, scores, bound = looked(gaussian)
    for _ in range(_NEWTON):
        there = _newton(x, scores)
        if there is None:
            break
        step = 1.0
        while step >= _SHORTEST:
            moved = _between(gaussian, there, step)
            found = looked(moved)
            if found[2] > bound or np.isnan(bound):
                break
            step /= 2
        if not found[2] > bound:
            break
        gain, gaussian, (x, scores, bound) = found[2] - bound, moved, found
        if gain < _SETTLED:
            break
    return gaussian


def _newton(x, scores):
    """Return the normal density whose scores at x are nearest to these, or None if there is none."""
    usable = np.isfinite(scores).all(axis=1)
    if usable.sum() < x.shape[1] + 2:
        return None
    for spd in (False, True):
        try:
            return from_scores(x[None, usable], scores[None, usable], spd)
        except NotDefinite:
            continue
    return None


def _between(one, two, share):
    return Gaussian(*((1 - share) * a + share * b for a, b in zip(one, two, strict=True)))


def lower_bound(log_ratios):
    """Mean of log p - log q, which is less than that of all of p by the divergence; and its standard error.

    The lowest hundredth counts as the next higher ratio, as a point without density would make it -inf.
    """
    ratios = np.maximum(log_ratios, np.quantile(log_ratios, _LOWEST, method="higher"))
    return ratios.mean(), ratios.std() / np.sqrt(len(ratios))


def bent(transport, z, scores, share=1.0):
    """Add the stage to a transport that the posterior's scores (n, d) at the images of z ask for, or a share.

    Scores of outliers, `_OUTLYING` times as long as half of them, are shortened to that.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        r = transport.residual(z, scores)
        lengths = np.sqrt((r**2).sum(axis=1))
    usable = np.isfinite(lengths)
    r, lengths = r[usable], lengths[usable]
    longest = _OUTLYING * np.median(lengths)
    r *= share * np.minimum(1.0, longest / np.maximum(lengths, np.finfo(float).tiny))[:, None]
    return Transport(transport.gaussian, (*transport.stages, fit_stage(z[usable], r)))


def fit_stage(z, r):
    r"""Fit a stage to residual scores r (n, d) at standard normal points z (n, d).

    With :math:`\varphi = b' z + z' D z / 2 + T \cdot He_3(z) / 6 + \sum_k q_k He_4(z_k) / 24`, coordinate k
    gets the terms in which it is the last: b, the triangle of D, :math:`T_{kij}` as a quadratic form of the
    coordinates before, :math:`T_{kki}` as their part in its scale, and a curve by :math:`T_{kkk}` and q.
    """
    d = z.shape[1]
    b = r.mean(axis=0)
    rest = r - b
    D = np.linalg.lstsq(z, rest, rcond=None)[0]
    D = (D + D.T) / 2
    rest = rest - z @ D
    T = third_derivatives(z, rest) if d <= MOST_BENT else None
    if T is None:
        own = _alone(z * z - 1, rest, 2)
        C = np.zeros((d, d))
        A = tuple(np.zeros((k, k)) for k in range(d))
    else:
        rest = rest - _applied(T, z)
        own = np.einsum("kkk->k", T)
        A = tuple(np.ascontiguousarray(T[k, :k, :k]) for k in range(d))
        C = np.tril(np.einsum("kki->ki", T), -1) / 2
    q = _alone(z**3 - 3 * z, rest, 6) * 6
    epsilon = _bounded(own / 6 / _BY_EPSILON)
    delta = np.exp(_bounded(q / 24 / _BY_DELTA))
    # The curve's own mean and slope are taken out.
    curve = np.sinh(delta[:, None] * np.arcsinh(_NODES) + epsilon[:, None])
    middle, slope = curve @ _MASSES, curve @ (_MASSES * _NODES)
    c = _bounded(np.diag(D) / 2) - np.log(slope)
    a = b - np.array([np.trace(part) for part in A]) / 2 - middle * np.exp(c)
    return Bend(a, np.tril(D, -1), A, c, _bounded(C), epsilon, delta)


def _bounded(values):
    return np.clip(values, -_LARGEST, _LARGEST)


def _alone(polynomials, r, norm):
    """Regress each coordinate's r on its own Hermite polynomial of this squared norm; zero if it is noise."""
    products = polynomials * r / norm
    found = products.mean(axis=0)
    noise = products.std(axis=0) / np.sqrt(len(r))
    return np.where(np.abs(found) > _NOISES * noise, found, 0.0)


def third_derivatives(z, r):
    """Fit the symmetric tensor T (d, d, d) of ``r = T : (z z' - I) / 2`` by least squares, or None.

    Conjugate gradients stop when points that are left out are predicted best, which shrinks T where points
    are few. None if no T predicts them better than zero.
    """
    cut = int(_FITTED * len(z))
    steps, least = 0, (r[cut:] ** 2).sum()
    for number, T in enumerate(_descent(z[:cut], r[:cut], _STEPS), 1):
        left = ((r[cut:] - _applied(T, z[cut:])) ** 2).sum()
        if left > (1 - _GAIN) * least:
            break
        steps, least = number, left
    found = None
    for T in _descent(z, r, steps):
        found = T
    return found


def _descent(z, r, steps):
    """Conjugate gradients on the normal equations, from zero; yields T after each step."""
    T, gradient = 0.0, _adjoint(z, r)
    direction, size = gradient, (gradient**2).sum()
    for _ in range(steps):
        image = _applied(direction, z)
        length = (image**2).sum()
        if not length:
            return
        T = T + size / length * direction
        r = r - size / length * image
        gradient = _adjoint(z, r)
        size, before = (gradient**2).sum(), size
        direction = gradient + size / before * direction
        yield T


def _products(z):
    """Products of two coordinates j <= k less their means, (n, d (d + 1) / 2), in single precision."""
    j, k = np.triu_indices(z.shape[1])
    z = z.astype(np.float32)
    return z[:, j] * z[:, k] - (j == k).astype(np.float32)


def _chunks(n):
    return [slice(first, first + _CHUNK) for first in range(0, n, _CHUNK)]


def _applied(T, z):
    """Compute ``T : (z z' - I) / 2``, (n, d)."""
    j, k = np.triu_indices(z.shape[1])
    rows = (T[j, k] * np.where(j == k, 0.5, 1.0)[:, None]).astype(np.float32)
    return np.concatenate([_products(z[part]) @ rows for part in _chunks(len(z))]).astype(np.float64)


def _adjoint(z, r):
    """The transpose of `_applied` for symmetric tensors."""
    d = z.shape[1]
    j, k = np.triu_indices(d)
    sums = np.zeros((len(j), d))
    for part in _chunks(len(z)):
        sums += _products(z[part]).T @ r[part].astype(np.float32)
    S = np.empty((d, d, d))
    S[j, k] = S[k, j] = sums / 2
    return (S + np.transpose(S, (2, 1, 0)) + np.transpose(S, (0, 2, 1))) / 3
