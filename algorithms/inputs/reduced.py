"""A result over pieces of data, joined where the pieces are: this process gets the result alone."""

import dask

from ...scheduler.coordinator import client_of
from ...scheduler.threads import computed_here, own_threads
from ...scheduler.workers import open_workers

_JOINED = 8  # results that a task joins


def reduced(function, join, pieces, engine):
    """Return ``join`` of the results of ``function(*piece)``, a list of 1 to 8 of them at a time.

    Pieces are tuples, perhaps with Dask collections, which come computed. `engine` as for an estimator:
    threads of this process, or the workers of a cluster.
    """
    made, joining = dask.delayed(function, pure=False), dask.delayed(join, pure=False)
    left = [made(*piece) for piece in pieces]
    while True:
        left = [joining(left[k : k + _JOINED]) for k in range(0, len(left), _JOINED)]
        if len(left) == 1:
            return computed_at(left[0], engine)


def computed_at(lazy, engine):
    """Compute a delayed value where an engine computes, and fetch it."""
    if engine == "local" or own_threads() is not None:
        return computed_here(lazy)[0]
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        client = client_of(engine)
        if client is not None:  # which may reach the scheduler alone
            return client.compute(lazy, sync=True)
        with open_workers(engine).task_workers() as workers:
            return workers.gather([workers.submit(_same, lazy)])[0]


def _same(value):
    return value
