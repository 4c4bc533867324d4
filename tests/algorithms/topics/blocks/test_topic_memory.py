"""Memory of fits as it is counted; fits beyond that of workers have files, or are refused with remedies."""

import math
import os
import pickle
import threading

import numpy as np
import psutil
import pytest
from scipy import sparse
from sklearn.base import clone

import stradask as sd
from stradask.algorithms.topics.blocks import memory
from stradask.algorithms.topics.blocks.memory import CorpusSizes, FilePlan, plan_for
from stradask.algorithms.topics.corpus.footprint import footprint
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix, sources_of
from stradask.algorithms.topics.samplers.choose import program_of
from stradask.datasets import save_uci_bow
from stradask.errors import DataError
from stradask.scheduler.allocation import WorkerMemory
from stradask.scheduler.stores.copies import narrowed
from stradask.scheduler.stores.trial import without_shards
from stradask.scheduler.workers import ClusterWorkers, open_workers

NOWHERE = "tcp://127.0.0.1:1"


def corpus(n_documents, mean, n_shards=2, n_words=100):
    X = np.random.default_rng(0).poisson(mean / n_words, (n_documents, n_words)).astype(np.int32)
    return corpus_of_matrix(sparse.csr_array(X), n_shards)


def program(name, n_topics, *sizes):
    priors = np.full(n_topics, 0.1), np.full(100, 0.1)
    return program_of(name, corpus(*sizes), n_topics, *priors, 0)


@pytest.mark.parametrize(
    ("name", "n_topics", "sizes"),
    [("gibbs", 40, (400, 150)), ("gibbs", 40, (50, 900)), ("warp", 40, (400, 150)),
     ("light", 300, (100, 400)), ("both", 40, (400, 150)), ("gibbs", 900, (80_000, 4))],
)  # fmt: skip
def test_a_shard_takes_what_is_counted(name, n_topics, sizes):
    made = program(name, n_topics, *sizes)
    state = made.load(made.shards[0])
    made.sampler.make_ready(state)
    copied = sum(narrowed(state[name])[0].nbytes for name in made.saved)
    counted = memory.bytes_of_program(made)
    assert bytes_of_arrays(state) == pytest.approx(counted.shards[0], rel=0.1)
    assert copied == pytest.approx(counted.saved[0], rel=0.1)


@pytest.mark.parametrize(("name", "n_topics"), [("gibbs", 40), ("gibbs", 300), ("warp", 40), ("light", 300)])
def test_copies_that_workers_keep_are_counted_where_they_keep_them(name, n_topics, monkeypatch):
    made = program(name, n_topics, 400, 150)
    state = made.load(made.shards[0])
    made.sampler.make_ready(state)
    counted = memory.bytes_of_program(made).arrays[0]
    assert sum(state[name].nbytes for name in made.saved) == pytest.approx(counted, rel=0.1)
    workers = [WorkerMemory(0, 0, 1, True)] * 2
    at_coordinator = memory._needs(made, workers)(1)[1]
    monkeypatch.setattr(memory, "SMALL", 0)
    assert memory._needs(made, workers)(1)[1] > at_coordinator


def bytes_of_arrays(*states):
    arrays = [array for state in states for array in [*vars(state).values(), *vars(state.documents).values()]]
    return sum({id(array): array.nbytes for array in arrays if isinstance(array, np.ndarray)}.values())


rng = np.random.default_rng(0)
LABELS = sparse.csr_array((rng.random((600, 300)) < 0.05) | (np.arange(300) == 0), dtype=float)


