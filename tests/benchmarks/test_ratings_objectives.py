"""The outside judges of matrix factorization, against loops; and that solvers leave what they judge."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from stradask.benchmarks.objectives import implicit, mf
from stradask.benchmarks.runs.worker import load_solver
from stradask.benchmarks.solvers import find_solvers
from stradask.errors import DataError


@pytest.fixture(scope="module")
def rated():
    return mf.Objective("generated", seed=0, parameters={"n_components": 4, "penalties": 2}, quick=True)


@pytest.fixture(scope="module")
def chosen():
    parameters = {"n_components": 4, "alpha": 5.0, "reg": 3.0}
    return implicit.Objective("generated", seed=0, parameters=parameters, quick=True)


def drawn(objective):
    rng = np.random.default_rng(1)
    shape = objective.train.shape
    names = ("user", "item")
    snapshot = {f"{name}_factors": rng.standard_normal((n, 4)) for name, n in zip(names, shape, strict=True)}
    biases = {f"{name}_bias": rng.standard_normal(n) for name, n in zip(names, shape, strict=True)}
    return snapshot | biases | {"mean": np.float64(3), "penalty": np.float64(0.1)}


@pytest.mark.parametrize("name", ["rated", "chosen"])
def test_parts_are_disjoint_and_whole(name, request):
    objective = request.getfixturevalue(name)
    parts = [part.toarray() != 0 for part in (objective.train, objective.validation, objective.test)]
    assert not (parts[0] & parts[1]).any()
    assert not ((parts[0] | parts[1]) & parts[2]).any()
    sizes = [part.sum() for part in parts]
    assert sizes[2] / sum(sizes) == pytest.approx(0.1, abs=0.01)
    assert objective.describe()["test_ratings"] == sizes[2]
    given = objective.arrays()
    assert not any(name.startswith("test") for name in given)
    assert len(given["train_values"]) == sizes[0]


def test_the_error_is_over_the_ratings_of_the_test_part(rated):
    snapshot = drawn(rated)
    total = count = 0
    for u, j, r in zip(*(getattr(rated.test.tocoo(), name) for name in ("row", "col", "data")), strict=True):
        value = 3 + snapshot["user_bias"][u] + snapshot["item_bias"][j]
        value += snapshot["user_factors"][u] @ snapshot["item_factors"][j]
        total, count = total + (value - r) ** 2, count + 1
    found = rated.evaluate(snapshot)
    assert found["rmse"] == pytest.approx(math.sqrt(total / count))
    assert found["validation_rmse"] != found["rmse"]
    with pytest.raises(DataError, match="user_factors of shape"):
        rated.evaluate(snapshot | {"user_factors": snapshot["user_factors"][:5]})
    with pytest.raises(DataError, match="finite"):
        rated.evaluate(snapshot | {"item_factors": snapshot["item_factors"] * np.nan})


def test_rankings_leave_out_what_was_chosen_before(chosen):
    snapshot = drawn(chosen)
    gains, recalls = [], []
    train, test = chosen.train.toarray() > 0, chosen.test.toarray() > 0
    for u in np.flatnonzero(test.any(axis=1)):
        scores = snapshot["item_factors"] @ snapshot["user_factors"][u]
        order = [j for j in np.argsort(-scores, kind="stable") if not train[u, j]][:20]
        gain = sum(1 / math.log2(place + 2) for place, j in enumerate(order) if test[u, j])
        gains.append(gain / sum(1 / math.log2(place + 2) for place in range(min(20, test[u].sum()))))
        recalls.append(sum(test[u, j] for j in order) / test[u].sum())
    found = chosen.evaluate(snapshot)
    assert found["ndcg"] == pytest.approx(np.mean(gains))
    assert found["recall"] == pytest.approx(np.mean(recalls))


@pytest.mark.parametrize("name", ["rated", "chosen"])
def test_our_solver_leaves_a_model_better_than_none(name, request):
    objective = request.getfixturevalue(name)
    known = find_solvers(objective.family)
    assert set(known) == {"stradask", "libmf" if name == "rated" else "implicit"}
    settings = SimpleNamespace(**objective.settings(), n_jobs=1, seed=0)
    solver = load_solver(known["stradask"].path)(settings)
    solver.set_data(SimpleNamespace(**objective.arrays()))
    left, ticks = [], []
    watch = SimpleNamespace(max_ticks=None, restart=lambda: None)

    def tick(work, snapshot):
        left.append(snapshot())
        ticks.append(work)
        return len(left) < 6

    watch.tick = tick
    solver.run(watch)
    first, last = objective.evaluate(left[0]), objective.evaluate(left[-1])
    assert len(left) == 6
    if name == "rated":
        assert last["rmse"] < first["rmse"] < 1.3 * objective.test.data.std()
        assert ticks[:4] == [objective.train.nnz * epochs for epochs in (1, 2, 3, 4)]
    else:
        assert last["ndcg"] > 0.05 > objective.evaluate(drawn(objective))["ndcg"]


@pytest.mark.parametrize(
    ("value", "message"), [(0, "whole number"), (2.5, "whole number"), (True, "whole number")]
)
def test_wrong_parameters_are_refused(value, message):
    with pytest.raises(DataError, match=message):
        mf.Objective("generated", seed=0, parameters={"n_components": value}, quick=True)
    with pytest.raises(DataError, match="neither generated"):
        implicit.Objective("nowhere", seed=0, parameters={"alpha": 1.0}, quick=True)
