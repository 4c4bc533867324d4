"""The judge of logistic regressions, and the command that runs the family."""

import argparse
import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, sparse

from stradask.benchmarks import command, run, solvers
from stradask.benchmarks.objectives import logistic
from stradask.benchmarks.objectives.logistic import Objective, least_objective, load, mean_objective
from stradask.benchmarks.pages import solving
from stradask.benchmarks.runs import worker
from stradask.errors import DataError

PARAMETERS = {"C": 1, "intercept": False, "unit_rows": False, "one_class": None}


def problem(n=60, p=4):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    return X, np.where(X[:, 0] + rng.logistic(size=n) > 0, 1.0, -1.0)


def at_unit_norm(X):
    return X / np.linalg.norm(X, axis=1)[:, None]


@pytest.mark.parametrize("with_intercept", [True, False])
@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_matrix])
def test_the_minimum_is_what_scipy_finds(form, with_intercept):
    X, y = problem()

    def objective(z):
        f = X @ z[:4] + (z[4] if with_intercept else 0.0)
        return np.logaddexp(0, -y * f).mean() + 0.05 * z[:4] @ z[:4]

    best = optimize.minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-9})
    assert least_objective(form(X), y, 0.1, with_intercept) == pytest.approx(best.fun, rel=1e-9)
    intercept = best.x[4] if with_intercept else 0.0
    assert mean_objective(form(X), y, best.x[:4], 0.1, intercept) == pytest.approx(best.fun, rel=1e-12)


def test_the_gap_is_the_excess_over_the_minimum(monkeypatch):
    monkeypatch.setitem(logistic.DESIGNS, "dense", (None, (60, 4, np.float64, 0)))
    judge = Objective(
        "dense",
        seed=0,
        parameters=PARAMETERS | {"C": (0.1, 2)},
        quick=True,
    )
    problems = judge.problems()
    assert [p.name for p in problems] == ["C=0.1", "C=2"]
    assert [p.arguments["alpha"] * 60 for p in problems] == pytest.approx([10, 0.5])
    least = least_objective(judge.X, judge.y, problems[1].arguments["alpha"], False)
    found = judge.evaluate(problems[1], {"coef": np.zeros(4), "intercept": 0.0})
    assert found["objective"] == pytest.approx(np.log(2))
    assert found["gap"] == pytest.approx(np.log(2) / least - 1)
    assert found["nonzeros"] == 0
    with pytest.raises(DataError, match="the intercept is 1; none was asked for"):
        judge.evaluate(problems[1], {"coef": np.zeros(4), "intercept": 1.0})
    described = judge.describe()
    assert (described["train_rows"], described["train_columns"]) == (60, 4)


def test_the_minimum_of_several_classes_is_what_scipy_finds(tmp_path):
    X, _ = problem()
    y = np.random.default_rng(1).integers(3, size=60).astype(float)

    def objective(z):
        F = X @ z.reshape(3, 4).T
        logs = F - np.log(np.exp(F).sum(axis=1, keepdims=True))
        return -np.mean([row[int(k)] for row, k in zip(logs, y, strict=True)]) + 0.05 * z @ z

    best = optimize.minimize(objective, np.zeros(12), method="BFGS", options={"gtol": 1e-9})
    assert least_objective(X, y, 0.1, False) == pytest.approx(best.fun, rel=1e-9)
    assert mean_objective(X, y, best.x.reshape(3, 4), 0.1) == pytest.approx(best.fun, rel=1e-12)
    path = tmp_path / "three.svm"
    path.write_text("\n".join(f"{7 - k:g} 1:1 2:{k + 1:g}" for k in y))  # labels in falling order
    judge = Objective(str(path), seed=0, parameters=PARAMETERS)
    assert np.array_equal(judge.y, 2 - y)
    zero = {"coef": np.zeros((3, 2)), "intercept": 0.0}
    assert judge.evaluate(judge.problems()[0], zero)["objective"] == pytest.approx(np.log(3))
    same = Objective(str(path), seed=0, parameters=PARAMETERS | {"unit_rows": True})
    np.testing.assert_allclose(same.X.toarray(), at_unit_norm(judge.X.toarray()))
    assert (same.X.format, same.describe()["name"]) == ("csc", "three, unit rows")
    two = Objective(str(path), seed=0, parameters=PARAMETERS | {"one_class": 2})
    assert np.array_equal(two.y, np.where(y == 0, 1, -1))
    assert (two.coef_shape, two.describe()["name"]) == ((2,), "three, class 2 or not")
    with pytest.raises(DataError, match=r"one_class is 3; a number from 0 to 2"):
        Objective(str(path), seed=0, parameters=PARAMETERS | {"one_class": 3})
    with pytest.raises(DataError, match=r"one of \(3, 2\) is needed"):
        judge.evaluate(judge.problems()[0], {"coef": np.zeros((1, 2)), "intercept": 0.0})
    with pytest.raises(DataError, match=r"intercept=True, but .* has 3 classes"):
        Objective(str(path), seed=0, parameters=PARAMETERS | {"intercept": True})


def test_the_sample_is_small_and_has_all_classes(monkeypatch):
    monkeypatch.setattr(logistic, "SAMPLE_ROWS", 3)
    monkeypatch.setitem(logistic.DESIGNS, "dense", (None, (60, 4, np.float64, 0)))
    judge = Objective(
        "dense",
        seed=0,
        parameters=PARAMETERS,
        quick=True,
    )
    sample = judge.sample()
    assert sample["X"].shape == (6, 4)
    assert sorted(sample["y"]) == [-1, -1, -1, 1, 1, 1]
    assert np.array_equal(sample["X"][0], judge.X[0])


