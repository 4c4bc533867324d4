"""WarpLDA's order and then Gibbs sampling over shards: one rule, one result, and back over the change."""

import logging

import numpy as np
import pytest
from distributed import Client, LocalCluster
from early_auto import make_early
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks.word_blocks import Block
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix, sources_of, survey
from stradask.algorithms.topics.samplers.choose import annealed_of, chosen, program_of
from stradask.datasets import save_uci_bow
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import ModelFileError, WorkerLost
from stradask.scheduler.engine import run
from stradask.scheduler.sessions.local import LocalSession

QUIET = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL, "processes": False}


@pytest.fixture(autouse=True)
def early(monkeypatch):
    make_early(monkeypatch)


@pytest.fixture(scope="module")
def X():
    X = sparse.csr_array(
        make_lda_corpus(700, n_features=150, n_components=5, random_state=0, mean_length=200)[0]
    )
    assert X.sum() > 100_000  # a smaller corpus is Gibbs sampling's
    return X


@pytest.fixture(scope="module")
def few(X):
    """For programs, which leave the choice to the caller."""
    return X[:150]


@pytest.fixture(scope="module")
def client():
    with LocalCluster(n_workers=2, threads_per_worker=1, **QUIET) as cluster, Client(cluster) as client:
        yield client


def lda(n_components=80, **options):
    return sd.LatentDirichletAllocation(
        n_components, **{"n_groups": 4, "max_iter": 8, "random_state": 3} | options
    )


def program(X, K=80, **options):
    options = {"annealed": annealed_of("both")} | options
    priors = np.full(K, 0.1), np.full(X.shape[1], 0.01)
    return program_of("both", corpus_of_matrix(X, 4), K, *priors, 5, **options)


def same(a, b):
    assert (a.word_topic_counts_ != b.word_topic_counts_).nnz == 0
    assert a.sampler_ == b.sampler_
    np.testing.assert_array_equal(a.doc_topic_prior_, b.doc_topic_prior_)


def test_threads_and_workers_sample_every_token_with_one_result(client, few):
    p, q = program(few), program(few)
    found = run(p, p.schedule, max_rounds=9, engine=client.scheduler.address).fetched
    assert [(part["name"], part["sweep"]) for part in found.ran] == [("warp", 1), ("gibbs", 7)]
    words, documents = found.words.toarray(), found.documents.toarray()
    np.testing.assert_array_equal(words.sum(axis=1), few.sum(axis=0))
    np.testing.assert_array_equal(documents.sum(axis=1), few.sum(axis=1))
    np.testing.assert_array_equal(words.sum(axis=0), documents.sum(axis=0))
    local = run(q, q.schedule, max_rounds=9, engine=LocalSession(3)).fetched
    np.testing.assert_array_equal(local.words.toarray(), words)
    assert local.ran == found.ran


@pytest.mark.slow
@pytest.mark.parametrize(("K", "n_workers"), [(80, 4), (300, 1)])
def test_one_result_wherever_shards_lie(client, X, K, n_workers):
    found = lda(K, engine="dask").fit(X)
    assert [(part["name"], part["sweep"]) for part in found.sampler_] == [("warp", 1), ("gibbs", 7)]
    assert 1 < found.sampler_[1]["topics_per_document"] < K
    np.testing.assert_array_equal(found.word_topic_counts_.sum(axis=1), X.sum(axis=0))
    np.testing.assert_array_equal(found.doc_topic_counts_.sum(axis=1), X.sum(axis=1))
    np.testing.assert_array_equal(found.doc_topic_counts_.sum(axis=0), found.word_topic_counts_.sum(axis=0))
    with LocalCluster(n_workers=n_workers, threads_per_worker=1, **QUIET) as cluster:
        same(lda(K, engine=cluster.scheduler_address).fit(X), found)
    other = lda(K, engine="dask", n_groups=3).fit(X)
    assert (other.word_topic_counts_ != found.word_topic_counts_).nnz > 0


@pytest.mark.parametrize("options", [{"n_components": 63}, {"exact": True, "n_groups": None}])
def test_where_one_process_takes_gibbs_the_bits_are_those(client, X, options):
    options = {"max_iter": 8} | options
    local, distant = lda(**options).fit(X), lda(engine="dask", **options).fit(X)
    assert [part["name"] for part in local.sampler_] == ["gibbs"]
    same(local, distant)


@pytest.mark.parametrize("sampler", ["auto", "warp"])
def test_a_cluster_gives_the_chain_of_threads(client, X, sampler):
    local, distant = (lda(sampler=sampler, engine=engine).fit(X) for engine in ("local", "dask"))
    assert [part["name"] for part in local.sampler_] == ["warp", "gibbs"][: 2 if sampler == "auto" else 1]
    same(local, distant)
    np.testing.assert_allclose(local.log_likelihood_, distant.log_likelihood_, rtol=1e-12)
    assert (local.doc_topic_counts_ != distant.doc_topic_counts_).nnz == 0


def test_the_rule_goes_by_what_workers_report(client, X, tmp_path):
    """Tokens and columns of files in shards, and the longest document, which lists may not hold."""
    for number, rows in enumerate((X[:300], X[300:])):
        save_uci_bow(rows, tmp_path / f"docword.{number}.txt")
    save_uci_bow(X[:300], tmp_path / "small.txt")
    names = {
        name: [part["name"] for part in lda(engine="dask").fit(f"{tmp_path}/{name}").sampler_]
        for name in ("docword.*.txt", "small.txt")
    }
    assert names == {"docword.*.txt": ["warp", "gibbs"], "small.txt": ["gibbs"]}
    longest = int(X.sum(axis=1).max())
    assert corpus_of_matrix(X, 3).longest == longest
    (found, *_), *_ = survey(sources_of(f"{tmp_path}/docword.0.txt", 1), "local")
    assert found["longest"] == X[:300].sum(axis=1).max()
    sizes = (int(X.sum()), X.shape[1])
    many = 2 ** (32 - longest.bit_length())  # as lists of 32 bits an entry hold
    assert [chosen(*sizes, longest, K, False) for K in (63, 64, many, many + 1)] == [
        "gibbs", "both", "both", "warp"
    ]  # fmt: skip


