r"""Mass outside of all draws, which R-hat, effective sizes and k-hat do not know of.

Chains and weights alike miss a wide part about a narrow one, a shelf far out, and an interval beyond a gap.
Points are proposed about the middle of the draws at distances that are uniform in their logarithm, so that
every scale has as many: half of them in all directions, half near the axes and the diagonal, with one
parameter far from the draws, or all of them alike. They weigh the density over that of the proposals. The
mass about the draws is bounded by their entropy: for draws of p and any density g, such as the normal one of
their moments,

.. math:: \log \int p \le E \log p - E \log g .

So the part that was missed comes out too small rather than too large. The moments are those of half of the
draws, the averages those of the other half.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg, special

_FAR = np.log(300.0)  # of the distance of the farthest proposals over that of the farthest draw
_WIDE = 0.1  # of the distance along a line: deviations across it, which are else those of the draws
_EXPECTED = 20.0  # draws outside, by the mass there, of which there is none
_MOST_SHARE, _MOST_SHIFT, _MOST_SPREAD = 0.05, 0.15, 1.1  # missed without harm: a part, and what it changes
_AGAIN = 4  # times the points, to confirm
_PIECE = 256  # points of a call, which an error loses


class Outside(NamedTuple):
    """The part of the posterior outside of all draws, and how many times wider it makes a parameter."""

    share: float = 0.0
    spread: float = 1.0


def mass_outside(model, draws, logps, n, rng):
    """Estimate what draws (chains, T, d) with their log densities have missed, by n or 5 n evaluations.

    Returns an `Outside`, zero where it would change no mean and standard deviation much, or None where draws
    are too few or do not move. An error of the density so far out is a density of zero.
    """
    d = draws.shape[2]
    if len(draws) == 1:
        n_pairs = draws.shape[1] // 2
        draws, logps = draws[0, : 2 * n_pairs].reshape(2, -1, d), logps[0, : 2 * n_pairs].reshape(2, -1)
    fitted, others = draws[::2].reshape(-1, d), draws[1::2].reshape(-1, d)
    every = np.concatenate([fitted, others])
    if len(fitted) <= d + 1:
        return None
    try:
        about = _About(fitted.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(fitted.T))))
    except np.linalg.LinAlgError:
        return None
    radius = np.sqrt(about.squares(every).max())
    log_inside = logps[1::2].mean() - about.log_normal(others).mean()
    points, log_weights = np.empty((0, d)), np.empty(0)
    for more in (n, _AGAIN * n):
        x = about.proposals(radius, more, rng)
        pieces = np.array_split(x, -(-more // _PIECE))
        logps = np.concatenate([_log_densities(model, piece) for piece in pieces])
        points = np.concatenate([points, x])
        log_weights = np.concatenate([log_weights, logps - about.log_proposal(radius, x)])
        log_outside = special.logsumexp(log_weights) - np.log(len(points))
        share = special.expit(log_outside - log_inside)
        if not share * len(every) > _EXPECTED:
            return Outside()
        z = (points - every.mean(axis=0)) / every.std(axis=0)
        weights = share * special.softmax(log_weights)
        shift = weights @ z
        spread = np.sqrt(np.maximum(1 - share + weights @ z**2 - shift**2, 0)).max()
        if not (share > _MOST_SHARE or np.abs(shift).max() > _MOST_SHIFT or spread > _MOST_SPREAD):
            return Outside()
    return Outside(float(share), float(spread))


class _About(NamedTuple):
    """Where draws are: their mean (d,), and the triangle A of their covariance ``A A'``."""

    mean: np.ndarray
    A: np.ndarray

    @property
    def widths(self):
        return np.sqrt((self.A**2).sum(axis=1))

    @property
    def lines(self):
        """Unit vectors of parameters by their widths: the axes, and the diagonal."""
        d = len(self.mean)
        return np.concatenate([np.eye(d), np.full((int(d > 1), d), d**-0.5)])

    @property
    def log_volume(self):
        return np.log(np.diag(self.A)).sum()

    def squares(self, x):
        """Squared distances of points (n, d), those of Mahalanobis."""
        return (linalg.solve_triangular(self.A, (x - self.mean).T, lower=True) ** 2).sum(axis=0)

    def log_normal(self, x):
        return -self.squares(x) / 2 - self.log_volume - len(self.mean) / 2 * np.log(2 * np.pi)

    def proposals(self, radius, n, rng):
        """Draw n points, from the radius on: by turns in any direction, and near a line."""
        ways = rng.standard_normal((n, len(self.mean)))
        r = radius * np.exp(_FAR * (rng.permutation(n) + rng.random(n)) / n)[:, None]
        steps = r * (ways / np.linalg.norm(ways, axis=1)[:, None]) @ self.A.T
        lines = self.lines[rng.integers(len(self.lines), size=n)]
        along = (ways * lines).sum(axis=1, keepdims=True)
        across = (ways - along * lines) * np.where(rng.random((n, 1)) < 0.5, 1.0, _WIDE * r)
        steps[1::2] = ((np.copysign(r, along) * lines + across) * self.widths)[1::2]
        return self.mean + steps

    def log_proposal(self, radius, x):
        """Log density of the proposals at points (n, d); ``inf`` nearer than the radius, where draws are."""
        d, z = len(self.mean), (x - self.mean) / self.widths
        r = np.sqrt(self.squares(x))
        farthest = radius * np.exp(_FAR)
        around = np.log(_FAR) + d * np.log(r) + np.log(2) + d / 2 * np.log(np.pi) - special.gammaln(d / 2)
        around = np.where(r < farthest, -around - self.log_volume, -np.inf)
        t = np.abs(z @ self.lines.T)
        seen = (t > radius) & (t < farthest)
        t[~seen] = radius
        across = (z**2).sum(axis=1)[:, None] - t**2
        parts = [
            -across / s**2 / 2 - (d - 1) * np.log(np.sqrt(2 * np.pi) * s) for s in (np.ones(1), _WIDE * t)
        ]
        along = np.logaddexp(*parts) - np.log(4 * _FAR * len(self.lines) * t) - np.log(self.widths).sum()
        along = special.logsumexp(np.where(seen, along, -np.inf), axis=1)
        return np.where(r > radius, np.logaddexp(around, along) - np.log(2), np.inf)


def _log_densities(model, points):
    """Log densities; what a function raises far out is no density, and not counted."""
    model.take_tally()
    try:
        logps = model.logp_batch(points)
    except Exception:
        return np.full(len(points), -np.inf)
    finally:
        model.take_tally()
    return np.where(np.isfinite(logps), logps, -np.inf)
