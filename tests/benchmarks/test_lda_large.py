"""The benchmark of huge numbers of topics says what it saw, and survives a fit that does not fit."""

import json

import pytest

from stradask import datasets
from stradask.__main__ import main
from stradask.benchmarks.run import read_records


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "docword.small.txt"
    X, *_ = datasets.make_lda_corpus(300, 200, 5, mean_length=60, random_state=0)
    datasets.save_uci_bow(X, path)
    return path, X


def bench(path, out, *settings):
    options = ["--dataset", str(path), "--out", str(out), "--json"]
    return main(["bench", "lda-large", *options, "--param", "sweeps=3", "light=False", *settings])


@pytest.mark.slow
def test_a_record_a_fit(corpus, tmp_path, capfd):
    path, X = corpus
    assert bench(path, tmp_path, "n_components=5,4000") == 0
    few, many = read_records(tmp_path / "records.jsonl")
    assert json.loads(capfd.readouterr().out) == [few, many]
    assert few["data"] == {"name": path.name, "tokens": int(X.sum()), "words": X.shape[1]}
    assert few["topics_in_use"] == 5
    assert 5 < many["topics_in_use"] <= 4000
    for seen in (few, many):
        assert seen["tokens_per_second"] > 0
        assert 0 <= seen["training_mb"] < seen["peak_mb"]
        assert -20 < seen["log_likelihood"] < 0
        assert [part["name"] for part in seen["ran"]] == ["warp"]


def test_a_fit_beyond_the_limit_is_a_record_too(corpus, tmp_path, capfd):
    path, _ = corpus
    assert bench(path, tmp_path, "n_components=60000000", "limit_gb=0.2") == 0
    (seen,) = json.loads(capfd.readouterr().out)
    assert "out of memory" in seen["error"] or "ended with status" in seen["error"]


@pytest.mark.parametrize(
    ("option", "said"),
    [("sweeps=1", "sweeps=1: give 2 or more"), ("topics=3", "'topics' is none of lda-large's: n_components")],
)
def test_settings_that_cannot_be_are_refused(corpus, tmp_path, capfd, option, said):
    assert bench(corpus[0], tmp_path, option) == 2
    assert said in capfd.readouterr().err


def test_the_tables_have_a_row_a_fit():
    from stradask.benchmarks.comparisons.lda_large import table

    data = {"name": "generated", "tokens": 1234, "words": 50}
    fit = {"data": data, "n_jobs": 2, "n_components": 1000}
    figures = {"tokens_per_second": 2.5e6, "cpu_ns_per_token": 800.0, "peak_mb": 1500.0, "training_mb": 9.0}
    text = table(
        [fit | {"sampler": "light", "error": "x"}, fit | {"sampler": "warp", "topics_in_use": 999} | figures]
    )
    assert "generated: 1,234 tokens of 50 words, 2 threads" in text
    assert text.splitlines()[-1].split() == ["warp,", "1,000", "topics", "2.5", "800", "1,500", "9", "999"]
    assert "out of memory" in text
