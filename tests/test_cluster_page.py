"""What docs/cluster.md shows runs without such a cluster: an ssh server and a batch system of this machine's.

`pip install asyncssh dask-jobqueue dask-kubernetes`; without them these tests are skipped.
"""

import getpass
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stradask as sd

pytest.importorskip("distributed")
PAGE = (Path(__file__).parents[1] / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|bash)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
X = np.random.default_rng(0).standard_normal((40, 3))
Y = X @ [1.0, 0.0, -2.0]


def block(name):
    """The only Python block that has a name in it."""
    (found,) = [text for language, text in BLOCKS if language == "python" and name in text]
    return found


def with_client(code, names):
    """Run a block that makes `cluster` and `client`, fit there, and close both."""
    try:
        exec(compile(code, "cluster.md", "exec"), names)
        far = sd.Ridge(engine="dask").fit(X, Y)
        np.testing.assert_allclose(far.coef_, sd.Ridge().fit(X, Y).coef_, rtol=1e-9)
        return len(names["client"].scheduler_info()["workers"])
    finally:
        for name in ("client", "cluster"):
            if name in names:
                names[name].close()


def test_options_of_dasks_commands_are_known():
    from distributed.cli import dask_scheduler, dask_worker

    commands = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    typed = re.findall(r"\$\s+dask (scheduler|worker) (.*)", PAGE)
    assert {name for name, _ in typed} == set(commands)
    for name, line in typed:
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert known.issuperset(re.findall(r"(?<=\s)--[a-z-]+", f" {line}")), line


# ssh ------------------------------------------------------------------------------------------------------


SERVER = """
import asyncio, contextlib, os, signal, subprocess, sys
import asyncssh

async def carry_out(process):
    "What the client asks for, until it is done or the client is gone."
    child = await asyncio.create_subprocess_shell(
        process.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    await process.redirect(stdout=child.stdout, stderr=child.stderr)
    over, done = asyncio.ensure_future(process.wait_closed()), asyncio.ensure_future(child.wait())
    await asyncio.wait([over, done], return_when=asyncio.FIRST_COMPLETED)
    if done.done():
        process.exit(child.returncode)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

async def main(folder):
    server = await asyncssh.listen(
        *("127.0.0.1", 0),
        server_host_keys=[f"{folder}/host"],
        authorized_client_keys=f"{folder}/user.pub",
        process_factory=carry_out,
    )
    print(server.get_port(), flush=True)
    await server.wait_closed()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture
def ssh(tmp_path):
    """Options that connect to an ssh server of this machine."""
    asyncssh = pytest.importorskip("asyncssh")
    for name in ("host", "user"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(tmp_path / name)
        key.write_public_key(tmp_path / f"{name}.pub")
    server = subprocess.Popen([sys.executable, "-c", SERVER, tmp_path], stdout=subprocess.PIPE, text=True)
    with server:
        port = int(server.stdout.readline())
        user = {"username": getpass.getuser(), "client_keys": [str(tmp_path / "user")]}
        yield {"port": port, "known_hosts": None} | user
        server.terminate()


@pytest.mark.cluster
@pytest.mark.slow
def test_machines_with_ssh(ssh):
    code = block("SSHCluster").replace('["head", "node1", "node2"]', '["127.0.0.1"] * 3')
    code = code.replace("/opt/stradask/bin/python", sys.executable)
    code = code.replace('nthreads": 16}', 'nthreads": 1}, connect_options=connect')
    assert with_client(code, {"connect": ssh}) == 2


# A batch system -------------------------------------------------------------------------------------------

SBATCH = """#!/bin/sh
cp "$1" {folder}/script.$$
setsid sh {folder}/script.$$ >{folder}/log.$$ 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -9 -- -"$1"
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder where jobs are kept, and run as soon as they are submitted."""
    for name, text in {"sbatch": SBATCH, "scancel": SCANCEL}.items():
        (tmp_path / name).write_text(text.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.cluster
@pytest.mark.slow
def test_jobs_of_slurm(slurm):
    pytest.importorskip("dask_jobqueue")
    code = block("SLURMCluster").replace("jobs=8", "jobs=2").replace("cores=32", "cores=1")
    assert with_client(code.replace('"64GB"', '"1GB"'), {}) >= 1
    script = min(slurm.glob("script.*")).read_text()
    for line in ("#SBATCH -p normal", "#SBATCH --cpus-per-task=1", "#SBATCH -t 04:00:00"):
        assert line in script
    assert "distributed.cli.dask_worker" in script


# Kubernetes -----------------------------------------------------------------------------------------------


def test_pods_of_kubernetes(monkeypatch):
    """What reaches the operator: arguments that it takes, and the pods that the page says."""
    import dask.distributed

    operator = pytest.importorskip("dask_kubernetes.operator")
    validation = pytest.importorskip("dask_kubernetes.operator.validation")
    signature, made = inspect.signature(operator.KubeCluster), []
    monkeypatch.setattr(
        operator, "KubeCluster", lambda **given: made.append(signature.bind(**given).arguments)
    )
    monkeypatch.setattr(dask.distributed, "Client", lambda cluster: None)
    names: dict = {}
    for code in (text for language, text in BLOCKS if "dask_kubernetes" in text):
        exec(compile(code, "cluster.md", "exec"), names)
    plain, given = made
    for spec in (operator.make_cluster_spec(**plain), given["custom_cluster_spec"]):
        validation.validate_cluster_name(spec["metadata"]["name"])
        workers, scheduler = spec["spec"]["worker"], spec["spec"]["scheduler"]
        assert workers["replicas"] == 8
        for part in (workers, scheduler):
            (container,) = part["spec"]["containers"]
            assert container["image"] == plain["image"]
    (worker,) = workers["spec"]["containers"]
    assert worker["args"][:4] == ["dask", "worker", "--nthreads", "16"]
    assert worker["resources"] == {"limits": {"cpu": "16", "memory": "64Gi"}}
    assert workers["spec"]["nodeSelector"] == {"disktype": "ssd"}
