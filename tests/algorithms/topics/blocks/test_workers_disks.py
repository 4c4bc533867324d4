"""Shards in files of workers that cannot hold a fit: the same bits, memory, losses, full disks."""

import contextlib
import errno
import logging
import math
import mmap
import os
import re

import dask
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks import storage
from stradask.algorithms.topics.blocks.program import TopicProgram
from stradask.datasets import save_uci_bow
from stradask.errors import DataError
from stradask.scheduler import engine as engine_module
from stradask.scheduler.allocation import release_code
from stradask.scheduler.sessions import cluster as cluster_module


@pytest.fixture(scope="module")
def X():
    X = sd.datasets.make_lda_corpus(1200, n_features=500, n_components=10, random_state=0)[0]
    return sparse.csr_array(X)


@contextlib.contextmanager
def running(processes=False, threads=2):
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": processes}
    with (
        LocalCluster(n_workers=2, threads_per_worker=threads, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with running() as client:
        yield client


@pytest.fixture
def streamed(monkeypatch):
    """Bytes for documents' counts, of each fit whose shards are in files."""
    made, stream = [], TopicProgram.stream

    def recorded(self, counts_in_memory):
        made.append(counts_in_memory)
        stream(self, counts_in_memory)

    monkeypatch.setattr(TopicProgram, "stream", recorded)
    return made


@pytest.fixture
def snapshots(monkeypatch):
    """After every sweep workers keep a snapshot."""
    for name in ("_KEEP_SECONDS", "_KEEP_SHARE"):
        monkeypatch.setattr(engine_module, name, 0.0)
    monkeypatch.setattr(cluster_module, "SMALL", -1)


def lda(n_components, **options):
    options = {"sampler": "gibbs", "n_groups": 8, "max_iter": 6, "random_state": 3} | options
    return sd.LatentDirichletAllocation(n_components, **options)


def same(one, other):
    np.testing.assert_array_equal(one.log_likelihood_, other.log_likelihood_)
    assert (one.word_topic_counts_ != other.word_topic_counts_).nnz == 0


def worker_sessions(client):
    plugins = [worker.plugins.get("stradask-sessions") for worker in client.cluster.workers.values()]
    return [session for plugin in plugins if plugin for session in plugin.worker_sessions.values()]


def is_mapped(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def arrays_in_memory(client, least):
    """Names of arrays of so many bytes, of shards, blocks and snapshots on workers, that are in no file."""
    held = []
    for session in worker_sessions(client):
        program = session.state.program
        assert not program.shards
        assert all(sampler.program is program for sampler in program.samplers)  # or these have shards
        for shard in session.state.states.values():
            held += (vars(shard) | vars(shard.documents)).items()
        for block in session.state.blocks.values():
            held += [(f"block.{name}", array) for name, array in vars(block).items()]
        for copies, _ in (value for key, value in session.spare.items() if key[0] == "copies"):
            held += [("copy", array) for arrays in copies.values() for array, _ in arrays.values()]
    held = [(name, array) for name, array in held if isinstance(array, np.ndarray) and array.nbytes >= least]
    return [(name, array.nbytes) for name, array in held if not is_mapped(array)]


@pytest.mark.parametrize(
    ("sampler", "K", "limit"),
    [
        ("gibbs", 300, 1_300_000),
        ("warp", 20, 1_650_000),
        ("auto", 800, 1_800_000),
        pytest.param("gibbs", 20, 900_000, marks=pytest.mark.slow),
        pytest.param("light", 20, 1_600_000, marks=pytest.mark.slow),
    ],
)
def test_the_bits_of_a_fit_in_memory(client, X, snapshots, streamed, sampler, K, limit):
    local = lda(K, sampler=sampler).fit(X)
    there, left = [], []

    def look(info):
        there.append(arrays_in_memory(client, 20_000))
        left.extend(os.listdir(folder) for folder in folders)

    folders = [worker.local_directory for worker in client.cluster.workers.values()]
    before = list(map(os.listdir, folders))
    distant = lda(K, sampler=sampler, engine="dask", memory_limit=limit).fit(X, callback=look)
    same(local, distant)
    assert (local.doc_topic_counts_ != distant.doc_topic_counts_).nnz == 0
    assert len(streamed) == 1
    assert there == [[]] * 6
    assert all(names in before for names in left)
    same(local, lda(K, sampler=sampler, engine="dask", memory_limit="1GB").fit(X))
    assert len(streamed) == 1  # what fits stays in memory


def test_counts_of_documents_stay_in_memory_where_there_is_room(client, X, monkeypatch):
    local, kept = lda(20).fit(X), []

    def look(info):
        states = [shard for session in worker_sessions(client) for shard in session.state.states.values()]
        kept.append(sum(shard.stays for shard in states))

    for room in (0.0, 10_000.0, math.inf):
        checked = lambda program, *args, room=room: program.stream(room)  # noqa: E731
        monkeypatch.setattr("stradask.algorithms.topics.corpus.documents.check_worker_memory", checked)
        same(local, lda(20, engine="dask").fit(X, callback=look))
    assert kept[0] == 0
    assert 0 < kept[6] < 8
    assert kept[12] == 8


@pytest.mark.cluster
@pytest.mark.parametrize("sampler", ["gibbs", pytest.param("warp", marks=pytest.mark.slow)])
def test_a_killed_worker_costs_no_bit(X, snapshots, streamed, killing, sampler):
    local = lda(300, sampler=sampler, max_iter=20).fit(X)
    with running(processes=True, threads=1) as client:
        before = set(client.run(os.getpid).values())
        distant = lda(300, sampler=sampler, max_iter=20, engine="dask", memory_limit="1.7MB")
        distant.fit(X, callback=killing(4, min(before)))
        assert set(client.run(os.getpid).values()) != before
    same(local, distant)
    assert len(streamed) == 1


def test_shards_that_are_handed_on_are_in_files_again(X, streamed):
    local = lda(300, max_iter=12).fit(X)
    with running() as client:
        there, gone = [], next(iter(client.cluster.workers.values())).address

        def retire(info):
            if info.round == 3:
                client.retire_workers([gone], close_workers=False)
            there.append(sum(bool(s.state and s.state.states) for s in worker_sessions(client)))
            assert arrays_in_memory(client, 20_000) == []

        same(local, lda(300, max_iter=12, engine="dask", memory_limit="1.7MB").fit(X, callback=retire))
    assert there[0] == 2
    assert there[-1] == 1
    assert len(streamed) == 1


def test_a_limit_below_what_works_is_refused_and_the_advice_is_enough(client, X, streamed):
    with pytest.raises(DataError, match=r"in 8 shards a worker would have .* cut smaller shards") as refused:
        lda(300, engine="dask", memory_limit="100kB").fit(X)
    enough = int(re.search(r"give ([\d,]+) or more", str(refused.value))[1].replace(",", ""))
    lda(300, engine="dask", memory_limit=enough).fit(X)
    assert len(streamed) == 1
    with pytest.raises(DataError, match="inside a task there are no workers"):
        dask.compute(dask.delayed(lda(5, engine="dask", memory_limit="1GB").fit)(X))


def test_files_are_cut_by_what_workers_have(client, X, tmp_path, streamed):
    for part in range(3):
        save_uci_bow(X[part::3], tmp_path / f"docword.{part}.txt")
    pattern, seen = str(tmp_path / "docword.*.txt"), []
    count = lambda info: seen.append(sum(len(s.state.states) for s in worker_sessions(client)))  # noqa: E731
    distant = lda(300, n_groups=None, engine="dask", memory_limit="2MB").fit(pattern, callback=count)
    assert len(streamed) == 1
    assert seen[0] > 4  # as many as threads is the default
    same(distant, lda(300, n_groups=seen[0]).fit(pattern))


@pytest.mark.parametrize("when", ["layout", "snapshot"])
def test_a_full_disk_is_an_error(client, X, snapshots, streamed, monkeypatch, when):
    reserve, begun = storage._reserve, []

    def full(file, n_bytes):
        if when == "layout" or begun:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(file, n_bytes)

    monkeypatch.setattr(storage, "_reserve", full)
    model = lda(300, engine="dask", memory_limit="1.7MB")
    with pytest.raises(OSError, match=r"could not take [\d,]+ bytes in the folder of a worker") as caught:
        model.fit(X, callback=lambda info: begun.append(info))
    assert caught.value.errno == errno.ENOSPC
    assert len(begun) < 3
    assert not hasattr(model, "word_topic_counts_")
    monkeypatch.setattr(storage, "_reserve", reserve)
    same(model.fit(X), lda(300).fit(X))  # workers go on


def test_pages_of_a_step_are_released(X, client, monkeypatch):
    """After each step no page of its tokens, its block and documents' counts is left in memory."""
    left = []
    put_away = TopicProgram._put_away_step

    def watched(self, shard, task):
        put_away(self, shard, task)
        arrays = [shard.topics, shard.docs, shard.documents.entries, task.value.rows, task.value.tokens]
        left.append([pages_in_memory(array) for array in arrays])

    monkeypatch.setattr(TopicProgram, "_put_away_step", watched)
    checked = lambda program, *args: program.stream(0.0)  # noqa: E731
    monkeypatch.setattr("stradask.algorithms.topics.corpus.documents.check_worker_memory", checked)
    lda(300, engine="dask", max_iter=2, n_jobs=1).fit(X)
    assert left == [[0] * 5] * (3 * 64)


def pages_in_memory(array):
    """Pages of a mapped array that the process has, from its map of pages."""
    if not array.nbytes:
        return 0
    first, last = (
        place // mmap.PAGESIZE for place in (array.ctypes.data, array.ctypes.data + array.nbytes - 1)
    )
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(8 * first)
        entries = np.frombuffer(pages.read(8 * (last - first + 1)), np.uint64)
    return int(np.count_nonzero(entries >> np.uint64(63)))


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="maps of a process are read on Linux")
def test_code_is_released_and_goes_on():
    process = psutil.Process()
    A = np.random.default_rng(0).random((50, 50))
    want, before = np.linalg.inv(A), process.memory_info().rss
    release_code()
    assert before - process.memory_info().rss > 4e6
    np.testing.assert_array_equal(np.linalg.inv(A), want)
