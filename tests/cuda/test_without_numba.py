"""A GPU is driven without numba and Dask: a fit, its likelihood, priors, inference and a checkpoint."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cuda_devices import emulated
from cuda_emulator import HERE, EmulatedDevice

import stradask as sd
from stradask.algorithms.topics.samplers.saber import common_tree
from stradask.datasets.generators import make_lda_corpus
from stradask.kernels import random
from stradask.kernels.cuda.device import standing_in
from stradask.kernels.lda import blocks as lda_blocks
from stradask.kernels.lda import gibbs as lda_gibbs
from stradask.kernels.lda import host as lda_host
from stradask.kernels.lda import saber as lda_saber
from stradask.kernels.lda.alias import alias_tables

ROOT = Path(sd.__file__).resolve().parents[1]
SCRIPT = """
import sys
for name in ("numba", "llvmlite", "dask", "distributed"):
    sys.modules[name] = None  # an import of it fails
import numpy as np
import stradask as sd
from cuda_emulator import EmulatedDevice
from stradask.datasets.generators import make_lda_corpus
from stradask.kernels.cuda.device import standing_in

X = make_lda_corpus(40, n_features=50, n_components=3, mean_length=30, random_state=0)[0]
options = {"sampler": sys.argv[3], "device": "cuda", "random_state": 0, "tol": 0.0, "optimize_priors": True}
with standing_in(EmulatedDevice()):
    lda = sd.LatentDirichletAllocation(3, checkpoint=sys.argv[1], max_iter=21, **options).fit(X)
    lda = sd.LatentDirichletAllocation(3, checkpoint=sys.argv[1], max_iter=22, **options).fit(X)
    shares = lda.transform(X[:3], n_sweeps=10)
    np.savez(sys.argv[2], shares=shares, score=lda.score(X), words=lda.word_topic_counts_.toarray(),
             documents=lda.doc_topic_counts_.toarray(), alpha=lda.doc_topic_prior_, trace=lda.log_likelihood_)