def test_a_minimum_that_is_not_certain_is_refused(monkeypatch):
    monkeypatch.setattr(logistic, "TARGETS", (1e-4, 1e-30))
    X, y = problem()
    with pytest.raises(DataError, match=r"the minimum at C=1 is known to .* only"):
        least_objective(X, y, 1 / 60, False)


@pytest.mark.parametrize("name", ["dense", "dense64", "scaled", "wide", "words", "c"])
def test_a_seed_names_a_data_set(name):
    X, y = load(name, seed=3, quick=True)
    again, _ = load(name, seed=3, quick=True)
    other, _ = load(name, seed=4, quick=True)
    assert abs(X - again).max() == 0
    assert abs(X - other).max() > 0
    assert set(y) == {-1.0, 1.0}
    if name == "scaled":
        spread = X.std(axis=0)
        assert spread.max() / spread.min() > 1e3


@pytest.mark.parametrize(
    ("dataset", "parameters", "said"),
    [
        ("z", {}, "'z' is neither one of dense, dense64, scaled, wide, words, c nor a file"),
        ("dense", {"C": (0,)}, "C is 0; numbers above 0"),
        ("dense", {"C": True}, "C is True"),
        ("dense", {"intercept": 1}, "intercept is 1; give True or False"),
        ("dense", {"unit_rows": 1}, "unit_rows is 1; give True or False"),
        (
            "dense",
            {"one_class": 0},
            "one_class is 0; a number from 0 to 1 is needed, and data of more than two",
        ),
    ],
)
def test_wrong_options_are_errors_that_name_them(dataset, parameters, said):
    with pytest.raises(DataError, match=said):
        Objective(
            dataset,
            seed=0,
            parameters=PARAMETERS | parameters,
            quick=True,
        )


@pytest.mark.slow
def test_it_and_scikit_learn_solve_it_by_the_command(tmp_path, capsys):
    X, y = problem()
    path = tmp_path / "two.svm"
    lines = [
        f"{label:g} " + " ".join(f"{j + 1}:{v:.5f}" for j, v in enumerate(row))
        for row, label in zip(X, y, strict=True)
    ]
    path.write_text("\n".join(lines))
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    words = ["logistic", "--dataset", path, "--against", "sklearn-newton-cholesky", "--repeats", 1, "--json"]
    words += ["--param", "C=2", "--out", tmp_path]
    command.main(parser.parse_args(list(map(str, words))))
    records = {record["solver"]: record for record in json.loads(capsys.readouterr().out)}
    theirs = records["sklearn-newton-cholesky"]
    assert theirs["status"] == "ok"
    assert min(solve["gap"] for solve in theirs["solves"]) < 1e-8
    assert theirs["solves"][0]["gap"] > min(solve["gap"] for solve in theirs["solves"])
    ours = records["stradask"]
    assert ours["status"] == "ok", ours.get("error")
    for solve in ours["solves"]:  # a tolerance is an estimate of the gap: what was asked for was given
        assert solve["gap"] <= 2 * solve["tolerance"]
    assert min(solve["gap"] for solve in ours["solves"]) <= ours["targets"][-1]
    page = solving.page(list(records.values())).html()
    assert "relative excess over the minimum" in page
    assert "the excess over the least objective, relative to that" in page
    assert "duality" not in page
    assert "zero model" not in page


def test_the_package_lists_its_solvers_ours_first():
    known = solvers.find_solvers("logistic")
    peers = {"liblinear", "sklearn-lbfgs", "sklearn-newton-cg", "sklearn-newton-cholesky", "snapml"}
    assert next(iter(known)) == "stradask"
    assert set(known) == {"stradask", *peers}
    assert all("solve" in solver.calls for solver in known.values())


# --- on worker processes ----------------------------------------------------------------------------

ON_DASK = solvers.FOLDER.parent / "experiments" / "solvers_on_dask"


def test_solvers_on_dask_are_found_where_one_asks_for_them():
    known = solvers.find_solvers("logistic", [ON_DASK])
    added = {name: known[name].is_ours for name in known if name not in solvers.find_solvers("logistic")}
    assert added == {"stradask-dask": True, "dask-glm": False}
    peer = worker.load_solver(known["dask-glm"].path)(SimpleNamespace(n_jobs=2, intercept=True))
    with pytest.raises(ValueError, match="compare without intercept"):
        peer.solve(1.0, 1.0)


@pytest.mark.slow
@pytest.mark.cluster
def test_our_solver_on_dask_solves_what_the_local_one_solves(monkeypatch):
    monkeypatch.syspath_prepend(ON_DASK)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 5), dtype=np.float32)
    data = SimpleNamespace(X=X, y=np.where(X[:, 0] + rng.logistic(size=3000) > 0, 1, -1))
    found = []
    for path in (solvers.FOLDER / "logistic" / "logistic_stradask.py", ON_DASK / "logistic_stradask_dask.py"):
        solver = worker.load_solver(path)(SimpleNamespace(n_jobs=2, intercept=False))
        solver.set_data(data)
        found.append(solver.solve(1 / 3000, 1e-6))
    solver.workers.close()
    np.testing.assert_allclose(found[1]["coef"], found[0]["coef"], rtol=1e-3)
    assert found[0]["intercept"] == found[1]["intercept"] == 0.0
