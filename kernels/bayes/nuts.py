"""The no-U-turn sampler: multinomial weights, iterative doubling, the generalised criterion, extra checks.

A transition doubles a trajectory, forwards or backwards in time, until it turns back on itself. A subtree is
built leaf by leaf: finished nodes wait on a stack, and equal ones merge like the digits of a binary counter,
so that a tree of depth D holds at most D + 1 nodes. A node keeps the momenta of its first and last leaf, the
sum rho of its momenta, its weight, and one leaf chosen with probability in proportion to
``exp(-energy)``.

Two nodes that become one have not turned if ``p_first . rho > 0`` and ``p_last . rho > 0``, over both
together, over the left one and the first leaf of the right one, and over the last leaf of the left one and
the right one. Inside a subtree the leaf is chosen uniformly by weight; at the top the new half is taken with
probability ``min(1, w_new / w_old)``, which prefers far leaves. Coordinates and arguments: see ``hmc``.

A transition is cut where it needs the density: `begin` fills the point q at which to evaluate it,
`go_on` takes its value and its gradient, and fills the next q or says that the transition is over. So several
chains can be evaluated together, and `step` is the same code for one of them. All vectors are rows of one
array, called by number: a view of a row would be counted, which costs more than most of what is done with it.

References: Hoffman, Gelman, "The No-U-Turn Sampler", JMLR 2014. Betancourt, "A conceptual introduction to
Hamiltonian Monte Carlo", 2017.
"""

import math

import numba as nb
import numpy as np

from .address import call
from .hmc import MAX_ERROR, acceptance, dot, gradient_in_row, place_row
from .streams import CALLED, INNER, fill_normal, fill_uniform

# Rows of scratch: the point and the gradient there; the momentum of the old tree next to the new subtree; the
# sum of momenta; the two ends, with position, momentum and gradient; then the stack of nodes.
_NEAR, _RHO, _LEFT, _RIGHT, _STACK = 2, 3, 4, 7, 10
_Z, _P, _G = 0, 1, 2  # of an end
_FIRST, _LAST, _SUM, _CHOSEN, _GRADIENT, _ROWS = 0, 1, 2, 3, 4, 5  # of a node
_LARGE = 500.0  # of a logarithm
# Numbers of a transition: beyond them uniform ones, made ahead, of which `_NEXT` is the next, and the
# weight and the log density of each node. Weights are in units of exp(_UNIT), the first leaf having 1.
LOGP, _ENERGY, _WEIGHT, _UNIT, _ACCEPTED, _LEAVES, _DEPTH, _END, _LEAF, _TOP, _DIVERGED = range(11)
_NEXT, _AHEAD, _N_AHEAD = 11, 12, 16  # a tree of 7 leaves takes ten
_NODES = _AHEAD + _N_AHEAD


def scratch_rows(max_depth):
    """Rows of scratch that a step needs."""
    return _STACK + _ROWS * (max_depth + 1)


def scratch_numbers(max_depth):
    """Numbers that a transition keeps while it waits for a density."""
    return _NODES + 2 * (max_depth + 1)


_scratch_numbers = nb.njit(**CALLED)(scratch_numbers)


@nb.njit(**INNER)
def _have_turned(work, first, last, rho, new_first, new_last, new_rho):
    """Whether a trajectory and its continuation have turned, together or where they meet; all are rows.

    Three pairs of inner products in one loop: each alone would wait for its own last addition.
    """
    a, b, c, d, e, f = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(work.shape[1]):
        start, end, joint, next_joint = work[first, i], work[new_last, i], work[last, i], work[new_first, i]
        old, new = work[rho, i], work[new_rho, i]
        a += start * (old + new)
        b += end * (old + new)
        c += start * (old + next_joint)
        d += next_joint * (old + next_joint)
        e += joint * (new + joint)
        f += end * (new + joint)
    return not (a > 0.0 and b > 0.0 and c > 0.0 and d > 0.0 and e > 0.0 and f > 0.0)


