"""Corpora larger than a fit may have memory for: shards on disk, some at a time, and the same model."""

import gc
import itertools
import mmap
import os
import sys
import weakref

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

import stradask as sd
from stradask.algorithms.topics.blocks import memory
from stradask.algorithms.topics.blocks.storage import Pool, Storage, fetch, release
from stradask.algorithms.topics.blocks.word_blocks import FirstCountThenRotate
from stradask.algorithms.topics.corpus import documents
from stradask.algorithms.topics.corpus.shard_input import corpus_of_matrix
from stradask.algorithms.topics.samplers.choose import program_of
from stradask.datasets import save_uci_bow
from stradask.datasets.generators import make_lda_corpus
from stradask.errors import DataError
from stradask.scheduler.engine import run


@pytest.fixture(scope="module")
def X():
    return sparse.csr_matrix(make_lda_corpus(300, n_features=120, n_components=5, random_state=0)[0])


@pytest.mark.parametrize(("n", "at_once"), [(1, 1), (5, 2), (6, 2), (7, 4), (23, 4), (4, None), (3, 9)])
def test_every_shard_meets_every_block_and_parties_one_after_the_other(n, at_once):
    schedule = FirstCountThenRotate(n, at_once)
    first, turn = schedule.plan(0, {}), schedule.plan(1, {})
    assert first == turn + turn
    n_blocks = schedule.n_blocks
    assert n_blocks == n if at_once is None else n_blocks == min(n, 2 * at_once)
    assert sorted(pair for step in turn for pair in step) == list(
        itertools.product(range(n), range(n_blocks))
    )
    for step in turn:
        assert len({block for _, block in step}) == len(step) <= (at_once or n)
    parties = [tuple(shard for shard, _ in step) for step in turn]
    assert len(list(itertools.groupby(parties))) == -(-n // min(at_once or n, n))
    last_of_shard = {shard: p for p, step in enumerate(turn) for shard, _ in step}
    last_of_block = {block: p for p, step in enumerate(turn) for _, block in step}
    for place in range(len(turn)):
        assert schedule.place(0, place + len(turn)) == schedule.place(3, place) == place
        assert schedule.place(0, place) < 0
        assert schedule.is_last_of_shard(place) == (place in last_of_shard.values())
    assert all(schedule.may_be_last_of_block(p) for p in last_of_block.values())


@pytest.mark.parametrize(("n", "at_once", "repeats"), [(5, 2, 1), (5, 2, 3), (4, None, 3), (3, 9, 1)])
def test_passes_are_rotations_and_the_last_one_is_for_others_to_read(n, at_once, repeats):
    kinds = {"kinds": ("documents", "words"), "last": "write"}
    schedule = FirstCountThenRotate(n, at_once, repeats, **kinds)
    plan, rotation = schedule.plan(1, {}), FirstCountThenRotate(n, at_once).plan(1, {})
    assert schedule.plan(0, {}) == rotation + plan
    steps = [(*schedule.rotation(place), pairs) for place, pairs in enumerate(plan)]
    for turn in range(repeats):
        seen = {}
        for _, kind, _, pairs in (step for step in steps if step[0] == turn):
            for shard, block in pairs:
                seen.setdefault(shard, []).append((kind, block))
        several = at_once is not None and n > at_once
        wanted = ["documents", "words", *(["write"] if several or turn == repeats - 1 else [])]
        for met in seen.values():
            assert [kind for kind, _ in itertools.groupby(met, lambda pair: pair[0])] == wanted
            assert sorted(met) == sorted(itertools.product(wanted, range(schedule.n_blocks)))
    ends = [place for place in range(len(plan)) if schedule.is_last_of_shard(place)]
    assert len(ends) == repeats * -(-n // schedule.at_once)
    at_hand = FirstCountThenRotate(4, repeats=2, at_hand=True, **kinds)
    found = [at_hand.rotation(place)[:2] for place in range(5)]
    assert found == [(0, "documents"), (0, "words"), (1, "documents"), (1, "words"), (1, "write")]
    assert at_hand.plan(1, {}) == [[(s, s) for s in range(4)]] * 5
    assert [at_hand.is_last_of_shard(place) for place in range(5)] == [False, True, False, False, True]


@pytest.mark.parametrize("sampler", ["gibbs", "warp"])
def test_parties_sample_every_token_once_and_measure_what_is_there(X, sampler):
    corpus = corpus_of_matrix(X, 5)
    options = {"at_once": 2, "fits_priors": True}
    program = program_of(sampler, corpus, 6, np.full(6, 0.1), np.full(120, 0.01), 3, **options)
    done = run(program, program.schedule, max_rounds=30)
    words = done.fetched.words
    np.testing.assert_array_equal(words.sum(axis=0), program.totals)
    np.testing.assert_array_equal(words.sum(axis=1), np.asarray(X.sum(axis=0)).ravel())
    assert done.history.as_dict()["objective"][-1] == pytest.approx(done.fetched.joint, rel=1e-12)
    assert np.ptp(program.alpha) > 0


@pytest.fixture
def path(X, tmp_path):
    save_uci_bow(X, tmp_path / "docword.txt")
    return tmp_path / "docword.txt"


def fitted(path, callback=None, **options):
    options = {"sampler": "gibbs", "max_iter": 40, "random_state": 0, "memory_limit": "300kB"} | options
    return sd.LatentDirichletAllocation(6, **options).fit(path, callback=callback)


def test_shards_on_disk(X, path, tmp_path, monkeypatch):
    made = []
    reserve = memory.plan_for

    def watched(*args):
        made.append(reserve(*args))
        return made[-1]

    monkeypatch.setattr("stradask.algorithms.topics.corpus.documents.plan_for", watched)
    folder = tmp_path / "states"
    folder.mkdir()
    model = fitted(path, memmap_folder=folder)
    assert made == [memory.FilePlan(folder, 4)]
    assert list(folder.iterdir()) == []
    again = fitted(path, n_jobs=3)
    assert (model.word_topic_counts_ != again.word_topic_counts_).nnz == 0
    assert model.word_topic_counts_.sum() == X.sum()
    in_memory = fitted(path, memory_limit=None, n_groups=8)
    assert model.perplexity(X) == pytest.approx(in_memory.perplexity(X), rel=0.05)
    fitted(path, memory_limit="1GB")
    assert made[-1] == memory.FilePlan(None, None)


def test_the_next_party_is_read_while_one_is_swept(X, tmp_path, monkeypatch):
    fetched, drawn, counts = [], [], set()
    monkeypatch.setattr(
        "stradask.algorithms.topics.blocks.program.fetch", lambda array: fetched.append(id(array))
    )
    corpus = corpus_of_matrix(X, 5)
    options = {"at_once": 2, "folder": tmp_path}
    program = program_of("gibbs", corpus, 6, np.full(6, 0.1), np.full(120, 0.01), 3, **options)
    update = program.update

    def watched(state, task):
        drawn.append((task.round, task.step, task.shard, id(state.topics)))
        counts.add(id(state.documents.counts))
        return update(state, task)

    program.update = watched
    order = []
    run(program, program.schedule, max_rounds=2, callback=lambda info: order.append(len(fetched)))
    of_shard = {shard: topics for _, _, shard, topics in drawn}
    shards = [shard for topics in fetched for shard in of_shard if of_shard[shard] == topics]
    assert shards == [2, 3, 4, 0, 1] * 3  # two turns in the first round
    assert len(counts) == 5
    assert counts <= set(fetched)


def test_what_is_fetched_are_files(tmp_path):
    array = Storage(tmp_path).zeros(5000, np.uint16)
    array[:] = 3
    for part in (array, array[7:].reshape(1, -1), np.zeros(4), None):
        fetch(part)
    assert (array == 3).all()


def test_what_is_let_go_is_still_there(tmp_path):
    array = Storage(tmp_path).put(np.arange(5000))
    array += 1
    for part in (array, array[7:], np.zeros(4), None):
        release(part)
    np.testing.assert_array_equal(array, np.arange(1, 5001))
    kept = np.arange(3)
    assert Storage().put(kept) is kept


@pytest.mark.parametrize("sampler", ["gibbs", "warp"])
@pytest.mark.parametrize("K", [6, 300])
def test_all_that_grows_with_the_corpus_lies_in_files(X, tmp_path, sampler, K):
    corpus = corpus_of_matrix(X, 5)
    options = {"at_once": 2, "folder": tmp_path}
    program = program_of(sampler, corpus, K, np.full(K, 0.1), np.full(120, 0.01), 3, **options)
    shard = max(corpus.shards, key=lambda shard: shard["source"].nnz)
    state = program.load(shard)
    program.sync(state, program.publish())
    in_memory = sum(
        array.nbytes
        for array in {**vars(state), **vars(state.documents)}.values()
        if isinstance(array, np.ndarray) and not _is_mapped(array)
    )
    size, n_tokens = shard["source"].shape[0], shard["source"].sum()
    assert in_memory <= 8 * (K + 1) + 40 * size < 4 * n_tokens  # totals, and sizes of documents
    assert program.loads_at_once == 1


def _is_mapped(array):
    return _mapping(array) is not None


def _mapping(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files of a process are listed by Linux")
def test_files_are_few_however_many_shards_there_are(path):
    def opened():
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before, during = opened(), {}
    for limit in ("300kB", "50kB"):
        fitted(
            path,
            max_iter=2,
            memory_limit=limit,
            callback=lambda info, at=limit: during.update({at: opened()}),
        )
    # Not one for each array of each of 38 shards; other threads of the process open some, too.
    assert max(during.values()) <= before + 50
    gc.collect()
    assert opened() <= before + 10


def test_arrays_of_a_pool_stand_side_by_side(tmp_path):
    pool = Pool(tmp_path)
    arrays = [pool.put(np.arange(n)) for n in (7, 3000, 1, 200_000, 0, 9)]
    arrays.append(pool.zeros((40, 50), np.uint16))
    assert len({id(mapped) for mapped in map(_mapping, arrays) if mapped is not None}) == 3
    for array in arrays[:-1]:
        array += 1
        release(array)
    fetch(arrays[1][700:])
    assert not arrays[-1].any()
    for array, n in zip(arrays, (7, 3000, 1, 200_000, 0, 9), strict=False):
        np.testing.assert_array_equal(array, np.arange(1, n + 1))


def test_a_file_of_a_pool_goes_with_its_last_array(tmp_path):
    pool = Pool(tmp_path)
    first, second = pool.zeros(7, np.int64), pool.zeros(3000, np.uint8)
    file = weakref.ref(_mapping(first))
    assert _mapping(second) is file()
    del first
    assert file() is not None
    del second
    assert file() is None
    assert not pool.zeros(9, np.int64).any()


def test_pages_of_the_layout_of_warp_are_released(X, tmp_path, monkeypatch):
    released = []
    monkeypatch.setattr(
        "stradask.algorithms.topics.samplers.warp.release", lambda array: released.append(array.nbytes)
    )
    model = corpus_of_matrix(X, 3), 4, np.full(4, 0.1), np.full(120, 0.1), 0
    program = program_of("warp", *model, folder=tmp_path, at_once=1)
    for shard in program.shards:
        program.load(shard)
    assert sum(released) == 6 * X.sum()  # document and first topic of each token


def test_files_that_change_while_a_fit_begins(X, path, monkeypatch):
    surveyed = documents.survey

    def changing(*args):
        found = surveyed(*args)
        save_uci_bow(X[::-1], path)  # as many documents and words, so that the file's head is the same
        return found

    monkeypatch.setattr(documents, "survey", changing)
    for n_groups in (1, 3):
        save_uci_bow(X, path)
        with pytest.raises(DataError, match="begins with document 0 is not what it was"):
            fitted(path, memory_limit=None, n_groups=n_groups)


def test_the_shards_of_a_limit():
    n = memory.shards_for(10**9, False, 10**8)
    at_hand = 10**9 * max(memory._READING, 4 * memory._STATE)
    assert at_hand / n <= 5 * 10**7 < at_hand / (n - 1)
    assert memory.shards_for(10**9, True, 10**8) == 4 * n


@pytest.mark.filterwarnings("ignore:n_groups=")
def test_bad_limits(X, path):
    with pytest.raises(DataError, match="memory_limit='lots' is no amount of memory"):
        fitted(path, memory_limit="lots")
    for limit in ("", "inf", "1e400GB"):
        with pytest.raises(DataError, match=f"memory_limit={limit!r} is no amount of memory"):
            fitted(path, memory_limit=limit)
    with pytest.raises(DataError, match="memory_limit=0: give an amount above zero"):
        fitted(path, memory_limit=0)
    with pytest.raises(DataError, match="a matrix is in memory already"):
        fitted(X)
    with pytest.raises(DataError, match="memory_limit=12,000 bytes, but the words and their counts take"):
        fitted(path, memory_limit=12_000, n_groups=300)
    with pytest.raises(DataError, match=r"to read a shard of .*docword.txt takes about .* smaller shards"):
        fitted(path, n_groups=2)
    many = sparse.csr_matrix((X.data * 1000, X.indices, X.indptr), X.shape)  # tokens, in hardly more bytes
    save_uci_bow(many, path)
    with pytest.raises(DataError, match=r"the tokens of a shard take .* or n_groups above"):
        fitted(path, memory_limit="100kB")
    svmlight = path.with_name("corpus.svm")
    dump_svmlight_file(X, np.zeros(300), str(svmlight), zero_based=False)
    with pytest.raises(DataError, match="svmlight format are not cut, so give several"):
        fitted(svmlight, memory_limit="100kB")
