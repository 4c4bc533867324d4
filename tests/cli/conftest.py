"""A small corpus in files, and a model of it."""

import gzip
import lzma

import numpy as np
import pytest
from command_lines import run_fit
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from stradask import datasets


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A folder with one small corpus in all its forms, and its counts."""
    folder = tmp_path_factory.mktemp("corpus")
    X, *_ = datasets.make_lda_corpus(150, 60, 3, random_state=0)
    words = [f"word{i:02d}" for i in range(60)]
    datasets.save_uci_bow(X, folder / "docword", words, vocabulary_path=folder / "vocab")
    plain = (folder / "docword").read_bytes()
    (folder / "docword.gz").write_bytes(gzip.compress(plain))
    (folder / "docword.xz").write_bytes(lzma.compress(plain))
    dump_svmlight_file(X, np.zeros(150), str(folder / "svmlight"))
    sparse.save_npz(folder / "counts.npz", X)
    return folder, sparse.csr_matrix(X)


@pytest.fixture(scope="module")
def model(corpus):
    """The path of a saved model with its vocabulary."""
    folder, _ = corpus
    path = folder / "model.npz"
    assert run_fit(folder, "--save", str(path), "--quiet") == 0
    return path
