"""What a fit holds: arrays in memory-mapped files give the same model, and how many bytes a token takes."""

import errno
import mmap
import os

import numpy as np
import pytest
from lda_chains import Chain
from scipy import sparse

import stradask as sd
from stradask.algorithms.topics.blocks.groups import number_of_rows
from stradask.algorithms.topics.blocks.storage import Storage
from stradask.errors import DataError


@pytest.fixture(scope="module")
def corpus():
    X = sd.datasets.make_lda_corpus(1200, n_features=500, n_components=10, random_state=0)[0]
    return sparse.csr_array(X)


def _lda(n_components, **options):
    return sd.LatentDirichletAllocation(n_components, **{"max_iter": 9, "random_state": 0, **options})


def _same(one, other):
    np.testing.assert_array_equal(one.log_likelihood_, other.log_likelihood_)
    assert (one.word_topic_counts_ != other.word_topic_counts_).nnz == 0
    assert (one.doc_topic_counts_ != other.doc_topic_counts_).nnz == 0


def _state(X, n_topics, sampler, folder=None, **known):
    priors = np.full(n_topics, 0.1), np.full(X.shape[1], 0.01)
    return Chain(X, n_topics, *priors, 0, sampler=sampler, folder=folder, **known)


def _origin(array):
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.parametrize(
    ("sampler", "n_components"),
    [
        ("gibbs", 80),
        ("gibbs", 300),
        ("warp", 300),
        ("light", 80),
        pytest.param("warp", 80, marks=pytest.mark.slow),
        pytest.param("light", 300, marks=pytest.mark.slow),
        ("auto", 80),
        pytest.param("auto", 300, marks=pytest.mark.slow),
    ],
)
def test_the_model_is_bitwise_the_same_in_files(corpus, tmp_path, sampler, n_components):
    plain = _lda(n_components, sampler=sampler).fit(corpus)
    left = []
    mapped = _lda(n_components, sampler=sampler, n_jobs=2, memmap_folder=tmp_path)
    mapped.fit(corpus, callback=lambda info: left.append(os.listdir(tmp_path)) and None)
    _same(plain, mapped)
    assert len(left) == 9
    assert not any(left) or os.name == "nt"
    assert os.listdir(tmp_path) == []


def test_labels_later_batches_warm_starts_and_checkpoints_too(corpus, tmp_path):
    labels = np.random.default_rng(0).random((corpus.shape[0], 20)) < 0.5
    labels[:, 0] = True
    fits = []
    for options in ({}, {"memmap_folder": tmp_path}):
        labelled = _lda(20, **options).fit(corpus, doc_labels=labels)
        batches = _lda(20, **options).partial_fit(corpus[:600]).partial_fit(corpus[600:])
        warm = _lda(20, warm_start=True, **options).fit(corpus).fit(corpus)
        fits.append((labelled, batches, warm))
    for one, other in zip(*fits, strict=True):
        _same(one, other)
    stopped = _lda(20, checkpoint=tmp_path / "state", memmap_folder=str(tmp_path))
    stopped.fit(corpus, callback=lambda info: info.round == 4)
    _same(_lda(20).fit(corpus), stopped.set_params(memmap_folder=None).fit(corpus))


@pytest.mark.parametrize(
    ("sampler", "n_topics", "names"),
    [
        ("gibbs", 20, ["topics", "docs", "documents.counts"]),
        ("gibbs", 300, ["topics", "docs", "documents.entries"]),
        ("light", 20, ["topics", "docs", "documents.entries", "tokens"]),
        ("warp", 20, ["topics", "documents.position"]),
    ],
)
def test_what_grows_with_tokens_and_documents_lies_in_files(corpus, tmp_path, sampler, n_topics, names):
    for folder, kind in ((tmp_path, mmap.mmap), (None, np.ndarray)):
        state = _state(corpus, n_topics, sampler, folder)
        for shard, block in zip(state.states, state.blocks, strict=True):
            held = vars(shard) | {f"documents.{name}": a for name, a in vars(shard.documents).items()}
            for name in names:
                array = block.tokens if name == "tokens" else held[name]
                assert isinstance(_origin(array), kind), name
                assert array.flags.writeable
                assert array.flags.aligned
    largest = max(corpus.sum(), 64 * corpus.shape[0]) / len(state.states)
    for name, array in _arrays(_state(corpus, n_topics, sampler, tmp_path)).items():
        grows_with_words = name.endswith(("rows", "starts", "offset"))
        assert array.nbytes < largest / 4 or grows_with_words or isinstance(_origin(array), mmap.mmap), name