"""


def _found(sampler, folder):
    """What the script finds."""
    path = os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", SCRIPT, str(folder / "kept"), str(folder / "found.npz"), sampler]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(folder / "found.npz")


@emulated
@pytest.mark.parametrize("sampler", ["saber", pytest.param("light", marks=pytest.mark.slow)])
def test_a_fit_on_a_gpu_imports_no_numba_and_is_the_cpus(sampler, tmp_path):
    found = _found(sampler, tmp_path)
    X = make_lda_corpus(40, n_features=50, n_components=3, mean_length=30, random_state=0)[0]
    lda = sd.LatentDirichletAllocation(3, sampler=sampler, random_state=0, optimize_priors=True)
    lda.set_params(max_iter=21, checkpoint=tmp_path / "own", tol=0.0)
    if sampler == "light":  # the CPU's own chain is another; `test_light_cuda` holds this one against it
        lda.set_params(device="cuda")
    with standing_in(EmulatedDevice()):
        lda.fit(X)
        lda.set_params(max_iter=22).fit(X)
    assert np.ptp(found["alpha"]) > 0
    assert (found["words"] == lda.word_topic_counts_.toarray()).all()
    assert (found["documents"] == lda.doc_topic_counts_.toarray()).all()
    np.testing.assert_array_equal(found["alpha"], lda.doc_topic_prior_)
    np.testing.assert_allclose(found["trace"], lda.log_likelihood_, rtol=1e-10)
    lda.set_params(device="cpu")
    np.testing.assert_allclose(found["shares"], lda.transform(X[:3], n_sweeps=10), rtol=1e-4, atol=1e-6)
    assert found["score"] == pytest.approx(lda.score(X), rel=1e-5)


def test_the_modules_of_a_gpu_import_no_numba():
    names = [f"lda.{path.stem}" for path in sorted((ROOT / "kernels" / "lda").glob("*_cuda.py"))]
    names += ["lda.host", "lda.light_chunks", "lda.saber_chunks", "cuda.device", "cuda.launch", "cuda.chunks"]
    script = "import sys; sys.modules['numba'] = sys.modules['distributed'] = None; import importlib\n"
    script += "".join(f"importlib.import_module('stradask.kernels.{name}')\n" for name in names)
    script += "import stradask.algorithms.topics.lda, stradask.algorithms.topics.samplers.choose\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], env=environment, timeout=300, check=True)


# What stands for numba's functions ------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1024, 2**32 - 3])
def test_uniforms_are_those_of_numba(first):
    expected = np.empty(40, np.float32)
    name = (np.uint64(2**63 + 11), 4, 7, 2**31 + 5)
    random.fill_uniform(expected, first, *name)
    found = lda_host.uniforms(np.arange(first, first + 10), *name)
    assert (found.reshape(-1) == expected).all()


def test_tokens_lie_word_by_word_and_begin_as_by_numba():
    X = make_lda_corpus(3000, n_features=60, n_components=3, mean_length=100, random_state=1)[0].tocsr()
    X.data[0] += 5
    rng = np.random.default_rng(0)
    order, n = rng.permutation(X.shape[0]), int(X.sum())
    assert len(lda_host.lots(n)) > 1
    token_doc, counts = np.zeros(n, np.uint32), X.toarray()[order]
    word_start = lda_host.lay_out(X, order, token_doc)
    assert (word_start == np.append(0, np.cumsum(counts.sum(axis=0)))).all()
    assert (token_doc == [d for word in counts.T for d in np.repeat(np.arange(len(word)), word)]).all()
    choices, spread = rng.random((len(order), 3), np.float32), rng.random(len(order)) < 0.3
    topics = [np.zeros(n, np.uint16) for _ in range(2)]
    model = (1000, choices, spread, np.uint64(2**40 + 1), 4)
    for first in lda_host.lots(n):
        lda_host.assign_first(token_doc, topics[0], *model, first)
    lda_blocks.assign_first(word_start, word_start[:-1], token_doc, topics[1], *model)
    assert (topics[0] == topics[1]).all()


@pytest.mark.parametrize("n_topics", [1, 2, 31, 32, 33, 1000, 1024, 1025, 32768])
def test_the_common_tree_is_that_of_numba(n_topics):
    rng = np.random.default_rng(n_topics)
    alpha, inverse = (rng.gamma(1, size=n_topics).astype(np.float32) for _ in range(2))
    groups, tops = np.empty(-(-n_topics // 32), np.float32), np.empty(32, np.float32)
    lda_saber.grow_tree(alpha, inverse, groups, tops)
    found = common_tree(alpha, inverse)
    assert (found[0] == groups).all()
    assert (found[1] == tops).all()


@pytest.mark.parametrize("n_topics", [1, 3, 1000])
def test_documents_are_listed_as_by_numba(n_topics):
    rng = np.random.default_rng(n_topics)
    token_doc = np.sort(rng.integers(0, 40, (30, 50)), axis=1).astype(np.uint32).reshape(-1)  # by word
    topics = rng.integers(0, n_topics, len(token_doc)).astype(np.uint16)
    token_doc[token_doc == 7] = 8  # one is empty
    lengths = np.bincount(token_doc, minlength=41)
    start = np.append(0, np.cumsum(-(-np.minimum(lengths, n_topics) // 16)))
    entries, n_lines = np.full(start[-1] * 16, 1, np.uint32), np.zeros(41, np.int32)
    lda_gibbs.list_documents(token_doc, topics, entries, start, n_lines, 9)
    found = lda_host.list_documents(token_doc, topics, start, 9)
    assert (found[0] == entries).all()
    assert (found[1] == n_lines).all()
    listed = lda_host.listed(entries, start, n_lines, line=16, shift=9)
    assert (listed[2] == [len(np.unique(topics[token_doc == d])) for d in range(41)]).all()
    assert listed[1].sum() == len(token_doc)


@pytest.mark.parametrize("n_topics", [1, 2, 50, 1000])
def test_alias_tables_are_those_of_numba(n_topics):
    weights = np.random.default_rng(n_topics).gamma(0.3, size=n_topics) + 1e-9
    tables = [(np.empty(n_topics, np.int64), np.empty(n_topics, np.uint32)) for _ in range(2)]
    for fill, table in zip((alias_tables, lda_host.alias_tables), tables, strict=True):
        fill(weights, *table)
    for one, other in zip(*tables, strict=True):
        assert (one == other).all()


def test_tokens_of_chunks_and_pieces_of_ranges():
    X = make_lda_corpus(30, n_features=20, n_components=3, mean_length=10, random_state=1)[0].tocsr()
    order, cuts = np.random.default_rng(0).permutation(30), np.array([0, 7, 7, 30])
    token_doc = np.zeros(int(X.sum()), np.uint32)
    word_start = lda_host.lay_out(X, order, token_doc)
    begin = lda_host.begins(X, order, cuts, word_start)
    assert (begin[0] == word_start[:-1]).all()
    assert (begin[-1] == word_start[1:]).all()
    for c in range(3):
        tokens = lda_host.tokens_between(begin[c], begin[c + 1])
        assert (tokens == np.flatnonzero((token_doc >= cuts[c]) & (token_doc < cuts[c + 1]))).all()
    which, first, last = lda_host.cut(np.array([3, 5, 9]), np.array([10, 5, 11]), np.array([3, 0, 2]))
    assert list(zip(which, first, last, strict=True)) == [
        (0, 3, 5),
        (0, 5, 7),
        (0, 7, 10),
        (2, 9, 10),
        (2, 10, 11),
    ]
