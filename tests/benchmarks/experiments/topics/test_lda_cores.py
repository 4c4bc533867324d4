"""The table of threads: a row a fit, equal models, and an end in time."""

import json

import pytest

from stradask.benchmarks.experiments.topics import lda_cores
from stradask.datasets import make_lda_corpus
from stradask.errors import StradaskError


def test_a_row_for_each_number_of_threads(tmp_path, capsys):
    path = tmp_path / "cores.json"
    options = ["--samplers", "gibbs", "warp", "--topics", "10", "--threads", "1", "2", "--divide", "40"]
    lda_cores.main([*options, "--json", str(path)])
    found = json.loads(path.read_text())
    rows = found["rows"]
    assert [(row["sampler"], row["threads"]) for row in rows] == [
        ("gibbs", 1), ("gibbs", 2), ("warp", 1), ("warp", 2)
    ]  # fmt: skip
    for one, two in (rows[:2], rows[2:]):
        assert one["sweeps"] == two["sweeps"]
        assert one["log_likelihood"] == two["log_likelihood"]
        assert one["speed_up"] == 1
        assert two["speed_up"] == pytest.approx(one["seconds"] / two["seconds"])
        assert one["tokens_per_second"] == pytest.approx(found["corpus"]["tokens"] / one["seconds"])
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_rows_for_which_there_is_no_time_are_said(capsys):
    lda_cores.main(["--samplers", "gibbs", "--topics", "5", "--threads", "1", "2", "--divide", "400",
                    "--seconds", "0"])  # fmt: skip
    assert "2 of 2 rows are left out" in capsys.readouterr().out


def test_a_model_that_differs_is_an_error(monkeypatch):
    X = make_lda_corpus(50, 40, 3, random_state=0)[0]
    fitted, calls = lda_cores.fitted, []

    def differing(*arguments):
        calls.append(arguments)
        lda = fitted(*arguments)
        lda.history_["objective"][-1] += len(calls)
        return lda

    monkeypatch.setattr(lda_cores, "fitted", differing)
    with pytest.raises(StradaskError, match="2 threads give another model than 1"):
        list(lda_cores.measure(X, "gibbs", 3, (1, 2), 10.0))
