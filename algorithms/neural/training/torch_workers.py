"""What places need before torch modules are sent to them: torch, in one version, memory, a GPU."""

from ....errors import DataError, DeviceError, StradaskError, in_brief, shortened
from ....scheduler.allocation import free_memory
from .program import Prepared
from .torch_stage import import_torch


def check_workers(cluster, layers, optimizer, device):
    """Refuse layers that cannot be sent, and workers without this version of torch.

    Returns the bytes that a thread of the fullest worker may still take, or None if there is no limit or no
    optimizer is given, and the device on which all workers can compute; see `chosen_device`.
    """
    version = import_torch().__version__
    import cloudpickle  # which distributed needs; its own way wraps an error in bytes that fail elsewhere

    try:
        cloudpickle.dumps(layers)
    except Exception as error:  # of the caller's module
        raise DataError(
            f"module cannot be sent to workers: {in_brief(error)}; it must pickle, without open files, locks "
            "and the like"
        ) from error
    with cluster.task_workers() as workers:
        names = workers.where()["workers"]
        found = workers.client.run(_equipment, optimizer, workers=names, on_error="ignore")
    for name, (there, *_) in found.items():
        if there != version:
            has = f"torch {there}" if there else "no torch"
            raise StradaskError(
                f"worker {name} has {has}, and this process {version}: install torch {version} there"
            )
    memory = min((free for _, free, _ in found.values() if free is not None), default=None)
    gpus = {f"worker {name}": count for name, (*_, count) in found.items()}
    return memory, chosen_device(device, gpus)


def device_here(device):
    """Return the device of a fit on threads of this process; see `chosen_device`."""
    return chosen_device(device, {"this process": _count_gpus()} if device != "cpu" else {})


def chosen_device(device, gpus):
    """Return the device that all places have: "auto" is "cuda" where each has a GPU, else "cpu".

    `gpus` has for each worker the number of its GPUs, or why torch cannot use one.
    """
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda", "auto") or (number and not (kind == "cuda" and number.isdecimal())):
        raise DataError(
            f"device must be 'cpu', 'cuda', 'cuda:0', 'cuda:1'... or 'auto', got {shortened(device)}"
        )
    lacking = {name: n for name, n in gpus.items() if isinstance(n, str) or n <= int(number or 0)}
    if kind == "auto":
        return "cpu" if lacking or not gpus else "cuda"
    if kind == "cuda" and lacking:
        name, n = next(iter(lacking.items()))
        why = n if isinstance(n, str) else f"it has {n} of them, numbered from 0"
        raise DeviceError(f"device={device!r}, but torch has no such GPU in {name} ({why}): set device='cpu'")
    return device


def _equipment(optimizer, dask_worker):
    """Return the version of torch, the memory that a thread may take, and GPUs; None where there is none."""
    try:
        import torch
    except ImportError:
        return None, None, 0

    def prepare():
        Prepared(optimizer)()
        layer = torch.nn.Linear(8, 8)  # the first passes of a process bring a hundred MB
        layer(torch.zeros(4, 8)).sum().backward()

    memory = None if optimizer is None else free_memory(prepare, dask_worker)
    return torch.__version__, memory, _count_gpus()


def _count_gpus():
    """Count the GPUs that torch can use here, or say why there are none."""
    cuda = import_torch().cuda
    if cuda.is_available():
        return cuda.device_count()
    return "torch finds none" if cuda._is_compiled() else "this torch is built without CUDA"