@nb.njit(**INNER)
def _weight(gain, numbers):
    """The weight of a leaf; all weights are made smaller where it would be too large a number."""
    if gain - numbers[_UNIT] > _LARGE:
        smaller = math.exp(numbers[_UNIT] - gain)
        numbers[_WEIGHT] *= smaller
        for node in range(int(numbers[_TOP])):
            numbers[_NODES + 2 * node] *= smaller
        numbers[_UNIT] = gain
    return math.exp(gain - numbers[_UNIT])


@nb.njit(**INNER)
def _uniform(numbers, stream):
    """The next of the stream's numbers; one by one they would take three times as long."""
    at = int(numbers[_NEXT])
    if at == _N_AHEAD:
        fill_uniform(stream, numbers, _AHEAD, _N_AHEAD)
        at = 0
    numbers[_NEXT] = at + 1
    return numbers[_AHEAD + at]


@nb.njit(**INNER)
def _merge(work, numbers, top, stream):
    """Merge the nodes `top` - 2 and `top` - 1 into the former; False if they turn."""
    left = _STACK + _ROWS * (top - 2)
    right, at = left + _ROWS, _NODES + 2 * (top - 2)
    if _have_turned(
        work, left + _FIRST, left + _LAST, left + _SUM, right + _FIRST, right + _LAST, right + _SUM
    ):
        return False
    total = numbers[at] + numbers[at + 2]
    d = work.shape[1]
    if _uniform(numbers, stream) * total < numbers[at + 2]:
        for i in range(d):
            work[left + _CHOSEN, i] = work[right + _CHOSEN, i]
            work[left + _GRADIENT, i] = work[right + _GRADIENT, i]
        numbers[at + 1] = numbers[at + 3]
    numbers[at] = total
    for i in range(d):
        work[left + _LAST, i] = work[right + _LAST, i]
        work[left + _SUM, i] += work[right + _SUM, i]
    return True


@nb.njit(**INNER)
def _drift(q, mu, A, tuning, work, numbers):
    """Half a kick and a whole drift at the end that grows; fills q."""
    end = int(numbers[_END])
    size = tuning[0] if end == _RIGHT else -tuning[0]
    half = 0.5 * size
    for i in range(work.shape[1]):
        work[end + _P, i] += half * work[end + _G, i]
        work[end + _Z, i] += size * work[end + _P, i]
    place_row(work, end + _Z, q, mu, A)


@nb.njit(**INNER)
def _double(work, numbers, stream):
    """Choose the end at which the trajectory is doubled."""
    end = _RIGHT if _uniform(numbers, stream) < 0.5 else _LEFT
    for i in range(work.shape[1]):
        work[_NEAR, i] = work[end + _P, i]
    numbers[_END], numbers[_LEAF], numbers[_TOP] = end, 0.0, 0.0


@nb.njit(**INNER)
def _start(z, gz, logp, stream, work, numbers):
    """Draw momenta, and choose an end."""
    rho = work[_RHO]
    fill_normal(stream, rho)
    for i in range(len(z)):
        work[_LEFT + _Z, i] = work[_RIGHT + _Z, i] = z[i]
        work[_LEFT + _P, i] = work[_RIGHT + _P, i] = rho[i]
        work[_LEFT + _G, i] = work[_RIGHT + _G, i] = gz[i]
    numbers[LOGP], numbers[_ENERGY] = logp, 0.5 * dot(rho, rho) - logp
    numbers[_WEIGHT], numbers[_UNIT], numbers[_NEXT] = 1.0, 0.0, _N_AHEAD
    numbers[_ACCEPTED] = numbers[_LEAVES] = numbers[_DEPTH] = numbers[_DIVERGED] = 0.0
    _double(work, numbers, stream)


