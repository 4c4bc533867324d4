"""What workers need before torch modules are sent to them: torch, in one version, and memory."""

from ....errors import DataError, StradaskError, in_brief
from ....scheduler.sessions.worker_state import Frames
from .torch_stage import import_torch


def check_workers(place, stages, needs):
    """Refuse workers without this version of torch, or with less memory than a stage needs.

    `needs` are the bytes of parameters, gradient and slots of each stage.
    """
    version = import_torch().__version__
    try:
        Frames.of(stages)
    except Exception as error:  # of the caller's module
        raise DataError(
            f"module cannot be sent to workers: {in_brief(error)}; it must pickle, without open files, locks "
            "and the like"
        ) from error
    workers = place.workers()
    client = workers.open()
    try:
        names = workers.where()["workers"]
        found = client.run(_equipment, workers=names)
    finally:
        workers.close()
    for name, (there, _) in found.items():
        if there != version:
            has = f"torch {there}" if there else "no torch"
            raise StradaskError(
                f"worker {name} has {has}, and this process {version}: install torch {version} there"
            )
    least = min((limit for _, limit in found.values() if limit), default=0)
    if 0 < least < max(needs):
        number = needs.index(max(needs))
        raise DataError(
            f"stage {number} needs {max(needs) / 2**20:.0f} MiB for parameters, gradient and optimizer, and "
            f"a worker has {least / 2**20:.0f}: cut the network into more stages by plan, or take larger "
            "workers"
        )


def _equipment(dask_worker):
    """Return the version of torch and the memory limit of a worker; None where there is none."""
    limit = dask_worker.memory_manager.memory_limit
    try:
        import torch
    except ImportError:
        return None, limit
    return torch.__version__, limit
