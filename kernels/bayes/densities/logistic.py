"""Log density and gradient of Bayesian logistic regression.

With signs s_i = 1 or -1 multiplied into the rows, a_i = s_i x_i,

    ``log p(y | b) = -sum_i log(1 + exp(-a_i b))``,  gradient ``sum_i a_i / (1 + exp(a_i b))``.

The passes over the rows are those of ``tiles``; they are combined here, for one parameter
vector or for two or four that share a pass, in double or single precision by the type of the coefficients.
Single precision keeps sums over some thousand rows only, then goes over to double.
"""

import math
from typing import Any

import numba as nb
import numpy as np

from ..address import INTEGERS, MATRIX, VECTOR, call_lead, floats
from ..streams import CALLED, OPTIONS
from ..team import LEADER, current, done_by, finish, publish, take
from .priors import HEAD, N_COEFS, N_TILES, PADDING, START, add_prior, coefficients
from .tiles import LINE, N_VECTORS, RUN32, RUN64, tile_pass

# Compiled alone, each function would hold a copy of the passes, optimised again in each of its callers.
_PART: dict[str, Any] = {**OPTIONS, "inline": "always"}
_FLUSH = 8  # runs of single precision
_SHARED = 400_000  # bytes of X in the second-level cache while several parameter vectors meet them
# Of meta, where there is a team: addresses of control words and numbers, how many these are; that of `lead`.
TEAM, _LEAD = HEAD, HEAD + 3
_TOGETHER = 4  # parameter vectors that share one reading
_DOUBLE, _SINGLE = np.empty(0), np.empty(0, np.float32)

_one, _two, _four = tile_pass(1, True), tile_pass(2, True), tile_pass(_TOGETHER, True)
_four_densities = tile_pass(_TOGETHER, False)


@nb.njit(**CALLED)
def _sum_lanes(lanes, g):
    """Add the lanes of the gradient to `g`, and clear them."""
    width = len(lanes) // len(g)
    for j in range(len(g)):
        total = 0.0
        for lane in range(j * width, (j + 1) * width):
            total += np.float64(lanes[lane])
            lanes[lane] = 0.0
        g[j] += total


@nb.njit(**CALLED)
def _runs_of(coefs):
    """Tiles of a run, after which products are checked, and runs after which sums are."""
    return (RUN64, 1) if coefs.itemsize == 8 else (RUN32, _FLUSH)


@nb.njit(**OPTIONS)
def n_blocks(kind, meta):
    """Number of blocks of tiles: each is summed in the precision of `kind` before it is added up."""
    run, flush = _runs_of(kind)
    return (meta[N_TILES] + run * flush - 1) // (run * flush)


