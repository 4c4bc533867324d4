"""Rays from a mode, to find where gradients lead elsewhere.

Where a density has one mode and is nearly elliptical about it, the gradient in the coordinates of the mode
points back to it from everywhere. Another mode turns the gradient in all of its basin, which is about half of
space for one as wide as the known mode, at any distance: climbs begin at the points of the rays where it is
turned most. Batches of evaluations at such points take far less time than climbs from all of them. The basin
of a mode that is much narrower than the known one is a small ball, which hardly a ray meets in many
dimensions.
"""

import numpy as np
from scipy import linalg

from ....kernels.bayes.streams import normals, uniforms
from .chain import PROPOSING, STARTING, stream

_GROWTH = 1.5  # of the distance, from a point of a ray to the next
_NEAREST, _FARTHEST = 3.0, 3000.0  # in standard deviations of the mode
_UNIT_NEAREST, _UNIT_FARTHEST = 0.5, 50.0  # in the unit of each parameter, whose scale the mode may not show
ELLIPTICAL = 0.99  # cosine with the way back from which nothing is turned
_ABOUT = 0.3  # of the cosine, about the least on a ray: the highest of such points is taken
_NUMBERS = 2**21  # numbers of chains from here on are those of rays


def points_of_a_ray():
    """Return how many evaluations a ray takes at most."""
    return len(_radii(_NEAREST, _FARTHEST))


def points_on_rays(model, mode, n_pairs, *, seed, shard=0, number=0):
    """Return points (m, d) where climbs may find another mode, the most promising first, and the evaluations.

    `n_pairs` pairs of opposite rays begin at the mode, two thirds of them in its coordinates, the others in
    the parameters' own units. At most one point of each ray is returned.
    `number` names the random numbers. A batch in which the density raises an error, so far out, is left out.
    """
    d = model.n_params
    if not n_pairs:
        return np.empty((0, d)), 0
    ways = normals(stream(seed, shard, _NUMBERS + number, STARTING), n_pairs, d)
    ways /= np.linalg.norm(ways, axis=1)[:, None]
    between = _GROWTH ** uniforms(stream(seed, shard, _NUMBERS + number, PROPOSING), n_pairs)
    ways *= between[:, None]  # no distance is left out by all rays
    n_own = -(-2 * n_pairs // 3)
    kinds = [(ways[:n_own] @ mode.A.T, _radii(_NEAREST, _FARTHEST))]
    if n_own < n_pairs:
        kinds.append((np.sqrt(d) * ways[n_own:], _radii(_UNIT_NEAREST, _UNIT_FARTHEST)))
    found, turns, n = [], [], 0
    for steps, radii in kinds:
        offsets = radii[None, :, None] * np.concatenate([steps, -steps])[:, None]
        n += offsets.shape[0] * offsets.shape[1]
        measured = cosines(model, [mode], mode.q + offsets.reshape(-1, d))
        if measured is None:
            continue
        cosine, logps = (part.reshape(offsets.shape[:2]) for part in measured)
        least = np.minimum(cosine.min(axis=1, keepdims=True) + _ABOUT, ELLIPTICAL)
        place = np.where(cosine <= least, logps, -np.inf).argmax(axis=1)
        every = np.arange(len(place))
        found.append(mode.q + offsets[every, place])
        turns.append(cosine[every, place])
    if not found:
        return np.empty((0, d)), n
    points, cosine = np.concatenate(found), np.concatenate(turns)
    order = np.argsort(cosine, kind="stable")
    return points[order[cosine[order] < ELLIPTICAL]], n


def cosines(model, modes, points):
    """Cosines (n,) of gradients at points (n, d) with the way back to a mode, the largest, and log densities.

    The cosine is 2 where there is none. Returns None if the density raises an error.
    """
    try:
        logps, gradients = model.logp_grads(points)
    except Exception:
        return None
    largest = np.full(len(points), -1.0)
    with np.errstate(all="ignore"):  # large gradients far out
        gradients = gradients / np.abs(gradients).max(axis=1, keepdims=True)
        for mode in modes:
            back = -linalg.solve_triangular(mode.A, (points - mode.q).T, lower=True).T
            slopes = gradients @ mode.A
            lengths = np.sqrt((back**2).sum(axis=1) * (slopes**2).sum(axis=1))
            largest = np.maximum(largest, (back * slopes).sum(axis=1) / lengths)
    good = np.isfinite(logps) & np.isfinite(largest)
    return np.where(good, largest, 2.0), np.where(good, logps, -np.inf)


def _radii(nearest, farthest):
    return nearest * _GROWTH ** np.arange(int(np.log(farthest / nearest) / np.log(_GROWTH)) + 2)
