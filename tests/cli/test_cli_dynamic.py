"""Slices of time on the command line."""

import json

import numpy as np
import pytest

import stradask as sd
from stradask.cli.arguments import main


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array(["telex", "line", "mail", "sea", "sun", "wind"])
    rows = ["text,year"]
    for year, p in ((1990, [5, 3, 1]), (2000, [1, 3, 5])):
        for i in range(20):
            own = words[:3] if i % 2 else words[3:]
            weights = np.array(p if i % 2 else [1, 1, 1])
            rows.append(" ".join(rng.choice(own, 12, p=weights / weights.sum())) + f",{year}")
    path = tmp_path / "posts.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_topics_over_time_are_fitted_and_reported(table, tmp_path, capsys):
    saved = tmp_path / "model.npz"
    data = [f"{table}:text", "--slices", "year", "--n-components", "2"]
    fit = ["fit", "dynamic", *data, "--param", "max_iter=20", "--save", str(saved), "--quiet"]
    assert main([*fit, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["slices"] == ["1990", "2000"]
    assert len(found["words_over_time"]) == 2
    assert sd.load(saved).slices_.tolist() == [1990, 2000]
    assert main(fit) == 0
    assert "1990  " in capsys.readouterr().out
    assert main(["fit", "dynamic", f"{table}:text", "--quiet"]) == 2
    assert "needs --slices COLUMN" in capsys.readouterr().err
    assert main(["fit", "lda", *data, "--quiet"]) == 2
    assert "fit dynamic" in capsys.readouterr().err