@pytest.mark.parametrize("n_topics", [40, 300])
@pytest.mark.parametrize(
    ("model", "known"),
    [
        (sd.LatentDirichletAllocation(sampler="auto"), lambda k: {}),
        (sd.LatentDirichletAllocation(sampler="gibbs"), lambda k: {"doc_labels": LABELS[:, :k]}),
        (sd.HDPTopicModel(), lambda k: {}),
        (sd.KeyATM(), lambda k: {"seed_words": {0: [1, 2], 1: [3]}}),
        (sd.DMRTopicModel(), lambda k: {"covariates": rng.normal(size=(600, 3))}),
        (sd.SupervisedLDA(), lambda k: {"y": rng.normal(size=600)}),
    ],
    ids=["auto", "labels", "hierarchical", "keywords", "covariates", "responses"],
)
def test_shards_of_all_models_take_what_is_counted(model, known, n_topics, monkeypatch):
    programs = []

    def checked(self, program):
        programs.append(program)
        raise KeyboardInterrupt

    monkeypatch.setattr("stradask.algorithms.topics.corpus.documents.Documents.checked", checked)
    X = np.random.default_rng(0).poisson(0.6, (600, 100)).astype(np.int32)
    with pytest.raises(KeyboardInterrupt):
        clone(model).set_params(n_components=n_topics, n_groups=2).fit(X, **known(n_topics))
    (made,) = programs
    states = [made.load(shard) for shard in made.shards]
    assert bytes_of_arrays(*states) == pytest.approx(sum(memory.bytes_of_program(made).shards), rel=0.2)
    travels = pickle.dumps(without_shards(made))  # to each worker
    assert len(travels) < len(pickle.dumps([shard["source"] for shard in made.shards])) / 3
    again = pickle.loads(travels)
    assert all(sampler.program is again for sampler in again.samplers)


def test_short_texts_are_not_sent_to_disk_for_rows_that_are_not_made():
    n = 200_000
    X = sparse.csr_array((np.ones(4 * n, np.int32), (np.repeat(np.arange(n), 4), np.arange(4 * n) % 50)))
    made = program_of("gibbs", corpus_of_matrix(X, 1), 200, np.full(200, 0.1), np.full(50, 0.1), 0)
    documents = made.load(made.shards[0]).documents
    assert documents.slots.nbytes < 2e6  # rows of counts would take 45 MB
    sizes = CorpusSizes(np.array([4.0 * n]), np.array([n]), longest=4, n_words=50)
    assert plan_for([("gibbs", None)], sizes, 200, 40_000_000, None) == FilePlan(None, None)
    assert footprint(X, 200)["cpu"]["gibbs"] < 20e6


@pytest.fixture
def workers(monkeypatch):
    """Workers of a cluster that is not there: their memory, and how often they were asked for it."""
    asked, found = [], []
    monkeypatch.setattr(ClusterWorkers, "memory", lambda self: found)
    monkeypatch.setattr(ClusterWorkers, "memory_after", lambda self, prepare: asked.append(prepare) or found)
    return found, asked


def test_workers_with_too_little_memory_have_files_or_are_refused_with_the_remedies(workers):
    found, asked = workers
    made = program("gibbs", 40, 400, 150)
    both = [WorkerMemory(0, 0, 1, True)] * 2
    needed, in_files = (sum(needs(made, both)(1)) for needs in (memory._needs, memory._needs_in_files))
    assert in_files < needed / 2
    limit = 2 * needed

    def with_room(n_bytes):
        return WorkerMemory(limit, 0.8 * limit - n_bytes, 1, True)

    found += [with_room(needed), with_room(0.9 * in_files)]
    message = (
        r"memory, also in files: of 60,\d+ tokens in 2 shards .* give workers \d+ MB or more, cut smaller"
    )
    with pytest.raises(DataError, match=message):
        memory.check_worker_memory(made, NOWHERE)
    assert isinstance(asked[0], memory.WarmUp)
    found[1] = with_room(1.4 * in_files)
    memory.check_worker_memory(made, NOWHERE)
    assert made.on_disk
    assert made.counts_in_memory == pytest.approx(0.7 * 0.4 * in_files, rel=0.01)
    for room in (with_room(needed), with_room(0.1 * needed)._replace(enforced=False)):  # no nanny ends it
        found[:], made.on_disk = [with_room(needed), room], False
        memory.check_worker_memory(made, NOWHERE)
        assert not made.on_disk
    with pytest.raises(
        DataError, match=r"memory_limit=1,000 bytes a worker, which leaves .*: give [\d,]+ or"
    ):
        memory.check_worker_memory(made, NOWHERE, 1000)


