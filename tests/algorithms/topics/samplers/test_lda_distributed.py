"""Topic models on Dask: the bits of the local engine, wherever documents lie and whichever worker dies."""

import contextlib
import logging
import os
import re

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks import word_blocks
from stradask.algorithms.topics.blocks.groups import deal_words
from stradask.algorithms.topics.blocks.word_blocks import Block, Words
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.choose import program_of
from stradask.algorithms.topics.samplers.gibbs import Gibbs
from stradask.datasets import save_uci_bow
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import CheckpointMismatch, DataError, ModelFileError, StradaskError
from stradask.scheduler.engine import run
from stradask.scheduler.sessions import streams
from stradask.scheduler.sessions.local import LocalSession


@pytest.fixture(scope="module")
def X():
    """Documents of 0 to 300 tokens; some words do not occur."""
    X, *_ = make_lda_corpus(250, n_features=150, n_components=5, random_state=0)
    X = sparse.csr_array(X).tolil()
    X[[3, 100]] = 0
    X[:, [7, 149]] = 0
    X[5, 11] = 250
    return sparse.csr_array(X)


@contextlib.contextmanager
def running(n_workers, processes=False, threads=1):
    options = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": processes}
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=threads, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    """Two workers of two threads each in this process."""
    with running(2, threads=2) as client:
        yield client


def lda(n_components=5, **options):
    options = {"sampler": "gibbs", "n_groups": 4, "max_iter": 22, "random_state": 3} | options
    return sd.LatentDirichletAllocation(n_components, **options)


def same(a, b):
    """Equal counts bit for bit; the log-likelihood is summed in another order."""
    for name in ("word_topic_counts_", "doc_topic_counts_"):
        assert (getattr(a, name) != getattr(b, name)).nnz == 0
        assert getattr(a, name).shape == getattr(b, name).shape
    np.testing.assert_array_equal(a.components_, b.components_)
    np.testing.assert_array_equal(a.doc_topic_prior_, b.doc_topic_prior_)
    np.testing.assert_allclose(a.log_likelihood_, b.log_likelihood_, rtol=1e-12)


CASES = [
    ("gibbs", 5, {}),
    ("gibbs", 5, {"n_groups": 3, "optimize_priors": True, "max_iter": 41}),
    ("gibbs", 40, {"n_groups": 7, "doc_topic_prior": np.linspace(0.05, 2, 40)}),
    ("gibbs", 300, {"topic_word_prior": np.linspace(0.01, 0.2, 150)}),
    ("gibbs", 5, {"n_groups": 1}),
    ("gibbs", 4, {"exact": True, "n_groups": None}),
    ("light", 70_000, {"n_groups": 2, "max_iter": 2}),
    ("light", 20, {}),
    ("light", 300, {"n_groups": 5, "doc_topic_prior": np.linspace(0.05, 2, 300)}),
]


@pytest.mark.parametrize(("sampler", "K", "options"), CASES)
def test_the_bits_of_a_local_fit(client, X, sampler, K, options):
    local = lda(K, sampler=sampler, **options).fit(X)
    distant = lda(K, sampler=sampler, engine="dask", **options).fit(X)
    same(local, distant)
    assert distant.sampler_ == local.sampler_
    assert distant.n_iter_ == local.n_iter_
    assert (distant.history_["updates"] == X.sum()).all()
    other = lda(K, sampler=sampler, **(options | {"random_state": 4})).fit(X)
    assert (other.word_topic_counts_ != local.word_topic_counts_).nnz > 0


LABELS = np.random.default_rng(0).random((250, 5)).round(1) * (np.arange(5) != np.arange(250)[:, None] % 5)
KNOWN = [
    (5, "auto", {"seed_words": {0: [1, 11], 3: {40: 7.5}}}),
    (300, "gibbs", {"seed_words": {299: {11: 2.0, 12: 0.5}, 4: {11: 1.0}}}),
    (5, "gibbs", {"doc_labels": LABELS}),
    (5, "gibbs", {"doc_labels": LABELS, "seed_words": {1: [20]}, "topics": np.eye(5, 150) + 0.01}),
    (5, "light", {"topics": np.eye(5, 150) + 0.01}),
]


