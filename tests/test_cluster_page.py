"""What docs/cluster.md shows runs without such a cluster: an ssh server and a batch system of this machine's.

`pip install asyncssh coiled dask-gateway-server dask-jobqueue dask-kubernetes`, or they are skipped.
"""

import configparser
import getpass
import inspect
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

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


def begun(command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(function):
    """Call a function until it raises no OSError."""
    end = time.monotonic() + 60
    while True:
        try:
            return function()
        except OSError:
            assert time.monotonic() < end, "no answer after a minute"
            time.sleep(0.1)


@pytest.mark.cluster
@pytest.mark.slow
def test_this_machine_and_the_page_on_fits(capsys):
    names: dict = {}
    code = block("from dask.distributed import Client, LocalCluster")
    code = code.replace("Client(LocalCluster(", "Client(cluster := LocalCluster(dashboard_address=':0', ")
    assert with_client(code + block("sd.dashboard()"), names) == 2
    assert capsys.readouterr().out.endswith("/stradask\n")


@pytest.mark.cluster
@pytest.mark.slow
def test_machines_with_certificates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    subprocess.run([*command, "-keyout", "key.pem", "-out", "ca.pem"], check=True, capture_output=True)
    for name in ("me", "head", "node"):  # one certificate, which signs itself, for all
        shutil.copy("ca.pem", f"{name}.pem")
        shutil.copy("key.pem", f"{name}-key.pem")
    typed = re.findall(r"^(?:head|node1)\$  ?(dask .*--tls-ca-file.*)$", PAGE, re.MULTILINE)
    assert len(typed) == 2
    started = []
    try:
        for line in typed:
            line = line.replace("--port 8786", "").replace("tls://head:8786", "")
            options = "--scheduler-file s.json --no-dashboard " + ("--host 127.0.0.1" if started else "")
            command = [sys.executable, "-m", *line.split(), *options.split()]
            command += [] if started else ["--port", "0", "--protocol", "tls", "--host", "127.0.0.1"]
            started.append(begun(command))
            wait_for((tmp_path / "s.json").stat)
        address = json.loads((tmp_path / "s.json").read_text())["address"]
        assert address.startswith("tls://")
        assert with_client(block("tls_ca_file").replace("tls://head:8786", address), {}) == 1
    finally:
        for process in started:
            process.kill()
            process.wait()


# Gateway and Coiled ---------------------------------------------------------------------------------------


GATEWAY = """
import sys
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.DaskGateway.address, c.Proxy.address, c.Proxy.tcp_address = {addresses}
c.ClusterConfig.scheduler_cmd = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = [sys.executable, "-m", "distributed.cli.dask_worker"]
"""


def free_addresses(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return found


@pytest.fixture
def gateway(tmp_path):
    """The addresses of a gateway of this machine, which starts its clusters as processes."""
    pytest.importorskip("dask_gateway")
    pytest.importorskip("dask_gateway_server")
    addresses = free_addresses(3)
    (tmp_path / "config.py").write_text(GATEWAY.format(addresses=addresses))
    command = [sys.executable, "-m", "dask_gateway_server", "--config", str(tmp_path / "config.py")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(lambda: urllib.request.urlopen(f"http://{addresses[1]}/api/health", timeout=5))
            yield addresses[1:]
        finally:
            server.terminate()


@pytest.mark.cluster
@pytest.mark.slow
def test_clusters_of_a_gateway(gateway):
    web, tcp = gateway
    code = block("dask_gateway").replace("scale(8)", "scale(2)").replace("workers(1)", "workers(2)")
    code = code.replace('"https://gateway.example"', f'"http://{web}", proxy_address="tls://{tcp}"')
    code += """
import numpy as np, stradask as sd
X = np.arange(40.0).reshape(20, 2) % 7
print(len(client.scheduler_info()["workers"]), *sd.Ridge(engine="dask").fit(X, X[:, 0]).coef_.round(6))
cluster.shutdown()
"""
    # In a process of its own: what the gateway's client leaves to the garbage collector ends with it.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    X = np.arange(40.0).reshape(20, 2) % 7
    expected = sd.Ridge().fit(X, X[:, 0]).coef_
    np.testing.assert_allclose(
        [*map(float, done.stdout.split())], [2, *expected], atol=1e-6, err_msg=done.stderr
    )


def test_arguments_of_coiled(monkeypatch):
    coiled = pytest.importorskip("coiled")
    signature, made = inspect.signature(coiled.Cluster.__init__), []

    class Cluster:
        def __init__(self, **given):
            made.append(signature.bind(self, **given).arguments)

        def get_client(self):
            return SimpleNamespace(wait_for_workers=made.append)

    monkeypatch.setattr(coiled, "Cluster", Cluster)
    exec(compile(block("import coiled"), "cluster.md", "exec"), {})
    arguments, n_workers = made
    assert "kwargs" not in arguments
    assert arguments["n_workers"] == 8
    assert n_workers == 1


# What Dask's chart takes of what we set (its values.yaml and templates of October 2023).
CHART = {
    "scheduler": {"image", "extraArgs", "resources"},
    "worker": {"image", "replicas", "env", "resources"},
    "jupyter": {"enabled"},
}


def test_values_for_helm_start_commands_that_dask_takes():
    scheduler_cli = pytest.importorskip("distributed.cli.dask_scheduler")
    worker_cli = pytest.importorskip("distributed.cli.dask_worker")
    dask_utils = pytest.importorskip("dask.utils")
    path = Path(__file__).parents[1] / "examples" / "kubernetes" / "values.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {part: set(own) for part, own in values.items()} == CHART
    scheduler, worker = values["scheduler"], values["worker"]
    assert scheduler["image"] == worker["image"]
    assert f"{worker['image']['repository']}:{worker['image']['tag']}" in PAGE
    limits = worker["resources"]["limits"]
    command = [
        "fit-dask-scheduler:8786",
        "--nthreads",
        str(limits["cpu"]),
        "--memory-limit",
        limits["memory"],
    ]
    made = worker_cli.main.make_context("dask-worker", [*command, "--no-dashboard"]).params
    assert (made["nthreads"], made["scheduler"]) == (16, "fit-dask-scheduler:8786")
    assert dask_utils.parse_bytes(limits["memory"]) == 64 * 2**30
    command = ["--port", "8786", "--dashboard-address", ":8787", *scheduler["extraArgs"]]
    made = scheduler_cli.main.make_context("dask-scheduler", command).params
    assert made["preload"] == ("stradask.scheduler.dashboard.plugin",)


# Containers -----------------------------------------------------------------------------------------------

COMPOSE = Path(__file__).parents[1] / "examples" / "compose"


def compose():
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"]


def test_the_image_of_the_compose_file_can_be_built_from_a_checkout():
    services, root = compose(), Path(__file__).parents[1]
    typed = " ".join(text for language, text in BLOCKS if "docker compose" in text)
    for service in services.values():
        build = service["build"]
        assert (COMPOSE / build["context"]).resolve() == root
        lines = (root / build["dockerfile"]).read_text(encoding="utf-8").splitlines()
        assert {volume.split(":")[0] for volume in service["volumes"]} == {"./data"}
    assert (COMPOSE / "data").is_dir()
    for name in re.findall(r"--scale (\w+)=|run --rm (\w+)", typed):
        assert "".join(name) in services
    (python,) = re.findall(r"^FROM python:([\d.]+)-slim", "\n".join(lines), re.MULTILINE)
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(root / "setup.cfg")
    assert f"Programming Language :: Python :: {python}" in settings["metadata"]["classifiers"]
    extras = re.findall(r"/src\[(\w+)\]", "\n".join(lines))
    assert set(extras) <= set(settings["options.extras_require"])
    assert (root / "constraints.txt").exists()


@pytest.mark.cluster
@pytest.mark.slow
def test_the_commands_of_the_compose_file_run(tmp_path):
    services, started = compose(), []
    (port, page) = (int(address.split(":")[1]) for address in free_addresses(2))
    corpus = sd.datasets.make_lda_corpus(60, n_features=40, n_components=3, random_state=0)[0]
    sd.datasets.save_uci_bow(corpus, tmp_path / "docword.txt.gz")

    def command(service):
        line = services[service]["command"].replace("/data/", f"{tmp_path}/").replace("0.0.0.0", "127.0.0.1")
        line = line.replace("scheduler:8786", f"127.0.0.1:{port}").replace("8786", str(port))
        return [sys.executable, "-m", *line.replace("8787", str(page)).split()]

    try:
        for service in ("scheduler", "worker", "worker"):
            started.append(begun(command(service)))
        subprocess.run(command("fit"), check=True, timeout=300, cwd=tmp_path)
        shown = urllib.request.urlopen(f"http://127.0.0.1:{page}/stradask/json", timeout=60).read()
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
    assert sd.load(tmp_path / "topics.npz").components_.shape == (20, 40)
    fits = [fit for fit in json.loads(shown)["fits"] if fit["label"] == "LDA"]
    assert [fit["ended"] for fit in fits] == [True]
    assert fits[0]["workers"]  # the second one may have come late


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
