"""Families that solve, end to end: the search over tolerances, the runner, the command."""

import argparse
import contextlib
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from stradask import datasets
from stradask.benchmarks import command, linear_cases, run, solvers
from stradask.benchmarks.objectives import lasso as lasso_objective
from stradask.benchmarks.runs import requested, solving
from stradask.benchmarks.runs.process import WORKER

# Coordinate descent in plain NumPy: its tolerance is the largest change of a sweep.
DESCENT = """
import os, signal, time
import numpy as np

class Solver:
    name = "{name}"
    method = "plain"
    requires = ("numpy",)
    tolerances = (1e-1, 1e-9)

    def __init__(self, settings):
        self.settings = settings

    def set_data(self, data):
        self.X, self.y = np.asarray(data.X.todense() if hasattr(data.X, "todense") else data.X), data.y

    def solve(self, alpha, tolerance):
        print("noise on stdout")
        {first}
        n, p = self.X.shape
        squares = (self.X**2).sum(axis=0)
        b, r = np.zeros(p), self.y.copy()
        while True:
            change = 0.0
            for j in np.flatnonzero(squares):
                old = b[j]
                at = self.X[:, j] @ r + squares[j] * old
                b[j] = np.sign(at) * max(abs(at) - n * alpha, 0) / squares[j]
                r += self.X[:, j] * (old - b[j])
                change = max(change, abs(b[j] - old))
            if change < tolerance:
                return dict(coef={coef}, intercept=0.0)
"""


def write_solver(folder, name, first="pass", coef="b"):
    (folder / f"lasso_{name}.py").write_text(DESCENT.format(name=name, first=first, coef=coef))


@pytest.fixture(scope="module")
def svmlight(tmp_path_factory):
    from sklearn.datasets import dump_svmlight_file

    X, y, _ = datasets.make_sparse_regression(60, 30, n_informative=5, density=0.3, random_state=0)
    path = tmp_path_factory.mktemp("data") / "tiny.svm"
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return str(path)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of solvers in place of the package's own."""
    place = tmp_path / "solvers" / "lasso"
    place.mkdir(parents=True)
    monkeypatch.setattr(solvers, "FOLDER", place.parent)
    return place


def plan(svmlight, tmp_path, **changes):
    settings = {"datasets": (svmlight,), "repeats": 1, "out": tmp_path / "out"}
    return run.Plan("lasso", **(settings | changes))


# ----------------------------------------------------------------------------------- the search


def searched(gap_of, targets=(1e-4, 1e-6), tolerances=(1e-1, 1e-8)):
    asked = []

    def gap_at(tolerance):
        asked.append(tolerance)
        return gap_of(tolerance)

    solving.search(gap_at, targets, tolerances)
    return asked


@pytest.mark.parametrize("lead", [150, 300, 700])
def test_the_loosest_quarter_of_a_decade_that_meets_each_target_is_found(lead):
    asked = searched(lambda tolerance: tolerance / lead)
    assert len(asked) == len(set(asked))
    for target in (1e-4, 1e-6):
        loosest = max(tolerance for tolerance in asked if tolerance / lead <= target)
        assert loosest * 10**0.25 / lead > target
    assert min(asked) == pytest.approx(1e-4)  # nothing tighter than the last target needs


def test_a_solver_that_stops_just_below_its_tolerance_is_not_searched_further():
    assert searched(lambda tolerance: 0.9 * tolerance) == pytest.approx([10.0**-k for k in range(1, 7)])


def test_a_gap_that_never_comes_ends_with_the_tightest_tolerance():
    assert searched(lambda tolerance: 1.0) == pytest.approx([10.0**-k for k in range(1, 9)])


def test_a_gap_that_is_there_at_once_takes_one_solve():
    assert searched(lambda tolerance: 0.0) == [pytest.approx(0.1)]


@pytest.mark.parametrize("most", [0.02, 0.04, 0.07])
def test_a_tolerance_that_takes_too_long_is_loosened_until_there_is_time(most):
    # Quarters of a decade: 1e-1, 5.6e-2, 3.2e-2, 1.8e-2, 1e-2; all below `most` take too long.
    finished = []

    def gap_of(tolerance):
        if tolerance < most:
            return None
        finished.append(tolerance)
        return tolerance

    asked = searched(gap_of, targets=(0.08,))
    assert min(finished) / 10**0.5 < most
    assert len(asked) <= 4
    assert searched(lambda tolerance: None) == [pytest.approx(0.1)]


def test_a_gap_that_does_not_fall_with_the_tolerance_ends_too():
    gaps = iter([1e-3, 1e-5, 1e-2, *[1e-9] * 20])
    assert len(searched(lambda tolerance: next(gaps))) < 8


# ----------------------------------------------------------------------------------- the runner