@pytest.mark.parametrize(("K", "sampler", "known"), KNOWN)
def test_what_is_known_beforehand_gives_the_bits_of_a_local_fit(client, X, K, sampler, known):
    options = {"sampler": sampler, "max_iter": 12}
    local = lda(K, **options, random_state=np.random.RandomState(3)).fit(X, **known)
    distant = lda(K, engine="dask", **options, random_state=np.random.RandomState(3)).fit(X, **known)
    for name in ("word_topic_counts_", "doc_topic_counts_"):
        assert (getattr(local, name) != getattr(distant, name)).nnz == 0
    np.testing.assert_allclose(local.log_likelihood_, distant.log_likelihood_, rtol=1e-12)
    for name in ("seed_prior_", "doc_labels_"):
        mine, theirs = getattr(local, name), getattr(distant, name)
        assert (mine is None and theirs is None) or (mine != theirs).nnz == 0


def test_labels_of_documents_in_files(X, tmp_path):
    path = tmp_path / "docword.txt"
    save_uci_bow(X, path)
    in_file = lda(exact=True, max_iter=5, n_groups=None, checkpoint=tmp_path / "states")
    in_file.fit(path, doc_labels=LABELS)
    here = lda(exact=True, max_iter=5).fit(X, doc_labels=LABELS)
    assert (in_file.word_topic_counts_ != here.word_topic_counts_).nnz == 0
    with pytest.raises(CheckpointMismatch, match="doc_labels"):
        in_file.fit(path, doc_labels=LABELS + 1)


def test_default_groups_are_those_of_the_local_engine(client):
    X, *_ = make_lda_corpus(700, n_features=150, n_components=5, random_state=0, mean_length=200)
    assert X.sum() > 100_000  # else one group, which is exact
    same(lda(n_groups=None, max_iter=3).fit(X), lda(n_groups=None, max_iter=3, engine="dask").fit(X))


@pytest.mark.parametrize("n_workers", [1, 4])
def test_any_number_of_workers(X, n_workers):
    local = lda(300, max_iter=11).fit(X)
    with running(n_workers) as client:
        address = client.scheduler.address
        same(local, lda(300, max_iter=11, engine=address).fit(X))


@pytest.mark.filterwarnings("ignore:n_groups=")
def test_fewer_documents_than_workers(client, X):
    same(lda(n_groups=2).fit(X[:2]), lda(n_groups=9, engine="dask").fit(X[:2]))


@pytest.mark.cluster
def test_a_worker_killed_in_a_sub_epoch_costs_no_bit(X, killing):
    big = sparse.vstack([X] * 8, format="csr")
    local = lda(300, max_iter=30).fit(big)
    with running(2, processes=True) as client:
        before = set(client.run(os.getpid).values())
        distant = lda(300, max_iter=30, engine="dask").fit(big, callback=killing(5, min(before)))
        assert set(client.run(os.getpid).values()) != before
    same(local, distant)


def test_a_checkpoint_goes_on_bitwise_with_other_workers(client, X, tmp_path):
    local = lda(300, max_iter=25).fit(X)
    options = {"engine": "dask", "checkpoint": tmp_path / "state"}
    lda(300, max_iter=25, **options).fit(X, callback=lambda info: info.round == 13)
    with running(1) as alone:
        seen = []
        distant = lda(300, max_iter=25, checkpoint=tmp_path / "state", engine=alone.scheduler.address)
        distant.fit(X, callback=lambda info: seen.append(info.round))
    same(local, distant)
    assert seen[0] == 14
    with pytest.raises(CheckpointMismatch):
        lda(301, max_iter=25, **options).fit(X)


def test_a_checkpoint_that_workers_write_goes_on_bitwise(client, X, tmp_path):
    pytest.importorskip("fsspec")
    url = f"file://{tmp_path}/state"
    local = lda(300, max_iter=25).fit(X)
    lda(300, max_iter=25, engine="dask", checkpoint=url).fit(X, callback=lambda info: info.round == 13)
    (folder,) = [f for f in (tmp_path / "state").iterdir() if f.name.startswith("round-000000013-")]
    names = {f"shard-{s}.npz" for s in range(4)} | {f"block-{b}.npz" for b in range(4)}
    assert {file.name for file in folder.iterdir()} == names | {"coordinator.npz"}
    with np.load(folder / "shard-0.npz") as part:  # without pickle
        assert part["topics"].dtype == np.uint16
    same(local, lda(300, max_iter=25, engine="dask", checkpoint=url).fit(X))


