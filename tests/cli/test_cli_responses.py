"""Responses of documents on the command line."""

import json

import numpy as np
import pytest

import stradask as sd
from stradask.cli.arguments import main


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["text,stars,kind"]
    for i in range(60):
        own = ["good", "great", "fine"] if i % 2 else ["poor", "dull", "slow"]
        rows.append(" ".join(rng.choice(own, 12)) + f",{1 + 3 * (i % 2)},{'ab'[i % 2]}")
    path = tmp_path / "reviews.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_responses_are_fitted_predicted_and_scored(table, tmp_path, capsys):
    saved, data = str(tmp_path / "model.npz"), f"{table}:text"
    fit = ["fit", "slda", data, "--n-components", "2", "--max-iter", "60", "--test-size", "0.2", "--quiet"]
    assert main([*fit, "--target", "stars", "--save", saved, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["r2"] > 0.9
    assert len(found["coefficients"]["coefficient"]) == 2
    assert main(["score", saved, data, "--target", "stars", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["r2"] > 0.9
    out = tmp_path / "p.csv"
    assert main(["predict", saved, data, "--out", str(out), "--quiet"]) == 0
    predicted = np.loadtxt(out, delimiter=",", skiprows=1, usecols=1)
    np.testing.assert_allclose(predicted[::2], 1, atol=0.5)
    assert main([*fit, "--target", "kind", "--response", "class", "--save", saved]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert sd.load(saved).classes_.tolist() == ["a", "b"]
    assert main(["predict", saved, data, "--quiet"]) == 0
    assert "probability_of_b" in capsys.readouterr().out


def test_missing_and_wrong_responses_are_refused(table, capsys):
    assert main(["fit", "slda", f"{table}:text", "--quiet"]) == 2
    assert "needs --target COLUMN" in capsys.readouterr().err
    assert main(["fit", "slda", f"{table}:text", "--target", "kind", "--quiet"]) == 2
    assert "--response class" in capsys.readouterr().err
