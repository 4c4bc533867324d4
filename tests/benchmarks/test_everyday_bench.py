"""``stradask bench everyday``: its objectives against scikit-learn's losses, tolerances, and a quick run."""

import argparse
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error

from stradask.benchmarks import command, run
from stradask.benchmarks.comparisons import everyday, everyday_models
from stradask.benchmarks.run import read_records
from stradask.errors import DataError


def arguments(folder, **change):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    args = parser.parse_args(["everyday", "--quick", "--out", str(folder)])
    return argparse.Namespace(**vars(args) | change)


def test_a_quick_run_leaves_records_a_table_and_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(everyday, "LEAST", 0.0)
    assert command.main(arguments(tmp_path)) == 0
    records = read_records(tmp_path / "records.jsonl")
    assert [(r["task"], r["data"]["name"]) for r in records] == everyday.problems(quick=True)
    for record in records:
        for side in (everyday.SIDES[0], everyday.peer_of(record)):
            figures = record[side]
            assert len(figures["turns"]) == everyday.QUICK_ROUNDS
            assert figures["seconds"] == pytest.approx(np.median(figures["turns"]), rel=1e-4)
            assert -1e-9 <= figures["excess"] <= everyday.LEVEL
    out = capsys.readouterr().out
    assert "5 problems" in out
    assert f"{everyday.ratio(records[0]):.2f}" in out
    page = (tmp_path / "report.html").read_text()
    assert "<h1>" in page
    assert "Lasso: diabetes" in page


def judged(monkeypatch, fit):
    """Measure a problem of two sides whose models say how far off they are."""
    monkeypatch.setattr(everyday, "LEAST", 0.0)
    data = {"none": lambda: (np.zeros((3, 1)), np.array([0.0, 1.0, 2.0]))}
    monkeypatch.setitem(everyday.TASKS, "PoissonRegressor", everyday.Task(fit, data, lambda X, y, m: m.off))
    monkeypatch.setattr(everyday, "_tightest", lambda fit, model: SimpleNamespace(off=0.0))
    return everyday.measure("PoissonRegressor", "none", 1)


def test_a_side_that_is_too_far_gets_a_smaller_tolerance(monkeypatch):
    """A loss of four steps of ten times smaller tolerances: the first below the level is taken."""
    asked = []

    def fit(library, X, y, tol=1e-4, max_iter=100):
        asked.append((library.__name__, tol))
        return SimpleNamespace(off=0.0 if library is everyday.ours else 10 * tol)

    found = judged(monkeypatch, fit)
    assert found["stradask"]["tol"] is None
    assert found["stradask"]["max_iter"] is None
    assert found["scikit-learn"]["tol"] == pytest.approx(1e-5)
    assert found["scikit-learn"]["excess"] == pytest.approx(1e-4)
    assert ("sklearn.linear_model", pytest.approx(1e-5)) in asked


@pytest.mark.parametrize("tol", [None, 1e-6])
def test_a_side_that_its_iterations_end_too_early_gets_more_of_them_first(monkeypatch, tol):
    """With the default iterations no tolerance helps; with more of them, the default one or a smaller."""
    enough = 1e-4 if tol is None else tol

    def fit(library, X, y, tol=1e-4, max_iter=100):
        ended = library is not everyday.ours and (max_iter == 100 or tol > 1.01 * enough)
        return SimpleNamespace(off=float(ended))

    found = judged(monkeypatch, fit)
    assert found["scikit-learn"]["max_iter"] == everyday.MOST_ITERATIONS
    assert found["scikit-learn"]["tol"] == (tol if tol is None else pytest.approx(tol))
    assert found["scikit-learn"]["excess"] == 0.0
    assert found["stradask"]["max_iter"] is None


def test_a_limit_of_iterations_is_lifted_in_a_real_fit(monkeypatch):
    """50 correlated columns of different scales: scikit-learn's 100 iterations end above the level."""
    monkeypatch.setattr(everyday, "LEAST", 0.0)
    found = everyday.measure("LogisticRegression", "correlated 500 x 50", 1)
    assert found["scikit-learn"]["max_iter"] == everyday.MOST_ITERATIONS
    for side in everyday.SIDES:
        assert found[side]["excess"] <= everyday.LEVEL


