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


@pytest.mark.filterwarnings("default")
def test_dates_become_slices_and_held_out_ones_lie_in_them(table, capsys):
    header, *rows = table.read_text().splitlines()
    days = [f"{1 + i % 28}.{1 + i % 12}.{2003 + i // 20}" for i in range(40)]
    table.write_text(
        "\n".join([header, *(f"{row.rpartition(',')[0]},{d}" for row, d in zip(rows, days, strict=True))])
    )
    fit = [
        "fit",
        "dynamic",
        f"{table}:text",
        "--slices",
        "year",
        "--n-components",
        "2",
        "--param",
        "max_iter=5",
    ]
    assert main([*fit, "--test-size", ".2", "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "note: slices are dates: each year is a slice" in printed.err
    found = json.loads(printed.out)
    assert found["slices"] == ["2003", "2004"]
    assert found["held_out_documents"] == 8


@pytest.mark.filterwarnings("default")
def test_a_number_of_topics_is_reported_with_its_interval(table, capsys):
    fit = ["fit", "hdp", f"{table}:text", "--n-components", "8", "--quiet"]
    assert main([*fit, "--json", "--param", "max_iter=170"]) == 0
    found = json.loads(capsys.readouterr().out)
    low, high = found["n_topics_interval"]
    assert 0 < low <= found["n_topics"] == len(found["topics"]) <= high
    assert main([*fit, "--param", "max_iter=170"]) == 0
    assert f"topics       {found['n_topics']}  (90 % interval {low} to {high})" in capsys.readouterr().out
    assert main([*fit, "--json", "--param", "max_iter=5"]) == 0
    assert "n_topics_interval" not in json.loads(capsys.readouterr().out)