def test_what_workers_did_is_kept_and_shown(client, X, capsys, tmp_path):
    model = lda(engine="dask", max_iter=5, verbose=1).fit(X)
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"5/5.*, workers 2, tokens/s each [\d.e+]+, waiting % \d+, MB sent [\d.]+", line)
    seen = model.worker_history_
    assert len(set(seen["worker"])) == 2
    pairs = list(zip(seen["round"], seen["step"], strict=True))
    assert sorted(pairs) == [(r, 0) for r in range(1, 6) for _ in range(2)]  # a sweep is one call
    assert (seen["working"] > 0).all()
    assert (seen["waiting"] >= 0).all()
    assert 0 < seen["bytes_sent"].sum() <= model.history_["bytes_sent"].sum()
    model.save(tmp_path / "model.npz")
    back = sd.load(tmp_path / "model.npz").worker_history_
    assert back.keys() == seen.keys()
    np.testing.assert_array_equal(back["worker"], seen["worker"])
    model.set_params(engine="local").fit(X)
    assert not hasattr(model, "worker_history_")


def test_a_word_heavier_than_a_block_has_one_of_its_own():
    frequency = np.array([2, 4000, 3, 500, 400, 300, 200, 100, 90, 80])
    words = Words(frequency, 4)
    (block,) = [b for b in range(4) if 1 in words.ids[words.of(b)]]
    assert words.ids[words.of(block)].tolist() == [1]


