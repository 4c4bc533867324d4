"""``stradask bench ssp`` end to end in simulated time, and what it measures against what must come out."""

import argparse
import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from stradask.benchmarks import command, run
from stradask.benchmarks.experiments import parts, readme
from stradask.benchmarks.pages.tables import latest_run
from stradask.benchmarks.run import read_records
from stradask.benchmarks.scheduling import ssp
from stradask.errors import DataError


def arguments(folder, **change):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    args = parser.parse_args(["ssp", "--quick", "--out", str(folder)])
    return argparse.Namespace(**vars(args) | {"param": [("cluster", False), ("threads", False)]} | change)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ssp")
    assert command.main(arguments(folder)) == 0
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    return {(r["slowness"], r["staleness"]): r for r in read_records(folder / "records.jsonl")}


def test_time_is_what_the_bound_makes_of_the_slow_clocks(runs):
    """The last clock begins when all have done n - 1 - s; by hand, from the table of durations."""
    n = ssp.QUICK["clocks"]
    for (slowness, name), record in runs.items():
        units = ssp.slow_clocks(slowness, n, 0)
        ends = np.zeros((ssp.N_REPLICAS, n))
        for clock in range(n):
            due = clock - float(name) - 1  # the last clock that all must have done
            wait = ends[:, int(due)].max() if due >= 0 else 0.0
            begin = np.maximum(ends[:, clock - 1] if clock else np.zeros(ssp.N_REPLICAS), wait)
            ends[:, clock] = begin + units[:, clock]
            assert record["curve"]["seconds"][clock] == pytest.approx(begin[0])
        waited = record["curve"]["seconds"][-1] - units[0, :-1].sum()
        assert record["waiting"] == pytest.approx(waited / ends[0, -1], abs=1e-3)


def test_staleness_takes_up_slow_clocks_that_change_places_but_not_a_slow_replica(runs):
    changing = [runs["in turns", str(s)]["units"] for s in ssp.STALENESS]
    assert changing == sorted(changing, reverse=True)
    assert changing[3] < 0.5 * changing[0]
    one = [runs["one replica", str(s)]["units"] for s in ssp.STALENESS]
    assert one[3] > 0.9 * one[0]
    assert one[4] == ssp.QUICK["clocks"] - 1
    for (slowness, name), record in runs.items():
        assert record["apart"] <= float(name)
        if slowness == "one replica":
            assert record["apart"] == min(float(name), ssp.QUICK["clocks"] // 2 - 1)
    assert all(record["reached"] is not None for record in runs.values())


def test_the_minimum_is_that_of_another_library():
    problem = ssp.make_problem(n=400, p=5, seed=1)
    X, y = (np.concatenate(parts) for parts in zip(*problem.portions, strict=True))
    w = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(X, y).coef_[0]
    assert problem.optimum == pytest.approx(np.logaddexp(0, -y * (X @ w)).mean(), rel=1e-8)
    assert problem.excess(w) == pytest.approx(0, abs=1e-9)
    assert problem.excess(np.zeros(5)) == pytest.approx(math.log(2) - problem.optimum)


def test_table_and_page_hold_every_run(folder, runs):
    text = ssp.table(list(runs.values()))
    page = (folder / "report.html").read_text()
    assert page.count("<img ") == 1
    for record in runs.values():
        assert f"{record['reached']:,.0f} ({record['waiting']:.0%})" in text
    assert "not reached" not in text
    late = ssp.times_table([runs["in turns", "0"] | {"reached": None}]).rows
    assert late == [["simulated, slow: in turns", "not reached (63%)", "", "", "", ""]]


def test_threads_give_the_model_of_simulated_time_without_staleness():
    problem = ssp.make_problem(n=200, p=4, seed=0)
    options = {"n_clocks": 12, "seed": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssp, "UNIT", 1e-4)
        real = ssp.measure(problem, 0, "in turns", engine="local", **options)
    simulated = ssp.measure(problem, 0, "in turns", **options)
    assert real["curve"]["excess"] == simulated["curve"]["excess"]
    assert real["curve"]["seconds"] != simulated["curve"]["seconds"]


def test_json_is_the_records(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ssp, "STALENESS", (1,))
    assert command.main(arguments(tmp_path, json=True)) == 0
    assert json.loads(capsys.readouterr().out) == read_records(tmp_path / "records.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"against": ["sklearn"]}, "has no peers"),
        ({"dataset": ["news20"]}, "draws its own data"),
        ({"param": [("size", 3)]}, "ssp has the parameters cluster and threads"),
    ],
)
def test_what_it_does_not_have(change, message, tmp_path):
    with pytest.raises(DataError, match=message):
        command.main(arguments(tmp_path, **change))


def test_the_page_holds_what_was_measured(tmp_path):
    pytest.importorskip("matplotlib")
    all_records = readme.records_of("ssp")
    part = parts.PARTS["ssp"]
    assert part.write(all_records, tmp_path) in (readme.ROOT / "docs" / part.page).read_text()
    assert (tmp_path / "ssp.png").exists()
    assert (readme.ROOT / "docs" / "ssp.png").exists()
    records = latest_run(all_records)
    assert [(r["slowness"], r["staleness"]) for r in records if r["place"] == "simulated"] == [
        (slowness, str(staleness)) for slowness in ssp.SLOWNESS for staleness in ssp.STALENESS
    ]
    assert records[0]["data"].items() >= ssp.WHOLE.items()
    older = [{"run": "a"}, {"run": "b"}, {"run": "b"}]
    assert latest_run(older) == older[1:]