@nb.njit(**OPTIONS)
def result_size(n, kind, meta):
    """Size of a block's result for n vectors, in numbers of `kind`."""
    return n * (LINE // kind.itemsize) * (meta[N_COEFS] + 2 * _runs_of(kind)[1])


@nb.njit(**CALLED)
def _do_block(block, coefs, result, X, n_tiles, alone):
    """Pass over the tiles of a block for one, two or four vectors, coefs (d, n).

    With None in `alone` there is one vector, and the other passes are not compiled.
    `result` becomes the lanes of the gradient, then for each run the products and the linear parts of the
    likelihood.
    """
    d, n = coefs.shape
    run, flush = _runs_of(coefs)
    half = n * (LINE // coefs.itemsize)
    running, first = result[: d * half], block * run * flush
    for lane in range(d * half):
        running[lane] = 0.0
    for k in range(flush):
        tile, sums = first + k * run, result[(d + 2 * k) * half : (d + 2 * k + 2) * half]
        for lane in range(half):
            sums[lane], sums[half + lane] = 1.0, 0.0
        address, many = X + tile * (d * N_VECTORS * LINE), min(run, n_tiles - tile)
        if many <= 0:
            continue
        if alone is None:  # a branch of its own, which the compiler can leave out
            _one(address, many, d, coefs, running, sums)
            continue
        if n == 1:
            _one(address, many, d, coefs, running, sums)
        elif n == 2:
            _two(address, many, d, coefs, running, sums)
        else:
            _four(address, many, d, coefs, running, sums)


@nb.njit(**CALLED)
def _add_block(result, slopes, logps, flush):
    """Add the result of a block."""
    d, n = slopes.shape
    half = len(result) // (d + 2 * flush)
    lanes = half // n
    for k in range(flush):
        for lane in range(half):
            logps[lane // lanes] -= result[(d + 2 * k + 1) * half + lane]
    for lane in range(half):
        product = 1.0
        for k in range(flush):
            product *= result[(d + 2 * k) * half + lane]
        logps[lane // lanes] -= math.log(product)
    _sum_lanes(result[: d * half], slopes.ravel())


@nb.njit(**_PART)
def _likelihoods(coefs, slopes, logps, X, meta, alone):
    """Log likelihoods of one, two or four vectors, coefs (d, n), in one pass; slopes (d, n) are set.

    Padding is included. A vector's numbers are made by the same operations whatever goes with it and
    whichever thread does a block, so that they are the same to the last bit.
    """
    for k in range(coefs.shape[1]):
        logps[k] = 0.0
        for j in range(len(coefs)):
            slopes[j, k] = 0.0
    if len(meta) > TEAM and current(meta[TEAM])[0] >= 0:
        call_lead(meta[_LEAD], coefs, slopes, logps, X, meta)
        return
    result = np.empty(result_size(coefs.shape[1], coefs, meta), coefs.dtype)
    for block in range(n_blocks(coefs, meta)):
        _do_block(block, coefs, result, X, meta[N_TILES], alone)
        _add_block(result, slopes, logps, _runs_of(coefs)[1])


@nb.njit(**OPTIONS)
def _shared(who, block, n, kind, meta):
    """Return the team's vectors (d, n), and someone's result of a block."""
    d = meta[N_COEFS]
    whole = nb.carray(floats(meta[TEAM + 1]), meta[TEAM + 2]).view(kind.dtype)
    first = (who * n_blocks(kind, meta) + block) * result_size(_TOGETHER, kind, meta)
    coefs = whole[len(whole) - d * _TOGETHER :][: d * n]
    return coefs.reshape(d, n), whole[first : first + result_size(n, kind, meta)]


@nb.njit(**OPTIONS)
def take_blocks(who, number, n, kind, X, meta):
    """Do the blocks of an evaluation that are left: the leader from the first on, others from the last."""
    control, many = meta[TEAM], n_blocks(kind, meta)
    for i in range(many):
        block = i if who == LEADER else many - 1 - i
        if take(control, block, number, who):
            coefs, result = _shared(who, block, n, kind, meta)
            _do_block(block, coefs, result, X, meta[N_TILES], False)
            finish(control, block, number, who)


# By the type of coefs; compiled where there is a team, since it takes as long to compile as all the rest.
LEADS = [nb.void(kind[:, ::1], MATRIX, VECTOR, nb.int64, INTEGERS) for kind in (nb.float64, nb.float32)]


@nb.njit(**CALLED)
def lead(coefs, slopes, logps, X, meta):
    """The leader's part of an evaluation, with the arguments of `_likelihoods`."""
    n = coefs.shape[1]
    shared, _ = _shared(LEADER, 0, n, coefs, meta)
    for j in range(len(coefs)):
        for k in range(n):
            shared[j, k] = coefs[j, k]
    number = publish(meta[TEAM], n)
    take_blocks(LEADER, number, n, coefs, X, meta)
    for block in range(n_blocks(coefs, meta)):
        who = done_by(meta[TEAM], block, number)
        _, result = _shared(max(who, LEADER), block, n, coefs, meta)
        if who < 0:
            _do_block(block, coefs, result, X, meta[N_TILES], False)
            finish(meta[TEAM], block, number, LEADER)
        _add_block(result, slopes, logps, _runs_of(coefs)[1])


@nb.njit(**_PART)
def _help(who, kind, data, meta):
    """Take blocks of all evaluations until the team is closed."""
    X, last = data.ctypes.data + 8 * meta[START], np.int64(0)
    while True:
        number, n = current(meta[TEAM])
        if number < 0:
            return
        if number != last:
            take_blocks(who, number, n, kind, X, meta)
            last = number


@nb.njit(**_PART)
def _fill(first, n, Q, G, logps, kind, data, meta, alone):
    """Log posterior densities and gradients of n vectors, one, two or four, in the precision of `kind`."""
    d = meta[N_COEFS]
    b, gb, coefs = np.empty(d), np.empty(d), np.empty((d, n), kind.dtype)
    slopes, likelihoods = np.empty((d, n)), np.empty(n)
    for k in range(n):
        coefficients(Q[first + k], b, data, meta)
        for j in range(d):
            coefs[j, k] = b[j]
    _likelihoods(coefs, slopes, likelihoods, data.ctypes.data + 8 * meta[START], meta, alone)
    for k in range(n):
        coefficients(Q[first + k], b, data, meta)
        for j in range(d):
            gb[j] = slopes[j, k]
        logp = likelihoods[k] + data[PADDING]
        logps[first + k] = logp + add_prior(Q[first + k], b, gb, G[first + k], data, meta)


@nb.njit(**_PART)
def _alone(q, g, kind, data, meta):
    """Log posterior density of one vector."""
    logp = np.empty(1)
    _fill(0, 1, q.reshape(1, -1), g.reshape(1, -1), logp, kind, data, meta, None)
    return logp[0]


@nb.njit(**_PART)
def _together(n, Q, G, logps, kind, data, meta):
    """Log posterior densities of n vectors, as many as can in a pass."""
    first = 0
    while first < n:
        left = n - first
        size = _TOGETHER if left >= _TOGETHER else 2 if left >= 2 else 1
        _fill(first, size, Q, G, logps, kind, data, meta, False)
        first += size


@nb.njit(**_PART)
def _batch(Q, out, kind, data, meta):
    """Log densities (K,) of K parameter vectors: some tiles meet all of them before the next are read."""
    d, n_tiles, n, X = meta[N_COEFS], meta[N_TILES], len(Q), data.ctypes.data + 8 * meta[START]
    b, gb, g = np.empty(d), np.zeros(d), np.empty(Q.shape[1])
    groups = np.zeros(((n + _TOGETHER - 1) // _TOGETHER, d, _TOGETHER), kind.dtype)
    for k in range(n):
        coefficients(Q[k], b, data, meta)
        out[k] = data[PADDING] + add_prior(Q[k], b, gb, g, data, meta)
        for j in range(d):
            groups[k // _TOGETHER, j, k % _TOGETHER] = b[j]
    (run, flush), lanes, size = _runs_of(kind), LINE // kind.itemsize, d * N_VECTORS * LINE
    run, half = max(1, min(run, _SHARED // size)), _TOGETHER * lanes
    sums, product = np.empty(2 * half, kind.dtype), np.ones((len(groups), half))
    for tile in range(0, n_tiles, run):
        flushes = (tile // run) % flush == flush - 1 or tile + run >= n_tiles
        for i in range(len(groups)):
            for lane in range(half):
                sums[lane], sums[half + lane] = 1.0, 0.0
            _four_densities(X + tile * size, min(run, n_tiles - tile), d, groups[i], sums, sums)
            for lane in range(half):
                k = i * _TOGETHER + lane // lanes
                product[i, lane] *= sums[lane]
                if k < n:
                    out[k] -= sums[half + lane]
                    if flushes:
                        out[k] -= math.log(product[i, lane])
                        product[i, lane] = 1.0


def team_sizes(n_threads, single, meta):
    """Number of blocks of a team, and of the float64 that its threads share."""
    kind = _SINGLE if single else _DOUBLE
    many = n_blocks(kind, meta)
    items = n_threads * many * result_size(_TOGETHER, kind, meta) + meta[N_COEFS] * _TOGETHER
    return many, (items * kind.itemsize + 7) // 8


@nb.njit(**CALLED)
def logistic64(q, g, data, meta):
    """Log posterior density in double precision."""
    return _alone(q, g, _DOUBLE, data, meta)


@nb.njit(**CALLED)
def logistic32(q, g, data, meta):
    """Log posterior density, the rows in single precision."""
    return _alone(q, g, _SINGLE, data, meta)


@nb.njit(**OPTIONS)
def logistic64_together(n, Q, G, logps, data, meta):
    """Log posterior densities and gradients of n parameter vectors, that share passes over the rows."""
    _together(n, Q, G, logps, _DOUBLE, data, meta)


@nb.njit(**OPTIONS)
def logistic32_together(n, Q, G, logps, data, meta):
    """The same on tiles in single precision."""
    _together(n, Q, G, logps, _SINGLE, data, meta)


@nb.njit(**OPTIONS)
def logistic64_batch(Q, out, data, meta):
    """Log densities (K,) of K parameter vectors: some tiles meet all of them before the next are read."""
    _batch(Q, out, _DOUBLE, data, meta)


@nb.njit(**OPTIONS)
def logistic32_batch(Q, out, data, meta):
    """The same on tiles in single precision."""
    _batch(Q, out, _SINGLE, data, meta)


@nb.njit(**OPTIONS)
def logistic64_help(who, data, meta):
    """Help a leader with all its evaluations in double precision, until the team is closed."""
    _help(who, _DOUBLE, data, meta)


@nb.njit(**OPTIONS)
def logistic32_help(who, data, meta):
    """The same on tiles in single precision."""
    _help(who, _SINGLE, data, meta)


# Of each density: for many points, for several that chains share, and for the helpers of a team.
VARIANTS = {
    logistic64: (logistic64_batch, logistic64_together, logistic64_help),
    logistic32: (logistic32_batch, logistic32_together, logistic32_help),
}
