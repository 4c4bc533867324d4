"""Engines, threads, progress and callbacks change where a fit runs and what it shows, not its result."""

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from contract_cases import CASES, DRAWS, SIGNAL, D, X, assert_same_bits, cases
from sklearn.base import clone

import stradask as sd
from stradask.errors import DataError
from stradask.scheduler import Program, StaticSchedule, run, run_replicas

SHOWN = {"n_jobs": 2, "verbose": 1}
# Losses that no engine but "local" fits, and what their refusal says.
REFUSED: dict[str, str] = {}
PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"


@pytest.mark.parametrize("case", cases("ways"))
def test_the_result_is_the_same_in_every_way(case, client, tmp_path, capsys):
    expected = case.answer(case.fitted)
    for name, value in SHOWN.items():
        if case.takes(name, "__init__"):
            same = case.fit(model=case.make().set_params(**{name: value}))
            np.testing.assert_array_equal(case.answer(same), expected, name)
            assert_same_bits(same, case.fitted)
            assert name != "verbose" or re.search(r"\d+/\d+", capsys.readouterr().err)
    if case.takes("callback"):
        rounds = []
        same = case.fit(callback=rounds.append)
        assert rounds
        np.testing.assert_array_equal(case.answer(same), expected, "callback")
        assert_same_bits(same, case.fitted)
    if case.takes("engine", "__init__"):
        check_client(case, client, tmp_path / "model")


def check_client(case, client, path):
    model, address = case.tight(engine=client), client.scheduler.address
    for other in (model, clone(model), copy.copy(model)):
        assert other.engine is client
        assert other.get_params()["engine"] is client
    assert pickle.loads(pickle.dumps(model)).engine == address
    for text in (repr(model), model._repr_html_()):
        assert address in text.replace("&#x27;", "'")
        assert "Client" not in text
    if case.name in REFUSED:
        with pytest.raises(DataError, match=REFUSED[case.name]):
            case.fit(model=model)
        return
    case.fit(model=model)
    assert model.engine is client
    assert client.status == "running"
    expected = case.answer(case.fit(model=case.tight()))
    np.testing.assert_allclose(case.answer(model), expected, rtol=1e-6, atol=1e-8)
    if not case.name.startswith("Torch"):  # a module has no place in a file
        model.save(path)
        assert address.encode() not in path.read_bytes()
        assert sd.load(path).engine == "local"


def loss(portion, w):
    rest = portion @ w - 1
    return rest @ rest, 2 * portion.T @ rest


def log_likelihood(q, rows):
    return -0.5 * ((rows[:, 0] - q[0]) ** 2).sum(), np.array([(rows[:, 0] - q[0]).sum()])


def read(table, task):
    return table.replica


class Total(Program):
    """The sum of what the shards hold."""

    shards = (X[:30], X[30:])
    total = 0.0

    def load(self, data):
        return data

    def update(self, state, task):
        return state.sum()

    def aggregate(self, tasks, partials):
        self.total = sum(partials)


def run_total(engine):
    run(program := Total(), StaticSchedule(1), max_rounds=1, engine=engine)
    return program.total


CALLS = {
    "sample": lambda engine: sd.sample(log_likelihood, None, X, [0.0], engine=engine, **DRAWS).draws,
    "minimize": lambda engine: sd.minimize(loss, np.zeros(D), [X[:30], X[30:]], engine=engine).x,
    "path": lambda engine: sd.enet_path(X, SIGNAL, n_alphas=3, tol=1e-12, engine=engine)[1],
    "run": run_total,
    "run_replicas": lambda engine: run_replicas(read, [0, 1], np.zeros((1, 1)), engine=engine).results,
}


@pytest.mark.filterwarnings("ignore::stradask.errors.PosteriorWarning")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_functions_take_a_client(call, client):
    np.testing.assert_allclose(call(client), call("local"), rtol=1e-4, atol=1e-6)


def test_the_page_says_what_each_estimator_lacks_and_why():
    table = PAGE.read_text().partition("## What a fit takes")[2].partition("## ")[0]
    lacking = {}
    for names, words, reason in re.findall(r"^\| (`.*) \| (.*) \| (.*) \|$", table, re.M):
        assert reason
        lacks = set(re.findall(r"`(\w+)`", words))
        lacking |= dict.fromkeys(re.findall(r"`(\w+)`", names), lacks)
    for case in CASES:
        where = {"engine": "__init__", "n_jobs": "__init__", "verbose": "__init__", "callback": "fit"}
        lacks = {argument for argument, method in where.items() if not case.takes(argument, method)}
        name = type(case.make()).__name__
        assert lacks == lacking.get(name, set()), name
