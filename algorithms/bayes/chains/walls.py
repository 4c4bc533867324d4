"""Hard walls, where a density ends at once, although it is high just before, and jumps.

A gradient sees neither: trajectories run into walls and are rejected, and nothing leads them along a
parameter in which the density is a staircase, such as the time of a change. Slices need no gradient.
"""

import numpy as np

MOST_PARAMETERS = 50  # slices go along one parameter at a time, and take several evaluations for each
_BEYOND = 0.002  # part of the draws about a mode that lie behind a wall which matters
_LINES = 16  # to points behind a wall
_NEAREST, _DOUBLINGS = 2.0**-10, 20  # distances along the axes, of each parameter or of 1 where that is more
_HALVINGS = 40  # of a line with a wall: 12 digits
_PIECES = 16  # of a line along which jumps are looked for
_UNSEEN = 0.05  # change of a log density along a piece, which its gradients do not explain
_JUMP = 0.01  # change of a log density within 12 digits of a place
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


def jumps(model, points, reach):
    """Whether the density jumps along an axis, where it is high, within `reach` (d,) of points (K, d).

    The piece of each line where the gradients at its ends explain least is halved, again and again.
    """
    d = model.n_params
    axes = np.tile(np.arange(d), len(points))
    sides = np.linspace(-1.0, 1.0, _PIECES + 1)[:, None] * np.diag(reach)[:, None]
    lines = (points[:, None, None] + sides).reshape(len(axes), -1, d)
    width = 2 * reach[axes] / _PIECES

    def along(points, axes):
        """Log densities and slopes along the axes, side by side."""
        logps, gradients = model.logp_grads(points)
        return np.column_stack([logps, gradients[np.arange(len(axes)), axes]])

    def unseen(low, high, width):
        """Changes of the log density that no slope explains: not at an end, nor their mean."""
        slopes = np.stack([low[..., 1], high[..., 1], (low[..., 1] + high[..., 1]) / 2])
        return np.nan_to_num(np.abs(high[..., 0] - low[..., 0] - slopes * width).min(axis=0), posinf=0.0)

    with np.errstate(all="ignore"):
        ends = along(lines.reshape(-1, d), axes.repeat(_PIECES + 1)).reshape(len(axes), -1, 2)
        least = np.where(np.isfinite(ends[..., 0]), ends[..., 0], -np.inf).max(axis=1) - _HIGH
        changes = unseen(ends[:, :-1], ends[:, 1:], width[:, None])
        changes[np.fmax(ends[:, 1:, 0], ends[:, :-1, 0]) < least[:, None]] = 0.0
        worst, followed = changes.argmax(axis=1), changes.max(axis=1) > _UNSEEN
        low, high, below, above = (
            values[followed, worst[followed] + side] for values in (lines, ends) for side in (0, 1)
        )
        axes, width, least = axes[followed], width[followed], least[followed]
        for _ in range(_HALVINGS):
            middle, width = low + (high - low) / 2, width / 2
            between = along(middle, axes)
            first = unseen(below, between, width) > unseen(between, above, width)
            high[first], above[first] = middle[first], between[first]
            low[~first], below[~first] = middle[~first], between[~first]
        change = np.abs(above[:, 0] - below[:, 0])
        return bool(((change > _JUMP) & np.isfinite(change) & (np.fmax(below, above)[:, 0] > least)).any())


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
