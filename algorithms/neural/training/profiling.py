"""What layers cost: their passes timed on one thread, here or on a worker, as the planner needs it."""

import itertools
import math
import time

import numpy as np

from ....scheduler.planning.costs import Link, Profile
from ....scheduler.threads import single_threaded_blas

_REPEATS = 3  # of which the fastest counts
_ENTRIES = 2**24  # on which the optimiser is timed, at most
_SHARE = 1 / 8  # of the memory of a worker, for layers that are sent to be timed
THREADS = Link(5e-5, 1e10)  # between threads, which pass blocks on as they are


def profile_layers(layers, vectors, x, optimizer, counts, place, memory_limit=None):
    """Time the passes of each layer for these numbers of rows; return a `Profile`.

    `x` are rows for the first layer. On a cluster a worker is timed, and draws the parameters of one layer
    after another where `vectors` is None. Given ones are sent: all at once, or some layers after others where
    all would take more than an eighth of `memory_limit`, which one worker may use.
    """
    spans = [(number, number + 1, 1) for number in range(len(layers.sizes))]
    starts: list = [None] * len(spans)
    if vectors is not None:
        starts = [params for params, _ in vectors.cut(layers.sizes, spans)]
    stages = [layers.stage(first, last) for first, last, _ in spans]
    sizes, dtype = np.array([n for n, _ in layers.sizes]), layers.dtype
    most = math.inf if vectors is None or memory_limit is None else _SHARE * memory_limit
    timed, value = [], x
    for first, last in _portions(sizes * dtype.itemsize, most):
        data = value, starts[first:last]
        with place.tasks([data], name="the layers that are timed") as tasks:
            ((*found, value),) = tasks.map(_timed, [(0, stages[first:last], counts, last < len(stages))])
        timed.append(found)
    forward, backward, out_bytes = map(np.concatenate, zip(*timed, strict=True))
    params = np.zeros(min(sizes.sum(), _ENTRIES), dtype)
    grads, slots = np.zeros_like(params), optimizer.slots(params)
    step = _least(lambda: optimizer.step(params, grads, slots, 1))
    # Of two neighbours one is cleared, and one vector is added to the sum of others.
    summed = _least(lambda: _add(params, grads)) / max(len(params), 1) / 2
    return Profile(
        forward,
        backward + (summed * sizes)[:, None],
        out_bytes,
        sizes * params.itemsize,
        rows=counts,
        update=step * sizes / max(len(params), 1),
        state_copies=len(slots) + (1 + len(slots)) * place.remote,  # workers copy what they save
        input_bytes=getattr(x, "nbytes", 0) / x.shape[0],
    )


def _portions(nbytes, most):
    """Cut layers into portions of so many bytes, or of one layer: pairs of first and last, without it.

    Examples
    --------
    >>> from stradask.algorithms.neural.training.profiling import _portions
    >>> _portions([3, 3, 3, 9, 1, 1], 6)
    [(0, 2), (2, 3), (3, 4), (4, 6)]
    """
    edges, held = [0], 0
    for number, own in enumerate(nbytes):
        if held and held + own > most:
            edges.append(number)
            held = 0
        held += own
    return list(itertools.pairwise([*edges, len(nbytes)]))


def _timed(data, stages, counts, goes_on):
    """Return seconds forward and backward, (n_layers, n_counts), and the bytes a row of each output.

    And the last output, if other layers follow.
    """
    x, starts = data
    forward, backward = np.empty((2, len(stages), len(counts)))
    out_bytes, key = np.empty(len(stages)), (0, 0, 0, 0)
    with single_threaded_blas():
        for c, rows in enumerate(counts):
            value = x[np.arange(rows) % x.shape[0]]
            for number, (stage, params) in enumerate(zip(stages, starts, strict=True)):
                params = np.array(stage.start(0) if params is None else params)
                grads = np.zeros(len(params) - getattr(stage, "n_buffers", 0), params.dtype)
                forward[number, c] = _least(lambda s=stage, p=params, v=value: s.forward(p, v, key))
                took = []
                for _ in range(_REPEATS):
                    y, context = stage.forward(params, value, key)
                    began = time.perf_counter()
                    stage.backward(context, np.full(y.shape, 1e-3, y.dtype), grads)
                    took.append(time.perf_counter() - began)
                backward[number, c], out_bytes[number], value = min(took), y.nbytes / rows, y
    return forward, backward, out_bytes, value if goes_on else None


def _add(one, two):
    """Clear a gradient, and add one."""
    two[:] = 0
    one += two


def _least(function):
    took = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        function()
        took.append(time.perf_counter() - began)
    return min(took)
