"""Hard walls: points where a density ends at once, although it is high just before.

A gradient does not see a wall, so that trajectories run into it and are rejected. Slices end at it.
"""

import numpy as np

MOST_PARAMETERS = 50  # slices go along one parameter at a time, and take several evaluations for each
_BEYOND = 0.002  # part of the draws about a mode that lie behind a wall which matters
_LINES = 16  # to points behind a wall
_NEAREST, _DOUBLINGS = 2.0**-10, 20  # distances along the axes, of each parameter or of 1 where that is more
_HALVINGS = 40  # of a line with a wall: 12 digits
_HIGH = 10.0  # log density at a wall, below the highest known one, from which the wall does not matter


def wall_about(model, mode, draws):
    """Whether draws about a mode, normal ones, lie behind a wall."""
    outside = ~np.isfinite(draws.log_densities)
    if outside.mean() < _BEYOND:
        return False
    inside = np.broadcast_to(mode.q, (_LINES, len(mode.q)))
    behind = draws.draws[outside][:_LINES]
    return bool((_heights(model, inside[: len(behind)], behind) > mode.logp - _HIGH).any())


def wall_near(model):
    """Whether there is a wall along an axis from the start."""
    d, start = model.n_params, model.start
    axes = np.diag(np.maximum(1.0, np.abs(start)))
    sides = np.concatenate([axes, -axes])[:, None]
    radii = np.append(0.0, _NEAREST * 2.0 ** np.arange(_DOUBLINGS))[None, :, None]
    points = start + radii * sides
    logps = densities_or_zero(model, points.reshape(-1, d)).reshape(len(sides), -1)
    first = np.isfinite(logps).argmin(axis=1)  # 0 where there is none, since the start has a density
    lines = np.flatnonzero(first)
    if not len(lines):
        return False
    heights = _heights(model, points[lines, first[lines] - 1], points[lines, first[lines]])
    highest = max(logps[np.isfinite(logps)].max(), heights.max())
    return bool((heights > highest - _HIGH).any())


def _heights(model, inside, outside):
    """Log densities at the last points of lines, from points with a density to others (K, d) without."""
    inside, outside, heights = inside.copy(), outside.copy(), densities_or_zero(model, inside)
    for _ in range(_HALVINGS):
        middle = inside + (outside - inside) / 2
        logps = densities_or_zero(model, middle)
        finite = np.isfinite(logps)
        heights[finite] = logps[finite]
        inside[finite], outside[~finite] = middle[finite], middle[~finite]
    return heights


def densities_or_zero(model, points):
    """Log densities; what a function raises far out, and NaN, is no density, and not counted."""
    model.take_tally()
    try:
        logps = model.logp_batch(points)
    except Exception:
        return np.full(len(points), -np.inf)
    finally:
        model.take_tally()
    return np.where(np.isfinite(logps), logps, -np.inf)
