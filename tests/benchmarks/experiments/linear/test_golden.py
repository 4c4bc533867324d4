"""The golden file: its objectives against the estimators' own, and what its command says and returns."""

import json

import pytest

import stradask as sd
from stradask.benchmarks.experiments.linear import golden, golden_problems
from stradask.benchmarks.experiments.linear.golden_problems import CASES, FIRST, Fitter


class InThisProcess:
    """A `Side` without a process; `far` puts the objective of the second checkout above."""

    far = 0.0

    def __init__(self, checkout, cache=None):
        self.far = InThisProcess.far if checkout == golden.ROOT else 0.0

    def ask(self, method, line, *arguments):
        answer = getattr(Fitter(line, str(golden.ROOT), None), method)(*arguments)
        return answer | ({"objective": answer["objective"] + self.far} if "objective" in answer else {})

    def close(self):
        pass


def test_lines_are_of_public_estimators_and_in_the_record():
    assert len(set(CASES)) == len(CASES) >= 60
    assert set(FIRST) < set(CASES)
    assert {line.split()[0] for line in CASES} < set(sd.__all__)
    assert set(json.loads(golden.RECORD.read_text())["rows"]) == set(CASES)


@pytest.mark.parametrize(
    "line",
    [
        "GroupLasso squared square .1 groups=5 l1_ratio=.5",
        "SparseGLM squared square .1 penalty='mcp'",
        "SparseGLM huber square .1 penalty='l1'",
        "HuberRegressor huber tall -",
        "MultiTaskLasso targets square .1",
        "CoxRegression cox small - alpha=0.",
        "QuantileRegressor quantile tall .1",
    ],
)
def test_the_objective_is_the_estimators(line):
    fitter = Fitter(line, "", None)
    model = fitter.fit()
    assert fitter.look()["objective"] == pytest.approx(model.objective_, rel=1e-9)


def test_a_worse_objective_is_the_exit_status(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(golden, "Side", InThisProcess)
    monkeypatch.setattr(golden, "RECORD", tmp_path / "made" / "linear.json")
    words = ["Lasso", "small", ".1", "--rounds", "1"]
    assert golden.main([*words, "--write", "--compare", str(tmp_path / "none.json")]) == 0
    assert "gap" in capsys.readouterr().out
    rows = json.loads(golden.RECORD.read_text())["rows"]
    assert list(rows) == ["Lasso squared small .1"]
    assert 0 < rows["Lasso squared small .1"]["calls"] < 500
    for far, status in ((0.0, 0), (1.0, 1)):
        monkeypatch.setattr(InThisProcess, "far", far)
        assert golden.main([*words, "--against", str(tmp_path)]) == status
        assert ("WORSE" in capsys.readouterr().out) == status


def test_a_fit_that_fails_is_a_row_and_the_exit_status(capsys, monkeypatch):
    def refuse(*_):
        raise RuntimeError("no parameter of this name")

    monkeypatch.setattr(golden, "Side", InThisProcess)
    monkeypatch.setattr(golden_problems.Fitter, "fit", refuse)
    assert golden.main(["Lasso", "small", ".1"]) == 1
    assert "no parameter of this name" in capsys.readouterr().out


def test_a_subset_that_is_empty_is_refused(capsys):
    with pytest.raises(SystemExit):
        golden.main(["Lasso", "cox"])
    assert "no problem has all of these words" in capsys.readouterr().err