def test_objectives_are_those_of_the_models():
    X, y = everyday._regression(60, 4)
    model = linear_model.Lasso(0.1).fit(X, y)
    expected = mean_squared_error(y, model.predict(X)) / 2 + 0.1 * np.abs(model.coef_).sum()
    assert everyday._lasso(X, y, model) == pytest.approx(expected)
    model = linear_model.Ridge().fit(X, y)
    expected = 60 * mean_squared_error(y, model.predict(X)) + (model.coef_**2).sum()
    assert everyday._ridge(X, y, model) == pytest.approx(expected)
    for load in (load_breast_cancer, load_iris):
        A, b = load(return_X_y=True)
        A = (A - A.mean(0)) / A.std(0)
        model = linear_model.LogisticRegression().fit(A, b)
        expected = log_loss(b, model.predict_proba(A)) * len(b)
        assert everyday._log_loss(A, b, model) == pytest.approx(expected)
        squares, sizes = (model.coef_**2).sum() / 2, np.abs(model.coef_).sum()
        assert everyday._logistic(A, b, model) == pytest.approx(expected + squares)
        assert everyday._sparse_logistic(A, b, model) == pytest.approx(expected + sizes)
    alphas, coefs, _ = linear_model.lasso_path(X, y, alphas=[0.5, 0.1])
    values = [
        mean_squared_error(y, X @ b) / 2 + a * np.abs(b).sum() for a, b in zip(alphas, coefs.T, strict=True)
    ]
    assert everyday._path(X, y, everyday._PathModel(alphas, coefs)) == pytest.approx(np.mean(values))
    A, b = everyday._counts(lambda: (X, y))()
    model = linear_model.PoissonRegressor().fit(A, b)
    expected = mean_poisson_deviance(b, model.predict(A)) / 2 + (model.coef_**2).sum() / 2
    assert everyday._poisson(A, b, model) == pytest.approx(expected)


def test_there_are_sixty_problems_and_more_of_the_sizes_that_they_name():
    pairs = everyday.problems()
    assert len(pairs) == len(set(pairs)) >= 60
    for name, make in everyday._MADE.items():
        n, p = (int(part.replace(",", "")) for part in name.split(" ", 1)[1].split(" x "))
        assert make()[0].shape == (n, p)


def test_halves_and_behind_are_counted():
    def record(place, ours):
        return {"place": place, "stradask": {"seconds": ours}, "scikit-learn": {"seconds": 1.0}}

    said = everyday.summary([record(0, 0.5), record(1, 2.0), record(2, 0.7), record(3, 0.1)])
    assert "4 problems, 1 slower" in said
    assert "median ratio 0.60 (even numbers 0.60, odd 1.05), largest 2.00" in said


