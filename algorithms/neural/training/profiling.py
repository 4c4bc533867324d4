"""What layers cost: their passes timed on one thread, here or on a worker, as the planner needs it."""

import time

import numpy as np

from ....scheduler.planning.costs import Link, Profile
from ....scheduler.threads import single_threaded_blas

_REPEATS = 3  # of which the fastest counts
_ENTRIES = 2**24  # on which the optimiser is timed, at most
THREADS = Link(5e-5, 1e10)  # between threads, which pass blocks on as they are


def profile_layers(layers, vectors, x, optimizer, counts, place):
    """Time the passes of each layer for these numbers of rows; return a `Profile`.

    `x` are rows for the first layer. On a cluster one of the workers is timed, and draws the parameters of
    one layer after another where `vectors` is None.
    """
    spans = [(number, number + 1, 1) for number in range(len(layers.sizes))]
    starts: list = [None] * len(spans)
    if vectors is not None:
        starts = [params for params, _ in vectors.cut(layers.sizes, spans)]
    stages = [layers.stage(first, last) for first, last, _ in spans]
    with place.tasks([x], name="the rows on which layers are timed") as tasks:
        ((forward, backward, out_bytes),) = tasks.map(_timed, [(0, stages, starts, counts)])
    sizes = np.array([n for n, _ in layers.sizes])
    dtype = layers.dtype if vectors is None else vectors.trained.dtype
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
        state_copies=len(slots),
        input_bytes=getattr(x, "nbytes", 0) / x.shape[0],
    )


def _timed(x, stages, starts, counts):
    """Return seconds forward and backward, (n_layers, n_counts), and the bytes a row of each output."""
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
    return forward, backward, out_bytes


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