@nb.njit(**INNER)
def _add_leaf(logp, tuning, work, numbers, stream):
    """Finish the leapfrog step, put the leaf on the stack and merge; False if that ends the transition."""
    end, d = int(numbers[_END]), work.shape[1]
    half = 0.5 * (tuning[0] if end == _RIGHT else -tuning[0])
    kinetic = 0.0
    for i in range(d):
        work[end + _P, i] += half * work[end + _G, i]
        kinetic += work[end + _P, i] * work[end + _P, i]
    gain = numbers[_ENERGY] + logp - 0.5 * kinetic
    numbers[_LEAVES] += 1.0
    if not gain > -MAX_ERROR:
        numbers[_DIVERGED] = 1.0
        return False
    top = int(numbers[_TOP])
    node = _STACK + _ROWS * top
    for i in range(d):
        p = work[end + _P, i]
        work[node + _FIRST, i] = p
        work[node + _LAST, i] = p
        work[node + _SUM, i] = p
        work[node + _CHOSEN, i] = work[end + _Z, i]
        work[node + _GRADIENT, i] = work[end + _G, i]
    weight = _weight(gain, numbers)
    numbers[_ACCEPTED] += min(1.0, weight) if numbers[_UNIT] == 0.0 else acceptance(gain)
    numbers[_NODES + 2 * top], numbers[_NODES + 2 * top + 1] = weight, logp
    numbers[_LEAF] += 1.0
    top, rest = top + 1, int(numbers[_LEAF])
    while rest & 1 == 0:
        rest >>= 1
        if not _merge(work, numbers, top, stream):
            return False
        top -= 1
    numbers[_TOP] = top
    return True


@nb.njit(**INNER)
def _join(z, gz, work, numbers, stream):
    """Join the finished subtree to the trajectory; False if that has turned."""
    d = work.shape[1]
    numbers[_DEPTH] += 1.0
    if _uniform(numbers, stream) * numbers[_WEIGHT] < numbers[_NODES]:
        for i in range(d):
            z[i], gz[i] = work[_STACK + _CHOSEN, i], work[_STACK + _GRADIENT, i]
        numbers[LOGP] = numbers[_NODES + 1]
    numbers[_WEIGHT] += numbers[_NODES]
    far = (_LEFT if int(numbers[_END]) == _RIGHT else _RIGHT) + _P
    turned = _have_turned(work, far, _NEAR, _RHO, _STACK + _FIRST, _STACK + _LAST, _STACK + _SUM)
    for i in range(d):
        work[_RHO, i] += work[_STACK + _SUM, i]
    return not turned


@nb.njit(**INNER)
def _advance(z, gz, logp, g, A, tuning, stream, work, numbers, info):
    """Take the density of the leaf; False when the transition is over."""
    gradient_in_row(g, work, int(numbers[_END]) + _G, A)
    if _add_leaf(logp, tuning, work, numbers, stream):
        if int(numbers[_LEAF]) < 1 << int(numbers[_DEPTH]):
            return True
        if _join(z, gz, work, numbers, stream) and numbers[_DEPTH] < tuning[1]:
            _double(work, numbers, stream)
            return True
    info[0], info[1], info[2] = numbers[_ACCEPTED] / numbers[_LEAVES], numbers[_LEAVES], numbers[_DEPTH]
    info[3], info[4] = numbers[_DIVERGED], numbers[_ENERGY]
    return False


@nb.njit(**INNER)
def begin(z, gz, logp, q, mu, A, tuning, stream, work, numbers):
    """Begin a transition: fill q, where the density is needed."""
    _start(z, gz, logp, stream, work, numbers)
    _drift(q, mu, A, tuning, work, numbers)


@nb.njit(**INNER)
def go_on(z, gz, logp, q, g, mu, A, tuning, stream, work, numbers, info):
    """Take the density at q; False when the transition is over, and ``numbers[LOGP]`` belongs to its end."""
    going = _advance(z, gz, logp, g, A, tuning, stream, work, numbers, info)
    if going:
        _drift(q, mu, A, tuning, work, numbers)
    return going


@nb.njit(**CALLED)
def step(density, z, gz, logp, mu, A, tuning, stream, work, info, data, meta):
    """One transition in place; returns the log density at its end."""
    q, g, numbers = work[0], work[1], np.empty(_scratch_numbers(int(tuning[1])))
    _start(z, gz, logp, stream, work, numbers)
    going = True
    while going:
        _drift(q, mu, A, tuning, work, numbers)
        logp = call(density, q, g, data, meta)
        going = _advance(z, gz, logp, g, A, tuning, stream, work, numbers, info)
    return numbers[LOGP]