class Losing(LocalSession):
    """Loses a worker when a round begins, once for each time that the round is listed."""

    remote = True

    def __init__(self, rounds):
        super().__init__(2)
        self.rounds = list(rounds)

    def run(self, round, first, steps, messages, later=()):
        if not first and round in self.rounds:
            self.rounds.remove(round)
            raise WorkerLost("as the test wants it")
        return super().run(round, first, steps, messages, later)


@pytest.mark.parametrize(("K", "seconds"), [(80, 1e9), (300, 0.0)])
def test_a_loss_after_the_change_goes_back_before_it(few, K, seconds, monkeypatch):
    """Sweeps are done again from the first, or from a snapshot after the change, in both forms of blocks."""
    p = program(few, K)
    calm = run(p, p.schedule, max_rounds=9).fetched
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SECONDS", seconds)
    monkeypatch.setattr("stradask.scheduler.engine._KEEP_SHARE", 0.0)
    p = program(few, K)
    done = run(p, p.schedule, max_rounds=9, engine=Losing([5, 6, 6, 7, 8]))
    assert done.n_recoveries == 5
    assert (done.fetched.words != calm.words).nnz == 0
    assert done.fetched.ran == calm.ran
    assert done.fetched.joint == pytest.approx(calm.joint, rel=1e-12)


@pytest.mark.parametrize(("K", "cut"), [(300, 5), (80, 6), (300, 6), (300, 8)])
def test_a_checkpoint_goes_on_on_both_sides_of_the_change(few, tmp_path, K, cut):
    p = program(few, K)
    whole = run(p, p.schedule, max_rounds=9).fetched
    assert p.ran[1]["sweep"] == 7
    for rounds in (cut, 9):
        p = program(few, K)
        found = run(p, p.schedule, max_rounds=rounds, checkpoint=tmp_path).fetched
    assert (found.words != whole.words).nnz == 0
    assert found.ran == whole.ran


@pytest.mark.slow
def test_an_estimator_goes_on_from_its_checkpoint(client, X, tmp_path):
    whole = lda(engine="dask", max_iter=8).fit(X)
    goes_on = lda(engine="dask", max_iter=8, checkpoint=tmp_path)
    goes_on.fit(X, callback=lambda info: info.round == 7)
    same(goes_on.fit(X), whole)


def test_priors_are_fitted_after_the_change_alone(few, monkeypatch):
    for last_of_warp, fits in ((20, False), (18, True)):
        make_early(monkeypatch, most=last_of_warp)
        p = program(few, fits_priors=True)
        run(p, p.schedule, max_rounds=20)  # from the twentieth sweep on
        assert p.ran[1]["sweep"] == last_of_warp + 1
        assert (np.ptp(p.alpha) > 0) == fits


def test_likelihood_at_the_change_and_after_is_that_of_the_counts(few, monkeypatch):
    """Measured at sweep 10, which is the last one of warp, and at 20."""
    make_early(monkeypatch, most=10)
    for rounds in (10, 20):
        p = program(few)
        done = run(p, p.schedule, max_rounds=rounds)
        assert p.ran[1]["sweep"] == 11
        assert done.history.as_dict()["objective"][-1] == pytest.approx(done.fetched.joint, rel=1e-10)


def test_shards_on_disk(few, tmp_path):
    calm = program(few)
    expected = run(calm, calm.schedule, max_rounds=9).fetched
    p = program(few, folder=tmp_path, at_once=4)
    in_files = run(p, p.schedule, max_rounds=9).fetched
    assert (in_files.words != expected.words).nnz == 0
    assert list(tmp_path.iterdir()) == []


def test_damaged_blocks_are_refused(few):
    p = program(few)
    packed = p.pack(0, p.block(0))
    words = p.samplers[1].words
    assert words.n_rows[0] > 0
    gibbs = Block(np.zeros((words.n_rows[0], 80), np.int32), np.zeros(words.n_tokens[0], np.uint16))
    other = p.pack(0, gibbs)
    assert packed[0] != other[0]
    assert len(p.unpack(0, other).rows) == len(gibbs.rows)
    for wrong in (packed[:0], packed[1:], packed[:-1], packed.astype(np.int16), packed[None], other[:-1]):
        with pytest.raises(ModelFileError, match="damaged"):
            p.unpack(0, wrong)
    swapped = packed.copy()
    swapped[0] = other[0]
    with pytest.raises(ModelFileError, match="damaged"):
        p.unpack(0, swapped)


@pytest.mark.slow
def test_models_as_good_as_those_of_one_process(client):
    corpus = make_lda_corpus(2400, n_features=600, n_components=8, mean_length=80, random_state=0)[0]
    X, unseen = corpus[:2000], corpus[2000:]
    logs = np.log(
        [
            [
                lda(64, engine=engine, max_iter=60, random_state=2 * seed + own).fit(X).perplexity(unseen)
                for own, engine in enumerate(("local", "dask"))
            ]
            for seed in range(6)
        ]
    )
    difference = logs[:, 1] - logs[:, 0]
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    assert error < 0.003
    assert abs(difference.mean()) + 2 * error < 0.01