def test_a_solver_is_stepped_and_judged_from_outside(svmlight, folder, tmp_path):
    write_solver(folder, "plain")
    records = run.run(plan(svmlight, tmp_path, parameters={"divisor": (10, 50)}, repeats=2))
    assert [(r["problem"], r["repeat"], r["status"]) for r in records] == [
        ("/10", 0, "ok"),
        ("/50", 0, "ok"),
        ("/10", 1, "ok"),
        ("/50", 1, "ok"),
    ]
    for record in records:
        solves = sorted(record["solves"], key=lambda solve: -solve["tolerance"])
        assert solves[-1]["gap"] <= 1e-8 < solves[0]["gap"]
        assert solves[0]["objective"] > solves[-1]["objective"] > 0
        assert all(solve["seconds"] > 0 and solve["cpu_seconds"] > 0 for solve in solves)
        assert not record["over_time"]
        assert record["data"]["name"] == "tiny"
        assert record["settings"]["intercept"] is False
        assert record["versions"]["numpy"] == np.__version__
    assert records[0]["solves"][-1]["objective"] > records[1]["solves"][-1]["objective"]


@pytest.mark.parametrize(
    ("pastime", "divisors"),
    [("pass", (10, 50)), pytest.param("time.sleep(600)", (10,), marks=pytest.mark.slow)],
)
def test_a_call_beyond_the_time_is_ended_and_what_was_solved_is_kept(
    svmlight, folder, tmp_path, monkeypatch, pastime, divisors
):
    # The warm-up, with tolerances of 1e-3 and 1e-8, gets through, and so does what is a little looser.
    write_solver(folder, "slow", f"while 1e-7 < tolerance < 1.1e-4: {pastime}")
    monkeypatch.setattr(requested, "WALL", 8 if "sleep" in pastime else 100)
    records = run.run(plan(svmlight, tmp_path, parameters={"divisor": divisors}, max_seconds=0.7))
    assert [(record["status"], record.get("error")) for record in records] == [("ok", None)] * len(divisors)
    for record in records:  # the second problem has a process of its own after the first was ended
        assert record["over_time"]
        assert record["solves"]
        assert min(solve["tolerance"] for solve in record["solves"]) == pytest.approx(10**-3.5)


@pytest.mark.parametrize(
    ("first", "coef", "said"),
    [
        ("raise RuntimeError('the engine fell off')", "b", "RuntimeError: the engine fell off"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "b", "killed by SIGSEGV"),
        pytest.param("pass", "b[:-1]", "coef has the shape (29,)", marks=pytest.mark.slow),
        ("pass", "b * np.nan", "not finite"),
        pytest.param("os._exit(0)", "b", "ended with status 0", marks=pytest.mark.slow),
    ],
    ids=["raises", "signal", "shape", "nan", "silent"],
)
def test_what_goes_wrong_is_a_record_and_the_others_go_on(svmlight, folder, tmp_path, first, coef, said):
    write_solver(folder, "bad", first, coef)
    write_solver(folder, "plain")
    records = run.run(plan(svmlight, tmp_path, parameters={"divisor": 10}))
    assert [(record["solver"], record["status"]) for record in records] == [
        ("bad", "failed"),
        ("plain", "ok"),
    ]
    assert said in records[0]["error"]


