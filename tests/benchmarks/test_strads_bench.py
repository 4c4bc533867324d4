"""``stradask bench strads`` end to end, and its judge against an independent one."""

import json

import numpy as np
import pytest
from sklearn import linear_model

from stradask.benchmarks import strads
from stradask.benchmarks.run import read_records
from stradask.cli.arguments import main

SMALL = {"n": 60, "p": 100, "n_groups": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strads")
    options = ["--quick", "--param", "cluster=False", "sizes=32", "--max-seconds", "60"]
    assert main(["bench", "strads", *options, "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_quick_look_shows_what_scheduling_buys(folder):
    runs = {(r["problem"], r["policy"]): r for r in read_records(folder / "records.jsonl")}
    assert len(runs) == 8
    reasons = {key: run["reason"] for key, run in runs.items()}
    for policy in strads.POLICIES:
        assert reasons["independent", policy] == "reached"
        assert reasons["correlated", policy] == (
            "reached" if policy == "priority + dependency" else "diverged"
        )
    for run in runs.values():
        curve = run["curve"]
        assert len(curve["updates"]) == len(curve["seconds"]) == len(curve["excess"])
        assert (np.diff(curve["updates"]) > 0).all()
        assert curve["updates"][-1] == run["updates"]
        if run["reason"] == "reached":
            assert curve["excess"][-1] <= 1e-4 < min(curve["excess"][:-1])
            assert run["reached"]["0.0001"]["updates"] == run["updates"]


@pytest.mark.slow
def test_tables_and_page_hold_every_run(folder):
    records = read_records(folder / "records.jsonl")
    text = strads.table(records)
    assert text.count("diverges") == 9  # three schedules; updates, rounds and seconds
    page = (folder / "report.html").read_text()
    assert page.count("<img ") == 2
    assert "priority + dependency diverges" not in page
    for record in records:
        if record["reason"] == "reached":
            assert f"{record['updates']:,}" in text
            assert f"<td>{record['updates']:,}</td>" in page


def test_the_objective_is_that_of_the_lasso():
    problem = strads.make_lasso("correlated", **SMALL, seed=1)
    figures = strads.measure(problem, "random", 1, max_updates=20_000, max_seconds=60)
    assert figures["reason"] == "reached"
    X, y, strength = problem.X, problem.y, problem.strength
    coef = (
        linear_model.Lasso(strength / len(y), fit_intercept=False, tol=1e-12, max_iter=10**6).fit(X, y).coef_
    )
    objective = 0.5 * np.sum((y - X @ coef) ** 2) + strength * np.abs(coef).sum()
    assert problem.optimum == pytest.approx(objective, rel=1e-8)
    assert problem.limit == pytest.approx(100 / np.linalg.norm(X / np.linalg.norm(X, axis=0), 2) ** 2)
    excess = figures["curve"]["excess"]
    assert min(excess) > -1e-10
    assert excess[0] == pytest.approx((0.5 * y @ y - objective) / (0.5 * y @ y), rel=1e-5)


@pytest.mark.cluster
def test_two_processes_make_the_same_updates():
    problem = strads.make_lasso("correlated", **SMALL, seed=1)
    options = {"max_updates": 400, "max_seconds": 60}
    with strads.engines(strads.PLACES) as places:
        here, there = (
            strads.measure(problem, "priority + dependency", 8, engine=engine, **options)
            for _, engine in places
        )
    assert here["curve"]["updates"] == there["curve"]["updates"]
    assert here["curve"]["excess"] == there["curve"]["excess"]
    assert here["bytes_sent"] == 0 < there["bytes_sent"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--against sklearn", "has no peers"),
        ("--dataset news20", "strads has independent and correlated, not 'news20'"),
        ("--param size=3", "strads has the parameters cluster and sizes"),
    ],
)
def test_what_it_does_not_have(arguments, message, capsys, tmp_path):
    assert main(["bench", "strads", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_json_is_the_records(capsys, tmp_path):
    options = ["--quick", "--dataset", "independent", "--param", "cluster=False", "sizes=128", "--json"]
    assert main(["bench", "strads", *options, "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == read_records(tmp_path / "records.jsonl")
