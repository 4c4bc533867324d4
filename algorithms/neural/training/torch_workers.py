"""What workers need before torch modules are sent to them: torch, in one version, and memory."""

from ....errors import DataError, StradaskError, in_brief
from ....scheduler.sessions.worker_state import Frames
from .torch_stage import import_torch


def check_workers(place, layers):
    """Refuse layers that cannot be sent, and workers without this version of torch.

    Returns the bytes of memory that a thread of the smallest worker may use, or None if there is no limit.
    """
    version = import_torch().__version__
    try:
        Frames.of(layers)
    except Exception as error:  # of the caller's module
        raise DataError(
            f"module cannot be sent to workers: {in_brief(error)}; it must pickle, without open files, locks "
            "and the like"
        ) from error
    workers = place.workers()
    client = workers.open()
    try:
        names = workers.where()["workers"]
        found = client.run(_equipment, workers=names, on_error="ignore")
    finally:
        workers.close()
    for name, (there, _, _) in found.items():
        if there != version:
            has = f"torch {there}" if there else "no torch"
            raise StradaskError(
                f"worker {name} has {has}, and this process {version}: install torch {version} there"
            )
    return min((limit / n for _, limit, n in found.values() if limit), default=None)


def check_memory(needs, limit):
    """Refuse stages that need more bytes of parameters, gradient and slots than a place has."""
    if limit is not None and limit < max(needs):
        raise DataError(
            f"stage {needs.index(max(needs))} needs {max(needs) / 2**20:.0f} MiB for parameters, gradient "
            f"and optimizer, and a place has {limit / 2**20:.0f}: cut the network into more stages by plan, "
            "or take larger workers"
        )


def _equipment(dask_worker):
    """Return the version of torch, the memory limit and the threads of a worker; None where there is none."""
    limit, n_threads = dask_worker.memory_manager.memory_limit, dask_worker.state.nthreads
    try:
        import torch
    except ImportError:
        return None, limit, n_threads
    return torch.__version__, limit, n_threads
