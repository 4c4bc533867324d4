"""Engines of the benchmarks without peers: this process, and a cluster of two processes."""

import contextlib


@contextlib.contextmanager
def engines_of(places, local, n_threads):
    """Yield pairs of a place and its engine.

    `local` has the engines of places in this process; any other is a cluster of two worker processes with
    that many threads each.
    """
    if all(place in local for place in places):
        yield [(place, local[place]) for place in places]
        return
    from distributed import LocalCluster

    options = {"n_workers": 2, "threads_per_worker": n_threads, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster:
        yield [(place, local.get(place, cluster.scheduler_address)) for place in places]


@contextlib.contextmanager
def worker_processes(n):
    """Yield the address of a cluster of n worker processes of one thread."""
    from distributed import LocalCluster

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(n_workers=n, **options) as cluster:
        cluster.wait_for_workers(n)
        yield cluster.scheduler_address
