"""The no-U-turn sampler: multinomial weights, iterative doubling, the generalised criterion, extra checks.

A transition doubles a trajectory, forwards or backwards in time, until it turns back on itself. A subtree is
built leaf by leaf: finished nodes wait on a stack, and equal ones merge like the digits of a binary counter,
so that a tree of depth D holds at most D + 1 nodes. A node keeps the momenta of its first and last leaf, the
sum rho of its momenta, its log weight, and one leaf chosen with probability in proportion to
``exp(-energy)``.

Two nodes that become one have not turned if ``p_first . rho > 0`` and ``p_last . rho > 0``, over both
together, over the left one and the first leaf of the right one, and over the last leaf of the left one and
the right one. Inside a subtree the leaf is chosen uniformly by weight; at the top the new half is taken with
probability ``min(1, w_new / w_old)``, which prefers far leaves. Coordinates and arguments: see ``hmc``.

References: Hoffman, Gelman, "The No-U-Turn Sampler", JMLR 2014. Betancourt, "A conceptual introduction to
Hamiltonian Monte Carlo", 2017.
"""

import math

import numba as nb
import numpy as np

from .bayes_streams import OPTIONS, fill_normal, uniform
from .hmc import MAX_ERROR, acceptance, copy, dot, leapfrog

_FIRST, _LAST, _RHO, _Z, _GRADIENT, _ROWS = 0, 1, 2, 3, 4, 5  # of a node on the stack
_BASE = 10  # rows of scratch before the stack


def scratch_rows(max_depth):
    """Rows of scratch that a step needs."""
    return _BASE + _ROWS * (max_depth + 1)


@nb.njit(**OPTIONS)
def _turned(first, last, rho, more):
    """Whether the trajectory of momentum sum ``rho + more`` has turned at one of its ends."""
    a, b = 0.0, 0.0
    for i in range(len(rho)):
        total = rho[i] + more[i]
        a += first[i] * total
        b += last[i] * total
    return not (a > 0.0 and b > 0.0)


@nb.njit(**OPTIONS)
def _log_add(a, b):
    high, low = max(a, b), min(a, b)
    return high if low == -np.inf else high + math.log1p(math.exp(low - high))


@nb.njit(**OPTIONS)
def _merge(left, right, weights, logps, top, stream):
    """Merge the nodes `top` - 2 and `top` - 1 into the former; False if they turn."""
    turned = (
        _turned(left[_FIRST], right[_LAST], left[_RHO], right[_RHO])
        or _turned(left[_FIRST], right[_FIRST], left[_RHO], right[_FIRST])
        or _turned(left[_LAST], right[_LAST], right[_RHO], left[_LAST])
    )
    if turned:
        return False
    total = _log_add(weights[top - 2], weights[top - 1])
    if uniform(stream) < math.exp(weights[top - 1] - total):
        copy(right[_Z], left[_Z])
        copy(right[_GRADIENT], left[_GRADIENT])
        logps[top - 2] = logps[top - 1]
    weights[top - 2] = total
    copy(right[_LAST], left[_LAST])
    _add(right[_RHO], left[_RHO])
    return True


@nb.njit(**OPTIONS)
def _add(source, target):
    for i in range(len(source)):
        target[i] += source[i]


@nb.njit(**OPTIONS)
def _set(z, p, gradient, to_z, to_p, to_gradient):
    copy(z, to_z)
    copy(p, to_p)
    copy(gradient, to_gradient)


@nb.njit(**OPTIONS)
def step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """One transition in place; returns the log density at its end."""
    d, size, max_depth = len(z), tuning[0], int(tuning[1])
    q, g, near, rho = work[0], work[1], work[2], work[3]
    left_z, left_p, left_g = work[4], work[5], work[6]
    right_z, right_p, right_g = work[7], work[8], work[9]
    stack = work[_BASE:].reshape(max_depth + 1, _ROWS, d)
    weights, logps = np.empty(max_depth + 1), np.empty(max_depth + 1)
    fill_normal(stream, rho)
    _set(z, rho, gz, left_z, left_p, left_g)
    _set(z, rho, gz, right_z, right_p, right_g)
    energy = 0.5 * dot(rho, rho) - logp
    log_weight, accepted, n_leaves, depth, diverged = 0.0, 0.0, 0, 0, False
    while depth < max_depth:
        forwards = uniform(stream) < 0.5
        end_z, end_p, end_g = (right_z, right_p, right_g) if forwards else (left_z, left_p, left_g)
        signed = size if forwards else -size
        copy(end_p, near)  # the momentum of the old tree next to the new subtree
        top, whole = 0, True
        for leaf in range(1, (1 << depth) + 1):
            end_logp = leapfrog(density, end_z, end_p, end_g, q, g, mu, A, signed, data, meta)
            gain = energy + end_logp - 0.5 * dot(end_p, end_p)
            n_leaves += 1
            accepted += acceptance(gain)
            if not gain > -MAX_ERROR:
                diverged, whole = True, False
                break
            node = stack[top]
            _set(end_p, end_p, end_p, node[_FIRST], node[_LAST], node[_RHO])
            copy(end_z, node[_Z])
            copy(end_g, node[_GRADIENT])
            weights[top], logps[top] = gain, end_logp
            top += 1
            rest = leaf
            while whole and rest & 1 == 0:
                rest >>= 1
                whole = _merge(stack[top - 2], stack[top - 1], weights, logps, top, stream)
                top -= 1
            if not whole:
                break
        if not whole:
            break
        depth += 1
        new = stack[0]
        if uniform(stream) < math.exp(min(0.0, weights[0] - log_weight)):
            copy(new[_Z], z)
            copy(new[_GRADIENT], gz)
            logp = logps[0]
        log_weight = _log_add(log_weight, weights[0])
        far = left_p if forwards else right_p
        turned = (
            _turned(far, new[_LAST], rho, new[_RHO])
            or _turned(far, new[_FIRST], rho, new[_FIRST])
            or _turned(near, new[_LAST], new[_RHO], near)
        )
        _add(new[_RHO], rho)
        if turned:
            break
    info[0], info[1], info[2] = accepted / max(1, n_leaves), n_leaves, depth
    info[3], info[4] = 1.0 if diverged else 0.0, energy
    return logp