def test_a_call_that_a_solver_lacks_is_not_asked_of_it(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(linear_cases.PATHS, "path", ({}, {"n_samples": 40, "n_features": 50}))
    monkeypatch.setattr(linear_cases.datasets, "make_sparse_regression", small_regression)
    write_solver(folder, "plain")
    (record,) = run.run(run.Plan("lasso", datasets=("path",), quick=True))
    assert (record["status"], record["error"]) == ("not offered", "no cross_validate")


REAL_REGRESSION = datasets.make_sparse_regression


def small_regression(n_samples, n_features, *, n_informative, density, random_state):
    return REAL_REGRESSION(n_samples, n_features, n_informative=5, density=0.2, random_state=random_state)


# ---------------------------------------------------------------------------------- the command


def arguments(*words):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    return parser.parse_args([*map(str, words)])


def test_ours_and_scikit_learn_solve_the_lasso_by_the_command(svmlight, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    words = ("lasso", "--dataset", svmlight, "--against", "sklearn", "--repeats", 1, "--out", out)
    assert command.main(arguments(*words, "--param", "divisor=20", "intercept=True")) == 0
    printed = capsys.readouterr().out
    for text in ("tiny /20 to gap 1e-6", "ours / best peer", "(sklearn)", "MB beyond the design"):
        assert text in printed
    ours, theirs = run.read_records(out / "records.jsonl")
    assert (ours["solver"], theirs["solver"]) == ("stradask", "sklearn")
    best = [min(r["solves"], key=lambda solve: solve["gap"]) for r in (ours, theirs)]
    assert best[0]["objective"] == pytest.approx(best[1]["objective"], rel=1e-7)
    assert best[0]["nonzeros"] == best[1]["nonzeros"] > 0
    # Ours is asked for a gap relative to the zero model's objective, and that is what it gives.
    assert all(solve["gap"] <= solve["tolerance"] for solve in ours["solves"])
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.slow
def test_ours_and_liblinear_solve_the_classification_by_the_command(tmp_path, capsys):
    path = tmp_path / "two.svm"
    rng = np.random.default_rng(0)
    lines = [
        f"{i % 2} 1:{rng.normal() + i % 2:.4f} 2:{rng.normal():.4f} 3:{rng.normal():.4f}" for i in range(40)
    ]
    path.write_text("\n".join(lines))
    words = ("sparse-logistic", "--dataset", path, "--against", "liblinear", "saga", "--repeats", 1, "--json")
    assert command.main(arguments(*words, "--out", tmp_path, "--param", "divisor=5")) == 0
    records = json.loads(capsys.readouterr().out)
    assert [r["solver"] for r in records] == ["stradask", "stradask-logistic", "liblinear", "saga"]
    best = [min(r["solves"], key=lambda solve: solve["gap"]) for r in records]
    assert all(solve["gap"] < 1e-7 for solve in best)
    for solve in best:
        assert solve["objective"] == pytest.approx(best[0]["objective"], rel=1e-7)
    assert best[0]["objective"] < math.log(2)


@pytest.mark.slow
def test_paths_of_ours_and_scikit_learn_agree(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(linear_cases.PATHS, "path", ({}, {"n_samples": 60, "n_features": 80}))
    monkeypatch.setattr(linear_cases.datasets, "make_sparse_regression", small_regression)
    monkeypatch.setattr(lasso_objective, "SMALLEST", 0.01)
    words = ("lasso", "--dataset", "path", "--against", "sklearn", "--quick", "--out", tmp_path)
    assert command.main(arguments(*words)) == 0
    printed = capsys.readouterr().out
    assert "path (quick) 30 x 5 at tolerance 1e-6" in printed
    ours, theirs = run.read_records(tmp_path / "records.jsonl")
    curves = [np.array(record["solves"][-1]["errors"]) for record in (ours, theirs)]
    np.testing.assert_allclose(*curves, rtol=1e-3)
    assert ours["solves"][-1]["alpha"] == pytest.approx(theirs["solves"][-1]["alpha"])
    assert ours["solves"][-1]["gap"] <= 1e-6
    assert 0 < np.argmin(curves[0]) < 29  # neither end: the choice says something


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lasso", "--dataset", "z"), "'z' is neither one of a, b, c, d, path"),
        (("lasso", "--dataset", "a", "--param", "divisor=0"), "divisor is 0"),
        (
            ("lasso", "--param", "n_components=3"),
            "lasso has no parameter 'n_components'; it has divisor, intercept",
        ),
        (("sparse-logistic", "--against", "sklearn"), "unknown peer 'sklearn' of sparse-logistic.*liblinear"),
        (("lda", "--dataset", "docstrings", "synthetic"), "one data set at a time"),
        (("lda", "--dataset", "synthetic", "--param", "n_components=0"), "n_components is 0"),
    ],
)
def test_wrong_options_are_errors_that_name_them(words, said, tmp_path):
    with pytest.raises(run.DataError, match=said):
        command.main(arguments(*words, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("word", ["divisor", "divisor=", "=3", "divisor=x y"])
def test_a_parameter_that_is_no_assignment_is_named(word, capsys):
    with pytest.raises(SystemExit):
        arguments("lasso", "--param", word)
    assert "is not NAME=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "peers"),
    [
        ("lasso", {"adelie", "celer", "skglm", "sklearn"}),
        ("sparse-logistic", {"stradask-logistic", "adelie", "celer", "liblinear", "saga", "skglm"}),
    ],
)
def test_the_package_lists_its_solvers_ours_first(family, peers):
    known = solvers.find_solvers(family)
    assert next(iter(known)) == "stradask"
    assert set(known) == {"stradask", *peers}
    assert all("solve" in solver.calls for solver in known.values())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell of a parent's end")
def test_a_solver_ends_with_a_runner_that_was_killed(tmp_path):
    """The worker sleeps; its parent, which started it and says its number, is killed."""
    code = (
        "import subprocess, sys, time\n"
        f"sys.path.insert(0, {str(WORKER.parent)!r})\n"
        "child = 'import sys, time, worker; worker.end_with_parent(); print(1, flush=True); time.sleep(60)'\n"
        "inner = subprocess.Popen([sys.executable, '-c', child], stdout=subprocess.PIPE, cwd=sys.path[0])\n"
        "inner.stdout.readline()\n"
        "print(inner.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as runner:
        worker = int(runner.stdout.readline())
        runner.kill()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        for _ in range(1200):
            if " Z " in Path(f"/proc/{worker}/stat").read_text():
                return
            time.sleep(0.05)
        pytest.fail("the worker goes on")
