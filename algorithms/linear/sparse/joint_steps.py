"""Steps of several shards taken together: how much of each, and the best point that the last ones span."""

import numpy as np
from scipy import linalg

# Caps; what rounding leaves of a singular matrix and of a decrease.
_MOST_SWEEPS, _MOST_STEPS, _RIDGE, _ROUNDING = 1000, 5, 1e-10, 1e-15


def best_parts(products, slopes, costs):
    r"""Minimise :math:`t^T G t / 2 - t^T (c - e)` over :math:`0 \le t \le 1` by coordinate descent.

    `products`, `slopes`, `costs`: G (k, k), c and e (k,), float64. Not worse than ``t = 0`` by more than the
    rounding of the terms, which near the minimum are much larger than what is gained.
    """
    pull, t = slopes - costs, np.ones(len(slopes))
    diagonal = np.diagonal(products)
    moves = np.flatnonzero(diagonal > 0)
    for _ in range(_MOST_SWEEPS):
        furthest = 0.0
        for k in moves:
            rest = pull[k] - products[k] @ t + diagonal[k] * t[k]
            new = min(max(rest / diagonal[k], 0.0), 1.0)
            furthest, t[k] = max(furthest, abs(new - t[k])), new
        if furthest <= 1e-9:
            break
    rounding = _ROUNDING * float(t @ (np.abs(slopes) + np.abs(costs)))
    return t if t @ (0.5 * products @ t - pull) <= rounding else np.zeros(len(t))


def least_in_span(b, rho, moves, images, l1, l2):
    """Minimise ``|rho|^2 / 2 + l1 |b| + l2 b^2 / 2`` over b + span(moves): Newton steps on the present signs.

    `images` (m, n): how far each row of `moves` (m, p) takes -rho. Returns the step, its image, and how many
    of the rows it is made of, whatever their signs: errors of their images are so often in its own. Each
    Newton step ends where an exact search along it says.
    """
    sizes = np.linalg.norm(images, axis=1)[:, None]
    images, moves = images / sizes, moves / sizes  # the last are much shorter than the first
    products = images @ images.T + (moves * l2) @ moves.T
    products.flat[:: len(products) + 1] *= 1 + _RIDGE
    moved, image, n_rows = np.zeros(len(b)), np.zeros(len(rho)), 0.0
    try:
        factor = linalg.cho_factor(products)
    except linalg.LinAlgError:
        return moved, image, n_rows
    for _ in range(_MOST_STEPS):
        here, rest = b + moved, rho - image
        shares = linalg.cho_solve(factor, images @ rest - moves @ (l1 * np.sign(here) + l2 * here))
        step, change = shares @ moves, shares @ images
        length = _exact_length(here, step, l1, l2, change @ rest, change @ change)
        moved, image = moved + length * step, image + length * change
        n_rows += length * float(np.sum(np.abs(shares) / sizes[:, 0]))
        if not 0 < length < 1 - 1e-6:
            break
    return moved, image, n_rows


def _exact_length(b, step, l1, l2, slope, square):
    """The t of at least 0 that minimises ``t^2 square / 2 - t slope + l1 |b + t s| + l2 (b + t s)^2 / 2``."""
    moved = step != 0
    b, step, l1, l2 = b[moved], step[moved], l1[moved], l2[moved]
    slope = slope - float(l2 * b @ step)
    square = square + float(l2 * step @ step)
    with np.errstate(over="ignore"):
        kinks = -b / step
    ahead = kinks > 0
    order = np.argsort(kinks[ahead], kind="stable")
    kinks, jumps = kinks[ahead][order], 2 * (l1 * np.abs(step))[ahead][order]
    signs = np.where(b != 0, np.sign(b), np.sign(step))
    below = float(l1 * signs @ step) - slope  # derivative at 0
    if below >= 0 or not square > 0:
        return 0.0
    # After each kink the derivative is this; it rises by a jump at the kink itself.
    after = below + np.cumsum(jumps) + square * kinks
    crossed = int(np.searchsorted(after, 0.0))  # `after` rises
    total = below + (np.cumsum(jumps)[crossed - 1] if crossed else 0.0)
    length = -total / square
    return min(length, kinks[crossed]) if crossed < len(kinks) else length