def test_a_worker_that_would_be_paused_is_refused(workers):
    found, _ = workers
    found += [WorkerMemory(300e6, 241e6, 1, True)] * 2  # above 80 %, where Dask gives it no work
    with pytest.raises(DataError, match=r"which leaves 0 MB: give workers 30\d MB or more"):
        memory.check_worker_memory(program("warp", 40, 400, 150), NOWHERE)


def test_workers_with_plenty_of_memory_are_not_kept_waiting(workers):
    found, asked = workers
    found += [WorkerMemory(4e9, 1e8, 2, True), WorkerMemory(math.inf, 1e8, 2, False)]
    memory.check_worker_memory(program("warp", 40, 400, 150), NOWHERE)
    assert not asked
    for sampler in ("auto", "light", "gibbs"):
        memory.WarmUp(sampler, 300)()


def test_files_that_a_worker_cannot_read_are_refused_before_they_are_read(workers, tmp_path, monkeypatch):
    save_uci_bow(np.ones((40, 40), np.int32), tmp_path / "docword.txt")
    n_bytes = (tmp_path / "docword.txt").stat().st_size
    found, _ = workers
    found += [WorkerMemory(0.9e9, 1e8, 1, True), WorkerMemory(0.1e9, 1e8, 1, False)]
    monkeypatch.setattr(memory, "KERNELS", 0.95 * 0.9e9 - 2 * n_bytes)  # reading takes 3
    with pytest.raises(
        DataError, match=r"docword.txt, takes about .* limit of 900 MB of a worker: give .* 901 MB"
    ):
        memory.check_reading(sources_of(tmp_path / "docword.txt", 1), NOWHERE)
    memory.check_reading(sources_of(tmp_path / "docword.txt", 4), NOWHERE)


@pytest.mark.slow
def test_a_fit_on_small_workers_ends_before_they_do(start_processes, tmp_path):
    X = np.random.default_rng(0).poisson(0.4, (6_000, 300)).astype(np.int32)
    save_uci_bow(sparse.csr_array(X), tmp_path / "docword.txt")
    memory.WarmUp()()  # compiling takes more memory than the code, which is on disk from then on
    with start_processes("330MB") as client:
        before = set(client.scheduler_info()["workers"])
        with pytest.raises(DataError, match=r"give workers [34]\d\d MB"):
            sd.LatentDirichletAllocation(100, engine="dask", max_iter=3).fit(tmp_path / "docword.txt")
        assert set(client.scheduler_info()["workers"]) == before


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"sampler": "gibbs"}, {"sampler": "warp", "n_groups": 2}])
def test_peaks_of_fits_are_what_is_counted(start_processes, monkeypatch, options):
    for name in ("_KEEP_SECONDS", "_KEEP_SHARE"):  # a snapshot after every sweep
        monkeypatch.setattr(f"stradask.scheduler.engine.{name}", 0.0)
    X = np.random.default_rng(0).poisson(0.5, (8_000, 1_000)).astype(np.int32)
    counted, needs, warm_up = [], memory._needs, memory.WarmUp(options["sampler"], 1000)
    warm_up()  # compiles, if that was not done before

    def watched(program, workers):
        counted.append(sum(needs(program, workers)(1)))
        return needs(program, workers)

    with start_processes("2GB") as client:
        workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        used = [worker.used for worker in open_workers(client).memory_after(warm_up)]
        monkeypatch.setattr(memory, "_needs", watched)
        peaks, ended = [0, 0], threading.Event()

        def watch():
            while not ended.wait(0.01):
                peaks[:] = [
                    max(pair) for pair in zip(peaks, (w.memory_info().rss for w in workers), strict=True)
                ]

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            sd.LatentDirichletAllocation(1000, engine="dask", max_iter=3, random_state=0, **options).fit(X)
        finally:
            ended.set()
            thread.join()
    assert max(peaks) - max(used) == pytest.approx(counted[0], rel=0.2)


@pytest.fixture
def start_processes():
    """Start two worker processes of a memory limit; return a client."""
    distributed = pytest.importorskip("distributed")

    def start(limit):
        cluster = distributed.LocalCluster(
            2, threads_per_worker=1, memory_limit=limit, dashboard_address=":0"
        )
        started.append(cluster)
        return distributed.Client(cluster)

    started: list = []
    yield start
    for cluster in started:
        cluster.close()
