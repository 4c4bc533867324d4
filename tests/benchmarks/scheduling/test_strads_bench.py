"""``stradask bench strads`` end to end, and its judge against an independent one."""

import json

import numpy as np
import pytest
from sklearn import linear_model

from stradask.benchmarks.run import read_records
from stradask.benchmarks.scheduling import strads
from stradask.benchmarks.scheduling.group_blocks import GroupBlocks, make_groups
from stradask.cli.arguments import main
from stradask.scheduler import DynamicSchedule, run

SMALL = {"n": 60, "p": 100, "n_groups": 5}
SMALL_GROUPS = {"n": 80, "n_groups": 15, "size": 4, "n_clusters": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strads")
    options = ["--quick", "--param", "cluster=False", "sizes=32", "--max-seconds", "60"]
    assert main(["bench", "strads", *options, "--out", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_quick_look_shows_what_scheduling_buys(folder):
    runs = {(r["problem"], r["policy"]): r for r in read_records(folder / "records.jsonl")}
    assert len(runs) == 12
    reasons = {key: run["reason"] for key, run in runs.items()}
    for policy in strads.POLICIES:
        assert reasons["independent", policy] == "reached"
        for problem in ("correlated", "groups"):
            expected = "reached" if policy == "priority + dependency" else "diverged"
            assert reasons[problem, policy] == expected
    for record in runs.values():
        curve = record["curve"]
        assert len(curve["updates"]) == len(curve["seconds"]) == len(curve["excess"])
        assert (np.diff(curve["updates"]) > 0).all()
        assert curve["updates"][-1] == record["updates"]
        if record["reason"] == "reached":
            assert curve["excess"][-1] <= 1e-4 < min(curve["excess"][:-1])
            assert record["reached"]["0.0001"]["updates"] == record["updates"]


@pytest.mark.slow
def test_tables_and_page_hold_every_run(folder):
    records = read_records(folder / "records.jsonl")
    text = strads.table(records)
    assert text.count("diverges") == 24  # three schedules of two problems; four tables
    page = (folder / "report.html").read_text()
    assert page.count("<img ") == 2
    assert "priority + dependency diverges" not in page
    for record in records:
        if record["reason"] == "reached":
            assert f"{record['updates']:,}" in text
            assert f"<td>{record['updates']:,}</td>" in page
            middle = record["reached"]["0.001"]
            assert f"{middle['updates']:,} ({middle['seconds']:.3g})" in text
        own = next(iter(record["data"]["own"].values()))["0.001"]
        assert own["gap"] <= 1e-3
        assert f"({own['seconds']:.2g})" in text


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


def test_groups_come_to_the_minimum_of_proximal_gradient_steps():
    problem = make_groups("groups", **SMALL_GROUPS, seed=1)
    X, y, charge = problem.X, problem.y, problem.strength * np.sqrt(4)
    step = 1 / np.linalg.norm(X, 2) ** 2
    coef = ahead = np.zeros((15, 4))
    t = 1.0
    for _ in range(4000):  # FISTA, all groups at a time
        z = ahead - step * (X.T @ (X @ ahead.ravel() - y)).reshape(15, 4)
        norms = np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-300)
        new, t_new = np.maximum(0, 1 - step * charge / norms) * z, (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead, coef, t = new + (t - 1) / t_new * (new - coef), new, t_new
    objective = 0.5 * np.sum((y - X @ coef.ravel()) ** 2) + charge * np.linalg.norm(coef, axis=1).sum()
    assert problem.optimum == pytest.approx(objective, rel=1e-8)
    for policy in strads.POLICIES:
        figures = strads.measure(problem, policy, 3, max_updates=20_000, max_seconds=60)
        assert figures["reason"] == "reached"
        assert -1e-10 < figures["curve"]["excess"][-1] <= 1e-4


def test_the_reported_objective_of_groups_is_that_of_their_coefficients():
    problem = make_groups("groups", **SMALL_GROUPS, seed=2)
    program = problem.program(2)
    run(program, strads.make_schedule("priority + dependency", problem, 3, 15, 0), max_rounds=200)
    residual = problem.y - problem.X @ program.coef.ravel()
    norms = np.linalg.norm(program.coef, axis=1).sum()
    assert program.primal == pytest.approx(0.5 * residual @ residual + 2 * problem.strength * norms)
    assert problem.gap(program.coef.ravel()) < 1e-3


def test_groups_of_one_column_are_a_lasso():
    problem = strads.make_lasso("independent", n=60, p=40, n_groups=5, seed=1)
    program = GroupBlocks(problem.X, problem.y, problem.strength, 1, n_shards=2)
    program.measure_every = 1000
    run(program, DynamicSchedule(size=1, random_state=0), max_rounds=2000)
    fitted = linear_model.Lasso(problem.strength / 60, fit_intercept=False, tol=1e-12, max_iter=10**6)
    best = fitted.fit(problem.X, problem.y).coef_
    assert np.abs(best).max() > 0.1
    assert program.coef.ravel() == pytest.approx(best, abs=1e-3)
    assert problem.gap(program.coef.ravel()) < 1e-4


def test_groups_depend_by_their_rv_coefficient():
    problem = make_groups("groups", **SMALL_GROUPS, seed=1)
    images = [part @ part.T for part in np.split(problem.X, 15, axis=1)]
    products = np.array([[np.sum(left * right) for right in images] for left in images])
    rv = products / np.sqrt(np.outer(np.diag(products), np.diag(products)))
    assert np.array_equal(problem.conflicts(0.5), rv >= 0.25)
    assert 15 < problem.conflicts(0.5).sum() < 15**2


def test_many_updates_of_correlated_columns_diverge_unless_dependent_ones_are_kept_apart():
    problem = strads.make_lasso("correlated", n=100, p=400, n_groups=10, seed=0)
    limits = {"max_updates": 40_000, "max_seconds": 60}
    reasons = {policy: strads.measure(problem, policy, 32, **limits)["reason"] for policy in strads.POLICIES}
    kept_apart = reasons.pop("priority + dependency")
    assert kept_apart == "reached"
    assert set(reasons.values()) == {"diverged"}


@pytest.mark.parametrize("size", [8, 32])
def test_on_independent_columns_random_order_does_as_well(size):
    problem = strads.make_lasso("independent", n=400, p=400, n_groups=10, seed=0)
    limits = {"max_updates": 40_000, "max_seconds": 60}
    blind, scheduled = (
        strads.measure(problem, policy, size, **limits) for policy in ("random", "priority + dependency")
    )
    assert blind["reason"] == scheduled["reason"] == "reached"
    assert blind["updates"] < 2 * scheduled["updates"]


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["correlated", "groups"])
def test_two_processes_make_the_same_updates(name):
    groups = make_groups("groups", **SMALL_GROUPS, seed=1)
    problem = groups if name == "groups" else strads.make_lasso("correlated", **SMALL, seed=1)
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
        ("--dataset news20", "strads has independent, correlated, groups, not 'news20'"),
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


def test_records_from_before_the_estimators_were_timed_have_a_page():
    curve = {"updates": [0, 5], "seconds": [0.0, 0.1], "excess": [1.0, 1e-5]}
    point = {"updates": 5, "seconds": 0.1}
    own = {"Lasso": {f"{target:g}": {"seconds": 0.02, "gap": 1e-5} for target in (1e-2, 1e-3, 1e-4)}}
    about = {"machine": {"processor": "one", "cores": 1, "memory_gb": 1.0, "system": "x", "python": "3"}}
    about |= {"seed": 0, "started": "2026-01-01T00:00:00+00:00", "family": "strads", "settings": {"seed": 0}}

    def record(problem, place, **more):
        data = {"n": 4, "p": 8, "optimum": 1.0, "limit": 2.0, **more}
        return about | {
            "problem": problem, "place": place, "policy": "cyclic", "size": 1, "data": data, "rounds": 5,
            "updates": 5, "reason": "reached", "curve": curve,
            "reached": {f"{target:g}": point for target in (1e-2, 1e-3, 1e-4)},
        }  # fmt: skip

    old = [record("independent", "two processes"), record("correlated", "two processes")]
    assert "Lasso" not in strads.table(old)
    assert "CPU seconds of the estimators" not in str(strads.page(old).html())
    both = [record("independent", "local", own=own), *old]
    rows = [line for line in strads.table(both).splitlines() if "`Lasso` (0.02)" in line]
    assert len(rows) == 2  # of both places; the other problem has none
    assert "Lasso 0.02 (independent)" in str(strads.page(both).html())
