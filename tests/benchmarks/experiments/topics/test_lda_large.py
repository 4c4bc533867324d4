"""The benchmark of huge numbers of topics says what it saw, and survives a fit that does not fit."""

import json

import pytest

from stradask import datasets
from stradask.benchmarks.experiments.topics import lda_large
from stradask.errors import DataError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "docword.small.txt"
    X, *_ = datasets.make_lda_corpus(300, 200, 5, mean_length=60, random_state=0)
    datasets.save_uci_bow(X, path)
    return path, X


def records(capfd, path, *options):
    options = ["--dataset", str(path), "--sweeps", "3", "--samplers", "warp", *options]
    lda_large.main(options)
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.slow
def test_a_record_a_fit(corpus, capfd):
    path, X = corpus
    few, many = records(capfd, path, "--n-components", "5", "4000")
    assert few["data"] == {"name": path.name, "tokens": int(X.sum()), "words": X.shape[1]}
    assert few["topics_in_use"] == 5
    assert 5 < many["topics_in_use"] <= 4000
    for seen in (few, many):
        assert seen["tokens_per_second"] > 0
        assert 0 <= seen["training_mb"] < seen["peak_mb"]
        assert -20 < seen["log_likelihood"] < 0
        assert [part["name"] for part in seen["ran"]] == ["warp"]


def test_a_fit_beyond_the_limit_is_a_record_too(corpus, capfd):
    path, _ = corpus
    (seen,) = records(capfd, path, "--n-components", "60000000", "--limit-gb", "0.2")
    assert "out of memory" in seen["error"] or "ended with status" in seen["error"]


def test_the_first_sweep_is_not_timed(corpus):
    with pytest.raises(DataError, match="--sweeps is 1; 2 or more"):
        lda_large.main(["--dataset", str(corpus[0]), "--sweeps", "1"])