def test_labelled_counts_lie_in_files(corpus, tmp_path):
    labels = sparse.csr_array(np.ones((corpus.shape[0], 20)))
    state = _state(corpus, 20, "gibbs", tmp_path, labels=labels)
    assert all(isinstance(_origin(shard.documents.held), mmap.mmap) for shard in state.states)


@pytest.mark.parametrize("folder", ["absent", "file"])
def test_what_is_no_folder_is_refused(corpus, tmp_path, folder):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=rf"memmap_folder='.*{folder}' is no folder: make it first"):
        _lda(5, memmap_folder=tmp_path / folder).fit(corpus)


def test_a_disk_without_room_is_an_error_before_the_first_sweep(corpus, tmp_path):
    resource = pytest.importorskip("resource")
    lda, before = _lda(20, memmap_folder=tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(
            OSError, match=r"could not take [\d,]+ bytes in memmap_folder: make room"
        ) as caught:
            lda.fit(corpus, callback=lambda info: pytest.fail("it swept"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path)
    assert os.listdir(tmp_path) == []
    assert not hasattr(lda, "word_topic_counts_")
    lda.fit(corpus)


@pytest.mark.parametrize("fallocate", [True, False])
def test_arrays_are_zeros_and_room_is_taken(tmp_path, monkeypatch, fallocate):
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize if hasattr(os, "statvfs") else None
    array = Storage(tmp_path).zeros((3000, 1000), np.uint32)
    assert array.shape == (3000, 1000)
    assert not array.any()
    array[:] = 7
    assert (array == 7).all()
    if free is not None:
        now = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
        assert free - now > array.nbytes / 2
    assert Storage(tmp_path).zeros((0, 4), np.int32).shape == (0, 4)


# --- memory -----------------------------------------------------------------------------------------------


def _arrays(state):
    """All arrays that a fit holds, each once."""
    found = {}
    for g, shard in enumerate(state.states):
        both = vars(shard) | {f"documents.{name}": value for name, value in vars(shard.documents).items()}
        found |= {f"{g}.{name}": value for name, value in both.items() if isinstance(value, np.ndarray)}
        for name in ("words", "offsets"):
            parts = enumerate(state.program.shards[g][name])
            found |= {f"{g}.surveyed.{name}.{number}": array for number, array in parts}
    for b, block in enumerate(state.blocks):
        both = {f"block {b}.rows": block.rows, f"block {b}.tokens": block.tokens}
        found |= {name: array for name, array in both.items() if array is not None}
    return {min(n for n in found if found[n] is array): array for array in found.values()}


@pytest.mark.parametrize(
    "n_topics",
    [pytest.param(20, marks=pytest.mark.slow), 100, pytest.param(300, marks=pytest.mark.slow), 1000],
)
@pytest.mark.parametrize("sampler", ["gibbs", "warp", "light"])
@pytest.mark.parametrize("flat", [False, True], ids=["words as in text", "words of about K tokens"])
def test_the_bytes_that_a_token_takes(sampler, n_topics, flat):
    """Beside the counts of documents, and what an entry a word and group, a document and a topic takes."""
    n_words = max(240_000 // n_topics, 240) if flat else 4000
    rng = np.random.default_rng(0)
    weights = np.ones(n_words) if flat else 1 / (np.arange(n_words) + 2.7)
    X = sparse.csr_array(rng.multinomial(200, weights / weights.sum(), size=1000).astype(np.int32))
    state = _state(X, n_topics, sampler)
    counted = _arrays(state).items()
    tokens = ("position", "doc_start", "names")  # of warp, whose documents have no counts
    held = {
        name: a.nbytes
        for name, a in counted
        if not name.split(".", 1)[1].startswith("documents.") or name.endswith(tokens)
    }
    n_tokens, frequency = X.sum(), np.sort(X.sum(axis=0))[::-1]
    rare = n_tokens - frequency[: number_of_rows(frequency, n_topics)].sum()
    most = {"gibbs": 10 * n_tokens + 2 * rare, "warp": 8 * n_tokens, "light": 8 * n_tokens}[sampler]
    own = (16 * len(state.shards) + 72) * n_words + 40 * X.shape[0] + 64 * n_topics
    assert sum(held.values()) <= most + own, held
