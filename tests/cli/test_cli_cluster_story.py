"""The cluster example as it is typed by hand: a scheduler, two workers and a fit, each a process of its own.

A worker is killed in mid-fit, and in the end the scheduler: the model is the one that nothing disturbed.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import stradask as sd
from stradask.datasets import save_uci_bow
from stradask.datasets.generators import make_lda_corpus

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(3600)]
# On a busy machine a process that is about to come up may be silent for long.
PATIENCE = {
    "DASK_STRADASK__TIMEOUT": "120s",
    "DASK_STRADASK__SCHEDULER_TIMEOUT": "120s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "120s",
}
SWEEPS = 2000  # a fit that lasts until its scheduler is killed, also where nothing else runs
PARAMS = [
    "--param",
    "n_components=20",
    f"max_iter={SWEEPS}",
    "sampler='gibbs'",
    "n_groups=4",
    "random_state=0",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    X = make_lda_corpus(1500, n_features=400, n_components=20, random_state=0)[0]
    for number, rows in enumerate((X[:700], X[700:])):
        save_uci_bow(rows, folder / f"docword.{number}.txt.gz")
    return folder


@contextlib.contextmanager
def started(*words):
    """A command in a process, which is gone in the end."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": os.environ | PATIENCE}
    process = subprocess.Popen([sys.executable, "-m", *words], **quiet)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def scheduler(port):
    words = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
    with started(*words, "--no-show", "--pid-file", "") as process:
        yield f"tcp://127.0.0.1:{port}", process


def worker(address):
    return started("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")


def fit(corpus, address, save, checkpoint):
    """Begin ``stradask fit lda ... --cluster``; what it prints goes to a file beside the model."""
    files = sorted(str(path) for path in corpus.glob("docword.*"))
    options = ["--cluster", address, *PARAMS, f"checkpoint='file://{checkpoint}'", "--save", str(save)]
    command = [sys.executable, "-m", "stradask", "fit", "lda", *files, *options]
    with open(printed(save), "w") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | PATIENCE)


def printed(save):
    return save.with_suffix(".out")


def rounds(checkpoint):
    """How far the newest state is."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return max(json.loads((checkpoint / "manifest.json").read_text())["rounds"], default=0)
    return 0


def wait_until(condition, process, save):
    end = time.monotonic() + 900
    while not condition():
        assert process.poll() is None, printed(save).read_text()
        assert time.monotonic() < end, printed(save).read_text()
        time.sleep(0.02)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_model_of_a_fit_that_loses_a_worker_and_then_its_scheduler(corpus, tmp_path):
    calm, kept, port = tmp_path / "calm.npz", tmp_path / "kept.npz", free_port()
    with scheduler(port) as (address, _), worker(address), worker(address):
        done = fit(corpus, address, calm, tmp_path / "undisturbed")
        assert done.wait(900) == 0, printed(calm).read_text()

    state = tmp_path / "topics"
    with scheduler(port := free_port()) as (address, head), worker(address) as first, worker(address):
        going = fit(corpus, address, kept, state)
        wait_until(lambda: rounds(state) >= 10, going, kept)
        os.kill(first.pid, signal.SIGKILL)
        after = rounds(state)
        wait_until(lambda: rounds(state) >= after + 20, going, kept)  # on one worker
        os.kill(head.pid, signal.SIGKILL)
        assert going.wait(900) == 2  # it says so and ends
    assert "scheduler" in printed(kept).read_text().splitlines()[-1]
    assert 30 <= rounds(state) < SWEEPS
    assert not kept.exists()

    with scheduler(free_port()) as (address, _), worker(address), worker(address):
        again = fit(corpus, address, kept, state)
        assert again.wait(900) == 0, printed(kept).read_text()
    models = [sd.load(path) for path in (calm, kept)]
    assert (models[0].word_topic_counts_ != models[1].word_topic_counts_).nnz == 0
    np.testing.assert_array_equal(models[0].history_["objective"], models[1].history_["objective"])
    assert len(models[1].history_["objective"]) == SWEEPS
