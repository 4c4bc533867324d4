"""The command line over several files, on this machine and on a cluster."""

import json
import logging
import re

import numpy as np
import pytest
from distributed import LocalCluster
from scipy import sparse

import stradask as sd
from stradask.cli.arguments import main
from stradask.datasets import read_uci_bow, save_uci_bow
from stradask.datasets.generators import make_lda_corpus

PARAMS = ["--param", "n_components=3", "max_iter=10", "sampler='gibbs'", "n_groups=3"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    X = sparse.csr_matrix(make_lda_corpus(90, n_features=40, n_components=3, random_state=0)[0])
    save_uci_bow(X, folder / "docword.all.txt.gz", [f"word{i}" for i in range(40)])
    return folder, X


def test_a_file_is_cut_and_its_parts_are_fitted(corpus, tmp_path, capsys):
    folder, X = corpus
    whole = str(folder / "docword.all.txt.gz")
    assert main(["data", "shard", whole, "--shards", "4", "--out", str(tmp_path), "--json"]) == 0
    paths = json.loads(capsys.readouterr().out)["paths"]
    assert len(paths) == 4
    parts = [read_uci_bow(path) for path in paths]
    np.testing.assert_array_equal(sparse.vstack(parts).toarray(), X.toarray())
    vocab = ["--vocab", str(folder / "vocab.all.txt")]
    command = ["fit", "lda", *paths, *PARAMS, *vocab, "--json", "--save", str(tmp_path / "a.npz")]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["data"]["files"] == 4
    assert told["topics"][0]["words"][0].startswith("word")
    options = {"processes": False, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        command[-1] = str(tmp_path / "b.npz")
        assert main([*command, "--cluster", cluster.scheduler_address]) == 0
    models = [sd.load(tmp_path / name) for name in ("a.npz", "b.npz")]
    assert (models[0].word_topic_counts_ != models[1].word_topic_counts_).nnz == 0
    assert models[0].word_topic_counts_.sum() == X.sum()
    assert models[1].vocabulary_[0] == "word0"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["fit", "lasso", "a", "b"], "2 files are a corpus only for lda"),
        (["fit", "lda", "a", "b.npz"], "2 files are a corpus only for lda"),
        (["fit", "lda", "missing.1", "missing.2"], "missing.1: cannot be opened"),
        (["fit", "lda", "FILE", "FILE"], "twice"),
        (
            ["fit", "lda", "FILE", "OTHER", "--test-size", "0.1"],
            "--test-size holds out documents of one file",
        ),
        (["data", "shard", "FILE", "--shards", "91"], "n_shards=91: .* has 90 documents"),
        (["data", "shard", "missing", "--shards", "2"], "missing: cannot be opened"),
    ],
)
def test_mistakes(corpus, tmp_path, capsys, options, says):
    folder, X = corpus
    other = tmp_path / "docword.b.txt"
    save_uci_bow(X, other)
    names = {"FILE": str(folder / "docword.all.txt.gz"), "OTHER": str(other)}
    assert main([names.get(option, option) for option in options]) != 0
    assert re.search(says, capsys.readouterr().err.replace("\n", " "))
