"""Draws in proportion to changing weights, and independent subsets of candidates.

The weights of n blocks are the leaves ``tree[n:2 * n]`` of a binary tree; node i is the sum of nodes 2 i and
2 i + 1, so ``tree[1]`` is the total. Changing a weight and drawing one cost log2(n) steps each. A changed
node is summed anew from its two children: the tree is a function of the weights alone, and rounding errors do
not accumulate.
"""

import numba as nb
import numpy as np

from .options import KERNEL


@nb.njit(**KERNEL)
def build(tree):
    """Sum up a tree whose leaves (float64, the second half) are filled; ``tree[0]`` is not used."""
    for i in range(len(tree) // 2 - 1, 0, -1):
        tree[i] = tree[2 * i] + tree[2 * i + 1]


@nb.njit(**KERNEL)
def change_one(tree, leaf, weight):
    """Give one leaf a new weight: see `change`."""
    i = len(tree) // 2 + leaf
    tree[i] = weight
    i //= 2
    while i >= 1:
        tree[i] = tree[2 * i] + tree[2 * i + 1]
        i //= 2


@nb.njit(**KERNEL)
def change(tree, leaves, weights):
    """Give leaves (int64, from 0) new weights, and update the sums above them."""
    for k in range(len(leaves)):
        change_one(tree, leaves[k], weights[k])


@nb.njit(**KERNEL)
def draw_one(tree, coin, uniform, share):
    """Draw one leaf: see `draw`."""
    n = len(tree) // 2
    if coin < share or tree[1] <= 0:
        return min(np.int64(uniform * n), n - 1)
    point = uniform * tree[1]
    i = 1
    while i < n:
        i *= 2
        # The right child is taken only if it holds weight: rounding must not end at a leaf of none.
        if point >= tree[i] and tree[i + 1] > 0:
            point -= tree[i]
            i += 1
    return i - n


@nb.njit(**KERNEL)
def draw(tree, coins, uniforms, share, out):
    """Draw leaves into `out` (int64), with replacement.

    Draw k is by weight if ``coins[k] >= share`` (float64 on [0, 1)), else uniform, as it is if all weights
    are 0.
    """
    for k in range(len(out)):
        out[k] = draw_one(tree, coins[k], uniforms[k], share)


@nb.njit(**KERNEL)
def independent(conflict, most):
    """Keep, in order, candidates without conflict with those kept; return the positions of at most `most`.

    `conflict` is boolean, shape (n, n); only the part above the diagonal is read.
    """
    n = len(conflict)
    kept = np.empty(min(n, most), np.int64)
    n_kept = 0
    for i in range(n):
        if n_kept == len(kept):
            break
        free = True
        for k in range(n_kept):
            if conflict[kept[k], i]:
                free = False
                break
        if free:
            kept[n_kept] = i
            n_kept += 1
    return kept[:n_kept]