def test_the_last_record_of_each_problem_counts_and_chosen_data_keep_their_numbers(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(everyday, "measure", lambda name, data, rounds: {"shape": [name, data]})
    monkeypatch.setattr(everyday, "ratio", lambda record: 1.0)
    chosen = arguments(tmp_path, dataset=["digits", "linnerud"], quick=False)
    everyday.collect(chosen, seen.append, lambda line: None)
    pairs = everyday.problems()
    assert {record["data"]["name"] for record in seen} == {"digits", "linnerud"}
    assert [tuple(record["shape"]) for record in seen] == [pairs[record["place"]] for record in seen]
    older = [{"place": place, "run": "old"} for place in range(len(pairs))]
    last = everyday.latest([*older, *seen])
    assert [record["place"] for record in last] == list(range(len(pairs)))
    assert {record["place"] for record in last if record["run"] != "old"} == {r["place"] for r in seen}


@pytest.mark.parametrize("change", [{"against": ["celer"]}, {"dataset": ["a"]}, {"param": [("n", 3)]}])
def test_what_it_does_not_take_is_refused(tmp_path, change):
    with pytest.raises(DataError, match="everyday"):
        everyday.collect(arguments(tmp_path, **change), print, print)


# Models that are trained to an accuracy --------------------------------------------------------------------


def test_a_side_is_timed_to_its_first_state_at_the_level_and_not_while_it_is_judged(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(everyday_models.time, "process_time", lambda: next(clock))
    errors = iter([0.9, 0.5, 0.2, 0.3])
    watch = everyday_models.Watch(lambda snapshot: next(errors), 8, n_states=4)
    steps = 1
    while watch.tick(1, lambda: None):
        steps += 1
    assert steps == 8
    assert watch.states == [(1, 0.9), (2, 0.5), (4, 0.2), (8, 0.3)]  # a second a step, judging left out
    assert [watch.seconds_to(level) for level in (0.5, 0.3)] == [2, 4]


def test_the_level_is_the_worse_end_and_a_little_more(monkeypatch):
    """One side falls to .1, the other to .2: the first is timed to where it is below .205."""
    ends = {"_train_ours": (0.4, 0.15, 0.1), "_train_sklearn": (0.3, 0.25, 0.2)}
    for name, errors in ends.items():

        def train(data, watch, epochs, errors=errors):
            for error in errors:
                if not watch.tick(1, lambda error=error: error):
                    return

        monkeypatch.setattr(everyday_models, name, train)
    monkeypatch.setattr(everyday_models.Classes, "error", lambda self, snapshot: snapshot)
    found = everyday_models.measure(everyday_models.Problem("mlp", "iris", "sklearn", {}, (3, 3)), 2)
    assert found["stradask"]["level"] == found["sklearn"]["level"] == pytest.approx(0.205)
    assert (found["stradask"]["error"], found["sklearn"]["error"]) == (0.1, 0.2)
    assert found["stradask"]["seconds"] == np.median(found["stradask"]["turns"])
    assert len(found["sklearn"]["turns"]) == 2


def test_a_peer_that_is_not_installed_leaves_a_row_out(tmp_path, monkeypatch):
    monkeypatch.setattr(everyday_models, "missing", lambda name: "tomotopy" if "100 topics" in name else None)
    said, records = [], []
    monkeypatch.setattr(everyday, "measure", lambda name, data, rounds: {"shape": []})
    monkeypatch.setattr(everyday, "ratio", lambda record: 1.0)
    chosen = arguments(tmp_path, dataset=["synthetic"], quick=False)
    everyday.collect(chosen, records.append, said.append)
    assert records == []
    assert said == ["LDA, 100 topics, synthetic: left out, tomotopy is not installed"]


def test_choices_are_of_tastes_and_judged_on_what_was_held_out():
    """60 items a user, a tenth held out; factors that score the held-out items first have no error."""
    data = everyday_models.Choices("40 x 100", 100)
    both = data.train + data.test
    assert (both.sum(axis=1) == 60).all()
    assert both.max() == 1
    assert 0.05 < data.test.nnz / both.nnz < 0.15
    held = data.test.toarray().astype(float)
    assert data.error((held, np.eye(100))) == pytest.approx(0)
    assert data.error((-held, np.eye(100))) > 0.5
    assert data.error((np.tile(held.sum(axis=0), (40, 1)), np.eye(100))) > 0.2  # without the users' tastes


@pytest.mark.parametrize(
    "loss", [pytest.param({"alpha": 10.0, "reg": 1.0}, marks=pytest.mark.slow), {"loss": "bpr"}]
)
def test_choices_are_learned_through_the_tick_of_a_watch(loss):
    problem = everyday_models.Problem("choices", "60 x 90", "implicit", {"n_components": 16, **loss}, (8, 8))
    (train, _), error, shape = everyday_models._of_choices(problem)
    watch = everyday_models.Watch(error, 8)
    train(watch)
    assert shape == (60, 90)
    assert watch.n_ticks == 8
    assert watch.states[-1][1] < 1
