r"""Steps of several shards taken together: how much of each, and the best point that the last ones span.

With the predictor f of the whole model, u the slopes of the loss at f, and changes d_k of f by shards::

    min_{0 <= t <= 1, c}  loss(f + sum_k t_k d_k + c) + sum_k t_k e_k

where ``e_k`` is how far the penalty rises by the whole step of shard k: since it is convex, this bounds the
objective from above, and equals it at ``t = 0``. Newton steps, each a small problem with bounds.
"""

import numpy as np
from scipy import linalg

_MOST_STEPS, _HALVINGS, _MOST_SWEEPS = 20, 30, 1000  # caps; block descent goes on from where these end
_ROUNDING = 1e-15  # of the terms of an objective
_RIDGE = 1e-10  # of the diagonal: blocks without rank stay solvable
_ARMIJO = 1e-4  # share of the promised decrease that a step must bring


def best_shares(loss, f, changes, costs, *, intercept):
    """Minimise over shares t of the changes, from 0 to 1, and over intercepts c; return t and c.

    `loss`: `mean_loss.MeanLoss`. `f`: float64 (n, K). `changes`: float64 (q, n, K). `costs`: float64 (q,).
    """
    q, (_, K) = len(changes), f.shape
    t, c, at = np.zeros(q), np.zeros(K), f
    slack = _ROUNDING * abs(
        loss.value(f)
    )  # a gap may fall where the objective is at its least but for rounding
    for _ in range(_MOST_STEPS):
        u, h = loss.gradient(at), loss.curvature(at)
        flat = changes.reshape(q, f.size)
        weighted = (changes * h[:, None]).reshape(q, f.size)
        products, slopes = weighted @ flat.T, flat @ u.ravel() + costs
        size = float(np.abs(slopes) @ np.ones(q))
        if intercept:  # eliminated: its best change is -(u0 + cross . dt) / total
            total, u0 = float(h.sum()) or 1.0, u.sum(axis=0)
            cross = np.einsum("qnk,n->qk", changes, h)
            products, slopes = products - cross @ cross.T / total, slopes - cross @ u0 / total
            size += float(u0 @ u0) / total
        dt = _within(products, slopes, t)
        dc = -(u0 + cross.T @ dt) / total if intercept else np.zeros(K)
        slope = float(slopes @ dt) - (float(u0 @ u0) / total if intercept else 0.0)
        if -slope <= _ROUNDING * size or not (dt.any() or dc.any()):
            break
        move, length = np.tensordot(dt, changes, 1) + dc, 1.0
        for _ in range(_HALVINGS):
            rise = loss.rise(at, length * move) + length * float(costs @ dt)
            if rise <= _ARMIJO * length * slope + slack:
                break
            length *= 0.5
        else:
            break
        t, c, at = t + length * dt, c + length * dc, at + length * move
        if length == 1 and loss.quadratic:
            break
    t = np.clip(t, 0.0, 1.0)
    return t, c


def _within(products, slopes, t):
    """Minimise ``d^T products d / 2 + slopes^T d`` over ``0 <= t + d <= 1``, by coordinate descent."""
    end, diagonal = np.ones(len(t)), np.diagonal(products)
    moves = np.flatnonzero(diagonal > 0)
    for _ in range(_MOST_SWEEPS):
        furthest = 0.0
        for k in moves:
            new = end[k] - (slopes[k] + products[k] @ (end - t)) / diagonal[k]
            new = min(max(new, 0.0), 1.0)
            furthest, end[k] = max(furthest, abs(new - end[k])), new
        if furthest <= 1e-9:
            break
    return end - t


