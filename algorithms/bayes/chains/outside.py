r"""Mass about modes without draws and outside of all draws, unseen by R-hat, effective sizes and k-hat.

Chains and weights alike miss a wide part about a narrow one, a shelf far out, and an interval beyond a gap.
Points are proposed about the middle of the draws at distances that are uniform in their logarithm, so that
every scale has as many: half of them in all directions, half near the axes and the diagonal, with one
parameter far from the draws, or all of them alike. They weigh the density over that of the proposals. The
mass about the draws is bounded by their entropy: for draws of p and any density g, such as the normal one of
their moments,

.. math:: \log \int p \le E \log p - E \log g .

So the part that was missed comes out too small rather than too large. The moments are those of half of the
draws, the averages those of the other half. The mass about a mode is that of the normal density there.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg, special

from .walls import densities_or_zero

_FAR = np.log(300.0)  # of the distance of the farthest proposals over that of the farthest draw
_WIDE = 0.1  # of the distance along a line: deviations across it, which are else those of the draws
# Parts of the proposals in all directions, near lines, and near these as far as `_WIDE`. Islands beyond walls
# may be as wide as the draws.
_SHARES, _SHARES_OF_WALLS = (0.5, 0.25, 0.25), (0.2, 0.7, 0.1)
_EXPECTED = 20.0  # draws outside, by the mass there, of which there is none
_MOST_SHARE, _MOST_SHIFT, _MOST_SPREAD = 0.05, 0.15, 1.1  # missed without harm: a part, and what it changes
_AGAIN = 4  # times the points, to confirm
_PIECE = 256  # points of a call, which an error loses
_SEEN = 0.25  # part of a mode's own part, that draws near it must be
_STEEP = 10.0  # fall within a standard deviation of a normal density whose own is .5: there is no such one


class Missed(NamedTuple):
    """Parts of the posterior: about a mode without draws, the largest, and outside of all draws.

    `spread` is how many times wider the latter makes a parameter.
    """

    about_mode: float = 0.0
    outside: float = 0.0
    spread: float = 1.0


def missed_mass(model, modes, draws, logps, n, rng, walled=False):
    """Estimate what draws (chains, T, d) with their log densities have missed, by n or 5 n evaluations.

    `walled` says that the density ends at walls, behind which islands may lie.
    Returns a `Missed`; outside is zero where it would change no mean and standard deviation much, or n is 0.
    None where draws are too few or do not move. An error of the density so far out is a density of zero.
    """
    d = draws.shape[2]
    if len(draws) == 1:
        n_pairs = draws.shape[1] // 2
        draws, logps = draws[0, : 2 * n_pairs].reshape(2, -1, d), logps[0, : 2 * n_pairs].reshape(2, -1)
    fitted, averaged = draws[::2].reshape(-1, d), draws[1::2].reshape(-1, d)
    if len(fitted) <= d + 1:
        return None
    try:
        A = np.linalg.cholesky(np.atleast_2d(np.cov(fitted.T)))
    except np.linalg.LinAlgError:
        return None
    about = _About(fitted.mean(axis=0), A, _SHARES_OF_WALLS if walled else _SHARES)
    points = np.concatenate([fitted, averaged])
    log_inside = logps[1::2].mean() - about.log_normal(averaged).mean()
    about_mode = _missed_about_modes(model, modes, points, log_inside)
    outside, spread = _missed_outside(model, about, points, log_inside, n, rng) if n else (0.0, 1.0)
    return Missed(about_mode, outside, spread)


def _missed_about_modes(model, modes, draws, log_inside):
    """The largest share that a mode should have, of modes with less than a quarter of it in draws (n, d).

    Modes that no normal density describes, such as a point of a crooked ridge, do not count.
    """
    modes = [mode for mode in modes if _is_normal(model, mode)]
    d, largest = draws.shape[1], 0.0
    for mode in modes:
        log_mass = mode.log_mass + d / 2 * np.log(2 * np.pi)
        share = special.expit(log_mass - log_inside)
        if len(modes) > 1:
            share = max(share, np.exp(mode.log_mass - special.logsumexp([one.log_mass for one in modes])))
        if (mode.squares(draws) < special.chdtri(d, 0.01)).mean() < _SEEN * share:
            largest = max(largest, share)
    return float(largest)


def _is_normal(model, mode):
    """Whether the density falls about as a normal one does, on one side at least of every axis."""
    steps = mode.A.T
    logps = model.logp_grads(np.concatenate([mode.q + steps, mode.q - steps]))[0].reshape(2, -1)
    return bool((logps.max(axis=0) > mode.logp - _STEEP).all())


def _missed_outside(model, about, draws, log_inside, n, rng):
    """The part outside of draws (m, d), and how many times wider it makes a parameter."""
    radius, nothing = np.sqrt(about.squares(draws).max()), (0.0, 1.0)
    x, log_weights = np.empty((0, draws.shape[1])), np.empty(0)
    for n_points in (n, _AGAIN * n):
        proposals = about.proposals(radius, n_points, rng)
        pieces = np.array_split(proposals, -(-n_points // _PIECE))
        logps = np.concatenate([densities_or_zero(model, piece) for piece in pieces])
        x = np.concatenate([x, proposals])
        log_weights = np.concatenate([log_weights, logps - about.log_proposal(radius, proposals)])
        log_outside = special.logsumexp(log_weights) - np.log(len(x))
        share = special.expit(log_outside - log_inside)
        if not share * len(draws) > _EXPECTED:
            return nothing
        z = (x - draws.mean(axis=0)) / draws.std(axis=0)
        weights = share * special.softmax(log_weights)
        shift = weights @ z
        spread = np.sqrt(np.maximum(1 - share + weights @ z**2 - shift**2, 0)).max()
        if not (share > _MOST_SHARE or np.abs(shift).max() > _MOST_SHIFT or spread > _MOST_SPREAD):
            return nothing
    return float(share), float(spread)


class _About(NamedTuple):
    """Where draws are: their mean (d,), the triangle A of their covariance ``A A'``; parts of proposals."""

    mean: np.ndarray
    A: np.ndarray
    shares: tuple = _SHARES

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
        """Draw n points, from the radius on: in any direction, and near a line."""
        z = rng.standard_normal((n, len(self.mean)))
        r = radius * np.exp(_FAR * (rng.permutation(n) + rng.random(n)) / n)[:, None]
        steps = r * (z / np.linalg.norm(z, axis=1)[:, None]) @ self.A.T
        lines = self.lines[rng.integers(len(self.lines), size=n)]
        along = (z * lines).sum(axis=1, keepdims=True)
        kinds = np.searchsorted(np.cumsum(self.shares), (rng.permutation(n)[:, None] + 0.5) / n)
        across = (z - along * lines) * np.where(kinds == 1, 1.0, _WIDE * r)
        return self.mean + np.where(kinds, (np.copysign(r, along) * lines + across) * self.widths, steps)

    def log_proposal(self, radius, x):
        """Log density of the proposals at points (n, d); ``inf`` nearer than the radius, where draws are."""
        d, z = len(self.mean), (x - self.mean) / self.widths
        r = np.sqrt(self.squares(x))
        farthest = radius * np.exp(_FAR)
        around = np.log(_FAR) + d * np.log(r) + np.log(2) + d / 2 * np.log(np.pi) - special.gammaln(d / 2)
        logs = np.log(self.shares)
        around = np.where(r < farthest, logs[0] - around - self.log_volume, -np.inf)
        t = np.abs(z @ self.lines.T)
        within = (t > radius) & (t < farthest)
        t[~within] = radius
        across = (z**2).sum(axis=1)[:, None] - t**2
        both_widths = [
            log - across / s**2 / 2 - (d - 1) * np.log(np.sqrt(2 * np.pi) * s)
            for log, s in zip(logs[1:], (np.ones(1), _WIDE * t), strict=True)
        ]
        along = (
            np.logaddexp(*both_widths) - np.log(2 * _FAR * len(self.lines) * t) - np.log(self.widths).sum()
        )
        along = special.logsumexp(np.where(within, along, -np.inf), axis=1)
        return np.where(r > radius, np.logaddexp(around, along), np.inf)
