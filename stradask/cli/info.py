"""The command ``stradask info``: versions, processor, memory, GPU, folders."""

import math
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from .._version import __version__
from ..algorithms.inputs.memory import machine_memory

PACKAGES = (
    *("numpy", "scipy", "scikit-learn", "numba", "llvmlite", "dask", "distributed"),
    *("joblib", "threadpoolctl", "pooch", "tqdm", "matplotlib", "pandas", "cupy-cuda12x", "cupy-cuda13x"),
)


def information():
    """Return facts of this installation and machine, fit for JSON."""
    return {
        "stradask": __version__,
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        "packages": {name: _version(name) for name in PACKAGES},
        "cpu": _cpu(),
        "memory_gb": _memory(),
        "gpu": _gpu(),
        "folders": {
            "package": str(Path(__file__).resolve().parents[1]),
            "compiled_code": _compiled_code(),
            "data": _data(),
        },
    }


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu():
    from joblib import cpu_count

    from ..benchmarks.run import describe_machine

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "model": describe_machine()["processor"],
        "cores": os.cpu_count(),
        "cores_in_affinity_mask": usable,
        "threads_of_n_jobs_minus_1": cpu_count(),  # the CPU limit of a container counts too
    }


def _memory():
    """Return total and free memory in GB, None where unknown."""
    gigabytes: dict[str, float | None] = {"total": None, "available": None}
    table = Path("/proc/meminfo")
    if table.exists():
        fields = dict(line.split(":") for line in table.read_text().splitlines())
        for name, field in (("total", "MemTotal"), ("available", "MemAvailable")):
            gigabytes[name] = round(int(fields[field].split()[0]) / 2**20, 1)
    elif math.isfinite(machine_memory()):
        gigabytes["total"] = round(machine_memory() / 2**30, 1)
    return gigabytes


def _gpu():
    """Tell which GPUs there are and whether they can be used, and if not, why."""
    from ..kernels.cuda.device import cuda_device, why_no_device

    devices, why = _nvidia_devices()
    trouble = why_no_device()
    if devices:
        why = trouble
    elif trouble is None:  # in a container without nvidia-smi
        devices, why = [cuda_device().name], None
    return {"usable": bool(devices) and why is None, "devices": devices, "why": why}


def _nvidia_devices():
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "no NVIDIA driver on this machine (nvidia-smi is not there)"
    command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi does not answer ({error})"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or not lines:
        return [], f"nvidia-smi finds no device ({' '.join((done.stdout + done.stderr).split())[:200]})"
    return lines, None


def _compiled_code():
    """Return the folder in which numba keeps the compiled kernels."""
    from ..kernels.lda import gibbs as lda_gibbs

    return lda_gibbs.sweep_dense.stats.cache_path


def _data():
    from ..datasets._downloads import data_folder

    return str(data_folder(None))


def cluster(address):
    """Return facts of a Dask scheduler and its workers, fit for JSON."""
    from ..scheduler.sessions.clients import open_client

    client = open_client(address)
    try:
        where, workers = client.scheduler.address, client.scheduler_info(n_workers=-1)["workers"]
        versions, scheduler = client.run(_asker()), client.run_on_scheduler(_asker())
    finally:
        client.close()
    return {
        "address": where,
        "scheduler": scheduler,
        "workers": [
            {
                "address": worker,
                "threads": seen["nthreads"],
                "memory_gb": round(seen["memory_limit"] / 2**30, 1),
                **versions[worker],
            }
            for worker, seen in workers.items()
            if worker in versions
        ],
    }


def _asker():
    """Make a function that goes to workers whole, so that it runs where stradask is not installed."""

    def versions():
        from importlib import metadata

        version_of: dict[str, str | None] = {}
        for name in ("stradask", "numba", "distributed"):
            try:
                version_of[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                version_of[name] = None
        return version_of

    return versions


def _cluster_rows(cluster):
    """Return rows for the scheduler and each worker, with reasons why no fit can run there."""
    rows = [("cluster", f"{cluster['address']}; {len(cluster['workers'])} workers")]
    for seen in [{"address": "scheduler", **cluster["scheduler"]}, *cluster["workers"]]:
        has = [f"{seen['threads']} threads, {seen['memory_gb']} GB"] if "threads" in seen else []
        if seen["stradask"] is None:
            has.append("stradask is not installed: no fit can run there")
        elif seen["stradask"] != __version__:
            has.append(f"stradask {seen['stradask']}, here {__version__}: install the same version")
        packages = ", ".join(
            f"{name} {seen[name]}" for name in ("stradask", "numba", "distributed") if seen[name]
        )
        rows.append(("", "; ".join([seen["address"], *has, packages])))
    return rows


def as_text(facts):
    """Return the same for people."""
    cpu, memory, gpu, folders = (facts[name] for name in ("cpu", "memory_gb", "gpu", "folders"))
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items() if version)
    missing = ", ".join(name for name, version in facts["packages"].items() if not version)
    cores = f"{cpu['cores_in_affinity_mask']} of {cpu['cores']} cores in the affinity mask"
    amounts = ", ".join(f"{value} GB {name}" for name, value in memory.items() if value is not None)
    rows = [
        ("stradask", facts["stradask"]),
        ("python", facts["python"]),
        ("packages", packages),
        ("absent", missing),
        ("processor", f"{cpu['model']}; {cores}; --n-jobs -1 takes {cpu['threads_of_n_jobs_minus_1']}"),
        ("memory", amounts),
        ("gpu", "; ".join(filter(None, [", ".join(gpu["devices"]), gpu["why"] or "usable"]))),
        ("package in", folders["package"]),
        ("numba cache", folders["compiled_code"]),
        ("data in", folders["data"]),
    ]
    rows += _cluster_rows(facts["cluster"]) if "cluster" in facts else []
    if "ceilings" in facts:
        from ..benchmarks.ceilings import as_rows

        rows += as_rows(facts["ceilings"])
    return "\n".join(f"{name:<12} {text}" for name, text in rows if text)