def least_in_span(loss, f, penalty, B, moves, images, *, intercept):
    """Minimise loss plus penalty over ``B + span(moves)``: Newton steps where the penalty is smooth.

    `penalty`: `PenaltyOfBlocks`. `B`: float64 (m, K). `moves`: float64 (r, m, K); `images` (r, n, K): how
    far each takes f. Returns the step of B, its image, the intercepts' change, and how many of the rows it is
    made of, whatever their signs: errors of their images are so often in its own.
    """
    sizes = np.sqrt(np.einsum("rnk,rnk->r", images, images))
    images, moves = images / sizes[:, None, None], moves / sizes[:, None, None]
    step, image, c, n_rows = np.zeros_like(B), np.zeros_like(f), np.zeros(f.shape[1]), 0.0
    for _ in range(5):
        at, here = f + image + c, B + step
        u, h = loss.gradient(at), loss.curvature(at)
        r = len(images)
        flat = images.reshape(r, -1)
        products = (images * h[:, None]).reshape(r, -1) @ flat.T + penalty.curvature(here, moves)
        slopes = flat @ u.ravel() + moves.reshape(r, -1) @ penalty.slope(here).ravel()
        if intercept:
            total, u0 = float(h.sum()) or 1.0, u.sum(axis=0)
            cross = np.einsum("rnk,n->rk", images, h)
            products, slopes = products - cross @ cross.T / total, slopes - cross @ u0 / total
        products.flat[:: r + 1] *= 1 + _RIDGE
        try:
            shares = -linalg.cho_solve(linalg.cho_factor(products), slopes)
        except linalg.LinAlgError:
            break
        change, d = np.tensordot(shares, moves, 1), np.tensordot(shares, images, 1)
        dc = -(u0 + cross.T @ shares) / total if intercept else np.zeros_like(c)
        length = _falling(loss, at, d + dc, penalty, here, change)
        if not length:
            break
        step, image, c = step + length * change, image + length * d, c + length * dc
        n_rows += length * float(np.sum(np.abs(shares) / sizes))
    return step, image, c, n_rows


def _falling(loss, f, image, penalty, B, step):
    """The length of a step, halved until the objective falls, and on as long as it falls further; or 0."""

    def rise(t):
        return loss.rise(f, t * image) + penalty.rise(B, t * step)

    length, least = 1.0, rise(1.0)
    for _ in range(8):
        other = rise(0.5 * length)
        if least < 0 and other >= least:
            break
        length, least = 0.5 * length, other
    return length if least < 0 else 0.0


class PenaltyOfBlocks:
    """Penalties of some blocks: ``lam |B_g| + l1 |B_g|_1 + ridge |B_g|^2 / 2``.

    `firsts`: where each block begins among the places. `lam`: float64 (n_blocks,); `l1`, `ridge`: (m,).
    """

    def __init__(self, firsts, lam, l1, ridge):
        self.firsts, self.lam, self.l1, self.ridge = firsts, lam, l1, ridge
        self.lengths = np.diff(firsts, append=len(l1))

    def _norms(self, B):
        return np.sqrt(np.add.reduceat((B * B).sum(axis=1), self.firsts)) if len(B) else np.empty(0)

    def value(self, B):
        """The penalty."""
        total = float(self.lam @ self._norms(B)) + float(self.l1 @ np.abs(B).sum(axis=1))
        return total + 0.5 * float(self.ridge @ (B * B).sum(axis=1))

    def rises(self, B, step):
        """How far the penalty of each block rises by a step: no difference of two values, which rounds."""
        if not len(B):
            return np.empty(0)
        before, after = self._norms(B), self._norms(B + step)
        square = np.add.reduceat((step * (2 * B + step)).sum(axis=1), self.firsts)
        total = before + after
        norms = np.where(total > 0, square / np.where(total > 0, total, 1), 0.0)
        stays = np.sign(B) * np.sign(B + step) > 0
        sizes = np.where(stays, np.sign(B) * step, np.abs(B + step) - np.abs(B)).sum(axis=1)
        squares = (step * (B + 0.5 * step)).sum(axis=1)
        return self.lam * norms + np.add.reduceat(self.l1 * sizes + self.ridge * squares, self.firsts)

    def rise(self, B, step):
        """How far the penalty rises by a step."""
        return float(self.rises(B, step).sum())

    def slope(self, B):
        """Derivative; 0 for terms at their kink."""
        norms = np.repeat(self._norms(B), self.lengths)
        across = np.repeat(self.lam, self.lengths) / np.where(norms > 0, norms, 1)
        return across[:, None] * B + self.l1[:, None] * np.sign(B) + self.ridge[:, None] * B

    def curvature(self, B, moves):
        """Second derivative along moves (r, m, K): a matrix (r, r)."""
        r = len(moves)
        norms = self._norms(B)
        there = norms > 0
        across = np.where(there, self.lam / np.where(there, norms, 1), 0.0)
        weighted = moves * (np.repeat(across, self.lengths) + self.ridge)[:, None]
        out = weighted.reshape(r, -1) @ moves.reshape(r, -1).T
        unit = B / np.repeat(np.where(there, norms, 1), self.lengths)[:, None]
        along = np.add.reduceat((moves * unit).sum(axis=2), self.firsts, axis=1)
        return out - (along * across) @ along.T