@pytest.mark.parametrize("heaviest", [30, 90, 130, 200, 600])
def test_blocks_that_neighbouring_shards_meet_weigh_as_much_as_others(heaviest):
    """Of 1,000 tokens in 16 blocks, one word has `heaviest`; any 2, 4 or 8 neighbours are compared."""
    frequency = np.append(np.ones(1000 - heaviest, int), heaviest)
    words, group = deal_words(frequency, 16)
    weights = np.bincount(group, weights=frequency[words], minlength=16)
    assert sorted(words.tolist()) == list(range(len(frequency)))
    assert weights.max() == max(heaviest, -(-1000 // 16))
    for n in (2, 4, 8, 16):
        sums = np.convolve(np.append(weights, weights[: n - 1]), np.ones(n), "valid")
        if heaviest <= 1000 * n / 16:  # else the worker that has the word is late anyway
            assert sums.max() - sums.min() <= n


def test_callbacks_see_the_model_so_far(client, X):
    seen = []
    lda(engine="dask", max_iter=6).fit(X, callback=lambda info: seen.append(info.snapshot()))
    same(seen[2], lda(max_iter=6).fit(X, callback=lambda info: info.round == 3))
    assert seen[2].n_iter_ == 3


def test_bytes_are_those_of_the_formula(client, X, monkeypatch):
    """Blocks that change workers, packed; the totals to each worker; what changed, from each to the other.

    The process that calls fit hears once a sweep what changed.
    """
    packed, pack = [], Gibbs.pack

    def watched(self, block, value):
        packed.append(pack(self, block, value))
        return packed[-1]

    monkeypatch.setattr(Gibbs, "pack", watched)  # the workers are threads of this process
    K, n_workers, steps = 5, 2, 8
    model = lda(K, n_groups=4, max_iter=1, engine="dask").fit(X)
    hops = packed[4:]  # blocks are packed when they are made, too
    assert len(hops) == n_workers * (steps - 1)
    totals = 8 * K  # in so small a model all of them change in every step
    between = n_workers * (steps + 1) * totals
    assert model.history_["bytes_sent"].sum() == sum(map(len, hops)) + between + totals


def test_messages_do_not_grow_with_the_threads_of_workers(client, X, monkeypatch):
    """Two workers, a group for each thread: a sweep has 4 exchanges of totals, and all blocks move twice."""
    messages, write = [], streams._Stream._write

    async def counted(self, comm, message):
        messages.append([part[0] for part in message.parts])
        await write(self, comm, message)

    monkeypatch.setattr(word_blocks, "_MOST_EXCHANGES", 4)
    monkeypatch.setattr(streams._Stream, "_write", counted)
    n_sweeps = 3
    for threads in (4, 8):
        own = {"n_groups": 2 * threads, "max_iter": n_sweeps}
        messages.clear()
        model = lda(engine="dask", n_jobs=threads, **own).fit(X)
        parts = [part for message in messages for part in message]
        # The first sweep has a turn more, in which blocks are filled; after the last one no block moves.
        assert parts.count("joined") == 2 * 4 * (n_sweeps + 1)
        assert len(parts) - parts.count("joined") == 2 * threads * (2 * (n_sweeps + 1) - 1)
        assert len(list(filter(None, messages))) <= 2 * (4 + 2) * (n_sweeps + 1)
        same(model, lda(**own).fit(X))


# Blocks on their way ---------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [3, 200, 70_000])
def test_packed_blocks_come_back(X, K):
    rng = np.random.default_rng(0)
    program = program_of("gibbs", corpus_of_matrix(X, 3), K, np.full(K, 0.1), np.full(150, 0.01), 1)
    for block in range(3):
        value = program.block(block)
        most = program.words.frequency[program.words.of(block)][: len(value.rows)]
        for row, n in zip(value.rows, most, strict=True):
            np.add.at(row, rng.integers(0, K, n) ** 2 // K, 1)
        value.tokens[:] = rng.integers(0, K, len(value.tokens))
        back = program.unpack(block, program.pack(block, value))
        np.testing.assert_array_equal(back.rows, value.rows)
        np.testing.assert_array_equal(back.tokens, value.tokens)


def test_damaged_blocks_are_refused(X):
    """Whatever the bytes: an error, or topics and counts that kernels can take."""
    rng = np.random.default_rng(0)
    program = program_of("gibbs", corpus_of_matrix(X, 2), 40, np.full(40, 0.1), np.full(150, 0.01), 1)
    value = program.block(0)
    most = program.words.frequency[program.words.of(0)][: len(value.rows)]
    value.rows[:, 3] = most
    packed = program.pack(0, value)
    assert len(value.rows)
    assert len(value.tokens)
    refused = 0
    for _ in range(300):
        wrong = packed.copy()
        wrong[rng.integers(0, len(wrong), 3)] = rng.integers(0, 256, 3)
        try:
            back = program.unpack(0, wrong)
        except ModelFileError:
            refused += 1
        else:
            assert (back.rows >= 0).all()
            assert (back.rows.sum(axis=1) <= most).all()
            assert back.tokens.max() < 40
    assert refused > 100
    for wrong in (packed[:-1], np.append(packed, packed[-1:]), packed.astype(np.int16), packed[None]):
        with pytest.raises(ModelFileError, match="damaged"):
            program.unpack(0, wrong)


def test_local_threads_run_the_same_program(X):
    """The reference of sessions: blocks by reference, never packed."""
    local = lda(300, max_iter=12).fit(X)
    priors = np.full(300, 0.1), np.full(150, 0.01)
    program = program_of("gibbs", corpus_of_matrix(X, 4), 300, *priors, local._seed(), annealed=80)
    found = run(program, program.schedule, max_rounds=12, engine=LocalSession(2)).fetched
    assert (found.words != local.word_topic_counts_).nnz == 0
    assert isinstance(program.block(0), Block)


# Bad input -------------------------------------------------------------------------------------------


def test_what_only_one_process_can_do_is_refused(client, X):
    for known in ({"seed_words": {0: [1]}}, {"doc_labels": np.ones((250, 5))}):
        with pytest.raises(DataError, match="need Gibbs sampling, not sampler='light'"):
            lda(engine="dask", sampler="light").fit(X, **known)
        with pytest.raises(DataError, match="optimize_priors=True with seed_words or doc_labels"):
            lda(engine="dask", optimize_priors=True).fit(X, **known)
    with pytest.raises(DataError, match="doc_labels allows no topic in row 17"):
        lda(engine="dask").fit(X, doc_labels=LABELS * (np.arange(250) != 17)[:, None])
    with pytest.raises(DataError, match="sampler='saber' with device='cpu' works with a matrix"):
        lda(engine="dask", sampler="saber").fit(X)
    with pytest.raises(DataError, match="sampler='light' with device='cuda' works with a matrix"):
        lda(engine="dask", sampler="light", device="cuda").fit(X)
    with pytest.raises(ValueError, match="n_groups"):
        lda(engine="dask", n_groups=0).fit(X)
    with pytest.raises(DataError, match="fractional"):
        lda(engine="dask").fit(X * 0.5)
    with pytest.raises(DataError, match="engine='dusk' is unknown"):
        lda(engine="dusk").fit(X)


def test_without_workers(X):
    with (
        dask.config.set({"stradask.timeout": "2s"}),
        running(0) as client,
        pytest.raises(StradaskError, match="no worker of"),
    ):
        lda(engine=client.scheduler.address).fit(X)
